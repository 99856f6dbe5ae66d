"""Connecting, namespaces, and tables as objects of the catalog."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lancedb
import pyarrow as pa
import pytest

from tests.clients.remote.conftest import Run
from tests.clients.remote.data import ids, new_name, rows
from tests.support.server import PennonProcess

# The older listing has a page token and a limit of its own, and is what most programs call.
pytestmark = pytest.mark.filterwarnings("ignore:table_names.. is deprecated:DeprecationWarning")


def test_a_table_is_created_with_rows_and_opened(db: Any) -> None:
    name = new_name()
    created = db.create_table(name, rows(3))
    opened = db.open_table(name)
    assert created.name == opened.name == name
    assert (created.count_rows(), opened.count_rows()) == (3, 3)
    assert opened.schema == rows(0).schema


@pytest.mark.parametrize("kind", ["schema", "empty table", "no batches"])
def test_a_table_is_created_without_rows(db: Any, kind: str) -> None:
    schema = rows(0).schema
    if kind == "schema":
        created = db.create_table(new_name(), schema=schema)
    elif kind == "empty table":
        created = db.create_table(new_name(), rows(0))
    else:
        created = db.create_table(new_name(), pa.RecordBatchReader.from_batches(schema, []))
    assert created.count_rows() == 0
    assert created.schema == schema
    created.add(rows(4))
    assert created.count_rows() == 4


def test_a_table_is_created_from_dictionaries_and_from_a_frame(db: Any) -> None:
    created = db.create_table(new_name(), [{"id": 1, "vector": [1.0, 2.0]}, {"id": 2, "vector": [3.0, 4.0]}])
    assert created.schema.field("vector").type == pa.list_(pa.float32(), 2)
    created.add([{"id": 3, "vector": [5.0, 6.0]}])
    assert ids(created.search().to_arrow()) == [1, 2, 3]


def test_creating_what_exists_is_refused_unless_the_mode_allows_it(db: Any) -> None:
    name = new_name()
    db.create_table(name, rows(3))
    with pytest.raises(ValueError, match="already exists"):
        db.create_table(name, rows(3))
    kept = db.create_table(name, schema=rows(0).schema, exist_ok=True)
    assert kept.count_rows() == 3
    replaced = db.create_table(name, pa.table({"other": ["x"]}), mode="overwrite")
    assert replaced.count_rows() == 1
    assert db.open_table(name).schema.names == ["other"]


def field(name: str = "id", kind: pa.DataType | None = None, **options: Any) -> pa.Field:
    return pa.field(name, kind or pa.int64(), **options)


TEXT = field("text", pa.string())
PICTURE = pa.field("picture", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
#: The schema of a table, and one that it is created with once more.
SCHEMAS: dict[str, tuple[pa.Schema, pa.Schema, bool]] = {
    "the same": (pa.schema([field(), TEXT]), pa.schema([field(), TEXT]), True),
    "another type": (pa.schema([field(), TEXT]), pa.schema([field(kind=pa.int32()), TEXT]), False),
    "a column more": (pa.schema([field()]), pa.schema([field(), TEXT]), False),
    "a column less": (pa.schema([field(), TEXT]), pa.schema([field()]), False),
    "another order": (pa.schema([field(), TEXT]), pa.schema([TEXT, field()]), False),
    "nullable": (pa.schema([field(nullable=False)]), pa.schema([field()]), False),
    "another case": (pa.schema([field()]), pa.schema([field("ID")]), False),
    "metadata": (pa.schema([field()], metadata={"a": "b"}), pa.schema([field()], metadata={"a": "c"}), False),
    "metadata of a column": (pa.schema([field()]), pa.schema([field(metadata={"a": "b"})]), False),
}


@pytest.mark.parametrize("kind", SCHEMAS)
def test_a_table_that_is_kept_has_the_schema_it_is_created_with(db: Any, tmp_path: Path, kind: str) -> None:
    first, second, same = SCHEMAS[kind]
    for connection in (lancedb.connect(tmp_path), db):  # the local one says what is right
        name = new_name()
        connection.create_table(name, schema=first)
        if same:
            assert connection.create_table(name, schema=second, exist_ok=True).schema == first
            continue
        with pytest.raises(ValueError, match="does not match existing table schema"):
            connection.create_table(name, schema=second, exist_ok=True)
        assert connection.open_table(name).version == 1


def test_a_schema_that_is_stored_in_another_form_is_still_the_same(db: Any) -> None:
    nested = pa.field("nested", pa.struct([PICTURE, field()]))
    pairs = pa.map_(pa.string(), pa.int64())
    schema = pa.schema([PICTURE, nested, field("word", pa.string_view()), field("pairs", pairs)])
    name = new_name()
    db.create_table(name, schema=schema)
    assert db.create_table(name, schema=schema, exist_ok=True).schema.names == schema.names
    with pytest.raises(ValueError, match="'picture' differs in type, nullability or metadata"):
        db.create_table(name, schema=schema.set(0, field("picture", pa.large_binary())), exist_ok=True)


def test_a_missing_table_is_said_to_be_missing(db: Any) -> None:
    name = new_name("missing")
    with pytest.raises(Exception, match=f"(?s){name}.*not found|not found.*{name}"):
        db.open_table(name)
    with pytest.raises(Exception, match="does not exist"):
        db.drop_table(name)


def test_tables_are_listed_in_pages_after_a_name(db: Any) -> None:
    space = new_name("space")
    db.create_namespace([space])
    for letter in "abcde":
        db.create_table(letter, rows(1), namespace_path=[space])
    assert list(db.table_names(namespace_path=[space])) == list("abcde")
    assert list(db.table_names(namespace_path=[space], limit=2)) == ["a", "b"]
    assert list(db.table_names(namespace_path=[space], page_token="b", limit=2)) == ["c", "d"]
    page = db.list_tables([space], limit=3)
    assert (page.tables, page.page_token) == (["a", "b", "c"], "c")
    rest = db.list_tables([space], page_token=page.page_token)
    assert (rest.tables, rest.page_token) == (["d", "e"], None)


def test_the_tables_of_the_root_are_listed_by_their_plain_names(db: Any) -> None:
    name = new_name("aaa")
    space = new_name("space")
    db.create_table(name, rows(1))
    db.create_namespace([space])
    db.create_table("inner", rows(1), namespace_path=[space])
    listed = list(db.table_names(limit=10_000))
    assert name in listed
    assert listed == sorted(listed)
    assert not [found for found in listed if "inner" in found]
    assert name in db.list_tables(limit=10_000).tables
    assert next(iter(db.table_names(page_token=name[:-1], limit=1))) == name


def test_namespaces_are_created_described_listed_and_dropped(db: Any) -> None:
    space = new_name("space")
    db.create_namespace([space], properties={"owner": "me"})
    db.create_namespace([space], mode="exist_ok")
    db.create_namespace([space, "child"])
    assert db.describe_namespace([space]).properties == {"owner": "me"}
    assert space in db.list_namespaces(limit=10_000).namespaces
    assert db.list_namespaces([space]).namespaces == ["child"]
    with pytest.raises(Exception, match="not empty"):
        db.drop_namespace([space], behavior="restrict")
    db.drop_namespace([space], behavior="cascade")
    with pytest.raises(Exception, match="does not exist"):
        db.describe_namespace([space])
    db.drop_namespace([space], mode="skip")


def test_a_table_is_renamed_and_moved_to_another_namespace(db: Any) -> None:
    space, name = new_name("space"), new_name()
    db.create_namespace([space])
    db.create_table(name, rows(3))
    db.rename_table(name, f"{name}_b")
    db.rename_table(f"{name}_b", "moved", new_namespace_path=[space])
    assert db.open_table("moved", namespace_path=[space]).count_rows() == 3
    with pytest.raises(Exception, match="not found"):
        db.open_table(f"{name}_b")


def test_a_dropped_table_is_gone_and_its_name_is_free(db: Any) -> None:
    name = new_name()
    db.create_table(name, rows(3)).tags.create("old", 1)
    db.drop_table(name)
    assert name not in list(db.table_names(limit=10_000))
    again = db.create_table(name, rows(5, 7))
    assert ids(again.search().to_arrow()) == [5, 6]
    assert again.tags.list() == {}


def test_a_table_is_dropped_without_waiting_for_its_files(db: Any) -> None:
    name = new_name()
    db.create_table(name, rows(3))
    db.drop_table_async(name).wait()
    assert name not in list(db.table_names(limit=10_000))


def test_root_namespaces_serve_as_databases(db: Any, pennon_server: PennonProcess) -> None:
    catalog = lancedb.connect_catalog(pennon_server.url, api_key="none")
    name = new_name("database")
    catalog.create_database(name)
    assert name in catalog.list_databases().databases
    database = catalog.connect_database(name)
    database.create_table("inner", rows(3))
    assert list(database.list_tables().tables) == ["inner"]
    assert db.open_table("inner", namespace_path=[name]).count_rows() == 3
    database.drop_table("inner")
    catalog.drop_database(name)
    assert name not in catalog.list_databases().databases


def test_the_namespace_client_of_a_connection_reaches_the_same_tables(db: Any) -> None:
    import lance_namespace as ln

    name = new_name()
    db.create_table(name, rows(3))
    described = db.namespace_client().describe_table(ln.DescribeTableRequest(id=[name]))
    assert described.location


def test_the_asynchronous_client_does_the_same(run: Run) -> None:
    async def work(db: Any) -> None:
        name, space = new_name(), new_name("space")
        created = await db.create_table(name, rows(3))
        assert await created.count_rows() == 3
        assert name in await db.table_names(limit=10_000)
        with pytest.raises(ValueError, match="already exists"):
            await db.create_table(name, rows(3))
        kept = await db.create_table(name, schema=rows(0).schema, exist_ok=True)
        assert await kept.count_rows() == 3
        await db.create_namespace([space])
        await db.rename_table(name, "moved", new_namespace_path=[space])
        assert (await db.list_tables([space])).tables == ["moved"]
        assert await (await db.open_table("moved", namespace_path=[space])).count_rows() == 3
        await db.drop_table("moved", namespace_path=[space])
        await db.drop_namespace([space])

    run(work)
