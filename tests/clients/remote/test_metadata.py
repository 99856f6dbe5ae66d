"""The metadata of a schema: where the client keeps its embedding functions."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from lancedb.embeddings import EmbeddingFunctionConfig, TextEmbeddingFunction, register
from lancedb.embeddings.registry import get_registry
from lancedb.index import BTree

from tests.clients.remote.data import ids, new_name, rows

METADATA = {b"functions": '[{"name": "é ✓ \\u00e9"}]'.encode(), b"own": b"  spaces\nand lines ", b"empty": b""}


@register("pennon-test-letters")
class Letters(TextEmbeddingFunction):  # type: ignore[misc] # lancedb is untyped to us
    """Embed a text as the numbers of its first letters."""

    def ndims(self) -> int:
        return 2

    def generate_embeddings(self, texts: Any) -> list[list[float]]:
        return [[float(ord(letter)) for letter in text[:2]] for text in texts]


def test_schema_metadata_survives_every_kind_of_write_byte_for_byte(db: Any) -> None:
    name = new_name()
    table = db.create_table(name, schema=rows(0).schema.with_metadata(METADATA))

    def kept() -> dict[bytes, bytes]:
        return dict(db.open_table(name).schema.metadata)

    assert kept() == METADATA
    table.add(rows(10))
    assert kept() == METADATA
    table.alter_columns({"path": "colour", "rename": "hue"})
    table.add_columns({"double": "id * 2"})
    table.drop_columns(["tags"])
    table.update(where="id = 1", values={"hue": "x"})
    table.delete("id = 2")
    table.create_index("id", config=BTree())
    assert kept() == METADATA
    table.restore(1)
    assert kept() == METADATA
    table.add(rows(5).replace_schema_metadata(METADATA), mode="overwrite")
    assert kept() == METADATA


def test_the_metadata_of_fields_survives_writes_to_other_columns(db: Any) -> None:
    fields = [pa.field("id", pa.int64(), metadata={"unit": "é"}), pa.field("x", pa.int32())]
    name = new_name()
    table = db.create_table(name, schema=pa.schema(fields))
    table.add(pa.table({"id": pa.array([1], pa.int64()), "x": pa.array([1], pa.int32())}))
    table.alter_columns({"path": "x", "data_type": pa.int64()})
    assert db.open_table(name).schema.field("id").metadata == {b"unit": "é".encode()}


def test_an_embedding_function_is_found_and_used_by_another_connection(db: Any) -> None:
    function = get_registry().get("pennon-test-letters").create()
    config = EmbeddingFunctionConfig(source_column="text", vector_column="vector", function=function)
    schema = pa.schema(
        [pa.field("id", pa.int64()), pa.field("text", pa.string()), pa.field("vector", pa.list_(pa.float32(), 2))]
    )
    name = new_name()
    db.create_table(name, schema=schema.with_metadata(get_registry().get_table_metadata([config])))
    opened = db.open_table(name)
    opened.add([{"id": 1, "text": "ab"}, {"id": 2, "text": "xy"}])
    assert opened.search().to_arrow()["vector"].to_pylist() == [[97.0, 98.0], [120.0, 121.0]]
    assert ids(db.open_table(name).search("xz", vector_column_name="vector").limit(1).to_arrow()) == [2]
