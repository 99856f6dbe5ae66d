"""Every Arrow type through every client in Python, on a disk and on object storage: written, read, and altered.

All types share one table, so that each client needs a few calls only.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

import lance
import lance_namespace as ln
import lancedb
import pyarrow as pa
import pytest
from lance_namespace_urllib3_client.models import AlterColumnsEntry, QueryTableRequestVector

from pennon.tables.arrow_json import type_to_json
from tests.clients.lakes import ARROW, Lake, arrow_stream
from tests.clients.remote.conftest import NO_RETRIES, connect
from tests.integration.data.arrow_types import CASTS, EVERY, name_of, stored_type, wide_table, with_listed_maps
from tests.support.rest import RestClient

Alteration = dict[str, Any]


class Table(Protocol):
    """A table, as one client has it."""

    def create(self, data: pa.Table) -> None: ...
    def insert(self, data: pa.Table) -> None: ...
    def read(self) -> pa.Table: ...
    def alter(self, alterations: list[Alteration]) -> None: ...
    def add(self, schema: pa.Schema) -> None: ...
    def drop(self, names: list[str]) -> None: ...


class Remote:
    """LanceDB's blocking client of a remote server."""

    def __init__(self, url: str, name: str) -> None:
        self._db = connect(url)
        self._name = name

    @property
    def _table(self) -> Any:
        return self._db.open_table(self._name)

    def create(self, data: pa.Table) -> None:
        self._db.create_table(self._name, data)

    def insert(self, data: pa.Table) -> None:
        self._table.add(with_listed_maps(data))

    def read(self) -> pa.Table:
        return self._table.search().to_arrow()

    def alter(self, alterations: list[Alteration]) -> None:
        self._table.alter_columns(*alterations)

    def add(self, schema: pa.Schema) -> None:
        self._table.add_columns(schema)

    def drop(self, names: list[str]) -> None:
        self._table.drop_columns(names)


class Direct(Remote):
    """LanceDB with the server as its catalog, which writes and reads on storage."""

    def __init__(self, url: str, name: str) -> None:
        self._db = lancedb.connect_namespace("rest", {"uri": url})
        self._name = name

    def insert(self, data: pa.Table) -> None:
        self._table.add(data)

    def read(self) -> pa.Table:
        return self._table.to_arrow()


class RemoteAsync:
    """LanceDB's asynchronous client of a remote server."""

    def __init__(self, url: str, name: str) -> None:
        self._url = url
        self._name = name

    def _run(self, work: Callable[[Any], Awaitable[Any]], *, opened: bool = True) -> Any:
        async def connected() -> Any:
            options = {"api_key": "none", "host_override": self._url, "client_config": NO_RETRIES}
            db = await lancedb.connect_async("db://lake", **options)
            return await work(await db.open_table(self._name) if opened else db)

        return asyncio.run(connected())

    def create(self, data: pa.Table) -> None:
        self._run(lambda db: db.create_table(self._name, data), opened=False)

    def insert(self, data: pa.Table) -> None:
        self._run(lambda table: table.add(with_listed_maps(data)))

    def read(self) -> pa.Table:
        return self._run(lambda table: table.query().to_arrow())

    def alter(self, alterations: list[Alteration]) -> None:
        self._run(lambda table: table.alter_columns(*alterations))

    def add(self, schema: pa.Schema) -> None:
        self._run(lambda table: table.add_columns(schema))

    def drop(self, names: list[str]) -> None:
        self._run(lambda table: table.drop_columns(names))


class Pylance:
    """Pylance with the server as its catalog, which writes and reads on storage."""

    def __init__(self, url: str, name: str) -> None:
        self._table = {"namespace_client": ln.connect("rest", {"uri": url}), "table_id": [name]}

    def create(self, data: pa.Table) -> None:
        lance.write_dataset(data, mode="create", **self._table)

    def insert(self, data: pa.Table) -> None:
        lance.write_dataset(data, mode="append", **self._table)

    def read(self) -> pa.Table:
        return lance.dataset(**self._table).to_table()

    def alter(self, alterations: list[Alteration]) -> None:
        renamed = [{("name" if key == "rename" else key): value for key, value in it.items()} for it in alterations]
        lance.dataset(**self._table).alter_columns(*renamed)

    def add(self, schema: pa.Schema) -> None:
        lance.dataset(**self._table).add_columns(schema)

    def drop(self, names: list[str]) -> None:
        lance.dataset(**self._table).drop_columns(names)


