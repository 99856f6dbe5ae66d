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
from tests.integration.spark_source.shops import Shop, ids, numbers

if TYPE_CHECKING:
    from pathlib import Path


def snapshot(dataset: Any) -> Snapshot:
    return Snapshot(dataset.uri, {}, "", dataset.version)


def test_a_table_is_read_whole(shop: Shop) -> None:
    shop.create("t", numbers(100), numbers(100, 130))
    frame = shop.load("t")
    assert frame.columns == ["id", "k", "x", "text"]
    assert ids(frame) == list(range(130))
    assert frame.where("id = 129").collect()[0].asDict() == {"id": 129, "k": 12, "x": 64.5, "text": "number 129"}


def test_a_frame_stays_at_the_version_it_was_loaded_at(shop: Shop) -> None:
    dataset = shop.create("t", numbers(10))
    frame = shop.load("t")
    dataset.delete("id < 5")
    assert frame.count() == 10
    assert shop.load("t").count() == 5


def test_a_frame_survives_a_compaction_but_not_a_clean_up(shop: Shop) -> None:
    dataset = shop.create("t", numbers(10), numbers(10, 20))
    frame = shop.load("t")
    dataset.optimize.compact_files()
    assert ids(frame) == list(range(20))
    shop.open("t").cleanup_old_versions(timedelta(0))
    with pytest.raises(PySparkException, match="Version 2 of the table was cleaned up"):
        frame.count()
    assert ids(shop.load("t")) == list(range(20))


def test_a_version_a_tag_and_a_branch_can_be_asked_for(shop: Shop) -> None:
    dataset = shop.create("t", numbers(10), numbers(10, 20))
    dataset.tags.create("first", 1)
    branch = dataset.create_branch("side", 1)
    branch.delete("id = 0")
    assert shop.load("t", version=1).count() == 10
    assert shop.load("t", tag="first").count() == 10
    assert ids(shop.load("t", branch="side")) == list(range(1, 10))
    assert shop.load("t").count() == 20


def test_only_the_columns_asked_for_are_there(shop: Shop) -> None:
    shop.create("t", numbers(10))
    assert shop.load("t", columns="x, id").columns == ["x", "id"]
    assert shop.load("t", columns='["text"]').columns == ["text"]
    named = shop.spark.read.format("pennon").option("url", shop.lake.url).schema("x double").load(shop.table("t"))
    assert named.agg({"x": "sum"}).collect()[0][0] == 22.5


def test_a_filter_of_lance_chooses_rows(shop: Shop) -> None:
    shop.create("t", numbers(100))
    assert ids(shop.load("t", filter="k = 3 AND text LIKE '%5'")) == [35]


def test_a_frame_may_be_filtered_and_used_whole_afterwards(shop: Shop) -> None:
    shop.create("t", numbers(100))
    frame = shop.load("t")
    assert (frame.where("id < 10").count(), frame.count(), frame.where("id >= 90").count()) == (10, 100, 10)
    assert frame.where("id < 2").unionAll(frame.where("id > 97")).count() == 4


def test_filters_are_pushed_into_a_frame_that_says_it_is_used_once(shop: Shop) -> None:
    shop.create("t", numbers(100))
    frame = shop.load("t", push_filters="true").where("k = 3 AND text <> 'number 30'")
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert "Filter" not in plan.replace("RuntimeFilters", "")
    assert ids(frame) == list(range(31, 40))


def test_rows_are_chosen_by_their_ids(shop: Shop, tmp_path: Path) -> None:
    dataset = shop.create("t", numbers(100), numbers(100, 200))
    dataset.delete("id = 150")
    at = snapshot(shop.open("t"))
    frame = pennon.spark.read(shop.spark, at, columns=["id"], row_ids=[3, 150, 151, 5000], with_row_id=True)
    assert frame.columns == ["id", "_rowid"]
    assert dict(frame.dtypes)["_rowid"] == "bigint"
    assert sorted(map(tuple, frame.collect())) == [(3, 3), (151, 151)]
    path = tmp_path / "ids.arrow"
    with pa.ipc.new_file(path, pa.schema([("row", pa.uint64())])) as file:
        file.write_table(pa.table({"row": pa.array([7, 8], pa.uint64())}))
    assert ids(pennon.spark.read(shop.spark, at, row_ids=str(path))) == [7, 8]
    assert pennon.spark.read(shop.spark, at, row_ids=[]).count() == 0


