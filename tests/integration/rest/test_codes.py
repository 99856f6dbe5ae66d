"""What went wrong, by its status and its code: clients know it by nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.rest.samples import Home, stream

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.server import PennonProcess


@pytest.fixture(scope="module")
def shared(pennon_server: PennonProcess) -> Iterator[Home]:
    from tests.integration.rest.wire import Wire

    wire = Wire(pennon_server.url, [str(pennon_server.directory)])
    home = Home(wire, pennon_server.directory).fill()
    home.ask("namespace", home.other("inner"), "create")
    home.ask("table", home.other("declared"), "declare")
    yield home
    wire.close()


TABLE, NAMESPACE = "/v1/table/{home}%24{name}/", "/v1/namespace/{home}%24{name}/"

#: method, path, body, status, code
REFUSED: list[tuple[str, str, Any, int, int]] = [
    ("POST", NAMESPACE.format(home="{home}", name="inner") + "create", {}, 409, 2),
    ("POST", NAMESPACE.format(home="{home}", name="nope%24x") + "create", {}, 404, 1),
    ("POST", NAMESPACE.format(home="{home}", name="new") + "create", {"mode": "never"}, 400, 13),
    ("POST", "/v1/namespace/%24/create", {}, 409, 2),
    ("POST", "/v1/namespace/{home}/drop", {}, 409, 3),
    ("POST", NAMESPACE.format(home="{home}", name="nope") + "drop", {}, 404, 1),
    ("POST", "/v1/namespace/%24/drop", {"behavior": "Cascade"}, 400, 13),
    ("POST", NAMESPACE.format(home="{home}", name="nope") + "describe", {}, 404, 1),
    ("POST", NAMESPACE.format(home="{home}", name="nope") + "exists", {}, 404, 1),
    ("GET", NAMESPACE.format(home="{home}", name="nope") + "list", None, 404, 1),
    ("GET", NAMESPACE.format(home="{home}", name="nope") + "table/list", None, 404, 1),
    ("GET", "/v1/namespace/{home}/list?limit=-1", None, 400, 13),
    ("GET", "/v1/namespace/{home}/list?limit=x", None, 400, 13),
    ("GET", "/v1/namespace/{home}/list?delimiter=%24&page_token=x", None, 400, 13),
    ("GET", "/v1/namespace/{home}/table/list?delimiter=%24&page_token=x", None, 400, 13),
    ("GET", "/v1/namespace/{home}/table/list?include_declared=x", None, 400, 13),
    ("GET", "/v1/table?limit=-1", None, 400, 13),
    ("GET", "/v1/table?page_token=x", None, 400, 13),
    ("GET", "/v1/table?delimiter=", None, 400, 13),
    ("GET", "/v1/table?delimiter=t", None, 400, 13),
    ("POST", TABLE.format(home="{home}", name="nope") + "describe", {}, 404, 4),
    ("POST", TABLE.format(home="{home}", name="nope%24t") + "describe", {}, 404, 1),
    ("POST", TABLE.format(home="{home}", name="t") + "describe", {"version": 99}, 404, 11),
    ("POST", TABLE.format(home="{home}", name="t") + "describe", {"version": 2**70}, 404, 11),
    ("POST", TABLE.format(home="{home}", name="t") + "describe", {"tag": "nope"}, 404, 8),
    ("POST", TABLE.format(home="{home}", name="t") + "describe", {"branch": "nope"}, 404, 22),
    ("POST", TABLE.format(home="{home}", name="t") + "describe", {"branch": "../x"}, 400, 13),
    ("POST", TABLE.format(home="{home}", name="t") + "describe", {"tag": "first", "version": 1}, 400, 13),
    ("POST", "/v1/table/%24/describe", {}, 400, 13),
    ("POST", TABLE.format(home="{home}", name="nope") + "exists", {}, 404, 4),
    ("POST", TABLE.format(home="{home}", name="t") + "exists", {"version": 99}, 404, 11),
    ("POST", TABLE.format(home="{home}", name="nope") + "drop", {}, 404, 4),
    ("POST", TABLE.format(home="{home}", name="nope") + "deregister", {}, 404, 4),
    ("POST", TABLE.format(home="{home}", name="t") + "declare", {}, 409, 5),
    ("POST", TABLE.format(home="{home}", name="t") + "create-empty", {}, 409, 5),
    ("POST", TABLE.format(home="{home}", name="nope%24t") + "declare", {}, 404, 1),
    ("POST", TABLE.format(home="{home}", name="new") + "declare", {"location": "/etc/x"}, 400, 13),
    ("POST", TABLE.format(home="{home}", name="new") + "register", {"location": "nowhere"}, 400, 13),
    ("POST", TABLE.format(home="{home}", name="new") + "register", {"location": "../x"}, 400, 13),
    ("POST", TABLE.format(home="{home}", name="new") + "register", {}, 400, 13),
    ("POST", TABLE.format(home="{home}", name="t") + "rename", {"new_table_name": "declared"}, 409, 5),
    ("POST", TABLE.format(home="{home}", name="nope") + "rename", {"new_table_name": "x"}, 404, 4),
    (
        "POST",
        TABLE.format(home="{home}", name="t") + "rename",
        {"new_table_name": "x", "new_namespace_id": ["nope"]},
        404,
        1,
    ),
    ("POST", TABLE.format(home="{home}", name="t") + "version/list?branch=nope", {}, 404, 22),
    ("POST", TABLE.format(home="{home}", name="t") + "version/list?limit=-1", {}, 400, 13),
    ("POST", TABLE.format(home="{home}", name="t") + "version/list?descending=maybe", {}, 400, 13),
    ("POST", TABLE.format(home="{home}", name="t") + "version/list?page_token=x", {}, 400, 13),
    ("POST", TABLE.format(home="{home}", name="t") + "version/describe", {"version": 99}, 404, 11),
    ("POST", TABLE.format(home="{home}", name="declared") + "version/describe", {}, 404, 11),
    ("POST", TABLE.format(home="{home}", name="t") + "version/create", {"version": 4, "manifest_path": "x"}, 400, 13),
    ("POST", TABLE.format(home="{home}", name="t") + "version/create", {"version": -1, "manifest_path": "x"}, 400, 13),
    ("POST", TABLE.format(home="{home}", name="t") + "version/delete", {"ranges": []}, 400, 13),
    (
        "POST",
        TABLE.format(home="{home}", name="t") + "version/delete",
        {"ranges": [{"start_version": 0, "end_version": -1}]},
        409,
        19,
    ),
    ("POST", "/v1/table/version/batch-create", {"entries": []}, 400, 13),
    ("POST", "/v1/table/batch-commit", {"operations": []}, 400, 13),
    ("POST", "/v1/table/batch-commit", {"operations": [{}]}, 400, 13),
    ("POST", "/v1/transaction/nope/describe", {}, 404, 10),
]


@pytest.mark.parametrize(("method", "path", "body", "status", "code"), REFUSED)
def test_what_is_refused_is_refused_for_its_own_reason(
    shared: Home, method: str, path: str, body: Any, status: int, code: int
) -> None:
    path = path.format(home=shared.name)
    answer = shared.wire.get(path) if method == "GET" else shared.wire.post(path, body)
    assert answer.outcome == (status, code), answer
    assert answer.json["instance"] == path.partition("?")[0]
    assert answer.json["detail"]


def test_a_lost_commit_has_its_own_code(shared: Home) -> None:
    table = shared.other("race")
    shared.send("table", table, "create", stream())
    one, two = shared.staged(table), shared.staged(table)
    path = f"/v1/table/{shared.name}%24race/version/create"
    first = shared.wire.post(path, one)
    assert first.status == 200
    assert shared.wire.post(path, two).outcome == (409, 14)
    assert shared.wire.post(path, one).json == first.json
    latest = shared.wire.post(f"/v1/table/{shared.name}%24race/version/list?limit=1&descending=true").json
    assert latest["versions"] == [first.json["version"]]
    assert latest["page_token"]


def test_modes_may_be_spelled_as_clients_spell_them(home: Home) -> None:
    name = f"/v1/namespace/{home.name}%24n"
    for mode in ("Create", "ExistOk", "exist_ok", "EXIST_OK", "Overwrite"):
        assert home.wire.post(f"{name}/create", {"mode": mode}).status == 200
    for mode, behavior in (("Fail", "Restrict"), ("Skip", "Cascade"), ("SKIP", "restrict")):
        answer = home.wire.post(f"{name}/drop", {"mode": mode, "behavior": behavior})
        assert answer.status == 200
        assert isinstance(answer.json["transaction_id"], list)
