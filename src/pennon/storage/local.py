"""File I/O on a local disk."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import glob
import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from pennon.storage.file_io import StoredFile, check_size

#: Where folders are moved before removal: on the same file system, so that the move is atomic.
TRASH = ".pennon-trash"
#: Beyond this number of files, the whole file system is flushed, which also waits for the writes of others.
_MAX_FLUSHED_FILES = 256
#: Files are flushed in parallel, so that they share a commit of the file system's journal; their folders are part of
#: it, so flushing those adds little. The two files of a one-row append with their folders, on ext4 with a virtual disk:
#: 0.5 ms in parallel, 1.5 to 2 ms one by one. Appends that run at once share commits of the journal anyway, so the more
#: there are, the fewer threads each of them uses.
_FLUSH_THREADS = 8
#: The removal of a file that was flushed waits for the disk: 2.6 ms one by one, 0.3 ms in parallel (ext4).
_REMOVAL_THREADS = 8
#: Two modifications of a folder that are closer than this may have the same time.
_MODIFICATION_NANOS = 10**9


class LocalFileIO:
    """A folder on a disk, accessed by plain system calls: a commit spends microseconds here."""

    is_local = True

    def __init__(self, location: str, *, durable: bool = False) -> None:
        self.location = location
        self.store_path = location.lstrip("/")
        self._path = location.rstrip("/")
        #: Whether files are flushed to disk before a write returns.
        self._durable = durable
        #: The inode of this folder when its parent was flushed.
        self._flushed_inode: int | None = None
        #: The inodes and modification times of folders in this one when they were flushed.
        self._flushed_folders: dict[str, tuple[int, int]] = {}

    def read(self, path: str) -> bytes:
        return self.read_tagged(path)[0]

    def read_tagged(self, path: str, max_bytes: int | None = None) -> tuple[bytes, str | None]:
        try:
            with open(f"{self._path}/{path}", "rb", opener=_open_no_link) as file:
                status = os.fstat(file.fileno())
                check_size(status.st_size, max_bytes)
                return file.read(), _entity_tag(status)
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
            # The folder is not created again: that would bring a dropped table back.
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

    def create(self, files: Mapping[str, bytes]) -> None:
        for path, content in files.items():
            opened = os.open(f"{self._path}/{path}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            with os.fdopen(opened, "wb") as file:
                file.write(content)

    def replace(self, path: str, content: bytes) -> None:
        target = Path(self._path, path)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = _write_temporary(target, content)
        if self._durable:
            _flush(str(temporary))  # or a crash could leave the final name without content
        temporary.replace(target)
        self.sync([path])

    def is_link(self, path: str) -> bool:
        parts = path.rstrip("/").split("/")
        above = ("/".join(parts[:count]) for count in range(1, len(parts) + 1))
        return any(os.path.islink(f"{self._path}/{each}".rstrip("/")) for each in above)  # noqa: PTH114

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
        if len(files) > _MAX_FLUSHED_FILES and _syncfs() is not None:
            _flush_file_system(self._path)
            return
        homes = {path.rpartition("/")[0] for path in files}
        above = {path: state for path in _ancestors(homes) if (state := self._unflushed(path))}
        _flush_all([f"{self._path}/{path}".rstrip("/") for path in [*files, *(homes | above.keys())]], len(files))
        self._flushed_folders |= {path: state for path, state in above.items() if _is_settled(state)}
        self._flush_parent()

    def _unflushed(self, path: str) -> tuple[int, int] | None:
        """Return the inode and the modification time of a folder; None if its entries were flushed since."""
        with contextlib.suppress(FileNotFoundError):
            status = os.stat(f"{self._path}/{path}")  # noqa: PTH116
            state = status.st_ino, status.st_mtime_ns
            return None if self._flushed_folders.get(path) == state else state
        return None

    def _flush_parent(self) -> None:
        """Flush the parent of this folder once, so that the folder itself is durable."""
        with contextlib.suppress(FileNotFoundError):
            inode = os.stat(self._path).st_ino  # noqa: PTH116
            if inode != self._flushed_inode:
                _flush(os.path.dirname(self._path))  # noqa: PTH120
                self._flushed_inode = inode

    def remove(self, path: str) -> None:
        Path(self._path, path).unlink(missing_ok=True)

    def remove_files(self, paths: Sequence[str]) -> None:
        with ThreadPoolExecutor(_REMOVAL_THREADS) as threads:
            list(threads.map(self.remove, paths))
        for parent in sorted({os.path.dirname(path) for path in paths}, key=len, reverse=True):  # noqa: PTH120
            if os.path.basename(os.path.dirname(parent)) in {"_indices", "data"}:  # noqa: PTH119, PTH120 (of one index)
                with contextlib.suppress(OSError):
                    os.rmdir(f"{self._path}/{parent}")  # noqa: PTH106

    def walk(self, path: str) -> Iterator[StoredFile]:
        if self.is_link(path):
            return
        for folder, _, names in os.walk(f"{self._path}/{path}"):
            for name in names:
                file = os.path.join(folder, name)  # noqa: PTH118
                with contextlib.suppress(FileNotFoundError):
                    yield _stored(os.path.relpath(file, self._path), os.lstat(file))

    def remove_all(self) -> None:
        """Move the folder away atomically, then remove it, so that readers never see it partly removed."""
        path = Path(self._path)
        trash = path.parent / TRASH
        trash.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            path.rename(trash / f"{path.name}.{secrets.token_hex(8)}")
        # Also remove what a process that died here has left.
        for aside in trash.glob(f"{glob.escape(path.name)}.{'?' * 16}"):
            if aside.is_symlink():
                aside.unlink(missing_ok=True)  # the target of a link is not in the folder
            else:
                _remove_tree(aside)

    def files(self, path: str) -> Iterator[StoredFile]:
        if not self.exists(path) or self.is_link(path):  # the former is common for declared tables, and cheap to check
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


def _ancestors(folders: Iterable[str]) -> set[str]:
    """Return the folders that contain relative folders: any of those may be new."""
    parts = [path.split("/") for path in folders if path]
    return {"/".join(part[:count]) for part in parts for count in range(len(part))}


def _is_settled(state: tuple[int, int]) -> bool:
    """Tell whether a folder was modified so long ago that its next modification gets another time."""
    return time.time_ns() - state[1] > _MODIFICATION_NANOS


@dataclass
class _Flushes:
    """The callers that flush files at this moment."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    callers: int = 0


