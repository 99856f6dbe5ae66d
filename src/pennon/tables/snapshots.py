"""A version of a table, as executors open it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from pennon.commits.manifest import BadManifestError, parse_opened
from pennon.storage.layout import branch_folder

#: Lance's own limits are gigabytes, and what it keeps of a file may be as large as the file.
_CACHE_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True)
class Snapshot:
    """Where a version of a table is, and what opens it."""

    location: str
    options: dict[str, str] = field(default_factory=dict, repr=False)
    branch: str = ""
    #: None means the newest.
    version: int | None = None
    #: The base paths that the version had when it was planned; None where nobody planned.
    bases: Sequence[str] | None = None

    @property
    def home(self) -> str:
        """Where the branch keeps its files."""
        return f"{self.location}/{branch_folder(self.branch)}".rstrip("/")

    def open(self) -> Any:
        """Open the version."""
        import lance

        session = lance.Session(index_cache_size_bytes=_CACHE_BYTES, metadata_cache_size_bytes=_CACHE_BYTES)
        options = self.options or None
        if self.branch:
            main = lance.dataset(self.location, storage_options=options, session=session)
            return check_bases(main.checkout_version((self.branch, self.version)), self.bases)
        try:
            found = lance.dataset(self.location, version=self.version, storage_options=options, session=session)
        except ValueError as error:
            from lance_namespace.errors import TableVersionNotFoundError

            if "was not found" not in str(error):
                raise
            message = f"Version {self.version} of the table was cleaned up, or the table was dropped."
            raise TableVersionNotFoundError(message) from error
        return check_bases(found, self.bases)

    def schema(self, names: Sequence[str] | None = None) -> Any:
        """Return the types in which columns are read: blobs are bytes then, and stored as something else."""
        from pennon.tables.blobs import schema_with_blobs

        dataset = self.open()
        columns = list(dataset.schema.names if names is None else names)
        return schema_with_blobs(dataset, columns)

    def to_option(self) -> str:
        """Return it as an option of a data source."""
        return json.dumps(asdict(self))

    @classmethod
    def from_option(cls, text: str) -> Self:
        """Return the snapshot that an option holds."""
        return cls(**json.loads(text))


def check_bases(dataset: Any, bases: Sequence[str] | None) -> Any:
    """Return a dataset whose manifest names files of its table and of these base paths only; None allows any base.

    A process that opens a version by its number reads the manifest from storage, where it may have been replaced since
    the server checked it.
    """
    from lance_namespace.errors import InvalidInputError

    try:
        manifest = parse_opened(dataset._ds.serialized_manifest())  # noqa: SLF001 (as Lance has loaded it)
    except BadManifestError as error:
        raise InvalidInputError(f"Version {dataset.version} of the table cannot be read: {error}.") from None
    if bases is not None and not set(manifest.bases) <= set(bases):
        raise InvalidInputError(
            f"Version {dataset.version} of the table cannot be read: its manifest was replaced on storage and names "
            "files of another table. Read another version."
        )
    return dataset


def bases_of(dataset: Any) -> tuple[str, ...]:
    """Return the base paths of a dataset: where files of it are that are not its own."""
    return tuple(base.path for base in dataset.base_paths().values())
