"""A directory catalog comes in whole, stays where it is, and comes in once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import lance_namespace as ln
import pyarrow as pa
import pytest

from pennon.cli.import_catalog import SourceObject, walk_catalog

if TYPE_CHECKING:
    from tests.conftest import StartPennon
    from tests.integration.cli.conftest import Pennon
    from tests.support.s3 import S3Root

ROWS = pa.table({"x": [1, 2, 3]})
NAMES = ["root1", "a", "a$declared", "a$t1", "a$b", "a$b$t2"]


def make_catalog(root: str, options: dict[str, str] | None = None) -> ln.LanceNamespace:
    properties = {f"storage.{name}": value for name, value in (options or {}).items()}
    catalog = ln.connect("dir", {"root": root, **properties})
    catalog.create_namespace(ln.CreateNamespaceRequest(id=["a"], properties={"owner": "ada"}))
    catalog.create_namespace(ln.CreateNamespaceRequest(id=["a", "b"]))
    for identifier in (["root1"], ["a", "t1"], ["a", "b", "t2"]):
        location = catalog.declare_table(ln.DeclareTableRequest(id=identifier)).location
        lance.write_dataset(ROWS, location, storage_options=options, mode="create")
    catalog.declare_table(ln.DeclareTableRequest(id=["a", "declared"], properties={"kind": "plan"}))
    return catalog


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "old lake"
    make_catalog(str(folder))
    return folder


def outcome(said: str) -> dict[str, str]:
    return {row["id"]: row["action"] for row in json.loads(said)}


def everything(action: str) -> dict[str, str]:
    return dict.fromkeys(NAMES, action)


def data_files(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_ino for path in folder.rglob("*") if path.suffix in {".lance", ".manifest"}}


def test_all_comes_in_once_and_nothing_moves(pennon: Pennon, source: Path) -> None:
    before = data_files(source)
    command = ("import", source, "-d", source, "-o", "json")
    assert outcome(pennon(*command).stdout) == everything("import")
    assert outcome(pennon(*command).stdout) == everything("skip")
    assert data_files(source) == before


def test_what_came_in_is_served_and_can_be_written(pennon: Pennon, source: Path, start_pennon: StartPennon) -> None:
    pennon("import", source, "-d", source)
    server = start_pennon(directory=source)
    client = ln.connect("rest", {"uri": server.url})
    described = client.describe_namespace(ln.DescribeNamespaceRequest(id=["a"]))
    assert described.properties == {"owner": "ada"}
    declared = client.describe_table(ln.DescribeTableRequest(id=["a", "declared"], check_declared=True))
    assert (declared.is_only_declared, declared.properties) == (True, {"kind": "plan"})
    for identifier in (["root1"], ["a", "t1"], ["a", "b", "t2"]):
        lance.write_dataset(ROWS, namespace_client=client, table_id=identifier, mode="append")
        assert lance.dataset(namespace_client=client, table_id=identifier).count_rows() == 6


def test_imported_tables_are_committed_by_pennon_where_that_is_asked_for(
    pennon: Pennon, source: Path, start_pennon: StartPennon
) -> None:
    pennon("import", source, "-d", source, "--manage-registered-tables")
    client = ln.connect("rest", {"uri": start_pennon(directory=source).url})
    assert client.describe_table(ln.DescribeTableRequest(id=["a", "t1"])).managed_versioning is True
    lance.write_dataset(ROWS, namespace_client=client, table_id=["a", "t1"], mode="append")
    listed = client.list_table_versions(ln.ListTableVersionsRequest(id=["a", "t1"])).versions
    assert [version.version for version in listed] == [1, 2]


def test_a_dry_run_changes_nothing(pennon: Pennon, source: Path, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    command = ("import", source, "-d", source, "--dry-run")
    assert outcome(pennon(*command, "-o", "json").stdout) == everything("import")
    assert sorted(tmp_path.rglob("*")) == before
    pennon("import", source, "-d", source)
    assert outcome(pennon(*command, "-o", "json").stdout) == everything("skip")
    assert "0 to import, 6 to skip" in pennon(*command).stderr


def test_tables_outside_the_root_are_refused_unless_their_place_is_allowed(pennon: Pennon, source: Path) -> None:
    command = ("import", source, "-d", "lake", "-o", "json")
    refused = {name: "import" if name in {"a", "a$b"} else "refuse" for name in NAMES}
    ended = pennon(*command, expect=1)
    assert outcome(ended.stdout) == refused
    assert "allowed_locations" in ended.stdout
    assert "--allowed-locations" in pennon("import", source, "-d", "lake", expect=1).stderr
    allowed = outcome(pennon(*command, "--allowed-locations", json.dumps([str(source)])).stdout)
    assert allowed == {name: "skip" if name in {"a", "a$b"} else "import" for name in NAMES}


def test_a_name_that_another_table_has_is_refused(pennon: Pennon, source: Path, tmp_path: Path) -> None:
    lance.write_dataset(ROWS, tmp_path / "lake" / "root1.lance")
    pennon("migrate", "-d", "lake")
    allow = ("--allowed-locations", json.dumps([str(source)]))
    make_catalog(str(tmp_path / "lake" / "first"))
    pennon("import", "lake/first", "-d", "lake")
    rows = json.loads(pennon("import", source, "-d", "lake", "-o", "json", *allow, expect=1).stdout)
    clash = next(row for row in rows if row["id"] == "root1")
    assert clash["action"] == "refuse"
    assert "a table of that name already exists, at" in clash["reason"]


def test_a_location_without_a_catalog_is_an_error(pennon: Pennon, tmp_path: Path) -> None:
    assert "nowhere' not found; pass the folder" in pennon("import", "nowhere", expect=3).stderr
    (tmp_path / "empty").mkdir()
    assert "No directory catalog found" in pennon("import", "empty", expect=3).stderr
    assert "Cannot open 'az://container': " in pennon("import", "az://container", expect=1).stderr
    assert not (tmp_path / "pennon-data").exists()


def test_a_catalog_on_an_object_store_comes_in(pennon: Pennon, s3_root: S3Root) -> None:
    make_catalog(s3_root.url, s3_root.options)
    options = ("--root", s3_root.url, "--storage-options", json.dumps(s3_root.options))
    assert outcome(pennon("import", s3_root.url, *options, "-o", "json").stdout) == everything("import")
    assert outcome(pennon("import", s3_root.url, *options, "-o", "json").stdout) == everything("skip")


class Paged:
    """A catalog that hands out one name a page."""

    def list_namespaces(self, request: ln.ListNamespacesRequest) -> ln.ListNamespacesResponse:
        names = ["a", "b", "c"] if not request.id else []
        at = names.index(request.page_token) + 1 if request.page_token else 0
        token = names[at] if at < len(names) - 1 else None
        return ln.ListNamespacesResponse(namespaces=names[at : at + 1], page_token=token)

    def list_tables(self, request: ln.ListTablesRequest) -> ln.ListTablesResponse:
        return ln.ListTablesResponse(tables=[])

    def describe_namespace(self, request: Any) -> ln.DescribeNamespaceResponse:
        return ln.DescribeNamespaceResponse(properties={"id": "$".join(request.id)})


def test_every_page_is_read() -> None:
    found = list(walk_catalog(Paged()))  # type: ignore[arg-type]
    assert found == [SourceObject("namespace", (name,), properties={"id": name}) for name in ("a", "b", "c")]
