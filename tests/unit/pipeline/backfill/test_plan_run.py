"""Fragments are shared out among tasks, each of them to one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pennon.columns.plan import WorkUnit
from pennon.pipeline.backfill.plan_run import group_units

sizes = st.lists(st.integers(min_value=1, max_value=100), min_size=1, max_size=30)


def units(counts: list[int]) -> tuple[WorkUnit, ...]:
    return tuple(
        WorkUnit(number, count, ((0, count),), count, False, False, str(number), str(number), 0)
        for number, count in enumerate(counts)
    )


@given(sizes, st.integers(min_value=1, max_value=40), st.none() | st.integers(min_value=1, max_value=150))
def test_every_fragment_is_in_one_task(counts: list[int], tasks: int, most: int | None) -> None:
    groups = group_units(units(counts), tasks, most)
    assert sorted(unit.fragment_id for group in groups for unit in group) == list(range(len(counts)))
    assert all(groups)
    if most is None:
        assert len(groups) == min(tasks, len(counts))


@given(sizes, st.integers(min_value=1, max_value=40), st.integers(min_value=1, max_value=150))
def test_no_task_has_more_rows_than_allowed(counts: list[int], tasks: int, most: int) -> None:
    for group in group_units(units(counts), tasks, most):
        assert len(group) == 1 or sum(unit.count for unit in group) <= most


@given(sizes, st.integers(min_value=1, max_value=10))
def test_tasks_have_about_as_much_to_do(counts: list[int], tasks: int) -> None:
    loads = [sum(unit.count for unit in group) for group in group_units(units(counts), tasks, None)]
    assert max(loads) - min(loads) <= max(counts)
