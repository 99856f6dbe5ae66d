"""A version whose data files do not fit its manifest is refused with a typed error, not as unavailable storage."""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path
from typing import Any

import lance
import pytest

from pennon.storage.layout import manifest_name
from tests.integration.data.tables import DataTable, error, rows
from tests.support.manifest_edits import edit_manifest
from tests.support.rest import RestClient
from tests.support.server import PennonProcess


@pytest.mark.parametrize("kept", [0.0, 0.5, 0.95])
def test_a_data_file_that_ends_early_is_a_typed_error(tmp_path: Path, kept: float) -> None:
    with PennonProcess(tmp_path) as server, RestClient(server.url) as http:
        table = DataTable(http).create(rows(1000))
        (file,) = Path(table.do("describe")["location"], "data").iterdir()
        os.truncate(file, int(file.stat().st_size * kept))
        for verb, body in (("query", {"k": 10}), ("count_rows", {"predicate": "word = 'x'"})):
            assert error(table.ask(verb, body)) == (400, 13), verb


def test_a_fragment_that_claims_billions_of_rows_keeps_no_query_running(http: RestClient, tmp_path: Path) -> None:
    """Where rows are deleted, Lance would count them all to find one of them, for minutes."""
    template = tmp_path / "template"
    lance.write_dataset(rows(20), template, max_rows_per_file=10).delete("id = 3")
    table = DataTable(http)
    table.do("declare")
    folder = Path(table.do("describe")["location"])
    shutil.copytree(template, folder, ignore=shutil.ignore_patterns("_versions"), dirs_exist_ok=True)

    def claim(manifest: Any) -> None:
        manifest.version = 1
        manifest.fragments[0].physical_rows = 2**32 - 1

    content = (template / "_versions" / manifest_name(2, "V2")).read_bytes()
    staged = folder / "_versions" / f"{manifest_name(1, 'V2')}-{uuid.uuid4()}"
    staged.parent.mkdir(exist_ok=True)
    staged.write_bytes(edit_manifest(content, claim))
    table.do("version/create", {"version": 1, "manifest_path": str(staged).lstrip("/")})
    assert error(table.ask("query", {"k": 100})) == (400, 13)
    assert error(table.ask("count_rows", {"predicate": "id > 4"})) == (400, 13)
    assert error(table.ask("update", {"updates": [["word", "'x'"]], "predicate": "id = 8"})) == (400, 13)
