"""A cache of built environments on disk, shared by all processes of a machine and bounded in size.

Users of an environment hold its lock shared; to build or remove it, a process holds the lock exclusively. The system
releases the locks of a process that dies.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from pennon.core.private_files import make_private_folder
from pennon.pipeline.cancellation import Check, never
from pennon.pipeline.environments.environment import Environment

_POLL_SECONDS = 0.1
_LOCK = ".lock"


class EnvironmentCache:
    """A folder of environments; when they exceed the limit, the least recently used are removed."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self._folder = folder.absolute()
        self._most_bytes = most_bytes

    @contextmanager
    def acquire(self, environment: Environment, check: Check = never) -> Iterator[Path]:
        """Yield the folder of an environment, built if necessary; the check can cancel that."""
        with self._acquire(environment.checksum, "", lambda target: environment.install(target, check), check) as path:
            yield path

    @contextmanager
    def acquire_archive(self, environment: Environment, check: Check = never) -> Iterator[Path]:
        """Yield an environment as a zip file, for executors that cannot see the folder."""

        def pack(target: Path) -> None:
            with self.acquire(environment, check) as built:
                shutil.make_archive(str(target.with_suffix("")), "zip", built)

        with self._acquire(environment.checksum, ".zip", pack, check) as path:
            yield path

    @contextmanager
    def _acquire(self, checksum: str, suffix: str, make: Callable[[Path], None], check: Check) -> Iterator[Path]:
        make_private_folder(self._folder)
        path, lock = self._folder / f"{checksum}{suffix}", self._folder / f"{checksum}{suffix}{_LOCK}"
        while True:
            was_there = path.exists()
            with lock.open("a") as held:
                _acquire_lock(held, fcntl.LOCK_SH if was_there else fcntl.LOCK_EX, check)
                if not _is_at(held, lock):
                    continue  # the environment was removed, and its lock file with it
                if not was_there and not path.exists():
                    self._make(path, lock, make)
                elif was_there and path.exists():
                    _record_use(lock)
                    yield path
                    return

    def _make(self, path: Path, lock: Path, make: Callable[[Path], None]) -> None:
        """Make a file or folder, which appears complete or not at all, and trim the cache."""
        staged = _staged(path)
        _remove(staged)  # left by a killed process
        try:
            make(staged)
            staged.rename(path)
        except BaseException:
            _remove(staged)
            lock.unlink()
            raise
        self._trim()

    def _trim(self) -> None:
        """Remove unused environments, the least recently used first, until the rest is within the limit."""
        locks = sorted(self._folder.glob(f"*{_LOCK}"), key=_last_use)
        sizes = {lock: _size(lock.with_suffix("")) + _size(_staged(lock.with_suffix(""))) for lock in locks}
        excess = sum(sizes.values()) - self._most_bytes
        for lock, size in sizes.items():
            if excess > 0 and self._discard(lock):
                excess -= size

    def _discard(self, lock: Path) -> bool:
        """Remove the environment of a lock, unless it is in use; return whether it is gone."""
        with lock.open("a") as held:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            if _is_at(held, lock):
                path = lock.with_suffix("")
                staged = _staged(path)
                _remove(staged)
                if path.exists():
                    path.rename(staged)  # a process that dies now must not leave half of it
                    _remove(staged)
                lock.unlink()
            return True


def _staged(path: Path) -> Path:
    return path.with_name(f"staged-{path.name}")


def _acquire_lock(held: IO[str], kind: int, check: Check) -> None:
    """Acquire a lock that others may hold for long."""
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(held, kind | fcntl.LOCK_NB)
            return
        check()
        time.sleep(_POLL_SECONDS)


def _is_at(held: IO[str], lock: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(held.fileno()), lock.stat())
    except FileNotFoundError:
        return False


def _record_use(lock: Path) -> None:
    """Set the lock file's time to now, in nanoseconds: the system's own clock for files is too coarse."""
    now = time.time_ns()
    os.utime(lock, ns=(now, now))


def _last_use(lock: Path) -> int:
    try:
        return lock.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _size(path: Path) -> int:
    """Return the bytes of a file or folder; what another process removes meanwhile does not count."""
    inside = [Path(folder, name) for folder, folders, files in os.walk(path) for name in (*folders, *files)]
    total = 0
    for each in [path, *inside]:
        with suppress(FileNotFoundError):
            total += each.lstat().st_size
    return total


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
