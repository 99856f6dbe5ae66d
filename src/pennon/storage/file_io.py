"""File I/O: the few storage calls that Pennon makes outside Lance, the same for a disk and an object store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class StoredFile:
    """A file in a folder: its relative path, size, entity tag and modification time."""

    path: str
    size: int
    e_tag: str | None
    modified_millis: int


class FileTooLargeError(ValueError):
    """A file is larger than the caller can read; ``size`` is its size in bytes."""

    def __init__(self, size: int) -> None:
        super().__init__(f"the file has {size} bytes")
        self.size = size


def check_size(size: int, max_bytes: int | None) -> None:
    """Raise ``FileTooLargeError`` for a size above the limit."""
    if max_bytes is not None and size > max_bytes:
        raise FileTooLargeError(size)


def is_storage_failure(error: Exception) -> bool:
    """Tell whether an error comes from a disk or an object store, without importing the client of the latter."""
    return isinstance(error, OSError) or type(error).__module__.startswith("obstore")


class FileIO(Protocol):
    """A folder on storage. Paths are relative to it, and come from Pennon, never from a client."""

    #: The location as clients name it.
    location: str
    #: The path of the folder inside Lance's object store: without a scheme and a leading slash.
    store_path: str
    #: Whether the folder is on a disk, where checking a file takes microseconds.
    is_local: bool

    def read(self, path: str) -> bytes:
        """Return the content of a file; raises ``FileNotFoundError``."""

    def read_tagged(self, path: str, max_bytes: int | None = None) -> tuple[bytes, str | None]:
        """Return the content of a file and its entity tag.

        Raises ``FileNotFoundError``, and ``FileTooLargeError`` before a file above the limit is read.
        """

    def stat(self, path: str) -> StoredFile | None:
        """Return the metadata of a file; None if it does not exist."""

    def exists(self, path: str) -> bool:
        """Tell whether a file or a folder exists."""

    def publish_if_absent(self, staged: str, final: str, content: bytes) -> StoredFile | None:
        """Publish staged content under its final name; None if that name is taken.

        Raises ``FileNotFoundError`` if the folder no longer exists.
        """

    def put_if_absent(self, path: str, content: bytes) -> StoredFile | None:
        """Write a file; None if it exists already."""

    def create(self, files: Mapping[str, bytes]) -> None:
        """Write new files, by path, under names that nobody else uses; ``sync`` makes them durable.

        Raises ``FileNotFoundError`` if the folder no longer exists.
        """

    def replace(self, path: str, content: bytes) -> None:
        """Write a file atomically, and replace an existing one."""

    def is_link(self, path: str) -> bool:
        """Tell whether a path is a symbolic link, or leads through one; never on object stores."""

    def size(self, path: str) -> int | None:
        """Return the size of a file in bytes; None if it does not exist."""

    def sync(self, paths: Sequence[str]) -> None:
        """Flush files and their parent folders to disk; missing files are ignored.

        A path that ends with a slash means all files in that folder. Object stores are always durable.
        """

    def remove(self, path: str) -> None:
        """Remove a file, if it exists."""

    def remove_files(self, paths: Sequence[str]) -> None:
        """Remove files, those that exist; on object stores many with one request."""

    def walk(self, path: str) -> Iterator[StoredFile]:
        """Return the files in a subfolder and below it; empty if it does not exist. Links are not followed."""

    def remove_all(self) -> None:
        """Remove the folder with everything in it."""

    def files(self, path: str) -> Iterator[StoredFile]:
        """Return the files directly in a subfolder; empty if it does not exist. Links are not followed."""

    def folders(self) -> list[str]:
        """Return the names of the direct subfolders."""

    def is_empty(self) -> bool:
        """Tell whether the folder is empty or does not exist."""
