"""The schema of a view's table."""

from __future__ import annotations

import base64

import pyarrow as pa
import pytest
from lance_namespace.errors import InvalidInputError, TableSchemaValidationError

from pennon.views.model.schemas import decode_schema, hidden_names, stored_schema
from pennon.views.schedules import check_schedule

MADE = pa.schema([("a", pa.int64()), ("b", pa.string())])


def declared(*fields: tuple[str, pa.DataType]) -> pa.Schema:
    return pa.schema(list(fields))


class TestDecoding:
    def test_a_schema_message_is_read(self) -> None:
        schema = MADE.with_metadata({"key": "value"})
        assert decode_schema(base64.b64encode(schema.serialize().to_pybytes()).decode()).equals(schema, True)

    @pytest.mark.parametrize("text", ["", "?", "AAAA", base64.b64encode(b"nonsense" * 20).decode()])
    def test_anything_else_is_refused(self, text: str) -> None:
        with pytest.raises(TableSchemaValidationError):
            decode_schema(text)


class TestStoring:
    def test_what_ties_rows_to_their_source_comes_first(self) -> None:
        hidden = hidden_names("chunker", incremental=True)
        assert stored_schema(MADE, None, hidden).names == ["__source_row_id", "__child_index", "a", "b"]
        assert hidden_names("query", incremental=True) == ("__source_row_id",)
        assert hidden_names("query", incremental=False) == ()
        assert hidden_names("udtf", incremental=False) == ()

    def test_what_is_declared_decides_the_order_the_types_and_the_metadata(self) -> None:
        wanted = declared(("b", pa.large_string()), ("a", pa.int32())).with_metadata({"key": "value"})
        stored = stored_schema(MADE, wanted, ("__source_row_id",))
        assert stored.names == ["__source_row_id", "b", "a"]
        assert stored.field("a").type == pa.int32()
        assert stored.metadata == {b"key": b"value"}

    def test_what_a_client_declares_of_the_hidden_columns_is_kept_once(self) -> None:
        wanted = declared(
            ("__source_row_id", pa.int64()), ("__is_set", pa.bool_()), *zip(MADE.names, MADE.types, strict=True)
        )
        assert stored_schema(MADE, wanted, ("__source_row_id",)).names == ["__source_row_id", "__is_set", "a", "b"]

    def test_a_type_that_cannot_be_inferred_is_taken_from_the_declared_schema(self) -> None:
        made = pa.schema([("a", pa.null())])
        assert stored_schema(made, declared(("a", pa.date32())), ()).field("a").type == pa.date32()

    @pytest.mark.parametrize(
        ("wanted", "message"),
        [
            (declared(("a", pa.int64())), "lacks the column 'b'"),
            (declared(("a", pa.int64()), ("b", pa.string()), ("c", pa.int8())), "'c', which the view does not have"),
            (declared(("a", pa.int64()), ("b", pa.list_(pa.int8()))), "'b' has type list"),
            (declared(("__source_row_id", pa.string()), ("a", pa.int64()), ("b", pa.string())), "must be int64"),
        ],
    )
    def test_mismatching_schemas_are_refused(self, wanted: pa.Schema, message: str) -> None:
        with pytest.raises(TableSchemaValidationError, match=message):
            stored_schema(MADE, wanted, ("__source_row_id",))

    def test_a_column_cannot_take_the_name_of_a_hidden_one(self) -> None:
        with pytest.raises(TableSchemaValidationError, match="__source_row_id"):
            stored_schema(pa.schema([("__source_row_id", pa.int64())]), None, ("__source_row_id",))


class TestSchedules:
    @pytest.mark.parametrize("text", ["0 3 * * *", "*/5 * * * *", "0 0 1 1 *", "0 9 * * MON-FRI", "*/10 * * * * *"])
    def test_what_cron_writes_is_taken(self, text: str) -> None:
        assert check_schedule(text) == text

    @pytest.mark.parametrize("text", ["daily", "* * * *", "61 * * * *", "0 0 31 2 *", "0 0 * * FUNDAY", "x" * 500])
    def test_anything_else_is_refused(self, text: str) -> None:
        with pytest.raises(InvalidInputError, match="Invalid cron schedule"):
            check_schedule(text)
