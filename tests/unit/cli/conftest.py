"""Commands run in this process, with nothing of the developer's own settings."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from pennon.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Run = Callable[..., "Ended"]


class Ended:
    """A command that has ended: its exit code and what it wrote."""

    def __init__(self, code: int, stdout: str, stderr: str) -> None:
        self.code = code
        self.stdout = stdout
        self.stderr = stderr


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """A function that runs ``pennon`` with arguments, in an empty folder."""
    for name in list(os.environ):
        if name.startswith("PENNON_"):
            monkeypatch.delenv(name)
    # A command sets this one itself; registering it here undoes that after the test.
    monkeypatch.setenv("PENNON_CONFIG", "")
    monkeypatch.chdir(tmp_path)

    def call(*arguments: Any) -> Ended:
        monkeypatch.setattr("sys.argv", ["pennon", *map(str, arguments)])
        capsys.readouterr()
        try:
            main()
            code: Any = 0
        except SystemExit as ended:
            code = ended.code or 0
        said = capsys.readouterr()
        return Ended(code, said.out, said.err)

    return call
