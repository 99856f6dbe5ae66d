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
from pennon.views.model.definition import Column
from tests.integration.views.api.gallery import encoded

if TYPE_CHECKING:
    from tests.integration.views.api.gallery import Gallery


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
    def test_pennons_json(self, gallery: Gallery) -> None:
        answer = gallery.create("v", {"source": "t", "columns": {"n": "id + 1", "word": "text"}, "where": "id > 1"})
        assert (answer.version, answer.job_id) == (1, None)
        definition = gallery.definition("v")
        assert (definition.kind, definition.engine, definition.rebuild_reason) == ("query", "lance", None)
        assert definition.columns == (Column("n", "id + 1"), Column("word", "text"))
        assert definition.sources[0].columns == ("id", "text")
        assert [(f.name, f.type) for f in gallery.schema("v")] == [
            ("__source_row_id", pa.int64()),
            ("n", pa.int64()),
            ("word", pa.string()),
        ]

    def test_all_columns_keep_their_types(self, gallery: Gallery) -> None:
        gallery.create("v", {"source": "t"})
        own = gallery.schema("t")
        assert gallery.schema("v").names == ["__source_row_id", *own.names]
        assert [gallery.schema("v").field(name).type for name in own.names] == own.types

    def test_sparks_sql(self, gallery: Gallery) -> None:
        gallery.create("v", "SELECT id, length(text) AS n FROM t WHERE id > 1")
        definition = gallery.definition("v")
        assert (definition.engine, definition.rebuild_reason) == ("spark", None)
        assert definition.sql == "SELECT `t`.`__source_row_id`, id, length(text) AS n FROM source_1 AS `t` WHERE id > 1"
        assert gallery.schema("v").names == ["__source_row_id", "id", "n"]

    def test_sparks_sql_that_needs_all_rows(self, gallery: Gallery) -> None:
        gallery.create(
            "v", {"sql": "SELECT t.id, count(*) AS n FROM t JOIN shop.orders o ON t.id = o.id GROUP BY t.id"}
        )
        described = gallery.describe("v")
        assert not described.incremental
        assert described.rebuild_reason == "The query uses a join, so every refresh computes the whole view."
        assert [(s.table, s.columns) for s in described.sources] == [("t", ["id"]), ("shop.orders", ["id"])]
        assert gallery.schema("v").names == ["id", "n"]

    def test_genevas_json(self, gallery: Gallery) -> None:
        schema = pa.schema([("__source_row_id", pa.int64()), ("__is_set", pa.bool_()), ("id", pa.int64())])
        gallery.create("v", GENEVA, kind="query", output_schema=encoded(schema))
        assert gallery.schema("v").names == ["__source_row_id", "__is_set", "id"]
        assert gallery.definition("v").where == "id > 1"

    def test_genevas_functions_are_kept_for_a_worker_that_can_run_them(self, gallery: Gallery) -> None:
        payload = base64.b64encode(b"only geneva can read this").decode()
        udf = {"output_index": 1, "output_name": "x", "udf": {"name": "f", "udf_payload": payload}}
        schema = pa.schema([("__source_row_id", pa.int64()), ("id", pa.int64()), ("x", pa.float32())])
        query = {**GENEVA, "column_udfs": [{**udf, "input_columns": ["text"]}]}
        gallery.create("v", query, output_schema=encoded(schema))
        (function,) = gallery.definition("v").functions
        assert (gallery.folder("v") / function.reference).read_bytes() == b"only geneva can read this"
        assert gallery.describe("v").sources[0].columns == ["id", "text"]

    def test_the_clients_select(self, gallery: Gallery) -> None:
        gallery.create(
            "v", query='SELECT `id` AS "n" FROM "shop"."orders" WHERE "price" > 1 LIMIT 5', with_no_data=True
        )
        definition = gallery.definition("v")
        assert (definition.engine, definition.where, definition.limit) == ("lance", "`price` > 1", 5)
        assert definition.rebuild_reason == "The query uses LIMIT, so every refresh computes the whole view."
        assert gallery.schema("v").names == ["n"]

    def test_the_clients_other_queries_are_put_into_sparks_sql(self, gallery: Gallery) -> None:
        gallery.create("v", query='SELECT "text", count(*) AS "n" FROM "t" GROUP BY "text"')
        assert gallery.definition("v").sql == "SELECT `text`, COUNT(*) AS `n` FROM source_1 AS `t` GROUP BY `text`"

    def test_functions_of_a_query(self, gallery: Gallery) -> None:
        function = {"udf": UDF, "inputs": ["text"], "outputs": {"loud": ""}}
        gallery.create("v", {"source": "t", "columns": ["id"], "functions": [function]})
        (kept,) = gallery.definition("v").functions
        assert (kept.inputs, kept.outputs) == (("text",), (("loud", ""),))
        assert (gallery.folder("v") / kept.reference).read_bytes() == shout.pack()
        assert gallery.schema("v").field("loud").type == pa.string()
        assert UDF not in json.dumps(gallery.view("v").request)


