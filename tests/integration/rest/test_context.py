"""What a client sends along with a change is found in its transaction, in the log, and with the job it submits."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from pennon.catalog import jobs, open_database
from tests.integration.rest.samples import SAMPLES, Home, stream

if TYPE_CHECKING:
    from tests.integration.rest.wire import Wire
    from tests.support.server import PennonProcess


def properties_of(wire: Wire, transaction: str) -> Any:
    described = wire.post(f"/v1/transaction/{transaction}/describe").json
    assert described["status"] == "Succeeded"
    return described["properties"]


def test_headers_and_body_are_recorded(home: Home) -> None:
    answer = home.wire.post(
        f"/v1/table/{home.name}%24t/declare",
        {"context": {"from_body": "b", "both": "body"}},
        {
            "x-lance-ctx-trace_id": "abc123",
            "X-Lance-Ctx-Both": "header",
            "x-team": "blue",
            "x-request-id": "request-7",
            "user-agent": "a client",
            "cookie": "hush",
        },
    )
    found = properties_of(home.wire, answer.json["transaction_id"])
    assert found["context.trace_id"] == "abc123"
    assert found["context.from_body"] == "b"
    assert found["context.both"] == "header"
    assert "blue" not in str(found)  # a header that no setting names
    assert found["request_id"] == "request-7"
    assert (found["operation"], found["object"]) == ("DeclareTable", f"{home.name}$t")
    assert found["principal"] == "anonymous"
    assert "hush" not in str(found)
    assert "a client" not in str(found)


def test_secrets_are_not_recorded(home: Home) -> None:
    headers = {"x-api-key": "hush-1", "authorization": "Bearer hush-2", "proxy-authorization": "hush-3"}
    body: dict[str, Any] = {"identity": {"api_key": "hush-4", "auth_token": "hush-5"}}
    body["context"] = {"header.Authorization": "Bearer hush-6"}  # as Lance's clients repeat the header
    answer = home.wire.post(f"/v1/table/{home.name}%24t/declare", body, headers)
    assert "hush" not in str(properties_of(home.wire, answer.json["transaction_id"]))


def test_every_change_of_the_catalog_records_it(home: Home) -> None:
    context = {"x-lance-ctx-who": "ada"}
    name = home.name
    home.send("table", f"{name}$w", "create", stream())
    staged = home.staged(f"{name}$w")
    changes: list[tuple[str, Any]] = [
        (f"/v1/namespace/{name}%24inner/create", {}),
        (f"/v1/namespace/{name}%24inner/drop", {}),
        (f"/v1/table/{name}%24d/declare", {}),
        (f"/v1/table/{name}%24e/create-empty", {}),
        (f"/v1/table/{name}%24d/rename", {"new_table_name": "f"}),
        (f"/v1/table/{name}%24f/deregister", {}),
        (f"/v1/table/{name}%24e/drop", {}),
        (f"/v1/table/{name}%24w/version/create", staged),
        (f"/v1/table/{name}%24w/version/delete", {"ranges": [{"start_version": 1, "end_version": 2}]}),
        ("/v1/table/batch-commit", {"operations": [{"declare_table": {"id": [name, "g"]}}]}),
    ]
    for path, body in changes:
        answer = home.wire.post(path, body, context)
        assert answer.status == 200, answer
        transaction = answer.json["transaction_id"]
        transaction = transaction[0] if isinstance(transaction, list) else transaction
        assert properties_of(home.wire, transaction)["context.who"] == "ada", path


def test_it_stands_in_the_log_on_the_line_of_the_change(home: Home, pennon_server: PennonProcess) -> None:
    headers = {"x-lance-ctx-trace_id": "abc123", "x-team": "blue", "x-request-id": home.name}
    body = {"context": {"note": "two\nlines"}, "identity": {"api_key": "hush"}}
    assert home.wire.post(f"/v1/table/{home.name}%24t/declare", body, headers).status == 200
    (line,) = (line for line in pennon_server.stderr.splitlines() if f"(request {home.name})" in line)
    logged = json.loads(line[line.index("{") :])
    assert logged == {"note": "two\nlines", "trace_id": "abc123"}


@pytest.mark.parametrize(
    ("operation", "path"),
    [
        ("AlterTableBackfillColumns", "/v1/table/{id}/backfill_column"),
        ("RefreshMaterializedView", "/v1/materialized_view/{id}/refresh"),
    ],
)
def test_the_context_is_recorded_with_the_submitted_job(home: Home, operation: str, path: str) -> None:
    sample = SAMPLES[operation](home.fill())
    headers = {"x-lance-ctx-trace_id": "abc123", "x-team": "blue"}
    answer = home.wire.post(path.replace("{id}", sample.identifier), sample.body, headers)
    assert answer.status == 202
    with closing(open_database(f"sqlite:///{home.directory / '.pennon' / 'catalog.db'}")) as database:
        job = database.read(lambda connection: jobs.find(connection, answer.json["job_id"]))
    assert job is not None
    assert job.context == {"trace_id": "abc123"}


@pytest.mark.parametrize("value", ["ümläut", "x" * 3000, "a\tb"])
def test_unusual_values_are_accepted(home: Home, value: str) -> None:
    body = {"context": {"odd": value, "": "empty"}}
    answer = home.wire.post(f"/v1/table/{home.name}%24t/declare", body)
    assert properties_of(home.wire, answer.json["transaction_id"])["context.odd"] == value[:1024]


@pytest.mark.parametrize("key", ["operation", "object", "principal", "request_id", "job_id", "context.trace"])
def test_what_the_server_recorded_cannot_be_altered(home: Home, key: str) -> None:
    made = home.wire.post(f"/v1/table/{home.name}%24t/declare", {}, {"x-lance-ctx-trace": "1"}).json["transaction_id"]
    before = properties_of(home.wire, made)
    for action in (
        {"set_property_action": {"key": key, "value": "forged", "mode": "Overwrite"}},
        {"set_property_action": {"key": key, "value": "forged", "mode": "Skip"}},
        {"unset_property_action": {"key": key, "mode": "Skip"}},
    ):
        assert home.wire.post(f"/v1/transaction/{made}/alter", {"actions": [action]}).outcome == (403, 15)
    assert properties_of(home.wire, made) == before


def test_no_text_of_a_request_can_forge_a_log_line(home: Home, pennon_server: PennonProcess) -> None:
    forged = "x\n2026-01-01 00:00:00,000 INFO pennon.server DropTable forged by admin (request 1)\u2028second"
    body = {"job_id": forged, "context": {forged: forged}}
    assert home.wire.post(f"/v1/table/{home.name}%24t/declare", body, {"x-request-id": home.name}).status == 200
    spoken = "t by admin (request 2)"
    assert home.wire.post(f"/v1/table/{home.name}%24{quote(spoken)}/declare", {}).status == 200
    lines = pennon_server.stderr.split("\n")
    (line,) = (line for line in lines if f"(request {home.name})" in line)
    assert f"DeclareTable {home.name}$t by anonymous" in line
    assert not any(line.startswith("2026-01-01") or "\u2028" in line for line in lines)
    (line,) = (line for line in lines if spoken in line and home.name in line)
    assert f'DeclareTable "{home.name}${spoken}" by anonymous' in line


def test_a_transaction_is_altered_over_http(home: Home) -> None:
    made = home.ask("table", f"{home.name}$t", "declare")["transaction_id"]
    path = f"/v1/transaction/{made}/alter"
    put = {"set_property_action": {"key": "note", "value": "kept", "mode": "Overwrite"}}
    assert home.wire.post(path, {"actions": [put]}).json["properties"]["note"] == "kept"
    cancel = {"set_status_action": {"status": "Canceled"}}
    assert home.wire.post(path, {"actions": [put, cancel]}).outcome == (409, 19)
    unset = {"unset_property_action": {"key": "nothing", "mode": "Fail"}}
    assert home.wire.post(path, {"actions": [unset]}).outcome == (409, 19)
    wrong: list[Any] = [[], [{}], [{**put, **cancel}], [{"nonsense": {}}], "text", None]
    for bad in wrong:
        assert home.wire.post(path, {"actions": bad}).outcome == (400, 13)
    assert home.wire.post("/v1/transaction/nope/alter", {"actions": [put]}).outcome == (404, 10)
