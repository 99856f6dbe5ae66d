"""The output limit of a refresh: it keeps the first rows of what was written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pennon.pipeline.refresh.fragments import FragmentWriter
from pennon.storage.root import open_file_io

if TYPE_CHECKING:
    from pennon.pipeline.refresh.task_result import NewFragment
    from pennon.tables.snapshots import Snapshot


def limit_rows(fragments: list[NewFragment], most: int, target: Snapshot, mark: str) -> list[NewFragment]:
    """Return fragments with the first ``most`` rows of these; a file that has too many is written again."""
    folder = open_file_io(target.location, target.options)
    kept: list[NewFragment] = []
    for fragment in fragments:
        room = most - sum(piece["rows"] for piece in kept)
        if fragment["rows"] <= room:
            kept.append(fragment)
            continue
        if room:
            kept += _write_first_rows(fragment, room, target, mark)
        folder.remove(f"data/{fragment['file']['path']}")
    return kept


def _write_first_rows(fragment: NewFragment, rows: int, target: Snapshot, mark: str) -> list[NewFragment]:
    from lance.file import LanceFileReader

    path = f"{target.home}/data/{fragment['file']['path']}"
    reader = LanceFileReader(path, storage_options=target.options or None)
    writer: FragmentWriter | None = None
    for batch in reader.read_range(0, rows).to_batches():
        writer = writer or FragmentWriter(target, batch.schema.names, mark, rows)
        writer.write(batch)
    return writer.close() if writer else []
