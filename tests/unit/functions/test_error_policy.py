"""Error policies: what they match, when they give up, and that they survive JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pennon.functions.error_policy import ErrorPolicy, Retry


class ThrottledError(ConnectionError):
    pass


def test_a_policy_fails_unless_it_says_otherwise() -> None:
    assert ErrorPolicy() == ErrorPolicy.fail()
    assert ErrorPolicy().on_error == "fail"
    assert ErrorPolicy().rule_for(ValueError()) is None


def test_retry_is_added_to_a_policy_and_begins_one() -> None:
    alone = ErrorPolicy.retry(ConnectionError, attempts=5)
    assert (alone.on_error, alone.retries) == ("fail", (Retry(("ConnectionError",), attempts=5),))
    both = ErrorPolicy.skip(max_errors=10).retry("requests.Timeout").retry(message="429")
    assert (both.on_error, both.max_errors, len(both.retries)) == ("skip", 10, 2)


@pytest.mark.parametrize(
    "name",
    [ConnectionError, "ConnectionError", OSError, "ThrottledError", f"{__name__}.ThrottledError", ThrottledError],
)
def test_a_rule_matches_subclasses_by_class_and_by_name(name: Any) -> None:
    assert ErrorPolicy.retry(name).rule_for(ThrottledError("slow down")) is not None
    assert ErrorPolicy.retry(name).rule_for(ValueError("slow down")) is None


def test_a_rule_with_a_pattern_asks_for_both_class_and_message() -> None:
    policy = ErrorPolicy.retry(ConnectionError, message=r"^4\d\d")
    assert policy.rule_for(ConnectionError("429 Too Many Requests")) is not None
    assert policy.rule_for(ConnectionError("refused")) is None
    assert policy.rule_for(ValueError("429")) is None


def test_a_rule_with_a_pattern_is_not_for_an_error_that_has_no_text() -> None:
    class SilentError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert ErrorPolicy.retry(message="429").rule_for(SilentError()) is None


def test_the_first_matching_rule_counts() -> None:
    policy = ErrorPolicy.retry(OSError, attempts=2).retry(attempts=9)
    assert [policy.rule_for(error).attempts for error in (OSError(), KeyError())] == [2, 9]  # type: ignore[union-attr]


def test_pauses_grow_up_to_their_limit() -> None:
    rule = Retry(backoff=0.5, factor=3, max_backoff=4)
    assert [rule.delay(attempt) for attempt in (1, 2, 3, 100_000)] == [0.5, 1.5, 4, 4]


def test_the_budget_is_a_count_or_a_ratio() -> None:
    assert not ErrorPolicy.skip().exceeded(1_000, 1_000)
    assert [ErrorPolicy.skip(max_errors=5).exceeded(errors, 10) for errors in (5, 6)] == [False, True]
    assert [ErrorPolicy.skip(max_error_ratio=0.1).exceeded(errors, 100) for errors in (10, 11)] == [False, True]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: ErrorPolicy.from_json({"on_error": "ignore"}), "on_error"),
        (lambda: ErrorPolicy.skip(max_errors=-1), "max_errors"),
        (lambda: ErrorPolicy.skip(max_error_ratio=1.5), "max_error_ratio"),
        (lambda: ErrorPolicy.retry(attempts=0), "attempts"),
        (lambda: ErrorPolicy.retry(message="("), "regular expression"),
        (lambda: ErrorPolicy.retry(factor=0.5), "factor"),
        (lambda: ErrorPolicy.retry(backoff=float("nan")), "backoff"),
    ],
)
def test_a_senseless_policy_is_refused(make: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()


@pytest.mark.parametrize("odd", [3, [ValueError], int, ValueError("seven")])
def test_a_rule_is_for_classes_of_exceptions_or_their_names(odd: Any) -> None:
    with pytest.raises(TypeError, match="takes exception classes or their names"):
        ErrorPolicy.retry(odd)


_rules = st.builds(
    Retry,
    exceptions=st.lists(st.text(min_size=1)).map(tuple),
    message=st.none() | st.sampled_from(["timeout", r"\d+"]),
    attempts=st.integers(1, 9),
    backoff=st.floats(0, 10),
)


@given(
    st.builds(
        ErrorPolicy,
        on_error=st.sampled_from(["fail", "skip"]),
        retries=st.lists(_rules, max_size=3).map(tuple),
        max_errors=st.none() | st.integers(0, 99),
        max_error_ratio=st.none() | st.floats(0, 1),
    )
)
def test_a_policy_survives_json(policy: ErrorPolicy) -> None:
    assert ErrorPolicy.from_json(json.loads(json.dumps(policy.to_json()))) == policy


@pytest.mark.parametrize(
    "document",
    [None, [], {"on_eror": "skip"}, {"retries": {}}, {"retries": [{"exceptions": "E"}]}, {"max_errors": "many"}],
)
def test_json_that_is_no_policy_is_a_value_error(document: Any) -> None:
    with pytest.raises(ValueError, match=r"policy|rule"):
        ErrorPolicy.from_json(document)
