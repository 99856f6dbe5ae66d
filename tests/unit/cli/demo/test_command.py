"""What the demo says to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pennon.cli.demo.command import _command_line

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(("is_on_path", "shown"), [(True, "pennon"), (False, "env/bin/pennon")])
def test_a_command_can_be_typed_as_it_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_on_path: bool, shown: str
) -> None:
    program = tmp_path / "env" / "bin" / "pennon"
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["env/bin/pennon", "demo"])
    monkeypatch.setenv("PATH", str(program.parent if is_on_path else tmp_path))
    assert _command_line("serve", "a folder") == f"{shown} serve 'a folder'"
