"""A folder on storage: the few calls Pennon makes outside Lance, the same for a disk and an object store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class StoredFile:
    """A file in a folder: its path from there, its size, and how storage tells one content from another."""

    path: str
    size: int
    e_tag: str | None
    modified_millis: int


def is_storage_failure(error: Exception) -> bool:
    """Tell whether storage is what failed: a disk, or an object store, whose client is loaded only where it is used."""
    return isinstance(error, OSError) or type(error).__module__.startswith("obstore")


class FileIO(Protocol):
    """A place on storage. Paths are relative to it and made by Pennon, never by a client."""

    #: The address clients use.
    location: str
    #: The path by which Lance names the folder inside its object store: no scheme, no leading slash.
    store_path: str
    #: A look at one file costs microseconds, so it may be taken where it is merely useful.
    is_local: bool

    def read(self, path: str) -> bytes:
        """Return a file's content; raises ``FileNotFoundError``."""

    def stat(self, path: str) -> StoredFile | None:
        """Return what is known of a file, or none when there is none."""

    def exists(self, path: str) -> bool:
        """Tell whether there is a file at a path, or a folder."""

    def publish_if_absent(self, staged: str, final: str, content: bytes) -> StoredFile | None:
        """Give staged content its final name if that is free; none when it is taken.

        Raises ``FileNotFoundError`` when the folder is not there any more.
        """

    def put_if_absent(self, path: str, content: bytes) -> StoredFile | None:
        """Write a file if there is none; none when there is one."""

    def replace(self, path: str, content: bytes) -> None:
        """Write a file in one step, over the one that may be there."""

    def is_link(self, path: str) -> bool:
        """Tell whether there is a symbolic link at a path; object stores have none."""

    def size(self, path: str) -> int | None:
        """Return the size of a file in bytes, or none when there is none."""

    def sync(self, paths: Sequence[str]) -> None:
        """Make files durable, and the folders that name them; missing ones are left out.

        A path that ends with a slash stands for all files in that folder. Object stores are durable by themselves.
        """

    def remove(self, path: str) -> None:
        """Remove a file if it is there."""

    def remove_all(self) -> None:
        """Remove the folder with everything in it."""

    def files(self, path: str) -> Iterator[StoredFile]:
        """Return the files directly in a folder below this one; nothing when there is no such folder."""

    def folders(self) -> list[str]:
        """Return the names of the folders directly in this one."""

    def is_empty(self) -> bool:
        """Tell whether there is nothing here at all."""
