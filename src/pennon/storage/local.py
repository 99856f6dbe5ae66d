"""Folders on a disk."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import glob
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from pennon.storage.file_io import StoredFile

#: Where dropped folders wait for their removal: beside them, so that moving them there is atomic.
TRASH = ".pennon-trash"
#: With more files than this, the whole file system is flushed at once, which waits for what all others wrote.
_MOST_FLUSHED = 256
#: Files are flushed side by side, so that they share a commit of the file system's journal. The three files and three
#: folders of a one-row append, on ext4 with a virtual disk: 0.7 ms side by side, 1.0 ms one by one, 0.4 ms by syncfs();
#: the same while others write to the disk: 0.7 ms, 17 ms and 4 ms.
_FLUSHING_THREADS = 8


class LocalFileIO:
    """A folder on a disk, reached by plain system calls: a commit spends microseconds here."""

    is_local = True

    def __init__(self, location: str, *, durable: bool = False) -> None:
        self.location = location
        self.store_path = location.lstrip("/")
        self._path = location.rstrip("/")
        #: Whether files are flushed to the disk before a write returns.
        self._durable = durable
        #: The inode of the folder whose own name was flushed.
        self._flushed: int | None = None

    def read(self, path: str) -> bytes:
        try:
            with open(f"{self._path}/{path}", "rb", opener=_open_no_link) as file:
                return file.read()
        except (IsADirectoryError, NotADirectoryError) as error:
            raise FileNotFoundError(path) from error

    def stat(self, path: str) -> StoredFile | None:
        try:
            return _stored(path, os.stat(f"{self._path}/{path}"))  # noqa: PTH116
        except (FileNotFoundError, NotADirectoryError):
            return None

    def exists(self, path: str) -> bool:
        return os.access(f"{self._path}/{path}", os.F_OK)

    def publish_if_absent(self, staged: str, final: str, content: bytes) -> StoredFile | None:
        try:
            os.link(f"{self._path}/{staged}", f"{self._path}/{final}")
        except FileExistsError:
            return None
        except FileNotFoundError:
            # Not made anew if the folder is gone too: that would bring a dropped table back.
            if self.stat(final) is not None:
                return None
            stored = _link_new(Path(self._path, final), final, content)
            self.sync([final])
            return stored
        self.remove(staged)
        return self.stat(final)

    def put_if_absent(self, path: str, content: bytes) -> StoredFile | None:
        target = Path(self._path, path)
        target.parent.mkdir(parents=True, exist_ok=True)
        stored = _link_new(target, path, content)
        self.sync([path])
        return stored

    def replace(self, path: str, content: bytes) -> None:
        target = Path(self._path, path)
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = _write_beside(target, content)
        if self._durable:
            _flush(str(beside))  # or the name could outlive the content of both
        beside.replace(target)
        self.sync([path])

    def is_link(self, path: str) -> bool:
        return os.path.islink(f"{self._path}/{path}".rstrip("/"))  # noqa: PTH114

    def size(self, path: str) -> int | None:
        try:
            return os.stat(f"{self._path}/{path}").st_size  # noqa: PTH116
        except (FileNotFoundError, NotADirectoryError):
            return None

    def sync(self, paths: Sequence[str]) -> None:
        if not self._durable:
            return
        files = [path for path in paths if not path.endswith("/")]
        for folder in (path for path in paths if path.endswith("/")):
            files += [file.path for file in self.files(folder.rstrip("/"))]
        if len(files) > _MOST_FLUSHED and _syncfs() is not None:
            _flush_file_system(self._path)
            return
        # Also the folders above the files: any may be as new as the file.
        above = {parent for path in files for parent in _parents(path)}
        paths = [f"{self._path}/{path}".rstrip("/") for path in [*files, *above]]
        list(_flushers().map(_flush, paths))  # raises what went wrong
        self._flush_own_name()

    def _flush_own_name(self) -> None:
        """Flush the folder that names this one, the first time that anything in this one is flushed."""
        with contextlib.suppress(FileNotFoundError):
            number = os.stat(self._path).st_ino  # noqa: PTH116
            if number != self._flushed:
                _flush(os.path.dirname(self._path))  # noqa: PTH120
                self._flushed = number

    def remove(self, path: str) -> None:
        Path(self._path, path).unlink(missing_ok=True)

    def remove_all(self) -> None:
        """Move the folder aside in one step, then remove it: nobody sees it half gone."""
        path = Path(self._path)
        trash = path.parent / TRASH
        trash.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            path.rename(trash / f"{path.name}.{secrets.token_hex(8)}")
        # Also what a process that died in the middle of this has left.
        for aside in trash.glob(f"{glob.escape(path.name)}.{'?' * 16}"):
            if aside.is_symlink():
                aside.unlink(missing_ok=True)  # what it leads to is not in the folder
            else:
                _remove_tree(aside)

    def files(self, path: str) -> Iterator[StoredFile]:
        if not self.exists(path):  # the usual answer for a table that is only declared, and a cheap one
            return
        try:
            with os.scandir(f"{self._path}/{path}") as entries:
                for entry in entries:
                    if entry.is_file():
                        yield _stored(f"{path}/{entry.name}", entry.stat())
        except (FileNotFoundError, NotADirectoryError):
            return

    def folders(self) -> list[str]:
        try:
            with os.scandir(self._path) as entries:
                return [entry.name for entry in entries if entry.is_dir()]
        except FileNotFoundError:
            return []

    def is_empty(self) -> bool:
        try:
            with os.scandir(self._path) as entries:
                return next(iter(entries), None) is None
        except FileNotFoundError:
            return True


def _parents(path: str) -> list[str]:
    """Return the folders above a path, down from the folder that paths are relative to."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[:count]) for count in range(len(parts) + 1)]


