"""Keys that were made by command open a running server, and only as far as they should."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.rest import RestClient

if TYPE_CHECKING:
    from tests.conftest import StartPennon
    from tests.integration.cli.conftest import Pennon


def test_a_key_is_needed_from_the_first_one_on_until_it_is_revoked(pennon: Pennon, start_pennon: StartPennon) -> None:
    server = start_pennon()
    folder = ("-d", server.directory)
    with RestClient(server.url) as anyone:
        anyone.post("/v1/namespace/shop/create")
        secret = pennon("keys", "create", "ada", "--role", "writer", "--on", "shop", *folder).stdout.strip()
        anyone.post("/v1/namespace/shop/describe", expect=401)
    with RestClient(server.url, headers={"x-api-key": secret}) as ada:
        ada.post("/v1/namespace/shop/describe")
        ada.post("/v1/namespace/shop$teas/create")
        ada.post("/v1/namespace/other/create", expect=404)
        pennon("keys", "revoke", "ada", *folder)
        ada.post("/v1/namespace/shop/describe", expect=401)


def test_a_role_is_what_a_key_may_do(pennon: Pennon, start_pennon: StartPennon) -> None:
    server = start_pennon()
    for role, status in (("reader", 403), ("writer", 200), ("admin", 200)):
        secret = pennon("keys", "create", f"the {role}", "--role", role, "-d", server.directory).stdout.strip()
        with RestClient(server.url, headers={"authorization": f"Bearer {secret}"}) as anyone:
            anyone.get("/v1/namespace/$/list")
            anyone.post(f"/v1/namespace/{role}s/create", expect=status)


def test_keys_are_kept_in_either_database(pennon: Pennon, catalog_url: str) -> None:
    database = ("--database", catalog_url)
    pennon("keys", "create", "ada", "--role", "admin", *database)
    assert "ada" in pennon("keys", "list", *database).stdout
    pennon("keys", "revoke", "ada", *database)
    assert "revoked" in pennon("keys", "list", *database).stdout
