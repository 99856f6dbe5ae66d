"""Clients that send random requests to a server that is killed at random moments, and record the responses."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import httpx
import lance
import lance_namespace as ln
import pyarrow as pa

from tests.clients.lakes import ARROW, ClientTable, Lake, arrow_stream, ids_of, rows
from tests.support.rest import RestClient
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.server import PennonProcess

Result = TypeVar("Result")
SHARED = "shared"
#: How pylance says that a connection broke.
CUT_OFF = ("ConnectionReset", "BrokenPipe", "IncompleteMessage", "ChannelClosed")
TABLES = ("a", "b", "c", "d")


class Killer:
    """Kills the server, or one of its processes, and knows whether a failure may be due to that."""

    def __init__(self, server: PennonProcess, seed: int) -> None:
        self.server = server
        self.kill_count = 0
        self._random = random.Random(seed)  # noqa: S311 (a test that can be repeated)
        self._is_up = threading.Event()
        self._is_up.set()

    def kill(self, *, whole: bool) -> None:
        """Kill at a moment that nobody expects, and bring back what was killed."""
        time.sleep(self._random.uniform(0, 0.05))
        self._is_up.clear()
        self.kill_count += 1
        if whole:
            self.server.kill()
            self.server.start()
        else:
            os.kill(self._random.choice(children_of(self.server.pid)), signal.SIGKILL)
            wait_until(lambda: len(children_of(self.server.pid)) == 2, "the dead process is replaced")
        wait_until(self._answers, "the server answers")
        self._is_up.set()

    def excuses(self, error: Exception, kills_before: int) -> bool:
        """Tell whether a call that began after this many kills may have failed because of one.

        A client may also find out late, when it uses again a connection to a process that was killed long ago.
        """
        cut_off = isinstance(error, httpx.TransportError) or any(sign in str(error) for sign in CUT_OFF)
        return self.kill_count > kills_before or not self._is_up.is_set() or (cut_off and self.kill_count > 0)

    def repeat_until_up(self, look: Callable[[], Result]) -> Result:
        """Look at what the server says, again and again until no kill comes between."""
        while True:
            self._is_up.wait()
            kills = self.kill_count
            try:
                return look()
            except Exception as error:
                if not self.excuses(error, kills):
                    raise

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.server.url}/healthz", trust_env=False).status_code == 200
        except httpx.TransportError:
            return False


def children_of(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()]


class Worker:
    """One client with a namespace of its own, and one table that it shares with all."""

    def __init__(self, number: int, lake: Lake, killer: Killer, seed: int) -> None:
        self.space = f"w{number}"
        self.lake = lake
        self.killer = killer
        self.random = random.Random(seed)  # noqa: S311 (a test that can be repeated)
        self.client = lake.connect()
        self.http = RestClient(lake.url)
        self.next_id = number * 1_000_000
        #: What is known to be there: tables with their rows, and child namespaces.
        self.tables: dict[str, set[int] | None] = {}
        self.children: set[str] = set()
        self.shared: set[int] = set()
        self.done = 0
        self.unknown = 0

    def start(self) -> None:
        self.http.post(f"/v1/namespace/{self.space}/create")

    def step(self) -> None:
        """Do something at random."""
        action = self.random.choices(
            [
                self.declare,
                self.append,
                self.insert,
                self.append_shared,
                self.delete,
                self.rename,
                self.drop,
                self.nest,
            ],
            [2, 6, 3, 4, 2, 2, 2, 2],
        )[0]
        action()
        self.done += 1

    def attempt(self, work: Callable[[], object], acknowledge: Callable[[], None], look: Callable[[], None]) -> None:
        """Do something; when the server died meanwhile, look what became of it."""
        kills = self.killer.kill_count
        try:
            work()
        except Exception as error:
            if not self.killer.excuses(error, kills):
                raise
            self.unknown += 1
            self.killer.repeat_until_up(look)
        else:
            acknowledge()

    def take_ids(self) -> list[int]:
        count = self.random.randint(1, 3)
        self.next_id += count
        return list(range(self.next_id - count, self.next_id))

    def pick(self, *, written: bool) -> str | None:
        names = [name for name, found in self.tables.items() if (found is not None) == written]
        return self.random.choice(sorted(names)) if names else None

    def table(self, name: str) -> ClientTable:
        return ClientTable(self.lake, self.client, *([SHARED] if name == SHARED else [self.space, name]))

    def contents(self, name: str) -> set[int] | None:
        """Return the rows of a table, none when it is only declared; raises when there is no such table."""
        table = self.table(name)
        described = self.client.describe_table(ln.DescribeTableRequest(id=table.id, check_declared=True))
        if described.is_only_declared:
            return None
        found = ids_of(table.open().to_table(columns=["id"]))
        assert len(found) == len(set(found)), f"rows of {name} are there twice"
        return set(found)

    def names(self) -> set[str]:
        return set(self.http.get(f"/v1/namespace/{self.space}/table/list")["tables"])

    def declare(self) -> None:
        free = [name for name in TABLES if name not in self.tables]
        if not free:
            return
        name = self.random.choice(free)

        def look() -> None:
            if name in self.names():
                assert self.contents(name) is None
                self.tables[name] = None

        def acknowledge() -> None:
            self.tables[name] = None

        self.attempt(lambda: self.http.post(f"/v1/table/{self.space}${name}/declare"), acknowledge, look)

    def change_rows(self, name: str, after: set[int], work: Callable[[], object]) -> None:
        before = self.tables[name]

        def acknowledge() -> None:
            self.tables[name] = after

        def look() -> None:
            found = self.contents(name)
            assert found in (before, after), f"{name} is neither as it was nor as it was to be"
            self.tables[name] = found

        self.attempt(work, acknowledge, look)

    def append(self) -> None:
        """Append with pylance, which commits through the server; the first time, that writes a declared table."""
        name = self.pick(written=True)
        if name is None:
            self.create()
            return
        ids = self.take_ids()
        data = rows_of(ids)
        self.change_rows(name, (self.tables[name] or set()) | set(ids), lambda: self.table(name).write(data))

    def create(self) -> None:
        free = [name for name in TABLES if name not in self.tables]
        if not free:
            return
        name, ids = self.random.choice(free), self.take_ids()
        data = rows_of(ids)

        def look() -> None:
            if name in self.names():
                found = self.contents(name)
                assert found in (None, set(ids))
                self.tables[name] = found

        def acknowledge() -> None:
            self.tables[name] = set(ids)

        self.attempt(lambda: self.table(name).write(data, "create"), acknowledge, look)

    def insert(self) -> None:
        """Append through the server's own data plane."""
        name = self.pick(written=True)
        if name is None:
            return
        ids = self.take_ids()
        body, path = arrow_stream(rows_of(ids)), f"/v1/table/{self.space}${name}/insert?delimiter=%24"

        def work() -> None:
            self.http.raw.post(path, content=body, headers=ARROW).raise_for_status()

        self.change_rows(name, (self.tables[name] or set()) | set(ids), work)

    def append_shared(self) -> None:
        ids = self.take_ids()

        def look() -> None:
            found = self.contents(SHARED) or set()
            assert found.isdisjoint(ids) or found >= set(ids)
            self.shared |= found & set(ids)

        def acknowledge() -> None:
            self.shared |= set(ids)

        self.attempt(lambda: self.table(SHARED).write(rows_of(ids)), acknowledge, look)

    def delete(self) -> None:
        name = self.pick(written=True)
        if name is None or not self.tables[name]:
            return
        present = self.tables[name] or set()
        gone = self.random.choice(sorted(present))
        self.change_rows(name, present - {gone}, lambda: self.table(name).open().delete(f"id = {gone}"))

    def rename(self) -> None:
        free = [name for name in TABLES if name not in self.tables]
        if not free or not self.tables:
            return
        old, new = self.random.choice(sorted(self.tables)), self.random.choice(free)

        def acknowledge() -> None:
            self.tables[new] = self.tables.pop(old)

        def look() -> None:
            names = self.names() & {old, new}
            assert len(names) == 1, f"{old}, to be renamed to {new}, is now {names}"
            assert self.contents(*names) == self.tables[old]
            if names == {new}:
                acknowledge()

        path = f"/v1/table/{self.space}${old}/rename"
        self.attempt(lambda: self.http.post(path, {"new_table_name": new}), acknowledge, look)

    def drop(self) -> None:
        if not self.tables:
            return
        name = self.random.choice(sorted(self.tables))

        def acknowledge() -> None:
            del self.tables[name]

        def look() -> None:
            if name not in self.names():
                acknowledge()
            else:
                assert self.contents(name) == self.tables[name]

        self.attempt(lambda: self.http.post(f"/v1/table/{self.space}${name}/drop"), acknowledge, look)

    def nest(self) -> None:
        """Make a child namespace with a table in it, or drop it with all it holds."""
        name = self.random.choice(("x", "y"))
        path = f"/v1/namespace/{self.space}${name}"

        def present() -> bool:
            return self.http.raw.post(f"{path}/exists", json={}).status_code == 200

        def look() -> None:
            (self.children.add if present() else self.children.discard)(name)

        if name in self.children:
            work = lambda: self.http.post(f"{path}/drop", {"behavior": "Cascade"})  # noqa: E731
            self.attempt(work, lambda: self.children.discard(name), look)
            return
        self.attempt(lambda: self.http.post(f"{path}/create"), lambda: self.children.add(name), look)
        if name in self.children:
            declare = f"/v1/table/{self.space}${name}$t/declare"
            self.attempt(lambda: self.http.post(declare), lambda: None, lambda: None)

    def check(self) -> None:
        """Insist that all that was acknowledged is there, and nothing else."""
        assert self.names() == set(self.tables)
        assert set(self.http.get(f"/v1/namespace/{self.space}/list")["namespaces"]) == self.children
        for name, expected in self.tables.items():
            assert self.contents(name) == expected, f"{self.space}${name}"
            if expected is not None:
                check_versions(self.table(name))


def rows_of(ids: list[int]) -> pa.Table:
    return rows(ids[0], ids[-1] + 1)


def check_versions(table: ClientTable) -> None:
    """Insist that server and storage agree on the versions, without a gap, and that each can be opened."""
    recorded = table.recorded()
    assert recorded == list(range(1, len(recorded) + 1))
    finals = {name for name in table.lake.files(table.location, "_versions") if name.endswith(".manifest")}
    assert {2**64 - 1 - int(name.removesuffix(".manifest")) for name in finals} == set(recorded)
    assert lance.dataset(table.location).version == recorded[-1]
