"""What the checkout says about programs that are missing, by the system it is on."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from scripts import chromium_program, components
from scripts.chromium_program import find_chromium


@pytest.mark.parametrize("name", components.HAS)
def test_on_macos_a_missing_program_comes_with_its_command(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    assert "brew" not in components.advice(name)
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "(brew install " in components.advice(name)


def test_chrome_is_found_where_macos_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    program = tmp_path / "Chrome.app" / "Chrome"
    monkeypatch.setattr(chromium_program, "MACOS_PROGRAMS", (str(program),))
    assert find_chromium() is None
    program.parent.mkdir()
    program.touch()
    assert find_chromium() == program