@cache
def _flushers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_FLUSHING_THREADS, thread_name_prefix="pennon-flush")


def _flush(path: str) -> None:
    """Flush a file or a folder to the disk, if it is there."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}:
            return
        raise
    try:
        _flush_opened(opened)
    finally:
        os.close(opened)


def _flush_opened(opened: int) -> None:
    """Flush to the disk itself: on macOS, fsync() stops at the cache of the disk, which a power cut empties."""
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is not None:
        with contextlib.suppress(OSError):  # file systems that do not know it have fsync()
            fcntl.fcntl(opened, full)
            return
    os.fsync(opened)


@cache
def _syncfs() -> Callable[[int], int] | None:
    """Return the call that flushes a whole file system; None where there is none, as on macOS."""
    return getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)


def _flush_file_system(path: str) -> None:
    """Flush all that was written to the file system of a folder."""
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        syncfs = _syncfs()
        if syncfs is not None and syncfs(opened) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
    finally:
        os.close(opened)


def _remove_tree(path: Path) -> None:
    """Remove a folder, also when another process removes it at the same time."""
    while path.exists():
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)


def _write_beside(target: Path, content: bytes) -> Path:
    """Write content under another name in the same folder, from where it can get its own in one step."""
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:
        temporary.write_bytes(content)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def _link_new(target: Path, path: str, content: bytes) -> StoredFile | None:
    """Write a file whole if there is none; none when there is one."""
    temporary = _write_beside(target, content)
    try:
        target.hardlink_to(temporary)
        return _stored(path, target.stat())
    except FileExistsError:
        return None
    finally:
        temporary.unlink(missing_ok=True)


def _open_no_link(path: str, flags: int) -> int:
    """Open a file; a link is none of Lance's, and would lead to what is not the table's."""
    try:
        return os.open(path, flags | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise FileNotFoundError(path) from None
        raise


def _stored(path: str, status: os.stat_result) -> StoredFile:
    """Describe a file with the entity tag that Lance's object store gives it."""
    tag = f'"{status.st_ino:x}-{status.st_mtime_ns // 1000:x}-{status.st_size:x}"'
    return StoredFile(path, status.st_size, tag, status.st_mtime_ns // 1_000_000)
