"""Checkpoints: which files of a checkpoint folder count."""

from __future__ import annotations

from pathlib import Path

from pennon.pipeline.backfill.checkpoints import Checkpoints
from pennon.storage.local import LocalFileIO


def test_files_that_are_not_receipts_are_ignored(tmp_path: Path) -> None:
    """Earlier releases kept failures beside the receipts."""
    files = LocalFileIO(str(tmp_path))
    checkpoints = Checkpoints(files, "column")
    files.replace("column/receipts/failure-0.json", b'{"type": "ValueError", "message": "no"}')
    assert checkpoints.receipt_names() == set()
    checkpoints.remove_unusable("data", errors=True)
    checkpoints.clear()
    assert list(files.files("column/receipts")) == []
