"""What the client shows when something is wrong: the matter, and not a missing table."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from tests.clients.remote.data import new_name, rows, vector
from tests.support.server import PennonProcess


def bad_filter(table: Any) -> Any:
    return table.search().where("id ==== 3").to_arrow()


def unknown_function(table: Any) -> Any:
    return table.search().where("no_such_function(id) = 1").to_arrow()


def bad_count(table: Any) -> Any:
    return table.count_rows("id >")


def bad_update(table: Any) -> Any:
    return table.update(where="id = 1", values_sql={"id": "((("})


def bad_delete(table: Any) -> Any:
    return table.delete("id = = 1")


def bad_expression(table: Any) -> Any:
    return table.add_columns({"x": "id +"})


def narrow_vector(table: Any) -> Any:
    return table.search([1.0, 2.0, 3.0]).limit(1).to_arrow()


def not_a_number(table: Any) -> Any:
    return table.search([math.nan, *vector(1)[1:]]).limit(1).to_arrow()


def filter_that_is_no_condition(table: Any) -> Any:
    return table.search().where("id + 1").to_arrow()


MISTAKES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a filter that is not SQL": (bad_filter, "(?i)sql|pars|expected"),
    "a function that does not exist": (unknown_function, "no_such_function"),
    "a count with half a filter": (bad_count, "(?i)sql|pars|expected"),
    "an update with a bad expression": (bad_update, "(?i)sql|pars|expected"),
    "a delete with a bad predicate": (bad_delete, "(?i)sql|pars|expected"),
    "a column with a bad expression": (bad_expression, "not valid: id"),
    "a query vector of another width": (narrow_vector, "(?i)size 3 does not match"),
    "a query vector that is not finite": (not_a_number, "(?i)nan|finite|panicked"),
    "a filter that is no condition": (filter_that_is_no_condition, "(?i)bool|filter|type"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_an_invalid_request_is_not_reported_as_a_missing_table(table: Any, mistake: str) -> None:
    call, expected = MISTAKES[mistake]
    with pytest.raises(Exception, match=expected) as caught:
        call(table)
    assert "was not found" not in str(caught.value)
    assert table.version == 1


def test_rows_of_another_schema_are_refused(table: Any) -> None:
    with pytest.raises(Exception, match=r"(?i)schema|column|field|type"):
        table.add(pa.table({"something": [1]}))
    with pytest.raises(Exception, match=r"(?i)schema|column|field|type|cast"):
        table.add(pa.table({"id": [["not", "a", "number"]], "vector": rows(1)["vector"]}))
    assert (table.version, table.count_rows()) == (1, 100)


def test_vectors_of_another_width_are_refused(table: Any) -> None:
    narrow = pa.table({"id": pa.array([1], pa.int64()), "vector": pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2))})
    with pytest.raises(Exception, match=r"(?i)vector|size|schema"):
        table.add(narrow)
    assert table.count_rows() == 100


def test_vectors_that_are_not_numbers_are_refused_dropped_or_filled(db: Any) -> None:
    table = db.create_table(new_name(), [{"id": 1, "vector": [1.0, 2.0]}])
    bad = [{"id": 2, "vector": [float("nan"), 1.0]}]
    with pytest.raises(Exception, match=r"(?i)nan"):
        table.add(bad)
    table.add([*bad, {"id": 3, "vector": [3.0, 4.0]}], on_bad_vectors="drop")
    table.add(bad, on_bad_vectors="fill", fill_value=0.0)
    assert sorted(table.search().to_arrow()["id"].to_pylist()) == [1, 2, 3]


def test_nulls_in_a_column_without_them_are_refused(db: Any) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    table = db.create_table(new_name(), schema=schema)
    with pytest.raises(Exception, match=r"(?i)null"):
        table.add(pa.table({"id": pa.array([None, 1], pa.int64())}))
    assert table.count_rows() == 0


def test_a_merge_on_an_unknown_column_names_it(table: Any) -> None:
    with pytest.raises(Exception, match=r"'?idd'?"):
        table.merge_insert("idd").when_not_matched_insert_all().execute(rows(3))


def test_a_table_dropped_by_another_client_is_not_found(db: Any, pennon_server: PennonProcess) -> None:
    name = new_name()
    table = db.create_table(name, rows(3))
    from tests.clients.remote.conftest import connect

    connect(pennon_server.url).drop_table(name)
    for call in (table.count_rows, lambda: table.search().to_arrow(), lambda: table.delete("true")):
        with pytest.raises(Exception, match=r"(?i)not found|does not exist"):
            call()


def test_errors_do_not_show_paths_of_the_server(table: Any, pennon_server: PennonProcess) -> None:
    for call in (bad_filter, narrow_vector, bad_update, lambda t: t.checkout(99), lambda t: t.drop_index("x")):
        with pytest.raises(Exception, match=r".") as caught:
            call(table)
        assert str(pennon_server.directory) not in str(caught.value)
        assert ".rs:" not in str(caught.value)
