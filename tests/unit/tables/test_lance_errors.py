"""Lance's errors become errors of the protocol with short messages."""

from __future__ import annotations

import pytest
from lance_namespace.errors import InvalidInputError, TableColumnNotFoundError

from pennon.tables.lance_errors import clean_message, map_error

#: What would take hours if the time grew with the square of it.
LONG = "a" * 2_000_000


def test_a_message_that_repeats_long_sql_is_read_at_its_ends() -> None:
    found = map_error(ValueError(f"Error parsing statement: SELECT {LONG} (sql parser error: Expected: an expression)"))
    assert isinstance(found, InvalidInputError)
    assert str(found) == "The SQL cannot be parsed: Expected: an expression"


@pytest.mark.parametrize("message", [LONG, f"LanceError(Arrow): Cast error: '{LONG}' is no number", f"{LONG} /{LONG}"])
def test_messages_are_short(message: str) -> None:
    assert isinstance(map_error(ValueError(message)), InvalidInputError)
    assert len(clean_message(message)) <= 500


def test_a_long_name_of_a_column_is_cut() -> None:
    found = map_error(ValueError(f"No field named {LONG}. Valid fields are id, word."))
    assert isinstance(found, TableColumnNotFoundError)
    assert len(str(found)) < 5000


@pytest.mark.parametrize(
    "message",
    [
        'Wrapped error: task 119 panicked with message "offsets cannot be empty"',
        "Task was aborted",
        "LanceError(IO): Internal error: Fragments are missing row count stats.",
        "Not found: No data files found for schema: , fragment_id=0, /lance/rust/lance/src/dataset/fragment.rs:1239:24",
        "LanceError(IO): failed to fill whole buffer, /lance/rust/lance-io/src/local.rs:1:1",
        "LanceError(IO): Generic S3 error: Requested range was invalid",
        "LanceError(IO): Generic memory error: Invalid range 0..2694 for object of size 2692 bytes",
    ],
)
def test_what_fails_again_is_not_taken_for_a_fault_of_storage(message: str) -> None:
    assert isinstance(map_error(OSError(message)), InvalidInputError)


@pytest.mark.parametrize(
    "message",
    [
        "LanceError(IO): Generic S3 error: Error performing GET http://127.0.0.1:1/x: connection refused",
        "LanceError(IO): Generic S3 error: Server returned non-2xx status code: 503 Service Unavailable",
        "LanceError(IO): Input/output error (os error 5)",
    ],
)
def test_a_failure_of_storage_stays_one(message: str) -> None:
    assert map_error(OSError(message)) is None
