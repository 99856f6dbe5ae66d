"""Upserts: by which index rows are matched, and by none where Lance would lose some."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance_namespace import MergeInsertIntoTableRequest
from lance_namespace.errors import InvalidInputError, TableColumnNotFoundError

from pennon.tables.arrow_stream import source_of
from pennon.tables.upsert import Merge, Spool

ROWS = pa.table({"id": [1, 2, 3], "word": ["a", "b", "c"], "s": [{"x": 1}] * 3})
UPSERT = {"on": ["id"], "when_matched_update_all": True, "when_not_matched_insert_all": True}


@pytest.fixture
def dataset(tmp_path: Path) -> Any:
    """Rows with an index on their ids."""
    made = lance.write_dataset(ROWS, tmp_path / "table.lance")
    made.create_scalar_index("id", "BTREE")
    return made


def stream_of(data: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, data.schema) as writer:
        writer.write_table(data)
    return bytes(sink.getvalue().to_pybytes())


def uses_index(dataset: Any, data: pa.Table, small_bytes: int = 2**20, **options: Any) -> bool:
    """Tell whether an upsert finds rows by the index; Lance explains only those that do not."""
    request = MergeInsertIntoTableRequest.model_validate({**UPSERT, **options})
    with Spool(source_of(stream_of(data), small_bytes)) as spool:
        builder = Merge(request, data.schema).builder(dataset, spool, None)
        try:
            return "HashJoin" not in builder.explain_plan(data.schema)
        except OSError as error:
            return "scalar-index execution path" in str(error)


def test_an_index_is_used_where_that_is_asked_for(dataset: Any) -> None:
    assert uses_index(dataset, ROWS, use_index=True)
    assert not uses_index(dataset, ROWS, use_index=False)
    assert not uses_index(dataset, ROWS)


@pytest.mark.parametrize("small_bytes", [0, 2**20], ids=["large", "small"])
def test_no_index_is_used_for_keys_that_are_null(dataset: Any, small_bytes: int) -> None:
    gappy = ROWS.set_column(0, "id", pa.array([1, None, 9], pa.int64()))
    assert not uses_index(dataset, gappy, small_bytes, use_index=True)
    others = ROWS.set_column(1, "word", pa.array(["x", None, "y"]))
    assert uses_index(dataset, others, small_bytes, use_index=True)


def test_no_index_is_used_for_conditions_on_columns_that_the_source_lacks(dataset: Any) -> None:
    condition: dict[str, Any] = {"use_index": True, "when_matched_update_all_filt": "target.word = 'a'"}
    assert uses_index(dataset, ROWS, **condition)
    request = MergeInsertIntoTableRequest.model_validate({**UPSERT, **condition})
    fewer = ROWS.select(["id", "s"])
    with Spool(source_of(stream_of(fewer))) as spool:
        counts = Merge(request, fewer.schema).builder(dataset, spool, None).execute(spool.read())
    assert counts["num_updated_rows"] == 1


def test_a_key_is_a_column_of_both_sides(dataset: Any) -> None:
    def merge(*keys: str) -> Any:
        return Merge(MergeInsertIntoTableRequest.model_validate({**UPSERT, "on": list(keys)}), ROWS.schema)

    with pytest.raises(InvalidInputError, match="must be a top-level column"):
        merge("s.x")
    with pytest.raises(TableColumnNotFoundError, match=r"'wrod'. Did you mean 'word'"):
        merge("id", "wrod")
    with Spool(source_of(stream_of(ROWS))) as spool, pytest.raises(TableColumnNotFoundError, match="'word'"):
        merge("word").builder(lance.write_dataset(ROWS.select(["id"]), "memory://"), spool, None)
    assert (
        merge("`id`").builder(dataset, Spool(source_of(stream_of(ROWS))), None).execute(ROWS)["num_updated_rows"] == 3
    )
