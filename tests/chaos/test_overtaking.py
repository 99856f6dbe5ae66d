"""One caller overtakes another at the worst moment: staged exactly, in one process."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import lance
import lance_namespace as ln
import pytest

from pennon.catalog import versions
from pennon.catalog.tables import Table
from pennon.commits import history
from pennon.namespace import PennonNamespace
from pennon.namespace.new_tables import NewTables
from tests.chaos.manifests import make_manifest, manifest_name, staged_name
from tests.clients.lakes import arrow_stream, ids_of, rows

SECONDS = 60.0


@pytest.fixture
def pennon(tmp_path: Path) -> Iterator[PennonNamespace]:
    namespace = PennonNamespace(directory=str(tmp_path))
    yield namespace
    namespace.close()


@pytest.fixture
def table(pennon: PennonNamespace) -> Table:
    """A table at version 1."""
    pennon.declare_table(ln.DeclareTableRequest(id=["t"]))
    found = pennon.find_table(("t",))
    commit(pennon, found, 1)
    return found


def place_of(table: Table, branch: str = "") -> Path:
    return Path(table.location, f"tree/{branch}/_versions" if branch else "_versions")


def stage(table: Table, version: int, branch: str = "") -> ln.CreateTableVersionRequest:
    place = place_of(table, branch)
    place.mkdir(parents=True, exist_ok=True)
    path = place / staged_name(version)
    path.write_bytes(make_manifest(version, branch))
    return ln.CreateTableVersionRequest(id=["t"], version=version, manifest_path=str(path), branch=branch or None)


def commit(pennon: PennonNamespace, table: Table, version: int, branch: str = "") -> ln.CreateTableVersionRequest:
    request = stage(table, version, branch)
    pennon.create_table_version(request)
    return request


def write_beside(table: Table, *numbers: int) -> None:
    """Write versions as Lance does in a folder without a catalog."""
    for number in numbers:
        (place_of(table) / manifest_name(number)).write_bytes(make_manifest(number))


def numbers(pennon: PennonNamespace, branch: str = "") -> list[int]:
    request = ln.ListTableVersionsRequest(id=["t"], branch=branch or None)
    return [version.version for version in pennon.list_table_versions(request).versions]


def before(pytest_patch: pytest.MonkeyPatch, owner: Any, name: str, action: Callable[[], object]) -> None:
    """Do something once, right before a function is called the next time."""
    original, todo = getattr(owner, name), [action]

    def call(*arguments: Any, **options: Any) -> Any:
        if todo:
            todo.pop()()
        return original(*arguments, **options)

    pytest_patch.setattr(owner, name, call)


def after(pytest_patch: pytest.MonkeyPatch, owner: Any, name: str, action: Callable[[], object]) -> None:
    """Do something once, right after a function was called the next time and before its result is used."""
    original, todo = getattr(owner, name), [action]

    def call(*arguments: Any, **options: Any) -> Any:
        result = original(*arguments, **options)
        if todo:
            todo.pop()()
        return result

    pytest_patch.setattr(owner, name, call)


def test_a_commit_whose_version_a_direct_writer_took_fails(
    pennon: PennonNamespace, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = stage(table, 2)
    before(monkeypatch, pennon.services.authority, "publish", lambda: write_beside(table, 2, 3))
    with pytest.raises(ln.ConcurrentModificationError):
        pennon.create_table_version(request)
    with pytest.raises(ln.ConcurrentModificationError):
        pennon.create_table_version(request)
    assert numbers(pennon) == [1, 2, 3]


def test_a_commit_overtaken_by_a_direct_writer_can_be_retried(
    pennon: PennonNamespace, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = stage(table, 3)
    before(monkeypatch, pennon.services.authority, "stage", lambda: write_beside(table, 2))
    assert pennon.create_table_version(request).version is not None
    assert numbers(pennon) == [1, 2, 3]


def test_a_version_that_appears_during_a_listing_is_kept(
    pennon: PennonNamespace, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[ln.CreateTableVersionRequest] = []
    after(monkeypatch, history, "stored_versions", lambda: made.append(commit(pennon, table, 2)))
    assert numbers(pennon) in ([1], [1, 2])
    answer = pennon.create_table_version(made[0])
    assert answer.version is not None
    assert numbers(pennon) == [1, 2]


def test_the_loser_of_a_race_at_the_last_moment_leaves_no_file(
    pennon: PennonNamespace, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = stage(table, 2)
    after(monkeypatch, pennon.services.authority, "stage", lambda: commit(pennon, table, 2))
    with pytest.raises(ln.ConcurrentModificationError):
        pennon.create_table_version(request)
    assert {path.name for path in place_of(table).iterdir()} == {manifest_name(1), manifest_name(2)}


def test_a_replay_that_overtakes_the_original_takes_nothing_from_it(
    pennon: PennonNamespace, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = stage(table, 2)
    after(monkeypatch, pennon.services.authority, "stage", lambda: pennon.create_table_version(request))
    answer = pennon.create_table_version(request)
    assert answer.version is not None
    assert answer.version.version == 2
    assert numbers(pennon) == [1, 2]


def test_a_replay_is_known_when_the_original_comes_between_two_looks(
    pennon: PennonNamespace, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog is asked before the original is recorded, and storage after it is in place."""
    request = stage(table, 2)
    before(monkeypatch, pennon.services.history, "_on_storage", lambda: pennon.create_table_version(request))
    answer = pennon.create_table_version(request)
    assert answer.version is not None
    assert answer.version.version == 2
    assert numbers(pennon) == [1, 2]


