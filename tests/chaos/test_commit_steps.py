"""Every step of every commit in any order: several writers, readers that finish what others left, and a writer beside.

The truth is what stands at a version's final place: it never changes, it is what a successful writer wrote, and the
catalog ends up saying the same.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance_namespace as ln
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from pennon.catalog import versions
from pennon.catalog.versions import Version
from pennon.commits.staging import Proposal, Staged
from pennon.namespace import PennonNamespace
from tests.chaos.manifests import make_manifest, manifest_name, staged_name

CHOICE = st.integers(0, 10_000)


@dataclass
class Commit:
    """One attempt of one writer, and how far it got."""

    proposal: Proposal
    content: bytes
    staged: Staged | None = None
    recorded: Version | None = None
    acknowledged: bool = False


class CommitSteps(RuleBasedStateMachine):
    """Drives the steps of the commit authority one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="pennon-steps-")
        self.namespace = PennonNamespace(directory=self.folder.name)
        self.services = self.namespace.services
        self.deferred: list[Callable[[Any], object]] = []
        setattr(self.services.database, "defer", self.deferred.append)  # noqa: B010 (a method, as types see it)
        self.namespace.declare_table(ln.DeclareTableRequest(id=["t"]))
        self.table = self.namespace.find_table(("t",))
        self.branch, self.first = "", 1
        self.commits: list[Commit] = []
        self.recorded: dict[int, Commit] = {}
        self.seen: dict[int, bytes] = {}

    def teardown(self) -> None:
        try:
            self.everything_settles()
        finally:
            self.namespace.close()
            self.folder.cleanup()

    @initialize(branch=st.sampled_from(["", "dev"]), first=st.integers(1, 9))
    def begin(self, branch: str, first: int) -> None:
        self.branch, self.first = branch, first if branch else 1
        self.place.mkdir(parents=True)

    @property
    def place(self) -> Path:
        below = f"tree/{self.branch}/_versions" if self.branch else "_versions"
        return Path(self.table.location, below)

    def final(self, version: int) -> bytes | None:
        path = self.place / manifest_name(version)
        return path.read_bytes() if path.exists() else None

    def next_version(self) -> int:
        return max([*self.seen, *self.recorded], default=self.first - 1) + 1

    @rule(offset=st.sampled_from([0, 0, 0, 0, -1, -2, 1]))
    def propose(self, offset: int) -> None:
        # The first commit of a branch may have any number; from then on there is no gap.
        version = max(self.first, self.next_version() + offset) if self.seen or not self.branch else self.first
        content, name = make_manifest(version, self.branch), staged_name(version)
        (self.place / name).write_bytes(content)
        path = f"{self.place}/{name}".lstrip("/")
        self.commits.append(Commit(Proposal(version, path, self.branch), content))

    @precondition(lambda self: self.commits)
    @rule(which=CHOICE)
    def stage(self, which: int) -> None:
        commit = self.commits[which % len(self.commits)]
        try:
            staged = self.services.authority.stage(self.table, commit.proposal)
        except (ln.ConcurrentModificationError, ln.InvalidInputError):
            assert not commit.acknowledged
            return
        if isinstance(staged, Staged):
            commit.staged = staged
        else:
            self.acknowledge(commit, staged)

    @precondition(lambda self: any(commit.staged for commit in self.commits))
    @rule(which=CHOICE)
    def record(self, which: int) -> None:
        ready = [commit for commit in self.commits if commit.staged]
        commit = ready[which % len(ready)]
        staged = commit.staged
        assert staged is not None
        try:
            recorded = self.services.database.write(
                lambda c: self.services.authority.record_version(c, staged, "transaction")
            )
        except ln.ConcurrentModificationError:
            return
        assert recorded.version not in self.recorded, "a version was recorded twice"
        commit.recorded = recorded
        self.recorded[recorded.version] = commit

    @precondition(lambda self: any(commit.recorded for commit in self.commits))
    @rule(which=CHOICE)
    def publish(self, which: int) -> None:
        ready = [commit for commit in self.commits if commit.recorded]
        commit = ready[which % len(ready)]
        assert commit.staged is not None
        assert commit.recorded is not None
        try:
            published = self.services.authority.publish(commit.staged, commit.recorded)
        except ln.ConcurrentModificationError:
            assert self.final(commit.proposal.version) not in (None, commit.content)
            return
        self.acknowledge(commit, published)

    @precondition(lambda self: self.commits)
    @rule(which=CHOICE)
    def commit_in_one_go(self, which: int) -> None:
        commit = self.commits[which % len(self.commits)]
        try:
            (version,) = self.services.authority.commit([(self.table, commit.proposal)], lambda _: "transaction")
        except ln.ConcurrentModificationError:
            assert not commit.acknowledged, "a replay of what was acknowledged was refused"
            return
        except ln.InvalidInputError:
            assert not commit.acknowledged
            return
        self.acknowledge(commit, version)

    @precondition(lambda self: any(commit.acknowledged for commit in self.commits))
    @rule(which=CHOICE)
    def replay(self, which: int) -> None:
        done = [commit for commit in self.commits if commit.acknowledged]
        commit = done[which % len(done)]
        (version,) = self.services.authority.commit([(self.table, commit.proposal)], lambda _: "transaction")
        self.acknowledge(commit, version)

    @rule()
    def write_beside_pennon(self) -> None:
        """Another program takes the next final name that is free, as Lance does in a folder without a catalog."""
        version = max([*self.seen], default=self.first - 1) + 1
        content = make_manifest(version, self.branch)
        temporary = self.place / "beside"
        temporary.write_bytes(content)
        try:
            os.link(temporary, self.place / manifest_name(version))
        except FileExistsError:
            return
        finally:
            temporary.unlink()
        self.look()

    @rule()
    def read_latest(self) -> None:
        try:
            latest = self.services.history.latest(self.table, self.branch)
        except ln.TableBranchNotFoundError:
            latest = None
        self.look()
        assert (latest.version if latest else None) == max(self.seen, default=None)
        if latest is not None:
            self.agrees(latest)

    @rule(number=st.integers(1, 15))
    def read_version(self, number: int) -> None:
        found = self.services.history.find_recorded(self.table, self.branch, number)
        self.look()
        assert (found is None) == (number not in self.seen)
        if found is not None:
            self.agrees(found)

    @rule(descending=st.booleans(), limit=st.integers(1, 4))
    def read_page(self, descending: bool, limit: int) -> None:
        try:
            page = self.services.history.page(self.table, self.branch, after=None, descending=descending, limit=limit)
        except ln.TableBranchNotFoundError:
            page = []
        self.look()
        assert [version.version for version in page] == sorted(self.seen, reverse=descending)[:limit]

    @precondition(lambda self: self.deferred)
    @rule(which=CHOICE, lost=st.booleans())
    def settle(self, which: int, lost: bool) -> None:
        """Do work that was put off, in any order; or never, because its process died."""
        work = self.deferred.pop(which % len(self.deferred))
        if not lost:
            self.services.database.write(work)

    @invariant()
    def look(self) -> None:
        """Insist that what stands at a final place stays as it is."""
        for path in self.place.glob("*.manifest"):
            version = 2**64 - 1 - int(path.stem)
            content = path.read_bytes()
            assert self.seen.setdefault(version, content) == content, "a final manifest was replaced"

    @invariant()
    def numbers_have_no_gap(self) -> None:
        assert sorted(self.seen) == list(range(self.first, self.first + len(self.seen)))

    def acknowledge(self, commit: Commit, version: Version) -> None:
        """Check that a writer that got success has its own bytes at the final place."""
        assert version.version == commit.proposal.version
        assert self.final(version.version) == commit.content, "a writer got success, but another's bytes are there"
        self.agrees(version)
        commit.acknowledged = True

    def agrees(self, version: Version) -> None:
        content = self.final(version.version)
        assert content is not None
        assert (version.digest, version.size) == (hashlib.sha256(content).hexdigest(), len(content))

    def everything_settles(self) -> None:
        """Read once more: all that was recorded is in place, and catalog and storage say the same."""
        self.read_latest()
        for work in self.deferred:
            self.services.database.write(work)
        rows = self.services.database.read(lambda c: versions.in_range(c, self.table.id, self.branch, 0, None))
        for row in rows:
            found = self.services.history.find_recorded(self.table, self.branch, row.version)
            assert found is not None
            self.agrees(found)
        self.look()
        assert {row.version for row in rows} == set(self.seen)
        assert set(self.recorded) <= set(self.seen), "what was recorded is not in place"


def run(examples: int, steps: int, *, explore: bool) -> None:
    """Try sequences of steps: other ones each time, or always the same."""
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        derandomize=not explore,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(CommitSteps, settings=chosen)


def test_the_steps_of_commits_may_come_in_any_order() -> None:
    run(examples=60, steps=40, explore=False)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_steps_of_many_more_commits_may_come_in_any_order() -> None:
    run(examples=1500, steps=60, explore=True)
