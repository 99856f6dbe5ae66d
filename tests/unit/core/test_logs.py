"""Log lines: one a record, whatever text is in it."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from pennon.core.logs import JsonFormatter, TextFormatter, quote

FORGED = "name\r\n2026-01-01 00:00:00,000 INFO pennon.server forged\x85\u2028\x1b[2K"


def record_of(message: str, *, failed: bool = False) -> logging.LogRecord:
    failure = None
    if failed:
        try:
            raise ValueError(FORGED)
        except ValueError:
            failure = sys.exc_info()
    return logging.LogRecord("pennon.server", logging.INFO, "", 0, "made %s", (message,), failure)


def test_a_text_line_stays_one_line() -> None:
    (line,) = TextFormatter().format(record_of(FORGED)).splitlines()
    assert line.endswith(r"made name\r\n2026-01-01 00:00:00,000 INFO pennon.server forged\x85\u2028\x1b[2K")


def test_the_lines_of_an_exception_are_indented() -> None:
    first, *others = TextFormatter().format(record_of("x", failed=True)).splitlines()
    assert first.endswith("made x")
    assert any("forged" in line for line in others)
    assert all(line.startswith("  ") for line in others)


def test_a_json_line_stays_one_line() -> None:
    (line,) = JsonFormatter().format(record_of(FORGED, failed=True)).splitlines()
    assert json.loads(line)["message"] == f"made {FORGED}"


@pytest.mark.parametrize(
    ("name", "line"), [("a$b-1.c", "a$b-1.c"), ("größe", "größe"), ("t by admin", '"t by admin"'), ("", '""')]
)
def test_a_name_that_could_be_more_is_quoted(name: str, line: str) -> None:
    assert quote(name) == line
