"""Errors: each code has one status, and says what to do about it."""

from __future__ import annotations

import difflib

import pytest
from lance_namespace.errors import ErrorCode, InvalidInputError, TableNotFoundError

from pennon.core.errors import STATUS_BY_CODE, advice_for, status_of, suggest

STATUSES = {
    400: {13, 20},
    401: {16},
    403: {15},
    404: {1, 4, 6, 8, 10, 11, 12, 22},
    406: {0},
    409: {2, 3, 5, 7, 9, 14, 19, 23},
    429: {21},
    500: {18},
    503: {17},
}


def test_every_code_has_the_status_clients_expect() -> None:
    found: dict[int, set[int]] = {}
    for code, status in STATUS_BY_CODE.items():
        found.setdefault(status, set()).add(int(code))
    assert found == STATUSES
    assert set(STATUS_BY_CODE) == set(ErrorCode)


@pytest.mark.parametrize("code", ErrorCode)
def test_every_code_says_what_to_do(code: ErrorCode) -> None:
    assert advice_for(code).endswith(".")


def test_an_error_has_the_status_of_its_code() -> None:
    assert status_of(InvalidInputError("x")) == 400
    assert status_of(TableNotFoundError("x")) == 404


def test_the_nearest_name_is_suggested_and_a_far_one_is_not() -> None:
    assert suggest("ordres", ["orders", "users"]) == " Did you mean 'orders'?"
    assert suggest("zzz", ["orders", "users"]) == ""
    assert suggest("x", []) == ""


def test_long_and_many_names_are_not_all_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []
    begin = difflib.SequenceMatcher.set_seq1

    def noting(matcher: difflib.SequenceMatcher[str], name: str) -> None:
        compared.append(name)
        begin(matcher, name)

    monkeypatch.setattr(difflib.SequenceMatcher, "set_seq1", noting)
    names = [f"{number:05d}{'ab' * 20}" for number in range(50_000)]
    assert suggest("ab" * 50_000, ["ba" * 50_000] * 100) == ""
    assert suggest("1500" + "ab" * 20, names).startswith(" Did you mean ")
    assert 0 < len(compared) <= 40
    assert max(len(name) for name in compared) < 100
