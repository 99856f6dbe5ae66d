"""Every command has examples in its help, and every example is one that the command understands."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import pytest
import typer
from scripts.generate_reference import commands_of

from pennon.cli.examples import examples_of
from pennon.cli.main import app

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.cli.conftest import Run

COMMANDS = dict(commands_of("pennon", typer.main.get_command(app)))


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_of_a_command_are_understood(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "joyful.sql").touch()
    command: Any = COMMANDS[name]
    shown = examples_of(command.epilog)
    assert shown
    for example in shown:
        words = shlex.split(example)
        words = words[: words.index(">")] if ">" in words else words
        assert words[: len(name.split())] == name.split()
        command.make_context(name, words[len(name.split()) :])


def test_the_help_shows_the_examples(run: Run) -> None:
    said = run("tags", "create", "--help").stdout
    assert "$ pennon tags create shop.teas opening-day" in said
