"""Making views of queries: in every form, with what is known of them from then on."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import lance_namespace.errors as errors
import pyarrow as pa
import pytest

import pennon
from pennon.core.errors import status_of
from pennon.namespace.new_tables import NewTables
from pennon.views.model.definition import Column
from tests.integration.views.api.view_catalog import encoded

if TYPE_CHECKING:
    from tests.integration.views.api.view_catalog import ViewCatalog


@pennon.udf
def shout(text: str) -> str:
    return text.upper()


UDF = base64.b64encode(shout.pack()).decode()
EMPTY_ENTRY = {"kind": "udtf", "udtf": "", "udtf_sha": "", "udtf_name": "f", "udtf_version": "1"}
GENEVA = {
    "base": {"filter": "id > 1", "columns": ["id"], "limit": None},
    "shuffle": False,
    "fragment_ids": None,
    "column_udfs": None,
    "source_table": "t",
    "source_db_uri": "db://x",
}


class TestForms:
    def test_pennons_json(self, view_catalog: ViewCatalog) -> None:
        answer = view_catalog.create(
            "v", {"source": "t", "columns": {"n": "id + 1", "word": "text"}, "where": "id > 1"}
        )
        assert (answer.version, answer.job_id) == (1, None)
        definition = view_catalog.definition("v")
        assert (definition.kind, definition.engine, definition.rebuild_reason) == ("query", "lance", None)
        assert definition.columns == (Column("n", "id + 1"), Column("word", "text"))
        assert definition.sources[0].columns == ("id", "text")
        assert [(f.name, f.type) for f in view_catalog.schema("v")] == [
            ("__source_row_id", pa.int64()),
            ("n", pa.int64()),
            ("word", pa.string()),
        ]

    def test_all_columns_keep_their_types(self, view_catalog: ViewCatalog) -> None:
        view_catalog.create("v", {"source": "t"})
        own = view_catalog.schema("t")
        assert view_catalog.schema("v").names == ["__source_row_id", *own.names]
        assert [view_catalog.schema("v").field(name).type for name in own.names] == own.types

    def test_sparks_sql(self, view_catalog: ViewCatalog) -> None:
        view_catalog.create("v", "SELECT id, length(text) AS n FROM t WHERE id > 1")
        definition = view_catalog.definition("v")
        assert (definition.engine, definition.rebuild_reason) == ("spark", None)
        assert definition.sql == "SELECT `t`.`__source_row_id`, id, length(text) AS n FROM source_1 AS `t` WHERE id > 1"
        assert view_catalog.schema("v").names == ["__source_row_id", "id", "n"]

    def test_sparks_sql_that_needs_all_rows(self, view_catalog: ViewCatalog) -> None:
        view_catalog.create(
            "v", {"sql": "SELECT t.id, count(*) AS n FROM t JOIN shop.orders o ON t.id = o.id GROUP BY t.id"}
        )
        described = view_catalog.describe("v")
        assert not described.incremental
        assert described.rebuild_reason == "The query uses a join, so every refresh computes the whole view."
        assert [(s.table, s.columns) for s in described.sources] == [("t", ["id"]), ("shop.orders", ["id"])]
        assert view_catalog.schema("v").names == ["id", "n"]

    def test_genevas_json(self, view_catalog: ViewCatalog) -> None:
        schema = pa.schema([("__source_row_id", pa.int64()), ("__is_set", pa.bool_()), ("id", pa.int64())])
        view_catalog.create("v", GENEVA, kind="query", output_schema=encoded(schema))
        assert view_catalog.schema("v").names == ["__source_row_id", "__is_set", "id"]
        assert view_catalog.definition("v").where == "id > 1"

    def test_genevas_functions_are_kept_for_a_worker_that_can_run_them(self, view_catalog: ViewCatalog) -> None:
        payload = base64.b64encode(b"only geneva can read this").decode()
        udf = {"output_index": 1, "output_name": "x", "udf": {"name": "f", "udf_payload": payload}}
        schema = pa.schema([("__source_row_id", pa.int64()), ("id", pa.int64()), ("x", pa.float32())])
        query = {**GENEVA, "column_udfs": [{**udf, "input_columns": ["text"]}]}
        view_catalog.create("v", query, output_schema=encoded(schema))
        (function,) = view_catalog.definition("v").functions
        assert (view_catalog.folder("v") / function.reference).read_bytes() == b"only geneva can read this"
        assert view_catalog.describe("v").sources[0].columns == ["id", "text"]

    def test_the_clients_select(self, view_catalog: ViewCatalog) -> None:
        view_catalog.create(
            "v", query='SELECT `id` AS "n" FROM "shop"."orders" WHERE "price" > 1 LIMIT 5', with_no_data=True
        )
        definition = view_catalog.definition("v")
        assert (definition.engine, definition.where, definition.limit) == ("lance", "`price` > 1", 5)
        assert definition.rebuild_reason == "The query uses LIMIT, so every refresh computes the whole view."
        assert view_catalog.schema("v").names == ["n"]

    def test_the_clients_other_queries_are_put_into_sparks_sql(self, view_catalog: ViewCatalog) -> None:
        view_catalog.create("v", query='SELECT "text", count(*) AS "n" FROM "t" GROUP BY "text"')
        assert view_catalog.definition("v").sql == "SELECT `text`, COUNT(*) AS `n` FROM source_1 AS `t` GROUP BY `text`"

    def test_functions_of_a_query(self, view_catalog: ViewCatalog) -> None:
        function = {"udf": UDF, "inputs": ["text"], "outputs": {"loud": ""}}
        view_catalog.create("v", {"source": "t", "columns": ["id"], "functions": [function]})
        (kept,) = view_catalog.definition("v").functions
        assert (kept.inputs, kept.outputs) == (("text",), (("loud", ""),))
        assert (view_catalog.folder("v") / kept.reference).read_bytes() == shout.pack()
        assert view_catalog.schema("v").field("loud").type == pa.string()
        assert UDF not in json.dumps(view_catalog.view("v").request)


class TestSources:
    def test_a_version_is_kept_to(self, view_catalog: ViewCatalog) -> None:
        view_catalog.put("t", view_catalog.open("t").to_table().slice(0, 1), "append")
        view_catalog.create("v", {"source": "t", "version": 1})
        view_catalog.create("w", "SELECT id FROM t VERSION AS OF 1")
        for name in ("v", "w"):
            assert view_catalog.definition(name).sources[0].version == 1
            view_catalog.arrive(name)
            assert view_catalog.describe(name).state == "fresh"

    def test_a_tag_is_the_version_that_it_was(self, view_catalog: ViewCatalog) -> None:
        view_catalog("CreateTableTag", "t", tag="gold", version=1)
        view_catalog.create("v", "SELECT id FROM t VERSION AS OF 'gold'")
        view_catalog.create("w", {"source": "t", "version": "gold"})
        assert view_catalog.definition("v").sources[0].version == view_catalog.definition("w").sources[0].version == 1

    def test_views_over_views_see_the_columns_and_not_what_ties_them(self, view_catalog: ViewCatalog) -> None:
        view_catalog.create("v", {"source": "t", "columns": ["id", "text"]})
        view_catalog.create("w", {"source": "v"})
        view_catalog.create("x", "SELECT * FROM w")
        assert view_catalog.schema("w").names == view_catalog.schema("x").names == ["__source_row_id", "id", "text"]
        assert view_catalog.definition("w").sources[0].columns == ("id", "text")

    def test_a_renamed_source_is_still_the_source(self, view_catalog: ViewCatalog) -> None:
        view_catalog.create("v", "SELECT id FROM shop.orders")
        view_catalog("RenameTable", "shop$orders", new_table_name="sales")
        assert view_catalog.describe("v").sources[0].table == "shop.sales"

    def test_names_are_looked_for_in_the_clients_database_first(self, view_catalog: ViewCatalog) -> None:
        view_catalog.put("shop$t", pa.table({"id": ["in the shop"]}))
        request = {"id": ["shop", "v"], "query": 'SELECT "id" FROM "t"'}
        view_catalog.ns.create_materialized_view(request, ("shop",))
        assert view_catalog.definition("shop$v").sources[0].identifier == ("shop", "t")
        request = {"id": ["shop", "w"], "query": 'SELECT "id" FROM "shop"."orders"'}
        view_catalog.ns.create_materialized_view(request, ("shop",))
        assert view_catalog.definition("shop$w").sources[0].identifier == ("shop", "orders")


class TestTheTable:
    def test_it_is_there_at_once_and_empty(self, view_catalog: ViewCatalog) -> None:
        view_catalog.create("shop$v", {"source": "t"})
        assert view_catalog.open("shop$v").count_rows() == 0
        assert view_catalog("ListTables", "shop").tables == ["orders", "v"]
        view_catalog("CreateTableTag", "shop$v", tag="empty", version=1)

    def test_with_data_a_job_fills_it(self, view_catalog: ViewCatalog) -> None:
        answer = view_catalog.create("v", {"source": "t"}, with_no_data=False)
        (job,) = view_catalog.jobs("v")
        assert (job.id, job.kind, job.target, job.spec) == (answer.job_id, "refresh", "", {})
        assert view_catalog.describe("v").active_job == job.id

    def test_its_columns_say_nothing_of_who_fills_those_of_the_source(self, view_catalog: ViewCatalog) -> None:
        column = {"name": "next", "computed": "id + 1"}
        view_catalog("AlterTableAddColumns", "t", new_columns=[column])
        view_catalog.create("v", {"source": "t", "columns": ["next"]})
        assert not view_catalog.schema("v").field("next").metadata

    def test_of_two_that_are_made_at_once_one_is(self, view_catalog: ViewCatalog) -> None:
        from concurrent.futures import ThreadPoolExecutor

        def make(number: int) -> Any:
            try:
                return view_catalog.create("v", {"source": "t", "columns": {f"c{number}": "id"}}).version
            except errors.TableAlreadyExistsError as error:
                return error

        with ThreadPoolExecutor(4) as pool:
            made = list(pool.map(make, range(4)))
        assert made.count(1) == 1
        name = view_catalog.schema("v").names[-1]
        assert made[int(name[1:])] == 1
        assert view_catalog.definition("v").columns[0].name == name


class TestDeclaredSchemas:
    def test_they_decide_types_and_order(self, view_catalog: ViewCatalog) -> None:
        schema = pa.schema([("text", pa.large_string()), ("id", pa.int32())])
        view_catalog.create("v", {"source": "t", "columns": ["id", "text"]}, output_schema=encoded(schema))
        assert [(f.name, f.type) for f in view_catalog.schema("v")][1:] == [
            ("text", pa.large_string()),
            ("id", pa.int32()),
        ]

    def test_the_declared_schema_has_what_the_query_lacks(self, view_catalog: ViewCatalog) -> None:
        query = "SELECT sum(price) AS total FROM shop.orders"
        with pytest.raises(errors.TableSchemaValidationError, match=r"CAST\(.*output_schema"):
            view_catalog.create("v", query)
        view_catalog.create("v", query, output_schema=encoded(pa.schema([("total", pa.decimal128(20, 2))])))
        assert view_catalog.schema("v").field("total").type == pa.decimal128(20, 2)


BAD_QUERIES: list[tuple[Any, type[errors.LanceNamespaceError], str]] = [
    ({"source": "nope"}, errors.TableNotFoundError, "'nope' does not exist"),
    ({"source": "shop.order"}, errors.TableNotFoundError, "Did you mean 'orders'"),
    ({"source": "nowhere.t"}, errors.NamespaceNotFoundError, "'nowhere' does not exist"),
    ({"source": "t", "version": 9}, errors.TableVersionNotFoundError, "no version 9"),
    ({"source": "t", "version": "gold"}, errors.TableTagNotFoundError, "no tag 'gold'"),
    ({"source": "t", "columns": ["idd"]}, errors.TableColumnNotFoundError, "no column 'idd'"),
    ({"source": "t", "columns": {"x": "idd + 1"}}, errors.TableColumnNotFoundError, "no column 'idd'"),
    ({"source": "t", "columns": {"x": "id +"}}, errors.InvalidInputError, "id"),
    ({"source": "t", "columns": {"x": "count(id)"}}, errors.InvalidInputError, "function 'count' is not offered"),
    ({"source": "t", "columns": {"x": "nope(id)"}}, errors.InvalidInputError, "nope"),
    ({"source": "t", "columns": []}, errors.InvalidInputError, "names no columns"),
    ({"source": "t", "columns": ["id", "id"]}, errors.TableSchemaValidationError, "Duplicate column name 'id'"),
    ({"source": "t", "columns": {"a.b": "id"}}, errors.TableSchemaValidationError, "Invalid column name 'a.b'"),
    ({"source": "t", "columns": {"__source_row_id": "id"}}, errors.TableSchemaValidationError, "__source_row_id"),
    ({"source": "t", "where": "id"}, errors.InvalidInputError, "boolean"),
    ({"source": "t", "where": "nope > 1"}, errors.TableColumnNotFoundError, "no column 'nope'"),
    ({"source": "a/b"}, errors.InvalidInputError, "a/b"),
    ({"source": ["t", ""]}, errors.InvalidInputError, "empty"),
    ({"source": "bad"}, errors.InvalidInputError, "cannot read itself"),
    ("SELECT nope FROM t", errors.TableColumnNotFoundError, "no column 'nope'"),
    ("SELECT id FROM shop.nope", errors.TableNotFoundError, "does not exist"),
    ("SELECT id FROM parquet.`/etc/passwd`", errors.InvalidInputError, "passwd"),
    ("SELECT id, id FROM t", errors.TableSchemaValidationError, "Duplicate column name 'id'"),
    (
        "SELECT * FROM t JOIN shop.orders o ON t.id = o.id",
        errors.TableSchemaValidationError,
        "Duplicate column name 'id'",
    ),
    ("SELECT * FROM t UNION SELECT id FROM t", errors.InvalidInputError, "sides of UNION have 4 and 1 columns"),
    ("SELECT id + 1 FROM t", errors.InvalidInputError, "has no name"),
    ("DELETE FROM t", errors.InvalidInputError, "must be one SELECT"),
    ("", errors.InvalidInputError, "empty"),
]


#: What the specification requires of a request.
WHOLE = {"kind": "query", "source_query": '{"source": "t"}', "output_schema": None}


class TestWhatIsRefused:
    @pytest.mark.parametrize(("query", "error", "message"), BAD_QUERIES, ids=[str(bad[0]) for bad in BAD_QUERIES])
    def test_bad_queries(
        self, shared: ViewCatalog, query: Any, error: type[errors.LanceNamespaceError], message: str
    ) -> None:
        with pytest.raises(error, match=message) as raised:
            shared.create("bad", query)
        assert status_of(raised.value) in (400, 404)
        assert "bad" not in shared("ListTables", "$").tables

    @pytest.mark.parametrize(
        ("fields", "error"),
        [
            ({}, errors.InvalidInputError),
            ({"query": "SELECT * FROM t", "source_query": "SELECT * FROM t"}, errors.InvalidInputError),
            ({"query": ""}, errors.InvalidInputError),
            ({"output_schema": "?"}, errors.TableSchemaValidationError),
            ({"output_schema": encoded(pa.schema([("x", pa.int8())]))}, errors.TableSchemaValidationError),
            ({"schedule": "daily"}, errors.InvalidInputError),
            ({"on_schema_change": "panic"}, errors.InvalidInputError),
            ({"udtf_spec": EMPTY_ENTRY}, errors.InvalidInputError),
            ({"kind": "udtf"}, errors.InvalidInputError),
            ({"kind": "chunker"}, errors.InvalidInputError),
        ],
    )
    def test_bad_requests(
        self, shared: ViewCatalog, fields: dict[str, Any], error: type[errors.LanceNamespaceError]
    ) -> None:
        query = {} if not fields or "query" in fields else WHOLE
        with pytest.raises(error):
            shared.ns.create_materialized_view({"id": ["bad"], **query, **fields})
        assert "bad" not in shared("ListTables", "$").tables

    @pytest.mark.parametrize(
        ("function", "error", "message"),
        [
            ({"udf": "AAAA", "inputs": ["id"], "outputs": {"x": ""}}, errors.InvalidInputError, "cannot be read"),
            ({"udf": UDF, "inputs": ["nope"], "outputs": {"x": ""}}, errors.TableColumnNotFoundError, "'nope'"),
            ({"udf": UDF, "inputs": ["text"], "outputs": {"x": "part"}}, errors.InvalidInputError, "returns no 'part'"),
            ({"udf": UDF, "inputs": ["text"], "outputs": {"id": ""}}, errors.TableSchemaValidationError, "two columns"),
            (
                {"udf": UDF, "inputs": ["text"], "outputs": {"x": ""}, "manifest": "{"},
                errors.InvalidInputError,
                "manifest",
            ),
        ],
    )
    def test_bad_functions(
        self, shared: ViewCatalog, function: dict[str, Any], error: type[errors.LanceNamespaceError], message: str
    ) -> None:
        with pytest.raises(error, match=message):
            shared.create("bad", {"source": "t", "columns": ["id"], "functions": [function]})

    def test_a_name_that_is_taken(self, shared: ViewCatalog) -> None:
        with pytest.raises(errors.TableAlreadyExistsError):
            shared.create("t", {"source": "shop.orders"})

    def test_a_namespace_that_is_not_there(self, shared: ViewCatalog) -> None:
        with pytest.raises(errors.NamespaceNotFoundError):
            shared.create("nowhere$v", {"source": "t"})

    def test_a_view_whose_source_is_dropped_during_its_creation_is_removed(
        self, view_catalog: ViewCatalog, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        plan = NewTables.plan

        def drop_first(*arguments: Any) -> Any:
            view_catalog("DropTable", "t")
            return plan(*arguments)

        monkeypatch.setattr(NewTables, "plan", drop_first)
        function = {"udf": UDF, "inputs": ["text"], "outputs": {"x": ""}}
        with pytest.raises(errors.TableNotFoundError):
            view_catalog.create("v", {"source": "t", "columns": ["id"], "functions": [function]})
        assert view_catalog("ListTables", "$").tables == []
        assert not list(view_catalog.root.rglob("_udfs/*"))


@pytest.mark.parametrize(
    "query",
    [
        {"source": "films"},
        {"source": "films", "columns": {"n": "id"}, "where": "film IS NOT NULL"},
        {"source": "films", "columns": ["id"], "functions": [{"udf": UDF, "inputs": ["film"], "outputs": {"f": ""}}]},
        "SELECT * FROM films",
        "SELECT id, length(film) AS n FROM films",
    ],
)
def test_columns_of_blobs_are_refused(view_catalog: ViewCatalog, query: Any) -> None:
    film = pa.field("film", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    view_catalog.put("films", pa.table({"id": [1], "film": [b"reel"]}, pa.schema([pa.field("id", pa.int64()), film])))
    with pytest.raises(errors.InvalidInputError, match=r"'film' holds blobs.*without it"):
        view_catalog.create("v", query)
    view_catalog.create("v", {"source": "films", "columns": ["id"]})


def test_columns_that_spark_would_change_are_refused_where_the_view_reads_them(view_catalog: ViewCatalog) -> None:
    kinds = {
        "moment": pa.timestamp("ns"),
        "zoned": pa.timestamp("ns", "UTC"),
        "wide": pa.decimal256(60, 5),
        "deep": pa.struct([("times", pa.list_(pa.timestamp("ns")))]),
    }
    columns = {name: pa.nulls(1, kind) for name, kind in kinds.items()}
    view_catalog.put("fine", pa.table({"id": [1], **columns}))
    for name in kinds:
        for request in (
            {"source_query": f"SELECT id, {name} FROM fine"},
            {"source_query": json.dumps({"sql": f"SELECT id FROM fine WHERE {name} IS NULL"})},
            {"source_query": "SELECT * FROM fine"},
            {"query": f'SELECT "id", count("{name}") AS n FROM "fine" GROUP BY "id"', "source_query": None},
        ):
            with pytest.raises(errors.InvalidInputError, match="omit it from the query"):
                view_catalog.ns.create_materialized_view({**WHOLE, "id": ["refused"], **request})
    assert "refused" not in view_catalog("ListTables", "$").tables
    view_catalog.create("without", "SELECT id, count(*) AS n FROM fine GROUP BY id")
    view_catalog.create("by_lance", {"source": "fine"})
    assert view_catalog.schema("by_lance").field("wide").type == kinds["wide"]


@pytest.mark.parametrize(
    "request_fields",
    [
        {"branch": "work"},
        {"source_query": json.dumps({"source_table": "t", "branch": "work"})},
        {"source_query": json.dumps({"source_table": "t", "base": {"branch": "work"}})},
        {"source_query": json.dumps({"source": "t", "branch": "work"})},
        {"source_query": "SELECT id FROM t VERSION AS OF 'work'"},
    ],
)
def test_branch_of_a_source_is_refused_and_not_read_as_main(
    view_catalog: ViewCatalog, request_fields: dict[str, Any]
) -> None:
    view_catalog("CreateTableBranch", "t", name="work")
    with pytest.raises(errors.LanceNamespaceError, match=r"main branch|unknown key 'branch'|no tag 'work'"):
        view_catalog.ns.create_materialized_view({**WHOLE, "id": ["v"], **request_fields})
    assert "v" not in view_catalog("ListTables", "$").tables
