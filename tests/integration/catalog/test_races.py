"""Callers that want the same thing at the same moment."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from threading import Barrier
from typing import TYPE_CHECKING, Any

import pytest
from lance_namespace.errors import InvalidTableStateError, LanceNamespaceError

from pennon.catalog import namespaces
from pennon.tables.writer import Writer
from tests.integration.catalog.lakes import Lake

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from pennon.catalog import Connection
    from tests.integration.catalog.conftest import OpenLake

ROUNDS = 5


def race(*attempts: Callable[[], object]) -> list[str]:
    """Run attempts at the same moment and return the name of each one's error; nothing for a success."""
    start = Barrier(len(attempts))

    def run(attempt: Callable[[], object]) -> str:
        start.wait(timeout=30)
        try:
            attempt()
        except LanceNamespaceError as error:
            return type(error).__name__
        return ""

    with ThreadPoolExecutor(len(attempts)) as threads:
        return sorted(threads.map(run, attempts))


def only_one(outcomes: Sequence[str], error: str) -> bool:
    return list(outcomes) == ["", *[error] * (len(outcomes) - 1)]


@pytest.fixture(params=["one process", "two processes"])
def lakes(request: pytest.FixtureRequest, open_lake: OpenLake) -> list[Lake]:
    """Four views of one catalog: through one opened namespace, or through two."""
    first = open_lake()
    second = open_lake() if request.param == "two processes" else first
    return [first, second, first, second]


def test_one_namespace_is_created_once(lakes: list[Lake]) -> None:
    for turn in range(ROUNDS):
        outcomes = race(*(partial(lake, "CreateNamespace", f"n{turn}") for lake in lakes))
        assert only_one(outcomes, "NamespaceAlreadyExistsError")


def test_one_table_is_declared_once(lakes: list[Lake]) -> None:
    lakes[0]("CreateNamespace", "a")
    for turn in range(ROUNDS):
        for name in (f"t{turn}", f"a$t{turn}"):
            outcomes = race(*(partial(lake, "DeclareTable", name) for lake in lakes))
            assert only_one(outcomes, "TableAlreadyExistsError")


def test_one_table_gets_a_name_that_several_want(lakes: list[Lake]) -> None:
    for turn in range(ROUNDS):
        names = [f"t{turn}{number}" for number in range(len(lakes))]
        for name in names:
            lakes[0]("DeclareTable", name)
        outcomes = race(
            *(
                partial(lake, "RenameTable", name, new_table_name=f"new{turn}")
                for lake, name in zip(lakes, names, strict=True)
            )
        )
        assert only_one(outcomes, "TableAlreadyExistsError")


def test_one_table_is_dropped_once(lakes: list[Lake]) -> None:
    for turn in range(ROUNDS):
        lakes[0].write(f"t{turn}")
        outcomes = race(*(partial(lake, "DropTable", f"t{turn}") for lake in lakes))
        assert only_one(outcomes, "TableNotFoundError")
        assert not (lakes[0].root / f"t{turn}.lance").exists()


def test_a_namespace_is_not_dropped_while_a_table_is_put_into_it(lakes: list[Lake]) -> None:
    lake = lakes[0]
    for turn in range(ROUNDS):
        name = f"n{turn}"
        lake("CreateNamespace", name)
        race(
            partial(lakes[0], "DropNamespace", name),
            partial(lakes[1], "DeclareTable", f"{name}$t"),
            partial(lakes[2], "DeclareTable", f"{name}$u"),
            partial(lakes[3], "CreateNamespace", f"{name}$inner"),
        )
        held = [table for table in lake("ListAllTables").tables if table.startswith(f"{name}$")]
        exists = name in lake("ListNamespaces", "$").namespaces
        assert exists or not held


