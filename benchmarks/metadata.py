"""Measure Pennon's metadata operations beside pylance's RestAdapter, in one run on one machine.

All servers run on loopback, each on a fresh folder of its own. Pennon runs in one or several set-ups: its catalog in
SQLite or in PostgreSQL, and its callers with or without a key. Cells alternate between the servers, and those that are
not measured are suspended meanwhile, so that noise affects all and none competes with another. Nothing here asserts a
time: the exit code is 0 unless a server or a tool fails.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from commits import Chain, build_chain, measure_commits, prepared_commits
from load import Sample, call, failed, require_wrk, run_wrk
from operations import COMMIT, FILL_CONNECTIONS, OPERATIONS, PAGE, WRITTEN, Operation, fill, requests_of
from report import UNSTEADY, Key, Report, Results
from servers import PEER, PENNON, BenchmarkError, Server
from setups import SETUPS, background_writer, create_writer_tables, start_setup
from stage import choose, say

if TYPE_CHECKING:
    from collections.abc import Sequence

_SLOW_FACTOR = 7  # a cell with too few answers is measured again for this many times longer
_FEWEST_ROUNDS = 3  # answers a connection must have got for a rate to mean something


def numbers(text: str) -> list[int]:
    """Parse a list like 1,16."""
    return [int(part) for part in text.split(",")]


def operations(text: str) -> list[Operation]:
    """Parse a list of operations' names."""
    known = {operation.name: operation for operation in OPERATIONS}
    return [known[name] for name in choose(known, text)]


def setups(text: str) -> list[str]:
    """Parse a list of set-ups."""
    return choose(SETUPS, text)


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    style = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=style)
    parser.add_argument("--sizes", type=numbers, default=[100, 1000, 10000], help="tables in the catalog")
    parser.add_argument("--connections", type=numbers, default=[1, 16])
    parser.add_argument("--seconds", type=int, default=3, help="length of a cell")
    parser.add_argument("--rounds", type=int, default=2, help="runs of a cell; the medians count")
    names = ", ".join(operation.name for operation in OPERATIONS)
    parser.add_argument("--only", type=operations, default=list(OPERATIONS), metavar="OP,...", help=names)
    parser.add_argument("--setup", type=setups, default=[SETUPS[0]], metavar="SETUP,...", help=", ".join(SETUPS))
    parser.add_argument("--writer", type=float, default=0.0, metavar="RATE", help="inserts a second during each cell")
    parser.add_argument("--output", choices=["table", "json"], default="table")
    alone = parser.add_mutually_exclusive_group()
    alone.add_argument("--peer-only", dest="servers", action="store_const", const=[PEER])
    alone.add_argument("--pennon-only", dest="servers", action="store_const", const=[PENNON])
    parser.set_defaults(servers=[PEER, PENNON])
    chosen = parser.parse_args(given)
    chosen.names = [name for kind in chosen.servers for name in ([PEER] if kind == PEER else chosen.setup)]
    if min(chosen.sizes) <= WRITTEN or min([*chosen.connections, chosen.seconds, chosen.rounds]) < 1:
        parser.error(f"sizes start above {WRITTEN}; connections, seconds and rounds at 1")
    return chosen


