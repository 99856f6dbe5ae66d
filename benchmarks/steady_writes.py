"""Measure a table under steady writes: clients insert single rows for long, beside searches and filters."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import samples
from row_clients import create_table, open_table
from servers import PENNON, BenchmarkError, start
from stage import say

if TYPE_CHECKING:
    from collections.abc import Callable

    from row_clients import TableClient
    from servers import Server
    from verdicts import Findings

CLIENTS = 16
#: Pennon with `maintenance_enabled=false`.
WITHOUT = "off"
_TABLE, _COPY = "steady", "fresh"
_K, _FILTER_ROWS = 10, 20
_PARTS = 10  # the run is reported in as many parts
_READS_PER_SECOND = 10  # of each kind, beside the inserts
_RECALL_QUERIES = 30
#: Where the seconds of a policy count: they are divided by how much the load is compressed.
_POLICY_SECONDS = {
    "max_unindexed_seconds": 60,
    "min_version_seconds": 60,
    "max_version_seconds": 7 * 24 * 3600,
    "min_file_seconds": 600,
}

METRICS = {
    "rate": "rate",
    "search": "search ms",
    "where": "filter ms",
    "fragments": "fragments",
    "versions": "versions",
    "megabytes": "MB",
    "fresh": "fresh",
    "kept": "kept",
    "recall": "recall",
}


@dataclass(frozen=True)
class Load:
    """How much is inserted, and how long the rates at the end are measured."""

    rows: int
    first_rows: int
    compression: float
    seconds: float
    rounds: int


def settings(name: str, compression: float) -> dict[str, str]:
    """Return the environment of a server: the policy's default times, shortened as the load is."""
    found = {f"PENNON_MAINTENANCE_{key.upper()}": str(value / compression) for key, value in _POLICY_SECONDS.items()}
    found |= {"PENNON_WORKERS": "1", "PENNON_SPARK_PRESTART": "false"}
    return found | ({"PENNON_MAINTENANCE_ENABLED": "false"} if name == WITHOUT else {})


def measure(load: Load, names: tuple[str, ...], folder: Path, findings: Findings) -> None:
    """Load one server after the other; those after Pennon get as much time as it needed."""
    limit = float("inf")
    for name in names:
        server = start(name, folder, settings(name, load.compression))
        try:
            say(f"steady writes, {name}")
            elapsed = _measure_server(server, load, limit, findings)
        finally:
            server.stop()
        if name == PENNON:
            limit = elapsed


def _measure_server(server: Server, load: Load, limit: float, findings: Findings) -> float:
    create_table(server, _TABLE, list(samples.batches(load.first_rows)))
    location = _location(server, _TABLE)
    run = _Run(server, load, location, findings)
    elapsed = run.insert(limit)
    acknowledged = sum(map(len, run.acknowledged))
    findings.add("inserts", server.name, rate=acknowledged / elapsed)
    for text, count in run.errors.items():
        findings.note(f"{server.name}: {count} x {text}")
    stored = _check_rows(server, location, load.first_rows, run)
    create_table(server, _COPY, stored.combine_chunks().to_batches())
    table, copy = open_table(server, _TABLE), open_table(server, _COPY)
    vectors = stored["vector"].combine_chunks().flatten().to_numpy().reshape(-1, samples.WIDTH)
    recall = {each: _recall(each, stored["id"].to_numpy(), vectors) for each in (table, copy)}
    ids = stored["id"].to_pylist()
    for case, read in (("search at the end", _Searches()), ("filter at the end", _Filters(ids))):
        for _ in range(load.rounds):
            now, fresh = (_rate(read, each, load.seconds) for each in (table, copy))
            found: dict[str, float] = {"rate": now, "fresh": fresh, "kept": now / fresh}
            if case.startswith("search"):
                found["recall"] = recall[table] / recall[copy]
            findings.add(case, server.name, **found)
    return elapsed


