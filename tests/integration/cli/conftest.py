"""The installed command, as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 120


class Pennon(Protocol):
    """Run ``pennon`` with arguments and return how it ended."""

    def __call__(self, *arguments: object, expect: int = 0) -> subprocess.CompletedProcess[str]: ...


@pytest.fixture
def pennon(tmp_path: Path) -> Pennon:
    """A function that runs commands in the test's folder, without the developer's own settings."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PENNON_")}

    def run(*arguments: object, expect: int = 0) -> subprocess.CompletedProcess[str]:
        ended = subprocess.run(
            [sys.executable, "-m", "pennon.cli.main", *map(str, arguments)],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        assert ended.returncode == expect, f"{arguments} gave {ended.returncode}:\n{ended.stdout}\n{ended.stderr}"
        assert "Traceback" not in ended.stderr
        return ended

    return run
