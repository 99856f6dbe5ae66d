"""What a key may not see, no operation tells it of: every sound request for it finds nothing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any
from urllib.parse import urlencode

import pytest

from pennon.catalog import keys, open_database, tables, views
from pennon.core.caller import Role
from pennon.core.job_model import JobKind, JobState
from pennon.core.paging import encode_token
from pennon.jobs.queue import Queue
from pennon.server.operations.model import Operation
from pennon.server.operations.table import OPERATIONS
from tests.integration.rest.samples import SAMPLES, STREAM, Home, Sample, path_of, stream
from tests.integration.rest.wire import NOTHING, Answer, Wire, quoted
from tests.support.server import PennonProcess

#: Operations that name no object: they answer everybody, with what each may see.
OPEN = {"ListAllTables", "ListJobs", "DescribeCaller"}


class Keyed(Wire):
    """A connection of somebody with a key."""

    def __init__(self, server: PennonProcess, name: str, role: Role, *scope: str) -> None:
        super().__init__(server.url)
        with closing(open_database(f"sqlite:///{server.directory / '.pennon' / 'catalog.db'}")) as database:
            key = database.write(lambda connection: keys.create(connection, name, role, scope, None))
        assert key is not None
        self._key = key

    def send(self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] = NOTHING) -> Answer:
        """Send a request with the key."""
        return super().send(method, path, body, {**headers, "x-api-key": self._key})


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PennonProcess]:
    """A server for this module."""
    with PennonProcess(tmp_path_factory.mktemp("pennon")) as running:
        yield running


@pytest.fixture(scope="module")
def admin(server: PennonProcess) -> Iterator[Keyed]:
    """Who may see all."""
    with closing(Keyed(server, "admin", Role.ADMIN)) as wire:
        yield wire


@pytest.fixture(scope="module")
def hidden(admin: Keyed, server: PennonProcess) -> Home:
    """A namespace with all kinds of things in it."""
    home = Home(admin, server.directory).fill()
    SAMPLES["PrewarmIndex"](home)
    return home


@pytest.fixture(scope="module")
def own(admin: Keyed, server: PennonProcess) -> Home:
    """Another one, of the same kind."""
    return Home(admin, server.directory).fill()


@pytest.fixture(scope="module")
def outsider(server: PennonProcess, own: Home) -> Iterator[Keyed]:
    """Who may do everything in that one, and nothing elsewhere."""
    with closing(Keyed(server, "outsider", Role.ADMIN, own.name)) as wire:
        yield wire


def ask(wire: Wire, row: Operation, sample: Sample) -> Answer:
    path = path_of(row, sample.identifier, sample.values, sample.query)
    if row.method == "GET":
        return wire.get(path)
    return wire.post(path, sample.body, STREAM if sample.arrow else NOTHING)


@pytest.mark.parametrize("row", [row for row in OPERATIONS if row.id in SAMPLES], ids=lambda row: row.id)
def test_a_request_for_what_is_hidden_finds_nothing(hidden: Home, outsider: Keyed, row: Operation) -> None:
    named = Sample(quoted(hidden.table), {}, values={"index_name": "by_id"})
    sample = named if "{index_name}" in row.path else SAMPLES[row.id](hidden)
    answer = ask(outsider, row, sample)
    if row.id in OPEN:
        assert answer.status == 200
        assert hidden.name.encode() not in answer.content
        return
    assert answer.outcome in {(404, 1), (404, 4), (404, 10)}
    # Nor does it tell of anything but what was asked for.
    if row.path.startswith(("/v1/table/{id}", "/v1/materialized_view/{id}")):
        assert answer.json["error"] == f"Table {sample.identifier.replace('%24', '$')!r} does not exist."
    outsider.close()  # a body may not have been read


def test_the_requests_are_those_that_who_may_see_it_succeeds_with(hidden: Home, admin: Keyed) -> None:
    for row in OPERATIONS:
        if row.id in {"ListTables", "DescribeTable", "QueryTable", "ListJobs", "DescribeJob", "DiffBranch"}:
            assert ask(admin, row, SAMPLES[row.id](hidden)).status == 200


def test_a_hidden_table_is_not_cloned(hidden: Home, own: Home, outsider: Keyed) -> None:
    folder = hidden.folder(hidden.table)
    for location in (str(folder), f"file://{folder}", "nowhere"):
        body = {"source_location": location, "is_shallow": True}
        answer = outsider.post(f"/v1/table/{own.name}%24copy/clone", body)
        assert answer.outcome == (404, 4)
        assert answer.json["error"] == "There is no table at source_location."


@pytest.mark.parametrize("route", ["batch-commit", "version/batch-create"])
def test_a_batch_with_one_hidden_table_does_nothing(hidden: Home, own: Home, outsider: Keyed, route: str) -> None:
    before = outsider.post(f"/v1/table/{quoted(own.table)}/version/list").json
    parts = [{"id": home.table.split("$"), **home.staged(home.table)} for home in (own, hidden)]
    body = {"operations": [{"create_table_version": part} for part in parts], "entries": parts}
    assert outsider.post(f"/v1/table/{route}", body).outcome == (404, 4)
    assert outsider.post(f"/v1/table/{quoted(own.table)}/version/list").json == before


def test_what_was_done_in_hidden_places_as_well_is_a_hidden_transaction(
    hidden: Home, own: Home, admin: Keyed, outsider: Keyed
) -> None:
    declared = [{"declare_table": {"id": [home.name, "together"]}} for home in (own, hidden)]
    made = admin.post("/v1/table/batch-commit", {"operations": declared}).json["transaction_id"]
    assert admin.post(f"/v1/transaction/{made}/describe").status == 200
    assert outsider.post(f"/v1/transaction/{made}/describe").outcome == (404, 10)


def test_a_source_that_was_renamed_where_it_is_hidden_keeps_its_old_name(
    hidden: Home, own: Home, admin: Keyed, outsider: Keyed
) -> None:
    hidden.send("table", hidden.other("source"), "create", stream())
    query = {"kind": "query", "output_schema": None, "source_query": f"SELECT id FROM {hidden.name}.source"}
    own.ask("materialized_view", own.other("of_hidden"), "create", query)
    hidden.ask("table", hidden.other("source"), "rename", {"new_table_name": "renamed"})
    path = f"/v1/materialized_view/{own.name}%24of_hidden/describe"
    shown = {wire: wire.post(path).json["sources"][0]["id"] for wire in (admin, outsider)}
    assert shown == {admin: [hidden.name, "renamed"], outsider: [hidden.name, "source"]}


def test_a_job_of_a_view_does_not_name_sources_that_are_hidden(
    server: PennonProcess, hidden: Home, own: Home, admin: Keyed, outsider: Keyed
) -> None:
    """Whatever a worker wrote down of them: in events, in results, in failures, and as the reason of a view's state."""
    hidden.send("table", hidden.other("secret"), "create", stream())
    named = f"{hidden.name}$secret"
    view = f"{own.name}$of_secret"
    query = {"kind": "query", "source_query": f"SELECT id FROM {hidden.name}.secret", "output_schema": None}
    own.ask("materialized_view", view, "create", query)
    shown = {"mode": "rebuild", "reason": f"{named!r} has new columns.", "source_versions": {named: 1}, "rows": 3}
    failure: dict[str, Any] = {
        "type": "TableNotFoundError",
        "message": f"{named!r} was dropped.",
        "phase": "plan",
        "retryable": False,
    }
    jobs = []
    with closing(open_database(f"sqlite:///{server.directory / '.pennon' / 'catalog.db'}")) as database:
        queue, identifier = Queue(database), tuple(view.split("$"))
        found = database.read(lambda connection: tables.find(connection, identifier))
        assert found is not None
        for ending in ({"result": shown}, {"failure": failure}):
            jobs.append(
                database.write(
                    lambda connection: queue.submit(connection, JobKind.REFRESH, found, {}, submitted_by="a")
                )
            )
            while (claimed := queue.claim("test", 60.0)) is not None and claimed.id != jobs[-1].id:
                queue.finish(claimed, JobState.CANCELLED, counters={})  # what other tests left
            assert claimed is not None
            queue.add_event(claimed, "planned", f"{hidden.name}_upstream", shown)
            queue.finish(claimed, JobState.DONE if "result" in ending else JobState.FAILED, counters={}, **ending)
        database.write(lambda connection: views.mark_stale(connection, found.id, failure["message"], jobs[-1].id))
    requests: list[tuple[str, Any]] = [("/v1/jobs/describe", {"job_id": job.id}) for job in jobs]
    requests += [("/v1/jobs/query_events", {"job_ids": [job.id for job in jobs]})]
    answers = {wire: [wire.post(*each).content for each in requests] for wire in (admin, outsider)}
    feeds = {wire: [wire.get(f"/v1/jobs/{job.id}/events").content for job in jobs] for wire in (admin, outsider)}
    assert all(b"secret" in content for content in answers[admin] + feeds[admin])
    for content in answers[outsider] + feeds[outsider]:
        assert b"secret" not in content.replace(b"of_secret", b"")
        assert b"upstream" not in content
        assert b"rebuild" in content or b"TableNotFoundError" in content
    path = f"/v1/materialized_view/{quoted(view)}/describe"
    assert admin.post(path).json["reason"] == failure["message"]
    assert outsider.post(path).json["reason"] == "(hidden from this key)"


