"""Set the stage for a part: fresh servers, only one of them awake at a time, and tables that both fill alike."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from family import Family
from operations import object_path
from servers import BenchmarkError, start
from transfer import fetch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from servers import Server
    from verdicts import Findings


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    seconds: int
    rounds: int
    megabytes: int
    servers: tuple[str, ...]


def say(text: str) -> None:
    """Tell on stderr what is going on."""
    print(text, file=sys.stderr, flush=True)


def choose(known: Iterable[str], text: str) -> list[str]:
    """Parse a list of known names, and return them in the order of those."""
    names = list(known)
    unknown = sorted(set(text.split(",")) - set(names))
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; choose from {', '.join(names)}")
    return [name for name in names if name in text.split(",")]


class Stage:
    """One part of a run: its folder, its servers, and where its findings go."""

    def __init__(self, plan: Plan, folder: Path, findings: Findings) -> None:
        self.plan = plan
        self.folder = folder
        self.findings = findings

    @contextlib.contextmanager
    def servers(self) -> Iterator[list[Server]]:
        """Start the servers, halted, and take away all they wrote at the end."""
        with contextlib.ExitStack() as stack:
            # Registered first, so it runs when the servers have stopped.
            stack.callback(shutil.rmtree, self.folder, ignore_errors=True)
            self.folder.mkdir(parents=True)
            started = []
            for name in self.plan.servers:
                server = start(name, self.folder)
                stack.callback(server.stop)
                stack.callback(Family(server).resume)
                Family(server).settle()
                Family(server).pause()
                started.append(server)
            yield started

    @contextlib.contextmanager
    def awake(self, server: Server) -> Iterator[None]:
        """Let one server run inside the block; what it wrote is on the disk before the next one is measured."""
        family = Family(server)
        family.resume()
        yield
        family.settle()
        family.pause()
        os.sync()

    def add(self, case: str, name: str, **values: float | None) -> None:
        """Keep the values of one round, and tell them."""
        shown = ", ".join(f"{key} {value:.4g}" for key, value in values.items() if value is not None)
        say(f"  {case}, {name}: {shown}")
        self.findings.add(case, name, **values)


def fill(server: Server, name: str, rows: Any) -> None:
    """Write a table at the root through a server, with the client that people use."""
    import lance
    import lance_namespace

    client = lance_namespace.connect("rest", {"uri": server.url})
    try:
        lance.write_dataset(rows, namespace_client=client, table_id=[name], mode="create")
    except Exception as problem:
        raise BenchmarkError(f"{server.name} refused a table written by pylance: {problem}") from problem


def table_path(name: str, verb: str) -> str:
    """Name the route of an operation on a table at the root."""
    return object_path("table", [name], verb)


def expect_rows(server: Server, name: str, rows: int) -> None:
    """Raise unless a table has this number of rows."""
    found = int(fetch(server, table_path(name, "count_rows"), "{}"))
    if found != rows:
        raise BenchmarkError(f"{server.name}: table {name} has {found} rows instead of {rows}")
