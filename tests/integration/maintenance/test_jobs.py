"""Maintenance jobs: what they do to a table, and how they stop, give way and fail."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import Any

import lance
import pytest
from lance_namespace import CreateNamespaceRequest

from pennon.catalog import index_builds, versions
from pennon.catalog.index_builds import Build
from pennon.core.clock import now_millis
from pennon.core.job_model import JobKind, JobState
from pennon.maintenance import compaction, retention
from pennon.pipeline.maintenance.compaction_step import CompactionStep
from tests.integration.maintenance.maintenance_harness import MaintenanceHarness, rows


def events(harness: MaintenanceHarness, job: Any, kind: str) -> list[Any]:
    return harness.services.queue.events_of_kind(job, kind)


def fragmented(harness: MaintenanceHarness, name: str) -> None:
    """Create a table of many small fragments."""
    harness.create(name, rows(0, 100))
    for start in range(100, 112):
        harness.append(name, rows(start, start + 1))


def run_on_thread(harness: MaintenanceHarness, job: Any) -> tuple[threading.Thread, list[Any]]:
    ended: list[Any] = []
    thread = threading.Thread(target=lambda: ended.append(harness.run_job(job)))
    thread.start()
    return thread, ended


def test_small_fragments_are_merged_and_reported(harness: MaintenanceHarness) -> None:
    fragmented(harness, "merged")
    job = harness.run_job(harness.submit("merged", JobKind.COMPACT, reasons=[]))
    assert job.state == "done"
    assert job.result is not None
    assert harness.fragments("merged") == [112]
    assert (job.result["fragments_removed"], job.result["fragments_added"]) == (13, 1)  # type: ignore[typeddict-item]
    assert job.counters["rows_committed"] == job.counters["rows_planned"] == 112
    assert job.counters["fragments_committed"] == job.counters["fragments_planned"] == 13
    assert harness.dataset("merged").to_table(columns=["id"])["id"].to_pylist() == list(range(112))
    transactions = harness.services.database.read(
        lambda c: c.all("SELECT properties FROM transactions WHERE operation = 'Compact'")
    )
    assert any(job.id in text for (text,) in transactions)


def test_a_branch_is_compacted_without_its_table(harness: MaintenanceHarness) -> None:
    fragmented(harness, "branched")
    harness.change("branched", lambda dataset: dataset.create_branch("dev"))
    for start in range(200, 206):
        harness.append("branched", rows(start, start + 1), branch="dev")
    harness.run("branched", JobKind.COMPACT, branch="dev", reasons=[])
    assert len(harness.fragments("branched", "dev")) == 1
    assert len(harness.fragments("branched")) == 13
    found = harness.dataset("branched", "dev").to_table(columns=["id"])["id"].to_pylist()
    assert sorted(found) == [*range(112), *range(200, 206)]


def test_a_group_that_another_commit_changed_is_lost_and_its_files_are_removed(
    harness: MaintenanceHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.create("raced", rows(0, 1000))
    for start in range(1000, 7000, 1000):
        harness.append("raced", rows(start, start + 1000))
    execute, left = compaction.execute, [1]

    def execute_and_delete(task: str, dataset: Any) -> str:
        result = execute(task, dataset)
        if left:
            left.pop()
            harness.delete("raced", "id = 3")
        return result

    monkeypatch.setattr(compaction, "execute", execute_and_delete)
    result = harness.run("raced", JobKind.COMPACT, reasons=[])
    assert result["groups_lost"] == 1
    assert result["fragments_removed"] > 0, "the other groups were committed"
    assert harness.data_files("raced") == harness.named_files("raced")
    assert harness.dataset("raced").count_rows() == 6999


@pytest.mark.parametrize("verb", ["cancel", "pause"])
def test_a_stop_request_ends_it_between_groups(
    harness: MaintenanceHarness, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    name = f"stopped_{verb}"
    fragmented(harness, name)
    job = harness.submit(name, JobKind.COMPACT, reasons=[])
    queue = harness.services.queue
    remember = CompactionStep._remember

    def remember_and_stop(step: CompactionStep, result: Any) -> None:
        remember(step, result)
        current = queue.find(job.id)
        harness.services.database.write(lambda connection: getattr(queue, verb)(connection, current, "test"))

    monkeypatch.setattr(CompactionStep, "_remember", remember_and_stop)
    ended = harness.run_job(job)
    assert ended.state == {"cancel": "cancelled", "pause": "paused"}[verb]
    assert len(harness.fragments(name)) == 13
    assert harness.data_files(name) == harness.named_files(name)
    if verb == "pause":
        monkeypatch.undo()
        harness.services.database.write(lambda connection: queue.resume(connection, ended, "test"))
        assert harness.run_job(job).state == "done"
        assert harness.fragments(name) == [112]


def test_it_gives_way_to_a_job_of_users_and_continues_later(
    harness: MaintenanceHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.create("shared", rows(0, 1000))
    for start in range(1000, 7000, 1000):
        harness.append("shared", rows(start, start + 1000))
    job, queue = harness.submit("shared", JobKind.COMPACT, reasons=[]), harness.services.queue
    remember, submitted = CompactionStep._remember, list[Any]()

    def remember_and_submit(step: CompactionStep, result: Any) -> None:
        remember(step, result)
        if not submitted:
            table = harness.table("shared")
            submitted.append(
                harness.services.database.write(
                    lambda c: queue.submit(c, JobKind.BACKFILL, table, {}, target="x", submitted_by="ada")
                )
            )

    monkeypatch.setattr(CompactionStep, "_remember", remember_and_submit)
    released = harness.run_job(job)
    assert released.state == "pending"
    done = released.counters["fragments_committed"]
    assert 0 < done < 7, "what was rewritten was committed"
    claimed = queue.claim("users", 10)
    assert claimed is not None
    assert claimed.id == submitted[0].id, "the job of users comes first"
    harness.services.database.write(lambda c: queue.cancel(c, claimed, "ada"))
    queue.release(claimed, {})
    ended = harness.run_job(job)
    assert ended.state == "done"
    assert ended.counters["fragments_committed"] > done
    assert harness.data_files("shared") == harness.named_files("shared")


def test_an_index_that_is_being_built_is_not_lost_to_a_compaction(
    harness: MaintenanceHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    fragmented(harness, "built")
    table, remember = harness.table("built"), CompactionStep._remember
    build, database, opened = Build(table.id, "", "idx", "v", "IVF_FLAT"), harness.services.database, list[Any]()

    def remember_and_build(step: CompactionStep, result: Any) -> None:
        """Begin a build when the group is rewritten, but not committed."""
        remember(step, result)
        database.write(lambda connection: index_builds.begin(connection, build))
        opened.append(harness.services.datasets.open_for_writing(table, "", lambda _: "")[0])

    monkeypatch.setattr(CompactionStep, "_remember", remember_and_build)
    job = harness.submit("built", JobKind.COMPACT, reasons=[])
    assert harness.run_job(job).state == "pending"
    assert harness.data_files("built") == harness.named_files("built")
    opened[0].create_index("v", "IVF_FLAT", name="idx", num_partitions=1)
    database.write(lambda connection: index_builds.end(connection, build, None))
    monkeypatch.undo()
    assert harness.run_job(job).state == "done"
    assert harness.fragments("built") == [112]


def test_a_cleanup_gives_way_between_batches(harness: MaintenanceHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    fragmented(harness, "many")
    monkeypatch.setattr(retention, "_BATCH", 4)
    queue, table, remove = harness.services.queue, harness.table("many"), retention._Cleanup._remove
    waiting = list[Any]()

    def remove_and_submit(cleanup: Any, batch: Any) -> int:
        removed = remove(cleanup, batch)
        if not waiting:
            submit = partial(queue.submit, kind=JobKind.BACKFILL, table=table, spec={}, target="x", submitted_by="ada")
            waiting.append(harness.services.database.write(submit))
        return removed

    monkeypatch.setattr(retention._Cleanup, "_remove", remove_and_submit)
    job = harness.submit("many", JobKind.CLEANUP, min_version_seconds=0, max_versions=1, snapshot_seconds=0)
    assert harness.run_job(job).state == "pending"
    count = partial(versions.count, table_id=table.id, branch="")
    assert harness.services.database.read(count) == 13 - 4
    claimed = queue.claim("users", 10)
    assert claimed is not None
    assert claimed.id == waiting[0].id
    queue.finish(claimed, JobState.DONE, counters={})
    assert harness.run_job(job).state == "done"
    assert harness.services.database.read(count) == 1


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time of the budget in seconds, which passes only while it waits."""
    times = [now_millis() / 1000]

    def sleep(seconds: float) -> None:
        times[0] += seconds

    monkeypatch.setattr("pennon.pipeline.maintenance.compaction_step.time.sleep", sleep)
    monkeypatch.setattr("pennon.pipeline.maintenance.compaction_step.now_millis", lambda: round(times[0] * 1000))
    return times


