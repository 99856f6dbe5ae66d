"""Files of tags and branches that are not what Lance writes: they name nothing, and hinder nobody."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.data.tables import DataTable, error, rows

MALFORMED = {
    "empty": b"",
    "cut": b'{"version": 1',
    "list": b"[]",
    "null": b"null",
    "text": b'{"version": "1", "parentVersion": "1"}',
    "nothing": b"{}",
    "negative": b'{"version": -1, "parentVersion": -1}',
    "huge": b'{"version": 1e400, "parentVersion": 99999999999999999999}',
    "bytes": b"\xff\xfe\x00",
    "deep": b"[" * 100_000,
    "metadata": b'{"version": 1, "parentVersion": 1, "metadata": [1], "manifestSize": "x", "createAt": {}}',
    "outside": b'{"version": 1, "parentVersion": 1, "branch": "../../x", "parentBranch": "../../x"}',
    "..%2F..%2Fx": b'{"parentVersion": 1}',
    "large": b" " * 2_000_000,
}


@pytest.fixture
def littered(table: DataTable) -> DataTable:
    """A table with a good tag and a good branch among many that are not."""
    table.do("tags/create", {"tag": "good", "version": 1})
    table.do("branches/create", {"name": "fine"})
    for kind in ("tags", "branches"):
        folder = Path(table.do("describe")["location"], "_refs", kind)
        for name, content in MALFORMED.items():
            (folder / f"{name}.json").write_bytes(content)
    return table


def test_malformed_refs_are_skipped_in_listings(littered: DataTable) -> None:
    listed = littered.do("tags/list")["tags"]
    assert set(listed) == {"good"}
    assert set(littered.do("branches/list")["branches"]) == {"fine"}
    assert littered.do("tags/version", {"tag": "good"})["version"] == 1
    littered.put("insert", rows(500, 503), branch="fine")
    assert littered.count(branch="fine") == 103
    littered.do("tags/create", {"tag": "another", "version": 1})
    littered.do("delete", {"predicate": "id = 0"})
    assert littered.count() == 99


def test_malformed_refs_are_typed_errors_where_they_are_named(littered: DataTable) -> None:
    for name in MALFORMED:
        if "%" in name:
            continue
        assert error(littered.ask("tags/version", {"tag": name})) == (404, 8), name
        assert error(littered.ask("tags/update", {"tag": name, "version": 1})) == (404, 8), name
        assert error(littered.ask("count_rows", {"branch": name})) == (404, 22), name


def test_malformed_refs_can_be_deleted(littered: DataTable) -> None:
    refused = littered.ask("branches/delete", {"name": "fine"})
    assert error(refused) == (400, 13)
    assert "malformed" in refused.json()["error"]
    for name in MALFORMED:
        if "%" not in name:
            littered.do("tags/delete", {"tag": name})
            littered.do("branches/delete", {"name": name})
    for path in Path(littered.do("describe")["location"], "_refs").glob("*/..*"):
        path.unlink()
    littered.do("branches/delete", {"name": "fine"})
    assert littered.do("tags/list")["tags"].keys() == {"good"}


def test_a_version_whose_files_are_missing_is_no_error_that_clients_retry(table: DataTable) -> None:
    table.put("insert", rows(500, 503))
    table.do("create_scalar_index", {"column": "word", "index_type": "BITMAP", "name": "by_word"})
    table.wait_for_index("by_word")
    for file in Path(table.do("describe")["location"], "data").glob("*.lance"):
        file.unlink()
    for verb, body in (
        ("query", {"k": 10}),
        ("query", {"k": 10, "vector": {"single_vector": [0.0] * 4}}),
        ("update", {"updates": [["word", "'x'"]]}),
        ("delete", {"predicate": "id < 5"}),
        ("add_columns", {"new_columns": [{"name": "more", "expression": "id + 1"}]}),
    ):
        answer = table.ask(verb, body)
        assert error(answer) == (404, 11), (verb, answer.text)
        assert "files" in answer.json()["error"]
