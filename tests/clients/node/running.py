"""Running scripts with the published client for Node.js."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from scripts.node_packages import NODE_FOLDER, ensure_node_packages

from tests.support.components import unavailable


def run_script(name: str, *arguments: str) -> dict[str, Any]:
    """Run a script of this folder and return the JSON that it prints last."""
    node = shutil.which("node")
    if node is None or not ensure_node_packages():
        unavailable("Node.js with the client of LanceDB")
    command = [node, str(Path(__file__).with_name(name)), str(NODE_FOLDER), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