def test_a_namespace_that_is_dropped_with_all_that_is_in_it_leaves_nothing(lakes: list[Lake]) -> None:
    lake = lakes[0]
    for turn in range(ROUNDS):
        name = f"n{turn}"
        lake("CreateNamespace", name)
        outcomes = race(
            partial(lakes[0], "DropNamespace", name, behavior="cascade"),
            partial(lakes[1], "DeclareTable", f"{name}$t"),
            partial(lakes[2], "CreateNamespace", f"{name}$inner"),
            partial(lakes[3], "DeclareTable", f"{name}$u"),
        )
        assert set(outcomes) <= {"", "NamespaceNotFoundError"}
        assert name not in lake("ListNamespaces", "$").namespaces
        assert not [table for table in lake("ListAllTables").tables if table.startswith(f"{name}$")]


def test_tables_added_while_a_namespace_is_overwritten_are_dropped_with_it(
    postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete = namespaces.delete_below

    def add_before(connection: Connection, namespace: Sequence[str]) -> None:
        monkeypatch.undo()
        lake("DeclareTable", "a$inner$late")  # through another connection
        delete(connection, namespace)

    with closing(Lake(tmp_path, database=postgres_url)) as lake:
        for name in ("a", "a$inner"):
            lake("CreateNamespace", name)
        monkeypatch.setattr(namespaces, "delete_below", add_before)
        assert lake("CreateNamespace", "a", mode="overwrite", properties={"new": "one"}).properties == {"new": "one"}
        assert lake("ListNamespaces", "a").namespaces == []
        assert lake("ListAllTables").tables == []


def test_a_table_that_is_dropped_while_it_is_written_is_gone(lakes: list[Lake]) -> None:
    for turn in range(ROUNDS):
        name = f"t{turn}"
        lakes[0].write(name)
        staged = lakes[0].stage(name)
        request = staged.request
        outcomes = race(
            partial(lakes[0], "DropTable", name),
            partial(lakes[1], "CreateTableVersion", name, **request),
        )
        assert set(outcomes) <= {"", "TableNotFoundError", "InvalidInputError"}
        assert name not in lakes[0]("ListTables", "$").tables
        assert not (lakes[0].root / f"{name}.lance").exists()


@pytest.mark.parametrize("batched", [False, True])
def test_a_version_is_not_deleted_while_it_gets_a_tag(lakes: list[Lake], batched: bool) -> None:
    bounds = {"ranges": [{"start_version": 1, "end_version": 2}]}
    for turn in range(ROUNDS):
        names = [f"t{turn}", f"u{turn}"]
        for name in names:
            lakes[0].write(name)
            lakes[0].write(name, mode="append")

        def delete(lake: Lake, order: list[str]) -> None:
            deletions = [{"delete_table_versions": {"id": [name], **bounds}} for name in order]
            if batched:
                lake("BatchCommitTables", operations=deletions)
            else:
                lake("BatchDeleteTableVersions", order[0], **bounds)

        race(
            partial(delete, lakes[0], names),
            partial(delete, lakes[1], names[::-1]),
            *(partial(lake, "CreateTableTag", name, tag="kept", version=1) for name in names for lake in lakes[2:]),
        )
        for name in names:
            tagged = list(lakes[0]("ListTableTags", name).tags)
            assert lakes[0].numbers(name) == ([1, 2] if tagged else [2])


def test_a_name_that_is_dropped_and_declared_in_turns_is_always_one_or_none(lakes: list[Lake]) -> None:
    for _ in range(ROUNDS):
        outcomes = race(
            partial(lakes[0], "DeclareTable", "t"),
            partial(lakes[1], "DropTable", "t"),
            partial(lakes[2], "DeclareTable", "t"),
            partial(lakes[3], "DropTable", "t"),
        )
        assert set(outcomes) <= {"", "TableAlreadyExistsError", "TableNotFoundError"}
    assert lakes[0]("ListTables", "$").tables in ([], ["t"])


def test_a_branch_that_gets_a_child_before_its_turn_to_go_stays(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.write("t")
    lake("CreateTableBranch", "t", name="parent")
    change = Writer.change

    def change_after_another(*arguments: Any, **options: Any) -> Any:
        monkeypatch.undo()
        lake("CreateTableBranch", "t", name="child", from_branch="parent")
        return change(*arguments, **options)

    monkeypatch.setattr(Writer, "change", change_after_another)
    with pytest.raises(InvalidTableStateError, match="needed by branch 'child'"):
        lake("DeleteTableBranch", "t", name="parent")
