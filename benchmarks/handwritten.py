"""Fill columns by hand: two processes with nothing but pylance, and a commit when both are ready."""

from __future__ import annotations

import multiprocessing
import os
import uuid
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType

    from features import Feature

_PROCESSES = 2
_BATCH_ROWS = 8192


class Loop:
    """Processes that are kept between the columns they fill."""

    def __init__(self) -> None:
        self._pool = ProcessPoolExecutor(_PROCESSES, multiprocessing.get_context("spawn"), _warm_up)

    def __enter__(self) -> Loop:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown()

    def fill(self, uri: str, column: str, feature: Feature) -> None:
        """Fill a column of a dataset; it has to be there, empty."""
        import lance

        dataset = lance.dataset(uri)
        fragments = [fragment.fragment_id for fragment in dataset.get_fragments()]
        halves = [fragments[number::_PROCESSES] for number in range(_PROCESSES)]
        parts = [self._pool.submit(_fill, uri, dataset.version, half, column, feature) for half in halves]
        files = [file for part in parts for file in part.result()]
        groups = [lance.LanceOperation.DataReplacementGroup(fragment, file) for fragment, file in files]
        lance.LanceDataset.commit(uri, lance.LanceOperation.DataReplacement(groups), read_version=dataset.version)


def _warm_up() -> None:
    os.environ.setdefault("LANCE_LOG", "error")  # else each commit is called unstable
    import lance  # noqa: F401


def _fill(uri: str, version: int, fragments: list[int], column: str, feature: Feature) -> list[tuple[int, Any]]:
    """Write the files of some fragments."""
    import lance
    import pyarrow as pa
    from lance.file import LanceFileWriter
    from lance.fragment import DataFile

    dataset = lance.dataset(uri, version=version)
    schema = pa.schema([pa.field(column, feature.data_type)])
    files = []
    for number in fragments:
        name = f"{uuid.uuid4().hex}.lance"
        with LanceFileWriter(f"{uri}/data/{name}", schema, version=dataset.data_storage_version) as writer:
            for batch in dataset.get_fragment(number).to_batches(columns=["x", "y"], batch_size=_BATCH_ROWS):
                writer.write_batch(pa.record_batch([feature.apply(batch)], schema=schema))
        files.append((number, DataFile.create(dataset, name)))
    return files