class Bench:
    """A run: the folder it works in, and what it has found."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self._options = options
        self._folder = folder
        self._slow: set[tuple[str, Key]] = set()
        self._cells = 0
        self._chain: Chain | None = None
        self.results: Results = {}
        self.notes: list[str] = []

    def run(self) -> None:
        """Measure all sizes."""
        if any(operation.name == COMMIT for operation in self._options.only):
            length = max(prepared_commits(self._options.seconds, c) for c in self._options.connections)
            say(f"preparing {length} manifests")
            self._chain = build_chain(self._folder, length)
        for size in self._options.sizes:
            with contextlib.ExitStack() as stack:
                self._measure_size(size, stack)

    def _measure_size(self, size: int, stack: contextlib.ExitStack) -> None:
        servers = []
        # Registered first, so it runs when the servers have stopped: the peer keeps gigabytes.
        stack.callback(shutil.rmtree, self._folder / str(size), ignore_errors=True)
        for name in self._options.names:
            server = start_setup(name, self._folder / str(size), stack)
            seconds = fill(server, size)
            if self._options.writer:
                create_writer_tables(server)
            say(f"{name}: {size} tables, declared in {seconds:.1f} s")
            self.notes.append(f"{name}: {size} tables were made in {seconds:.1f} s, {FILL_CONNECTIONS} connections.")
            server.settle()
            server.pause()
            servers.append(server)
        for operation in self._options.only:
            for connections in self._options.connections:
                self._measure_cell(Key(operation.name, size, connections), operation, servers)

    def _measure_cell(self, key: Key, operation: Operation, servers: list[Server]) -> None:
        found = self.results.setdefault(key, {server.name: [] for server in servers})
        for _ in range(self._options.rounds):
            for server in servers:
                server.resume()
                with background_writer(server, self._options.writer):
                    sample = self._sample(server, key, operation)
                found[server.name].append(sample)
                server.settle()
                server.pause()
        rates = ", ".join(f"{name} {'/'.join(f'{s.rate:.1f}' for s in runs)}" for name, runs in found.items())
        say(f"{key.operation} {key.size} c={key.connections}: {rates}")

    def _sample(self, server: Server, key: Key, operation: Operation) -> Sample:
        seconds = self._options.seconds
        self._cells += 1
        tag = f"{self._cells}x{time.time_ns() % 10**6}"
        if operation.name == COMMIT:
            assert self._chain is not None
            return measure_commits(server, self._chain, key.connections, seconds, tag, self._folder)
        refusal = self._probe(server, key, tag)
        if refusal:
            return failed(refusal)
        requests = self._folder / "requests.txt"
        requests.write_text("\n".join(r.line() for r in requests_of(key.operation, key.size)) + "\n")
        if (server.name, key) not in self._slow:
            if not operation.grows:  # a halted server first has to catch up and fill its caches
                run_wrk(server, requests, key.connections, seconds, tag)
            sample = run_wrk(server, requests, key.connections, seconds, tag)
            if sample.errors or sample.requests >= _FEWEST_ROUNDS * key.connections:
                return sample
            self._slow.add((server.name, key))
            server.settle()
        return run_wrk(server, requests, key.connections, seconds * _SLOW_FACTOR, f"{tag}s")

    def _probe(self, server: Server, key: Key, tag: str) -> str:
        """Try the operation once; return what is wrong with the answer, if anything."""
        request = requests_of(key.operation, key.size)[-1].named(f"{tag}p")
        status, body = call(server, request)
        if status != 200:
            return f"HTTP {status}: {body[:200].decode(errors='replace')}"
        if key.operation.startswith("List"):
            count, most = len(json.loads(body)["tables"]), min(PAGE, key.size)
            note = f"{server.name}: a page of {key.operation} has {count} of {most} tables."
            if count != most and note not in self.notes:
                self.notes.append(note)
        return ""


FOOTER = (
    f"All tables are in one namespace; {WRITTEN} of them hold data, the others are declared.",
    "Rates count successes only and are medians of the rounds; ! marks a cell with errors.",
    f"~ marks a cell whose rounds differ by more than {UNSTEADY}x: measure it again on a quieter machine.",
    "The peer's ListAllTables knows tables of the root namespace only: its page here is empty.",
    "wrk corrects latencies for coordinated omission; those of CreateTableVersion are as they were seen.",
    "Operations that create run last and grow the catalog: the faster server meets the larger one.",
)


def main() -> int:
    """Run the benchmark and print the report."""
    options = arguments()
    # The servers are in sessions of their own: without the clean-up they would outlive this process.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="pennon-bench-", ignore_cleanup_errors=True) as folder:
        bench = Bench(options, Path(folder))
        try:
            require_wrk()
            bench.run()
        except BenchmarkError as problem:
            say(f"error: {problem}")
            return 1
    chosen = options.setup if PENNON in options.servers else [PEER]
    reports = {setup: Report(_results_of(bench.results, setup), [*FOOTER, *bench.notes]) for setup in chosen}
    if options.output == "json":
        print(json.dumps({setup: report.as_document() for setup, report in reports.items()}, indent=2))
        return 0
    for setup, report in reports.items():
        print(f"Set-up: {setup}\n{report.as_table()}\n")
    return 0


def _results_of(results: Results, setup: str) -> Results:
    """Return the samples of the peer and of Pennon in one set-up."""
    names = {PEER: PEER, setup: PENNON} if setup != PEER else {PEER: PEER}
    return {key: {names[name]: runs for name, runs in found.items() if name in names} for key, found in results.items()}


if __name__ == "__main__":
    sys.exit(main())
