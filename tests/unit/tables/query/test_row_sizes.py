"""The sizes of rows: what a value takes in memory, whatever it takes on storage."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance_namespace.errors import InvalidInputError, TableVersionNotFoundError

from pennon.tables.query import row_sizes
from pennon.tables.query.row_sizes import (
    DEFAULT_BATCH_ROWS,
    MAX_VALUE_BYTES,
    RowSizes,
    batch_rows_for,
    delete_rows,
    longest_dictionary_value,
    measure_rows,
    row_sizes_of,
    update_rows,
)
from pennon.tables.query.scan import TableQuery, count_rows, fit_to_rows

MEGABYTE = 1024**2
LONG = "x" * MEGABYTE


def repeated(value: str, rows: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([value]))


def nested(values: pa.Array) -> list[pa.Array]:
    """Return a column, and the column inside a struct, a list, and a struct in a list."""
    struct = pa.StructArray.from_arrays([values], ["part"])
    offsets = pa.array(range(len(values) + 1), pa.int32())
    return [
        values,
        struct,
        pa.ListArray.from_arrays(offsets, values),
        pa.ListArray.from_arrays(offsets, struct),
    ]


@pytest.mark.parametrize("values", nested(repeated(LONG, 3)))
def test_the_longest_value_of_a_dictionary_is_found_at_any_depth(values: pa.Array) -> None:
    assert longest_dictionary_value(values) == MEGABYTE
    assert longest_dictionary_value(pa.array([[LONG]])) == 0


@pytest.mark.parametrize("values", nested(repeated(LONG, 9000)))
def test_a_value_of_a_dictionary_counts_for_each_row(values: pa.Array, tmp_path: Path) -> None:
    dataset = lance.write_dataset(pa.table({"id": range(9000), "word": values}), tmp_path / "t")
    sizes = measure_rows(dataset)
    assert sizes.bytes_named_in("upper(WORD) = 'x'") == MEGABYTE
    assert sizes.bytes_named_in("id = 1") == 8
    with pytest.raises(InvalidInputError, match="smaller values"):
        delete_rows(dataset, "word = 'x'")
    delete_rows(dataset, "id = 1")


def test_a_long_value_in_one_of_many_pages_is_found(tmp_path: Path) -> None:
    kind = pa.dictionary(pa.int32(), pa.string())
    short = pa.table({"word": repeated("x", 5000).cast(kind)})
    for number in range(9):
        rows = pa.table({"word": repeated(LONG, 10).cast(kind)}) if number == 4 else short
        lance.write_dataset(rows, tmp_path / "t", mode="append" if number else "create")
    assert measure_rows(lance.dataset(tmp_path / "t")).row_bytes == MEGABYTE


def test_values_that_storage_compresses_have_their_size_in_memory(tmp_path: Path) -> None:
    dataset = lance.write_dataset(pa.table({"id": range(200), "text": [LONG] * 200}), tmp_path / "t")
    assert MEGABYTE <= measure_rows(dataset).row_bytes < 1.1 * MEGABYTE
    assert batch_rows_for(measure_rows(dataset).row_bytes) == 15


def test_a_client_cannot_choose_the_rows_that_are_measured(tmp_path: Path) -> None:
    """Small values in any 10 rows: the first one, the last one, or those at regular distances."""
    texts = ["x" if row % 100 == 0 or row == 999 else "x" * 100_000 for row in range(1000)]
    dataset = lance.write_dataset(pa.table({"text": texts}), tmp_path / "t")
    assert measure_rows(dataset).row_bytes > 40_000


def test_copies_of_a_value_count() -> None:
    sizes = RowSizes({"id": 8, "word": 5000})
    assert sizes.bytes_evaluated_by("word || word || upper(word)") == 15_000
    assert sizes.bytes_evaluated_by("upper(word) = 'x'") == 5000
    assert fit_to_rows(TableQuery(filter="upper(word) = 'x'", k=1), sizes).batch_rows is None
    assert fit_to_rows(TableQuery(filter="word || word = 'x'", k=1, copies=2), sizes).batch_rows == 1677
    assert "values of" in str(fit_to_rows(TableQuery(filter="word = 'x'", k=1, copies=2000), sizes).isolation_reason)


def test_types_of_a_fixed_size_need_no_rows(tmp_path: Path) -> None:
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(8, np.float32)), 4)
    table = pa.table({"id": pa.array([1, 2], pa.int32()), "vector": vectors, "flag": [True, None]})
    assert measure_rows(lance.write_dataset(table, tmp_path / "t")).row_bytes == 4 + 16 + 1
    empty = lance.write_dataset(pa.table({"text": pa.array([], pa.string())}), tmp_path / "empty")
    assert measure_rows(empty).row_bytes == 0


def test_ordinary_rows_are_read_as_lance_does() -> None:
    assert batch_rows_for(8192) is None
    query = TableQuery(filter="word = 'x'")
    assert fit_to_rows(query, RowSizes({"id": 8, "word": 20, "vector": 6144})) == query


def test_a_query_reads_as_many_rows_as_fit() -> None:
    sizes = RowSizes({"id": 8, "image": MEGABYTE})
    assert fit_to_rows(TableQuery(), sizes).batch_rows == 15
    assert fit_to_rows(TableQuery(filter="id > 1"), sizes).batch_rows == 15
    assert fit_to_rows(TableQuery(filter="id > 1", columns=["id"]), sizes).batch_rows is None
    # The limit keeps the result small, unless all rows are sorted first.
    assert fit_to_rows(TableQuery(filter="id > 1", k=10), sizes).batch_rows is None
    assert fit_to_rows(TableQuery(order_by=[("id", True, False)], k=10), sizes).batch_rows == 15
    assert fit_to_rows(TableQuery(filter="image IS NULL", k=10), sizes).batch_rows == 16
    assert fit_to_rows(TableQuery(columns={"n": "length(image)"}, k=10), sizes).batch_rows == 16
    assert fit_to_rows(TableQuery(vectors=[[1.0]] * 100, k=10), sizes).batch_rows == 15
    assert fit_to_rows(TableQuery(vectors=[1.0], k=10), sizes).batch_rows is None


def test_sql_on_huge_values_runs_in_a_query_process() -> None:
    sizes = RowSizes({"id": 8, "film": MAX_VALUE_BYTES + 1})
    assert fit_to_rows(TableQuery(), sizes).isolation_reason is None
    assert fit_to_rows(TableQuery(columns={"film": "film"}), sizes).isolation_reason is None
    assert "values of" in str(fit_to_rows(TableQuery(filter="film = 'x'"), sizes).isolation_reason)
    assert "values of" in str(fit_to_rows(TableQuery(columns={"x": "upper(film)"}), sizes).isolation_reason)


def test_rows_are_counted_in_batches_of_any_size(tmp_path: Path) -> None:
    dataset = lance.write_dataset(pa.table({"id": range(100)}), tmp_path / "t")
    assert [count_rows(dataset, "id < 30", rows) for rows in (None, 1, 7, 1000)] == [30] * 4
    assert count_rows(dataset, "", None) == 100


def test_wide_rows_are_updated_a_few_at_a_time(tmp_path: Path) -> None:
    count = 2 * 1024
    batch = pa.record_batch({"id": pa.array(range(64), pa.int64()), "text": [LONG] * 64})
    batches = [batch.set_column(0, "id", pa.array(range(n, n + 64), pa.int64())) for n in range(0, count, 64)]
    dataset = lance.write_dataset(pa.RecordBatchReader.from_batches(batch.schema, batches), tmp_path / "t")
    assert count < DEFAULT_BATCH_ROWS
    with pytest.raises(InvalidInputError, match=r"rewrite 2048 rows .* Update 10\d\d rows at a time"):
        update_rows(dataset, {"id": "1"}, None)
    with pytest.raises(InvalidInputError, match="smaller values"):
        update_rows(dataset, {"id": "1"}, "text IS NULL")
    row_sizes._check_rewritten_rows(dataset, "id < 1000", ["1"], measure_rows(dataset))
    update_rows(dataset, {"id": "1"}, "id < 10")


def test_only_columns_that_a_query_needs_are_read(tmp_path: Path) -> None:
    lance.write_dataset(pa.table({"id": range(10), "word": ["x"] * 10}), tmp_path / "t")
    dataset = lance.dataset(tmp_path / "t")
    before = set((tmp_path / "t" / "data").iterdir())
    dataset.add_columns({"lost": "concat(word, word)"})
    for file in set((tmp_path / "t" / "data").iterdir()) - before:
        file.unlink()
    sizes = measure_rows(lance.dataset(tmp_path / "t"))
    assert fit_to_rows(TableQuery(filter="word = 'x'", columns=["id"]), sizes).batch_rows is None
    with pytest.raises(TableVersionNotFoundError):
        fit_to_rows(TableQuery(), sizes)


def test_sizes_are_kept_over_updates_and_deletes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.table({"id": range(1000), "text": ["x" * 100] * 1000, "other": ["y" * 50] * 1000})
    dataset = lance.write_dataset(rows, tmp_path / "t")
    measured: list[str] = []
    sample = row_sizes._sample

    def record(dataset: lance.LanceDataset, columns: list[str]) -> dict[str, int]:
        measured.extend(columns)
        return sample(dataset, columns)

    monkeypatch.setattr(row_sizes, "_sample", record)
    update_rows(dataset, {"id": "id + 1"}, "id = 1")
    assert sorted(measured) == ["other", "text"]
    measured.clear()
    for number in range(2, 6):
        update_rows(dataset, {"id": "id"}, f"id = {number}")
        delete_rows(dataset, f"text = 'x' OR id = {number}")
    assert not measured
    update_rows(dataset, {"text": "'z'"}, None)
    update_rows(dataset, {"id": "id"}, "id = 100")
    assert measured == ["text"]
    exact = measure_rows(dataset)
    assert exact.row_bytes <= row_sizes_of(dataset).row_bytes < 1.1 * exact.row_bytes


def test_kept_sizes_do_not_hide_large_values(tmp_path: Path) -> None:
    """Delete the small rows, or write large values: what is left must be refused as if it was measured again."""
    rows = pa.table({"id": range(10_000), "text": [*["x"] * 9000, *["x" * 150_000] * 1000]})
    dataset = lance.write_dataset(rows, tmp_path / "t")
    delete_rows(dataset, "text = 'y'")
    delete_rows(dataset, "id < 9000 AND id > 9")
    assert row_sizes_of(dataset).bytes_named_in("text") >= 0.9 * measure_rows(dataset).bytes_named_in("text")
    update_rows(dataset, {"text": f"'{'z' * 1000}'"}, None)
    assert row_sizes_of(dataset).bytes_named_in("text") >= 1000
    lance.write_dataset(pa.table({"id": range(20_000), "text": ["x" * 60_000] * 20_000}), tmp_path / "t", mode="append")
    dataset.checkout_latest()
    assert row_sizes_of(dataset).bytes_named_in("text") > 50_000


def test_bounds_that_are_too_large_are_measured_before_a_refusal(tmp_path: Path) -> None:
    rows = pa.table({"id": range(9000), "text": [*["x" * 200_000] * 1000, *["x"] * 8000]})
    dataset = lance.write_dataset(rows, tmp_path / "t")
    delete_rows(dataset, "text = 'y'")
    delete_rows(dataset, "id < 1000")
    delete_rows(dataset, "id >= 1100")
    delete_rows(dataset, "text = 'y'")
    assert dataset.count_rows() == 100
    update_rows(dataset, {"id": "id"}, "text = 'x'")
    assert dataset.count_rows() == 100
