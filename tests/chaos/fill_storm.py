"""One backfill under faults: rows come, go and change, fragments merge, and processes die while it runs.

What happens, and in which order, follows from the seed. When it happens depends on how far the backfill is, so that a
slow machine has the same faults.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from lance_namespace.errors import InvalidTableStateError

import pennon
from tests.chaos import spark_processes as processes
from tests.chaos.fill_calls import CallLog, Inputs, mixed, mixer
from tests.clients.lakes import ClientTable, Lake
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pennon.client import Job
    from pennon.client.backfill import BackfillOptions

#: Tasks that run at once.
TASKS = 2
CHANGES = ("append", "delete", "update", "upsert", "compact", "update_in_place")
#: What a running Spark gets over.
GUSTS = ("kill_python", "kill_daemon", "pause", "cancel")
#: After these a new Spark is started, which takes long.
BOLTS = ("kill_worker", "kill_java")
ROW_SECONDS = 0.002
COLUMNS = ("y", "z")
#: Lines of the server's log that come with a failure.
LAST_WORDS = 40


@dataclass(frozen=True)
class Step:
    """Something that happens when this share of the first rows was computed."""

    due: float
    action: str


@dataclass(frozen=True)
class Forecast:
    """All that happens under one seed."""

    seed: int
    fragments: int
    rows: int
    batch_rows: int
    commit_granularity: int | None
    steps: tuple[Step, ...]

    def __str__(self) -> str:
        steps = ", ".join(f"{step.action} at {step.due:.0%}" for step in self.steps)
        return (
            f"seed {self.seed}: {self.fragments} fragments of {self.rows} rows, calls of {self.batch_rows} rows, "
            f"commits of {self.commit_granularity} fragments; {steps}"
        )


def forecast(seed: int, *, gusts: int, bolts: tuple[str, ...]) -> Forecast:
    """Return the events of a seed: the given numbers of faults, and the given kills."""
    chance = random.Random(seed)  # noqa: S311 (a test that can be repeated)
    actions = [chance.choice(CHANGES) for _ in range(chance.randint(3, 6))]
    actions += chance.choices(GUSTS, k=gusts)
    actions += chance.choice([["fill_other"], []])
    actions += bolts
    chance.shuffle(actions)
    moments = sorted(chance.uniform(0.02, 0.95) for _ in actions)
    return Forecast(
        seed=seed,
        fragments=chance.randint(6, 9),
        rows=chance.randint(50, 100),
        batch_rows=chance.choice([10, 16, 25, 40]),
        commit_granularity=chance.choice([1, 2, 3, None]),
        steps=tuple(Step(due, action) for due, action in zip(moments, actions, strict=True)),
    )


@dataclass
class Storm:
    """A table under backfill, what is done to it, and what must be true of it in the end."""

    lake: Lake
    plan: Forecast
    folder: Path
    model: dict[int, Inputs] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    #: How often work in flight may have been lost.
    interruptions: int = 0
    kills: int = 0
    cancels: int = 0
    #: Whether inputs were written in place, after which all rows of their fragments are computed again.
    is_in_place: bool = False
    #: The versions that merged fragments.
    merges: set[int] = field(default_factory=set)
    story: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.plan.seed * 7919 + 1)  # noqa: S311 (a test that can be repeated)
        self.last = 0
        self.name = f"storm_{self.plan.seed}_{self.folder.name.replace('-', '_')}"
        db = pennon.connect(self.lake.url)
        db.create_table(self.name, self.new_rows(self.plan.rows))
        self.table = db.open_table(self.name)
        for _ in range(self.plan.fragments - 1):
            self.table.add(self.new_rows(self.plan.rows))
        self.lance = ClientTable(self.lake, self.lake.connect(), self.name)
        self.logs = {column: CallLog(self.folder / column) for column in COLUMNS}
        for column, log in self.logs.items():
            mix = mixer(log, column, seconds=ROW_SECONDS, batch_rows=self.plan.batch_rows)
            self.table.add_columns({column: mix})

    def run(self) -> None:
        """Backfill, let all happen that is to happen, and backfill what is left when it is quiet."""
        self.submit("y")
        for step in self.plan.steps:
            wait_until(lambda: self.is_due(step), f"{step.action} is due")  # noqa: B023
            time.sleep(self.random.uniform(0, 0.03))
            self.tell(step.action)
            getattr(self, step.action)()
        columns = list(self.jobs)
        for column in columns:
            self.see_through(column)
        for column in columns:
            self.tell(f"fill {column} in quiet")
            self.submit(column)
            self.see_through(column)

    def tell(self, what: str) -> None:
        self.story.append(f"{time.time():.3f} {what}")

    def is_due(self, step: Step) -> bool:
        computed = sum(len(call.rows) for call in self.logs["y"].calls())
        return computed >= step.due * self.plan.fragments * self.plan.rows or self.jobs["y"].refresh().finished

    def submit(self, column: str) -> None:
        options: BackfillOptions = {}
        if self.plan.commit_granularity is not None:
            options["commit_granularity"] = self.plan.commit_granularity
        self.jobs[column] = self.table.backfill_async(column, **options)

    def see_through(self, column: str) -> None:
        """Wait for a job's end, and try again when it was a bad one, for which there is a reason."""
        while (ended := self.ended(column)).state != "done":
            reason = self.cancels if ended.state == "cancelled" else self.kills
            assert reason > 0, f"the backfill of {column} is {ended.state} for no reason: {ended.failure}"
            assert ended.failure is None or ended.failure["retryable"], ended.failure
            self.interruptions += 1
            self.jobs[column] = ended.retry()
            self.tell(f"the backfill of {column} was {ended.state} and is tried again")

    def ended(self, column: str) -> Job:
        job = self.jobs[column]
        wait_until(lambda: job.refresh().finished, f"{job!r} has ended")
        return job

    # What users do.

    def new_number(self) -> int:
        self.last += 1
        return self.last

    def new_rows(self, count: int, keys: list[int] | None = None) -> pa.Table:
        """Return rows with inputs that were never there before, and remember them."""
        rows = [
            Inputs(key, self.new_number(), self.new_number())
            for key in [*(keys or []), *(self.new_number() for _ in range(count))]
        ]
        self.model |= {row.key: row for row in rows}
        return pa.Table.from_pylist([row._asdict() for row in rows])

    def some_keys(self) -> list[int]:
        """Return keys of some rows: neighbours, or any."""
        keys = sorted(self.model)
        count = min(self.random.randint(1, 60), len(keys))
        start = self.random.randint(0, len(keys) - count)
        return keys[start : start + count] if self.random.random() < 0.5 else sorted(self.random.sample(keys, count))

    def append(self) -> None:
        self.table.add(self.new_rows(self.random.randint(1, 80)))

    def delete(self) -> None:
        gone = self.some_keys()
        self.table.delete(_among(gone))
        for key in gone:
            del self.model[key]

    def update(self) -> None:
        keys, name, number = self.some_keys(), self.random.choice(["value", "weight"]), self.new_number()
        self.table.update(where=_among(keys), values={name: number})
        self.model |= {key: self.model[key]._replace(**{name: number}) for key in keys}

    def update_in_place(self) -> None:
        keys, name, number = self.some_keys(), self.random.choice(["value", "weight"]), self.new_number()
        self.lance.update_in_place("key", pa.table({"key": keys, name: [number] * len(keys)}))
        self.model |= {key: self.model[key]._replace(**{name: number}) for key in keys}
        self.is_in_place = True

    def upsert(self) -> None:
        changed = self.new_rows(self.random.randint(0, 30), self.some_keys())
        self.table.merge_insert("key").when_matched_update_all().when_not_matched_insert_all().execute(changed)

    def compact(self) -> None:
        """Compact as a client does, which retries when another writer was faster."""
        most = self.random.choice([150, 300, 100_000])
        for _ in range(20):
            try:
                dataset = self.lance.open()
                merged = dataset.optimize.compact_files(target_rows_per_fragment=most)
            except OSError as error:
                if "conflict" not in str(error):
                    raise
            else:
                self.merges |= {dataset.version} if merged.fragments_removed else set()
                return

    def fill_other(self) -> None:
        self.submit("z")

    # What operators do.

    def pause(self) -> None:
        job = self.jobs["y"]
        self.interruptions += 1
        try:
            job.pause()
        except InvalidTableStateError:
            assert job.refresh().finished
            return
        wait_until(lambda: job.refresh().finished or job.state == "paused", "the job rests")
        if not job.finished:
            assert job.resume() == "resumed"

    def cancel(self) -> None:
        self.interruptions += 1
        self.cancels += 1
        self.jobs["y"].cancel()
        if self.ended("y").state != "done":
            self.jobs["y"] = self.jobs["y"].retry()

    # What happens to machines.

    def kill_python(self) -> None:
        """Kill the process that made the last call, or any of its kind."""
        alive = processes.python_workers_of(self.lake.server.pid)
        callers = [call.pid for call in self.logs["y"].calls()[-1:] if call.pid in alive]
        self.kill([*callers, *alive][:1])

    def kill_daemon(self) -> None:
        self.kill(processes.daemons_of(self.lake.server.pid))

    def kill_java(self) -> None:
        self.kill(processes.javas_of(self.lake.server.pid))

    def kill_worker(self) -> None:
        self.kill(processes.workers_of(self.lake.server.pid))

    def kill(self, pids: list[int]) -> None:
        self.interruptions += 1
        self.kills += sum(processes.kill(pid) for pid in pids)

    # What must be true in the end.

    def check(self) -> None:
        for column in self.jobs:
            self.check_values(column)
            if not self.is_in_place:
                self.check_calls(column)

    def check_values(self, column: str) -> None:
        found = self.lance.open().to_table(columns=[*Inputs._fields, column]).to_pylist()
        values = {Inputs(*(row[name] for name in Inputs._fields)): row[column] for row in found}
        assert sorted(row["key"] for row in found) == sorted(self.model), "other rows are there than were written"
        assert values.keys() == set(self.model.values()), "rows have other inputs than were written"
        wrong = [row for row, value in values.items() if value != mixed(column, row)]
        assert not wrong, f"{column} is wrong of {len(wrong)} rows: {wrong[:5]}"
        state = self.table.column_state(column)
        assert (state.rows, state.computed) == (len(found), len(found)), state
        assert (state.missing, state.stale, state.failed) == (0, 0, 0), state

    def check_calls(self, column: str) -> None:
        """Insist that no committed row was computed again, and few others were."""
        committed = self.commits(column)
        merges = [change_token for version, change_token in self.stamps().items() if version in self.merges]
        calls = [(row, call) for call in self.logs[column].calls() for row in call.rows]
        late = [(row, call.pid) for row, call in calls if row in committed and call.at > committed[row]]
        assert not late, f"{column} of {len(late)} committed rows was computed again: {late[:5]}"
        made: Counter[Inputs] = Counter()
        repeated = 0
        for row, call in calls:
            # What was computed of a fragment that is merged before it is committed is lost.
            repeated += made[row] > sum(merged < call.at for merged in merges)
            made[row] += 1
        most = self.interruptions * TASKS * self.plan.batch_rows
        assert repeated <= most, f"{column} of {repeated} rows was computed again; {most} may have been in flight"

    def commits(self, column: str) -> dict[Inputs, float]:
        """Return when the value of each state of each row was committed."""
        committed: dict[Inputs, float] = {}
        newest = self.lance.open()
        for version, change_token in self.stamps().items():
            dataset = newest.checkout_version(version)
            if column not in dataset.schema.names:
                continue
            for row in dataset.to_table(columns=[*Inputs._fields, column]).to_pylist():
                inputs = Inputs(*(row[name] for name in Inputs._fields))
                if row[column] == mixed(column, inputs):
                    committed.setdefault(inputs, change_token)
        return committed

    def stamps(self) -> dict[int, float]:
        """Return when each version was made."""
        return {found["version"]: found["timestamp"].timestamp() for found in self.lance.open().versions()}


def _among(keys: list[int]) -> str:
    return f"key IN ({', '.join(map(str, keys))})"


def run_storm(lake: Lake, plan: Forecast, folder: Path) -> None:
    """Let a storm pass, and check what it left; whatever is wrong comes with what there was."""
    storm = Storm(lake, plan, folder)
    try:
        storm.run()
        storm.check()
    except BaseException as error:
        error.add_note(f"{plan}\n" + "\n".join(storm.story))
        error.add_note(f"The calls are in {folder}, the table is {storm.lance.location}. The server's last words:")
        error.add_note("\n".join(lake.server.stderr.splitlines()[-LAST_WORDS:]))
        raise
