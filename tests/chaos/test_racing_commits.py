"""Many writers want the same version at the same moment: exactly one gets it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from tests.clients.lakes import ARROW, ClientTable, Lake, arrow_stream, rows
from tests.clients.staging import Staged, Stager
from tests.support.rest import RestClient

if TYPE_CHECKING:
    import httpx

WRITERS = 64
CONFLICT = 14


def describe(http: RestClient, table: ClientTable, version: int) -> httpx.Response:
    return http.raw.post(f"/v1/table/{'$'.join(table.id)}/version/describe", json={"version": version})


def propose(http: RestClient, table: ClientTable, staged: Staged) -> httpx.Response:
    return http.raw.post(f"/v1/table/{'$'.join(table.id)}/version/create", json=staged.request(table.id))


class Race:
    """Writers that each hold a staged manifest of the same version, spread over servers."""

    def __init__(self, lakes: list[Lake], stack: ExitStack, name: str, writers: int = WRITERS) -> None:
        self.clients = [stack.enter_context(RestClient(lake.url)) for lake in lakes]
        self.table = ClientTable(lakes[0], lakes[0].connect(), name)
        self.table.write(rows(10), "create")
        stager = Stager(lakes[0], self.table.location)
        self.staged = [stager.append(rows(100 + number, 101 + number)) for number in range(writers)]

    def run(self) -> list[tuple[httpx.Response, httpx.Response | None]]:
        """Let all propose at once; each loser immediately asks another server for the winner."""
        start = threading.Barrier(len(self.staged))

        def write(number: int) -> tuple[httpx.Response, httpx.Response | None]:
            own = self.clients[number % len(self.clients)]
            other = self.clients[(number + 1) % len(self.clients)]
            start.wait(timeout=60)
            answer = propose(own, self.table, self.staged[number])
            return answer, None if answer.status_code == 200 else describe(other, self.table, 2)

        with ThreadPoolExecutor(len(self.staged)) as threads:
            return list(threads.map(write, range(len(self.staged))))

    def check(self, outcomes: list[tuple[httpx.Response, httpx.Response | None]]) -> None:
        winners = [number for number, (answer, _) in enumerate(outcomes) if answer.status_code == 200]
        assert len(winners) == 1
        winner = self.staged[winners[0]]
        won: dict[str, Any] = outcomes[winners[0]][0].json()["version"]
        for answer, seen in outcomes:
            if seen is not None:
                assert (answer.status_code, answer.json()["code"]) == (409, CONFLICT)
                assert seen.status_code == 200, seen.text
                assert seen.json()["version"]["manifest_path"] == won["manifest_path"]
        for client in self.clients:
            assert propose(client, self.table, winner).json()["version"]["version"] == 2
        lake, location = self.table.lake, self.table.location
        assert lake.read(location)[winner.path[winner.path.index("_versions/") :].split("-")[0]] == winner.content
        self.table.check(version=2, ids=[*range(10), 100 + winners[0]])


def test_one_of_many_writers_wins_and_every_loser_sees_the_winner(twins: list[Lake], name: str) -> None:
    with ExitStack() as stack:
        race = Race(twins, stack, name)
        race.check(race.run())


def test_the_same_holds_on_object_storage(s3_lake: Lake, name: str) -> None:
    with ExitStack() as stack:
        race = Race([s3_lake], stack, name, writers=16)
        race.check(race.run())


def test_racing_replays_of_one_commit_all_succeed(twins: list[Lake], name: str) -> None:
    with ExitStack() as stack:
        race = Race(twins, stack, name, writers=1)
        race.staged *= 16
        answers = [answer for answer, _ in race.run()]
        assert [answer.status_code for answer in answers] == [200] * 16
        assert {answer.json()["version"]["version"] for answer in answers} == {2}
        race.table.check(version=2, ids=[*range(10), 100])


def test_one_of_many_who_create_the_same_table_does(twins: list[Lake], name: str) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(RestClient(lake.url)) for lake in twins]
        start = threading.Barrier(8)

        def create(number: int) -> httpx.Response:
            body = arrow_stream(rows(number * 10, number * 10 + 10))
            start.wait(timeout=60)
            return clients[number % 2].raw.post(f"/v1/table/{name}/create?delimiter=%24", content=body, headers=ARROW)

        with ThreadPoolExecutor(8) as threads:
            answers = list(threads.map(create, range(8)))
        assert sorted(answer.status_code for answer in answers) == [200] + [409] * 7
        winner = next(number for number, answer in enumerate(answers) if answer.status_code == 200)
        table = ClientTable(twins[0], twins[0].connect(), name)
        table.check(version=1, ids=range(winner * 10, winner * 10 + 10))


def test_rows_appended_through_the_server_and_beside_it_all_arrive(twins: list[Lake], name: str) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(RestClient(lake.url)) for lake in twins]
        tables = [ClientTable(lake, lake.connect(), name) for lake in twins]
        tables[0].write(rows(0), "create")
        path = f"/v1/table/{name}/insert?delimiter=%24"

        def insert(number: int) -> None:
            for step in range(5):
                body = arrow_stream(rows(number * 5 + step, number * 5 + step + 1))
                answer = clients[number % 2].raw.post(path, content=body, headers=ARROW)
                assert answer.status_code == 200, answer.text

        def append(number: int) -> None:
            for step in range(5):
                tables[number % 2].write(rows(number * 5 + step, number * 5 + step + 1))

        with ThreadPoolExecutor(8) as threads:
            running = [threads.submit(insert if number < 4 else append, number) for number in range(8)]
            for each in running:
                each.result()
        tables[0].check(version=tables[0].open().version, ids=range(40))