class TestSources:
    def test_a_version_is_kept_to(self, gallery: Gallery) -> None:
        gallery.put("t", gallery.open("t").to_table().slice(0, 1), "append")
        gallery.create("v", {"source": "t", "version": 1})
        gallery.create("w", "SELECT id FROM t VERSION AS OF 1")
        for name in ("v", "w"):
            assert gallery.definition(name).sources[0].version == 1
            gallery.arrive(name)
            assert gallery.describe(name).state == "fresh"

    def test_a_tag_is_the_version_that_it_was(self, gallery: Gallery) -> None:
        gallery("CreateTableTag", "t", tag="gold", version=1)
        gallery.create("v", "SELECT id FROM t VERSION AS OF 'gold'")
        gallery.create("w", {"source": "t", "version": "gold"})
        assert gallery.definition("v").sources[0].version == gallery.definition("w").sources[0].version == 1

    def test_views_over_views_see_the_columns_and_not_what_ties_them(self, gallery: Gallery) -> None:
        gallery.create("v", {"source": "t", "columns": ["id", "text"]})
        gallery.create("w", {"source": "v"})
        gallery.create("x", "SELECT * FROM w")
        assert gallery.schema("w").names == gallery.schema("x").names == ["__source_row_id", "id", "text"]
        assert gallery.definition("w").sources[0].columns == ("id", "text")

    def test_a_renamed_source_is_still_the_source(self, gallery: Gallery) -> None:
        gallery.create("v", "SELECT id FROM shop.orders")
        gallery("RenameTable", "shop$orders", new_table_name="sales")
        assert gallery.describe("v").sources[0].table == "shop.sales"

    def test_names_are_looked_for_in_the_clients_database_first(self, gallery: Gallery) -> None:
        gallery.put("shop$t", pa.table({"id": ["in the shop"]}))
        request = {"id": ["shop", "v"], "query": 'SELECT "id" FROM "t"'}
        gallery.ns.create_materialized_view(request, ("shop",))
        assert gallery.definition("shop$v").sources[0].identifier == ("shop", "t")
        request = {"id": ["shop", "w"], "query": 'SELECT "id" FROM "shop"."orders"'}
        gallery.ns.create_materialized_view(request, ("shop",))
        assert gallery.definition("shop$w").sources[0].identifier == ("shop", "orders")


