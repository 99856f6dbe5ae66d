"""Batches over several tables: all of them, or none."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import lance
import pytest
from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    InvalidTableStateError,
    LanceNamespaceError,
    NamespaceNotFoundError,
    TableAlreadyExistsError,
    TableNotFoundError,
)

from tests.integration.catalog.lakes import rows

if TYPE_CHECKING:
    from tests.integration.catalog.conftest import OpenLake
    from tests.integration.catalog.lakes import Lake, Staged


@pytest.fixture
def three(lake: Lake) -> Lake:
    """A lake with three tables of two versions each."""
    lake("CreateNamespace", "a")
    for name in ("t", "a$t", "a$u"):
        lake.write(name)
        lake.write(name, mode="append")
    return lake


def entry(name: str, staged: Staged, **fields: Any) -> dict[str, Any]:
    return {"id": name.split("$"), **staged.request, **fields}


def create(lake: Lake, *entries: dict[str, Any]) -> Any:
    return lake("BatchCreateTableVersions", entries=list(entries))


def commit(lake: Lake, *operations: dict[str, Any]) -> Any:
    return lake("BatchCommitTables", operations=list(operations))


def versioned(name: str, staged: Staged, **fields: Any) -> dict[str, Any]:
    return {"create_table_version": entry(name, staged, **fields)}


def declared(name: str, **fields: Any) -> dict[str, Any]:
    return {"declare_table": {"id": name.split("$"), **fields}}


def deleted(name: str, start: int, end: int) -> dict[str, Any]:
    bounds = {"start_version": start, "end_version": end}
    return {"delete_table_versions": {"id": name.split("$"), "ranges": [bounds]}}


def deregistered(name: str) -> dict[str, Any]:
    return {"deregister_table": {"id": name.split("$")}}


class TestCreatingVersions:
    def test_versions_of_several_tables_are_committed_together(self, three: Lake) -> None:
        staged = {name: three.stage(name) for name in ("t", "a$t", "a$u")}
        answer = create(three, *(entry(name, one) for name, one in staged.items()))
        assert [version.version for version in answer.versions] == [3, 3, 3]
        assert [three.latest(name) for name in staged] == [3, 3, 3]
        assert [three.open(name).count_rows() for name in staged] == [6, 6, 6]
        described = three("DescribeTransaction", answer.transaction_id)
        assert described.status == "Succeeded"

    @pytest.mark.parametrize("position", [0, 2])
    def test_one_bad_entry_leaves_nothing(self, three: Lake, position: int) -> None:
        for defect in ("gap", "size", "path", "missing table", "missing file", "taken"):
            self.refuse(three, position, defect)

    @staticmethod
    def refuse(three: Lake, position: int, defect: str) -> None:
        names = ["t", "a$t", "a$u"]
        entries = [entry(name, three.stage(name)) for name in names]
        bad = entries[position]
        if defect == "gap":
            bad["version"] = 9
        elif defect == "size":
            bad["manifest_size"] += 1
        elif defect == "path":
            bad["manifest_path"] = entries[(position + 1) % 3]["manifest_path"]
        elif defect == "missing table":
            bad["id"] = ["nope"]
        elif defect == "missing file":
            bad["manifest_path"] = bad["manifest_path"][:-4] + "0000"
        else:
            three.write(names[position], mode="append")
        before = three.records()
        with pytest.raises(LanceNamespaceError):
            create(three, *entries)
        assert three.records() == before
        others = [name for number, name in enumerate(names) if number != position]
        assert [three.latest(name) for name in others] == [2, 2]

    def test_the_same_batch_again_is_the_same_answer(self, three: Lake) -> None:
        entries = [entry(name, three.stage(name)) for name in ("t", "a$t")]
        first = create(three, *entries)
        again = create(three, *entries)
        assert again.versions == first.versions
        assert again.transaction_id == first.transaction_id

    def test_a_version_may_be_named_once_in_a_batch(self, three: Lake) -> None:
        one, two = three.stage("t"), three.stage("t", rows(3))
        with pytest.raises(InvalidInputError, match="twice"):
            create(three, entry("t", one), entry("t", two))
        assert three.latest("t") == 2

    def test_an_empty_batch_is_refused(self, lake: Lake) -> None:
        with pytest.raises(InvalidInputError, match="empty"):
            create(lake)

    def test_a_table_that_pennon_does_not_manage_is_committed_alone(self, lake: Lake) -> None:
        lake.write("t")
        lance.write_dataset(rows(), lake.root / "found.lance")
        found, managed = lake.stage("found"), lake.stage("t")
        with pytest.raises(InvalidInputError, match="'found' is not managed"):
            create(lake, entry("t", managed), entry("found", found))
        assert lake.latest("t") == 1
        assert create(lake, entry("found", found)).versions[0].version == 2

    def test_of_batches_that_overlap_one_wins_whole(self, three: Lake) -> None:
        names = ["t", "a$t", "a$u"]
        batches = [[entry(n, three.stage(n, rows(1, number))) for n in order] for number, order in
                   enumerate([names, names[::-1], names[1:] + names[:1], names])]  # fmt: skip

        def run(entries: list[dict[str, Any]]) -> bool:
            try:
                create(three, *entries)
            except ConcurrentModificationError:
                return False
            return True

        with ThreadPoolExecutor(4) as threads:
            assert sum(threads.map(run, batches)) == 1
        assert [three.latest(name) for name in names] == [3, 3, 3]
        values = {tuple(three.open(name).to_table()["number"].to_pylist()[4:]) for name in names}
        assert len(values) == 1


class TestCommitting:
    def test_all_four_kinds_happen_together(self, three: Lake) -> None:
        answer = commit(
            three,
            declared("a$new", properties={"owner": "ada"}),
            versioned("t", three.stage("t")),
            deleted("a$t", 1, 2),
            deregistered("a$u"),
        )
        results = answer.results
        assert results[0].declare_table.properties == {"owner": "ada"}
        assert results[0].declare_table.managed_versioning
        assert results[1].create_table_version.version.version == 3
        assert results[2].delete_table_versions.deleted_count == 1
        assert results[3].deregister_table.id == ["a", "u"]
        assert three("ListAllTables").tables == ["t", "a$new", "a$t"]
        assert three.numbers("t") == [1, 2, 3]
        assert three.numbers("a$t") == [2]
        ids = [
            answer.transaction_id,
            results[0].declare_table.transaction_id,
            results[1].create_table_version.transaction_id,
            results[2].delete_table_versions.transaction_id,
            results[3].deregister_table.transaction_id,
        ]
        assert all(three("DescribeTransaction", one).status == "Succeeded" for one in ids)

    @pytest.mark.parametrize("last", [True, False])
    def test_one_bad_operation_leaves_nothing(self, three: Lake, last: bool) -> None:
        good = [declared("a$new"), versioned("t", three.stage("t")), deleted("a$t", 1, 2), deregistered("a$u")]
        before = three.state()
        wrong: list[tuple[dict[str, Any], type[Exception]]] = [
            (declared("t"), TableAlreadyExistsError),
            (declared("nope$t"), NamespaceNotFoundError),
            (declared("x", location="/etc/x"), InvalidInputError),
            (deregistered("nope"), TableNotFoundError),
            (deleted("t", 0, -1), InvalidTableStateError),
            (deleted("nope", 0, 1), TableNotFoundError),
            ({}, InvalidInputError),
            ({**declared("x"), **deregistered("t")}, InvalidInputError),
        ]
        for bad, error in wrong:
            with pytest.raises(error):
                commit(three, *([*good, bad] if last else [bad, *good]))
            assert three.state() == before

    def test_operations_that_contradict_each_other_leave_nothing(self, three: Lake) -> None:
        staged, other = three.stage("t"), three.stage("t", rows(3))
        before = three.state()
        for operations in (
            [declared("new"), declared("new")],
            [deregistered("a$u"), deregistered("a$u")],
            [deregistered("t"), versioned("t", staged)],
            [versioned("t", staged), versioned("t", other)],
            [versioned("t", staged, version=9)],
        ):
            with pytest.raises(LanceNamespaceError):
                commit(three, *operations)
            assert three.state() == before

    def test_a_replay_in_a_batch_is_harmless(self, three: Lake) -> None:
        request = versioned("t", three.stage("t"))
        first = commit(three, request).results[0].create_table_version
        again = commit(three, request, declared("new")).results[0].create_table_version
        assert again == first
        assert three.numbers("t") == [1, 2, 3]

    def test_a_loser_in_a_batch_takes_the_batch_along(self, three: Lake) -> None:
        loser = three.stage("t", rows(5))
        request = versioned("t", loser)
        three.write("t", mode="append")
        with pytest.raises(ConcurrentModificationError):
            commit(three, declared("new"), request)
        with pytest.raises(TableNotFoundError):
            three("TableExists", "new")

    def test_an_empty_batch_is_refused(self, lake: Lake) -> None:
        with pytest.raises(InvalidInputError, match="empty"):
            commit(lake)

    def test_a_deregistered_root_table_is_marked(self, three: Lake) -> None:
        commit(three, deregistered("t"))
        assert (three.root / "t.lance" / ".lance-deregistered").exists()
        assert three("ListTables", "$").tables == []

    def test_discovery_during_a_batch_drop_does_not_bring_the_table_back(
        self, three: Lake, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        database = three.ns.services.database
        write = database.write

        def look_afterwards(work: Any) -> Any:
            result = write(work)
            monkeypatch.setattr(database, "write", write)
            assert three("ListTables", "$").tables == []
            monkeypatch.setattr(database, "write", look_afterwards)
            return result

        monkeypatch.setattr(database, "write", look_afterwards)
        commit(three, deregistered("t"))
        assert three("ListTables", "$").tables == []

    def test_a_table_that_pennon_does_not_manage_keeps_out_of_batches(self, lake: Lake) -> None:
        lance.write_dataset(rows(), lake.root / "found.lance")
        lance.write_dataset(rows(), lake.root / "found.lance", mode="append")
        staged = lake.stage("found")
        for operation in (versioned("found", staged), deleted("found", 1, 2)):
            with pytest.raises(InvalidInputError, match="does not manage"):
                commit(lake, declared("new"), operation)
        with pytest.raises(TableNotFoundError):
            lake("TableExists", "new")

    def test_a_small_pool_of_connections_suffices(self, open_lake: OpenLake) -> None:
        lake = open_lake(database_pool_size=1)
        lake("DeclareTable", "t")
        with pytest.raises(TableNotFoundError):
            commit(lake, deregistered("t"), deregistered("t"))
        lake("TableExists", "t")
