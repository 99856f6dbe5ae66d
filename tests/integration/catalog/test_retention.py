"""Cleanups: which versions and files go, which stay and why, and what readers see."""

from __future__ import annotations

import json
import os
import time
import uuid
import zipfile
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import lance
import pytest
from lance_namespace.errors import TableVersionNotFoundError

from pennon.catalog import removals
from pennon.commits.manifest import parse_manifest
from pennon.core.clock import now_millis
from pennon.core.job_model import JobKind
from pennon.maintenance.auto_cleanup import parse_duration
from pennon.maintenance.needed_versions import UnknownNeedsError
from pennon.storage.layout import manifest_name
from pennon.storage.local import LocalFileIO
from pennon.views import pins
from tests.integration.catalog.cleanups import begin, clean, table_of, values, why
from tests.integration.catalog.lakes import Lake, files_below, rows

if TYPE_CHECKING:
    from pathlib import Path

    from pennon.catalog import Connection
    from pennon.core.job_model import JobSpec
    from tests.integration.catalog.conftest import OpenLake

HOUR = 3600 * 1000


@pytest.fixture
def sqlite_lake(tmp_path: Path) -> Any:
    lake = Lake(tmp_path / "lake")
    yield lake
    lake.close()


def fill(lake: Lake, name: str = "t", versions: int = 6) -> None:
    """Write a table of this many versions, each of which replaces half of the rows."""
    lake.write(name, rows(4))
    for number in range(1, versions):
        if number % 2:
            lake.write(name, rows(4, number * 10), "append")
        else:
            lake.write(name, rows(4, number * 10), "overwrite")


def contents(lake: Lake, name: str = "t") -> dict[int, list[int]]:
    """Return the rows of every version, as read from storage alone."""
    folder = lake.folder(name)
    return {number: values(lance.dataset(folder, version=number)) for number in lake.numbers(name)}


def needed_files(lake: Lake, name: str = "t") -> set[str]:
    """Return the files that the listed versions need."""
    folder, found = lake.folder(name), set()
    for number in lake.numbers(name):
        manifest = parse_manifest((folder / "_versions" / manifest_name(number, "V2")).read_bytes())
        found |= {f"data/{path}" for path in manifest.data_files} | {f"_transactions/{manifest.transaction_file}"}
        found.add(f"_versions/{manifest_name(number, 'V2')}")
    return found


def stored_files(lake: Lake, name: str = "t") -> set[str]:
    found = files_below(lake.folder(name))
    return {path for path in found if not path.startswith("_refs") and not path.endswith("hint.json")}


