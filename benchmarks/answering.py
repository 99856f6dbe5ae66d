"""Measure large answers: how fast they flow, when they begin, and what memory they take."""

from __future__ import annotations

import json
import time
from statistics import mean
from typing import TYPE_CHECKING, Any

import samples
from memory import Watch
from servers import PENNON, BenchmarkError
from stage import fill, table_path
from transfer import download, fetch
from verdicts import LOCAL

if TYPE_CHECKING:
    from collections.abc import Callable

    from servers import Server
    from stage import Stage

_TABLE = "t"
_AT_ONCE = 16
_FIRST_QUERIES = 16  # each on a connection of its own, so that every process of a server has answered some
_ALL = 2**31 - 1  # the largest k that the peer takes

Request = tuple[str, str]


def by_specification(k: int) -> Request:
    """Ask for rows as the specification has it; the answer is an Arrow file."""
    body = {"id": [_TABLE], "vector": {"single_vector": []}, "k": k}
    return table_path(_TABLE, "query"), json.dumps(body)


def by_remote_client(k: int) -> Request:
    """Ask for rows as LanceDB's remote client does; the answer is an Arrow stream."""
    body = {"vector": [], "k": k, "version": None, "prefilter": True}
    return f"/v1/table/{_TABLE}/query/", json.dumps(body)


def measure_one(stage: Stage) -> None:
    """Read one large answer; Pennon's by its own two routes."""
    rows = samples.rows_for(stage.plan.megabytes)
    cases: dict[str, Callable[[Server], Request]] = {"query-1GB": _whole_table, "query-1GB file": _as_file}
    with stage.servers() as servers:
        local = _prepare(stage, servers, rows)
        watches = {(server.name, case): Watch(server) for server in servers for case in cases}
        for _ in range(stage.plan.rounds):
            stage.add("query-1GB", LOCAL, **_scan_locally(local, rows))
            for server in servers:
                for case, request in cases.items():
                    if case == "query-1GB" or server.name == PENNON:
                        with stage.awake(server):
                            _read(stage, server, case, [request(server)], rows, watches[server.name, case])
        for server in servers:
            with stage.awake(server):
                _verify(server, rows)


def measure_many(stage: Stage) -> None:
    """Read 16 answers of a tenth of the size at once."""
    rows = samples.rows_for(stage.plan.megabytes / 10)
    with stage.servers() as servers:
        _prepare(stage, servers, rows)
        watches = {server.name: Watch(server) for server in servers}
        for _ in range(stage.plan.rounds):
            for server in servers:
                with stage.awake(server):
                    requests = [_whole_table(server)] * _AT_ONCE
                    _read(stage, server, "query-16x100MB", requests, rows, watches[server.name])
        for server in servers:
            with stage.awake(server):
                _verify(server, rows)


def _whole_table(server: Server) -> Request:
    return by_remote_client(2**63 - 1) if server.name == PENNON else by_specification(_ALL)


def _as_file(_: Server) -> Request:
    return by_specification(_ALL)


def _prepare(stage: Stage, servers: list[Server], rows: int) -> str:
    """Write the same table with pylance alone and through each server, and let each answer first small queries."""
    import lance

    made = list(samples.batches(rows))
    local = str(stage.folder / "local.lance")
    lance.write_dataset(samples.reader(made), local)
    for server in servers:
        with stage.awake(server):
            fill(server, _TABLE, samples.reader(made))
            for _ in range(_FIRST_QUERIES):
                fetch(server, *by_specification(10))
    return local


def _read(stage: Stage, server: Server, case: str, requests: list[Request], rows: int, watch: Watch) -> None:
    began = time.perf_counter()
    with watch:
        answers = download(server, requests)
    seconds = time.perf_counter() - began
    expected = rows * samples.ROW_BYTES
    for answer in answers:
        if not expected < answer.bytes < expected * 1.2:
            raise BenchmarkError(f"{server.name} answered {answer.bytes} bytes where {expected} of data are due")
    stage.add(
        case,
        server.name,
        speed=len(answers) * expected / 1e6 / seconds,
        p50=sorted(answer.seconds for answer in answers)[len(answers) // 2] * 1e3,
        first=mean(answer.first / answer.seconds for answer in answers) * 100,
        growth=watch.growth,
    )


def _scan_locally(path: str, rows: int) -> dict[str, float]:
    import lance

    began = time.perf_counter()
    found = first = 0.0
    for batch in lance.dataset(path).scanner().to_reader():
        first = first or time.perf_counter() - began
        found += batch.num_rows
    seconds = time.perf_counter() - began
    if found != rows:
        raise BenchmarkError(f"pylance itself read {found} of {rows} rows")
    return {"speed": rows * samples.ROW_BYTES / 1e6 / seconds, "p50": seconds * 1e3, "first": first / seconds * 100}


def _verify(server: Server, rows: int) -> None:
    """Parse a whole answer and look at its rows."""
    import pyarrow as pa
    import pyarrow.compute as pc

    answers: list[Any] = [pa.ipc.open_file(fetch(server, *by_specification(_ALL))).read_all()]
    if server.name == PENNON:
        answers.append(pa.ipc.open_stream(fetch(server, *_whole_table(server))).read_all())
    for answer in answers:
        total = pc.sum(answer["id"]).as_py()
        if answer.num_rows != rows or total != rows * (rows - 1) // 2:
            raise BenchmarkError(f"{server.name} answered {answer.num_rows} rows with ids that add up to {total}")
