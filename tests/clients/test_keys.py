"""API keys, as the clients send them: in the header ``x-api-key`` or as a bearer token."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lance
import lance_namespace as ln
import lancedb
import pytest

from pennon.catalog import keys, open_database
from pennon.catalog.schema import migrate
from pennon.core.caller import Role
from tests.clients.lakes import ClientTable, Lake, rows
from tests.support.server import PennonProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """A folder whose catalog has a key of each kind."""
    directory = tmp_path_factory.mktemp("keys")
    database = open_database(f"sqlite:///{directory}/.pennon/catalog.db")
    migrate(database)

    def create(name: str, role: Role, *namespace: str) -> str:
        secret = database.write(lambda connection: keys.create(connection, name, role, namespace, None))
        assert secret is not None
        return secret

    made = {
        "admin": create("admin", Role.ADMIN),
        "writer": create("writer", Role.WRITER),
        "reader": create("reader", Role.READER),
        "confined": create("confined", Role.WRITER, "team"),
        "revoked": create("revoked", Role.ADMIN),
    }
    database.write(lambda connection: keys.revoke(connection, "revoked"))
    database.close()
    return directory, made


@pytest.fixture(scope="module")
def lake(secrets: tuple[Path, dict[str, str]]) -> Iterator[Lake]:
    with PennonProcess(secrets[0]) as server:
        yield Lake(server)


class Door:
    """Connections with each of the keys."""

    def __init__(self, lake: Lake, secrets: dict[str, str]) -> None:
        self.lake = lake
        self.secrets = secrets
        admin = self.connect("admin")
        for name in ("team", "other"):
            admin.create_namespace(ln.CreateNamespaceRequest(id=[name], mode="ExistOk"))

    def connect(self, name: str) -> ln.LanceNamespace:
        return self.lake.connect(**{"header.x-api-key": self.secrets[name]})

    def table(self, who: str, *identifier: str) -> ClientTable:
        return ClientTable(self.lake, self.connect(who), *identifier)


@pytest.fixture(scope="module")
def door(lake: Lake, secrets: tuple[Path, dict[str, str]]) -> Door:
    return Door(lake, secrets[1])


def test_without_a_key_every_request_is_refused(lake: Lake) -> None:
    for client in (lake.connect(), lake.connect(**{"header.x-api-key": "pennon_wrong"})):
        with pytest.raises(ln.UnauthenticatedError):
            client.list_namespaces(ln.ListNamespacesRequest(id=[]))
        with pytest.raises(ln.UnauthenticatedError):
            client.describe_table(ln.DescribeTableRequest(id=["team", "t"]))


def test_a_revoked_key_opens_nothing(door: Door) -> None:
    with pytest.raises(ln.UnauthenticatedError):
        door.connect("revoked").list_namespaces(ln.ListNamespacesRequest(id=[]))


@pytest.mark.parametrize("header", ["header.x-api-key", "headers.x-api-key"])
def test_a_writer_creates_and_commits(door: Door, header: str) -> None:
    client = door.lake.connect(**{header: door.secrets["writer"]})
    table = ClientTable(door.lake, client, "other", header.replace(".", "_"))
    table.write(rows(10), "create")
    table.write(rows(10, 20))
    table.check(version=2, ids=range(20))


def test_a_bearer_token_is_as_good(door: Door) -> None:
    client = door.lake.connect(**{"header.authorization": f"Bearer {door.secrets['writer']}"})
    assert "team" in client.list_namespaces(ln.ListNamespacesRequest(id=[])).namespaces


def test_a_reader_reads_and_changes_nothing(door: Door) -> None:
    door.table("writer", "other", "read").write(rows(10), "create")
    table = door.table("reader", "other", "read")
    assert table.open().count_rows() == 10
    with pytest.raises(OSError, match="Commit result for version 2 is unknown"):
        table.write(rows(10, 20))  # so the client puts it, whatever the reason
    with pytest.raises(ln.PermissionDeniedError):
        table.client.drop_table(ln.DropTableRequest(id=table.id))
    with pytest.raises(ln.PermissionDeniedError):
        table.client.declare_table(ln.DeclareTableRequest(id=["other", "new"]))
    door.table("writer", "other", "read").write(rows(10, 20))
    assert table.recorded() == [1, 2]


def test_a_confined_key_sees_only_its_namespace(door: Door) -> None:
    door.table("admin", "other", "hidden").write(rows(10), "create")
    client = door.connect("confined")
    assert client.list_namespaces(ln.ListNamespacesRequest(id=[])).namespaces == ["team"]
    with pytest.raises(ln.TableNotFoundError):
        client.describe_table(ln.DescribeTableRequest(id=["other", "hidden"]))
    with pytest.raises(ln.TableNotFoundError):
        lance.dataset(namespace_client=client, table_id=["other", "hidden"])
    own = door.table("confined", "team", "own")
    own.write(rows(10), "create")
    own.write(rows(10, 20))
    own.check(version=2, ids=range(20))
    with pytest.raises(ln.PermissionDeniedError):
        client.declare_table(ln.DeclareTableRequest(id=["team", "elsewhere"], location="other.lance"))


def test_lancedb_sends_its_key(door: Door) -> None:
    db = lancedb.connect_namespace("rest", {"uri": door.lake.url, "header.x-api-key": door.secrets["writer"]})
    opened = db.create_table("lancedb", rows(3), namespace_path=["team"])
    opened.add(rows(3, 6))
    door.table("confined", "team", "lancedb").check(version=2, ids=range(6))
    stranger = lancedb.connect_namespace("rest", {"uri": door.lake.url})
    with pytest.raises(Exception, match=r"(?i)api key|unauthenticated"):
        stranger.open_table("lancedb", namespace_path=["team"])
