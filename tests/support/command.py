"""The ``pennon`` command in this very process, which is sooner than one of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pennon.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


@dataclass(frozen=True)
class Ended:
    """A command that has ended: its exit code and what it wrote."""

    code: int
    stdout: str
    stderr: str


class Run(Protocol):
    """Run ``pennon`` with arguments and return how it ended."""

    def __call__(self, *arguments: Any) -> Ended: ...


def runner(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path) -> Run:
    """Return a function that runs commands in a folder."""
    # A command sets this one itself; registering it here undoes that after the test.
    monkeypatch.setenv("PENNON_CONFIG", "")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    monkeypatch.chdir(folder)

    def call(*arguments: Any) -> Ended:
        monkeypatch.setattr("sys.argv", ["pennon", *map(str, arguments)])
        capsys.readouterr()
        try:
            main()
            code: Any = 0
        except SystemExit as ended:
            code = ended.code or 0
        said = capsys.readouterr()
        return Ended(int(code), said.out, said.err)

    return call
