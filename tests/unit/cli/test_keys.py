"""Keys by command: made once, listed without their secrets, revoked for good."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, get_args

import pytest
from lance_namespace.errors import InvalidInputError

from pennon.catalog import keys, open_database
from pennon.cli.keys import RoleName, parse_duration
from pennon.core.caller import Role
from pennon.core.clock import now_millis

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.cli.conftest import Run


def test_the_command_knows_every_role() -> None:
    assert get_args(RoleName) == tuple(role.name.lower() for role in Role)


@pytest.mark.parametrize(("text", "minutes"), [("90m", 90), ("12h", 720), ("30d", 43_200), ("2w", 20_160)])
def test_a_duration_is_a_number_and_a_unit(text: str, minutes: int) -> None:
    assert parse_duration(text) == minutes * 60_000


@pytest.mark.parametrize("text", ["", "30", "d", "0d", "-1d", "1y", "1.5d", "1 d", "1234567d"])
def test_any_other_duration_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="30d"):
        parse_duration(text)


@pytest.mark.parametrize("namespace", ["a.b", "a$b"])
def test_the_secret_alone_is_on_standard_output(run: Run, tmp_path: Path, namespace: str) -> None:
    ended = run("keys", "create", "ada", "--role", "writer", "--on", namespace)
    secret = ended.stdout.strip()
    assert ended.stdout == secret + "\n"
    assert "first API key" in ended.stderr
    assert f"Creating a new catalog at {tmp_path}/pennon-data/.pennon/catalog.db" in ended.stderr
    assert "'a$b' does not exist yet" in ended.stderr
    assert secret not in ended.stderr
    database = open_database(f"sqlite:///{tmp_path}/pennon-data/.pennon/catalog.db")
    found = database.read(lambda connection: keys.find(connection, keys.digest_of(secret)))
    database.close()
    assert (found.name, found.role, found.namespace, found.expires_at) == ("ada", Role.WRITER, ("a", "b"), None)


def test_a_key_as_json_has_its_secret_and_its_end(run: Run) -> None:
    created = json.loads(run("keys", "create", "ada", "--role", "reader", "--expires-in", "30d", "-o", "json").stdout)
    left = datetime.fromisoformat(created["expires_at"]) - datetime.now(UTC)
    assert timedelta(days=29) < left <= timedelta(days=30)
    assert (created["name"], created["role"], created["on"]) == ("ada", "reader", "$")
    assert created["secret"].startswith("pennon_")


def test_a_listing_shows_states_and_never_a_secret(run: Run) -> None:
    secrets = [run("keys", "create", name, "--role", "admin").stdout.strip() for name in ("ada", "bob")]
    run("keys", "revoke", "bob")
    listed = run("keys", "list", "--output", "json").stdout
    assert [(key["name"], key["state"]) for key in json.loads(listed)] == [("ada", "active"), ("bob", "revoked")]
    table = run("keys", "list").stdout
    assert all(secret not in listed + table for secret in secrets)
    assert "revoked" in table


def test_an_expired_key_is_listed_as_one(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("keys", "create", "ada", "--role", "admin", "--expires-in", "1m")
    late = now_millis() + 120_000
    monkeypatch.setattr(keys, "now_millis", lambda: late)
    assert json.loads(run("keys", "list", "-o", "json").stdout)[0]["state"] == "expired"


def test_a_name_is_not_used_twice_not_even_after_it_was_revoked(run: Run) -> None:
    run("keys", "create", "ada", "--role", "admin")
    run("keys", "revoke", "ada")
    ended = run("keys", "create", "ada", "--role", "admin")
    assert (ended.code, ended.stdout) == (4, "")
    assert "names are not reused. Choose another" in ended.stderr


def test_revoking_twice_is_harmless_and_a_wrong_name_is_an_error(run: Run) -> None:
    run("keys", "create", "ada", "--role", "admin")
    assert run("keys", "revoke", "ada").code == 0
    assert run("keys", "revoke", "ada").code == 0
    ended = run("keys", "revoke", "adda")
    assert ended.code == 3
    assert "Did you mean 'ada'?" in ended.stderr


@pytest.mark.parametrize("command", [("list",), ("revoke", "ada")])
def test_a_mistyped_folder_does_not_become_a_catalog(run: Run, tmp_path: Path, command: tuple[str, ...]) -> None:
    ended = run("keys", *command, "-d", "typo")
    assert ended.code == 2
    assert not (tmp_path / "typo").exists()


def test_no_keys_are_an_empty_list(run: Run) -> None:
    run("migrate")
    assert json.loads(run("keys", "list", "-o", "json").stdout) == []
    assert "keys create" in run("keys", "list").stderr
