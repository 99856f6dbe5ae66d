"""Building indices in the background, and reporting their coverage."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from itertools import chain, count
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any

from cachetools import LRUCache
from lance.indices import IndexConfig
from lance_namespace import DescribeTableIndexStatsResponse
from lance_namespace.errors import (
    InvalidInputError,
    InvalidTableStateError,
    LanceNamespaceError,
    TableIndexAlreadyExistsError,
)
from lance_namespace_urllib3_client.models import IndexContent

from pennon.catalog import index_builds
from pennon.catalog.index_builds import Build
from pennon.core.errors import suggest
from pennon.tables.field_paths import find_field, join_path, plain_path
from pennon.tables.index_options import text_options, vector_options
from pennon.tables.lance_errors import clean_message, map_error, typed_errors
from pennon.tables.query.row_sizes import DEFAULT_BATCH_ROWS, row_sizes_of

if TYPE_CHECKING:
    from lance import LanceDataset
    from lance.lance import IndexDescription

    from pennon.catalog import Database
    from pennon.catalog.tables import Table
    from pennon.tables.datasets import Datasets

logger = logging.getLogger("pennon.tables")

VECTOR_TYPES = frozenset({"IVF_FLAT", "IVF_SQ", "IVF_PQ", "IVF_RQ", "IVF_HNSW_FLAT", "IVF_HNSW_SQ", "IVF_HNSW_PQ"})
SCALAR_TYPES = frozenset({"BTREE", "BITMAP", "LABEL_LIST", "NGRAM", "FM", "FTS"})
#: Types that pylance builds only by Lance's own name, or whose options it does not know completely.
_CONFIGURED = {"FM": "fm", "FTS": "inverted"}
_SPELLINGS = {"INVERTED": "FTS", "LABELLIST": "LABEL_LIST", "SCALAR": "BTREE", "FMINDEX": "FM"}
#: A request waits this long for its index: a small one is complete then, and errors reach the caller.
_REQUEST_WAIT_SECONDS = 0.5
_HEARTBEAT_SECONDS = 10.0
#: Options of full-text indexes by dataset and segment: segments are immutable, and reading the options opens one.
_TEXT_DETAILS: LRUCache[tuple[str, str], str] = LRUCache(1024)
_TEXT_DETAILS_LOCK = Lock()
_MAX_CACHED_LENGTH = 16 * 1024


class Indexer:
    """Builds indices on its own threads; running builds are recorded in the catalog for all processes."""

    def __init__(self, database: Database, datasets: Datasets, threads: int, max_batch_bytes: int) -> None:
        self._database = database
        self._max_batch_bytes = max_batch_bytes
        self._datasets = datasets
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="pennon-index")

    def start(self, table: Table, branch: str, options: Mapping[str, object], *, replace: bool) -> None:
        """Start building an index; raises errors of its options, and those that occur within half a second."""
        kind = parse_index_type(options.get("index_type"))
        column = str(options.get("column") or "")
        dataset = self._datasets.at(table, branch, None)
        _check_column(dataset, column)
        build_options(dataset, kind, column, options)  # checks them
        with typed_errors():
            _check_value_size(dataset, column, self._max_batch_bytes)
        existing = {index.name: index for index in dataset.describe_indices()}
        name = str(options.get("name") or _default_name(dataset, column, kind, existing))
        if name in existing and not replace:
            raise TableIndexAlreadyExistsError(f"The index {name!r} already exists; drop it, or choose another name.")
        if name in existing and not _covers(dataset, existing[name], column):
            raise TableIndexAlreadyExistsError(
                f"The index {name!r} already exists on {', '.join(existing[name].field_names)}; drop it, or choose "
                "another name."
            )
        build = Build(table.id, branch, name, column, kind)
        if not self._database.write(lambda connection: index_builds.begin(connection, build)):
            raise InvalidTableStateError(f"The index {name!r} is being built; wait until it is complete.")
        running = self._threads.submit(self._run, build, table, {**options, "name": name})
        try:
            running.result(_REQUEST_WAIT_SECONDS)
        except FutureTimeoutError:
            return
        except Exception:  # the caller gets the error; an index that was to be replaced still exists
            self._database.write(lambda connection: index_builds.end(connection, build, None))
            raise

    def list_building(self, table: Table, branch: str, dataset: LanceDataset) -> list[IndexContent]:
        """Return the indices of a branch that are being built."""
        builds = [build for build in self._builds(table, branch) if build.failure is None]
        rows = dataset.count_rows() if builds else 0
        return [
            IndexContent(
                index_name=build.name,
                index_uuid="",
                columns=[build.column],
                status="building",
                index_type=build.kind,
                num_indexed_rows=0,
                num_unindexed_rows=rows,
            )
            for build in builds
        ]

    def failure(self, table: Table, branch: str, name: str) -> str | None:
        """Return the error of the last build of an index; None if it did not fail."""
        return next((build.failure for build in self._builds(table, branch) if build.name == name), None)

    def close(self) -> None:
        """Stop accepting builds, and wait for running ones."""
        self._threads.shutdown(cancel_futures=True)

    def _builds(self, table: Table, branch: str) -> list[Build]:
        return self._database.read(lambda connection: index_builds.of_branch(connection, table.id, branch))

    def _run(self, build: Build, table: Table, options: Mapping[str, object]) -> None:
        failure = None
        with self._heartbeat(build):
            try:
                # The request has already recorded its transaction.
                dataset, _ = self._datasets.open_for_writing(table, build.branch, lambda _: "")
                with typed_errors():
                    build_index(dataset, build.kind, options)
            except Exception as error:
                failure = clean_message(str(error)) or type(error).__name__
                logger.warning("building index %s failed: %s", build.name, failure)
                known = error if isinstance(error, (LanceNamespaceError, OSError)) else map_error(error)
                raise known or InvalidTableStateError(f"The index could not be built: {failure}") from error
            finally:
                self._database.write(lambda connection: index_builds.end(connection, build, failure))

    @contextmanager
    def _heartbeat(self, build: Build) -> Iterator[None]:
        """Record regularly that a build is running, while the block runs."""
        done = Event()

        def beat() -> None:
            while not done.wait(_HEARTBEAT_SECONDS):
                try:
                    self._database.write(lambda connection: index_builds.heartbeat(connection, build))
                except Exception:  # the next heartbeat must follow when the catalog is available again
                    logger.exception("cannot record the heartbeat of the build of index %s", build.name)

        thread = Thread(target=beat, name="pennon-index-heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()


def _check_value_size(dataset: LanceDataset, column: str, max_bytes: int) -> None:
    """Refuse an index whose build would not fit into memory: Lance reads 8192 rows of its column at a time."""
    rows = min(dataset.count_rows(), DEFAULT_BATCH_ROWS)
    value_bytes = row_sizes_of(dataset).selected_bytes([column])
    if value_bytes * rows > max_bytes:
        raise InvalidInputError(
            f"Column {column!r} has values of about {value_bytes} bytes; building an index reads {rows} of them at a "
            f"time, and may hold {max_bytes} bytes (1/4 of the server's api_process_memory_bytes). Index a column with "
            "smaller values."
        )


def parse_index_type(given: object) -> str:
    """Return the canonical name of an index type."""
    if not isinstance(given, str):
        raise InvalidInputError("index_type must be a string.")
    kind = _SPELLINGS.get(given.upper(), given.upper())
    if kind in VECTOR_TYPES or kind in SCALAR_TYPES:
        return kind
    known = sorted([*VECTOR_TYPES, *SCALAR_TYPES])
    raise InvalidInputError(f"index_type {given!r} is not one of {', '.join(known)}.{suggest(kind, known)}")


def build_index(dataset: LanceDataset, kind: str, options: Mapping[str, object]) -> None:
    """Build an index and commit it."""
    column, name = str(options["column"]), str(options["name"])
    given: dict[str, Any] = build_options(dataset, kind, column, options)
    if kind in VECTOR_TYPES:
        metric = str(options.get("distance_type") or options.get("metric_type") or "l2")
        dataset.create_index(column, kind, name=name, metric=metric, replace=True, **given)
        return
    index_type: Any = IndexConfig(_CONFIGURED[kind], given) if kind in _CONFIGURED else kind
    dataset.create_scalar_index(column, index_type, name=name, replace=True)


def build_options(
    dataset: LanceDataset, kind: str, column: str, options: Mapping[str, object]
) -> dict[str, int] | dict[str, object]:
    """Return the options of an index in Lance's form; raises ``InvalidInputError`` for invalid ones."""
    if kind in VECTOR_TYPES:
        return vector_options(kind, options, find_field(dataset.schema, column).type)
    return text_options(options) if kind == "FTS" else {}