def test_a_budget_limits_the_rate(harness: MaintenanceHarness, clock: list[float]) -> None:
    fragmented(harness, "slow")
    job = harness.submit("slow", JobKind.COMPACT, max_bytes_per_second=10_000)
    ended = harness.run_job(job)
    assert ended.started_at is not None
    assert ended.counters["bytes_rewritten"] > 5_000
    spent = clock[0] - ended.started_at / 1000
    assert spent == pytest.approx(ended.counters["bytes_rewritten"] / 10_000, abs=0.01)


def test_a_small_budget_does_not_hold_up_other_namespaces(harness: MaintenanceHarness, clock: list[float]) -> None:
    fragmented(harness, "slower")
    harness.namespace.create_namespace(CreateNamespaceRequest(id=["other"]))
    lance.write_dataset(rows(0, 10), namespace_client=harness.namespace, table_id=["other", "t"])
    slow = harness.submit("slower", JobKind.COMPACT, max_bytes_per_second=1000)
    claimed = harness.services.queue.claim("harness", 60)
    other = harness.submit("t", JobKind.COMPACT, namespace=("other",))
    assert claimed is not None
    harness.worker.run_job(claimed)
    released = harness.services.queue.find(slow.id)
    assert released is not None
    assert released.state == "pending"
    assert released.counters["fragments_committed"] > 0
    assert clock[0] - now_millis() / 1000 < 1  # it did not wait
    assert harness.run_job(other).state == "done"  # it is next
    assert harness.run_job(slow).state == "done"


