"""Clones: a shallow one reads the files of its origin, which stay for as long as it does; a deep one has its own."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import lance
import lance_namespace as ln
import pytest
from lance_namespace.errors import InvalidInputError

from pennon.namespace import PennonNamespace
from tests.chaos.manifests import manifest_name
from tests.integration.data.tables import DataTable, error, rows, stream_of


def clone(table: DataTable, *names: str, **more: Any) -> DataTable:
    made = DataTable(table.http, *names)
    made.do("clone", {"source_location": table.do("describe")["location"], **more})
    return made


def test_a_table_is_not_dropped_while_a_shallow_clone_reads_it(table: DataTable) -> None:
    first, second = clone(table), clone(table)
    first.put("insert", rows(500, 503))
    assert error(table.ask("drop")) == (409, 19)
    assert (first.count(), second.count(), table.count()) == (103, 100, 100)
    for made in (first, second):
        made.do("drop")
    table.do("drop")
    assert error(table.ask("exists")) == (404, 4)


def test_a_deep_clone_needs_nothing_of_its_origin(table: DataTable) -> None:
    made = clone(table, is_shallow=False)
    table.do("drop")
    assert made.ids() == list(range(100))


def test_a_manifest_that_is_replaced_during_a_deep_clone_copies_nothing_of_another_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lance reads the manifest again after it was checked; whoever can write to the table's folder replaces it."""
    namespace = PennonNamespace(directory=str(tmp_path / "lake"))
    folders = {}
    for name in ("mine", "theirs"):
        namespace.create_namespace(ln.CreateNamespaceRequest(id=[name]))
        made = namespace.create_table(ln.CreateTableRequest(id=[name, "t"]), stream_of(rows(5)))
        folders[name] = str(made.location)
    lance.dataset(folders["theirs"]).shallow_clone(str(tmp_path / "staged"), 1)
    foreign = (tmp_path / "staged" / "_versions" / manifest_name(1)).read_bytes()
    deep_clone = lance.LanceDataset.deep_clone

    def replace_and_copy(dataset: lance.LanceDataset, *arguments: Any, **options: Any) -> lance.LanceDataset:
        Path(folders["mine"], "_versions", manifest_name(1)).write_bytes(foreign)
        return deep_clone(dataset, *arguments, **options)

    monkeypatch.setattr(lance.LanceDataset, "deep_clone", replace_and_copy)
    before = set((tmp_path / "lake").rglob("*.lance"))
    with pytest.raises(InvalidInputError, match="was replaced on storage"):
        namespace.clones.clone_table(("mine", "copy"), folders["mine"], 1, None, shallow=False)
    assert set((tmp_path / "lake").rglob("*.lance")) == before
    namespace.close()


def test_a_version_that_a_shallow_clone_reads_stays(table: DataTable) -> None:
    made = clone(table)
    table.do("delete", {"predicate": "id < 50"})
    doomed = {"ranges": [{"start_version": 1, "end_version": 2}]}
    refused = table.ask("version/delete", doomed)
    assert error(refused) == (409, 19)
    assert f"clone {made.names[0]!r}" in refused.json()["error"]
    assert made.count() == 100
    made.do("drop")
    assert table.do("version/delete", doomed)["deleted_count"] == 1
    assert table.do("tags/list")["tags"] == {}


def test_a_branch_that_a_shallow_clone_reads_stays(table: DataTable) -> None:
    table.do("branches/create", {"name": "dev"})
    table.put("insert", rows(500, 503), branch="dev")
    table.do("tags/create", {"tag": "there", "version": table.versions("dev")[-1], "branch": "dev"})
    made = clone(table, source_tag="there")
    table.do("tags/delete", {"tag": "there"})
    assert error(table.ask("branches/delete", {"name": "dev"})) == (409, 19)
    assert made.count() == 103
    made.do("drop")
    table.do("branches/delete", {"name": "dev"})


@pytest.mark.parametrize("inside", [True, False])
def test_a_namespace_goes_with_its_clones_but_not_without_them(table: DataTable, inside: bool) -> None:
    home, other = f"home_{secrets.token_hex(4)}", f"other_{secrets.token_hex(4)}"
    for name in (home, other):
        table.http.post(f"/v1/namespace/{name}/create")
    origin = DataTable(table.http, home, "origin").create(rows(5))
    made = DataTable(table.http, home if inside else other, "clone")
    made.do("clone", {"source_location": origin.do("describe", {"with_table_uri": True})["table_uri"]})
    expected = 200 if inside else 409
    table.http.post(f"/v1/namespace/{home}/drop", {"behavior": "cascade"}, expect=expected)
    assert made.ask("exists").status_code == (404 if inside else 200)


def test_a_clone_that_cannot_be_made_leaves_no_trace(table: DataTable) -> None:
    location = table.do("describe")["location"]
    taken = DataTable(table.http).create(rows(1))
    for made, source, outcome in (
        (taken, {}, (409, 5)),
        (DataTable(table.http, "nope", "t"), {}, (404, 1)),
        (DataTable(table.http), {"source_version": 9}, (404, 11)),
        (DataTable(table.http), {"source_tag": "nope"}, (404, 8)),
    ):
        assert error(made.ask("clone", {"source_location": location, **source})) == outcome
    assert taken.count() == 1
    assert table.files("_refs") == set()
    table.do("drop")


def test_a_forgotten_table_keeps_its_files_for_its_clones(table: DataTable) -> None:
    made = clone(table)
    table.do("deregister")
    assert made.count() == 100
    made.do("drop")