class TestVersions:
    def test_the_newest_stay_and_no_other_file(self, lake: Lake) -> None:
        fill(lake, versions=8)
        before = contents(lake)
        cleaned = clean(lake, "t", max_versions=3)
        assert (cleaned.versions, lake.numbers("t")) == (5, [6, 7, 8])
        assert contents(lake) == {number: before[number] for number in (6, 7, 8)}
        assert stored_files(lake) == needed_files(lake)
        assert cleaned.files > 0
        assert cleaned.bytes > 0
        with pytest.raises(TableVersionNotFoundError):
            lake("DescribeTableVersion", "t", version=5)
        again = clean(lake, "t", max_versions=3)
        assert (again.versions, again.files) == (0, 0)

    def test_young_versions_stay_however_many(self, sqlite_lake: Lake) -> None:
        fill(sqlite_lake)
        assert clean(sqlite_lake, "t", max_versions=1, min_version_seconds=600).versions == 0
        assert len(sqlite_lake.numbers("t")) == 6

    def test_old_versions_go_however_few(self, sqlite_lake: Lake) -> None:
        fill(sqlite_lake)
        time.sleep(0.2)
        sqlite_lake.write("t", rows(1), "append")
        assert clean(sqlite_lake, "t", max_version_seconds=0.1).versions == 5
        assert sqlite_lake.numbers("t") == [6, 7]  # the sixth was replaced just now

    def test_the_last_version_of_each_period_stays(self, sqlite_lake: Lake) -> None:
        fill(sqlite_lake, versions=8)
        now = now_millis()
        hours = dict(zip(range(1, 9), (9, 9, 8, 8, 8, 2, 0, 0), strict=True))  # how many ago each version was made
        this_hour = now // HOUR * HOUR

        def age(connection: Connection) -> None:
            for number, ago in hours.items():
                made = this_hour - ago * HOUR + number
                connection.run("UPDATE versions SET recorded_at = ? WHERE version = ?", made, number)

        sqlite_lake.ns.services.database.write(age)
        day: dict[str, Any] = {"max_versions": 1, "snapshot_seconds": 3600, "max_version_seconds": 24 * 3600}
        assert "last version of its 3600 seconds" in " ".join(why(sqlite_lake, "t", 5, **day))
        assert why(sqlite_lake, "t", 4, **day) == []
        assert clean(sqlite_lake, "t", **day).versions == 4
        assert sqlite_lake.numbers("t") == [2, 5, 6, 8]
        assert clean(sqlite_lake, "t", **day).versions == 0
        # The fifth was replaced two hours ago, and the second eight.
        assert clean(sqlite_lake, "t", **{**day, "max_version_seconds": 5 * 3600}).versions == 1
        assert sqlite_lake.numbers("t") == [5, 6, 8]

    def test_files_wait_for_readers(self, sqlite_lake: Lake) -> None:
        fill(sqlite_lake)
        reader = lance.dataset(sqlite_lake.folder("t"), version=2)
        before = stored_files(sqlite_lake)
        assert clean(sqlite_lake, "t", max_versions=1, min_file_seconds=600).files == 0
        assert values(reader) == [0, 1, 2, 3, 10, 11, 12, 13]
        assert {path for path in before if path.startswith("data/")} <= stored_files(sqlite_lake)
        cleaned = clean(sqlite_lake, "t", max_versions=1)
        assert (cleaned.versions, cleaned.files > 0) == (0, True)
        assert stored_files(sqlite_lake) == needed_files(sqlite_lake)

    def test_a_kept_version_can_be_restored(self, sqlite_lake: Lake) -> None:
        fill(sqlite_lake)
        before = contents(sqlite_lake)
        clean(sqlite_lake, "t", max_versions=3, min_file_seconds=600)
        sqlite_lake("RestoreTable", "t", version=4)
        clean(sqlite_lake, "t", max_versions=1)
        assert contents(sqlite_lake) == {7: before[4]}

    def test_a_file_that_a_removed_version_needs_longer_stays(self, sqlite_lake: Lake) -> None:
        fill(sqlite_lake)
        clean(sqlite_lake, "t", max_versions=5)  # removes only the first, whose files the second has too
        database = sqlite_lake.ns.services.database
        assert clean(sqlite_lake, "t", max_versions=4, min_file_seconds=600).versions == 1
        kept = sqlite_lake.folder("t") / "data"
        first = {path.name for path in kept.iterdir()}
        clean(sqlite_lake, "t", max_versions=4, min_file_seconds=600)
        assert {path.name for path in kept.iterdir()} == first
        assert len(database.read(lambda c: removals.of_branch(c, table_of(sqlite_lake, "t").id, ""))) == 1


