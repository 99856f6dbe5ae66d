"""Authentication: keys in every header, and callers without a key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from lance_namespace.errors import PermissionDeniedError, UnauthenticatedError

from pennon.catalog import keys
from pennon.core.caller import ANONYMOUS_ADMIN, Role
from pennon.core.clock import now_millis
from pennon.server.auth.authentication import Authenticator
from tests.unit.server.exchanges import exchange

if TYPE_CHECKING:
    from pennon.catalog import Database


@pytest.fixture
def authenticator(database: Database) -> Authenticator:
    return Authenticator(database, insecure=False)


def create(database: Database, name: str = "ada", expires_at: int | None = None) -> str:
    made = database.write(lambda c: keys.create(c, name, Role.WRITER, ("a",), expires_at))
    assert made is not None
    return made


class TestKeys:
    def test_a_key_may_be_sent_in_every_way_the_protocol_knows(
        self, authenticator: Authenticator, database: Database
    ) -> None:
        secret = create(database)
        ways: list[tuple[dict[str, str], dict[str, Any]]] = [
            ({"x-api-key": secret}, {}),
            ({"X-Api-Key": secret}, {}),
            ({"authorization": f"Bearer {secret}"}, {}),
            ({"authorization": f"bearer  {secret} "}, {}),
            ({}, {"identity": {"api_key": secret}}),
            ({}, {"identity": {"auth_token": secret}}),
            ({"x-api-key": secret, "authorization": "Bearer wrong"}, {"identity": {"api_key": "wrong"}}),
        ]
        for headers, body in ways:
            principal = authenticator.authenticate(exchange(headers=headers), body)
            assert principal.name == "ada"
            assert principal.role_on(("a", "b")) == Role.WRITER
            assert principal.role_on(("b",)) is None

    def test_nothing_else_opens(self, authenticator: Authenticator, database: Database) -> None:
        secret = create(database)
        ways: list[tuple[dict[str, str], Any]] = [
            ({}, {}),
            ({"x-api-key": ""}, {}),
            ({"x-api-key": "wrong"}, {}),
            ({"x-api-key": secret[:-1]}, {}),
            ({"x-api-key": secret.upper()}, {}),
            ({"x-api-key": "wrong"}, {"identity": {"api_key": secret}}),
            ({"authorization": f"Basic {secret}"}, {}),
            ({"authorization": secret}, {}),
            ({"authorization": "Bearer "}, {}),
            ({"x-api-key": "ü' OR 1=1 --"}, {}),
            ({}, {"identity": secret}),
            ({}, {"identity": {"api_key": [secret]}}),
            ({}, {"identity": {"api_key": None, "auth_token": 7}}),
            ({}, {"api_key": secret}),
        ]
        for headers, body in ways:
            with pytest.raises(UnauthenticatedError):
                authenticator.authenticate(exchange(headers=headers), body)

    def test_revoked_and_expired_keys_are_refused(self, authenticator: Authenticator, database: Database) -> None:
        revoked, expired = create(database, "old"), create(database, "brief", now_millis() - 1)
        lasting = create(database, "lasting", now_millis() + 60_000)
        assert authenticator.authenticate(exchange(headers={"x-api-key": revoked}), {}).name == "old"
        assert database.write(lambda c: keys.revoke(c, "old"))
        assert not database.write(lambda c: keys.revoke(c, "old"))
        for secret in (revoked, expired):
            with pytest.raises(UnauthenticatedError, match="unknown, revoked or expired"):
                authenticator.authenticate(exchange(headers={"x-api-key": secret}), {})
        assert authenticator.authenticate(exchange(headers={"x-api-key": lasting}), {}).name == "lasting"

    def test_only_a_digest_is_stored(self, database: Database) -> None:
        secret = create(database)
        stored = database.read(lambda c: c.all("SELECT * FROM keys"))
        assert secret not in str(stored)
        assert len(secret) > 40

    def test_a_name_is_given_once(self, database: Database) -> None:
        create(database)
        assert database.write(lambda c: keys.create(c, "ada", Role.ADMIN, (), None)) is None
        assert [key.role for key in database.read(keys.listing)] == [Role.WRITER]

    def test_revoking_the_only_key_does_not_let_everyone_in(
        self, authenticator: Authenticator, database: Database
    ) -> None:
        create(database)
        database.write(lambda c: keys.revoke(c, "ada"))
        with pytest.raises(UnauthenticatedError):
            authenticator.authenticate(exchange(), {})


class TestStrangers:
    @pytest.mark.parametrize(
        "host",
        ["127.0.0.1:2333", "127.0.0.1", "localhost:2333", "LOCALHOST", "[::1]:2333", "a.localhost", "10.1.2.3", ""],
    )
    def test_own_hosts_are_admitted_without_keys(self, authenticator: Authenticator, host: str) -> None:
        headers = {"host": host} if host else {}
        assert authenticator.authenticate(exchange(headers=headers), {}) is ANONYMOUS_ADMIN
        if host:
            own = {"host": host, "origin": f"http://{host}"}
            assert authenticator.authenticate(exchange(headers=own), {}) is ANONYMOUS_ADMIN

    @pytest.mark.parametrize(
        "host",
        [
            "example.com",
            "localhost.example.com",
            "127.0.0.1.example.com:2333",
            "notlocalhost",
            "[::1",
            "[",
            "[v1.x]",
            "a b",
            "user@example.com",
            "127.0.0.1@example.com",
        ],
    )
    def test_other_names_are_refused(self, authenticator: Authenticator, host: str) -> None:
        with pytest.raises(PermissionDeniedError):
            authenticator.authenticate(exchange(headers={"host": host}), {})

    @pytest.mark.parametrize(
        "origin", ["http://example.com", "null", "", "http://127.0.0.1:9", "http://[", "https://127.0.0.1:2333.evil"]
    )
    def test_pages_of_other_sites_are_refused(self, authenticator: Authenticator, origin: str) -> None:
        with pytest.raises(PermissionDeniedError, match="other origins"):
            authenticator.authenticate(exchange(headers={"host": "127.0.0.1:2333", "origin": origin}), {})

    def test_who_asked_for_it_lets_anyone_in(self, database: Database) -> None:
        insecure = Authenticator(database, insecure=True)
        headers = {"host": "example.com", "origin": "http://elsewhere"}
        assert insecure.authenticate(exchange(headers=headers), {}) is ANONYMOUS_ADMIN

    def test_a_key_where_none_is_needed_does_no_harm(self, authenticator: Authenticator) -> None:
        assert authenticator.authenticate(exchange(headers={"x-api-key": "anything"}), {}) is ANONYMOUS_ADMIN
