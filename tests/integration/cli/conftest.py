"""The installed command, as a process of its own, and in this one, which is sooner."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.command import Run, runner

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 240


class Pennon:
    """Runs ``pennon`` in a folder, without the developer's own settings."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("PENNON_")}

    def __call__(self, *arguments: object, expect: int = 0) -> subprocess.CompletedProcess[str]:
        """Run a command and return how it ended."""
        ended = self._run(arguments)
        said = subprocess.CompletedProcess(ended.args, ended.returncode, ended.stdout.decode(), ended.stderr.decode())
        assert said.returncode == expect, f"{arguments} gave {said.returncode}:\n{said.stdout}\n{said.stderr}"
        assert "Traceback" not in said.stderr
        return said

    def read(self, *arguments: object) -> bytes:
        """Run a command and return the bytes that it writes."""
        ended = self._run(arguments)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def start(self, *arguments: object) -> subprocess.Popen[bytes]:
        """Start a command whose streams are read as it runs."""
        return subprocess.Popen(
            [sys.executable, "-m", "pennon.cli", *map(str, arguments)],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def _run(self, arguments: tuple[object, ...]) -> subprocess.CompletedProcess[bytes]:
        with self.start(*arguments) as process:
            stdout, stderr = process.communicate(timeout=SECONDS)
            return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


@pytest.fixture
def pennon(tmp_path: Path) -> Pennon:
    """The command as a process of its own, in the test's folder."""
    return Pennon(tmp_path)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """The command in this process, in the test's folder."""
    return runner(monkeypatch, capsys, tmp_path)
