"""The notebooks in ``examples`` run, against a real server with Spark, and print what they show."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import nbformat
import pytest
from scripts.run_examples import NOTEBOOKS, printed, run

if TYPE_CHECKING:
    from tests.support.server import PennonProcess

WANTED = {"deduplication", "document-chunking", "images", "text-embeddings"}
LARGEST_BYTES = 50_000


def test_every_example_is_there() -> None:
    assert {path.stem for path in NOTEBOOKS} == WANTED


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_what_it_shows(path: Path, spark_server: PennonProcess) -> None:
    shown = nbformat.read(path, as_version=4)
    assert printed(run(path, spark_server.url)) == printed(shown), "python -m scripts.run_examples URL runs them again"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_small_and_has_what_it_printed(path: Path) -> None:
    assert path.stat().st_size < LARGEST_BYTES
    assert any(printed(nbformat.read(path, as_version=4)))