def describe_indices(dataset: LanceDataset) -> list[IndexContent]:
    """Return the indices of a dataset with their coverage in live rows."""
    live = _live_rows(dataset)
    return [_content(dataset, index, live) for index in dataset.describe_indices()]


def index_stats(dataset: LanceDataset, name: str) -> DescribeTableIndexStatsResponse:
    """Return the coverage of one index."""
    index = next(found for found in dataset.describe_indices() if found.name == name)
    content = _content(dataset, index, _live_rows(dataset))
    details = index.details or {}
    return DescribeTableIndexStatsResponse(
        index_type=content.index_type,
        num_indexed_rows=content.num_indexed_rows,
        num_unindexed_rows=content.num_unindexed_rows,
        num_indices=content.num_segments,
        distance_type=str(details["metric_type"]).lower() if details.get("metric_type") else None,
    )


def _live_rows(dataset: LanceDataset) -> dict[int, int]:
    """Return the number of live rows, by fragment."""
    return {f.fragment_id: f.physical_rows - f.num_deletions for f in dataset.get_fragments()}


def _content(dataset: LanceDataset, index: IndexDescription, live: dict[int, int]) -> IndexContent:
    segments = list(index.segments)
    covered = {fragment for segment in segments for fragment in segment.fragment_ids}
    indexed = sum(rows for fragment, rows in live.items() if fragment in covered)
    created = [segment.created_at for segment in segments if segment.created_at]
    return IndexContent(
        index_name=index.name,
        index_uuid=str(segments[0].uuid) if segments else "",
        columns=list(index.field_names),
        status="done",
        index_type=_type_name(index),
        type_url=index.type_url,
        num_indexed_rows=indexed,
        num_unindexed_rows=sum(live.values()) - indexed,
        num_segments=len(segments),
        size_bytes=index.total_size_bytes,
        created_at=min(created) if created else None,
        index_version=max((segment.index_version for segment in segments), default=None),
        index_details=_details(dataset, index),
    )


