"""Tables as Spark reads them: versions, columns, rows, partitions."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import lance_namespace as ln
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException

import pennon.spark
from pennon.spark import Snapshot
from tests.integration.spark_source.spark_namespace import SparkNamespace, ids, numbers

if TYPE_CHECKING:
    from pathlib import Path


def snapshot(dataset: Any) -> Snapshot:
    return Snapshot(dataset.uri, {}, "", dataset.version)


def test_a_table_is_read_whole(namespace: SparkNamespace) -> None:
    namespace.create("t", numbers(100), numbers(100, 130))
    frame = namespace.load("t")
    assert frame.columns == ["id", "k", "x", "text"]
    assert ids(frame) == list(range(130))
    assert frame.where("id = 129").collect()[0].asDict() == {"id": 129, "k": 12, "x": 64.5, "text": "number 129"}


def test_a_frame_stays_at_the_version_it_was_loaded_at(namespace: SparkNamespace) -> None:
    dataset = namespace.create("t", numbers(10))
    frame = namespace.load("t")
    dataset.delete("id < 5")
    assert frame.count() == 10
    assert namespace.load("t").count() == 5


def test_a_frame_survives_a_compaction_but_not_a_clean_up(namespace: SparkNamespace) -> None:
    dataset = namespace.create("t", numbers(10), numbers(10, 20))
    frame = namespace.load("t")
    dataset.optimize.compact_files()
    assert ids(frame) == list(range(20))
    namespace.open("t").cleanup_old_versions(timedelta(0))
    with pytest.raises(PySparkException, match="Version 2 of the table was not found: it was cleaned up"):
        frame.count()
    assert ids(namespace.load("t")) == list(range(20))


def test_a_version_a_tag_and_a_branch_can_be_asked_for(namespace: SparkNamespace) -> None:
    dataset = namespace.create("t", numbers(10), numbers(10, 20))
    dataset.tags.create("first", 1)
    branch = dataset.create_branch("side", 1)
    branch.delete("id = 0")
    assert namespace.load("t", version=1).count() == 10
    assert namespace.load("t", tag="first").count() == 10
    assert ids(namespace.load("t", branch="side")) == list(range(1, 10))
    assert namespace.load("t").count() == 20
    dataset.tags.create("trimmed", ("side", branch.version))
    assert ids(namespace.load("t", tag="trimmed")) == list(range(1, 10))
    assert ids(namespace.load("t", tag="trimmed", branch="side")) == list(range(1, 10))
    with pytest.raises(AnalysisException, match="The tag 'first' is on main, not on the branch 'side'"):
        namespace.load("t", tag="first", branch="side").collect()


def test_only_the_columns_asked_for_are_there(namespace: SparkNamespace) -> None:
    namespace.create("t", numbers(10))
    assert namespace.load("t", columns="x, id").columns == ["x", "id"]
    assert namespace.load("t", columns='["text"]').columns == ["text"]
    named = (
        namespace.spark.read.format("pennon")
        .option("url", namespace.lake.url)
        .schema("x double")
        .load(namespace.table("t"))
    )
    assert named.agg({"x": "sum"}).collect()[0][0] == 22.5


def test_a_filter_of_lance_chooses_rows(namespace: SparkNamespace) -> None:
    namespace.create("t", numbers(100))
    assert ids(namespace.load("t", filter="k = 3 AND text LIKE '%5'")) == [35]


def test_a_frame_may_be_filtered_and_used_whole_afterwards(namespace: SparkNamespace) -> None:
    namespace.create("t", numbers(100))
    frame = namespace.load("t")
    assert (frame.where("id < 10").count(), frame.count(), frame.where("id >= 90").count()) == (10, 100, 10)
    assert frame.where("id < 2").unionAll(frame.where("id > 97")).count() == 4


def test_filters_are_pushed_into_a_frame_that_says_it_is_used_once(namespace: SparkNamespace) -> None:
    namespace.create("t", numbers(100))
    frame = namespace.load("t", push_filters="true").where("k = 3 AND text <> 'number 30'")
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert "Filter" not in plan.replace("RuntimeFilters", "")
    assert ids(frame) == list(range(31, 40))


def test_rows_are_chosen_by_their_ids(namespace: SparkNamespace, tmp_path: Path) -> None:
    dataset = namespace.create("t", numbers(100), numbers(100, 200))
    dataset.delete("id = 150")
    at = snapshot(namespace.open("t"))
    frame = pennon.spark.read(namespace.spark, at, columns=["id"], row_ids=[3, 150, 151, 5000], with_row_id=True)
    assert frame.columns == ["id", "_rowid"]
    assert dict(frame.dtypes)["_rowid"] == "bigint"
    assert sorted(map(tuple, frame.collect())) == [(3, 3), (151, 151)]
    path = tmp_path / "ids.arrow"
    with pa.ipc.new_file(path, pa.schema([("row", pa.uint64())])) as file:
        file.write_table(pa.table({"row": pa.array([7, 8], pa.uint64())}))
    assert ids(pennon.spark.read(namespace.spark, at, row_ids=str(path))) == [7, 8]
    assert pennon.spark.read(namespace.spark, at, row_ids=[]).count() == 0


def test_fragments_are_put_together_and_taken_apart_to_fit_the_partitions(namespace: SparkNamespace) -> None:
    namespace.create("t", numbers(1000), *(numbers(start, start + 10) for start in range(1000, 1050, 10)))
    frame = namespace.load("t", partitions=4)
    assert frame.rdd.getNumPartitions() in {4, 5}
    assert ids(frame) == list(range(1050))
    assert namespace.load("t").rdd.getNumPartitions() == 1


def test_deleted_rows_and_an_empty_table_are_read_as_such(namespace: SparkNamespace) -> None:
    namespace.create("t", numbers(1000)).delete("id % 2 = 0")
    assert ids(namespace.load("t", partitions=3)) == list(range(1, 1000, 2))
    namespace.create("empty", numbers(1)).delete("true")
    assert namespace.load("empty").collect() == []


def test_a_table_is_not_taken_for_as_small_as_the_numbers_of_its_partitions(namespace: SparkNamespace) -> None:
    at = snapshot(namespace.create("t", numbers(10)))
    one, other = (pennon.spark.read(namespace.spark, at, columns=["id"]) for _ in range(2))
    plan = one.join(other, "id")._jdf.queryExecution().sparkPlan().toString()
    assert "SortMergeJoin" in plan
    assert "Broadcast" not in plan


def test_a_view_of_no_columns_still_counts_rows(namespace: SparkNamespace) -> None:
    at = snapshot(namespace.create("t", numbers(10)))
    pennon.spark.create_view(namespace.spark, "counted", at, columns=[])
    assert namespace.spark.sql("SELECT count(*) FROM counted").collect()[0][0] == 10


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"verson": 3}, "Unknown option 'verson'. Did you mean 'version'?"),
        ({"version": "x"}, "'version' is 'x'; it must be a number"),
        ({"version": 1, "tag": "t"}, "'version' and 'tag' cannot be used together"),
        ({"columns": "idd"}, "no column 'idd'. Did you mean 'id'?"),
        ({"columns": "id,id"}, "it must be distinct names"),
        ({"columns": '["id"'}, "it must be distinct names"),
        ({"columns": "[1]"}, "it must be distinct names"),
        ({"filter": "id >"}, "InvalidInputError"),
        ({"filter": "idd = 1"}, "There is no column 'idd'. Did you mean 'id'?"),
        ({"row_ids": "ids:!"}, "no ids follow"),
        ({"row_ids": "ids:", "filter": "id = 1"}, "'row_ids' and 'filter' cannot be used together"),
        ({"with_row_id": "yes"}, "'with_row_id' is 'yes'; it must be true or false"),
        ({"partitions": 0}, "'partitions' is '0'; it must be a whole number of at least 1"),
        ({"tag": "nothing"}, "nothing"),
    ],
)
def test_options_that_mean_nothing_are_refused_with_a_reason(
    namespace: SparkNamespace, options: dict[str, Any], reason: str
) -> None:
    namespace.create("t", numbers(1))
    with pytest.raises(AnalysisException, match=re.escape(reason)):
        namespace.load("t", **options).collect()


def test_a_table_that_is_not_there_is_named(namespace: SparkNamespace) -> None:
    namespace.create("orders", numbers(1))
    with pytest.raises(AnalysisException, match="TableNotFoundError"):
        namespace.load("order")
    namespace.client.declare_table(ln.DeclareTableRequest(id=[namespace.name, "declared"]))
    with pytest.raises(AnalysisException, match="is declared but has no schema yet"):
        namespace.load("declared")


def test_what_opens_storage_is_in_no_plan(namespace: SparkNamespace) -> None:
    dataset = namespace.create("t", numbers(3))
    at = Snapshot(dataset.uri, {"aws_secret_access_key": "very-secret"}, "", dataset.version)
    execution = pennon.spark.read(namespace.spark, at)._jdf.queryExecution()
    assert "very-secret" not in execution.toString()
    assert "very-secret" not in repr(at)
