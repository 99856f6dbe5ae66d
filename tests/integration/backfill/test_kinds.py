"""Functions of every kind fill columns of every type."""

from __future__ import annotations

import base64
import os
import pickle
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import lance
import pyarrow as pa
import pytest
from lance.blob import Blob, blob_array, blob_field

import pennon
from pennon.client.job import JobFailedError
from pennon.functions import ErrorPolicy
from tests.integration.backfill.calls import CallLog, note
from tests.integration.backfill.conftest import NewSample
from tests.integration.backfill.sample_tables import ended, new_name, slow, tenfold
from tests.support.rest import RestClient
from tests.support.server import PennonProcess


class Parts(NamedTuple):
    tens: int
    text: str


@pennon.udf
def tenfold_text(x: int) -> str:
    return str(x * 10)


def test_a_batch_function_gets_arrays(new_sample: NewSample, log: CallLog) -> None:
    sample = new_sample(20, 2)
    sample.table.add_columns({"y": slow(log, 0.0)})
    assert sample.fill() == list(range(20))
    assert sample.values() == {number: number * 1000 for number in range(20)}


def test_a_record_batch_function_gets_named_columns(new_sample: NewSample) -> None:
    @pennon.udf(data_type=pa.int64(), input_columns=["x", "id"])
    def total(batch: pa.RecordBatch) -> pa.Array:
        assert batch.schema.names == ["x", "id"]
        return pa.array([row["x"] + row["id"] for row in batch.to_pylist()], pa.int64())

    sample = new_sample(20, 2)
    sample.table.add_columns({"y": total})
    sample.fill()
    assert sample.values() == {number: number * 101 for number in range(20)}


def test_a_class_is_set_up_once_a_process(new_sample: NewSample, log: CallLog) -> None:
    path = log.path

    class Model:
        def __init__(self, factor: int) -> None:
            self.factor = factor

        def setup(self) -> None:
            note(path, os.getpid())

        def __call__(self, x: int) -> int:
            return x * self.factor

    sample = new_sample(40, 4)
    sample.table.add_columns({"y": pennon.udf(Model).constructed_with(7)})
    sample.fill(task_size=10)
    assert sample.values() == {number: number * 700 for number in range(40)}
    # Whether a process is set up when the function is tried or when it computes, it is so only once.
    assert set(log.counts().values()) <= {1}


