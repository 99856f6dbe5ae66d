"""Find Chromium or Chrome on this machine."""

from __future__ import annotations

import shutil
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

# macOS keeps programs with windows out of PATH.
MACOS_PROGRAMS = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)


def find_chromium() -> Path | None:
    """Return the program, or ``None``."""
    on_path = [Path(found) for name in NAMES if (found := shutil.which(name))]
    in_folders = [path for path in map(Path, MACOS_PROGRAMS) if path.is_file()]
    return next(iter([*on_path, *in_folders]), None)
