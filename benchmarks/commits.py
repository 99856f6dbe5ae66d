"""Measure CreateTableVersion with real manifests, made before the clock starts, the same for both servers."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from load import Client, Sample, drive, failed
from operations import NAMESPACE, expect, post
from servers import BenchmarkError, Server

if TYPE_CHECKING:
    from collections.abc import Iterator

_LARGEST = 2**64 - 1  # a manifest's file name counts down from here, so that the newest sorts first
_RATE_LIMIT_ONE = 1500  # commits a second that one client is prepared for; a cell without more ends early
_RATE_LIMIT_ALL = 4000  # the same for all clients of a cell together


@dataclass(frozen=True)
class Chain:
    """The history of a scratch table: its files, and the manifest of each version from 1 on."""

    folder: Path
    manifests: list[bytes]


def prepared_commits(seconds: int, connections: int) -> int:
    """Say how many commits to prepare for each client."""
    return seconds * min(_RATE_LIMIT_ONE, max(_RATE_LIMIT_ALL // connections, 1))


def build_chain(folder: Path, length: int) -> Chain:
    """Commit `length` versions of a scratch table with plain pylance.

    Every version after the first changes only the table's configuration: all manifests name the same data
    file, so a table that holds that file can take any of them.
    """
    import lance
    import pyarrow as pa

    location = folder / "scratch.lance"
    dataset = lance.write_dataset(pa.table({"key": [1, 2, 3]}), str(location))
    for number in range(2, length + 1):
        dataset.update_config({"benchmark.step": str(number)})
    names = [location / "_versions" / f"{_LARGEST - number}.manifest" for number in range(1, length + 1)]
    return Chain(location, [name.read_bytes() for name in names])


@dataclass(frozen=True)
class _Commit:
    """A prepared commit: a file kept aside, the place where a writer would stage it, and the request."""

    kept: Path
    staged: Path
    request: bytes


class _Table:
    """A declared table with the files of the scratch table, and its commits ready to be sent."""

    def __init__(self, server: Server, name: str, chain: Chain, length: int, aside: Path) -> None:
        self._server = server
        self._identifier = [NAMESPACE, name]
        answer = json.loads(expect(server, post("table", self._identifier, "declare")))
        self.location = Path(unquote(urlsplit(answer["location"]).path))
        self._aside = aside / name
        self._aside.mkdir(parents=True)
        self._copy_files(chain, length)
        self._commits = [self._prepare(n, bytes_) for n, bytes_ in enumerate(chain.manifests[:length], 1)]

    def _copy_files(self, chain: Chain, length: int) -> None:
        shutil.copytree(chain.folder / "data", self.location / "data")
        transactions = self.location / "_transactions"
        transactions.mkdir(parents=True)
        (self.location / "_versions").mkdir(exist_ok=True)
        for source in (chain.folder / "_transactions").iterdir():
            # "<read version>-<uuid>.txn": only those that the prepared manifests name.
            if int(source.name.partition("-")[0]) < length:
                os.link(source, transactions / source.name)

    def _prepare(self, number: int, manifest: bytes) -> _Commit:
        name = f"{_LARGEST - number}.manifest-{uuid.uuid4()}"
        kept = self._aside / name
        kept.write_bytes(manifest)
        staged = self.location / "_versions" / name
        request = post(
            "table",
            self._identifier,
            "version/create",
            version=number,
            manifest_path=str(staged).lstrip("/"),
            manifest_size=len(manifest),
            e_tag=_entity_tag(kept),
            naming_scheme="V2",
        )
        return _Commit(kept, staged, request.wire(self._server))

    def feed(self) -> Iterator[bytes]:
        """Stage each manifest just before its request, as a writer does.

        Were all of them staged beforehand, a server that lists `_versions/` would pay for thousands of files
        that no real table has there. Renaming keeps inode and time, and so the entity tag.
        """
        for commit in self._commits:
            commit.kept.rename(commit.staged)
            yield commit.request

    def verify(self, committed: int) -> None:
        """Open the table and check that all acknowledged commits are there."""
        import lance

        dataset = lance.dataset(str(self.location))
        if dataset.version != committed or dataset.count_rows() != 3:
            raise BenchmarkError(
                f"{self._server.name} acknowledged {committed} versions of {self._identifier}, "
                f"the table is at version {dataset.version}"
            )


def _entity_tag(path: Path) -> str:
    """Tag a local file as object stores of Lance do: inode, microseconds and size, in hexadecimal."""
    stat = path.stat()
    return f'"{stat.st_ino:x}-{stat.st_mtime_ns // 1000:x}-{stat.st_size:x}"'


def measure_commits(server: Server, chain: Chain, connections: int, seconds: int, tag: str, folder: Path) -> Sample:
    """Let each client commit version after version of a table of its own."""
    length = min(len(chain.manifests), prepared_commits(seconds, connections))
    aside = folder / f"staged_{server.name}"
    try:
        tables = [_Table(server, f"c{tag}_{n}", chain, length, aside) for n in range(connections)]
        feeds = [table.feed() for table in tables]
        # Version 1 makes the declared table a real one: no part of the measurement.
        first = drive(server, [Client(itertools.islice(feed, 1)) for feed in feeds])
        if first.errors:
            return failed(first.note)
        clients = [Client(feed) for feed in feeds]
        sample = drive(server, clients, seconds)
        for table, client in zip(tables, clients, strict=True):
            if not client.problems:
                table.verify(1 + client.succeeded)
        return sample
    finally:
        shutil.rmtree(aside, ignore_errors=True)