def test_a_branch_made_again_while_the_old_one_is_forgotten_stays(
    pennon: PennonNamespace, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(pennon, table, 5, "dev")
    commit(pennon, table, 6, "dev")
    shutil.rmtree(Path(table.location, "tree/dev"))

    def make_again() -> None:
        pennon.services.database.write(lambda c: versions.delete_branch(c, table.id, "dev"))
        commit(pennon, table, 3, "dev")

    after(monkeypatch, pennon.services.history, "_is_gone", make_again)
    assert numbers(pennon, "dev") == [3]
    commit(pennon, table, 4, "dev")
    assert numbers(pennon, "dev") == [3, 4]


def test_a_table_that_takes_the_name_of_one_being_dropped_keeps_its_rows(
    pennon: PennonNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planned before another of its name came and went, inserted after that, and written before the old files go."""
    planned, dropped, written = threading.Event(), threading.Event(), threading.Event()
    plan, remove = NewTables.plan, pennon.services.removal.remove

    def in_main_thread() -> bool:
        return threading.current_thread() is threading.main_thread()

    def plan_slowly(*arguments: Any, **options: Any) -> Any:
        found = plan(*arguments, **options)
        if not in_main_thread():
            planned.set()
            assert dropped.wait(SECONDS)
        return found

    def remove_slowly(locations: Any) -> None:
        if in_main_thread():
            dropped.set()
            assert written.wait(SECONDS)
        remove(locations)

    def take_the_name() -> None:
        try:
            lance.write_dataset(rows(100, 105), namespace_client=pennon, table_id=["t"], mode="create")
        finally:
            written.set()

    monkeypatch.setattr(NewTables, "plan", plan_slowly)
    monkeypatch.setattr(pennon.services.removal, "remove", remove_slowly)
    with ThreadPoolExecutor(1) as other:
        taking = other.submit(take_the_name)
        assert planned.wait(SECONDS)
        pennon.declare_table(ln.DeclareTableRequest(id=["t"]))
        pennon.drop_table(ln.DropTableRequest(id=["t"]))
        taking.result(SECONDS)
    found = lance.dataset(namespace_client=pennon, table_id=["t"])
    assert ids_of(found.to_table()) == list(range(100, 105))


def test_a_clone_that_cannot_have_its_name_leaves_the_files_of_who_has_it(pennon: PennonNamespace) -> None:
    lance.write_dataset(rows(10), namespace_client=pennon, table_id=["source"], mode="create")
    location = pennon.declare_table(ln.DeclareTableRequest(id=["t"])).location
    assert location is not None
    # A client of the declared table has begun to write.
    begun = Path(location, "data", "begun.lance")
    begun.parent.mkdir(parents=True)
    begun.write_bytes(b"rows")
    source = pennon.find_table(("source",))
    with pytest.raises(ln.TableAlreadyExistsError):
        pennon.clones.clone_table(("t",), source.location, None, None, shallow=False)
    assert begun.read_bytes() == b"rows"
    described = pennon.describe_table(ln.DescribeTableRequest(id=["t"], check_declared=True))
    assert described.is_only_declared


def test_an_insert_into_a_declared_table_that_is_dropped_fails(
    pennon: PennonNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, write in (("CreateTable", pennon.create_table), ("InsertIntoTable", pennon.insert_into_table)):
        pennon.declare_table(ln.DeclareTableRequest(id=["t"]))
        drop = partial(pennon.drop_table, ln.DropTableRequest(id=["t"]))
        before(monkeypatch, pennon.services.authority, "stage", drop)
        with pytest.raises(ln.TableNotFoundError, match="was dropped"):
            write(getattr(ln, f"{name}Request")(id=["t"]), arrow_stream(rows(10)))
        assert pennon.list_tables(ln.ListTablesRequest(id=[])).tables == []
