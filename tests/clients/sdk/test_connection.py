"""The connection is the one that people know from LanceDB, and knows more."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from lance_namespace.errors import LanceNamespaceError, TableNotFoundError, UnauthenticatedError
from lancedb.remote import ClientConfig, HeaderProvider

import pennon
from pennon.client import Connection, Table
from tests.clients.remote.data import ids, new_name, rows, vector

if TYPE_CHECKING:
    from tests.conftest import StartPennon
    from tests.support.server import PennonProcess

KEYS = ["PENNON_API_KEY", "LANCEDB_API_KEY"]


def test_everything_of_lancedbs_connection_works(db: Connection) -> None:
    name = new_name()
    assert isinstance(db.create_table(name, rows(10)), Table)
    assert name in db.list_tables(limit=10_000).tables
    assert db[name].count_rows() == len(db.open_table(name)) == 10
    db.drop_table(name)
    with pytest.raises(ValueError, match="not found"):
        db.open_table(name)
    assert {"drop_table", "list_namespaces", "jobs", "open_table"} <= set(dir(db))


def test_everything_of_lancedbs_table_works(table: Table) -> None:
    table.add(rows(100, 105))
    assert (table.count_rows("id >= 100"), len(table)) == (5, 105)
    assert ids(table.search(vector(42)).limit(3).to_arrow())[0] == 42
    assert table.update(where="id = 1", values={"colour": "grey"}).rows_updated == 1
    table.checkout(1)
    assert table.count_rows() == 100
    table.checkout_latest()
    table.tags.create("now", table.version)
    assert "now" in table.tags.list()
    assert {"search", "merge_insert", "backfill", "add_columns"} <= set(dir(table))


def test_a_table_in_a_namespace_is_opened_and_changed(db: Connection) -> None:
    space = new_name("space")
    db.create_namespace([space])
    table = db.create_table("t", rows(3), namespace_path=[space])
    table.add_columns({"half": pennon.computed("id / 2")})
    opened = db.open_table("t", namespace_path=[space])
    assert opened.schema.names[-1] == "half"
    assert repr(opened) == f"<Table {space}$t>"
    clone = db.clone_table("c", table.uri, target_namespace_path=[space])
    clone.add_columns({"more": pennon.computed("id")})
    assert clone.schema.names[-1] == "more"


def test_a_database_is_a_root_namespace(db: Connection, pennon_server: PennonProcess) -> None:
    space = new_name("space")
    db.create_namespace([space])
    inside = pennon.connect(pennon_server.url, database=space)
    inside.create_table("t", rows(3)).add_columns({"half": pennon.computed("id / 2")})
    assert db.open_table("t", namespace_path=[space]).schema.names[-1] == "half"
    with pytest.raises(ValueError, match="not found"):
        db.open_table("t")


def test_a_namespace_called_pennon_hides_nothing(start_pennon: StartPennon) -> None:
    db = pennon.connect(start_pennon().url)
    db.create_table("t", rows(3))
    db.create_namespace(["pennon"])
    db.open_table("t").add_columns({"half": pennon.computed("id / 2")})
    assert db.list_tables().tables == ["t"]


@pytest.fixture
def guarded(start_pennon: StartPennon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """The address of a server with one key, and the key."""
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    command = [sys.executable, "-m", "pennon.cli.main", "keys", "create", "me", "--role", "writer", "-d", str(tmp_path)]
    secret = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.strip()
    return start_pennon(directory=tmp_path).url, secret


def test_the_key_is_sent_by_both_halves(guarded: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    url, secret = guarded
    table = pennon.connect(url, api_key=secret).create_table("t", rows(3))
    table.add_columns({"half": pennon.computed("id / 2")})
    with pytest.raises(RuntimeError, match="needs an API key"):
        pennon.connect(url).list_tables()
    with pytest.raises(UnauthenticatedError, match="needs an API key"):
        Table(table._inner, pennon.connect(url)._transport).add_columns({"more": pennon.computed("id")})
    for name in KEYS:
        with monkeypatch.context() as context:
            context.setenv(name, secret)
            pennon.connect(url).open_table("t").add_columns({name: pennon.computed("id")})


def test_other_headers_are_sent_by_both_halves(guarded: tuple[str, str]) -> None:
    url, secret = guarded

    class Bearer(HeaderProvider):  # type: ignore[misc]
        def get_headers(self) -> dict[str, str]:
            return {"authorization": f"Bearer {secret}"}

    for name, config in {
        "fixed": ClientConfig(extra_headers={"authorization": f"Bearer {secret}"}),
        "provided": ClientConfig(header_provider=Bearer()),
    }.items():
        table = pennon.connect(url, client_config=config).create_table(name, rows(3))
        table.add_columns({"half": pennon.computed("id / 2")})


def test_a_table_survives_copying_and_pickling(table: Table) -> None:
    for again in (pickle.loads(pickle.dumps(table)), copy.copy(table)):  # noqa: S301
        assert again.count_rows() == 100
        assert again._transport.url == table._transport.url
    pickle.loads(pickle.dumps(table)).add_columns({"x": pennon.computed("id")})  # noqa: S301


def test_an_unknown_job_is_an_error_of_the_protocol(db: Connection) -> None:
    with pytest.raises(LanceNamespaceError, match="nothing-like-it"):
        db.job("nothing-like-it")


def test_a_table_that_was_dropped_is_named(db: Connection, table: Table) -> None:
    db.drop_table(table.name)
    with pytest.raises(TableNotFoundError, match=table.name):
        table.add_columns({"x": pennon.computed("id")})
