"""Namespaces are dropped while tables are made in them: never a table in a namespace that is not there."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.rest import RestClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.clients.lakes import Lake

WRITERS = 6


def race(actions: list[Callable[[], int]]) -> list[int]:
    """Do all at the same moment and return what each came to."""
    start = threading.Barrier(len(actions))

    def run(action: Callable[[], int]) -> int:
        start.wait(timeout=60)
        return action()

    with ThreadPoolExecutor(len(actions)) as threads:
        return list(threads.map(run, actions))


class Arena:
    """Servers on one catalog, and what callers do there to one namespace."""

    def __init__(self, clients: list[RestClient]) -> None:
        self.clients = clients
        self.turn = 0

    def client(self) -> RestClient:
        self.turn += 1
        return self.clients[self.turn % len(self.clients)]

    def call(self, path: str, body: dict[str, Any] | None = None) -> Callable[[], int]:
        client = self.client()
        return lambda: client.raw.post(path, json=body or {}).status_code

    def listed(self, space: str) -> list[str] | None:
        """Return the tables that a namespace is said to hold by all servers, none when there is no such namespace."""
        answers = [client.raw.get(f"/v1/namespace/{space}/table/list") for client in self.clients]
        assert len({answer.status_code for answer in answers}) == 1
        if answers[0].status_code == 404:
            return None
        found: list[list[str]] = [answer.json()["tables"] for answer in answers]
        assert all(names == found[0] for names in found)
        return found[0]

    def tables_anywhere(self) -> set[str]:
        return set(self.clients[0].get("/v1/table", delimiter="$")["tables"])


@pytest.fixture
def arena(twins: list[Lake]) -> Iterator[Arena]:
    with ExitStack() as stack:
        yield Arena([stack.enter_context(RestClient(lake.url)) for lake in twins])


@pytest.mark.parametrize("behavior", ["Restrict", "Cascade"])
def test_a_drop_and_declarations_leave_no_orphan(arena: Arena, behavior: str) -> None:
    for number in range(12):
        space = f"{behavior}{number}"
        assert arena.call(f"/v1/namespace/{space}/create")() == 200
        declare = [arena.call(f"/v1/table/{space}$t{i}/declare") for i in range(WRITERS)]
        drop = arena.call(f"/v1/namespace/{space}/drop", {"behavior": behavior})
        dropped, *declared = race([drop, *declare])
        made = [f"t{i}" for i, status in enumerate(declared) if status == 200]
        assert set(declared) <= {200, 404}
        if behavior == "Restrict":
            assert dropped in {200, 409}
            assert arena.listed(space) == (None if dropped == 200 else made)
            assert dropped == 409 or not made
        else:
            assert dropped == 200
            assert arena.listed(space) is None
    spaces = set(arena.clients[0].get("/v1/namespace/$/list", delimiter="$")["namespaces"])
    assert {name.split("$")[0] for name in arena.tables_anywhere() if "$" in name} <= spaces


def test_a_drop_and_creations_of_child_namespaces_leave_no_orphan(arena: Arena) -> None:
    for number in range(8):
        space = f"parent{number}"
        assert arena.call(f"/v1/namespace/{space}/create")() == 200
        create = [arena.call(f"/v1/namespace/{space}$c{i}/create") for i in range(WRITERS)]
        drop = arena.call(f"/v1/namespace/{space}/drop", {"behavior": "Cascade"})
        dropped, *created = race([drop, *create])
        assert dropped == 200
        assert set(created) <= {200, 404}
        for i in range(WRITERS):
            assert arena.call(f"/v1/namespace/{space}$c{i}/exists")() == 404


def test_a_table_moved_into_a_namespace_that_is_dropped_is_nowhere_or_there(arena: Arena) -> None:
    for number in range(8):
        home, away = f"home{number}", f"away{number}"
        for space in (home, away):
            assert arena.call(f"/v1/namespace/{space}/create")() == 200
        assert arena.call(f"/v1/table/{home}$t/declare")() == 200
        body = {"new_table_name": "t", "new_namespace_id": [away]}
        move = arena.call(f"/v1/table/{home}$t/rename", body)
        moved, dropped = race([move, arena.call(f"/v1/namespace/{away}/drop", {"behavior": "Restrict"})])
        assert (moved, dropped) in {(200, 409), (404, 200)}
        assert arena.listed(home) == ([] if moved == 200 else ["t"])
        assert arena.listed(away) == (["t"] if moved == 200 else None)


def test_one_of_many_who_want_a_name_gets_it(arena: Arena) -> None:
    for number in range(6):
        namespaces = race([arena.call(f"/v1/namespace/wanted{number}/create") for _ in range(WRITERS)])
        assert sorted(namespaces) == [200] + [409] * (WRITERS - 1)
        tables = race([arena.call(f"/v1/table/wanted{number}/declare") for _ in range(WRITERS)])
        assert sorted(tables) == [200] + [409] * (WRITERS - 1)
        drops = race([arena.call(f"/v1/table/wanted{number}/drop") for _ in range(WRITERS)])
        assert sorted(drops) == [200] + [404] * (WRITERS - 1)