class _Run:
    """The clients that insert, and those that read meanwhile."""

    def __init__(self, server: Server, load: Load, location: Path, findings: Findings) -> None:
        self._server = server
        self._load = load
        self._location = location
        self._findings = findings
        self._stopping = threading.Event()
        self.acknowledged: list[list[int]] = [[] for _ in range(CLIENTS)]
        self.unclear: list[int] = []
        self.errors: Counter[str] = Counter()
        self._millis: dict[str, list[float]] = {"search": [], "where": []}

    def insert(self, limit: float) -> float:
        """Insert all rows, or as many as the time allows; return the seconds it took."""
        searches, filters = _Searches(), _Filters(list(range(self._load.first_rows)))
        threads = [threading.Thread(target=self._insert, args=(number,)) for number in range(CLIENTS)]
        readers = [
            threading.Thread(target=self._read, args=(kind, read))
            for kind, read in (("search", searches), ("where", filters))
        ]
        began = time.perf_counter()
        for thread in [*threads, *readers]:
            thread.start()
        self._report(threads, began, limit)
        self._stopping.set()
        for thread in [*threads, *readers]:
            thread.join()
        return time.perf_counter() - began

    def _insert(self, number: int) -> None:
        table = open_table(self._server, _TABLE)
        first = self._load.first_rows
        for id_ in range(first + number, first + self._load.rows, CLIENTS):
            if self._stopping.is_set():
                return
            try:
                table.add(id_)
            except Exception as error:  # whatever a client sees counts as an error of the server
                self.errors[f"insert: {_first_line(error)}"] += 1
                self.unclear.append(id_)
            else:
                self.acknowledged[number].append(id_)

    def _read(self, kind: str, read: Callable[[TableClient], None]) -> None:
        table = open_table(self._server, _TABLE)
        while not self._stopping.is_set():
            began = time.perf_counter()
            try:
                read(table)
            except Exception as error:
                self.errors[f"{kind}: {_first_line(error)}"] += 1
            took = time.perf_counter() - began
            self._millis[kind].append(took * 1e3)
            self._stopping.wait(max(1 / _READS_PER_SECOND - took, 0))

    def _report(self, threads: list[threading.Thread], began: float, limit: float) -> None:
        """Report each part of the run when it is over."""
        for part in range(1, _PARTS + 1):
            before, since = sum(map(len, self.acknowledged)), time.perf_counter()
            goal = self._load.rows * part // _PARTS
            while any(thread.is_alive() for thread in threads) and sum(map(len, self.acknowledged)) < goal:
                time.sleep(0.05)
                self._server.check()
                over = time.perf_counter() - began
                if over >= limit or (limit < float("inf") and over >= limit * part / _PARTS):
                    break
            seconds = time.perf_counter() - since
            rate = (sum(map(len, self.acknowledged)) - before) / seconds
            seen = {kind: median(millis) for kind, millis in self._millis.items() if millis}
            for millis in self._millis.values():
                millis.clear()
            values = {"rate": rate, **seen, **_shape(self._location)}
            say(f"  part {part}: " + ", ".join(f"{key} {value:.4g}" for key, value in values.items()))
            self._findings.add(f"part {part} of {_PARTS}", self._server.name, **values)


class _Searches:
    """Searches for vectors that were not searched for before."""

    def __init__(self) -> None:
        self._vectors = samples.query_vectors(64)
        self._number = itertools.count(1)

    def __call__(self, table: TableClient) -> None:
        number = next(self._number)
        vector = [number / 1e6, *self._vectors[number % len(self._vectors)][1:]]
        found = len(set(table.search(vector, _K)))
        if found != _K:
            raise BenchmarkError(f"a search returned {found} rows instead of {_K}")


class _Filters:
    """Filters by id, for rows that are there."""

    def __init__(self, ids: list[int]) -> None:
        self._ids = sorted(ids)
        self._number = itertools.count(1)

    def __call__(self, table: TableClient) -> None:
        at = next(self._number) * 7919 % (len(self._ids) - _FILTER_ROWS)
        wanted = self._ids[at : at + _FILTER_ROWS]
        found = table.select(wanted[0], wanted[-1])
        if sorted(found) != wanted:
            raise BenchmarkError(f"a filter for {_FILTER_ROWS} rows returned {len(found)}, or others")


def _location(server: Server, name: str) -> Path:
    """Return the folder of a table below the folder that a server serves."""
    found = [path.parent for path in server.root.glob(f"**/{name}*/_versions")]
    if len(found) != 1:
        raise BenchmarkError(f"{server.name} has no folder for {name}, or several: {found}")
    return found[0]


def _shape(location: Path) -> dict[str, float]:
    """Count the fragments and versions of a table, and the bytes of its folder."""
    import lance

    size = 0
    for path in location.rglob("*"):
        try:
            size += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue  # maintenance removed it
    versions = sum(1 for _ in location.glob("_versions/*.manifest"))
    fragments = len(lance.dataset(str(location)).get_fragments())
    return {"fragments": fragments, "versions": versions, "megabytes": size / 1e6}


def _check_rows(server: Server, location: Path, first_rows: int, run: _Run) -> Any:
    """Return all rows of a table; raises unless each acknowledged id is there once."""
    import lance

    stored = lance.dataset(str(location)).to_table()
    counts = Counter(stored["id"].to_pylist())
    wanted = set(range(first_rows)).union(*run.acknowledged)
    missing, others = wanted - counts.keys(), counts.keys() - wanted - set(run.unclear)
    twice = [id_ for id_, count in counts.items() if count > 1]
    if missing or others or twice:
        raise BenchmarkError(f"{server.name}: {len(missing)} rows lost, {len(twice)} twice, {len(others)} unknown")
    say(f"  all {len(wanted)} rows are there once")
    return stored


def _recall(table: TableClient, ids: Any, vectors: Any) -> float:
    """Return the share of the true nearest rows that searches find."""
    import numpy as np

    found = 0
    for vector in samples.query_vectors(_RECALL_QUERIES):
        distances = ((vectors - np.asarray(vector, dtype=np.float32)) ** 2).sum(axis=1)
        nearest = set(ids[np.argpartition(distances, _K)[:_K]].tolist())
        found += len(nearest & set(table.search(vector, _K)))
    return found / (_RECALL_QUERIES * _K)


def _rate(read: Callable[[TableClient], None], table: TableClient, seconds: float) -> float:
    """Return how many reads a second one client makes, one after the other."""
    read(table)
    began, done = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        read(table)
        done += 1
    return done / (time.perf_counter() - began)


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0][:160]
