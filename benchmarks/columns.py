"""Tables whose columns are filled: one that Pennon manages, and its copy for the loop written by hand."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import pennon
from family import Family
from servers import BenchmarkError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from features import Feature
    from handwritten import Loop
    from pennon.client import Job
    from servers import Server

COLUMN = "filled"
_MEGABYTE = 1e6
_STEPS = ("claimed", "planned", "preflight", "committed", "done")
_COUNTERS = ("read", "udf", "write", "commit")


@dataclass(frozen=True)
class Filled:
    """What it took to fill a column: seconds, megabytes on the disk, and where the time went."""

    seconds: float
    megabytes: float
    parts: Mapping[str, float] = field(default_factory=dict)

    def values(self) -> dict[str, float]:
        """Return all of it by name."""
        return {"seconds": self.seconds, "megabytes": self.megabytes, **self.parts}


class Managed:
    """A table of a Pennon server."""

    def __init__(self, server: Server, name: str, rows: int, fragments: int) -> None:
        self._server = server
        self._name = name
        self._table = pennon.connect(server.url).create_table(name, _rows(0, rows // fragments))
        for number in range(1, fragments):
            self._table.add(_rows(number, rows // fragments))
        found = len(self.open().get_fragments())
        if found != fragments:
            raise BenchmarkError(f"the table {name} has {found} fragments instead of {fragments}")

    @property
    def folder(self) -> Path:
        """Where it is stored."""
        return self._server.root / f"{self._name}.lance"

    def open(self) -> Any:
        """Open the newest version, with the client that people use."""
        import lance
        import lance_namespace

        client = lance_namespace.connect("rest", {"uri": self._server.url})
        return lance.dataset(namespace_client=client, table_id=[self._name])

    def declare(self, feature: Feature, version: str | None = None) -> None:
        """Add the column, which is empty so far."""
        self._table.add_columns({COLUMN: feature.declared(version)})

    def fill(self, feature: Feature, **options: Any) -> Filled:
        """Have the whole column filled, whether or not it was before, and check it."""
        Family(self._server).settle()
        before, began = _size(self.folder), time.perf_counter()
        job = self._table.backfill(COLUMN, mode="all", progress=False, **options)
        seconds = time.perf_counter() - began
        grown = _size(self.folder) - before
        feature.verify(self.open(), COLUMN)
        _trim(self.folder, self.open())
        return Filled(seconds, grown / _MEGABYTE, _parts(job))

    def forget(self) -> None:
        """Take the column away."""
        self._table.drop_columns([COLUMN])
        _trim(self.folder, self.open())


class Copy:
    """The same table, apart from Pennon, which is halted while it is worked on."""

    def __init__(self, managed: Managed, server: Server, loop: Loop, folder: Path) -> None:
        self._folder = folder / managed.folder.name
        self._server = server
        self._loop = loop
        shutil.copytree(managed.folder, self._folder)

    def declare(self, feature: Feature) -> None:
        """Add the column, which is empty so far."""
        self._open().add_columns(pa.field(COLUMN, feature.data_type))

    def fill(self, feature: Feature) -> Filled:
        """Fill the whole column by hand, and check it."""
        family = Family(self._server)
        family.settle()
        family.pause()
        try:
            before, began = _size(self._folder), time.perf_counter()
            self._loop.fill(str(self._folder), COLUMN, feature)
            seconds = time.perf_counter() - began
            grown = _size(self._folder) - before
        finally:
            family.resume()
        feature.verify(self._open(), COLUMN)
        _trim(self._folder, self._open())
        return Filled(seconds, grown / _MEGABYTE)

    def forget(self) -> None:
        """Take the column away."""
        self._open().drop_columns([COLUMN])
        _trim(self._folder, self._open())

    def _open(self) -> Any:
        import lance

        return lance.dataset(str(self._folder))


def _rows(number: int, count: int) -> pa.Table:
    chance = np.random.default_rng(number)
    ids = np.arange(number * count, (number + 1) * count, dtype=np.int64)
    return pa.table({"id": ids, "x": chance.random(count), "y": chance.random(count) + 1.0})


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _trim(folder: Path, dataset: Any) -> None:
    """Remove the files that only older versions have: nobody reads those, and the disk would fill."""
    used = {file.path for fragment in dataset.get_fragments() for file in fragment.metadata.files}
    for file in (folder / "data").iterdir():
        if file.name not in used:
            file.unlink()


def _parts(job: Job) -> dict[str, float]:
    """Tell when a job came how far, in milliseconds after it was submitted, and what its tasks did, in seconds."""
    events = job.events()
    # Of the events of a kind the last one counts: so much of the job was behind it.
    came = dict(zip(events["kind"].to_pylist(), events["at"].cast(pa.int64()).to_pylist(), strict=True))
    steps = {step: float(came[step] - came["submitted"]) for step in _STEPS if step in came}
    return steps | {name: job.counters.get(f"{name}_seconds", 0.0) for name in _COUNTERS}