def test_several_columns_are_filled_together(new_sample: NewSample, log: CallLog) -> None:
    path = log.path

    @pennon.udf
    def parse_simple_select(id: int, x: int) -> Parts:  # noqa: A002
        note(path, id)
        return Parts(x // 10, str(x))

    sample = new_sample(20, 2)
    sample.table.add_columns({("tens", "text"): parse_simple_select})
    assert sample.fill("text") == list(range(20))
    assert sample.values("tens") == {number: number * 10 for number in range(20)}
    assert sample.values("text") == {number: str(number * 100) for number in range(20)}
    assert (sample.state("tens"), sample.state("text")) == ((20, 0, 0, 0), (20, 0, 0, 0))
    assert sample.fill("tens") == []
    sample.update("id = 3", 5)
    assert sample.fill("tens") == [3]
    assert (sample.values("tens")[3], sample.values("text")[3]) == (0, "5")
    sample.compact()
    assert (sample.fill("tens"), sample.fill("text")) == ([], [])
    sample.table.alter_columns({"path": "text", "function": tenfold_text})
    sample.fill("text")
    assert sample.values("text") == {key: str(number * 10) for key, number in sample.numbers().items()}
    assert sample.state("tens") == (20, 0, 0, 0)


def test_columns_of_one_function_are_filled_once_also_by_two_jobs(new_sample: NewSample, log: CallLog) -> None:
    path = log.path

    def parse_simple_select(id: int, x: int) -> Parts:  # noqa: A002
        note(path, id)
        if id == 3:
            raise ValueError("three")
        return Parts(x // 10, str(x))

    sample = new_sample(20, 2)
    sample.table.add_columns({("tens", "text"): pennon.udf(error_policy=ErrorPolicy.skip())(parse_simple_select)})
    for job in [sample.table.backfill_async(column) for column in ("text", "tens")]:
        assert ended(job).state == "done"
    assert log.new() == list(range(20))
    for column in ("tens", "text"):
        assert sample.state(column) == (19, 1, 0, 0)
        (error,) = sample.table.errors(column).to_pylist()
        assert (error["column"], error["error_message"]) == (column, "three")


def nested(new_sample: NewSample) -> Any:
    """Return a table with a column of structs, some of them null."""
    sample = new_sample(1)
    name = new_name()
    places = [None if number % 5 == 4 else {"a": number, "b": None} for number in range(20)]
    kind = pa.struct([("a", pa.int64()), ("b", pa.int64())])
    data = pa.table({"id": pa.array(range(20), pa.int64()), "s": pa.array(places, kind)})
    sample.db.create_table(name, data)
    return type(sample)(sample.db, sample.lance.lake, sample.lance.client, sample.log, name)


def test_a_nested_field_is_an_input(new_sample: NewSample, log: CallLog) -> None:
    path = log.path

    @pennon.udf(input_columns=["id", "s.a"])
    def twice(id: int, a: int | None) -> int | None:  # noqa: A002
        note(path, id)
        return None if a is None else 2 * a

    sample = nested(new_sample)
    sample.table.add_columns({"y": twice})
    assert sample.fill() == list(range(20))
    assert sample.values() == {number: None if number % 5 == 4 else 2 * number for number in range(20)}


def test_a_nested_field_is_filled(new_sample: NewSample, log: CallLog) -> None:
    path = log.path

    @pennon.udf(input_columns=["id", "s.a"])
    def twice(id: int, a: int | None) -> int | None:  # noqa: A002
        note(path, id)
        return None if a is None else 2 * a

    sample = nested(new_sample)
    sample.table.alter_columns({"path": "s.b", "function": twice})
    assert sample.fill("s.b", where="id < 10") == list(range(10))
    assert sample.fill("s.b") == list(range(10, 20))
    expected = {n: None if n % 5 == 4 else {"a": n, "b": 2 * n} for n in range(20)}
    assert sample.values("s") == expected
    assert sample.state("s.b") == (20, 0, 0, 0)
    assert sample.fill("s.b") == []
    sample.table.add_columns({"y": tenfold(log, input_columns=["id", "id"])})
    sample.fill("y")
    assert sample.values("s") == expected
    assert sample.values("y") == {number: number * 10 for number in range(20)}
    assert sample.state("s.b") == (20, 0, 0, 0)


def test_an_expression_is_filled_and_goes_stale(new_sample: NewSample, log: CallLog) -> None:
    sample = new_sample(20, 2)
    sample.table.add_columns({"y": pennon.computed("x * 10 + 1")})
    assert sample.state() == (0, 0, 0, 20)
    sample.fill()
    sample.update("id = 3", 5)
    assert sample.state() == (19, 0, 1, 0)
    job = sample.table.backfill("y", progress=False)
    assert job.counters["rows_computed"] == 1
    assert sample.values() == {key: number * 10 + 1 for key, number in sample.numbers().items()}
    sample.table.alter_columns({"path": "y", "function": tenfold(log)})
    assert sample.state() == (0, 0, 20, 0)
    assert sample.fill() == list(range(20))
    assert sample.values() == {key: number * 10 for key, number in sample.numbers().items()}


def test_a_plain_pickle_is_called_for_each_row(new_sample: NewSample, rest: RestClient) -> None:
    virtual = {
        "input_columns": ["x"],
        "outputs": [{"column": "y", "struct_field": "", "data_type": {"type": "float64"}, "nullable": True}],
        "image": "",
        "udf": base64.b64encode(pickle.dumps(abs)).decode(),
        "udf_name": "abs",
        "udf_version": "1",
    }
    sample = new_sample(10)
    sample.update("id = 3", -5)
    rest.post(f"{sample.route}/add_columns", {"new_columns": [{"name": "y", "virtual_column": virtual}]})
    sample.fill()
    assert sample.values() == {key: float(abs(number)) for key, number in sample.numbers().items()}


WHEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
TYPES: list[tuple[str, pa.DataType, Any]] = [
    ("embedding", pa.list_(pa.float32(), 4), [1.0, 2.0, 3.0, 4.0]),
    ("string", pa.string(), "grün"),
    ("struct", pa.struct([("s", pa.struct([("a", pa.int64()), ("b", pa.string())]))]), {"s": {"a": 1, "b": None}}),
    ("list", pa.list_(pa.string()), ["a", "b"]),
    ("timestamp", pa.timestamp("us", "UTC"), WHEN),
    ("binary", pa.binary(), b"\\x00\\xff"),
    ("bool", pa.bool_(), True),
    ("half", pa.float16(), 1.5),
    ("small", pa.uint8(), 200),
    ("unsigned", pa.uint64(), 2**64 - 1),
    ("decimal", pa.decimal128(10, 2), Decimal("-1234.50")),
    ("dictionary", pa.dictionary(pa.int32(), pa.string()), "tea"),
    ("large", pa.large_string(), "tea"),
    ("digest", pa.binary(3), b"tea"),
    ("records", pa.list_(pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))])), [{"a": 1, "b": ["x", None]}]),
    ("map", pa.map_(pa.string(), pa.struct([("a", pa.int64())])), [("x", {"a": None}), ("y", None)]),
]
#: More of them, which are filled together.
MORE_TYPES: list[tuple[str, pa.DataType, Any]] = [
    *(case for case in TYPES if case[0] != "struct"),
    ("halves", pa.list_(pa.float16(), 3), [1.0, 2.0, 3.5]),
    ("vectors", pa.list_(pa.list_(pa.float32(), 2), 2), [[1.0, 2.0], [3.0, 4.0]]),
    ("maps", pa.list_(pa.map_(pa.string(), pa.int64())), [[("x", 1)], None]),
    ("nested", pa.struct([("a", pa.int64()), ("t", pa.struct([("u", pa.string())]))]), {"a": None, "t": {"u": "x"}}),
    ("hollow", pa.struct([("a", pa.int64()), ("t", pa.struct([("u", pa.string())]))]), {"a": 1, "t": None}),
    ("lists", pa.large_list(pa.list_(pa.large_binary())), [[b"x", None], None, []]),
    ("numbers", pa.dictionary(pa.int8(), pa.int64()), 7),
    ("berlin", pa.timestamp("ns", "Europe/Berlin"), WHEN),
    ("wide", pa.decimal256(60, 10), Decimal("1.5000000000")),
    ("date", pa.date64(), WHEN.date()),
    ("time", pa.time64("ns"), WHEN.time()),
    ("duration", pa.duration("ms"), timedelta(seconds=3)),
    ("nothing", pa.null(), None),
]


