"""The same request again and again: each time it is answered as things are by then."""

from __future__ import annotations

import shutil
from contextlib import closing
from typing import TYPE_CHECKING

import lance
import pytest

from pennon.catalog import keys, open_database
from pennon.core.caller import Role
from tests.integration.rest.samples import Home, rows, stream
from tests.integration.rest.wire import Answer, Wire, quoted
from tests.support.server import PennonProcess

if TYPE_CHECKING:
    from pathlib import Path


def describe(home: Home, identifier: str) -> Answer:
    """Ask twice, so that the second response comes from the cache; both are the same."""
    path = f"/v1/table/{quoted(identifier)}/describe"
    answers = [home.wire.post(path, {}) for _ in range(3)]
    assert len({(answer.status, answer.content) for answer in answers if answer.status == 200}) <= 1
    return answers[-1]


def exists(home: Home, identifier: str) -> int:
    return [home.wire.post(f"/v1/table/{quoted(identifier)}/exists", {}).status for _ in range(3)][-1]


def test_every_response_has_its_own_id(home: Home) -> None:
    home.ask("table", home.table, "declare")
    path = f"/v1/table/{quoted(home.table)}/describe"
    first, second = home.wire.post(path, {}), home.wire.post(path, {})
    assert first.content == second.content
    assert first.headers["x-request-id"] != second.headers["x-request-id"]
    assert home.wire.post(path, {}, {"x-request-id": "mine"}).headers["x-request-id"] == "mine"


def test_writes_through_pennon_invalidate_responses(home: Home) -> None:
    home.ask("table", home.table, "declare")
    assert "version" not in describe(home, home.table).json
    home.send("table", home.table, "create", stream())
    assert describe(home, home.table).json["version"] == 1
    home.send("table", home.table, "insert", stream())
    assert describe(home, home.table).json["version"] == 2


@pytest.mark.parametrize("scheme", [True, False], ids=["v2", "v1"])
def test_direct_writes_invalidate_responses(home: Home, scheme: bool) -> None:
    home.ask("table", home.table, "declare")
    assert "version" not in describe(home, home.table).json
    folder = str(home.folder(home.table))
    lance.write_dataset(rows(), folder, enable_v2_manifest_paths=scheme)
    assert describe(home, home.table).json["version"] == 1
    lance.write_dataset(rows(), folder, mode="append")
    assert describe(home, home.table).json["version"] == 2


def test_a_branch_that_is_deleted_around_pennon_is_gone(home: Home) -> None:
    home.send("table", home.table, "create", stream())
    home.ask("table", home.table, "branches/create", {"name": "dev"})
    path = f"/v1/table/{quoted(home.table)}/describe"
    assert home.wire.post(path, {"branch": "dev"}).status == 200
    lance.dataset(str(home.folder(home.table))).branches.delete("dev")
    assert [home.wire.post(path, {"branch": "dev"}).outcome for _ in range(2)] == [(404, 22)] * 2


def test_what_the_request_asks_for_counts(home: Home) -> None:
    home.ask("table", home.table, "declare")
    path = f"/v1/table/{quoted(home.table)}/describe"
    plain, with_uri = home.wire.post(path, {}), home.wire.post(f"{path}?with_table_uri=true", {})
    assert "table_uri" not in plain.json
    assert with_uri.json["table_uri"].startswith("file://")
    assert home.wire.post(path, {"with_table_uri": True}).content == with_uri.content
    assert home.wire.post(path, {}).content == plain.content


def test_dropping_renaming_and_recreating_a_table_invalidates_responses(home: Home) -> None:
    home.send("table", home.table, "create", stream())
    before = describe(home, home.table).json
    assert exists(home, home.table) == 200
    home.ask("table", home.table, "rename", {"new_table_name": "moved"})
    assert (describe(home, home.table).status, exists(home, home.table)) == (404, 404)
    assert exists(home, home.other("moved")) == 200
    home.ask("table", home.other("moved"), "drop")
    assert (describe(home, home.other("moved")).status, exists(home, home.other("moved"))) == (404, 404)
    home.send("table", home.table, "create", stream())
    home.send("table", home.table, "insert", stream())
    assert describe(home, home.table).json["version"] == before["version"] + 1


def test_a_table_of_the_folder_that_is_removed_is_gone(home: Home) -> None:
    name = home.name + "_found"
    folder = home.directory / f"{name}.lance"
    lance.write_dataset(rows(), str(folder))
    assert (describe(home, name).status, exists(home, name)) == (200, 200)
    shutil.rmtree(folder)
    assert (describe(home, name).status, exists(home, name)) == (404, 404)


def test_a_first_key_shuts_out_who_was_answered_without(tmp_path: Path) -> None:
    with PennonProcess(tmp_path) as server, closing(Wire(server.url)) as wire:
        home = Home(wire, server.directory)
        home.ask("table", home.table, "declare")
        assert describe(home, home.table).status == 200
        with closing(open_database(f"sqlite:///{server.directory / '.pennon' / 'catalog.db'}")) as database:
            secret = database.write(lambda c: keys.create(c, "admin", Role.ADMIN, (), None))
        assert describe(home, home.table).outcome == (401, 16)
        path = f"/v1/table/{quoted(home.table)}/describe"
        assert wire.post(path, {}, {"x-api-key": secret or ""}).status == 200
        assert wire.post(path, {}, {"x-api-key": "another"}).outcome == (401, 16)


def test_foreign_origins_get_no_cached_response(home: Home) -> None:
    home.ask("table", home.table, "declare")
    assert describe(home, home.table).status == 200
    path = f"/v1/table/{quoted(home.table)}/describe"
    assert home.wire.post(path, {}, {"origin": "http://evil.example"}).outcome == (403, 15)
