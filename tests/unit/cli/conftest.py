"""Commands run in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.command import Run, runner

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Run", "run"]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """A function that runs ``pennon`` with arguments, in an empty folder."""
    return runner(monkeypatch, capsys, tmp_path)
