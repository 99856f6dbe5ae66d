"""After a power cut the disk holds what was flushed, and nothing else: every acknowledged write must be in that."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance_namespace as ln
import lancedb
import pytest

from pennon.catalog import unflushed_files
from pennon.commits import deferred_flush
from pennon.commits.manifest import parse_manifest
from pennon.storage.layout import manifest_name
from tests.integration.catalog.lakes import Lake, rows
from tests.integration.data.tables import stream_of
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator


class Disk:
    """Knows which content and which names were flushed, by watching the calls that do so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._content: dict[int, bytes] = {}
        self._names: dict[str, dict[str, int]] = {}
        self._flush = os.fsync
        monkeypatch.setattr(os, "fsync", self._fsync)

    def _fsync(self, opened: int) -> None:
        self._flush(opened)
        status, path = os.fstat(opened), f"/proc/self/fd/{opened}"
        if stat.S_ISDIR(status.st_mode):
            place = os.path.realpath(path)
            self._names[place] = {entry.name: entry.inode() for entry in os.scandir(place)}
        else:
            self._content[status.st_ino] = Path(path).read_bytes()

    def after_power_cut(self, place: Path, target: Path) -> None:
        """Make the folder that a disk would show after a power cut: what was not flushed is empty or not there."""
        target.mkdir()
        for name, inode in self._names.get(os.path.realpath(place), {}).items():
            found = place / name
            if found.is_dir():
                self.after_power_cut(found, target / name)
            else:
                (target / name).write_bytes(self._content.get(inode, b""))


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    opened = Lake(tmp_path / "lake")
    yield opened
    opened.close()


def served(lake: Lake, operation: str, identifier: str, **fields: Any) -> Any:
    """Run an operation that has a body of rows, as the server does."""
    request = getattr(ln, f"{operation}TableRequest")(id=[identifier], **fields)
    source = stream_of(rows(3, start=100))
    if operation == "Create":
        return lake.ns.create_table(request, source)
    return lake.ns.insert_into_table(request, source)


def act(lake: Lake) -> None:
    """Write in every way that a client, or the server for one, can."""
    served(lake, "Create", "created")
    served(lake, "InsertInto", "created")
    served(lake, "InsertInto", "created", mode="overwrite")
    lake.write("committed", rows(50))
    dataset = lake.open("committed")
    dataset.delete("number < 10")
    dataset.create_scalar_index("number", "BTREE")
    lake.write("committed", rows(5), mode="append")
    lancedb.connect(lake.root).create_table("beside", rows(4))
    lake("DeleteFromTable", "beside", predicate="number = 1")
    lake("CreateTableTag", "committed", tag="kept", version=1)


def contents(lake: Lake) -> dict[str, Any]:
    """Return what readers see."""
    tables = {name: sorted(lake.open(name).to_table()["number"].to_pylist()) for name in ("created", "committed")}
    indices = [index.name for index in lake.open("committed").describe_indices()]
    found = lake.open("committed").to_table(filter="number = 20")
    return {
        **tables,
        "indices": indices,
        "found": found.num_rows,
        "tags": list(lake("ListTableTags", "committed").tags),
    }


def test_acknowledged_writes_survive_a_power_cut(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)
    act(lake)
    expected = contents(lake)
    lake.settle()
    disk.after_power_cut(lake.root, tmp_path / "after")
    shutil.copytree(lake.root / ".pennon", tmp_path / "after" / ".pennon", dirs_exist_ok=True)
    revived = Lake(tmp_path / "after")
    try:
        assert contents(revived) == expected
        revived.write("created", rows(1), mode="append")
        # Of a table that LanceDB wrote, the version that Pennon added is there; the rest was not Pennon's to flush.
        beside = revived.root / "beside.lance"
        manifest = parse_manifest((beside / "_versions" / manifest_name(2, "V2")).read_bytes())
        assert [(beside / "_deletions" / name).stat().st_size > 0 for name in manifest.deletion_files] == [True]
    finally:
        revived.close()


def test_small_appends_survive_a_power_cut_before_their_files_are_flushed(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deferred_flush, "_FLUSH_SECONDS", 3600.0)
    disk = Disk(monkeypatch)
    served(lake, "Create", "kept")
    served(lake, "Create", "dropped")
    for _ in range(5):
        served(lake, "InsertInto", "kept")
        served(lake, "InsertInto", "dropped")
    expected = sorted(lake.open("kept").to_table()["number"].to_pylist())
    lake("DropTable", "dropped")
    disk.after_power_cut(lake.root, tmp_path / "after")
    shutil.copytree(lake.root / ".pennon", tmp_path / "after" / ".pennon", dirs_exist_ok=True)
    left = list((tmp_path / "after" / "kept.lance" / "data").iterdir())
    assert len(left) == 1  # of the first version; the appends are in the catalog alone
    revived = Lake(tmp_path / "after")
    try:
        assert sorted(revived.open("kept").to_table()["number"].to_pylist()) == expected
        assert [revived.open("kept", version=number).count_rows() for number in range(1, 7)] == [3, 6, 9, 12, 15, 18]
        assert not (revived.root / "dropped.lance" / "data").exists()
        assert revived.ns.services.database.read(unflushed_files.listed) == []
    finally:
        revived.close()


def test_restored_files_replace_nothing_of_a_table_created_since(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deferred_flush, "_FLUSH_SECONDS", 3600.0)
    lake.close()
    reusing = Lake(lake.root, isolate_recreated_tables=False)
    for _ in range(2):
        served(reusing, "Create", "again")
        for _ in range(3):
            served(reusing, "InsertInto", "again")
        last = reusing.open("again").to_table().num_rows
        reusing("DropTable", "again")
    served(reusing, "Create", "again")
    served(reusing, "InsertInto", "again")
    shutil.copytree(reusing.root, tmp_path / "after")
    reusing.close()
    revived = Lake(tmp_path / "after", isolate_recreated_tables=False)
    try:
        found = revived.open("again")
        assert (last, found.version, found.count_rows()) == (12, 2, 6)
        assert revived.ns.services.database.read(unflushed_files.listed) == []
    finally:
        revived.close()


def test_flushed_files_are_not_kept_in_the_catalog(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deferred_flush, "_FLUSH_SECONDS", 0.01)
    served(lake, "Create", "created")
    served(lake, "InsertInto", "created")
    wait_until(lambda: lake.ns.services.database.read(unflushed_files.listed) == [])


def test_nothing_is_flushed_where_that_is_not_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake(tmp_path / "lake", durable_writes=False)
    flushed: list[int] = []
    monkeypatch.setattr(os, "fsync", flushed.append)
    served(lake, "Create", "created")
    lake.close()
    assert flushed == []
