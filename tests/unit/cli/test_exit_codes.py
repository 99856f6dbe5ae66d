"""Exit codes: one for each way to fail, the same for every command."""

from __future__ import annotations

import pytest
from lance_namespace.errors import ErrorCode, from_error_code

from pennon.cli.exit_codes import ExitCode, exit_code_of, hint_for
from pennon.core.errors import STATUS_BY_CODE

BY_STATUS = {400: 2, 401: 5, 403: 5, 404: 3, 406: 4, 409: 4, 429: 6, 500: 1, 503: 6}


@pytest.mark.parametrize("code", ErrorCode)
def test_an_error_has_the_exit_code_of_its_status(code: ErrorCode) -> None:
    assert exit_code_of(from_error_code(code, "x")) == BY_STATUS[STATUS_BY_CODE[code]]


def test_exit_codes_are_distinct() -> None:
    assert [int(code) for code in ExitCode] == [*range(8), 130]
    assert len({code.meaning for code in ExitCode}) == len(ExitCode)
    assert all(code.meaning for code in ExitCode)


def test_the_next_step_is_a_command_where_there_is_one() -> None:
    assert "pennon tables list" in hint_for(from_error_code(ErrorCode.TABLE_NOT_FOUND, "x"))
    assert "pennon jobs list" in hint_for(from_error_code(ErrorCode.TRANSACTION_NOT_FOUND, "x"))
    assert hint_for(from_error_code(ErrorCode.INTERNAL, "x")) == ""
