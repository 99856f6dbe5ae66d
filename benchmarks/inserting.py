"""Measure writes: single rows from many clients, one large stream, and upserts."""

from __future__ import annotations

import json
import time
from itertools import count
from statistics import median, quantiles
from typing import TYPE_CHECKING

import samples
from family import Work
from load import Client, drive
from memory import Watch
from servers import PENNON, BenchmarkError
from stage import expect_rows, fill, table_path
from transfer import fetch, post_arrow, upload
from verdicts import LOCAL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from load import Sample
    from servers import Server
    from stage import Stage

_CONNECTIONS = 16
_UPSERT_TABLE = 100_000
_UPSERT_ROWS = 1000
_UPSERTS = 12  # in a round; the first is not counted
_UPSERT = "merge_insert", "&on=id&when_matched_update_all=true&when_not_matched_insert_all=true"


def measure_single_rows(stage: Stage) -> None:
    """Let 16 clients insert one row each, again and again, into one table."""
    _measure_single_rows(stage, "insert-1-row", _CONNECTIONS, 1)


def measure_many_tables(stage: Stage) -> None:
    """Let 16 clients insert one row each, again and again, each into a table of its own: no commit is shared."""
    _measure_single_rows(stage, "insert-16-tables", _CONNECTIONS, _CONNECTIONS)


def measure_one_client(stage: Stage) -> None:
    """Let one client insert one row after the other."""
    _measure_single_rows(stage, "insert-1-client", 1, 1)


def _measure_single_rows(stage: Stage, case: str, clients: int, tables: int) -> None:
    with stage.servers() as servers:
        watches = {server.name: Watch(server) for server in servers}
        for number in range(stage.plan.rounds):
            names = [f"r{number}t{table}" for table in range(tables)]
            for server in servers:
                with stage.awake(server), watches[server.name] as watch:
                    sample, work = _insert_rows(stage, server, names, clients)
                    values = {"rate": sample.rate, "p50": sample.p50, "p99": sample.p99, "growth": watch.growth}
                    stage.add(case, server.name, **values, work=work.per(sample.requests))
                    if sample.errors:
                        stage.findings.note(f"{case}, {server.name}: {sample.errors} errors; {sample.note}")


def _insert_rows(stage: Stage, server: Server, names: list[str], clients: int) -> tuple[Sample, Work]:
    """Create tables of one row each and insert into them, the clients in turn; check that no row was lost."""
    row = samples.OneRow()
    creates = [post_arrow(server, table_path(name, "create"), row.with_id(0)) for name in names]
    if drive(server, [Client(iter(creates))]).errors:
        raise BenchmarkError(f"{server.name} did not create tables of one row")

    def inserts(client: int) -> Iterator[bytes]:
        path = table_path(names[client % len(names)], "insert")
        for turn in count(1):
            yield post_arrow(server, path, row.with_id(client + turn * clients))

    with Work(server) as work:
        sample = drive(server, [Client(inserts(client)) for client in range(clients)], stage.plan.seconds)
    stored = sum(int(fetch(server, table_path(name, "count_rows"), "{}")) for name in names)
    if stored != len(names) + sample.requests:
        raise BenchmarkError(f"{server.name}: {stored} rows instead of {len(names) + sample.requests}")
    return sample, work


def measure_stream(stage: Stage) -> None:
    """Send one large Arrow stream; the same batches are written by pylance itself for comparison."""
    rows = samples.rows_for(stage.plan.megabytes)
    made = list(samples.batches(rows))
    wire = samples.chunked(samples.stream(made))
    with stage.servers() as servers:
        watches = {server.name: Watch(server) for server in servers}
        for number in range(stage.plan.rounds):
            seconds = _write_locally(stage, made, number)
            stage.add("insert-stream", LOCAL, speed=rows * samples.ROW_BYTES / 1e6 / seconds)
            for server in servers:
                with stage.awake(server):
                    _stream(stage, server, f"r{number}", wire, rows, watches[server.name])


def _write_locally(stage: Stage, made: list[object], number: int) -> float:
    import os

    import lance

    target = stage.folder / f"local{number}.lance"
    began = time.perf_counter()
    lance.write_dataset(samples.reader(made), str(target))
    seconds = time.perf_counter() - began
    os.sync()
    return seconds


def _stream(stage: Stage, server: Server, name: str, wire: bytearray, rows: int, watch: Watch) -> None:
    create = post_arrow(server, table_path(name, "create"), samples.OneRow().with_id(0))
    if drive(server, [Client(iter([create]))]).errors:
        raise BenchmarkError(f"{server.name} did not create a table of one row")
    with watch:
        sent = upload(server, table_path(name, "insert"), wire)
    if sent.status != 200:
        if server.name == PENNON:
            raise BenchmarkError(f"{server.name} answered {sent.status} to the stream: {sent.body[:300]!r}")
        said = sent.body[:80].decode(errors="replace")
        stage.findings.note(f"insert-stream, {server.name}: refused with HTTP {sent.status} ({said}).")
        return
    expect_rows(server, name, rows + 1)
    speed = rows * samples.ROW_BYTES / 1e6 / sent.seconds
    stage.add("insert-stream", server.name, speed=speed, growth=watch.growth)


def measure_upserts(stage: Stage) -> None:
    """Upsert 1,000 rows, half of them new, into 100,000 again and again, one client alone."""
    base = list(samples.batches(_UPSERT_TABLE))
    with stage.servers() as servers:
        for number in range(stage.plan.rounds):
            _report(stage, LOCAL, _upsert_locally(stage, base, number))
            for server in servers:
                with stage.awake(server):
                    fill(server, f"r{number}", samples.reader(base))
                    _report(stage, server.name, _upsert(server, f"r{number}"))


def _report(stage: Stage, name: str, millis: list[float]) -> None:
    counted = millis[1:]
    stage.add("upsert", name, p50=median(counted), p99=quantiles(counted, n=100, method="inclusive")[98])


def _upsert_batches(turn: int) -> list[object]:
    half = _UPSERT_ROWS // 2
    first = _UPSERT_TABLE - half + turn * half
    return list(samples.batches(_UPSERT_ROWS, first=first, seed=turn + 1))


def _upsert(server: Server, name: str) -> list[float]:
    path = table_path(name, _UPSERT[0]) + _UPSERT[1]
    bodies = [samples.stream(_upsert_batches(turn)).to_pybytes() for turn in range(_UPSERTS)]
    client = Client(iter([post_arrow(server, path, body) for body in bodies]))
    sample = drive(server, [client])
    if sample.errors:
        raise BenchmarkError(f"{server.name} refused an upsert: {sample.note}")
    expect_rows(server, name, _UPSERT_TABLE + _UPSERTS * _UPSERT_ROWS // 2)
    return client.latencies


def _upsert_locally(stage: Stage, base: list[object], number: int) -> list[float]:
    import lance
    import pyarrow as pa

    dataset = lance.write_dataset(samples.reader(base), str(stage.folder / f"local{number}.lance"))
    millis = []
    for turn in range(_UPSERTS):
        rows = pa.Table.from_batches(_upsert_batches(turn))
        began = time.perf_counter()
        dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows)
        millis.append((time.perf_counter() - began) * 1e3)
    if dataset.count_rows() != _UPSERT_TABLE + _UPSERTS * _UPSERT_ROWS // 2:
        raise BenchmarkError(f"pylance itself lost rows: {json.dumps(dataset.count_rows())}")
    return millis
