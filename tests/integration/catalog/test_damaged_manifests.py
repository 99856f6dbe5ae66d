"""Manifests that a power cut or a failing disk has damaged: the server recovers what it can, and goes on."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pennon.catalog import lost_versions, versions
from pennon.storage.layout import manifest_name
from tests.integration.catalog.lakes import Lake
from tests.integration.data.tables import DataTable, error, rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.rest import RestClient

Damage = Callable[[Path], object]

DAMAGES: dict[str, Damage] = {
    "missing": lambda file: file.unlink(),
    "empty": lambda file: file.write_bytes(b""),
    "truncated": lambda file: os.truncate(file, file.stat().st_size // 2),
    "garbage": lambda file: file.write_bytes(os.urandom(file.stat().st_size)),
}


@pytest.fixture(params=DAMAGES)
def damage(request: pytest.FixtureRequest) -> Damage:
    """A way to damage a file."""
    return DAMAGES[request.param]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    opened = Lake(tmp_path / "lake")
    for _ in range(3):
        opened.write("teas", mode="append" if (opened.root / "teas.lance").exists() else "create")
    opened.settle()
    yield opened
    opened.close()


def manifest(lake: Lake, version: int) -> Path:
    return lake.root / "teas.lance" / "_versions" / manifest_name(version, "V2")


def lost(lake: Lake) -> list[tuple[str, int]]:
    found = lake.ns.services.database.read(lambda connection: lost_versions.listing(connection, 10))
    return [(one.branch, one.version) for one in found]


def reopened(lake: Lake) -> Lake:
    """Return the same lake in a process that has not read anything yet."""
    lake.close()
    return Lake(lake.root)


def test_readers_fall_back_and_writers_go_on(lake: Lake, damage: Damage, caplog: pytest.LogCaptureFixture) -> None:
    damage(manifest(lake, 3))
    lake = reopened(lake)
    assert lake("CountTableRows", "teas").count == 4
    assert "version 3" in caplog.text
    assert "lost" in caplog.text
    assert (lake.latest("teas"), lake.numbers("teas"), lost(lake)) == (2, [1, 2], [("", 3)])
    lake.write("teas", mode="append")
    assert (lake.latest("teas"), lake.open("teas").count_rows()) == (3, 6)
    lake.close()


def test_a_staged_copy_is_put_back(lake: Lake, damage: Damage) -> None:
    table = lake.ns.find_table(("teas",))
    row = lake.ns.services.database.read(lambda connection: versions.latest(connection, table.id, ""))
    assert row is not None
    assert row.staged is not None
    shutil.copy(manifest(lake, 3), manifest(lake, 3).with_name(row.staged))
    damage(manifest(lake, 3))
    lake = reopened(lake)
    assert lake("CountTableRows", "teas").count == 6
    assert (lake.numbers("teas"), lost(lake)) == ([1, 2, 3], [])
    lake.close()


def test_nothing_is_given_up_where_no_version_can_be_read(lake: Lake) -> None:
    shutil.move(lake.root / "teas.lance", lake.root / "gone")
    lake = reopened(lake)
    with pytest.raises(Exception, match=r"version|data"):
        lake("CountTableRows", "teas")
    shutil.move(lake.root / "gone", lake.root / "teas.lance")
    assert (lake.open("teas").count_rows(), lost(lake)) == (6, [])
    lake.close()


def test_a_running_server_heals_a_table(http: RestClient, damage: Damage) -> None:
    table = DataTable(http).create(rows(10))
    table.put("insert", rows(5))
    damage(Path(table.do("describe")["location"], "_versions", manifest_name(2, "V2")))
    assert table.count() in {10, 15}  # 15 where the server still has what it read before
    table.put("insert", rows(1))
    assert table.count() in {11, 16}
    table.do("restore", {"version": 1})
    assert table.count() == 10


@pytest.mark.parametrize("kept", [0, 1, 15, 16, 20, 0.5, -1])
def test_a_version_whose_manifest_ends_early_is_a_typed_error(http: RestClient, kept: float) -> None:
    """Not one of unavailable storage, after which clients retry."""
    table = DataTable(http).create(rows(10))
    table.put("insert", rows(5))
    location = table.do("describe")["location"]
    file = Path(location, "_versions", manifest_name(1, "V2"))
    size = file.stat().st_size
    os.truncate(file, int(size * kept) if isinstance(kept, float) else kept % size)
    for verb, body in (
        ("query", {"k": 1, "version": 1}),
        ("count_rows", {"version": 1}),
        ("restore", {"version": 1}),
    ):
        assert error(table.ask(verb, body)) == (404, 11), verb
    assert table.count() == 15
