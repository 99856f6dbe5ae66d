"""Rows as JSON, for clients that have no Arrow."""

from __future__ import annotations

import base64
import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.integration.rest.samples import stream

if TYPE_CHECKING:
    from tests.integration.rest.samples import Home
    from tests.integration.rest.wire import Answer

JSON = {"accept": "application/json"}
MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)

#: A value of each kind, and how it is returned.
VALUES: dict[str, tuple[pa.DataType, Any, Any]] = {
    "small": (pa.int32(), -7, -7),
    "large": (pa.int64(), 2**53 + 1, str(2**53 + 1)),
    "huge": (pa.uint64(), 2**64 - 1, str(2**64 - 1)),
    "edge": (pa.int64(), 2**53, 2**53),
    "real": (pa.float64(), 1.5, 1.5),
    "unknown": (pa.float64(), math.nan, "NaN"),
    "endless": (pa.float64(), -math.inf, "-Infinity"),
    "half": (pa.float16(), 0.5, 0.5),
    "truth": (pa.bool_(), True, True),
    "text": (pa.string(), "tée ☕", "tée ☕"),
    "bytes": (pa.binary(), b"\x00\xff", base64.b64encode(b"\x00\xff").decode()),
    "vector": (pa.list_(pa.float32(), 2), [1.0, 0.25], [1.0, 0.25]),
    "list": (pa.list_(pa.int64()), [1, None, 2**60], [1, None, str(2**60)]),
    "struct": (
        pa.struct([("a", pa.int64()), ("at", pa.timestamp("us"))]),
        {"a": 1, "at": MOMENT.replace(tzinfo=None)},
        {"a": 1, "at": "2026-01-02 03:04:05.678901"},
    ),
    "moments": (pa.list_(pa.date32()), [date(2026, 1, 2)], ["2026-01-02"]),
    "moment": (pa.timestamp("us", "UTC"), MOMENT, "2026-01-02 03:04:05.678901Z"),
    "exact": (pa.timestamp("ns"), 1_000_000_001, "1970-01-01 00:00:01.000000001"),
    "day": (pa.date32(), date(2026, 1, 2), "2026-01-02"),
    "amount": (pa.decimal128(10, 2), Decimal("1.50"), "1.50"),
    "span": (pa.duration("ms"), 1500, 1500),
    "map": (pa.map_(pa.string(), pa.int64()), [("a", 2**60)], [["a", str(2**60)]]),
    "calendar": (
        pa.map_(pa.date32(), pa.decimal128(4, 1)),
        [(date(2026, 1, 2), Decimal("1.5"))],
        [["2026-01-02", "1.5"]],
    ),
    "own": (pa.uuid(), b"\x00" * 16, base64.b64encode(b"\x00" * 16).decode()),
    "word": (pa.dictionary(pa.int32(), pa.string()), "again", "again"),
    "none": (pa.int64(), None, None),
}


def ask(home: Home, body: dict[str, Any], accept: str = JSON["accept"]) -> Answer:
    headers = {"accept": accept, "content-type": "application/json"}
    return home.wire.send("POST", f"/v1/table/{home.table}/query", json.dumps(body).encode(), headers)


@pytest.fixture
def wide(home: Home) -> Home:
    """A table with one row and a column of each kind."""
    table = pa.table({name: pa.array([value], kind) for name, (kind, value, _) in VALUES.items()})
    home.send("table", home.table, "create", stream(table))
    return home


class TestValues:
    def test_each_kind_of_value_is_returned_without_loss(self, wide: Home) -> None:
        answer = ask(wide, {"k": 5})
        assert answer.headers["content-type"] == "application/json"
        assert answer.json["rows"] == [{name: returned for name, (_, _, returned) in VALUES.items()}]
        assert [field["name"] for field in answer.json["schema"]["fields"]] == list(VALUES)
        assert (answer.json["version"], answer.json["truncated"]) == (1, False)
        assert answer.headers["x-lancedb-version"] == "1"

    def test_extension_types_are_returned_as_their_storage_type_at_any_depth(self, home: Home) -> None:
        ids = pa.array([b"\x00" * 16], pa.uuid())
        columns = [pa.StructArray.from_arrays([ids], ["id"]), pa.ListArray.from_arrays([0, 1], ids)]
        home.send("table", home.table, "create", stream(pa.table(columns, ["struct", "list"])))
        returned = base64.b64encode(b"\x00" * 16).decode()
        assert ask(home, {"k": 5}).json["rows"] == [{"struct": {"id": returned}, "list": [returned]}]

    def test_a_timestamp_with_an_unknown_time_zone_is_refused(self, home: Home) -> None:
        moments = pa.array([0], pa.timestamp("us", "Mars/Phobos"))
        home.send("table", home.table, "create", stream(pa.table({"at": moments})))
        answer = ask(home, {"k": 5})
        assert answer.outcome == (400, 13)
        assert "Mars/Phobos" in answer.json["error"]


class TestAsking:
    def test_the_query_is_the_same(self, shared_home: Home) -> None:
        body = {"k": 2, "filter": "id > 1", "columns": ["id"], "order_by": [{"column_name": "id", "ascending": False}]}
        assert ask(shared_home, body).json["rows"] == [{"id": 22}, {"id": 21}]
        nearest = {"k": 1, "vector": [10.0, 1.0], "columns": ["id"]}
        assert ask(shared_home, nearest).json["rows"][0]["id"] == 10

    def test_an_error_is_the_same(self, shared_home: Home) -> None:
        assert ask(shared_home, {"k": 2, "filter": "nonsense > 1"}).outcome == (404, 12)

    @pytest.mark.parametrize("accept", ["*/*", "application/vnd.apache.arrow.file, application/json", "text/html"])
    def test_who_leaves_the_choice_gets_arrow(self, shared_home: Home, accept: str) -> None:
        assert "arrow" in ask(shared_home, {"k": 2}, accept).headers["content-type"]

    def test_what_happened_to_jobs_can_be_read_so_too(self, shared_home: Home) -> None:
        answer = shared_home.wire.send("POST", "/v1/jobs/query_events", b"{}", JSON)
        assert set(answer.json) == {"version", "schema", "rows", "truncated"}


def test_an_answer_has_a_most(home: Home) -> None:
    home.send("table", home.table, "create", stream(pa.table({"id": pa.array(range(10_500), pa.int64())})))
    answer = ask(home, {"k": 20_000}).json
    assert (len(answer["rows"]), answer["truncated"]) == (10_000, True)
    exact = ask(home, {"k": 10_000}).json
    assert (len(exact["rows"]), exact["truncated"]) == (10_000, False)