class TestNeeded:
    def test_tags_and_branches_keep_what_they_need(self, lake: Lake) -> None:
        fill(lake, versions=8)
        before = contents(lake)
        lake("CreateTableTag", "t", tag="good", version=2)
        lake("CreateTableBranch", "t", name="dev", from_version=4)
        assert clean(lake, "t", max_versions=1).versions == 5
        assert contents(lake) == {number: before[number] for number in (2, 4, 8)}
        assert why(lake, "t", 2, max_versions=1) == ["The tag 'good' refers to it."]
        assert why(lake, "t", 4, max_versions=1) == ["The branch 'dev' starts from it."]
        assert why(lake, "t", 8, max_versions=1) == ["It is the newest version."]
        lake("DeleteTableTag", "t", tag="good")
        assert why(lake, "t", 2, max_versions=1) == []
        assert clean(lake, "t", max_versions=1).versions == 1

    def test_a_branch_is_cleaned_for_itself(self, lake: Lake) -> None:
        fill(lake)
        lake("CreateTableBranch", "t", name="dev", from_version=4)
        for number in range(3):
            branch = lake.open("t").checkout_version(("dev", None))
            lance.write_dataset(rows(1, 100 + number), branch, mode="append")
        assert clean(lake, "t", max_versions=1).versions == 4
        start = lake.numbers("t", branch="dev")
        assert clean(lake, "t", "dev", max_versions=1).versions == len(start) - 1
        found = lake.open("t").checkout_version(("dev", None))
        assert values(found)[-3:] == [100, 101, 102]
        assert lake.numbers("t", branch="dev") == [start[-1]]

    def test_a_clone_keeps_what_it_reads(self, sqlite_lake: Lake) -> None:
        fill(sqlite_lake)
        location = sqlite_lake("DescribeTable", "t").location
        sqlite_lake.ns.clones.clone_table(("copy",), location, 2, None, shallow=True)
        clean(sqlite_lake, "t", max_versions=1)
        assert sqlite_lake.numbers("t") == [2, 6]
        assert values(sqlite_lake.open("copy")) == [0, 1, 2, 3, 10, 11, 12, 13]
        assert why(sqlite_lake, "t", 2, max_versions=1) == ["The shallow clone 'copy' reads its files."]
        pins.release(sqlite_lake.ns.services.storage_root.folder(location), table_of(sqlite_lake, "copy").id)
        assert "of an unknown version" in why(sqlite_lake, "t", 2)[0]
        with pytest.raises(UnknownNeedsError) as raised:  # who may read the failure of a job may not see the clone
            clean(sqlite_lake, "t", max_versions=1)
        assert "copy" not in str(raised.value)
        assert sqlite_lake.numbers("t") == [2, 6]

    def test_a_job_keeps_what_it_reads(self, sqlite_lake: Lake) -> None:
        fill(sqlite_lake)
        services, table = sqlite_lake.ns.services, table_of(sqlite_lake, "t")
        spec = cast("JobSpec", {"read_version": 2})
        submit = partial(services.queue.submit, kind=JobKind.BACKFILL, table=table, target="c", submitted_by="ada")
        job = services.database.write(lambda connection: submit(connection, spec=spec))
        pins.pin(services.storage_root.folder(table.location), job.id, 3, "", "job")
        assert why(sqlite_lake, "t", 2, max_versions=1) == [f"The job {job.id!r} reads it."]
        assert why(sqlite_lake, "t", 3, max_versions=1) == [f"The job {job.id!r} reads it."]
        services.database.write(lambda connection: services.queue.cancel(connection, job, "ada"))
        assert "has ended" in why(sqlite_lake, "t", 3, max_versions=1)[0]

    def test_the_policy_itself_is_a_reason(self, sqlite_lake: Lake) -> None:
        fill(sqlite_lake)
        (reason,) = why(sqlite_lake, "t", 5, max_versions=3)
        assert reason.startswith("It is one of the newest 3 versions (max_versions), and it was replaced 0 seconds ago")
        (reason,) = why(sqlite_lake, "t", 1, max_versions=3, min_version_seconds=60)
        assert reason == "It was replaced 0 seconds ago, which is less than min_version_seconds (60)."
        assert why(sqlite_lake, "t", 1, max_versions=3) == []
        with pytest.raises(TableVersionNotFoundError):
            why(sqlite_lake, "t", 99)

    def test_with_a_damaged_reference_nothing_goes(self, sqlite_lake: Lake) -> None:
        fill(sqlite_lake)
        tags = sqlite_lake.folder("t") / "_refs" / "tags"
        tags.mkdir(parents=True)
        (tags / "odd.json").write_text("{")
        with pytest.raises(Exception, match=r"tag 'odd' is malformed"):
            clean(sqlite_lake, "t", max_versions=1)
        assert len(sqlite_lake.numbers("t")) == 6

    def test_a_pin_that_is_set_at_the_last_moment_wins(self, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
        fill(lake)
        before = contents(lake)
        original = LocalFileIO.remove_files

        def pinning(self: LocalFileIO, paths: Any) -> None:
            monkeypatch.undo()
            pins.pin(self, "view", 3)
            original(self, paths)

        monkeypatch.setattr(LocalFileIO, "remove_files", pinning)
        assert clean(lake, "t", max_versions=1).versions == 4
        assert contents(lake) == {3: before[3], 6: before[6]}
        assert stored_files(lake) == needed_files(lake)


def test_a_manifest_that_a_lost_writer_staged_keeps_no_files(lake: Lake) -> None:
    fill(lake)
    folder = lake.folder("t") / "_versions"
    lost = folder / f"{manifest_name(2, 'V2')}-{uuid.uuid4()}"
    lost.write_bytes((folder / manifest_name(2, "V2")).read_bytes())
    next_one = folder / f"{manifest_name(7, 'V2')}-{uuid.uuid4()}"  # it may still be committed
    next_one.write_bytes((folder / manifest_name(4, "V2")).read_bytes())
    needed = parse_manifest(next_one.read_bytes()).data_files.keys()
    clean(lake, "t", max_versions=1)
    kept = {path.name for path in (lake.folder("t") / "data").iterdir()}
    assert kept == {path.removeprefix("data/") for path in needed_files(lake) if path.startswith("data/")} | needed


class TestOrphans:
    def test_files_of_writers_that_died_go_after_a_week(self, lake: Lake) -> None:
        fill(lake, versions=2)
        folder = lake.folder("t")
        staged = lake.stage("t").file
        index = folder / "_indices" / str(uuid.uuid4())
        index.mkdir(parents=True)
        lost = [folder / "data" / "lost.lance", folder / "data" / "lost" / "blob", index / "index.idx", staged]
        (folder / "data" / "lost").mkdir()
        for path in [*lost[:3], folder / "notes.txt", folder / "data" / "notes.txt"]:
            path.write_text("x")
        needed = needed_files(lake)
        young = {path for path in stored_files(lake) if path not in needed}
        assert clean(lake, "t").files == 0
        assert young <= stored_files(lake)
        for path in folder.rglob("*"):
            os.utime(path, (time.time() - 700_000,) * 2)
        with_hint = lake.ns.services.database
        with_hint.write(lambda connection: connection.run("UPDATE maintenance_state SET orphans_at = 0"))
        assert clean(lake, "t").files >= 4
        assert stored_files(lake) == needed | {"notes.txt", "data/notes.txt"}
        assert contents(lake)[2]

    def test_files_of_unfinished_work_stay(self, sqlite_lake: Lake) -> None:
        fill(sqlite_lake, versions=2)
        folder = sqlite_lake.folder("t")
        (folder / "data" / "lost.lance").write_text("x")
        os.utime(folder / "data" / "lost.lance", (time.time() - 700_000,) * 2)
        held = begin(sqlite_lake, "t", "", JobKind.BACKFILL)
        services = sqlite_lake.ns.services
        services.queue.release(held.job, {}, paused=True)
        assert clean(sqlite_lake, "t").files == 0
        assert (folder / "data" / "lost.lance").exists()

    def test_an_invalid_manifest_that_a_client_staged_is_ignored(self, sqlite_lake: Lake) -> None:
        fill(sqlite_lake)
        staged = sqlite_lake.stage("t").file
        staged.write_bytes(b"no manifest")
        assert clean(sqlite_lake, "t", max_versions=2).files > 0
        assert staged.exists()

    @pytest.mark.parametrize("place", ["_removed_versions", "_indices", "_deletions", "_transactions", "tree"])
    def test_files_of_another_table_stay_when_a_folder_leads_there(self, sqlite_lake: Lake, place: str) -> None:
        for name in ("t", "other"):
            fill(sqlite_lake, name)
        folder, other = sqlite_lake.folder("t"), sqlite_lake.folder("other")
        if (folder / place).exists():
            (folder / place).rename(folder / "aside")
        (folder / place).symlink_to(other / "data")
        for path in other.rglob("*"):
            os.utime(path, (time.time() - 100_000,) * 2)
        before = files_below(other)
        assert clean(sqlite_lake, "t", max_versions=1).versions > 0
        assert files_below(other) == before

    def test_files_of_another_table_stay_when_an_archive_names_them(
        self, sqlite_lake: Lake, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A worker dies between two steps of a cleanup, and a client replaces what the next one continues from."""
        for name in ("t", "other"):
            fill(sqlite_lake, name)
        folder, other = sqlite_lake.folder("t"), sqlite_lake.folder("other")
        with monkeypatch.context() as patch:
            patch.setattr(LocalFileIO, "remove_files", _die)
            with pytest.raises(KeyboardInterrupt):
                clean(sqlite_lake, "t", max_versions=2)
        (archive,) = (folder / "_removed_versions").iterdir()
        changed = archive.with_suffix(".new")
        with zipfile.ZipFile(archive) as old, zipfile.ZipFile(changed, "w") as new:
            for name in old.namelist():
                text = old.read(name)
                if name == "versions.json":
                    records = json.loads(text)
                    for record in records:
                        record["manifest"] = f"../../{other.name}/_versions/{record['manifest']}"
                    text = json.dumps(records).encode()
                new.writestr(name, text)
        changed.rename(archive)
        before = files_below(other)
        clean(sqlite_lake, "t", max_versions=2)
        assert files_below(other) == before
        assert contents(sqlite_lake, "other")
        assert contents(sqlite_lake)


def _die(*_: object) -> None:
    raise KeyboardInterrupt


class TestAutoCleanup:
    def test_its_limits_become_those_of_the_policy(self, lake: Lake) -> None:
        fill(lake)
        lake.open("t").update_config(
            {"lance.auto_cleanup.interval": "1000", "lance.auto_cleanup.older_than": "2days 1h", "other": "x"}
        )
        clean(lake, "t")
        assert lake.open("t").config() == {"other": "x"}
        assert table_of(lake, "t").properties["pennon.maintenance.max_version_seconds"] == "176400"
        assert len(lake.numbers("t")) == 8

    def test_a_branch_that_inherited_it_loses_it_too(self, sqlite_lake: Lake) -> None:
        fill(sqlite_lake)
        sqlite_lake.open("t").update_config({"lance.auto_cleanup.interval": "1", "lance.auto_cleanup.older_than": "2d"})
        sqlite_lake("CreateTableBranch", "t", name="dev")
        branch = sqlite_lake.open("t").checkout_version(("dev", None))
        lance.write_dataset(rows(1, 100), branch, mode="append")
        clean(sqlite_lake, "t", "dev")
        assert sqlite_lake.open("t").checkout_version(("dev", None)).config() == {}
        assert table_of(sqlite_lake, "t").properties["pennon.maintenance.max_version_seconds"] == "172800"

    @pytest.mark.parametrize(
        ("text", "seconds"),
        [("90s", 90), ("1h 30m", 5400), ("14days", 14 * 86400), ("5", 5), ("", None), ("x", None), ("1h x", None)],
    )
    def test_durations_are_those_of_lance(self, text: str, seconds: float | None) -> None:
        assert parse_duration(text) == seconds


def test_a_removed_version_is_not_found_again_on_storage(open_lake: OpenLake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = open_lake()
    fill(lake)
    monkeypatch.setattr(LocalFileIO, "remove_files", lambda *_: None)  # as if the process died before
    clean(lake, "t", max_versions=2, min_file_seconds=600)
    assert (lake.folder("t") / "_versions" / manifest_name(1, "V2")).exists()
    with pytest.raises(TableVersionNotFoundError):
        lake("DescribeTableVersion", "t", version=1)
    assert lake.numbers("t") == [5, 6]
