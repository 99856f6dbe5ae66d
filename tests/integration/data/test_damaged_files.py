"""A version whose data files do not fit its manifest is refused with a typed error, not as unavailable storage."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.integration.data.tables import DataTable, error, rows
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
