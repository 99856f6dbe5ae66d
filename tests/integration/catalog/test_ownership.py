"""Two catalogs never write to one table: copies write to their own files, and others are refused."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import psycopg
import pytest
from lance_namespace.errors import PermissionDeniedError

from pennon.catalog import open_database
from pennon.catalog.schema import migrate
from pennon.commits.ownership import ROOT_MARK, TABLE_MARK
from tests.integration.catalog.lakes import Lake, rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.integration.catalog.conftest import OpenLake
    from tests.support.s3 import S3Root

#: What takes a catalog back to the schema before it had an identity, with locations in full.
TO_SCHEMA_13 = (
    *(
        f"DROP TRIGGER {table}_{event}"
        for table in ("tables", "versions", "namespaces", "keys")
        for event in ("inserted", "updated", "deleted")
    ),
    "DROP TABLE unflushed_files",
    "DROP TABLE changes",
    "DROP TABLE change_horizon",
    *(
        f"DROP TABLE {table}"
        for table in ("maintenance_totals", "maintenance_state", "maintenance_cursor", "maintenance_turns", "removals")
    ),
    "DROP INDEX versions_by_record",
    *(
        f"ALTER TABLE versions DROP COLUMN {column}"
        for column in (
            *("recorded_at", "fragments", "small_fragments", "row_count", "deleted_rows", "data_bytes", "indices"),
            *("unindexed_rows", "stale_since", "has_auto_cleanup"),
        )
    ),
    "CREATE INDEX versions_by_age ON versions (created_at)",
    "UPDATE tables SET location = '{root}/' || location WHERE location NOT LIKE '/%' AND location NOT LIKE '%://%'",
    "DROP TABLE clone_bases",
    "ALTER TABLE column_errors DROP COLUMN commit_version",
    "DROP TABLE column_writes",
    "DROP TABLE lost_versions",
    "DROP TABLE catalog_identity",
    "ALTER TABLE view_schedules RENAME TO view_slots",
    "ALTER TABLE dropped_locations RENAME TO dropped_places",
    "DROP INDEX column_states_by_fragment",
    "ALTER TABLE column_states RENAME TO column_fills",
    "CREATE INDEX column_fills_by_fragment ON column_fills (table_id, branch, column_key, fragment_id)",
    "DROP INDEX clones_by_source",
    "ALTER TABLE clones RENAME COLUMN source_id TO origin_id",
    "CREATE INDEX clones_by_origin ON clones (origin_id)",
    "ALTER TABLE jobs RENAME COLUMN stop_request TO wish",
    "ALTER TABLE jobs RENAME COLUMN event_count TO events",
    "ALTER TABLE index_builds RENAME COLUMN heartbeat_at TO alive_at",
    "ALTER TABLE garbage RENAME COLUMN lease_until TO leased_until",
    "ALTER TABLE idempotency RENAME COLUMN response TO answer",
    "UPDATE pennon_schema SET version = 13",
)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Lake]:
    """A lake with its catalog in its own folder, and two tables; one has a folder of its own and a link to it."""
    lake = Lake(tmp_path / "home")
    lake.write("teas", rows(10))
    lake.write("again")
    lake("DropTable", "again")
    lake.write("again", rows(5))
    yield lake
    lake.close()


def write_everywhere(lake: Lake) -> None:
    """Delete rows, drop a table and create one, as clients and the server itself do it."""
    lake.open("teas").delete("number < 9")
    lake("DropTable", "again")
    lake.write("fresh")


def refused(lake: Lake) -> None:
    """Insist that reads go on and that nothing can be written."""
    before = {path: path.stat().st_mtime_ns for path in lake.folder("teas").rglob("*") if "_versions" in str(path)}
    assert lake.open("teas").count_rows() == 10
    with pytest.raises(PermissionDeniedError, match="pennon doctor --adopt"):
        lake("DropTable", "teas")
    with pytest.raises(PermissionDeniedError, match="pennon doctor --adopt"):
        lake.commit("teas", lake.stage("teas"))
    lake.ns.maintain()
    assert lake.open("teas").count_rows() == 10
    assert lake.numbers("teas") == [1]
    assert before.keys() <= set(lake.folder("teas").rglob("*"))


def older(lake: Lake) -> None:
    """Make a lake one of the release before catalogs had an identity."""
    lake.settle()
    lake.close()
    with closing(sqlite3.connect(lake.root / ".pennon" / "catalog.db")) as catalog, catalog:
        for statement in TO_SCHEMA_13:
            catalog.execute(statement.format(root=lake.root))
    catalog.close()
    (lake.root / ROOT_MARK).unlink()


def test_a_copied_root_is_independent_of_the_original(home: Lake, tmp_path: Path) -> None:
    home.settle()
    shutil.copytree(home.root, tmp_path / "copy", symlinks=True)
    copy = Lake(tmp_path / "copy")
    assert {copy.folder("teas").parent, copy.folder("again").parent} == {copy.root}
    write_everywhere(copy)
    copy.ns.maintain()
    assert (copy.open("teas").count_rows(), copy("ListTables", "$").tables) == (1, ["fresh", "teas"])
    assert (home.open("teas").count_rows(), home.open("again").count_rows()) == (10, 5)
    assert lance.dataset(home.root / "again.lance").count_rows() == 5
    home.write("teas", mode="append")
    assert (home.open("teas").count_rows(), copy.open("teas").count_rows()) == (12, 1)
    copy.close()


def test_a_moved_folder_keeps_its_catalog(home: Lake, tmp_path: Path) -> None:
    home.close()
    moved = Lake(home.root.rename(tmp_path / "moved"))
    write_everywhere(moved)
    assert (moved.open("teas").count_rows(), moved("ListTables", "$").tables) == (1, ["fresh", "teas"])
    moved.close()


def test_another_catalog_writes_nothing_until_it_adopts_the_root(home: Lake, tmp_path: Path) -> None:
    other = Lake(tmp_path / "other", root=str(home.root))
    other("ListTables", "$")
    assert other.open("teas").count_rows() == 10
    with pytest.raises(PermissionDeniedError, match="belongs to another catalog"):
        other("DropTable", "teas")
    with pytest.raises(PermissionDeniedError, match="belongs to another catalog"):
        other.commit("teas", other.stage("teas"))
    other.ns.services.ownership.adopt()
    other("DropTable", "teas")
    assert home.ns.services.ownership.check() is not None
    with pytest.raises(PermissionDeniedError, match="belongs to another catalog"):
        home("DeclareTable", "more")
    other.close()


def test_a_copied_catalog_is_refused_the_root_of_its_original(
    open_lake: OpenLake, catalog_url: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    lake = open_lake()
    lake.write("teas", rows(10))
    lake.settle()
    url = copied(catalog_url, tmp_path, request)
    copy = Lake(tmp_path / "elsewhere", root=str(lake.root), database=url)
    refused(copy)
    copy.close()
    lake.write("teas", mode="append")
    assert lake.open("teas").count_rows() == 12


def copied(url: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """Return the URL of a copy of a database: of the file, or a database from a template, as a restored dump is."""
    if url.startswith("sqlite"):
        original, backup = sqlite3.connect(tmp_path / "catalog.db"), sqlite3.connect(tmp_path / "copy.db")
        original.backup(backup)
        original.close()
        backup.close()
        return f"sqlite:///{tmp_path / 'copy.db'}"
    server = request.getfixturevalue("postgres_server")
    name = server.create_database()
    request.addfinalizer(lambda: server.drop_database(name))
    with psycopg.connect(url) as source, psycopg.connect(server.url(name), autocommit=True) as target:
        tables = [row[0] for row in source.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")]
        made = open_database(server.url(name), pool_size=1)
        migrate(made)
        made.close()
        target.execute("SET session_replication_role = replica")
        for table in tables:
            with source.cursor().copy(f"COPY {table} TO STDOUT") as out:
                content = b"".join(out)
            target.execute(f"TRUNCATE {table} CASCADE")
            with target.cursor().copy(f"COPY {table} FROM STDIN") as into:
                into.write(content)
    return str(server.url(name))


def test_a_catalog_is_not_served_with_a_root_that_it_does_not_know(home: Lake, tmp_path: Path) -> None:
    home.settle()
    shutil.copytree(home.root / ".pennon", tmp_path / "other" / ".pennon")
    lost = Lake(tmp_path / "other", root=str(tmp_path / "empty"))
    records = lost.records()
    with pytest.raises(PermissionDeniedError, match="used with another storage root"):
        lost("DeclareTable", "more")
    with pytest.raises(Exception, match=r"version|data"):
        lost.open("teas")
    lost("ListTableVersions", "teas")
    assert lost.records() == records, "versions were forgotten, because the wrong root does not have them"
    lost.close()


def test_a_root_that_lost_its_mark_is_not_written(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "catalog", root=str(tmp_path / "disk"))
    lake.write("teas", rows(10))
    (tmp_path / "disk").rename(tmp_path / "unmounted")
    assert "mounted" in str(lake.ns.services.ownership.check())
    lake.close()


def test_a_lake_of_the_release_before_is_served(home: Lake) -> None:
    older(home)
    upgraded = Lake(home.root)
    assert upgraded.open("teas").count_rows() == 10
    write_everywhere(upgraded)
    locations = upgraded.ns.services.database.read(lambda c: c.all("SELECT location FROM tables ORDER BY 1"))
    assert locations == [("fresh.lance",), ("teas.lance",)]
    assert upgraded.folder("teas") == home.root / "teas.lance"
    upgraded.close()


def test_a_copy_of_a_lake_of_the_release_before_writes_once_it_is_adopted(home: Lake, tmp_path: Path) -> None:
    older(home)
    shutil.copytree(home.root, tmp_path / "copy", symlinks=True)
    copy = Lake(tmp_path / "copy")
    assert copy("CountTableRows", "teas").count == 10
    with pytest.raises(PermissionDeniedError, match="outside the storage root"):
        copy("DropTable", "teas")
    with pytest.raises(PermissionDeniedError, match="outside the storage root"):
        copy.commit("teas", copy.stage("teas"))
    with pytest.raises(PermissionDeniedError, match="outside the storage root"):
        copy("CreateTableTag", "teas", tag="mine", version=1)
    adoption = copy.ns.services.ownership.adopt()
    assert (sorted(adoption.relocated), adoption.outside) == (["again", "teas"], [])
    write_everywhere(copy)
    assert copy.open("teas").count_rows() == 1
    original = Lake(home.root)
    assert (original.open("teas").count_rows(), original.open("again").count_rows()) == (10, 5)
    copy.close()
    original.close()


def test_a_table_outside_the_root_is_managed_by_one_catalog(tmp_path: Path) -> None:
    outside = tmp_path / "outside" / "teas.lance"
    lance.write_dataset(rows(10), outside)
    settings: dict[str, Any] = {"allowed_locations": [str(outside.parent)], "manage_registered_tables": True}
    first, second = Lake(tmp_path / "first", **settings), Lake(tmp_path / "second", **settings)
    first("RegisterTable", "teas", location=str(outside))
    with pytest.raises(PermissionDeniedError, match="managed by another catalog"):
        second("RegisterTable", "teas", location=str(outside))
    first.settle()
    shutil.copytree(first.root, tmp_path / "copy", symlinks=True)
    copy = Lake(tmp_path / "copy", **settings)
    with pytest.raises(PermissionDeniedError, match="managed by another catalog"):
        copy("DropTable", "teas")
    first.write("teas", mode="append")
    first("DeregisterTable", "teas")
    assert not (outside / TABLE_MARK).exists()
    second("RegisterTable", "teas", location=str(outside))
    for lake in (first, second, copy):
        lake.close()


def test_one_catalog_of_two_gets_a_root_on_object_storage(s3_root: S3Root, tmp_path: Path) -> None:
    settings = {"root": s3_root.url, "storage_options": s3_root.options}
    first, second = Lake(tmp_path / "first", **settings), Lake(tmp_path / "second", **settings)
    assert (first.ns.services.ownership.check(), second.ns.services.ownership.check()) == (
        None,
        "The storage root belongs to another catalog.",
    )
    first("DeclareTable", "teas")
    with pytest.raises(PermissionDeniedError, match="belongs to another catalog"):
        second("DeclareTable", "more")
    first.close()
    second.close()