class TestTheTable:
    def test_it_is_there_at_once_and_empty(self, gallery: Gallery) -> None:
        gallery.create("shop$v", {"source": "t"})
        assert gallery.open("shop$v").count_rows() == 0
        assert gallery("ListTables", "shop").tables == ["orders", "v"]
        gallery("CreateTableTag", "shop$v", tag="empty", version=1)

    def test_with_data_a_job_fills_it(self, gallery: Gallery) -> None:
        answer = gallery.create("v", {"source": "t"}, with_no_data=False)
        (job,) = gallery.jobs("v")
        assert (job.id, job.kind, job.target, job.spec) == (answer.job_id, "refresh", "", {})
        assert gallery.describe("v").active_job == job.id

    def test_its_columns_say_nothing_of_who_fills_those_of_the_source(self, gallery: Gallery) -> None:
        column = {"name": "next", "computed": "id + 1"}
        gallery("AlterTableAddColumns", "t", new_columns=[column])
        gallery.create("v", {"source": "t", "columns": ["next"]})
        assert not gallery.schema("v").field("next").metadata

    def test_of_two_that_are_made_at_once_one_is(self, gallery: Gallery) -> None:
        from concurrent.futures import ThreadPoolExecutor

        def make(number: int) -> Any:
            try:
                return gallery.create("v", {"source": "t", "columns": {f"c{number}": "id"}}).version
            except errors.TableAlreadyExistsError as error:
                return error

        with ThreadPoolExecutor(4) as pool:
            made = list(pool.map(make, range(4)))
        assert made.count(1) == 1
        name = gallery.schema("v").names[-1]
        assert made[int(name[1:])] == 1
        assert gallery.definition("v").columns[0].name == name


class TestDeclaredSchemas:
    def test_they_decide_types_and_order(self, gallery: Gallery) -> None:
        schema = pa.schema([("text", pa.large_string()), ("id", pa.int32())])
        gallery.create("v", {"source": "t", "columns": ["id", "text"]}, output_schema=encoded(schema))
        assert [(f.name, f.type) for f in gallery.schema("v")][1:] == [("text", pa.large_string()), ("id", pa.int32())]

    def test_they_tell_what_the_query_does_not(self, gallery: Gallery) -> None:
        query = "SELECT sum(price) AS total FROM shop.orders"
        with pytest.raises(errors.TableSchemaValidationError, match=r"CAST\(.*output_schema"):
            gallery.create("v", query)
        gallery.create("v", query, output_schema=encoded(pa.schema([("total", pa.decimal128(20, 2))])))
        assert gallery.schema("v").field("total").type == pa.decimal128(20, 2)


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
    ({"source": "t", "columns": ["id", "id"]}, errors.TableSchemaValidationError, "two columns 'id'"),
    ({"source": "t", "columns": {"a.b": "id"}}, errors.TableSchemaValidationError, "cannot be a column"),
    ({"source": "t", "columns": {"__source_row_id": "id"}}, errors.TableSchemaValidationError, "__source_row_id"),
    ({"source": "t", "where": "id"}, errors.InvalidInputError, "boolean"),
    ({"source": "t", "where": "nope > 1"}, errors.TableColumnNotFoundError, "no column 'nope'"),
    ({"source": "a/b"}, errors.InvalidInputError, "a/b"),
    ({"source": ["t", ""]}, errors.InvalidInputError, "empty"),
    ({"source": "bad"}, errors.InvalidInputError, "cannot read itself"),
    ("SELECT nope FROM t", errors.TableColumnNotFoundError, "no column 'nope'"),
    ("SELECT id FROM shop.nope", errors.TableNotFoundError, "does not exist"),
    ("SELECT id FROM parquet.`/etc/passwd`", errors.InvalidInputError, "passwd"),
    ("SELECT id, id FROM t", errors.TableSchemaValidationError, "two columns 'id'"),
    ("SELECT * FROM t JOIN shop.orders o ON t.id = o.id", errors.TableSchemaValidationError, "two columns 'id'"),
    ("SELECT * FROM t UNION SELECT id FROM t", errors.InvalidInputError, "sides of UNION have 4 and 1 columns"),
    ("SELECT id + 1 FROM t", errors.InvalidInputError, "has no name"),
    ("DELETE FROM t", errors.InvalidInputError, "must be one SELECT"),
    ("", errors.InvalidInputError, "empty"),
]


#: What the specification requires of a request.
WHOLE = {"kind": "query", "source_query": '{"source": "t"}', "output_schema": None}


