"""Maintenance through clients, on a server whose worker does it: on request, and as LanceDB's client promises it."""

from __future__ import annotations

import json
import warnings
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import lancedb
import pytest
from lance_namespace.errors import InvalidInputError

import pennon
from tests.clients.remote.data import new_name, rows
from tests.support.command import runner
from tests.support.rest import RestClient
from tests.support.server import PennonProcess
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pennon.client import Connection, Table
    from pennon.client.job import Job

#: A few rows are indexed within a second instead of a minute.
SETTINGS = {
    "PENNON_WORKERS": "1",
    "PENNON_MAINTENANCE_MAX_UNINDEXED_SECONDS": "0.5",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PennonProcess]:
    """A server with a worker."""
    with PennonProcess(tmp_path_factory.mktemp("pennon"), env=SETTINGS) as running:
        yield running


@pytest.fixture
def db(server: PennonProcess) -> Connection:
    """A connection of Pennon's client."""
    return pennon.connect(server.url)


@pytest.fixture
def table(db: Connection) -> Table:
    """A table of five small fragments, too few for automatic compaction, and without automatic maintenance."""
    made = db.create_table(new_name(), rows(20))
    made.alter_maintenance_policy(enabled=False)
    for _ in range(4):
        made.add(rows(5))
    made.delete("id = 3")
    return made


def result_of(job: Job) -> dict[str, Any]:
    """Return what a job has done."""
    assert job.result is not None
    return job.result


class TestOnRequest:
    def test_optimize_does_all_that_it_says(self, table: Table, db: Connection) -> None:
        before = table.health()
        assert (before.fragments, before.small_fragments, before.rows) == (5, 5, table.count_rows())
        assert before.next == {"reason": "never: automatic maintenance is off"}
        plan = table.maintain(dry_run=True)
        assert [step["action"] for step in plan.due] == ["compact"]
        assert plan.cleanup is not None
        assert (plan.cleanup["versions_to_remove"], plan.cleanup["versions_recent"]) == (0, before.versions)
        job = table.optimize().wait(progress=False)
        result = result_of(job)
        assert (job.kind, result["fragments_removed"], result["failures"]) == ("maintain", 5, {})
        after = table.health()
        assert (after.fragments, after.deleted_rows, after.rows) == (1, 0, before.rows)
        assert after.last is not None
        assert after.last["job_id"] == job.id
        assert "due: nothing" in repr(after)
        assert [known.id for known in db.jobs(table=table.name)] == [job.id]

    def test_single_steps(self, table: Table) -> None:
        table.create_index("id", config=lancedb.index.BTree())
        table.add(rows(5))
        assert table.health().unindexed_rows == 5
        job = table.maintain("optimize_indices").wait(progress=False)
        assert (result_of(job)["rows_indexed"], table.health().unindexed_rows) == (5, 0)
        assert result_of(table.compact_files().wait(progress=False))["fragments_removed"] > 1

    def test_cleanup_removes_versions_that_nothing_needs(self, table: Table) -> None:
        table.tags.create("kept", 2)
        newest = table.version
        assert table.why_kept(1, 2, newest) == {
            1: [table.why_kept(1)[1][0]],
            2: ["The tag 'kept' refers to it.", table.why_kept(2)[2][1]],
            newest: ["It is the newest version."],
        }
        assert "min_version_seconds" in table.why_kept(1)[1][0]
        job = table.cleanup_old_versions(timedelta(seconds=0)).wait(progress=False)
        assert result_of(job)["versions_removed"] == newest - 2
        assert [found["version"] for found in table.list_versions()] == [2, newest]

    def test_what_the_server_cannot_do_is_refused(self, table: Table) -> None:
        with pytest.raises(ValueError, match="delete_unverified"):
            table.optimize(delete_unverified=True)
        with pytest.raises(ValueError, match="retrain"):
            table.optimize(retrain=True)
        with pytest.raises(InvalidInputError, match="Did you mean 'max_versions'"):
            table.maintain(policy={"max_version": 1})


def test_policies_of_namespaces(db: Connection) -> None:
    name = new_name()
    db.create_namespace([name])
    table = db.create_table("t", rows(1), namespace_path=[name])
    db.alter_maintenance_policy([name], max_versions=7)
    assert table.maintenance_policy()["max_versions"] == 7
    assert db.maintenance_policy([name])["max_versions"] == 7


