"""A version of a table, as executors open it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from pennon.lake.layout import branch_folder

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
            return main.checkout_version((self.branch, self.version))
        try:
            return lance.dataset(self.location, version=self.version, storage_options=options, session=session)
        except ValueError as error:
            from lance_namespace.errors import TableVersionNotFoundError

            if "was not found" not in str(error):
                raise
            message = f"Version {self.version} of the table was cleaned up, or the table was dropped."
            raise TableVersionNotFoundError(message) from error

    def schema(self, names: Sequence[str] | None = None) -> Any:
        """Return the types in which columns are read: blobs are bytes then, and stored as something else."""
        dataset = self.open()
        columns = list(dataset.schema.names if names is None else names)
        return dataset.scanner(columns=columns, blob_handling="all_binary").projected_schema

    def to_option(self) -> str:
        """Return it as an option of a data source."""
        return json.dumps(asdict(self))

    @classmethod
    def from_option(cls, text: str) -> Self:
        """Return the snapshot that an option holds."""
        return cls(**json.loads(text))
