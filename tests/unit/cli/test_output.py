"""Answers: everything is shown, as it is, and on its line."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

from rich.console import Console

from pennon.cli.output import OutputFormat, build_table, format_time, print_result

if TYPE_CHECKING:
    import pytest


def test_a_long_row_stays_on_its_line_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    print_result(OutputFormat.TABLE, [], build_table(("Name", "Place"), [("x" * 60, "y" * 200)]))
    assert "x" * 60 + "   " + "y" * 200 in capsys.readouterr().out


def test_what_looks_like_markup_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    print_result(OutputFormat.TABLE, [], build_table(("Name",), [("[red]a[/red]",), (None,), (3,)]))
    said = capsys.readouterr().out
    assert "[red]a[/red]" in said
    assert "None" not in said


def test_an_id_is_not_broken_on_a_narrow_terminal() -> None:
    said_to = io.StringIO()
    terminal = Console(width=80, file=said_to)
    terminal.print(build_table(("Job", "Message"), [("0123456789abcdef" * 2, "one word after the other " * 9)]))
    said = said_to.getvalue()
    assert "0123456789abcdef" * 2 in said
    assert said.count("other") == 9


def test_whether_something_is_so_is_yes_or_no(capsys: pytest.CaptureFixture[str]) -> None:
    print_result(OutputFormat.TABLE, [], build_table(("Follows",), [(True,), (False,)]))
    assert capsys.readouterr().out.split()[-2:] == ["yes", "no"]


def test_json_output_has_only_the_data(capsys: pytest.CaptureFixture[str]) -> None:
    print_result(OutputFormat.JSON, {"name": "ä"}, "for people")
    assert json.loads(capsys.readouterr().out) == {"name": "ä"}


def test_a_time_is_utc() -> None:
    assert format_time(0) == "1970-01-01T00:00:00+00:00"
    assert format_time(None) is None
