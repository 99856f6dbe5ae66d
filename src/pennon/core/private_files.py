"""Files that only the user of the server may read: the catalog contains digests of keys and arguments of functions."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

logger = logging.getLogger("pennon.catalog")

#: The folder that Pennon creates for itself. A folder of another name may be shared with other programs.
OWN_FOLDER = ".pennon"
_OTHERS = 0o077


def make_private_folder(path: Path) -> None:
    """Create a folder that only its owner may use; of existing folders, restrict only Pennon's own."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=0o700)
    except FileExistsError:
        if path.name == OWN_FOLDER:
            restrict_to_owner(path)


def make_private_file(path: Path) -> None:
    """Create an empty file that only its owner may use, or restrict an existing one."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        restrict_to_owner(path)


def restrict_to_owner(path: Path) -> None:
    """Remove the rights of all but the owner, if the file exists."""
    try:
        mode = path.stat().st_mode & 0o777
        if mode & _OTHERS:
            path.chmod(mode & ~_OTHERS)
    except FileNotFoundError:
        return
    except PermissionError:
        logger.warning("%s is readable by other users, and another user owns it: run chmod go= on it", path)
