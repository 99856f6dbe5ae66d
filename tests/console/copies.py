"""Running what the console copies, as one would who pastes it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any


def run_python(program: str) -> str:
    """Run a copied program and return what it prints."""
    return _run([sys.executable, "-c", program])


def run_curl(command: str) -> Any:
    """Run a copied command and return the answer, which must not be an error."""
    printed = _run(["bash", "-c", command])
    answer = json.loads(printed) if printed else None
    assert not (isinstance(answer, dict) and {"error", "code"} <= answer.keys()), (command, answer)
    return answer


def _run(command: list[str]) -> str:
    # No proxy may stand between a command and a server on this machine.
    environment = {**os.environ, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1", "PENNON_API_KEY": ""}
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert ran.returncode == 0, (command[-1], ran.stderr)
    return ran.stdout
