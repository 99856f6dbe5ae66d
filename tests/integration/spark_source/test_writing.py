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
from tests.integration.spark_source.spark_namespace import SparkNamespace, numbers
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path


def ids_of(dataset: lance.LanceDataset) -> list[int]:
    return sorted(dataset.to_table(columns=["id"])["id"].to_pylist())


def test_a_new_table_has_sparks_columns_and_stable_row_ids(namespace: SparkNamespace) -> None:
    frame = namespace.spark.range(100).selectExpr(
        "id", "cast(id AS short) AS small", "array(id, 2) AS list", "'x' AS text"
    )
    namespace.save(frame.repartition(3), "made")
    made = namespace.open("made")
    assert (made.version, made.count_rows(), made.has_stable_row_ids) == (1, 100, True)
    assert [made.schema.field(name).type for name in ("id", "small", "text")] == [pa.int64(), pa.int16(), pa.string()]
    assert len(made.get_fragments()) == 3
    assert pennon.connect(namespace.lake.url).open_table("made", namespace_path=[namespace.name]).count_rows() == 100


def test_rows_are_added_in_one_version_that_the_server_recorded(namespace: SparkNamespace) -> None:
    namespace.create("t", numbers(10))
    namespace.save(namespace.spark.range(10, 20).selectExpr("'new' AS text", "id").repartition(4), "t")
    dataset = namespace.open("t")
    assert dataset.version == 2
    assert ids_of(dataset) == list(range(20))
    assert dataset.to_table(filter="id = 11").to_pylist() == [{"id": 11, "k": None, "x": None, "text": "new"}]
    listed = namespace.client.list_table_versions(ln.ListTableVersionsRequest(id=[namespace.name, "t"]))
    assert [version.version for version in listed.versions] == [1, 2]


def test_rows_added_during_an_overwrite_are_kept(namespace: SparkNamespace) -> None:
    namespace.create("t", numbers(10))
    frame = namespace.spark.range(100, 110)
    namespace.save(frame, "t")
    lance.write_dataset(
        numbers(10, 20), namespace_client=namespace.client, table_id=[namespace.name, "t"], mode="append"
    )
    namespace.save(frame, "t")
    assert ids_of(namespace.open("t")) == sorted([*range(20), *range(100, 110), *range(100, 110)])


def test_an_overwrite_replaces_rows_and_keeps_types_that_still_fit(namespace: SparkNamespace) -> None:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array([1.0] * 20, pa.float32()), 2)
    namespace.create("t", numbers(10).append_column("v", vectors))
    namespace.save(namespace.load("t").where("id < 3"), "t", "overwrite")
    dataset = namespace.open("t")
    assert (dataset.version, dataset.count_rows()) == (2, 3)
    assert dataset.schema.field("v").type == pa.list_(pa.float32(), 2)
    assert namespace.load("t", version=1).count() == 10


def test_an_overwrite_may_change_the_columns(namespace: SparkNamespace) -> None:
    namespace.create("t", numbers(10))
    namespace.save(namespace.spark.range(2).selectExpr("id AS other"), "t", "overwrite")
    assert namespace.open("t").schema.names == ["other"]


def test_a_column_dropped_and_added_again_is_written_under_its_new_number(namespace: SparkNamespace) -> None:
    dataset = namespace.create("t", numbers(5))
    dataset.drop_columns(["k"])
    namespace.open("t").add_columns(pa.field("k", pa.int16()))
    namespace.save(
        namespace.spark.range(5, 6).selectExpr("id", "cast(7 AS int) AS k", "cast(1 AS double) AS x", "'a' AS text"),
        "t",
    )
    assert namespace.open("t").to_table(filter="id = 5").to_pylist() == [{"id": 5, "x": 1.0, "text": "a", "k": 7}]


def test_nothing_to_add_makes_no_version_and_nothing_to_put_in_place_makes_an_empty_table(
    namespace: SparkNamespace,
) -> None:
    namespace.create("t", numbers(3))
    nothing = namespace.load("t").where("id < 0")
    namespace.save(nothing, "t")
    assert namespace.open("t").version == 1
    namespace.save(nothing, "t", "overwrite")
    assert namespace.open("t").count_rows() == 0
    namespace.save(nothing, "new")
    assert namespace.open("new").schema.names == ["id", "k", "x", "text"]


def test_files_have_at_most_the_given_rows(namespace: SparkNamespace) -> None:
    namespace.save(namespace.spark.range(0, 100, 1, 1), "t", max_rows_per_file=30)
    assert [fragment.count_rows() for fragment in namespace.open("t").get_fragments()] == [30, 30, 30, 10]


def test_a_write_that_fails_leaves_no_version_and_no_file(namespace: SparkNamespace) -> None:
    namespace.create("t", numbers(10))
    before = namespace.data_files("t")
    failing = namespace.spark.range(0, 4000, 1, 4).selectExpr("id + if(id = 3999, raise_error('broken'), 0) AS id")
    with pytest.raises(PySparkException, match="broken"):
        namespace.save(failing, "t", max_rows_per_file=100)
    assert namespace.open("t").version == 1
    # Tasks beside the one that failed end a little later, and take their files with them.
    wait_until(lambda: namespace.data_files("t") == before, "no file of the write was left")


