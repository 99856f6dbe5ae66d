"""Read-only file I/O, for tables outside the locations where this catalog may write."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from lance_namespace.errors import PermissionDeniedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pennon.storage.file_io import FileIO, StoredFile


class ReadOnlyFileIO:
    """Reads a folder, and refuses writes."""

    def __init__(self, folder: FileIO) -> None:
        self._folder = folder
        self.location = folder.location
        self.store_path = folder.store_path
        self.is_local = folder.is_local

    def read(self, path: str) -> bytes:
        return self._folder.read(path)

    def read_tagged(self, path: str, max_bytes: int | None = None) -> tuple[bytes, str | None]:
        return self._folder.read_tagged(path, max_bytes)

    def stat(self, path: str) -> StoredFile | None:
        return self._folder.stat(path)

    def exists(self, path: str) -> bool:
        return self._folder.exists(path)

    def is_link(self, path: str) -> bool:
        return self._folder.is_link(path)

    def size(self, path: str) -> int | None:
        return self._folder.size(path)

    def files(self, path: str) -> Iterator[StoredFile]:
        return self._folder.files(path)

    def folders(self) -> list[str]:
        return self._folder.folders()

    def is_empty(self) -> bool:
        return self._folder.is_empty()

    def publish_if_absent(self, staged: str, final: str, content: bytes) -> NoReturn:  # noqa: ARG002
        refuse()

    def put_if_absent(self, path: str, content: bytes) -> NoReturn:  # noqa: ARG002
        refuse()

    def create(self, files: Mapping[str, bytes]) -> None:  # noqa: ARG002
        refuse()

    def replace(self, path: str, content: bytes) -> None:  # noqa: ARG002
        refuse()

    def sync(self, paths: Sequence[str]) -> None:  # noqa: ARG002
        refuse()

    def remove(self, path: str) -> None:  # noqa: ARG002
        refuse()

    def remove_files(self, paths: Sequence[str]) -> None:  # noqa: ARG002
        refuse()

    def walk(self, path: str) -> Iterator[StoredFile]:
        return self._folder.walk(path)

    def remove_all(self) -> None:
        refuse()


def refuse() -> NoReturn:
    """Refuse a write to a table outside the storage root."""
    raise PermissionDeniedError(
        "The table is outside the storage root, so it is read-only: the catalog may be a copy. Allow its prefix in the "
        "setting 'allowed_locations' or, if its files were copied or moved with the root, run `pennon doctor --adopt`."
    )
