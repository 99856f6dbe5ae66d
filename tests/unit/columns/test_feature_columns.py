"""What a column is computed from is known, however an expression names it."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

from pennon.columns.declarations import computed_metadata
from pennon.columns.feature_columns import find_feature_column

NAMES = ("id", "Size", "état", "my col", "note")


@pytest.mark.parametrize(
    ("expression", "inputs"),
    [
        ("id + 1", ("id",)),
        ("ID + size", ("id", "Size")),
        ("état + 1", ("état",)),
        ("`my col` + 1", ("my col",)),
        ("concat('id', note)", ("note",)),
        ("concat('it''s id', note)", ("note",)),
        ('concat("it\'s", note, "that\'s")', ("note",)),
        ("id -- it's a note\n + 1", ("id",)),
        ("id /* it's a note */ + 1", ("id",)),
    ],
)
def test_an_expression_is_computed_from_the_columns_it_names(
    tmp_path: Path, expression: str, inputs: tuple[str, ...]
) -> None:
    fields = [pa.field(name, pa.string() if name == "note" else pa.int64()) for name in NAMES]
    computed = pa.field("y", pa.string(), metadata=computed_metadata(expression, []))
    dataset = lance.write_dataset(pa.schema([*fields, computed]).empty_table(), str(tmp_path / "table"))
    dataset.scanner(columns={"y": expression}).to_table()  # Lance reads it so
    assert find_feature_column(dataset, "y").inputs == inputs