def _details(dataset: LanceDataset, index: IndexDescription) -> str:
    """Return the options of an index as JSON; the manifest omits some options of a full-text index."""
    recorded = json.dumps(index.details or {})
    if _type_name(index) != "FTS" or not index.segments:
        return recorded
    key = (dataset.uri, str(index.segments[0].uuid))
    with _TEXT_DETAILS_LOCK:
        known = _TEXT_DETAILS.get(key)
    if known is not None:
        return known
    try:
        found = json.dumps(dataset.stats.index_stats(index.name)["indices"][0]["params"])
    except (OSError, RuntimeError, ValueError, LookupError) as error:  # for example the model of a tokenizer is missing
        logger.warning("cannot read the options of index %s: %s", index.name, clean_message(str(error)))
        return recorded
    if len(found) <= _MAX_CACHED_LENGTH:
        with _TEXT_DETAILS_LOCK:
            _TEXT_DETAILS[key] = found
    return found


def _type_name(index: IndexDescription) -> str:
    kind = str(index.index_type).upper()
    return _SPELLINGS.get(kind, kind)


def _default_name(dataset: LanceDataset, column: str, kind: str, existing: Mapping[str, IndexDescription]) -> str:
    """Return the name that Lance gives to an unnamed index: clients wait for an index by that name.

    A new index replaces one of the same kind and takes its name; all vector indexes are of one kind. An index of
    another kind stays.
    """
    base = f"{column if column in dataset.schema.names else plain_path(column)}_idx"
    others = {
        name for name, index in existing.items() if not (_covers(dataset, index, column) and _is_of_kind(index, kind))
    }
    return next(name for name in chain([base], (f"{base}_{n}" for n in count(2))) if name not in others)


def _covers(dataset: LanceDataset, index: IndexDescription, column: str) -> bool:
    return [_canonical(dataset, name) for name in index.field_names] == [_canonical(dataset, column)]


def _canonical(dataset: LanceDataset, column: str) -> str:
    """Return the canonical path of a column."""
    return join_path([column]) if column in dataset.schema.names else plain_path(column)


def _is_of_kind(index: IndexDescription, kind: str) -> bool:
    return _type_name(index) == kind or {_type_name(index), kind} <= VECTOR_TYPES


def _check_column(dataset: LanceDataset, column: str) -> None:
    if not column:
        raise InvalidInputError("column is missing: name the column to index.")
    find_field(dataset.schema, column)