def test_small_targets_do_not_make_a_file_of_each_row(harness: MaintenanceHarness) -> None:
    harness.create("rows", rows(0, 5000))
    harness.delete("rows", "id % 2 = 0")
    harness.run("rows", JobKind.COMPACT, target_fragment_rows=1, target_fragment_bytes=1024, max_deleted_share=0.01)
    assert sum(harness.fragments("rows")) == 2500
    assert len(harness.fragments("rows")) <= 1024


def test_a_step_that_fails_does_not_stop_the_others(
    harness: MaintenanceHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    fragmented(harness, "failing")

    def fail(*_: Any, **__: Any) -> str:
        raise OSError("the disk is full")

    clean, cleaned = retention.clean, list[Any]()

    def clean_and_count(*given: Any) -> retention.Cleaned:
        cleaned.append(given)
        return clean(*given)

    monkeypatch.setattr(compaction, "execute", fail)
    monkeypatch.setattr(retention, "clean", clean_and_count)
    ended = harness.run_job(harness.submit("failing"))
    assert ended.state == "done"
    assert ended.result is not None
    assert set(ended.result["failures"]) == {"compact"}  # type: ignore[typeddict-item]
    assert cleaned
    (failed,) = events(harness, ended, "step_failed")
    assert "the disk is full" in failed.data["message"]
    assert harness.run_job(harness.submit("failing", JobKind.COMPACT)).state == "failed"


def test_a_worker_that_lost_its_lease_commits_nothing(
    harness: MaintenanceHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    fragmented(harness, "overtaken")
    job, queue = harness.submit("overtaken", JobKind.COMPACT, reasons=[]), harness.services.queue
    commit = compaction.commit_what_fits

    def take_over_and_commit(dataset: Any, results: Any) -> Any:
        harness.services.database.write(
            lambda c: c.run("UPDATE jobs SET worker = 'other', attempt = attempt + 1 WHERE id = ?", job.id)
        )
        return commit(dataset, results)

    monkeypatch.setattr(compaction, "commit_what_fits", take_over_and_commit)
    thread, _ = run_on_thread(harness, job)
    thread.join(30)
    assert len(harness.fragments("overtaken")) == 13
    monkeypatch.undo()
    deadline = time.monotonic() + 30
    while (claimed := queue.claim("next", 10)) is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert claimed is not None
    harness.worker.run_job(claimed)
    assert harness.fragments("overtaken") == [112]
    assert harness.data_files("overtaken") == harness.named_files("overtaken")


def test_a_table_that_pennon_does_not_manage_is_refused(harness: MaintenanceHarness) -> None:
    fragmented(harness, "was_managed")
    table = harness.table("was_managed")
    job = harness.submit("was_managed")
    harness.services.database.write(lambda c: c.run("UPDATE tables SET managed = 0 WHERE id = ?", table.id))
    ended = harness.run_job(job)
    assert ended.state == "failed"
    assert ended.failure is not None
    assert "does not manage" in ended.failure["message"]
