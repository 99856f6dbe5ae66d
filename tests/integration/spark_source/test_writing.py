"""Rows that Spark writes: one version for each write, nothing left of a write that failed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

import lance
import lance_namespace as ln
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

import pennon
from pennon.spark.session import accept_pandas
from tests.integration.spark_source.shops import Shop, numbers
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path


def ids_of(dataset: lance.LanceDataset) -> list[int]:
    return sorted(dataset.to_table(columns=["id"])["id"].to_pylist())


def test_a_new_table_has_sparks_columns_and_stable_row_ids(shop: Shop) -> None:
    frame = shop.spark.range(100).selectExpr("id", "cast(id AS short) AS small", "array(id, 2) AS list", "'x' AS text")
    shop.save(frame.repartition(3), "made")
    made = shop.open("made")
    assert (made.version, made.count_rows(), made.has_stable_row_ids) == (1, 100, True)
    assert [made.schema.field(name).type for name in ("id", "small", "text")] == [pa.int64(), pa.int16(), pa.string()]
    assert len(made.get_fragments()) == 3
    assert pennon.connect(shop.lake.url).open_table("made", namespace_path=[shop.name]).count_rows() == 100


def test_rows_are_added_in_one_version_that_the_server_recorded(shop: Shop) -> None:
    shop.create("t", numbers(10))
    shop.save(shop.spark.range(10, 20).selectExpr("'new' AS text", "id").repartition(4), "t")
    dataset = shop.open("t")
    assert dataset.version == 2
    assert ids_of(dataset) == list(range(20))
    assert dataset.to_table(filter="id = 11").to_pylist() == [{"id": 11, "k": None, "x": None, "text": "new"}]
    listed = shop.client.list_table_versions(ln.ListTableVersionsRequest(id=[shop.name, "t"]))
    assert [version.version for version in listed.versions] == [1, 2]


def test_rows_added_meanwhile_stay(shop: Shop) -> None:
    shop.create("t", numbers(10))
    frame = shop.spark.range(100, 110)
    shop.save(frame, "t")
    lance.write_dataset(numbers(10, 20), namespace_client=shop.client, table_id=[shop.name, "t"], mode="append")
    shop.save(frame, "t")
    assert ids_of(shop.open("t")) == sorted([*range(20), *range(100, 110), *range(100, 110)])


def test_an_overwrite_replaces_rows_and_keeps_types_that_still_fit(shop: Shop) -> None:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array([1.0] * 20, pa.float32()), 2)
    shop.create("t", numbers(10).append_column("v", vectors))
    shop.save(shop.load("t").where("id < 3"), "t", "overwrite")
    dataset = shop.open("t")
    assert (dataset.version, dataset.count_rows()) == (2, 3)
    assert dataset.schema.field("v").type == pa.list_(pa.float32(), 2)
    assert shop.load("t", version=1).count() == 10


def test_an_overwrite_may_change_the_columns(shop: Shop) -> None:
    shop.create("t", numbers(10))
    shop.save(shop.spark.range(2).selectExpr("id AS other"), "t", "overwrite")
    assert shop.open("t").schema.names == ["other"]


def test_a_column_dropped_and_added_again_is_written_under_its_new_number(shop: Shop) -> None:
    dataset = shop.create("t", numbers(5))
    dataset.drop_columns(["k"])
    shop.open("t").add_columns(pa.field("k", pa.int16()))
    shop.save(
        shop.spark.range(5, 6).selectExpr("id", "cast(7 AS int) AS k", "cast(1 AS double) AS x", "'a' AS text"), "t"
    )
    assert shop.open("t").to_table(filter="id = 5").to_pylist() == [{"id": 5, "x": 1.0, "text": "a", "k": 7}]


def test_nothing_to_add_makes_no_version_and_nothing_to_put_in_place_makes_an_empty_table(shop: Shop) -> None:
    shop.create("t", numbers(3))
    nothing = shop.load("t").where("id < 0")
    shop.save(nothing, "t")
    assert shop.open("t").version == 1
    shop.save(nothing, "t", "overwrite")
    assert shop.open("t").count_rows() == 0
    shop.save(nothing, "new")
    assert shop.open("new").schema.names == ["id", "k", "x", "text"]


def test_files_have_so_many_rows_at_most(shop: Shop) -> None:
    shop.save(shop.spark.range(0, 100, 1, 1), "t", max_rows_per_file=30)
    assert [fragment.count_rows() for fragment in shop.open("t").get_fragments()] == [30, 30, 30, 10]


def test_a_write_that_fails_leaves_no_version_and_no_file(shop: Shop) -> None:
    shop.create("t", numbers(10))
    before = shop.data_files("t")
    failing = shop.spark.range(0, 4000, 1, 4).selectExpr("id + if(id = 3999, raise_error('broken'), 0) AS id")
    with pytest.raises(PySparkException, match="broken"):
        shop.save(failing, "t", max_rows_per_file=100)
    assert shop.open("t").version == 1
    # Tasks beside the one that failed end a little later, and take their files with them.
    wait_until(lambda: shop.data_files("t") == before, "no file of the write was left")


def test_a_table_that_was_never_written_is_not_left_declared(shop: Shop) -> None:
    failing = shop.spark.range(4).selectExpr("id + if(id = 3, raise_error('broken'), 0) AS id")
    with pytest.raises(PySparkException, match="broken"):
        shop.save(failing, "never")
    assert shop.names() == []


def test_what_a_killed_task_wrote_goes_and_its_rows_are_written_once(shop: Shop, tmp_path: Path) -> None:
    shop.create("t", numbers(0, 1))
    marker = str(tmp_path / "killed")

    def die_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            yield batch
            if number == 1 and not os.path.exists(marker):  # noqa: PTH110 (runs in a worker)
                open(marker, "w").close()  # noqa: PTH123
                os.kill(os.getpid(), signal.SIGKILL)

    accept_pandas()
    shop.spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "50")
    try:
        frame = shop.spark.range(1, 201, 1, 1).mapInArrow(die_once, "id long")
        shop.save(frame, "t", max_rows_per_file=20)
    finally:
        shop.spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    dataset = shop.open("t")
    assert ids_of(dataset) == list(range(201))
    named = {file.path for fragment in dataset.get_fragments() for file in fragment.data_files()}
    assert shop.data_files("t") == named


@pytest.mark.parametrize(
    ("select", "reason"),
    [
        ("id, 1 AS extra", "no column 'extra'"),
        ("'text' AS id", "string does not become that"),
        ("id, 3000000000 AS k", "not all values fit"),
        ("id, 0.1BD + id AS k", "k"),
        ("id, true AS k", "bool does not become that"),
        ("id, current_date() AS text", "date32[day] does not become that"),
    ],
)
def test_rows_that_do_not_fit_are_refused_with_the_reason(shop: Shop, select: str, reason: str) -> None:
    shop.create("t", numbers(3))
    before = shop.data_files("t")
    with pytest.raises(PySparkException, match="TableSchemaValidationError") as error:
        shop.save(shop.spark.range(3).selectExpr(*select.split(", ")), "t")
    assert reason in str(error.value)
    assert (shop.open("t").version, shop.data_files("t")) == (1, before)


@pytest.mark.parametrize("option", ["branch", "version", "tag", "columns"])
def test_options_of_reads_are_refused(shop: Shop, option: str) -> None:
    shop.create("t", numbers(10))
    with pytest.raises(PySparkException, match=f"option '{option}' is for reading"):
        shop.save(shop.spark.range(10), "t", **{option: "1"})
    assert shop.open("t").version == 1


def test_floats_are_rounded_only_where_that_is_allowed(shop: Shop) -> None:
    halves = pa.array([1.5, None], pa.float32()).cast(pa.float16())
    shop.create("t", pa.table({"id": pa.array([0, 1]), "half": halves}))
    frame = shop.spark.range(2, 3).selectExpr("id", "0.1f AS half")
    with pytest.raises(PySparkException, match="round_floats"):
        shop.save(frame, "t")
    shop.save(frame, "t", round_floats="true")
    shop.save(shop.load("t").where("id = 0"), "t")
    assert shop.open("t").to_table()["half"].cast(pa.float32()).to_pylist() == [1.5, None, 0.0999755859375, 1.5]


def test_a_column_without_nulls_takes_none(shop: Shop) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("x", pa.float64())])
    shop.create("t", pa.table({"id": [1], "x": [1.0]}, schema=schema))
    with pytest.raises(PySparkException, match="may not be null"):
        shop.save(shop.spark.range(1).selectExpr("nullif(id, 0) AS id"), "t")
    with pytest.raises(PySparkException, match="no column 'id', which may not be null"):
        shop.save(shop.spark.range(1).selectExpr("1d AS x"), "t")


def test_object_storage_is_read_and_written(s3_shop: Shop) -> None:
    s3_shop.create("t", numbers(50), numbers(50, 100))
    copied = s3_shop.sql("SELECT id, text FROM {0}.t WHERE k = 9")
    s3_shop.save(copied.repartition(2), "copy")
    assert ids_of(s3_shop.open("copy")) == list(range(90, 100))
    failing = s3_shop.spark.range(0, 400, 1, 2).selectExpr("id + if(id = 399, raise_error('broken'), 0) AS id")
    before = s3_shop.data_files("copy")
    with pytest.raises(PySparkException, match="broken"):
        s3_shop.save(failing, "copy", max_rows_per_file=50)
    wait_until(lambda: s3_shop.data_files("copy") == before, "no file of the write was left")
