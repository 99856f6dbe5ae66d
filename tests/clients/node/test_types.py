"""Every Arrow type through the published client for Node.js: created, inserted, queried and altered.

Arrow for JavaScript has not all types, and descriptions of tables have no words for some in this client's version. What
fails for such a reason fails in the client, with its own words, and is listed here.
"""

from __future__ import annotations

import base64
import json
import re
import secrets
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pennon.tables.arrow_json import type_to_json
from tests.clients.lakes import ClientTable, Lake
from tests.clients.node.running import run_script
from tests.integration.data.arrow_types import CASTS, EVERY, stored_type, table_of, with_listed_maps
from tests.integration.data.tables import DataTable, stream_of
from tests.support.rest import RestClient
from tests.support.server import PennonProcess

NOT_IN_ARROW = "Unrecognized type: "
WRITTEN = ("alone", "create")
ALTERED = ("forbid nulls", "rename", "add")
NO_OFFSET = "Unsupported timestamp type|Invalid data type"
#: What the client cannot do with some types, and what it says then.
UNABLE: dict[str, dict[str, str]] = {
    "large_list": dict.fromkeys([*WRITTEN, "read", *ALTERED], NOT_IN_ARROW),
    "string_view": dict.fromkeys(WRITTEN, NOT_IN_ARROW),
    "binary_view": dict.fromkeys(WRITTEN, NOT_IN_ARROW),
    "timestamp[ns, +05:30]": {"insert": NO_OFFSET, "cast": NO_OFFSET},
    # As it should be.
    "null": {"forbid nulls": "The column 'column' holds nulls|non-nullable"},
}


@pytest.fixture(scope="module")
def journeys(pennon_server: PennonProcess, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the client read after each step, by kinds."""
    folder = tmp_path_factory.mktemp("columns")
    kinds = {}
    with RestClient(pennon_server.url) as http:
        for number, (kind, column) in enumerate(EVERY.items()):
            given = DataTable(http).create(table_of(column))
            (folder / f"{number}.arrow").write_bytes(stream_of(table_of(column)))
            (folder / f"{number}-more.arrow").write_bytes(stream_of(with_listed_maps(table_of(column))))
            kinds[kind] = {
                "file": f"{number}.arrow",
                "more": f"{number}-more.arrow",
                "given": given.names[0],
                "made": f"types_{secrets.token_hex(6)}",
                "cast": _cast_name(kind),
            }
    (folder / "kinds.json").write_text(json.dumps(kinds))
    return run_script("types.mjs", pennon_server.url, str(folder))


def _cast_name(kind: str) -> str | None:
    """Return the name of the type to cast to; types with parts have none that the client takes."""
    stated = type_to_json(CASTS[kind]) if kind in CASTS else {}  # type: ignore[typeddict-item]
    return stated["type"] if set(stated) == {"type"} else None


def _read(found: str) -> pa.Table:
    return pa.ipc.open_stream(base64.b64decode(found)).read_all()


def _expected(kind: str, *, inserted: bool) -> dict[str, dict[str, pa.Array]]:
    """Return the columns that are to be read after each step."""
    column = EVERY[kind]
    stored = column if column.type == stored_type(kind) else column.cast(stored_type(kind))
    twice = pa.concat_arrays([stored, stored])
    first = pa.concat_arrays([stored[:1]] * (1 + inserted))
    # What SQL makes of an extension type is of the type in which that is stored.
    copied = {} if isinstance(first.type, pa.BaseExtensionType) else {"copied": first}
    expected = {
        "alone": {"column": column},
        "read": {"column": stored},
        "create": {"column": stored},
        "insert": {"column": twice},
        "forbid nulls": {"column": first},
        "rename": {"renamed": first},
        "add": {"renamed": first, **copied},
        "drop": {},
    }
    if _cast_name(kind) is not None:
        expected["cast"] = {"renamed": first.cast(CASTS[kind], safe=False), **copied}
    return expected


@pytest.mark.parametrize("kind", EVERY)
def test_values_survive_or_the_client_says_why_not(journeys: dict[str, Any], kind: str) -> None:
    found, unable = journeys[kind], UNABLE.get(kind, {})
    written = "create" not in unable
    expected = _expected(kind, inserted=written and "insert" not in unable)
    if not written:
        del expected["insert"]
    for step, columns in expected.items():
        if step in unable:
            assert re.search(unable[step], found[step]["error"])
            continue
        table = _read(found[step])
        for name, column in columns.items():
            assert table[name].type == column.type, step
            assert table[name].to_pylist() == column.to_pylist(), step
        assert table.schema.field(1).nullable == (step != "forbid nulls")
        assert step != "drop" or table.column_names == ["id", "other"]


def test_columns_are_added_by_expressions(journeys: dict[str, Any]) -> None:
    refused = {
        journey["add by schema"]["error"] for kind, journey in journeys.items() if "alone" not in UNABLE.get(kind, {})
    }
    assert len(refused) == 1
    assert "Only SQL expressions are supported" in refused.pop()


def test_blobs_survive(local_lake: Lake, tmp_path: Path) -> None:
    contents = [b"a" * 100_000, None, b""]
    blob = pa.field("blob", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    data = pa.table({"id": [0, 1, 2], "blob": contents}, schema=pa.schema([pa.field("id", pa.int64()), blob]))
    (tmp_path / "data.arrow").write_bytes(stream_of(data))
    name = f"types_{secrets.token_hex(6)}"
    assert run_script("blobs.mjs", local_lake.url, str(tmp_path / "data.arrow"), name) == {"ids": [0, 1, 2] * 2}
    files = ClientTable(local_lake, local_lake.connect(), name).open().take_blobs("renamed", indices=list(range(6)))
    assert [None if file is None else file.readall() for file in files] == contents * 2
