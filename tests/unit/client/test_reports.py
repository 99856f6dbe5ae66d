"""What the server tells about columns becomes objects that read well and lose nothing."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from pennon.client.reports import ERRORS, ColumnState, Plan, errors_table


def test_the_state_of_a_column_reads_as_a_sentence() -> None:
    state = ColumnState.of(
        {"column": "x", "granularity": "fragment", "rows": 1000, "computed": 990, "failed": 7, "missing": 3, "new": 1}
    )
    assert repr(state) == "<x: 990 of 1,000 rows computed, 7 failed, 3 missing (per fragment)>"
    assert (state.stale, state.complete, state.more) == (0, False, {"new": 1})
    assert ColumnState.of({"column": "x", "rows": 2, "computed": 2, "stale": None}).complete


def test_a_plan_reads_as_a_sentence() -> None:
    answer = {"column": "x", "rows": 1000, "fragments": 2, "bytes": 12345, "udf_calls": 8, "before": ["a", "b"]}
    plan = Plan.of({**answer, "new": 1})
    assert repr(plan) == "<x: 1,000 rows in 2 fragments, 12,345 bytes to read, 8 calls (per row), after a, b>"
    assert (plan.before, plan.more) == (("a", "b"), {"new": 1})
    assert repr(Plan.of({"column": "x"})).endswith("0 calls (per row)>")


def test_a_state_without_its_column_is_none() -> None:
    with pytest.raises(TypeError):
        ColumnState.of({})


def test_errors_become_a_table_of_a_fixed_schema() -> None:
    assert errors_table([]).schema == ERRORS
    table = errors_table([{"job_id": "j", "row_offset": 3, "error_type": "ValueError", "created_at_millis": 1000}])
    assert table.schema == ERRORS
    (row,) = table.to_pylist()
    assert (row["row_offset"], row["error_type"], row["column"]) == (3, "ValueError", None)
    assert row["created_at"] == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