_flushes = _Flushes()


def _flush_all(paths: Sequence[str], files: int) -> None:
    """Flush files and then folders, in parallel, by at most one thread for each file."""
    with _flushes.lock:
        _flushes.callers += 1
        threads = max(min(_FLUSH_THREADS // _flushes.callers, files), 1)
    try:
        others = [_flush_pool().submit(_flush_each, paths[start::threads]) for start in range(1, threads)]
        _flush_each(paths[::threads])
        for other in others:
            other.result()  # raises the errors of the threads
    finally:
        with _flushes.lock:
            _flushes.callers -= 1


@cache
def _flush_pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_FLUSH_THREADS, thread_name_prefix="pennon-flush")


def _flush_each(paths: Sequence[str]) -> None:
    for path in paths:
        _flush(path)


def _flush(path: str) -> None:
    """Flush a file or a folder to disk, if it exists."""
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
    """Flush to the disk itself: on macOS, fsync() leaves data in the disk's cache, which a power failure erases."""
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is not None:
        with contextlib.suppress(OSError):  # not all file systems support it
            fcntl.fcntl(opened, full)
            return
    os.fsync(opened)


@cache
def _syncfs() -> Callable[[int], int] | None:
    """Return the system call that flushes a whole file system; None on macOS."""
    return getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)


def _flush_file_system(path: str) -> None:
    """Flush the file system of a folder."""
    opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        syncfs = _syncfs()
        if syncfs is not None and syncfs(opened) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
    finally:
        os.close(opened)


def _remove_tree(path: Path) -> None:
    """Remove a folder, even if another process removes it at the same time."""
    while path.exists():
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)


def _write_temporary(target: Path, content: bytes) -> Path:
    """Write content to a temporary file in the same folder, which can be renamed atomically."""
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:
        temporary.write_bytes(content)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def _link_new(target: Path, path: str, content: bytes) -> StoredFile | None:
    """Write a file atomically; None if it exists already."""
    temporary = _write_temporary(target, content)
    try:
        target.hardlink_to(temporary)
        return _stored(path, target.stat())
    except FileExistsError:
        return None
    finally:
        temporary.unlink(missing_ok=True)


def _open_no_link(path: str, flags: int) -> int:
    """Open a file that is not a link: Lance creates no links, and a link could lead out of the table."""
    try:
        return os.open(path, flags | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise FileNotFoundError(path) from None
        raise


def _stored(path: str, status: os.stat_result) -> StoredFile:
    """Return the metadata of a file."""
    return StoredFile(path, status.st_size, _entity_tag(status), status.st_mtime_ns // 1_000_000)


def _entity_tag(status: os.stat_result) -> str:
    """Return the entity tag that Lance's object store gives to a file."""
    return f'"{status.st_ino:x}-{status.st_mtime_ns // 1000:x}-{status.st_size:x}"'
