"""What else happens to views and their sources: other columns, indexes, clean-ups, other versions, wishes to stop."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from lance_namespace import DropTableRequest

import pennon
from pennon.catalog import views
from pennon.views import pins
from tests.integration.backfill.calls import CallLog, note
from tests.integration.views.refresh.refresh_harness import RefreshHarness
from tests.support.jobs import change_job
from tests.support.waiting import wait_until


def rows(start: int, stop: int) -> pa.Table:
    return pa.table({"id": pa.array(range(start, stop)), "a": pa.array([i % 7 for i in range(start, stop)])})


def doubled(harness: RefreshHarness, name: str, **options: Any) -> str:
    harness.create(name, rows(0, 40))
    harness.view(f"{name}_view", {"source": name, "columns": {"id": "id", "twice": "a * 2"}}, **options)
    return f"{name}_view"


def test_indexes_and_columns_added_to_a_view_survive(harness: RefreshHarness) -> None:
    view = doubled(harness, "extended")
    harness.refresh(view)
    harness.change(view, lambda dataset: dataset.create_scalar_index("id", "BTREE"))
    harness.change(view, lambda dataset: dataset.add_columns({"more": "twice + 1"}))
    harness.append("extended", rows(40, 42))
    harness.change("extended", lambda dataset: dataset.update({"a": "6"}, where="id = 3"))
    assert harness.refresh(view).result["mode"] == "incremental"
    dataset = harness.dataset(view)
    assert [index.name for index in dataset.describe_indices()] == ["id_idx"]
    assert dataset.to_table(filter="id = 41").to_pylist()[0]["twice"] == 41 % 7 * 2
    found = {row["id"]: row["more"] for row in harness.rows(view, "id", "more")}
    assert found[2] == 2 * 2 + 1
    assert found[3] is None  # rewritten, so it waits for a backfill
    assert harness.refresh(view, full=True).result["mode"] == "rebuild"
    assert harness.dataset(view).schema.names == ["__source_row_id", "id", "twice", "more"]
    assert [index.name for index in harness.dataset(view).describe_indices()] == ["id_idx"]


def test_versions_that_a_view_needs_survive_a_clean_up(harness: RefreshHarness) -> None:
    view = doubled(harness, "cleaned")
    first = harness.refresh(view).result["source_version"]
    harness.append("cleaned", rows(40, 45))

    def clean(dataset: Any) -> None:
        dataset.cleanup_old_versions(timedelta(0), error_if_tagged_old_versions=False)

    harness.change("cleaned", clean)
    folder = harness.services.storage_root.folder(harness.table("cleaned").location)
    assert [pin.version for pin in pins.pins(folder)] == [first]
    done = harness.refresh(view).result
    assert (done["mode"], done["rows_added"]) == ("incremental", 5)
    assert [pin.version for pin in pins.pins(folder)] == [done["source_version"]]


def test_failed_refresh_keeps_only_the_version_that_the_view_holds(harness: RefreshHarness) -> None:
    @pennon.chunker
    def never(a: int) -> Iterator[int]:
        if a == 99:
            raise ValueError("no")
        yield a

    harness.create("kept", rows(0, 5))
    harness.view("kept_view", {"source": "kept", "columns": ["id"]}, never)
    held = harness.refresh("kept_view").result["source_version"]
    harness.change("kept", lambda dataset: dataset.update({"a": "99"}, where="id = 1"))
    assert harness.refresh("kept_view").failure["message"].endswith("ValueError: no")
    folder = harness.services.storage_root.folder(harness.table("kept").location)
    assert [pin.version for pin in pins.pins(folder)] == [held]


def test_a_removed_source_version_causes_a_rebuild(harness: RefreshHarness) -> None:
    view = doubled(harness, "gone")
    harness.refresh(view)
    folder = harness.services.storage_root.folder(harness.table("gone").location)
    pins.release(folder, harness.table(view).id)
    harness.append("gone", rows(40, 45))
    harness.change("gone", lambda dataset: dataset.cleanup_old_versions(timedelta(0)))
    done = harness.refresh(view).result
    assert done["mode"] == "rebuild"
    assert "is gone" in done["reason"]
    assert len(harness.rows(view)) == 45


def test_older_version_of_the_source_can_be_asked_for(harness: RefreshHarness) -> None:
    view = doubled(harness, "older")
    version = harness.version("older")
    harness.append("older", rows(40, 45))
    assert harness.refresh(view).result["rows_written"] == 45
    done = harness.refresh(view, src_version=version).result
    assert (done["mode"], done["source_version"], len(harness.rows(view))) == ("rebuild", version, 40)
    newest = harness.refresh(view).result
    assert (newest["mode"], newest["rows_added"]) == ("incremental", 5)


@pytest.mark.parametrize(
    ("policy", "outcome"), [("ignore_new", "no_op"), ("rebuild", "rebuild"), ("fail", "TableSchemaValidationError")]
)
def test_new_columns_do_what_the_view_was_made_for(harness: RefreshHarness, policy: str, outcome: str) -> None:
    view = doubled(harness, f"grown_{policy}", on_schema_change=policy)
    harness.refresh(view)
    harness.change(f"grown_{policy}", lambda dataset: dataset.add_columns(pa.field("new", pa.int32())))
    ended = harness.refresh(view)
    if policy == "fail":
        assert ended.failure["type"] == outcome
        assert "'new'" in ended.failure["message"]
        assert harness.catalogued(view).failed_job == ended.job.id
    else:
        assert ended.result["mode"] == outcome


def test_new_columns_become_columns_of_a_view_that_shows_all(harness: RefreshHarness) -> None:
    harness.create("widening", rows(0, 5))
    harness.view("wide", {"source": "widening"}, on_schema_change="rebuild")
    harness.refresh("wide")
    harness.change("widening", lambda dataset: dataset.add_columns({"new": "id * 10"}))
    done = harness.refresh("wide").result
    assert (done["mode"], "'new'" in done["reason"]) == ("rebuild", True)
    assert harness.rows("wide") == harness.rows("widening")
    assert [row["new"] for row in harness.rows("wide", "id", "new")] == [0, 10, 20, 30, 40]
    harness.append("widening", pa.table({"id": [9], "new": [7]}))
    assert harness.refresh("wide").result["mode"] == "incremental"
    assert harness.rows("wide") == harness.rows("widening")


@pytest.mark.parametrize(
    ("name", "query", "mode"),
    [
        ("row_by_row", "SELECT *, a + 1 AS next FROM {} AS t WHERE id < 90", "incremental"),
        ("sorted", "SELECT t.* FROM {} AS t JOIN (SELECT max(id) AS most FROM {}) ON id <= most", "rebuild"),
        ("both", "SELECT * FROM {} UNION ALL SELECT * FROM {}", "rebuild"),
    ],
)
def test_new_columns_become_columns_of_sql_with_a_star(
    harness: RefreshHarness, name: str, query: str, mode: str
) -> None:
    source, view = f"starred_{name}", f"star_{name}"
    harness.create(source, rows(0, 5))
    harness.view(view, query.format(source, source), on_schema_change="rebuild")
    harness.refresh(view)
    columns = harness.dataset(view).schema.names
    harness.change(source, lambda dataset: dataset.add_columns({"new": "id * 10"}))
    done = harness.refresh(view).result
    assert (done["mode"], "'new'" in done["reason"]) == ("rebuild", True)
    assert harness.dataset(view).schema.names == [*columns, "new"]
    assert {(row["id"], row["new"]) for row in harness.rows(view)} == {(n, n * 10) for n in range(5)}
    harness.append(source, pa.table({"id": [9], "a": [1], "new": [7]}))
    assert harness.refresh(view).result["mode"] == mode
    assert (9, 7) in {(row["id"], row["new"]) for row in harness.rows(view)}
    assert harness.refresh(view).result["mode"] == "no_op"


@pytest.mark.parametrize(("policy", "mode"), [("ignore_new", "no_op"), ("fail", None)])
def test_star_of_sql_stands_for_the_columns_that_there_were_otherwise(
    harness: RefreshHarness, policy: str, mode: str | None
) -> None:
    source, view = f"steady_{policy}", f"steady_{policy}_view"
    harness.create(source, rows(0, 5))
    harness.view(view, f"SELECT * FROM {source}", on_schema_change=policy)
    harness.refresh(view)
    harness.change(source, lambda dataset: dataset.add_columns({"new": "id * 10"}))
    ended = harness.refresh(view)
    assert (ended.result["mode"] if ended.job.result else None) == mode
    assert "new" not in harness.dataset(view).schema.names
    if mode is None:
        assert ended.failure["type"] == "TableSchemaValidationError"


def test_new_columns_are_computed_when_they_are_followed_only_later(harness: RefreshHarness) -> None:
    harness.create("late", rows(0, 5))
    harness.view("late_view", "SELECT * FROM late")
    harness.refresh("late_view")
    harness.change("late", lambda dataset: dataset.add_columns({"new": "id * 10"}))
    assert harness.refresh("late_view").result["mode"] == "no_op"
    harness.configure("late_view", on_schema_change="rebuild")
    assert harness.refresh("late_view").result["mode"] == "rebuild"
    assert harness.rows("late_view") == harness.rows("late")


def test_new_column_of_blobs_fails_the_refresh(harness: RefreshHarness) -> None:
    harness.create("filmed", rows(0, 2))
    harness.view("filmed_view", "SELECT * FROM filmed", on_schema_change="rebuild")
    harness.refresh("filmed_view")
    blob = pa.field("film", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    harness.change("filmed", lambda dataset: dataset.add_columns(blob))
    assert "'film' holds blobs" in harness.refresh("filmed_view").failure["message"]
    assert "film" not in harness.dataset("filmed_view").schema.names


def test_new_column_that_sql_has_already_fails_the_refresh(harness: RefreshHarness) -> None:
    harness.create("doubling", rows(0, 5))
    harness.view("doubling_view", "SELECT *, a + 1 AS new FROM doubling", on_schema_change="rebuild")
    harness.refresh("doubling_view")
    harness.change("doubling", lambda dataset: dataset.add_columns({"new": "id * 10"}))
    failed = harness.refresh("doubling_view").failure
    assert (failed["type"], "two columns named 'new'" in failed["message"]) == ("TableSchemaValidationError", True)
    assert harness.dataset("doubling_view").schema.names == ["__source_row_id", "id", "a", "new"]


def test_new_column_whose_name_the_view_has_for_another_fails_the_refresh(harness: RefreshHarness) -> None:
    harness.create("clashing", rows(0, 5))
    harness.view("clash", {"source": "clashing"}, on_schema_change="rebuild")
    harness.refresh("clash")
    harness.change("clash", lambda dataset: dataset.add_columns(pa.field("new", pa.int32())))
    harness.change("clashing", lambda dataset: dataset.add_columns({"new": "id * 10"}))
    failed = harness.refresh("clash").failure
    assert (failed["type"], "'new'" in failed["message"]) == ("TableSchemaValidationError", True)
    assert len(harness.rows("clash")) == 5


def test_column_that_went_fails_the_refresh_and_names_it(harness: RefreshHarness) -> None:
    view = doubled(harness, "lacking")
    harness.refresh(view)
    harness.change("lacking", lambda dataset: dataset.drop_columns(["a"]))
    failed = harness.refresh(view).failure
    assert failed["type"] == "TableColumnNotFoundError"
    assert "'a'" in failed["message"]
    assert len(harness.rows(view)) == 40


def test_cascade_refreshes_what_a_view_reads_first(harness: RefreshHarness) -> None:
    view = doubled(harness, "cascaded")
    harness.view("top", {"source": view, "columns": {"id": "id", "thrice": "twice + twice / 2"}, "where": "twice > 0"})
    harness.refresh(view)
    harness.refresh("top")
    harness.append("cascaded", rows(40, 43))
    done = harness.refresh("top", before=[harness.table(view).id]).result
    assert (done["mode"], done["source_version"]) == ("incremental", harness.version(view))
    wanted = [{"id": i, "thrice": i % 7 * 3} for i in range(43) if i % 7]
    assert harness.rows("top") == sorted(wanted, key=repr)


def test_cascade_brings_all_views_to_the_same_version_of_a_table(
    harness: RefreshHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pennon.pipeline.refresh.commits import ViewCommitter

    harness.create("forked", rows(0, 10))
    for side in ("one", "other"):
        harness.view(f"forked_{side}", {"source": "forked", "columns": {"id": "id", side: "a"}})
    harness.view("joined", "SELECT id, one, other FROM forked_one FULL JOIN forked_other USING (id)")
    plain = ViewCommitter.commit

    def commit_while_others_write(committer: Any, *given: Any) -> Any:
        done = plain(committer, *given)
        first = harness.dataset("forked").count_rows()
        harness.append("forked", rows(first, first + 1))
        return done

    monkeypatch.setattr(ViewCommitter, "commit", commit_while_others_write)
    harness.refresh("joined", before=[harness.table(f"forked_{side}").id for side in ("one", "other")])
    for side in ("one", "other"):
        watermark = harness.catalogued(f"forked_{side}").watermark
        assert watermark is not None
        assert dict(watermark.versions) == {harness.table("forked").id: 1}
    wanted = [{"id": i, "one": i % 7, "other": i % 7} for i in range(10)]
    assert harness.rows("joined") == sorted(wanted, key=repr)


def test_dropping_the_view_ends_its_refresh(harness: RefreshHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    from pennon.pipeline.refresh.computation import Computation

    view = doubled(harness, "short_lived")
    folder = harness.services.storage_root.folder(harness.table(view).location)
    plain = Computation.run

    def run_and_drop(computation: Any) -> Any:
        done = plain(computation)
        harness.namespace.drop_table(DropTableRequest(id=[view]))
        return done

    monkeypatch.setattr(Computation, "run", run_and_drop)
    assert harness.refresh(view).failure["message"] == f"The view {view!r} was dropped."
    assert list(folder.files("")) == []


def test_failed_rows_are_null_and_counted(harness: RefreshHarness) -> None:
    @pennon.udf(error_policy=pennon.ErrorPolicy.skip())
    def share(a: int) -> float:
        return 1 / a

    harness.create("failing", rows(0, 14))
    packed = base64.b64encode(share.pack()).decode()
    function = {"udf": packed, "inputs": ["a"], "outputs": {"share": ""}}
    harness.view("failing_view", {"source": "failing", "columns": ["id"], "functions": [function]})
    done = harness.refresh("failing_view").result
    assert (done["rows_written"], done["rows_failed"]) == (14, 2)
    assert [row["share"] for row in harness.rows("failing_view") if row["id"] in (0, 7)] == [None, None]


def test_cancelled_refresh_leaves_the_view_and_no_files(harness: RefreshHarness, log: CallLog) -> None:
    path = log.path

    @pennon.chunker
    def slow(id: int) -> Iterator[int]:  # noqa: A002
        time.sleep(0.2)
        note(path, id)
        yield id

    harness.create("cancelled", rows(0, 200))
    harness.view("cancelled_view", {"source": "cancelled", "columns": ["a"]}, slow)
    job = harness.submit("cancelled_view")
    thread = threading.Thread(target=harness.run_job, args=(job,))
    thread.start()
    wait_until(log.counts, "a first row")
    change_job(harness.services.queue, "cancel", job.id)
    thread.join()
    ended = harness.services.queue.find(job.id)
    assert ended is not None
    assert ended.state == "cancelled"
    assert harness.version("cancelled_view") == 1
    assert harness.catalogued("cancelled_view").stale_reason is None
    # Spark ends Python workers a little later, which then remove their files.
    wait_until(lambda: not harness.data_files("cancelled_view"), "no file is left")


def test_a_refresh_overtaken_by_another_plans_again(harness: RefreshHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    view = doubled(harness, "raced")
    harness.refresh(view)
    harness.append("raced", rows(40, 50))
    plain = views.advance
    raced: list[str] = []

    def overtaken(connection: Any, view_id: str, *rest: Any) -> bool:
        if not raced:
            raced.append(view_id)
            return False
        return plain(connection, view_id, *rest)

    monkeypatch.setattr(views, "advance", overtaken)
    done = harness.refresh(view).result
    assert (done["mode"], done["rows_added"], len(harness.rows(view))) == ("incremental", 10, 50)
    assert harness.data_files(view) == harness.named_files(view)


def test_compacting_the_view_during_a_refresh_only_repeats_the_commit(
    harness: RefreshHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pennon.pipeline.refresh.commits import ViewCommitter

    view = doubled(harness, "squeezed")
    harness.refresh(view, max_rows_per_fragment=10)
    harness.change("squeezed", lambda dataset: dataset.update({"a": "5"}, where="id % 10 = 1"))
    plain = ViewCommitter._build
    done: list[bool] = []

    def squeeze(committer: Any, dataset: Any, new: Any) -> Any:
        operation = plain(committer, dataset, new)
        if not done:
            done.append(True)
            import lance

            lance.dataset(dataset.uri).optimize.compact_files()  # around Pennon, which finds out at its commit
        return operation

    monkeypatch.setattr(ViewCommitter, "_build", squeeze)
    result = harness.refresh(view).result
    assert (result["mode"], result["rows_updated"]) == ("incremental", 4)
    assert sorted(row["id"] for row in harness.rows(view)) == list(range(40))
    assert {row["twice"] for row in harness.rows(view) if row["id"] % 10 == 1} == {10}
