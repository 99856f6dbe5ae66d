"""Answers: everything is shown, as it is, and on its line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pennon.cli.output import Form, show, table_of, time_text

if TYPE_CHECKING:
    import pytest


def test_a_long_row_stays_on_its_line_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    show(Form.TABLE, [], table_of(("Name", "Place"), [("x" * 60, "y" * 200)]))
    assert "x" * 60 + "   " + "y" * 200 in capsys.readouterr().out


def test_what_looks_like_markup_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    show(Form.TABLE, [], table_of(("Name",), [("[red]a[/red]",), (None,), (3,)]))
    said = capsys.readouterr().out
    assert "[red]a[/red]" in said
    assert "None" not in said


def test_json_is_the_data_alone(capsys: pytest.CaptureFixture[str]) -> None:
    show(Form.JSON, {"name": "ä"}, "for people")
    assert json.loads(capsys.readouterr().out) == {"name": "ä"}


def test_a_time_is_utc() -> None:
    assert time_text(0) == "1970-01-01T00:00:00+00:00"
    assert time_text(None) is None