def test_a_table_that_was_never_written_is_not_left_declared(namespace: SparkNamespace) -> None:
    failing = namespace.spark.range(4).selectExpr("id + if(id = 3, raise_error('broken'), 0) AS id")
    with pytest.raises(PySparkException, match="broken"):
        namespace.save(failing, "never")
    assert namespace.names() == []


def test_what_a_killed_task_wrote_goes_and_its_rows_are_written_once(namespace: SparkNamespace, tmp_path: Path) -> None:
    namespace.create("t", numbers(0, 1))
    marker = str(tmp_path / "killed")

    def die_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            yield batch
            if number == 1 and not os.path.exists(marker):  # noqa: PTH110 (runs in a worker)
                open(marker, "w").close()  # noqa: PTH123
                os.kill(os.getpid(), signal.SIGKILL)

    accept_pandas()
    namespace.spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "50")
    try:
        frame = namespace.spark.range(1, 201, 1, 1).mapInArrow(die_once, "id long")
        namespace.save(frame, "t", max_rows_per_file=20)
    finally:
        namespace.spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    dataset = namespace.open("t")
    assert ids_of(dataset) == list(range(201))
    named = {file.path for fragment in dataset.get_fragments() for file in fragment.data_files()}
    assert namespace.data_files("t") == named


@pytest.mark.parametrize(
    ("select", "reason"),
    [
        ("id, 1 AS extra", "no column 'extra'"),
        ("'text' AS id", "but the rows have string; cast it"),
        ("id, 3000000000 AS k", "cannot hold all values"),
        ("id, 0.1BD + id AS k", "k"),
        ("id, true AS k", "but the rows have bool; cast it"),
        ("id, current_date() AS text", "but the rows have date32[day]; cast it"),
    ],
)
def test_rows_that_do_not_fit_are_refused_with_the_reason(namespace: SparkNamespace, select: str, reason: str) -> None:
    namespace.create("t", numbers(3))
    before = namespace.data_files("t")
    with pytest.raises(PySparkException, match="TableSchemaValidationError") as error:
        namespace.save(namespace.spark.range(3).selectExpr(*select.split(", ")), "t")
    assert reason in str(error.value)
    assert (namespace.open("t").version, namespace.data_files("t")) == (1, before)


@pytest.mark.parametrize("option", ["branch", "version", "tag", "columns"])
def test_options_of_reads_are_refused(namespace: SparkNamespace, option: str) -> None:
    namespace.create("t", numbers(10))
    with pytest.raises(PySparkException, match=f"option '{option}' is for reading"):
        namespace.save(namespace.spark.range(10), "t", **{option: "1"})
    assert namespace.open("t").version == 1


def test_floats_are_rounded_only_where_that_is_allowed(namespace: SparkNamespace) -> None:
    halves = pa.array([1.5, None], pa.float32()).cast(pa.float16())
    namespace.create("t", pa.table({"id": pa.array([0, 1]), "half": halves}))
    frame = namespace.spark.range(2, 3).selectExpr("id", "0.1f AS half")
    with pytest.raises(PySparkException, match="round_floats"):
        namespace.save(frame, "t")
    namespace.save(frame, "t", round_floats="true")
    namespace.save(namespace.load("t").where("id = 0"), "t")
    assert namespace.open("t").to_table()["half"].cast(pa.float32()).to_pylist() == [1.5, None, 0.0999755859375, 1.5]


def test_a_column_without_nulls_takes_none(namespace: SparkNamespace) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("x", pa.float64())])
    namespace.create("t", pa.table({"id": [1], "x": [1.0]}, schema=schema))
    with pytest.raises(PySparkException, match="is not nullable"):
        namespace.save(namespace.spark.range(1).selectExpr("nullif(id, 0) AS id"), "t")
    with pytest.raises(PySparkException, match="no column 'id', which is not nullable"):
        namespace.save(namespace.spark.range(1).selectExpr("1d AS x"), "t")


def test_object_storage_is_read_and_written(s3_shop: SparkNamespace) -> None:
    s3_shop.create("t", numbers(50), numbers(50, 100))
    copied = s3_shop.sql("SELECT id, text FROM {0}.t WHERE k = 9")
    s3_shop.save(copied.repartition(2), "copy")
    assert ids_of(s3_shop.open("copy")) == list(range(90, 100))
    failing = s3_shop.spark.range(0, 400, 1, 2).selectExpr("id + if(id = 399, raise_error('broken'), 0) AS id")
    before = s3_shop.data_files("copy")
    with pytest.raises(PySparkException, match="broken"):
        s3_shop.save(failing, "copy", max_rows_per_file=50)
    wait_until(lambda: s3_shop.data_files("copy") == before, "no file of the write was left")
