"""The command in this process, which is sooner, and as a process of its own."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.command import Ended, Run, runner

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 240


class Pennon:
    """Runs ``pennon`` in a folder."""

    def __init__(self, folder: Path, run: Run) -> None:
        self._folder = folder
        self._run = run

    def __call__(self, *arguments: object, expect: int = 0) -> Ended:
        """Run a command in this process and return how it ended."""
        ended = self._run(*arguments)
        assert ended.code == expect, f"{arguments} gave {ended.code}:\n{ended.stdout}\n{ended.stderr}"
        assert "Traceback" not in ended.stderr
        return ended

    def read(self, *arguments: object) -> bytes:
        """Run a command in a process of its own and return the bytes that it writes."""
        with self.start(*arguments) as process:
            stdout, stderr = process.communicate(timeout=SECONDS)
        assert process.returncode == 0, stderr
        return stdout

    def start(self, *arguments: object) -> subprocess.Popen[bytes]:
        """Start a command whose streams are read as it runs."""
        return subprocess.Popen(
            [sys.executable, "-m", "pennon.cli", *map(str, arguments)],
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )


@pytest.fixture
def pennon(tmp_path: Path, run: Run) -> Pennon:
    """The command, in the test's folder."""
    return Pennon(tmp_path, run)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """The command in this process, in the test's folder."""
    return runner(monkeypatch, capsys, tmp_path)