class Namespace:
    """The client of Lance's namespaces, whose server does it all; columns of a schema it cannot add itself."""

    def __init__(self, url: str, name: str) -> None:
        self._client = ln.connect("rest", {"uri": url})
        self._url = url
        self._id = [name]

    def create(self, data: pa.Table) -> None:
        self._client.create_table(ln.CreateTableRequest(id=self._id), arrow_stream(data))

    def insert(self, data: pa.Table) -> None:
        self._client.insert_into_table(ln.InsertIntoTableRequest(id=self._id), arrow_stream(data))

    def read(self) -> pa.Table:
        vector = QueryTableRequestVector(single_vector=[])
        answer: Any = self._client.query_table(ln.QueryTableRequest(id=self._id, k=1000, vector=vector))
        return pa.ipc.open_file(answer.data).read_all()

    def alter(self, alterations: list[Alteration]) -> None:
        entries = [AlterColumnsEntry(**_stated(alteration)) for alteration in alterations]
        self._client.alter_table_alter_columns(ln.AlterTableAlterColumnsRequest(id=self._id, alterations=entries))

    def add(self, schema: pa.Schema) -> None:
        with RestClient(self._url) as http:
            body = arrow_stream(schema.empty_table())
            assert http.raw.post(f"/v1/table/{self._id[0]}/add_columns", content=body, headers=ARROW).is_success

    def drop(self, names: list[str]) -> None:
        self._client.alter_table_drop_columns(ln.AlterTableDropColumnsRequest(id=self._id, columns=names))


def _stated(alteration: Alteration) -> Alteration:
    return {key: type_to_json(value) if key == "data_type" else value for key, value in alteration.items()}


CLIENTS: dict[str, Callable[[str, str], Table]] = {
    "lancedb": Remote,
    "lancedb async": RemoteAsync,
    "lancedb on storage": Direct,
    "pylance": Pylance,
    "lance_namespace": Namespace,
}


@dataclass(frozen=True)
class Journey:
    """What a client wrote, and what it read after each step."""

    data: pa.Table
    found: dict[str, pa.Table]

    def differing(self, step: str, prefix: str, expected: Callable[[str], pa.Array]) -> list[str]:
        """Return the kinds whose columns are not as expected after a step."""
        table = self.found[step]
        return [kind for kind in EVERY if not _same(table[f"{prefix}{name_of(kind)}"], expected(kind))]

    def given(self, kind: str) -> pa.Array:
        """Return the values of a kind, in the type in which tables give them back."""
        return _as(stored_type(kind), self.data[name_of(kind)].combine_chunks())

    def twice(self, kind: str) -> pa.Array:
        """Return the values of a kind in the row that was created and those that were inserted."""
        given = self.given(kind)
        return pa.concat_arrays([given.slice(0, 1), given])

    def changed(self, kind: str) -> pa.Array:
        """Return these in the type that they were cast to, if there is one."""
        return _as(CASTS.get(kind, stored_type(kind)), self.twice(kind))


def _as(kind: pa.DataType, array: pa.Array) -> pa.Array:
    return array if array.type == kind else array.cast(kind, safe=False)


def _same(found: pa.ChunkedArray, expected: pa.Array) -> bool:
    # A dictionary may have its entries in another order.
    return bool(found.type == expected.type and found.to_pylist() == expected.to_pylist())


def _go_through(table: Table, data: pa.Table) -> dict[str, pa.Table]:
    names = data.column_names[1:]
    never_null = [name for name in names if data[name][0].is_valid]
    casts = {name_of(kind): target for kind, target in CASTS.items()}
    steps: dict[str, Callable[[], None]] = {
        "create": lambda: table.create(data.slice(0, 1)),
        "forbid nulls": lambda: table.alter([{"path": name, "nullable": False} for name in never_null]),
        "allow nulls": lambda: table.alter([{"path": name, "nullable": True} for name in never_null]),
        "insert": lambda: table.insert(data),
        "rename": lambda: table.alter([{"path": name, "rename": f"new_{name}"} for name in names]),
        "cast": lambda: table.alter([{"path": f"new_{name}", "data_type": casts[name]} for name in casts]),
        "add": lambda: table.add(data.select(names).schema),
        "drop": lambda: table.drop([f"new_{name}" for name in names]),
    }
    found = {}
    for step, take in steps.items():
        take()
        found[step] = table.read()
    return found


