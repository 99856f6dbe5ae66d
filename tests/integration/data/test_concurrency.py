"""Many writers at once: none loses a row, none makes another fail, and keys stay unique."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import httpx
import pyarrow as pa
import pytest

from tests.conftest import StartPennon
from tests.integration.data.tables import DataTable, error, rows
from tests.support.rest import RestClient
from tests.support.server import PennonProcess
from tests.support.waiting import wait_until

WRITERS = 16
UPSERT = {"on": "id", "when_matched_update_all": "true", "when_not_matched_insert_all": "true"}


def race(count: int, attempt: Callable[[int], Any]) -> list[Any]:
    """Let threads attempt something at the same moment and return what each came to."""
    start = threading.Barrier(count)

    def run(number: int) -> Any:
        start.wait(timeout=60)
        return attempt(number)

    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(run, range(count)))


@pytest.fixture
def two_servers(start_pennon: StartPennon, postgres_url: str, tmp_path: Any) -> Iterator[list[RestClient]]:
    """Two servers of one catalog and one folder of tables."""
    root = tmp_path / "tables"
    root.mkdir()
    servers = [start_pennon("--database", postgres_url, "--root", str(root)) for _ in range(2)]
    clients = [RestClient(server.url) for server in servers]
    yield clients
    for client in clients:
        client.close()


def test_rows_appended_at_once_are_all_there_in_fewer_versions(table: DataTable) -> None:
    each = 10

    def append(writer: int) -> list[int]:
        first = 1000 + writer * each
        return [table.put("insert", rows(n, n + 1))["num_inserted_rows"] for n in range(first, first + each)]

    assert race(WRITERS, append) == [[1] * each] * WRITERS
    assert sorted(table.ids(filter="id >= 1000")) == list(range(1000, 1000 + WRITERS * each))
    assert table.count() == 100 + WRITERS * each
    assert len(table.versions()) <= 1 + WRITERS * each // 2


def test_a_bad_append_in_a_group_fails_alone(table: DataTable) -> None:
    def append(writer: int) -> httpx.Response:
        wrong = writer % 4 == 3
        return table.send("insert", pa.table({"other": [1]}) if wrong else rows(1000 + writer, 1001 + writer))

    for _ in range(5):
        answers = race(WRITERS, append)
        for writer, answer in enumerate(answers):
            if writer % 4 == 3:
                assert error(answer) == (400, 20)
            else:
                assert answer.status_code == 200, answer.text
    assert table.count() == 100 + 5 * 12


def test_only_the_append_with_bad_values_fails(new: DataTable) -> None:
    strict = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    new.create(pa.table({"id": pa.array([], pa.int64())}, schema=strict))

    def append(writer: int) -> httpx.Response:
        return new.send("insert", pa.table({"id": pa.array([None if writer == 5 else writer], pa.int64())}))

    for _ in range(5):
        statuses = [answer.status_code for answer in race(WRITERS, append)]
        assert statuses == [400 if writer == 5 else 200 for writer in range(WRITERS)]
    assert new.count() == 5 * (WRITERS - 1)


def test_every_append_has_its_own_transaction(table: DataTable) -> None:
    found = race(8, lambda number: table.put("insert", rows(number, number + 1))["transaction_id"])
    assert len(set(found)) == 8


def test_upserts_of_the_same_keys_leave_one_row_for_each(table: DataTable) -> None:
    results = race(8, lambda _: table.put("merge_insert", rows(200, 210), **UPSERT))
    assert Counter(table.ids(filter="id >= 200")) == Counter(range(200, 210))
    assert sum(result["num_inserted_rows"] for result in results) == 10
    assert sum(result["num_updated_rows"] for result in results) == 70


def test_upserts_on_two_servers_leave_one_row_for_each_key(two_servers: list[RestClient]) -> None:
    table = DataTable(two_servers[0]).create(rows(10))
    sides = [table.on(client) for client in two_servers]

    def upsert(number: int) -> int:
        return sides[number % 2].send("merge_insert", rows(200, 210), **UPSERT).status_code

    for _ in range(3):
        assert race(8, upsert) == [200] * 8
    for side in sides:
        assert Counter(side.ids(filter="id >= 200")) == Counter(range(200, 210))


def test_what_one_server_acknowledged_the_other_reads(two_servers: list[RestClient]) -> None:
    one = DataTable(two_servers[0]).create(rows(1))
    other = one.on(two_servers[1])
    for number in range(1, 20):
        writer, reader = (one, other) if number % 2 else (other, one)
        writer.put("insert", rows(number, number + 1))
        assert reader.count() == number + 1
        assert reader.ids()[-1] == number
    one.do("branches/create", {"name": "dev"})
    assert other.count(branch="dev") == 20
    other.do("delete", {"predicate": "true", "branch": "dev"})
    assert (one.count(branch="dev"), one.count()) == (0, 20)
    one.do("tags/create", {"tag": "here", "version": 3})
    assert other.do("tags/version", {"tag": "here"})["version"] == 3
    one.do("drop")
    assert error(other.ask("count_rows")) == (404, 4)
    one.create(rows(5))
    assert other.ids() == [0, 1, 2, 3, 4]


def test_appends_to_two_servers_are_all_there(two_servers: list[RestClient]) -> None:
    table = DataTable(two_servers[0]).create(rows(0))
    sides = [table.on(client) for client in two_servers]

    def append(writer: int) -> set[int]:
        return {
            sides[writer % 2].send("insert", rows(writer * 10 + n, writer * 10 + n + 1)).status_code for n in range(5)
        }

    assert race(8, append) == [{200}] * 8
    assert sorted(sides[0].ids()) == sorted(writer * 10 + n for writer in range(8) for n in range(5))
    assert sides[1].count() == 40


def create_tag(table: DataTable, tag: str, _: int) -> httpx.Response:
    return table.ask("tags/create", {"tag": tag, "version": 1})


def test_of_tags_created_at_once_one_wins(table: DataTable) -> None:
    for round_number in range(5):
        answers = race(8, partial(create_tag, table, f"t{round_number}"))
        assert sorted(answer.status_code for answer in answers) == [200] + [409] * 7
        assert {error(answer) for answer in answers if answer.status_code != 200} == {(409, 9)}


def test_of_branches_created_at_once_one_wins(table: DataTable) -> None:
    answers = race(4, lambda _: table.ask("branches/create", {"name": "dev"}))
    assert sorted(answer.status_code for answer in answers) == [200, 409, 409, 409]
    assert {error(answer) for answer in answers if answer.status_code != 200} == {(409, 23)}
    assert table.count(branch="dev") == 100


def test_of_tables_created_at_once_one_wins(new: DataTable) -> None:
    answers = race(8, lambda number: new.send("create", rows(number * 10, number * 10 + 3)))
    assert sorted(answer.status_code for answer in answers) == [200] + [409] * 7
    winner = [answer.status_code for answer in answers].index(200)
    assert new.ids() == [winner * 10, winner * 10 + 1, winner * 10 + 2]
    assert {error(answer) for answer in answers if answer.status_code != 200} == {(409, 5)}


@pytest.mark.parametrize("size", [1, 200_000])
def test_a_drop_that_races_inserts_is_answered_by_success_or_a_missing_table(http: RestClient, size: int) -> None:
    for _ in range(6 if size == 1 else 3):
        table = DataTable(http).create(rows(5))

        def attempt(number: int, table: DataTable = table) -> httpx.Response:
            return table.ask("drop") if number == 0 else table.send("insert", rows(size))

        for answer in race(6, attempt):
            assert answer.status_code in {200, 404}, answer.text
            if answer.status_code == 404:
                assert error(answer) == (404, 4)
        assert error(table.ask("count_rows")) == (404, 4)
        table.create(rows(2))
        assert table.ids() == [0, 1]
        table.do("drop")


def test_whatever_races_a_drop_is_answered_by_success_or_a_missing_table(http: RestClient) -> None:
    attempts: list[Callable[[DataTable], httpx.Response]] = [
        lambda t: t.ask("drop"),
        lambda t: t.ask("query", {"k": 500}),
        lambda t: t.ask("query", {"k": 500, "filter": "id > 3"}),
        lambda t: t.ask("count_rows", {"predicate": "id > 3"}),
        lambda t: t.ask("stats"),
        lambda t: t.ask("describe", {"load_detailed_metadata": True}),
        lambda t: t.ask("create_index", {"column": "id", "index_type": "BTREE"}),
        lambda t: t.ask("index/list"),
        lambda t: t.ask("tags/create", {"tag": "first", "version": 1}),
        lambda t: t.ask("branches/create", {"name": "dev"}),
        lambda t: t.ask("update", {"updates": [["word", "'x'"]]}),
    ]
    for _ in range(6):
        table = DataTable(http).create(rows(5_000))

        def attempt(number: int, table: DataTable = table) -> httpx.Response:
            return attempts[number](table)

        for number, answer in enumerate(race(len(attempts), attempt)):
            assert answer.status_code == 200 or error(answer) == (404, 4), f"{number}: {answer.text}"


def test_changes_of_all_kinds_at_once_leave_a_table_that_can_be_read(table: DataTable) -> None:
    changes: list[Callable[[], httpx.Response]] = [
        lambda: table.send("insert", rows(1000, 1001)),
        lambda: table.ask("update", {"updates": [["word", "'x'"]], "predicate": "id = 1"}),
        lambda: table.ask("delete", {"predicate": "id = 2"}),
        lambda: table.send("merge_insert", rows(3, 6), **UPSERT),
        lambda: table.ask("update_field_metadata", {"updates": [{"path": "id", "metadata": {"a": "b"}}]}),
        lambda: table.ask("query", {"k": 5}),
        lambda: table.ask("stats"),
    ]
    for _ in range(3):
        for answer in race(len(changes), lambda number: changes[number]()):
            assert answer.status_code == 200, answer.text
    assert table.count() == 100 + 3 - 1


def test_a_killed_server_keeps_what_it_acknowledged(start_pennon: StartPennon) -> None:
    server: PennonProcess = start_pennon()
    acknowledged: list[int] = []
    with RestClient(server.url) as http:
        table = DataTable(http).create(rows(0))

        def append(writer: int) -> None:
            for number in range(writer * 1000, writer * 1000 + 1000):
                try:
                    table.put("insert", rows(number, number + 1))
                except (httpx.HTTPError, AssertionError):
                    return
                acknowledged.append(number)

        with ThreadPoolExecutor(4) as threads:
            writers = [threads.submit(append, writer) for writer in range(4)]
            wait_until(lambda: len(acknowledged) >= 60)
            server.kill()
            for writer in writers:
                writer.result()
    server.start()
    with RestClient(server.url) as http:
        assert set(acknowledged) <= set(table.on(http).ids())
        table.on(http).put("insert", rows(9999, 10_000))


def at_once(*attempts: Callable[[], httpx.Response]) -> list[int]:
    """Send requests at the same moment and return the statuses they were answered with."""
    return [answer.status_code for answer in race(len(attempts), lambda number: attempts[number]())]


def test_two_servers_do_not_name_what_the_other_removes(two_servers: list[RestClient]) -> None:
    table = DataTable(two_servers[0]).create(rows(3))
    for number in range(12):
        table.put("insert", rows(1))
        table.put("insert", rows(1))
        version = table.versions()[-2]
        ranges = [{"start_version": version, "end_version": version + 1}]
        name = partial(table.ask, "tags/create", {"tag": f"tag{number}", "version": version})
        remove = partial(table.on(two_servers[1]).ask, "version/delete", {"ranges": ranges})
        assert at_once(name, remove) in ([200, 409], [404, 200])


def test_of_servers_that_make_a_branch_at_once_one_does(two_servers: list[RestClient]) -> None:
    tables = [DataTable(two_servers[0], "t").create(rows(3)), DataTable(two_servers[1], "t")]
    for number in range(8):
        attempts = [partial(table.ask, "branches/create", {"name": f"branch{number}"}) for table in tables * 3]
        assert sorted(at_once(*attempts)) == [200, *[409] * 5]
        assert tables[0].count(branch=f"branch{number}") == 3


def test_a_table_is_cloned_or_dropped(two_servers: list[RestClient]) -> None:
    for _ in range(6):
        origin, made = DataTable(two_servers[0]).create(rows(3)), DataTable(two_servers[1])
        clone = partial(made.ask, "clone", {"source_location": origin.do("describe")["location"]})
        outcome = at_once(clone, partial(origin.ask, "drop"))
        assert outcome in ([200, 409], [404, 200])
        assert outcome[0] == 404 or made.count() == 3