class TestWhatIsRefused:
    @pytest.mark.parametrize(("query", "error", "told"), BAD_QUERIES, ids=[str(bad[0]) for bad in BAD_QUERIES])
    def test_bad_queries(self, shared: Gallery, query: Any, error: type[errors.LanceNamespaceError], told: str) -> None:
        with pytest.raises(error, match=told) as raised:
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
        self, shared: Gallery, fields: dict[str, Any], error: type[errors.LanceNamespaceError]
    ) -> None:
        query = {} if not fields or "query" in fields else WHOLE
        with pytest.raises(error):
            shared.ns.create_materialized_view({"id": ["bad"], **query, **fields})
        assert "bad" not in shared("ListTables", "$").tables

    @pytest.mark.parametrize(
        ("function", "error", "told"),
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
        self, shared: Gallery, function: dict[str, Any], error: type[errors.LanceNamespaceError], told: str
    ) -> None:
        with pytest.raises(error, match=told):
            shared.create("bad", {"source": "t", "columns": ["id"], "functions": [function]})

    def test_a_name_that_is_taken(self, shared: Gallery) -> None:
        with pytest.raises(errors.TableAlreadyExistsError):
            shared.create("t", {"source": "shop.orders"})

    def test_a_namespace_that_is_not_there(self, shared: Gallery) -> None:
        with pytest.raises(errors.NamespaceNotFoundError):
            shared.create("nowhere$v", {"source": "t"})

    def test_nothing_is_left_of_a_view_whose_source_went_away_meanwhile(
        self, gallery: Gallery, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        plan = type(gallery.ns).plan_table

        def drop_first(*arguments: Any) -> Any:
            gallery("DropTable", "t")
            return plan(gallery.ns, *arguments)

        monkeypatch.setattr(gallery.ns, "plan_table", drop_first)
        function = {"udf": UDF, "inputs": ["text"], "outputs": {"x": ""}}
        with pytest.raises(errors.TableNotFoundError):
            gallery.create("v", {"source": "t", "columns": ["id"], "functions": [function]})
        assert gallery("ListTables", "$").tables == []
        assert not list(gallery.root.rglob("_udfs/*"))


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
def test_columns_of_blobs_are_refused(gallery: Gallery, query: Any) -> None:
    film = pa.field("film", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    gallery.put("films", pa.table({"id": [1], "film": [b"reel"]}, pa.schema([pa.field("id", pa.int64()), film])))
    with pytest.raises(errors.InvalidInputError, match=r"'film' holds blobs.*without this one"):
        gallery.create("v", query)
    gallery.create("v", {"source": "films", "columns": ["id"]})


def test_columns_that_spark_would_change_are_refused_where_the_view_reads_them(gallery: Gallery) -> None:
    kinds = {
        "moment": pa.timestamp("ns"),
        "zoned": pa.timestamp("ns", "UTC"),
        "wide": pa.decimal256(60, 5),
        "deep": pa.struct([("times", pa.list_(pa.timestamp("ns")))]),
    }
    columns = {name: pa.nulls(1, kind) for name, kind in kinds.items()}
    gallery.put("fine", pa.table({"id": [1], **columns}))
    for name in kinds:
        for request in (
            {"source_query": f"SELECT id, {name} FROM fine"},
            {"source_query": json.dumps({"sql": f"SELECT id FROM fine WHERE {name} IS NULL"})},
            {"source_query": "SELECT * FROM fine"},
            {"query": f'SELECT "id", count("{name}") AS n FROM "fine" GROUP BY "id"', "source_query": None},
        ):
            with pytest.raises(errors.InvalidInputError, match="leave it out of the query"):
                gallery.ns.create_materialized_view({**WHOLE, "id": ["refused"], **request})
    assert "refused" not in gallery("ListTables", "$").tables
    gallery.create("without", "SELECT id, count(*) AS n FROM fine GROUP BY id")
    gallery.create("by_lance", {"source": "fine"})
    assert gallery.schema("by_lance").field("wide").type == kinds["wide"]


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
def test_branch_of_a_source_is_refused_and_not_read_as_main(gallery: Gallery, request_fields: dict[str, Any]) -> None:
    gallery("CreateTableBranch", "t", name="work")
    with pytest.raises(errors.LanceNamespaceError, match=r"main branch|key that is not known|no tag 'work'"):
        gallery.ns.create_materialized_view({**WHOLE, "id": ["v"], **request_fields})
    assert "v" not in gallery("ListTables", "$").tables
