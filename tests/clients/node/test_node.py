"""The published client for Node.js, through all it offers against a remote server."""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING, Any

import pytest

from tests.clients.node.running import run_script

if TYPE_CHECKING:
    from tests.support.server import PennonProcess

COLUMNS = ["id", "colour", "text", "vector"]

#: What each call comes to; the text of an error is a pattern.
EXPECTED: dict[str, Any] = {
    "createTable": 100,
    "createTable again": re.compile("already exists"),
    "createTable existOk": 100,
    "createEmptyTable": [0, ["Int32"]],
    "createTable overwrite": 2,
    "openTable": 100,
    "openTable missing": re.compile("not found"),
    "schema": ["id: Float64", "colour: Utf8", "text: Utf8", "vector: FixedSizeList[4]<Float32>"],
    "version": 1,
    "countRows filter": 10,
    "query": [0, 1, 2],
    "query where": [7, 57],
    "query offset": [5, 6],
    "query select": ["red", "green"],
    "query expression": [0, 2, 4],
    "query order": [99, 98],
    "outputSchema": ["id"],
    "toArrow": 100,
    "search": [41, 42, 40],
    "vectorSearch postfilter": [],
    "vectorSearch prefilter": [50, 51],
    "distance": [18, 19, 21, 22],
    "several vectors": [[0, 7], [1, 90]],
    "takeOffsets": [3, 50],
    "takeRowIds": [9],
    "explainPlan": True,
    "analyzePlan": True,
    "bad filter": re.compile("(?s)400.*(?i:sql|pars|expect)"),
    "narrow vector": re.compile("(?s)400.*size 2"),
    "add": 2,
    "add overwrite": [5, 6],
    "mergeInsert conditions": [1, 1, 1],
    "mergeInsert": [5, 5],
    "update": 1,
    "updated": "x'y",
    "update by SQL": 1,
    "delete": 110,
    "listVersions": [1, 2, 3, 4, 5, 6],
    "checkout": [100, 110],
    "tags": [["first"], 2, 110, []],
    "restore": 110,
    "addColumns": 14,
    "alterColumns": [*COLUMNS, "twice"],
    "dropColumns": COLUMNS,
    "updateFieldMetadata": {"unit": "one"},
    "unknown column": re.compile("Did you mean 'colour'"),
    "createIndex btree": [["id_idx", "BTree"]],
    "createIndex fts": True,
    "phrase": True,
    "match": [5],
    "boost": [5],
    "multi match": [7],
    "boolean": [7],
    "tokenize": ["red", "hous"],
    "hybrid": True,
    "createIndex others": None,
    "createIndex ivfFlat": [33],
    "index options": [True, True, False, 3],
    "prewarm": None,
    "indexStats": ["IVF_FLAT", 110, 0],
    "indexStats missing": "none",
    "stats": [110, 3],
    "dropIndex": ["text_idx", "vector_idx"],
    "branches": [[115, 110], ["dev"], []],
    "branches diff and merge": ["dev", 2, ["ready", "merged", "rejected"], 112],
    "cloneTable": 110,
    "jobs": [True, "none", False, True],
    "write buffer": ["none"],
    "unset write buffer": re.compile("UnsetWriteBuffer is not supported"),
    "namespaces": [{"owner": "me"}, True, 3, ["inner"]],
    "renameTable": 110,
    "dropTable": [],
}


@pytest.fixture(scope="session")
def results(pennon_server: PennonProcess) -> dict[str, Any]:
    """What the calls of the script came to, by their names."""
    return run_script("flow.mjs", pennon_server.url, secrets.token_hex(4))


@pytest.mark.parametrize("call", EXPECTED)
def test_a_call_comes_to_what_it_should(results: dict[str, Any], call: str) -> None:
    expected = EXPECTED[call]
    if isinstance(expected, re.Pattern):
        assert expected.search(results[call]["error"]), results[call]
    else:
        assert results[call] == expected


def test_every_call_of_the_script_is_looked_at(results: dict[str, Any]) -> None:
    assert set(results) == {*EXPECTED, "tableNames", "tableNames after"}
    assert len(results["tableNames"]) == 2
    assert results["tableNames after"] == results["tableNames"][1:]
