"""Built environments, kept on a disk for all processes of a machine, within bounds.

Whoever uses an environment holds its lock with others. It is built, and removed, by the one that holds its lock alone;
a process that dies lets go of all its locks.
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
from pennon.pipeline.cancellation import Check, always
from pennon.pipeline.environments.environment import Environment

_POLL_SECONDS = 0.1
_LOCK = ".lock"


class Shelf:
    """A folder of environments; when they take up too much, those that were used least recently go."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self._folder = folder.absolute()
        self._most_bytes = most_bytes

    @contextmanager
    def lend(self, environment: Environment, check: Check = always) -> Iterator[Path]:
        """Lend the folder of an environment, built if need be, for as long as the check lets it."""
        with self._lend(environment.checksum, "", lambda target: environment.install(target, check), check) as path:
            yield path

    @contextmanager
    def lend_packed(self, environment: Environment, check: Check = always) -> Iterator[Path]:
        """Lend an environment as a zip file, for executors that cannot see the folder."""

        def pack(target: Path) -> None:
            with self.lend(environment, check) as built:
                shutil.make_archive(str(target.with_suffix("")), "zip", built)

        with self._lend(environment.checksum, ".zip", pack, check) as path:
            yield path

    @contextmanager
    def _lend(self, checksum: str, suffix: str, make: Callable[[Path], None], check: Check) -> Iterator[Path]:
        make_private_folder(self._folder)
        path, lock = self._folder / f"{checksum}{suffix}", self._folder / f"{checksum}{suffix}{_LOCK}"
        while True:
            was_there = path.exists()
            with lock.open("a") as held:
                _take(held, fcntl.LOCK_SH if was_there else fcntl.LOCK_EX, check)
                if not _is_at(held, lock):
                    continue  # what it locked was removed, and the lock with it
                if not was_there and not path.exists():
                    self._make(path, lock, make)
                elif was_there and path.exists():
                    _note_use(lock)
                    yield path
                    return

    def _make(self, path: Path, lock: Path, make: Callable[[Path], None]) -> None:
        """Make a file or folder, which appears whole or not at all, and room for it."""
        staged = _staged(path)
        _remove(staged)  # what a killed process left
        try:
            make(staged)
            staged.rename(path)
        except BaseException:
            _remove(staged)
            lock.unlink()
            raise
        self._trim()

    def _trim(self) -> None:
        """Remove what nobody uses, the least recently used first, until the rest is within bounds."""
        locks = sorted(self._folder.glob(f"*{_LOCK}"), key=_last_use)
        sizes = {lock: _size(lock.with_suffix("")) + _size(_staged(lock.with_suffix(""))) for lock in locks}
        excess = sum(sizes.values()) - self._most_bytes
        for lock, size in sizes.items():
            if excess > 0 and self._discard(lock):
                excess -= size

    def _discard(self, lock: Path) -> bool:
        """Remove what a lock is for, unless somebody uses it; return whether it is gone."""
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
                    path.rename(staged)  # whoever dies now must not leave half of it
                    _remove(staged)
                lock.unlink()
            return True


def _staged(path: Path) -> Path:
    return path.with_name(f"staged-{path.name}")


def _take(held: IO[str], kind: int, check: Check) -> None:
    """Take a lock that others may hold for long."""
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


def _note_use(lock: Path) -> None:
    """Have a lock's time tell when it was used last; of itself the system would tell that only to some milliseconds."""
    now = time.time_ns()
    os.utime(lock, ns=(now, now))


def _last_use(lock: Path) -> int:
    try:
        return lock.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _size(path: Path) -> int:
    """Return how much a file or folder takes up, as far as no other process removes it meanwhile."""
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
