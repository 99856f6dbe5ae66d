"""A small catalog that has something of everything the console shows."""

from __future__ import annotations

import io
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from PIL import Image

import pennon

if TYPE_CHECKING:
    from tests.support.rest import RestClient

COLOURS = [(200, 60, 40), (40, 160, 80), (60, 90, 200), (230, 190, 60)]
WORDS = ["malty and strong", "fresh, almost sweet", "dull", "grassy with a long finish", "smoky"]


def picture(number: int) -> bytes:
    """Return a small picture of one colour."""
    buffer = io.BytesIO()
    Image.new("RGB", (24, 24), COLOURS[number % len(COLOURS)]).save(buffer, "PNG")
    return buffer.getvalue()


def teas(start: int, stop: int) -> pa.Table:
    """Return rows with a value of each kind that the console shows in a way of its own."""
    numbers = range(start, stop)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "name": [f"tea {number}" for number in numbers],
            "notes": [WORDS[number % len(WORDS)] for number in numbers],
            "price": pa.array([None if number % 7 == 0 else number / 4 for number in numbers], pa.float64()),
            "picture": pa.array([picture(number) for number in numbers], pa.binary()),
            "vector": pa.array(
                [[float(number % 5), 1.0, float(number % 3), 0.5] for number in numbers], pa.list_(pa.float32(), 4)
            ),
            "origin": pa.array(
                [{"country": "Japan" if number % 2 else "India", "altitude": number * 10} for number in numbers],
                pa.struct([("country", pa.string()), ("altitude", pa.int32())]),
            ),
            "picked": pa.array([1_700_000_000_000 + number * 86_400_000 for number in numbers], pa.timestamp("ms")),
        }
    )


@pennon.udf(error_policy=pennon.ErrorPolicy.skip())
def rating(notes: str) -> int:
    """Rate a tea by its notes; smoky ones cannot be rated."""
    if notes == "smoky":
        raise ValueError("cannot rate smoke")
    return len(notes)


@pennon.udf
def slowly(id: int) -> int:  # noqa: A002 (the name of the column)
    """Take long enough to be watched, paused and cancelled."""
    time.sleep(0.2)
    return id * id


@pennon.chunker(output_schema=pa.schema([("word", pa.string())]))
def words(name: str) -> Any:
    """Make a row of each word."""
    for word in name.split():
        yield {"word": word}


@pennon.udf(error_policy=pennon.ErrorPolicy.skip())
def doubled(id: int) -> int:  # noqa: A002 (the name of the column)
    """Double a number, but not seven."""
    if id == 7:
        raise ValueError("seven is enough")
    return id * 2


def fill_catalog(url: str, rest: RestClient, api_key: str | None = None) -> Any:
    """Make the namespaces, tables, tags, branches and indexes."""
    db = pennon.connect(url, api_key=api_key)
    rest.post("/v1/namespace/shop/create")
    rest.post("/v1/namespace/empty/create")
    table = db.create_table("teas", teas(0, 60), namespace_path=["shop"])
    table.add(teas(60, 120))
    rest.post("/v1/table/shop$teas/tags/create", {"tag": "tasted", "version": 1})
    rest.post("/v1/table/shop$teas/update", {"predicate": "id < 5", "updates": [["price", "9.5"]]})
    rest.post("/v1/table/shop$teas/delete", {"predicate": "id = 119"})
    rest.post("/v1/table/shop$teas/branches/create", {"name": "trial"})
    rest.post("/v1/table/shop$teas/create_index", {"column": "id", "index_type": "BTREE", "name": "id_idx"})
    rest.post("/v1/table/shop$teas/create_index", {"column": "notes", "index_type": "FTS", "name": "notes_idx"})
    table.add_columns({"rating": rating})
    table.add_columns({"square": slowly})
    table.add_columns({"loud": pennon.computed("upper(name)")})
    return table


CHEAP = '{"source": "shop.harvest", "columns": {"id": "id", "title": "upper(name)"}, "where": "price < 10"}'
BEST = "SELECT notes, max(price) AS best FROM shop.teas GROUP BY notes"


def add_views(url: str, rest: RestClient) -> None:
    """Make an incremental view, a rebuilt one, one over a view, and two with functions."""
    db = pennon.connect(url)
    db.create_table("harvest", teas(0, 60).select(["id", "name", "price"]), namespace_path=["shop"])
    for name, query in [("cheap", CHEAP), ("best", BEST), ("titles", "SELECT title FROM shop.cheap")]:
        body = {"kind": "query", "source_query": query, "output_schema": None, "with_no_data": True}
        rest.post(f"/v1/materialized_view/shop${name}/create", body, expect=201)
    twice = pennon.query("shop.harvest").select({"id": "id", "twice": doubled})
    db.create_materialized_view("twice", twice, with_no_data=True, namespace_path=["shop"])
    db.create_chunk_view("words", "shop.harvest", words, columns=["id"], with_no_data=True, namespace_path=["shop"])
