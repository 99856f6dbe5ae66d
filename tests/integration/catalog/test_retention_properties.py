"""Whatever happens between cleanups, nothing that is needed is ever removed."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import lance
import pytest
from lance_namespace.errors import LanceNamespaceError

from pennon.storage import refs
from pennon.views import pins
from tests.integration.catalog.cleanups import clean, table_of, values
from tests.integration.catalog.lakes import Lake, rows

if TYPE_CHECKING:
    from pathlib import Path

STEPS = 40


class Model:
    """A table with branches, tags, pins and clones, and the rows that each must have."""

    def __init__(self, lake: Lake, seed: int) -> None:
        self.lake = lake
        self.random = random.Random(seed)  # noqa: S311 (a test that can be repeated)
        self.branches = [""]
        self.tags: dict[str, list[int]] = {}
        self.pinned: dict[tuple[str, int], list[int]] = {}
        self.clones: dict[str, list[int]] = {}
        self.numbers = iter(range(10_000))
        lake.write("t", rows(4))

    def at(self, branch: str, version: int | None = None) -> Any:
        dataset = self.lake.open("t")
        return dataset.checkout_version((branch or None, version)) if branch or version else dataset

    def some_version(self) -> tuple[str, int]:
        branch = self.random.choice(self.branches)
        return branch, self.random.choice(self.lake.numbers("t", branch=branch or None))

    def append(self) -> None:
        lance.write_dataset(rows(2, 10 * next(self.numbers)), self.at(self.random.choice(self.branches)), mode="append")

    def delete(self) -> None:
        self.at(self.random.choice(self.branches)).delete(f"number % 7 = {self.random.randrange(7)}")

    def compact(self) -> None:
        self.at(self.random.choice(self.branches)).optimize.compact_files()

    def restore(self) -> None:
        branch, version = self.some_version()
        before = values(self.at(branch, version))
        self.lake("RestoreTable", "t", version=version, branch=branch or None)
        assert values(self.at(branch)) == before

    def tag(self) -> None:
        branch, version = self.some_version()
        name = f"tag{next(self.numbers)}"
        self.lake("CreateTableTag", "t", tag=name, version=version, branch=branch or None)
        self.tags[name] = values(self.at(branch, version))

    def untag(self) -> None:
        if self.tags:
            name = self.random.choice(sorted(self.tags))
            self.lake("DeleteTableTag", "t", tag=name)
            del self.tags[name]

    def branch(self) -> None:
        branch, version = self.some_version()
        name = f"branch{next(self.numbers)}"
        self.lake("CreateTableBranch", "t", name=name, from_branch=branch or None, from_version=version)
        self.branches.append(name)

    def pin(self) -> None:
        branch, version = self.some_version()
        folder = self.lake.ns.services.storage_root.folder(table_of(self.lake, "t").location)
        pins.pin(folder, f"view{next(self.numbers)}", version, branch)
        self.pinned[branch, version] = values(self.at(branch, version))

    def clone(self) -> None:
        name = f"clone{next(self.numbers)}"
        version = self.random.choice(self.lake.numbers("t"))
        location = self.lake("DescribeTable", "t").location
        self.lake.ns.clones.clone_table((name,), location, version, None, shallow=True)
        self.clones[name] = values(self.lake.open(name))

    def clean(self) -> None:
        branch = self.random.choice(self.branches)
        before = {number: values(self.at(branch, number)) for number in self.lake.numbers("t", branch=branch or None)}
        kept = self.random.randrange(1, 5)
        clean(self.lake, "t", branch, max_versions=kept, min_file_seconds=self.random.choice([0, 0, 600]))
        left = self.lake.numbers("t", branch=branch or None)
        assert {number: values(self.at(branch, number)) for number in left} == {n: before[n] for n in left}
        assert sorted(before)[-kept:] == sorted(left)[-kept:]

    def check(self) -> None:
        """Read everything that is needed."""
        folder = self.lake.ns.services.storage_root.folder(table_of(self.lake, "t").location)
        found = {ref.name: ref for ref in refs.tags(folder)}
        assert found.keys() == self.tags.keys()
        for name, expected in self.tags.items():
            assert values(self.at(found[name].branch, found[name].version)) == expected
        for (branch, version), expected in self.pinned.items():
            assert values(self.at(branch, version)) == expected
        for name, expected in self.clones.items():
            assert values(self.lake.open(name)) == expected
        for branch in self.branches:
            values(self.at(branch))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_nothing_needed_is_removed(tmp_path: Path, seed: int) -> None:
    lake = Lake(tmp_path / "lake")
    model = Model(lake, seed)
    actions = [model.append] * 6 + [model.delete, model.compact, model.restore, model.tag, model.untag] * 2
    actions += [model.branch, model.pin, model.clone, *[model.clean] * 6]
    refused = 0
    for _ in range(STEPS):
        try:
            model.random.choice(actions)()
        except LanceNamespaceError:
            refused += 1  # such as a restore to rows of another schema
        model.check()
    assert refused < STEPS / 4
    lake.close()
