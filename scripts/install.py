"""Make the checkout's ``.venv``: Pennon itself, editable, with every extra, and the locked development tools.

Runs on any Python that may run Pennon, with nothing installed.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements" / "dev.txt"
OLDEST_PYTHON = (3, 11)


def create(folder: Path) -> None:
    """Create the venv, or keep the one that is there."""
    if (folder / "bin" / "python").exists():
        return
    made = subprocess.run([sys.executable, "-m", "venv", str(folder)], check=False)
    if made.returncode != 0:
        raise SystemExit("This Python cannot make a venv (on Debian and Ubuntu: apt-get install python3-venv).")


def install(folder: Path) -> None:
    """Install the lock, then Pennon on top of it."""
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    print(
        f"Installing {LOCK.relative_to(ROOT)} into {folder.name} (a minute or two, the first time).",
        flush=True,
    )
    subprocess.run([*pip, "-r", str(LOCK)], check=True)
    # The build tools are in the lock. The constraint makes a dependency that contradicts the lock an error
    # here and not a surprise later.
    subprocess.run([*pip, "--no-build-isolation", "-c", str(LOCK), "-e", ".[all]"], check=True, cwd=ROOT)


def main() -> None:
    """Create and fill the venv named by the only argument."""
    if sys.version_info < OLDEST_PYTHON:
        raise SystemExit(f"Pennon needs Python {'.'.join(map(str, OLDEST_PYTHON))} or newer; set PYTHON to one.")
    folder = Path(sys.argv[1]).absolute()
    create(folder)
    install(folder)


if __name__ == "__main__":
    main()
