"""Folders and tables whose names hold what paths and addresses are easily confused by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lance
import lance_namespace as ln
import lancedb
import pytest

from tests.clients.lakes import ClientTable, Lake, ids_of, rows

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import StartPennon
    from tests.support.s3 import S3Server

# Not "?": Lance itself cannot make a branch of a table below a folder with one in its name.
FOLDERS = ["a folder", "é", "100%", "a%20b", "#1", "日本", "a+b&c=d;e", "[x]{y}*~"]
NAMES = ["a table", "été", "v1.2", "日本語", "100%", "a%20b", "#1", "what?", "a+b", "it's", 'a"b', "x.lance", "-", "🚀"]


def exercise(table: ClientTable) -> None:
    """Write, change and read a table, on a branch too."""
    table.write(rows(10), "create")
    table.write(rows(10, 20))
    table.open().delete("id < 5")
    table.check(version=3, ids=range(5, 20))
    table.open().create_branch("dev")
    lance.write_dataset(rows(20, 30), table.on_branch("dev"), mode="append")
    table.check(version=4, ids=range(5, 30), branch="dev")


def test_a_root_may_have_any_name(start_pennon: StartPennon, tmp_path: Path) -> None:
    directory = tmp_path.joinpath(*FOLDERS)
    directory.mkdir(parents=True)
    lake = Lake(start_pennon("--processes", "1", directory=directory))
    client = lake.connect()
    client.create_namespace(ln.CreateNamespaceRequest(id=["space"]))
    for identifier in (["t"], ["space", "t"]):
        table = ClientTable(lake, client, *identifier)
        exercise(table)
        described = client.describe_table(ln.DescribeTableRequest(id=identifier, with_table_uri=True))
        assert lance.dataset(described.table_uri).count_rows() == 15
    db = lancedb.connect_namespace("rest", {"uri": lake.url})
    db.create_table("u", rows(3)).add(rows(3, 6))
    ClientTable(lake, client, "u").check(version=2, ids=range(6))
    beside = lancedb.connect(directory)
    assert {"t", "u"} <= set(beside.list_tables().tables)
    beside.open_table("u").add(rows(6, 9))
    ClientTable(lake, client, "u").check(version=3, ids=range(9))


def test_a_prefix_in_a_bucket_may_have_any_name(start_pennon: StartPennon, s3_server: S3Server) -> None:
    root = s3_server.create_root("a folder/é/a+b")
    lake = Lake(start_pennon("--processes", "1", *root.arguments), root.options, s3_server)
    client = lake.connect()
    client.create_namespace(ln.CreateNamespaceRequest(id=["space"]))
    exercise(ClientTable(lake, client, "space", "t"))
    location = ClientTable(lake, client, "space", "t").location
    client.drop_table(ln.DropTableRequest(id=["space", "t"]))
    assert lake.is_empty(location)
    s3_server.remove_root(root)


@pytest.mark.parametrize("root", [False, True], ids=["in a namespace", "in the root"])
def test_a_table_may_have_any_name(local_lake: Lake, root: bool) -> None:
    client = local_lake.connect()
    space = f"a space, {'root' if root else 'not root'}: é.x"
    client.create_namespace(ln.CreateNamespaceRequest(id=[space]))
    for name in NAMES:
        identifier = [name] if root else [space, name]
        table = ClientTable(local_lake, client, *identifier)
        table.write(rows(10), "create")
        table.write(rows(10, 20))
        table.check(version=2, ids=range(20))
    listed = client.list_tables(ln.ListTablesRequest(id=[] if root else [space])).tables
    assert set(NAMES) <= set(listed)
    for name in NAMES:
        identifier = [name] if root else [space, name]
        location = ClientTable(local_lake, client, *identifier).location
        client.drop_table(ln.DropTableRequest(id=identifier))
        assert local_lake.is_empty(location)


def test_names_that_differ_little_are_different_tables(local_lake: Lake) -> None:
    client = local_lake.connect()
    client.create_namespace(ln.CreateNamespaceRequest(id=["alike"]))
    # Letters in either case, composed and decomposed, and what becomes the same when it is made safe for a path.
    names = ["t", "T", "\u00e9", "e\u0301", "a b", "a_b", "a?b", " t", "t "]
    for number, name in enumerate(names):
        ClientTable(local_lake, client, "alike", name).write(rows(number, number + 1), "create")
    for number, name in enumerate(names):
        assert ids_of(ClientTable(local_lake, client, "alike", name).open().to_table()) == [number]


def test_lancedb_opens_tables_of_any_name(local_lake: Lake) -> None:
    db: Any = lancedb.connect_namespace("rest", {"uri": local_lake.url})
    db.create_namespace(["Ünïcode space"])
    for name in ("v1.2", "plain", "with-dash"):
        db.create_table(name, rows(3), namespace_path=["Ünïcode space"]).add(rows(3, 6))
        assert db.open_table(name, namespace_path=["Ünïcode space"]).count_rows() == 6
    assert db.list_tables(["Ünïcode space"]).tables == ["plain", "v1.2", "with-dash"]


def test_another_delimiter_may_be_used(local_lake: Lake) -> None:
    client = local_lake.connect(delimiter=".")
    client.create_namespace(ln.CreateNamespaceRequest(id=["dotted"]))
    exercise(ClientTable(local_lake, client, "dotted", "t"))
    assert ClientTable(local_lake, local_lake.connect(), "dotted", "t").open().count_rows() == 15
