"""Files that only the user of the server may read: the catalog holds digests of keys, and what functions are given."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

logger = logging.getLogger("pennon.catalog")

#: The folder that Pennon makes for itself. One of another name may be shared with other programs.
OWN_FOLDER = ".pennon"
_OTHERS = 0o077


def make_private_folder(path: Path) -> None:
    """Create a folder for its owner alone; of those that are there, only Pennon's own is closed to others."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700)
    except FileExistsError:
        if path.name == OWN_FOLDER:
            close_to_others(path)


def make_private_file(path: Path) -> None:
    """Create an empty file for its owner alone, or close one that is there to others."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        close_to_others(path)


def close_to_others(path: Path) -> None:
    """Take away the rights of all but the owner, where there are any and the file is there."""
    try:
        mode = path.stat().st_mode & 0o777
        if mode & _OTHERS:
            path.chmod(mode & ~_OTHERS)
    except FileNotFoundError:
        return
    except PermissionError:
        logger.warning("%s can be read by other users, and belongs to one of them: run chmod go= on it", path)
