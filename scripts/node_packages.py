"""The packages that the tests of the Node.js client use, in a folder of the checkout's ``.venv``.

There is no lock file: it would name the registry of the machine that wrote it. The versions that matter are exact in
``tests/clients/node/package.json``.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MANIFEST = ROOT / "tests" / "clients" / "node" / "package.json"
NODE_FOLDER = ROOT / ".venv" / "node"


def ensure_node_packages() -> bool:
    """Install the packages where they are missing or others; tell whether they are there."""
    if _is_current():
        return True
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None or not NODE_FOLDER.parent.is_dir():
        return False
    # Made beside its place and then moved there, so that it is never seen half done.
    with tempfile.TemporaryDirectory(prefix="node-", dir=NODE_FOLDER.parent) as temporary:
        made = Path(temporary, "made")
        made.mkdir()
        shutil.copy(MANIFEST, made)
        command = [npm, "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]
        if subprocess.run(command, cwd=made, check=False, stdout=subprocess.DEVNULL).returncode == 0:
            _move(made)
    return _is_current()


def _move(made: Path) -> None:
    """Put a folder in its place, unless another process has already put one with the same packages there."""
    with suppress(OSError):
        if NODE_FOLDER.exists() and not _is_current():
            shutil.rmtree(NODE_FOLDER)
        made.rename(NODE_FOLDER)


def _is_current() -> bool:
    installed = NODE_FOLDER / MANIFEST.name
    return installed.is_file() and installed.read_bytes() == MANIFEST.read_bytes()