def test_fragments_are_put_together_and_taken_apart_to_fit_the_partitions(shop: Shop) -> None:
    shop.create("t", numbers(1000), *(numbers(start, start + 10) for start in range(1000, 1050, 10)))
    frame = shop.load("t", partitions=4)
    assert frame.rdd.getNumPartitions() in {4, 5}
    assert ids(frame) == list(range(1050))
    assert shop.load("t").rdd.getNumPartitions() == 1


def test_deleted_rows_and_an_empty_table_are_read_as_such(shop: Shop) -> None:
    shop.create("t", numbers(1000)).delete("id % 2 = 0")
    assert ids(shop.load("t", partitions=3)) == list(range(1, 1000, 2))
    shop.create("empty", numbers(1)).delete("true")
    assert shop.load("empty").collect() == []


def test_a_table_is_not_taken_for_as_small_as_the_numbers_of_its_partitions(shop: Shop) -> None:
    at = snapshot(shop.create("t", numbers(10)))
    one, other = (pennon.spark.read(shop.spark, at, columns=["id"]) for _ in range(2))
    plan = one.join(other, "id")._jdf.queryExecution().sparkPlan().toString()
    assert "SortMergeJoin" in plan
    assert "Broadcast" not in plan


def test_a_view_of_no_columns_still_counts_rows(shop: Shop) -> None:
    at = snapshot(shop.create("t", numbers(10)))
    pennon.spark.create_view(shop.spark, "counted", at, columns=[])
    assert shop.spark.sql("SELECT count(*) FROM counted").collect()[0][0] == 10


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"verson": 3}, "no option 'verson'. Did you mean 'version'?"),
        ({"version": "x"}, "A version is a number"),
        ({"version": 1, "tag": "t"}, "a version or a tag"),
        ({"columns": "idd"}, "no column 'idd'. Did you mean 'id'?"),
        ({"columns": "id,id"}, "'columns' names columns, each once"),
        ({"columns": '["id"'}, "'columns' names columns, each once"),
        ({"columns": "[1]"}, "'columns' names columns, each once"),
        ({"filter": "id >"}, "InvalidInputError"),
        ({"filter": "idd = 1"}, "There is no column 'idd'. Did you mean 'id'?"),
        ({"row_ids": "ids:!"}, "no ids follow"),
        ({"row_ids": "ids:", "filter": "id = 1"}, "'row_ids' or by 'filter', not by both"),
        ({"with_row_id": "yes"}, "'with_row_id' is true or false"),
        ({"partitions": 0}, "'partitions' is a number from 1 up"),
        ({"tag": "nothing"}, "nothing"),
    ],
)
def test_options_that_mean_nothing_are_refused_with_a_reason(shop: Shop, options: dict[str, Any], reason: str) -> None:
    shop.create("t", numbers(1))
    with pytest.raises(AnalysisException, match=re.escape(reason)):
        shop.load("t", **options).collect()


def test_a_table_that_is_not_there_is_named(shop: Shop) -> None:
    shop.create("orders", numbers(1))
    with pytest.raises(AnalysisException, match="TableNotFoundError"):
        shop.load("order")
    shop.client.declare_table(ln.DeclareTableRequest(id=[shop.name, "declared"]))
    with pytest.raises(AnalysisException, match="has no rows and no schema yet"):
        shop.load("declared")


def test_what_opens_storage_is_in_no_plan(shop: Shop) -> None:
    dataset = shop.create("t", numbers(3))
    at = Snapshot(dataset.uri, {"aws_secret_access_key": "very-secret"}, "", dataset.version)
    execution = pennon.spark.read(shop.spark, at)._jdf.queryExecution()
    assert "very-secret" not in execution.toString()
    assert "very-secret" not in repr(at)
