"""Snapshots: a version of a table that another process can open."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Self

from pennon.commits.manifest import InvalidManifestError, parse_manifest_message
from pennon.storage.layout import branch_folder

if TYPE_CHECKING:
    import pyarrow as pa
    from lance import LanceDataset
    from lance.lance import _Session as Session

#: Lance's defaults are gigabytes, and a cached file can take as much memory as its size.
SMALL_CACHE_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True)
class Snapshot:
    """The location of a version, and the options to open it."""

    location: str
    options: dict[str, str] = field(default_factory=dict, repr=False)
    branch: str = ""
    #: None means the newest.
    version: int | None = None
    #: The base paths that the version had when the work was planned; None allows any.
    bases: Sequence[str] | None = None

    @property
    def home(self) -> str:
        """The folder of the branch's files."""
        return f"{self.location}/{branch_folder(self.branch)}".rstrip("/")

    def open(self) -> LanceDataset:
        """Open the version."""
        import lance

        session, options = new_session(), self.options or None
        if self.branch:
            main = lance.dataset(self.location, storage_options=options, session=session)
            return check_bases(main.checkout_version((self.branch, self.version)), self.bases)
        try:
            found = lance.dataset(self.location, version=self.version, storage_options=options, session=session)
        except ValueError as error:
            from lance_namespace.errors import TableVersionNotFoundError

            if "was not found" not in str(error):
                raise
            message = f"Version {self.version} of the table was not found: it was cleaned up, or the table was dropped."
            raise TableVersionNotFoundError(message) from error
        return check_bases(found, self.bases)

    def schema(self, names: Sequence[str] | None = None) -> pa.Schema:
        """Return the types of columns as they are read: blobs are read as bytes, but stored as descriptors."""
        from pennon.tables.blobs import schema_with_blobs

        dataset = self.open()
        columns = list(dataset.schema.names if names is None else names)
        return schema_with_blobs(dataset, columns)

    def to_option(self) -> str:
        """Return the snapshot as an option of a Spark data source."""
        return json.dumps(asdict(self))

    @classmethod
    def from_option(cls, text: str) -> Self:
        """Return the snapshot of an option."""
        return cls(**json.loads(text))


def new_session(
    *, index_cache_bytes: int = SMALL_CACHE_BYTES, metadata_cache_bytes: int = SMALL_CACHE_BYTES
) -> Session:
    """Return a Lance session, by default with small caches."""
    from lance.lance import _Session as Session  # lance.Session, which has no type

    return Session(index_cache_size_bytes=index_cache_bytes, metadata_cache_size_bytes=metadata_cache_bytes)


def check_bases(dataset: LanceDataset, bases: Sequence[str] | None) -> LanceDataset:
    """Return a dataset if its manifest refers only to files of its table and of these base paths; None allows any.

    A process that opens a version by number reads the manifest from storage, where it may have been replaced since the
    server checked it.
    """
    from lance_namespace.errors import InvalidInputError

    try:
        manifest = parse_manifest_message(dataset._ds.serialized_manifest())  # noqa: SLF001 (as Lance has loaded it)
    except InvalidManifestError as error:
        raise InvalidInputError(f"Version {dataset.version} of the table cannot be read: {error}.") from None
    if bases is not None and not set(manifest.bases) <= set(bases):
        raise InvalidInputError(
            f"Version {dataset.version} of the table cannot be read: its manifest was replaced on storage and refers "
            "to files of another table. Read another version."
        )
    return dataset


def check_copy(copied: LanceDataset, dataset: LanceDataset) -> None:
    """Raise ``InvalidInputError`` if a copy has other data files than the dataset that it was made from.

    Lance reads the manifest from storage again before it copies the files that it names.
    """
    from lance_namespace.errors import InvalidInputError

    if _data_files(copied) != _data_files(dataset):
        raise InvalidInputError(
            f"Version {dataset.version} of the table was replaced on storage while it was copied. Read another version."
        )


def _data_files(dataset: LanceDataset) -> set[tuple[str, int | None]]:
    files = (file for fragment in dataset.get_fragments() for file in fragment.metadata.files)
    return {(file.path, file.file_size_bytes) for file in files}


def bases_of(dataset: LanceDataset) -> tuple[str, ...]:
    """Return the base paths of a dataset: the locations of files outside its own folder."""
    return tuple(base.path for base in dataset.base_paths().values())