@pytest.mark.parametrize(("kind", "value"), [case[1:] for case in TYPES], ids=[case[0] for case in TYPES])
def test_values_of_every_type_are_kept(new_sample: NewSample, kind: pa.DataType, value: Any) -> None:
    @pennon.udf(data_type=kind)
    def constant(id: int) -> Any:  # noqa: A002
        return value if id % 2 else None

    sample = new_sample(6, 2)
    columns: Any = {("y",) if pa.types.is_struct(kind) else "y": constant}
    sample.table.add_columns(columns)
    sample.fill(where="id < 4")
    sample.fill()
    inner = kind.field(0).type if pa.types.is_struct(kind) else kind
    expected = value["s"] if pa.types.is_struct(kind) else value
    assert sample.open().schema.field("y").type == inner
    assert sample.values() == {number: expected if number % 2 else None for number in range(6)}
    sample.compact()
    assert sample.state() == (6, 0, 0, 0)


class Constants:
    """A function with state whose results have all types."""

    def setup(self) -> None:
        self.values = {name: value for name, _, value in MORE_TYPES}

    def __call__(self, id: int) -> dict[str, Any] | None:  # noqa: A002
        return self.values if id % 2 else None


def constants_of_rows(id: int) -> dict[str, Any] | None:  # noqa: A002
    return {name: value for name, _, value in MORE_TYPES} if id % 2 else None


def constants_of_batch(id: pa.Array) -> dict[str, pa.Array]:  # noqa: A002
    return {
        name: pa.array([value if key % 2 else None for key in id.to_pylist()], kind) for name, kind, value in MORE_TYPES
    }


def constants_of_record_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(constants_of_batch(batch["id"]))


@pytest.mark.parametrize("plain", [constants_of_rows, constants_of_batch, constants_of_record_batch, Constants])
def test_functions_of_every_kind_fill_columns_of_every_type(new_sample: NewSample, plain: Any) -> None:
    kind = pa.struct([(name, kind) for name, kind, _ in MORE_TYPES])
    sample = new_sample(6, 2)
    sample.table.add_columns({tuple(kind.names): pennon.udf(data_type=kind, input_columns=["id"])(plain)})
    sample.fill("map", where="id < 4")
    sample.fill("map")
    found = sample.open().to_table(columns=["id", *kind.names])
    assert [found.schema.field(name).type for name in kind.names] == [kind.field(name).type for name in kind.names]
    expected = {name: value for name, _, value in MORE_TYPES}
    for row in found.to_pylist():
        assert row == {"id": row["id"]} | (expected if row["id"] % 2 else dict.fromkeys(expected))


