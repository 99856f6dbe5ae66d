"""Views by way of a server and its worker: on a disk, and on object storage with the catalog in PostgreSQL."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import pennon

if TYPE_CHECKING:
    from tests.clients.lakes import Lake
    from tests.support.server import PennonProcess


def texts(start: int, stop: int) -> pa.Table:
    return pa.table({"id": pa.array(range(start, stop)), "text": [f"a{i} b{i}" for i in range(start, stop)]})


def follow_a_source(server: PennonProcess) -> None:
    """Make views of every kind, and let them follow what happens to their source."""

    @pennon.udf
    def shout(text: str) -> str:
        return text.upper()

    @pennon.chunker
    def word(text: str) -> Iterator[str]:
        yield from text.split()

    @pennon.udtf(output_schema=pa.schema({"rows": pa.int64()}))
    def counted(batches: Iterator[pa.RecordBatch]) -> dict[str, list[int]]:
        return {"rows": [sum(batch.num_rows for batch in batches)]}

    db, name = pennon.connect(server.url), f"texts_{secrets.token_hex(4)}"
    source = db.create_table(name, texts(0, 30))
    made = {
        "loud": db.create_materialized_view(
            f"{name}_loud", name, select={"id": "id", "loud": shout}, where="id % 2 = 0", progress=False
        ),
        "words": db.create_chunk_view(f"{name}_words", name, word, columns=["id"], progress=False),
        "counted": db.create_udtf_view(f"{name}_counted", name, counted, progress=False),
        "long": db.create_materialized_view(
            f"{name}_long", sql=f"SELECT count(*) AS rows, max(id) AS last FROM {name}", progress=False
        ),
    }

    def rows(view: str) -> list[dict[str, Any]]:
        found = made[view].search().limit(1000).to_list()
        return sorted(({k: v for k, v in row.items() if not k.startswith("__")} for row in found), key=repr)

    def check(ids: list[int]) -> None:
        loud = [{"id": i, "loud": f"A{i} B{i}"} for i in ids if i % 2 == 0]
        words = [{"id": i, "word": f"{letter}{i}"} for i in ids for letter in "ab"]
        assert rows("loud") == sorted(loud, key=repr)
        assert rows("words") == sorted(words, key=repr)
        assert rows("counted") == [{"rows": len(ids)}]
        assert rows("long") == [{"rows": len(ids), "last": max(ids)}]

    check(list(range(30)))
    source.add(texts(30, 33))
    source.delete("id = 4")
    modes = {view: (opened.refresh(progress=False).result or {})["mode"] for view, opened in made.items()}
    assert modes == {"loud": "incremental", "words": "incremental", "counted": "rebuild", "long": "rebuild"}
    check([i for i in range(33) if i != 4])
    assert {(opened.refresh(progress=False).result or {})["mode"] for opened in made.values()} == {"no_op"}


def test_views_follow_their_source(spark_server: PennonProcess) -> None:
    follow_a_source(spark_server)


def test_views_follow_their_source_on_object_storage(distant_lake: Lake) -> None:
    follow_a_source(distant_lake.server)