#: Every listing with pages: where it is, and whether its limit and token are in the body.
LISTINGS = {
    "/v1/namespace/{ns}/list": False,
    "/v1/namespace/{ns}/table/list": False,
    "/v1/namespace/{ns}/materialized_view/list": False,
    "/v1/table": False,
    "/v1/table/{table}/version/list": False,
    "/v1/table/{table}/tags/list": False,
    "/v1/table/{table}/branches/list": False,
    "/v1/table/{table}/index/list": False,
    "/v1/table/{table}/fragments": True,
    "/v1/jobs/list": True,
}


def page(wire: Wire, listing: str, home: Home, **given: Any) -> Answer:
    path = listing.format(ns=home.name, table=quoted(home.table))
    if LISTINGS[listing]:
        return wire.post(path, given)
    path += f"?delimiter=%24&{urlencode(given)}"
    return wire.post(path) if "{table}" in listing else wire.get(path)


@pytest.fixture(scope="module")
def tokens(hidden: Home, admin: Keyed) -> dict[str, str]:
    """A token of each listing, given out to an administrator for what is hidden."""
    hidden.ask("table", hidden.table, "tags/create", {"tag": "second", "version": 2})
    hidden.ask("table", hidden.table, "create_index", {"column": "word", "index_type": "BTREE", "name": "by_word"})
    hidden.ask("table", hidden.table, "index/by_word/prewarm")  # waits until it is built
    for name in ("x", "y"):
        hidden.ask("namespace", hidden.other(name), "create")
        hidden.ask("table", hidden.other(f"table_{name}"), "declare")
        SAMPLES["DescribeMaterializedView"](hidden)
        SAMPLES["DescribeJob"](hidden)
    return {listing: page(admin, listing, hidden, limit=1).json["page_token"] for listing in LISTINGS}


@pytest.mark.parametrize("listing", LISTINGS)
def test_a_token_of_what_is_hidden_shows_nothing_of_it(
    tokens: dict[str, str], hidden: Home, own: Home, outsider: Keyed, listing: str
) -> None:
    given = {"page_token": tokens[listing]}
    assert page(outsider, listing, hidden, **given).status == (404 if "{" in listing else 200)
    answer = page(outsider, listing, own, **given)
    assert answer.status == 200
    assert hidden.name.encode() not in answer.content
    assert b"table_" not in answer.content


def test_a_token_that_somebody_made_up_shows_nothing_of_it(server: PennonProcess, hidden: Home) -> None:
    token = encode_token("all_tables", (hidden.name, ""))
    with closing(Keyed(server, "first", Role.READER, "!")) as first:  # whose namespace is before all others
        assert page(first, "/v1/table", hidden, page_token=token).json["tables"] == []


def test_a_token_of_another_listing_is_refused(tokens: dict[str, str], hidden: Home, admin: Keyed) -> None:
    for listing, other in itertools.permutations(LISTINGS, 2):
        answer = page(admin, listing, hidden, page_token=tokens[other])
        assert answer.outcome == (400, 13), (listing, other)
        assert "list again without one" in answer.json["error"]