@pytest.mark.parametrize("level", ["table", "namespace"])
def test_a_new_policy_takes_effect_without_a_commit(db: Connection, level: str) -> None:
    name = new_name()
    db.create_namespace([name])
    table = db.create_table("t", rows(1), namespace_path=[name])

    def alter(**values: Any) -> None:
        if level == "table":
            table.alter_maintenance_policy(**values)
        else:
            db.alter_maintenance_policy([name], **values)

    alter(enabled=False)
    table.add(rows(1))
    table.add(rows(1))
    with RestClient(db._transport.url) as rest:
        described = partial(rest.post, f"/v1/table/{name}$t/describe", {"load_detailed_metadata": True})
        wait_until(lambda: "disabled" in described()["health"].get("due", ""))
    alter(enabled=True, max_small_fragments=2)
    wait_until(lambda: table.health().fragments == 1, seconds=30)


class TestPromisesOfLanceDB:
    @pytest.fixture
    def remote(self, server: PennonProcess) -> Any:
        """A connection of LanceDB's own client."""
        return lancedb.connect("db://$", api_key="none", host_override=server.url)

    def test_wait_for_index_returns_once_new_rows_are_indexed(self, remote: Any) -> None:
        table = remote.create_table(new_name(), rows(50))
        table.create_index("id", config=lancedb.index.BTree(), name="by_id")
        table.add(rows(30))
        assert table.index_stats("by_id").num_unindexed_rows == 30
        table.wait_for_index(["by_id"], timedelta(seconds=60))
        assert table.index_stats("by_id").num_unindexed_rows == 0

    def test_optimize_comes_true_without_being_asked_of_the_server(self, remote: Any, server: PennonProcess) -> None:
        table = remote.create_table(new_name(), rows(20))
        for _ in range(10):
            table.add(rows(1))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            table.optimize()
        wait_until(lambda: table.stats()["fragment_stats"]["num_fragments"] <= 3, seconds=60)
        assert table.count_rows() == 30
        with RestClient(server.url) as rest:
            wanted = {"table": table.name, "kind": "maintenance"}
            (job,) = rest.post("/v1/jobs/list", {**wanted, "limit": 1})["jobs"]
            assert job["submitted_by"] == "auto_maintenance"
            assert rest.post("/v1/jobs/list", {"table": table.name})["jobs"] == []

            def described() -> dict[str, Any]:
                health = rest.post(f"/v1/table/{table.name}/describe", {"load_detailed_metadata": True})["health"]
                return dict(health)

            assert described()["rows"] == 30
            assert described()["small_fragments"] <= 3
            assert described()["versions"] > 10
            wait_until(lambda: described().get("last_maintenance_millis", 0) > 0)


def test_commands(
    table: Table,
    server: PennonProcess,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("PENNON_URL", server.url)
    run = runner(monkeypatch, capsys, tmp_path)
    shown = run("tables", "health", table.name)
    assert (shown.code, "never: automatic maintenance is off" in shown.stdout) == (0, True)
    listed = json.loads(run("tables", "health", "--output", "json", "--limit", "1000").stdout)
    assert [table.name] in [found["id"] for found in listed]
    planned = run("maintenance", "run", table.name, "--dry-run")
    assert "5 small fragments can be merged into 1" in planned.stdout
    done = run("maintenance", "run", table.name, "--kind", "compact", "--output", "json")
    assert (done.code, json.loads(done.stdout)["result"]["fragments_removed"]) == (0, 5)
    status = run("maintenance", "status", table.name)
    assert (status.code, "compact" in status.stdout) == (0, True)
    changed = run("maintenance", "policy", table.name, "--set", "max-versions=9", "-o", "json")
    assert json.loads(changed.stdout)["policy"]["max_versions"]["level"] == "table"
    assert "server" in run("maintenance", "policy", table.name, "--reset", "max_versions").stdout
    assert run("maintenance", "policy", table.name, "--set", "max_versions=none").code == 2
    assert run("maintenance", "policy", table.name, "--set", "max_versions").code == 2
    assert run("maintenance", "run", "nowhere").code == 3
