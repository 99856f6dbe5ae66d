"""Grouping by size tiers: few fragments stay small, and rows are rewritten a logarithmic number of times."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from pennon.maintenance.policy import MaintenancePolicy
from pennon.maintenance.tiers import FragmentSize, group_fragments, is_small

MEGABYTE = 1024 * 1024
#: The tiers of a target of 256 MiB: with a factor of 8 these are up to 128 MiB, 16 MiB and 2 MiB.
POLICY = MaintenancePolicy(target_fragment_bytes=256 * MEGABYTE, max_small_fragments=8)


@dataclass
class Table:
    """The fragments of a table that is compacted now and then."""

    policy: MaintenancePolicy
    fragments: list[FragmentSize] = field(default_factory=list)
    inserted: int = 0
    rewritten: int = 0
    runs: int = 0
    next_id: int = 0

    def add(self, size: int, rows: int = 1) -> None:
        self.fragments.append(FragmentSize(self.next_id, rows, 0, size))
        self.next_id += 1

    def insert(self, size: int) -> None:
        self.inserted += size
        self.add(size)

    def compact(self) -> None:
        self.runs += 1
        for group in group_fragments(self.fragments, self.policy):
            assert len(group) > 1
            gone = {each.id for each in group}
            self.fragments = [each for each in self.fragments if each.id not in gone]
            size = sum(each.bytes for each in group)
            self.rewritten += size
            self.add(size, sum(each.rows for each in group))

    @property
    def small(self) -> int:
        return sum(is_small(each, self.policy) for each in self.fragments)


def tiers_of(policy: MaintenancePolicy) -> int:
    return math.ceil(math.log(256, policy.max_small_fragments)) + 1


@given(
    st.lists(st.integers(1, 300 * MEGABYTE), min_size=1, max_size=200),
    st.integers(1, 20),
    st.sampled_from([2, 3, 8]),
)
@settings(deadline=None)
def test_a_run_settles_any_table(sizes: list[int], every: int, factor: int) -> None:
    table = Table(MaintenancePolicy(target_fragment_bytes=256 * MEGABYTE, max_small_fragments=factor))
    for number, size in enumerate(sizes):
        table.insert(size)
        if number % every == 0:
            table.compact()
            assert table.small < factor * tiers_of(table.policy)
    table.compact()
    settled = [each.id for each in table.fragments]
    table.compact()
    assert [each.id for each in table.fragments] == settled
    assert sum(each.bytes for each in table.fragments) == sum(sizes)


def test_small_inserts_are_rewritten_a_logarithmic_number_of_times() -> None:
    table = Table(POLICY)
    for number in range(40_000):
        table.insert(50_000)
        if number % 40 == 39:
            table.compact()
            assert table.small < POLICY.max_small_fragments * tiers_of(POLICY)
    lowest = 2 * MEGABYTE  # the tier without a lower bound, which each run may rewrite
    assert table.rewritten <= table.inserted * tiers_of(POLICY) + table.runs * lowest
    assert len(table.fragments) - table.small <= table.inserted / (128 * MEGABYTE) + 1


def test_a_fragment_of_half_the_target_is_left_alone() -> None:
    fragments = [FragmentSize(number, 1, 0, 128 * MEGABYTE) for number in range(20)]
    assert group_fragments(fragments, POLICY) == []
    assert group_fragments(fragments, POLICY, all_small=True) == []


def test_rows_count_as_well_as_bytes() -> None:
    policy = MaintenancePolicy(target_fragment_rows=1000, max_small_fragments=4)
    fragments = [FragmentSize(number, 300, 0, 1000) for number in range(8)]
    assert [len(group) for group in group_fragments(fragments, policy)] == [3, 3, 2]


def test_fragments_of_different_index_segments_are_not_mixed() -> None:
    segments = [frozenset({"a"}), frozenset({"b"})]
    fragments = [FragmentSize(number, 1, 0, 1000, segments[number % 2]) for number in range(20)]
    groups = group_fragments(fragments, POLICY)
    assert sorted(len({each.segments for each in group}) for group in groups) == [1, 1]


def test_deleted_rows_are_reclaimed_even_alone() -> None:
    large = FragmentSize(1, 1000, 201, 200 * MEGABYTE)
    few = FragmentSize(2, 1000, 200, 200 * MEGABYTE)
    assert group_fragments([large, few], POLICY) == [[large]]


def test_a_blocked_fragment_is_left_alone() -> None:
    fragments = [FragmentSize(number, 10, 9, 1000, is_blocked=number == 3) for number in range(9)]
    assert 3 not in {each.id for group in group_fragments(fragments, POLICY) for each in group}


def test_files_of_another_table_are_not_copied_to_reclaim_space_that_it_keeps() -> None:
    assert group_fragments([FragmentSize(1, 10, 9, 200 * MEGABYTE, is_shared=True)], POLICY) == []


def test_a_task_reads_a_bounded_amount() -> None:
    policy = POLICY.model_copy(update={"target_fragment_bytes": 2**40})
    fragments = [FragmentSize(number, 1, 0, 300 * MEGABYTE) for number in range(20)]
    assert max(sum(each.bytes for each in group) for group in group_fragments(fragments, policy)) <= 1024**3


def test_all_small_fragments_are_merged_on_request() -> None:
    fragments = [FragmentSize(1, 1, 0, 1000), FragmentSize(2, 1, 0, 50 * MEGABYTE)]
    assert group_fragments(fragments, POLICY) == []
    assert group_fragments(fragments, POLICY, all_small=True) == [fragments]