def test_a_function_without_inputs_is_called_for_each_row(new_sample: NewSample) -> None:
    @pennon.udf
    def seven() -> int:
        return 7

    sample = new_sample(10, 2)
    sample.table.add_columns({"y": seven})
    sample.fill()
    assert set(sample.values().values()) == {7}
    assert sample.state() == (10, 0, 0, 0)


def test_rows_of_a_table_without_stable_ids_are_known_by_fragment(new_sample: NewSample, log: CallLog) -> None:
    import lance

    from tests.integration.backfill.sample_tables import SampleTable, rows

    base = new_sample(1)
    name = new_name()
    folder = base.folder.parent / f"{name}-files"
    lance.write_dataset(rows(0, 20), str(folder), max_rows_per_file=10)
    base.db._transport.post(f"/v1/table/{name}/register", {"location": folder.name}, idempotency_key=None)
    sample = SampleTable(base.db, base.lance.lake, base.lance.client, log, name)
    sample.table.add_columns({"y": tenfold(log)})
    assert sample.table.column_state("y").granularity == "fragment"
    assert sample.table.backfill("y", dry_run=True).granularity == "fragment"
    assert sample.fill(where="id < 5") == list(range(5))
    assert sample.fill() == list(range(5, 20))
    sample.add(20, 25)
    assert sample.fill() == list(range(20, 25))
    sample.update("id = 3", 5)
    assert 3 in sample.fill()
    assert sample.values() == {key: number * 10 for key, number in sample.numbers().items()}


def test_a_function_gets_the_bytes_of_blobs(spark_server: PennonProcess) -> None:
    kind = pa.field("blob", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    contents = [b"a" * 100_000, None, b"", b"bc", b"gone"]
    data = pa.table({"id": range(5), "blob": contents}, schema=pa.schema([pa.field("id", pa.int64()), kind]))
    table = pennon.connect(spark_server.url).create_table(new_name(), data)
    table.delete("id = 4")

    @pennon.udf
    def measure(blob: bytes | None) -> int:
        return -1 if blob is None else len(blob)

    table.add_columns({"y": measure})
    job = table.backfill("y", progress=False)
    found = table.search().select(["id", "y"]).to_arrow()
    assert dict(zip(found["id"].to_pylist(), found["y"].to_pylist(), strict=True)) == {0: 100_000, 1: -1, 2: 0, 3: 2}
    assert job.counters["bytes_read"] >= 100_000


@pytest.mark.parametrize("is_inside", [False, True])
def test_a_function_does_not_get_what_an_external_blob_names(
    spark_server: PennonProcess, tmp_path: Path, is_inside: bool
) -> None:
    """A client with access to storage wrote the table; the worker may read files that the client may not."""
    (tmp_path / "secret").write_bytes(b"what only the server may read")
    values, field = blob_array([Blob.from_uri((tmp_path / "secret").as_uri())]), blob_field("b")
    if is_inside:
        values = pa.StructArray.from_arrays([values], fields=[field])
        opaque = {
            "ARROW:extension:name": "arrow.opaque",
            "ARROW:extension:metadata": '{"type_name":"t","vendor_name":"v"}',
        }
        field = pa.field("b", values.type, metadata=opaque)
    name = new_name()
    lance.write_dataset(
        pa.table([pa.array([1]), values], schema=pa.schema([pa.field("id", pa.int64()), field])),
        spark_server.directory / f"{name}.lance",
        data_storage_version="2.2",
        allow_external_blob_outside_bases=True,
    )
    table = pennon.connect(spark_server.url).open_table(name)

    @pennon.udf(data_type=pa.string())
    def show(b: object) -> str:
        return repr(b)

    table.add_columns({"y": show})
    with pytest.raises(JobFailedError, match="external"):
        table.backfill("y", progress=False)
    stored = lance.dataset(spark_server.directory / f"{name}.lance")
    assert stored.to_table(columns=["y"])["y"].to_pylist() == [None]


@pytest.mark.parametrize("column", ["out0", "computed"])
def test_a_computed_column_of_any_name_is_filled_bit_by_bit(new_sample: NewSample, column: str) -> None:
    sample = new_sample(10)
    sample.table.add_columns({column: pennon.computed("x + 1")})
    sample.fill(column, where="id < 5")
    sample.fill(column)
    assert sample.values(column) == {number: 100 * number + 1 for number in range(10)}
