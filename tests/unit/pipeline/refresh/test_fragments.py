"""New fragments of a view hold rows that fit its schema."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pennon.pipeline.refresh.fragments import SchemaMismatchError, fit


def test_rows_fit_the_schema_of_the_view_or_are_refused() -> None:
    rows = pa.record_batch({"b": [1.0, 2.0], "a": [1, 2]})
    schema = pa.schema([pa.field("a", pa.int8()), pa.field("b", pa.int64())])
    assert fit(rows, schema).to_pylist() == [{"a": 1, "b": 1}, {"a": 2, "b": 2}]
    with pytest.raises(SchemaMismatchError, match="'a' is declared as int8"):
        fit(pa.record_batch({"a": [300], "b": [1]}), schema)
    with pytest.raises(SchemaMismatchError, match="no column 'b'"):
        fit(pa.record_batch({"a": [1]}), schema)
    with pytest.raises(SchemaMismatchError, match="without nulls"):
        fit(pa.record_batch({"a": pa.array([None], pa.int8())}), pa.schema([pa.field("a", pa.int8(), nullable=False)]))
