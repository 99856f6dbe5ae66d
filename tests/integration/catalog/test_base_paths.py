"""What a client's manifest names: no base path and no file outside of the table is taken or read."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest

from tests.chaos.manifests import manifest_name, staged_name
from tests.integration.data.tables import DataTable, error, rows
from tests.support.manifest_edits import edit_manifest, pad_manifest, read_manifest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.rest import RestClient


@pytest.fixture
def mine(http: RestClient) -> DataTable:
    """A table of a namespace that a client may write to."""
    return in_namespace(http, "mine").create(rows(10))


@pytest.fixture
def theirs(http: RestClient) -> DataTable:
    """A table of another namespace."""
    return in_namespace(http, "theirs").create(rows(100, 103))


def in_namespace(http: RestClient, start: str) -> DataTable:
    """Return a table that does not exist yet, in a new namespace."""
    (name,) = DataTable(http).names
    http.post(f"/v1/namespace/{start}_{name}/create", {"id": [f"{start}_{name}"]})
    return DataTable(http, f"{start}_{name}", name)


def folder_of(table: DataTable) -> Path:
    return Path(table.do("describe")["location"])


def stage(table: DataTable, content: bytes, version: int, branch: str = "") -> dict[str, Any]:
    """Put a manifest where a client stages it, and return the body that commits it."""
    place = folder_of(table) / (f"tree/{branch}/_versions" if branch else "_versions")
    place.mkdir(parents=True, exist_ok=True)
    staged = place / staged_name(version)
    staged.write_bytes(content)
    body: dict[str, Any] = {"id": table.names, "version": version, "manifest_path": str(staged).lstrip("/")}
    return body | ({"branch": branch} if branch else {})


def clone_of(table: DataTable, version: int, tmp_path: Path) -> bytes:
    """Return the manifest of a shallow clone of another table, as if it were of a version of this one."""
    lance.dataset(folder_of(table)).shallow_clone(str(tmp_path / "clone"), 1)
    content = (tmp_path / "clone" / "_versions" / manifest_name(1)).read_bytes()
    return edit_manifest(content, lambda manifest: setattr(manifest, "version", version))


def test_a_clone_of_another_table_is_not_taken_as_a_version(mine: DataTable, theirs: DataTable, tmp_path: Path) -> None:
    content = clone_of(theirs, 2, tmp_path)
    body = stage(mine, content, 2)
    answer = mine.ask("version/create", body)
    assert error(answer) == (400, 13)
    assert "base path" in answer.json()["error"]
    batch = {"entries": [body]}
    assert error(mine.http.raw.post("/v1/table/version/batch-create", json=batch)) == (400, 13)
    declared = DataTable(mine.http, mine.names[0], "declared")
    declared.do("declare")
    assert error(declared.ask("version/create", stage(declared, clone_of_first(theirs, tmp_path), 1))) == (400, 13)
    assert mine.count() == 10


def clone_of_first(table: DataTable, tmp_path: Path) -> bytes:
    shutil.rmtree(tmp_path / "clone", ignore_errors=True)
    return clone_of(table, 1, tmp_path)


@pytest.mark.parametrize(
    "spelling", ["{}", "file://{}", "{}/", "/{}", "{}/data", "{}/../{name}", "{}/tree/../../{name}"]
)
def test_every_spelling_of_another_table_is_refused(
    mine: DataTable, theirs: DataTable, tmp_path: Path, spelling: str
) -> None:
    place = folder_of(theirs)

    def respell(manifest: Any) -> None:
        manifest.base_paths[0].path = spelling.format(place, name=place.name)

    content = edit_manifest(clone_of(theirs, 2, tmp_path), respell)
    assert error(mine.ask("version/create", stage(mine, content, 2))) == (400, 13)
    own = str(folder_of(mine))

    def from_own(manifest: Any) -> None:
        manifest.base_paths[0].path = f"{own}/tree/../../{place.name}"

    content = edit_manifest(clone_of_first(theirs, tmp_path), from_own)
    content = edit_manifest(content, lambda manifest: setattr(manifest, "version", 2))
    assert error(mine.ask("version/create", stage(mine, content, 2))) == (400, 13)


def test_a_manifest_that_was_replaced_in_its_place_is_not_read(
    mine: DataTable, theirs: DataTable, tmp_path: Path
) -> None:
    """A writer with access to the folder of a table can also replace a committed manifest."""
    mine.put("insert", rows(10, 11))
    content = clone_of(theirs, 3, tmp_path)
    (folder_of(mine) / "_versions" / manifest_name(3)).write_bytes(content)
    for verb, body in (("query", {"k": 10}), ("count_rows", {}), ("delete", {"predicate": "id > 0"})):
        answer = mine.ask(verb, body)
        assert error(answer)[0] in {400, 404}, verb
    assert mine.count(version=2) == 11


def test_a_replaced_manifest_is_not_read_beside_the_one_that_is_open(
    mine: DataTable, theirs: DataTable, tmp_path: Path
) -> None:
    """Query processes and copies of tables read a version from storage that the server has open already."""
    mine.do("update_field_metadata", {"updates": [{"path": "id", "metadata": {"note": "x" * 2000}}]})
    assert mine.count(version=2) == 10
    place = folder_of(mine) / "_versions" / manifest_name(2)
    content = pad_manifest(clone_of(theirs, 2, tmp_path), place.stat().st_size)
    place.unlink()
    place.write_bytes(content)
    assert lance.dataset(folder_of(mine), version=2).count_rows() == 3
    isolated = {"predicate": "length(repeat(word, 100)) >= 0", "version": 2}
    assert error(mine.ask("count_rows", isolated)) == (400, 13)
    isolated = {"k": 10, "version": 2, "filter": isolated["predicate"]}
    assert error(mine.ask("query", isolated)) == (400, 13)
    for is_shallow in (False, True):
        made = DataTable(mine.http, mine.names[0], f"made_{is_shallow}")
        body = {"source_location": str(folder_of(mine)), "source_version": 2, "is_shallow": is_shallow}
        assert error(made.ask("clone", body)) == (400, 13)
        assert error(made.ask("describe")) == (404, 4)


def test_a_table_that_was_found_on_storage_reads_no_other_place(theirs: DataTable, tmp_path: Path) -> None:
    found = DataTable(theirs.http)
    root = folder_of(theirs).parent
    elsewhere = lance.write_dataset(rows(3), tmp_path / "elsewhere")
    elsewhere.shallow_clone(str(root / f"{found.names[0]}.lance"), 1)
    assert error(found.ask("query", {"k": 10})) == (400, 13)
    assert error(found.ask("count_rows", {})) == (400, 13)
    neighbour = DataTable(theirs.http).create(rows(5))
    beside = DataTable(theirs.http)
    lance.dataset(folder_of(neighbour)).shallow_clone(str(root / f"{beside.names[0]}.lance"), 1)
    assert beside.count() == 5  # as LanceDB clones tables of one folder


def test_a_table_is_mended_by_a_version_that_can_be_read(theirs: DataTable) -> None:
    found = DataTable(theirs.http)
    folder = folder_of(theirs).parent / f"{found.names[0]}.lance"
    lance.write_dataset(rows(3), folder)
    newest = folder / "_versions" / manifest_name(1)
    content = newest.read_bytes()
    newest.write_bytes(edit_manifest(content, _data_file("../x.lance")))
    assert error(found.ask("count_rows", {})) == (400, 13)
    found.do("version/create", stage(found, edit_manifest(content, _second), 2))
    assert found.count() == 3


def _second(manifest: Any) -> None:
    manifest.version = 2


def test_a_clone_keeps_its_origin_through_commits_of_clients(mine: DataTable) -> None:
    made = DataTable(mine.http, mine.names[0], "made")
    made.do("clone", {"source_location": str(folder_of(mine))})
    content = read_manifest(folder_of(made) / "_versions" / manifest_name(1))
    body = stage(made, edit_manifest(content, lambda manifest: setattr(manifest, "version", 2)), 2)
    made.do("version/create", body)
    assert made.count() == 10


def _data_file(name: str) -> Callable[[Any], None]:
    def edit(manifest: Any) -> None:
        manifest.fragments[0].files[0].path = name

    return edit


def _overlay(manifest: Any) -> None:
    manifest.fragments[0].overlays.add().data_file.path = "../x.lance"


def _row_ids(manifest: Any) -> None:
    manifest.fragments[0].ClearField("inline_row_ids")
    manifest.fragments[0].external_row_ids.path = "../../x"


def _transaction(manifest: Any) -> None:
    manifest.transaction_file = "../../x.txn"


def _descriptor(manifest: Any) -> None:
    manifest.fields[1].metadata.add(key="lance-encoding:blob", value=b"true")


def _extension(manifest: Any) -> None:
    manifest.fields[2].metadata.add(key="ARROW:extension:name", value=b"lance.blob.v2")


def _same_name(manifest: Any) -> None:
    manifest.fields[1].name = manifest.fields[0].name


def _parentless(manifest: Any) -> None:
    manifest.fields[1].parent_id = manifest.fields[1].id


@pytest.mark.parametrize(
    "edit",
    [
        *(_data_file(name) for name in ("../x.lance", "/etc/hostname", "a/b.lance", "..", "", "a\\b", "a\0b")),
        _overlay,
        _row_ids,
        _transaction,
        _descriptor,
        _extension,
        _parentless,
        _same_name,
    ],
    ids=lambda edit: getattr(edit, "__name__", "edit"),
)
def test_a_manifest_names_only_what_is_in_its_table(mine: DataTable, edit: Callable[[Any], None]) -> None:
    content = read_manifest(folder_of(mine) / "_versions" / manifest_name(1))

    def all_edits(manifest: Any) -> None:
        manifest.version = 2
        edit(manifest)

    assert error(mine.ask("version/create", stage(mine, edit_manifest(content, all_edits), 2))) == (400, 13)
    assert mine.count() == 10


def test_a_version_that_lance_cannot_count_is_no_fault_of_storage(mine: DataTable) -> None:
    content = read_manifest(folder_of(mine) / "_versions" / manifest_name(1))

    def without_a_count(manifest: Any) -> None:
        manifest.version = 2
        manifest.fragments[0].deletion_file.id = 4

    mine.do("version/create", stage(mine, edit_manifest(content, without_a_count), 2))
    for predicate in ("id > 4", "length(repeat(word, 100)) >= 0"):
        assert error(mine.ask("count_rows", {"predicate": predicate})) in {(400, 13), (404, 11)}


def test_values_of_another_kind_do_not_become_blobs(http: RestClient) -> None:
    table = DataTable(http).create(pa.table({"id": [1], "b": pa.array([b"x"], pa.large_binary())}))
    content = read_manifest(folder_of(table) / "_versions" / manifest_name(1))

    def label(manifest: Any) -> None:
        manifest.version = 2
        manifest.fields[1].metadata.add(key="lance-encoding:blob", value=b"true")

    assert error(table.ask("version/create", stage(table, edit_manifest(content, label), 2))) == (400, 13)
