"""Conditions of LanceDB's expression builder: the same rows as in a local table, in queries, updates and deletes."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import lancedb
import pyarrow as pa
import pytest
from lancedb.expr import col, lit

from tests.clients.remote.data import ids, new_name

NOON = datetime(2020, 1, 1, 12, tzinfo=UTC)
ROWS = pa.table(
    {
        "id": [1, 2, 3],
        "bytes": [b"\xca\xfe", b"x", b""],
        "text": ["it's", 'a "b"', "größe"],
        "number": [1.5, -2.0, 3e300],
        "flag": [True, False, None],
        "day": pa.array([date(2020, 1, 1), date(2021, 1, 1), None]),
        "time": pa.array([NOON.replace(tzinfo=None), None, None], pa.timestamp("us")),
        "zoned": pa.array([NOON, None, None], pa.timestamp("us", "UTC")),
        "price": pa.array([Decimal("1.50"), Decimal("2.00"), None], pa.decimal128(10, 2)),
    }
)
#: Each is written into SQL by the client: bytes as X'…', casts and decimals by arrow_cast().
CONDITIONS: dict[str, Any] = {
    "bytes": col("bytes") == lit(b"\xca\xfe"),
    "no bytes": col("bytes") == lit(b""),
    "several bytes": col("bytes").isin([b"x", b"\xca\xfe"]),
    "text": col("text") == lit("it's"),
    "number": col("number") < lit(-1.5e0),
    "infinity": col("number") < lit(float("inf")),
    "flag": col("flag") == lit(True),
    "day": col("day") >= lit(date(2020, 6, 1)),
    "time": col("time") == lit(NOON.replace(tzinfo=None)),
    "zoned time": col("zoned") == lit(NOON),
    "decimal": col("price") == lit(Decimal("1.50")),
    "cast to text": col("id").cast(pa.string()) == lit("2"),
    "cast to bytes": col("text").cast(pa.binary()) == lit(b"it's"),
    "cast to a day": col("time").cast(pa.date32()) == lit(date(2020, 1, 1)),
    "cast to a decimal": col("number").cast(pa.decimal128(10, 2)) == lit(Decimal("1.50")),
}


@pytest.mark.parametrize("kind", CONDITIONS)
def test_a_condition_finds_and_changes_the_rows_that_it_does_in_a_local_table(
    db: Any, tmp_path: Path, kind: str
) -> None:
    condition, outcomes = CONDITIONS[kind], []
    rows = ROWS if kind != "cast to a decimal" else ROWS.slice(0, 2)  # the third number does not fit
    for table in (lancedb.connect(tmp_path).create_table("t", rows), db.create_table(new_name(), rows)):
        found = sorted(ids(table.search().where(condition).to_arrow()))
        updated = table.update(where=condition, values={"text": "changed"}).rows_updated
        changed = sorted(ids(table.search().where("text = 'changed'").to_arrow()))
        deleted = table.delete(col("text") == lit("changed")).num_deleted_rows
        kept = table.count_rows()
        fresh = table.add(rows.slice(0, 1)).version
        removed = table.delete(condition).num_deleted_rows
        outcomes.append((found, updated, changed, deleted, kept, bool(fresh), removed, table.count_rows()))
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][0]