@pytest.fixture(scope="module", params=CLIENTS)
def journey(request: pytest.FixtureRequest, lake: Lake) -> Journey:
    """A table of every type, taken through all steps by a client."""
    data = wide_table(list(EVERY))
    table = CLIENTS[request.param](lake.url, f"types_{secrets.token_hex(6)}")
    return Journey(data, _go_through(table, data))


def test_values_survive_create_and_insert(journey: Journey) -> None:
    assert journey.differing("create", "", lambda kind: journey.given(kind).slice(0, 1)) == []
    assert journey.differing("insert", "", journey.twice) == []


def test_nulls_are_forbidden_and_allowed_again(journey: Journey) -> None:
    for step, nullable in (("forbid nulls", ["id", "of_null"]), ("allow nulls", journey.data.column_names)):
        found = journey.found[step]
        assert [field.name for field in found.schema if field.nullable] == nullable
        assert journey.differing(step, "", lambda kind: journey.given(kind).slice(0, 1)) == []


def test_values_survive_a_new_name(journey: Journey) -> None:
    assert journey.differing("rename", "new_", journey.twice) == []


def test_values_survive_casts_of_their_own_and_other_columns(journey: Journey) -> None:
    assert journey.differing("cast", "new_", journey.changed) == []


def test_columns_of_every_type_are_added_by_a_schema(journey: Journey) -> None:
    assert journey.differing("add", "", lambda kind: pa.nulls(5, stored_type(kind))) == []
    assert journey.differing("add", "new_", journey.changed) == []


def test_columns_of_every_type_are_dropped(journey: Journey) -> None:
    assert journey.found["drop"].column_names == journey.data.column_names
    assert journey.found["drop"]["id"].to_pylist() == [0, 0, 1, 2, 3]


def test_a_client_without_a_word_for_maps_merges_them_and_inserts_their_entries(lake: Lake) -> None:
    data = pa.table({"id": [0, 1], "of_map": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int32()))})
    table = connect(lake.url).create_table(f"types_{secrets.token_hex(6)}", data)
    with pytest.raises(ValueError, match="cannot cast field 'of_map' from Map"):
        table.add(data)
    merge = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    merge.execute(data.set_column(0, "id", pa.array([1, 2])))
    table.add([{"id": 3, "of_map": [{"key": "b", "value": None}]}])
    found = table.search().to_arrow().sort_by("id")
    assert found.schema == data.schema
    assert found["of_map"].to_pylist() == [[("a", 1)], [("a", 1)], None, [("b", None)]]
    with pytest.raises(RuntimeError, match="an entry without a key"):
        table.add([{"id": 4, "of_map": [{"key": None, "value": 1}]}])


@pytest.mark.parametrize("client", CLIENTS)
def test_blobs_survive(lake: Lake, client: str) -> None:
    name = f"types_{secrets.token_hex(6)}"
    table = CLIENTS[client](lake.url, name)
    blob = pa.field("blob", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    schema = pa.schema([pa.field("id", pa.int64()), blob, pa.field("other", pa.int64())])
    contents = [b"a" * 100_000, None, b""]
    data = pa.table({"id": [0, 1, 2], "blob": contents, "other": [0, 1, 2]}, schema=schema)
    table.create(data)
    table.insert(data)
    table.alter([{"path": "blob", "rename": "renamed"}])
    assert table.read()["id"].to_pylist() == [0, 1, 2] * 2
    stored = lance.dataset(namespace_client=ln.connect("rest", {"uri": lake.url}), table_id=[name])
    files = stored.take_blobs("renamed", indices=list(range(6)))
    assert [None if file is None else file.readall() for file in files] == contents * 2
