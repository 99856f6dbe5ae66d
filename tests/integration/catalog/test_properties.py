"""What holds for any listing and any history, tried with many."""

from __future__ import annotations

import itertools
import shutil
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lance_namespace.errors import ConcurrentModificationError, InvalidTableStateError

from pennon.storage.layout import manifest_name
from tests.integration.catalog.lakes import Staged, rows

if TYPE_CHECKING:
    from tests.integration.catalog.lakes import Lake

FEW = settings(max_examples=8, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
counter = itertools.count()

names = st.text(
    st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Zs"], exclude_characters="/\\$"), max_size=6
)
names = names.filter(lambda name: name not in {"", ".", ".."})


@given(names=st.sets(names, max_size=12), sizes=st.lists(st.integers(1, 4), min_size=1, max_size=5))
@FEW
def test_pages_of_any_sizes_are_the_whole_list(lake: Lake, names: set[str], sizes: list[int]) -> None:
    home = f"n{next(counter)}"
    lake("CreateNamespace", home)
    for name in names:
        lake("DeclareTable", f"{home}${name}")
        lake("CreateNamespace", f"{home}${name}")
    for operation, field in (("ListTables", "tables"), ("ListNamespaces", "namespaces")):
        seen: list[str] = []
        token = None
        for size in itertools.cycle(sizes):
            answer = lake(operation, home, limit=size, page_token=token)
            page = getattr(answer, field)
            assert len(page) <= size
            seen += page
            token = answer.page_token
            if token is None:
                break
        assert seen == sorted(names)


class Writer:
    """Commits to one table and keeps count of what its versions must be."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.name = f"t{next(counter)}"
        lake.write(self.name)
        self.versions = [1]
        self.last: dict[str, object] | None = None

    @property
    def newest(self) -> int:
        return self.versions[-1]

    def append(self) -> None:
        staged = self.lake.stage(self.name)
        self.last = staged.request
        answer = self.lake.commit(self.name, staged)
        assert answer.version.version == self.newest + 1
        self.versions.append(self.newest + 1)

    def replay(self) -> None:
        if self.last is not None:
            assert self.lake("CreateTableVersion", self.name, **self.last).version.version == self.last["version"]

    def lose(self) -> None:
        folder = self.lake.folder(self.name) / "_versions"
        other = folder / f"{manifest_name(self.newest, 'V2')}-{uuid.uuid4()}"
        shutil.copy(folder / manifest_name(self.newest, "V2"), other)
        other.write_bytes(b"another" + other.read_bytes())
        with pytest.raises(ConcurrentModificationError):
            self.lake.commit(self.name, Staged(other, self.newest))

    def leap(self) -> None:
        staged = self.lake.stage(self.name)
        with pytest.raises(Exception, match="not name a staged manifest"):
            self.lake.commit(self.name, staged, version=self.newest + 2)
        staged.file.unlink()

    def forget(self) -> None:
        bounds = {"start_version": 0, "end_version": self.newest}
        answer = self.lake("BatchDeleteTableVersions", self.name, ranges=[bounds])
        assert answer.deleted_count == len(self.versions) - 1
        del self.versions[:-1]
        if self.last is not None and self.last["version"] != self.newest:
            self.last = None

    def forget_all(self) -> None:
        with pytest.raises(InvalidTableStateError):
            self.lake("BatchDeleteTableVersions", self.name, ranges=[{"start_version": 0, "end_version": -1}])

    def go_around(self) -> None:
        import lance

        lance.write_dataset(rows(), self.lake.folder(self.name), mode="append")
        self.versions.append(self.newest + 1)

    def vanish(self) -> None:
        if len(self.versions) > 1:
            Path(self.lake.folder(self.name), "_versions", manifest_name(self.versions[0], "V2")).unlink()
            if self.last is not None and self.last["version"] == self.versions[0]:
                self.last = None
            del self.versions[0]


STEPS = ["append", "append", "replay", "lose", "leap", "forget", "forget_all", "go_around", "vanish"]


@given(steps=st.lists(st.sampled_from(STEPS), min_size=3, max_size=9))
@FEW
def test_numbers_go_up_by_one_and_are_never_given_twice(lake: Lake, steps: list[str]) -> None:
    writer = Writer(lake)
    for step in steps:
        getattr(writer, step)()
        assert lake.numbers(writer.name) == writer.versions
        assert lake.latest(writer.name) == writer.newest
    assert lake.open(writer.name).version == writer.newest
