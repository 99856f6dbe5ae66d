"""Making views that functions fill: chunkers, and table functions."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import lance_namespace.errors as errors
import pyarrow as pa
import pytest

import pennon
from pennon.namespace.new_tables import NewTables
from tests.integration.views.api.view_catalog import encoded, entry_of

if TYPE_CHECKING:
    from tests.integration.views.api.view_catalog import ViewCatalog


class Piece(NamedTuple):
    piece: str
    start: int


@pennon.chunker
def pieces(text: str) -> Iterator[Piece]:
    for word in text.split():
        yield Piece(word, text.index(word))


@pennon.chunker(output_schema=pa.schema([("piece", pa.string())]), batched=True)
def batched_pieces(text: pa.Array) -> Any:
    return [value.as_py().split() for value in text]


TOTALS = pa.schema([("owner", pa.string()), ("total", pa.int64())])


@pennon.udtf(output_schema=TOTALS)
def totals(batches: Iterator[pa.RecordBatch]) -> Any:
    yield {"owner": ["all"], "total": [sum(batch.num_rows for batch in batches)]}


CHUNKS: dict[str, Any] = {"source": "t", "columns": ["id"]}


def chunk(
    view_catalog: ViewCatalog, name: str = "v", query: Any = None, schema: pa.Schema | None = None, **more: Any
) -> Any:
    """Make a view of a chunker."""
    declared = None if schema is None else encoded(schema)
    entry = entry_of(more.pop("function", pieces), **{"kind": "chunker", **more})
    return view_catalog.create(name, query or CHUNKS, kind="chunker", udtf_spec=entry, output_schema=declared)


def total(
    view_catalog: ViewCatalog, name: str = "v", query: Any = None, schema: pa.Schema | None = None, **more: Any
) -> Any:
    """Make a view of a table function."""
    declared = None if schema is None else encoded(schema)
    entry = entry_of(more.pop("function", totals), **{"kind": "udtf", **more})
    return view_catalog.create(name, query or {"source": "t"}, kind="udtf", udtf_spec=entry, output_schema=declared)


class TestChunkers:
    def test_children_have_columns_of_their_parent_and_their_own(self, view_catalog: ViewCatalog) -> None:
        chunk(view_catalog)
        assert view_catalog.schema("v").names == ["__source_row_id", "__child_index", "id", "piece", "start"]
        definition = view_catalog.definition("v")
        assert [column.name for column in definition.columns] == ["id"]
        assert definition.expansion is not None
        assert (definition.expansion.inputs, definition.expansion.outputs) == (("text",), ("piece", "start"))
        assert not definition.expansion.batch
        assert definition.sources[0].columns == ("id", "text")
        assert definition.is_incremental
        assert (view_catalog.folder("v") / definition.expansion.reference).read_bytes() == pieces.pack()

    def test_a_declared_schema_chooses_what_children_inherit(self, view_catalog: ViewCatalog) -> None:
        schema = pa.schema(
            [
                ("__source_row_id", pa.int64()),
                ("__child_index", pa.int32()),
                ("owner", view_catalog.schema("t").field("owner").type),
                ("piece", pa.large_string()),
                ("start", pa.int64()),
            ]
        )
        chunk(view_catalog, query={"source": "t"}, schema=schema)
        assert view_catalog.schema("v").equals(schema)
        assert [column.name for column in view_catalog.definition("v").columns] == ["owner"]

    def test_children_may_have_nothing_of_their_parent(self, view_catalog: ViewCatalog) -> None:
        chunk(view_catalog, query={"source": "t", "columns": [], "where": "id > 1"})
        assert view_catalog.schema("v").names == ["__source_row_id", "__child_index", "piece", "start"]
        assert view_catalog.definition("v").sources[0].columns == ("id", "text")

    def test_batched_ones(self, view_catalog: ViewCatalog) -> None:
        chunk(view_catalog, function=batched_pieces, batch=True)
        expansion = view_catalog.definition("v").expansion
        assert expansion is not None
        assert expansion.batch

    def test_a_source_as_sql_that_works_row_by_row(self, view_catalog: ViewCatalog) -> None:
        chunk(view_catalog, query="SELECT id AS parent FROM t WHERE id > 1")
        assert view_catalog.definition("v").engine == "lance"
        assert view_catalog.schema("v").names[2:] == ["parent", "piece", "start"]

    def test_who_is_slower_to_make_a_view_takes_no_function_away(
        self, view_catalog: ViewCatalog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        plan = NewTables.plan

        def plan_and_be_overtaken(*arguments: Any) -> Any:
            planned = plan(*arguments)
            monkeypatch.undo()
            chunk(view_catalog)
            return planned

        monkeypatch.setattr(NewTables, "plan", plan_and_be_overtaken)
        with pytest.raises(errors.TableAlreadyExistsError):
            chunk(view_catalog)
        expansion = view_catalog.definition("v").expansion
        assert expansion is not None
        assert (view_catalog.folder("v") / expansion.reference).read_bytes() == pieces.pack()

    def test_what_geneva_sends(self, view_catalog: ViewCatalog) -> None:
        payload = base64.b64encode(b"only geneva can read this").decode()
        document = {"name": "f", "version": "1", "chunker_payload": payload, "input_columns": ["text"], "batch": False}
        text = base64.b64encode(json.dumps(document).encode()).decode()
        entry = {
            "kind": "chunker",
            "udtf": text,
            "udtf_sha": hashlib.sha256(text.encode()).hexdigest(),
            "udtf_name": "f",
            "udtf_version": "1",
            "input_columns": ["text"],
            "batch": False,
            "num_gpus": 0.0,
        }
        query = {"base": {"columns": ["id"]}, "source_table": "t", "column_udfs": None}
        schema = pa.schema(
            [("__source_row_id", pa.int64()), ("__child_index", pa.int32()), ("id", pa.int64()), ("chunk", pa.string())]
        )
        view_catalog.create("v", query, kind="chunker", udtf_spec=entry, output_schema=encoded(schema))
        expansion = view_catalog.definition("v").expansion
        assert expansion is not None
        assert (expansion.outputs, expansion.num_gpus) == (("chunk",), None)


class TestTableFunctions:
    def test_the_schema_is_the_functions(self, view_catalog: ViewCatalog) -> None:
        total(view_catalog, num_cpus=2, num_gpus=0.5, memory=1024, error_handling={"on_error": "skip"})
        assert view_catalog.schema("v").equals(TOTALS)
        definition = view_catalog.definition("v")
        expansion = definition.expansion
        assert expansion is not None
        assert (expansion.inputs, expansion.outputs) == (None, ("owner", "total"))
        assert (expansion.num_cpus, expansion.num_gpus, expansion.memory) == (2, 0.5, 1024)
        assert expansion.error_handling == {"on_error": "skip"}
        assert "all rows of its source" in (definition.rebuild_reason or "")
        shown = view_catalog.describe("v").function
        assert (shown["name"], shown["version"]) == ("totals", totals.version)

    def test_only_what_it_reads_is_read(self, view_catalog: ViewCatalog) -> None:
        total(view_catalog, input_columns=["id", "owner.name"], partition_by="text")
        definition = view_catalog.definition("v")
        assert [column.name for column in definition.columns] == ["id", "owner.name", "text"]
        assert definition.sources[0].columns == ("id", "text", "owner")

    def test_expressions_of_its_query_may_be_its_inputs(self, view_catalog: ViewCatalog) -> None:
        query = {"source": "t", "columns": {"half": "id / 2", "text": "text"}}
        total(view_catalog, query=query, input_columns=["half"], partition_by="text")
        definition = view_catalog.definition("v")
        assert [column.expression for column in definition.columns] == ["id / 2", "text"]
        assert definition.sources[0].columns == ("id", "text")

    def test_partitions_of_an_index_need_one(self, view_catalog: ViewCatalog) -> None:
        with pytest.raises(errors.InvalidInputError, match="'vector' has no IVF index"):
            total(view_catalog, partition_by_indexed_column="vector")
        rows = pa.table({"vector": pa.array([[float(n), 1.0] for n in range(300)], pa.list_(pa.float32(), 2))})
        view_catalog.put("indexed", rows)
        view_catalog.open("indexed").create_index("vector", "IVF_FLAT", num_partitions=2)
        total(view_catalog, query={"source": "indexed"}, partition_by_indexed_column="vector")
        expansion = view_catalog.definition("v").expansion
        assert expansion is not None
        assert expansion.partition_by_indexed_column == "vector"
        with pytest.raises(errors.InvalidInputError, match="cannot be used with a limit or an offset"):
            total(view_catalog, "w", {"source": "indexed", "limit": 10}, partition_by_indexed_column="vector")


BAD: list[tuple[dict[str, Any], type[errors.LanceNamespaceError], str]] = [
    ({"udtf_sha": "0" * 64}, errors.InvalidInputError, "udtf_sha"),
    ({"udtf": "?", "udtf_sha": "x"}, errors.InvalidInputError, "not base64"),
    ({"kind": "udtf"}, errors.InvalidInputError, "udtf_spec's kind is 'udtf'"),
    ({"input_columns": []}, errors.InvalidInputError, "input_columns is empty"),
    ({"input_columns": ["nope"]}, errors.TableColumnNotFoundError, "'nope'"),
    ({"input_columns": ["owner.nope"]}, errors.TableColumnNotFoundError, "nope"),
    ({"batch": True}, errors.InvalidInputError, "is not batched"),
    ({"partition_by": "id"}, errors.InvalidInputError, "are for table functions"),
    ({"partition_by_indexed_column": "vector"}, errors.InvalidInputError, "are for table functions"),
    ({"error_handling": {"on_error": "skip"}}, errors.InvalidInputError, "is for table functions"),
    ({"num_cpus": 0}, errors.InvalidInputError, "num_cpus is 0"),
    ({"memory": -1}, errors.InvalidInputError, "memory is -1"),
    ({"manifest": "{"}, errors.InvalidInputError, "The manifest is not JSON"),
    ({"manifest": '{"pip": 1}'}, errors.InvalidInputError, "'pip' must be a list"),
    ({"manifest": "{}", "manifest_checksum": "0"}, errors.InvalidInputError, "manifest_checksum"),
]
BAD_TABLE_FUNCTIONS: list[tuple[dict[str, Any], type[errors.LanceNamespaceError], str]] = [
    ({"partition_by": "nope"}, errors.TableColumnNotFoundError, "'nope'"),
    ({"partition_by": "vector"}, errors.InvalidInputError, "must not be a nested type"),
    ({"partition_by": "owner"}, errors.InvalidInputError, "must not be a nested type"),
    ({"partition_by_indexed_column": "nope"}, errors.TableColumnNotFoundError, "'nope'"),
    (
        {"partition_by": "id", "partition_by_indexed_column": "vector"},
        errors.InvalidInputError,
        "cannot be used together",
    ),
    ({"batch": True}, errors.InvalidInputError, "for chunkers"),
    ({"error_handling": {"on_error": "cry"}}, errors.InvalidInputError, "Invalid error_handling"),
    ({"error_handling": {"nope": 1}}, errors.InvalidInputError, "Invalid error_handling"),
    ({"num_gpus": -1}, errors.InvalidInputError, "num_gpus is -1"),
]


class TestWhatIsRefused:
    @pytest.mark.parametrize(("fields", "error", "message"), BAD)
    def test_bad_chunkers(
        self, shared: ViewCatalog, fields: dict[str, Any], error: type[errors.LanceNamespaceError], message: str
    ) -> None:
        with pytest.raises(error, match=message):
            chunk(shared, "bad", **fields)
        assert "bad" not in shared("ListTables", "$").tables

    @pytest.mark.parametrize(("fields", "error", "message"), BAD_TABLE_FUNCTIONS)
    def test_bad_table_functions(
        self, shared: ViewCatalog, fields: dict[str, Any], error: type[errors.LanceNamespaceError], message: str
    ) -> None:
        with pytest.raises(error, match=message):
            total(shared, "bad", **fields)

    def test_the_digest_may_be_that_of_the_bytes(self, view_catalog: ViewCatalog) -> None:
        chunk(view_catalog, udtf_sha=hashlib.sha256(pieces.pack()).hexdigest().upper())

    def test_a_function_of_another_kind(self, shared: ViewCatalog) -> None:
        with pytest.raises(errors.InvalidInputError, match="is a udtf, but the view's kind is chunker"):
            chunk(shared, "bad", function=totals)
        with pytest.raises(errors.InvalidInputError, match="is a chunker, but the view's kind is udtf"):
            total(shared, "bad", function=pieces)

    @pytest.mark.parametrize(
        "query",
        ["SELECT id, count(*) AS c FROM t GROUP BY id", "SELECT t.id FROM t JOIN shop.orders o ON t.id = o.id"],
    )
    def test_a_source_that_does_not_work_row_by_row(self, shared: ViewCatalog, query: str) -> None:
        with pytest.raises(errors.InvalidInputError, match="over one table that works row by row"):
            chunk(shared, "bad", query=query)

    @pytest.mark.parametrize(
        ("schema", "message"),
        [
            (pa.schema([("id", pa.int64())]), "lacks the column 'piece'"),
            (pa.schema([("piece", pa.list_(pa.string())), ("start", pa.int64())]), "'piece' has type list"),
            (
                pa.schema([("piece", pa.string()), ("start", pa.int64()), ("x", pa.int8())]),
                "'x', which the view does not have",
            ),
        ],
    )
    def test_a_schema_that_does_not_fit(self, shared: ViewCatalog, schema: pa.Schema, message: str) -> None:
        with pytest.raises(errors.TableSchemaValidationError, match=message):
            chunk(shared, "bad", schema=schema)

    def test_a_pickle_that_does_not_say_what_it_makes(self, shared: ViewCatalog) -> None:
        text = base64.b64encode(b"\x80\x04N.").decode()
        with pytest.raises(errors.TableSchemaValidationError, match="send an output_schema"):
            total(shared, "bad", udtf=text, udtf_sha=hashlib.sha256(text.encode()).hexdigest())
