"""Keeping the first rows of what a refresh wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pennon.pipeline.refresh.fragments import FragmentWriter, NewFragment
from pennon.storage.root import open_file_io

if TYPE_CHECKING:
    from pennon.tables.snapshots import Snapshot


def trim(fragments: list[NewFragment], most: int, target: Snapshot, mark: str) -> list[NewFragment]:
    """Return fragments with the first rows of these; a file that has more than enough is written again."""
    folder = open_file_io(target.location, target.options)
    kept: list[NewFragment] = []
    for fragment in fragments:
        room = most - sum(piece.rows for piece in kept)
        if fragment.rows <= room:
            kept.append(fragment)
            continue
        if room:
            kept += _head(fragment, room, target, mark)
        folder.remove(f"data/{fragment.file['path']}")
    return kept


def _head(fragment: NewFragment, rows: int, target: Snapshot, mark: str) -> list[NewFragment]:
    from lance.file import LanceFileReader

    options: dict[str, Any] = {"storage_options": target.options} if target.options else {}
    reader = LanceFileReader(f"{target.home}/data/{fragment.file['path']}", **options)
    writer: FragmentWriter | None = None
    for batch in reader.read_range(0, rows).to_batches():
        writer = writer or FragmentWriter(target, batch.schema.names, mark, rows)
        writer.write(batch)
    return writer.close() if writer else []
