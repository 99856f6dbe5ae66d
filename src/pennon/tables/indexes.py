"""Building indices beside the requests that ask for them, and telling how far they reach."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYetError
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
from pennon.tables.lance_errors import plain, translate, typed_errors

if TYPE_CHECKING:
    from pennon.catalog import Database
    from pennon.catalog.tables import Table
    from pennon.tables.datasets import Datasets

logger = logging.getLogger("pennon.tables")

VECTOR_TYPES = frozenset({"IVF_FLAT", "IVF_SQ", "IVF_PQ", "IVF_RQ", "IVF_HNSW_FLAT", "IVF_HNSW_SQ", "IVF_HNSW_PQ"})
SCALAR_TYPES = frozenset({"BTREE", "BITMAP", "LABEL_LIST", "NGRAM", "FM", "FTS"})
#: Types that pylance builds only by Lance's name for them, or of which it does not know all options.
_CONFIGURED = {"FM": "fm", "FTS": "inverted"}
_SPELLINGS = {"INVERTED": "FTS", "LABELLIST": "LABEL_LIST", "SCALAR": "BTREE", "FMINDEX": "FM"}
#: A small index is built while its request waits, so that its mistakes are answered at once.
_PATIENCE_SECONDS = 0.5
_HEARTBEAT_SECONDS = 10.0
#: Options of full-text indexes by dataset and segment: a segment never changes, and to read them it must be opened.
_TEXT_DETAILS: LRUCache[tuple[str, str], str] = LRUCache(1024)
_TEXT_DETAILS_LOCK = Lock()
_LARGEST_KEPT = 16 * 1024


class Indexer:
    """Builds indices on threads of its own; what is under way stands in the catalog, for every process to see."""

    def __init__(self, database: Database, datasets: Datasets, threads: int) -> None:
        self._database = database
        self._datasets = datasets
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="pennon-index")

    def start(self, table: Table, branch: str, options: dict[str, Any], *, replace: bool) -> None:
        """Start building an index; what is plainly wrong is raised at once."""
        kind = index_kind(options.get("index_type"))
        column = str(options.get("column") or "")
        dataset = self._datasets.at(table, branch, None)
        _check_column(dataset, column)
        build_options(dataset, kind, column, options)  # raises what is wrong with them
        existing = {index.name: index for index in dataset.describe_indices()}
        name = options.get("name") or _default_name(dataset, column, kind, existing)
        if name in existing and not replace:
            raise TableIndexAlreadyExistsError(f"The index {name!r} already exists; drop it, or name another.")
        if name in existing and not _covers(dataset, existing[name], column):
            raise TableIndexAlreadyExistsError(
                f"The index {name!r} already exists on {', '.join(existing[name].field_names)}; drop it, or name "
                "another."
            )
        build = Build(table.id, branch, name, column, kind)
        if not self._database.write(lambda connection: index_builds.begin(connection, build)):
            raise InvalidTableStateError(f"The index {name!r} is being built; wait until it is done.")
        running = self._threads.submit(self._run, build, table, {**options, "name": name})
        try:
            running.result(_PATIENCE_SECONDS)
        except NotYetError:
            return
        except Exception:  # the caller hears of it now; an index that was to be replaced is there as before
            self._database.write(lambda connection: index_builds.end(connection, build, None))
            raise

    def under_way(self, table: Table, branch: str, dataset: Any) -> list[IndexContent]:
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
        """Return why the last build of an index failed, if it did."""
        return next((build.failure for build in self._builds(table, branch) if build.name == name), None)

    def close(self) -> None:
        """Stop taking work; a build under way is finished first."""
        self._threads.shutdown(cancel_futures=True)

    def _builds(self, table: Table, branch: str) -> list[Build]:
        return self._database.read(lambda connection: index_builds.of_branch(connection, table.id, branch))

    def _run(self, build: Build, table: Table, options: dict[str, Any]) -> None:
        failure = None
        with self._heartbeat(build):
            try:
                # The request has recorded its transaction; the commit of the index needs none of its own.
                dataset, _ = self._datasets.for_writing(table, build.branch, lambda _: "")
                with typed_errors():
                    build_index(dataset, build.kind, options)
            except Exception as error:
                failure = plain(str(error)) or type(error).__name__
                logger.warning("building index %s failed: %s", build.name, failure)
                known = error if isinstance(error, (LanceNamespaceError, OSError)) else translate(error)
                raise known or InvalidTableStateError(f"The index could not be built: {failure}") from error
            finally:
                self._database.write(lambda connection: index_builds.end(connection, build, failure))

    @contextmanager
    def _heartbeat(self, build: Build) -> Iterator[None]:
        """Say every now and then that a build is under way, as long as the block runs."""
        done = Event()

        def beat() -> None:
            while not done.wait(_HEARTBEAT_SECONDS):
                try:
                    self._database.write(lambda connection: index_builds.touch(connection, build))
                except Exception:  # a build that goes on must not look dead when the catalog is there again
                    logger.exception("the catalog cannot be told that index %s is being built", build.name)

        thread = Thread(target=beat, name="pennon-index-heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()


def index_kind(given: Any) -> str:
    """Return the name of an index type in any of its spellings."""
    if not isinstance(given, str):
        raise InvalidInputError("index_type must be text.")
    kind = _SPELLINGS.get(given.upper(), given.upper())
    if kind in VECTOR_TYPES or kind in SCALAR_TYPES:
        return kind
    known = sorted([*VECTOR_TYPES, *SCALAR_TYPES])
    raise InvalidInputError(f"index_type {given!r} is not one of {', '.join(known)}.{suggest(kind, known)}")


def build_index(dataset: Any, kind: str, options: dict[str, Any]) -> None:
    """Build an index and commit it."""
    column, name = options["column"], options["name"]
    given = build_options(dataset, kind, column, options)
    if kind in VECTOR_TYPES:
        metric = options.get("distance_type") or options.get("metric_type") or "l2"
        dataset.create_index(column, kind, name=name, metric=metric, replace=True, **given)
        return
    how = IndexConfig(_CONFIGURED[kind], given) if kind in _CONFIGURED else kind
    dataset.create_scalar_index(column, how, name=name, replace=True)


def build_options(dataset: Any, kind: str, column: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of an index of a kind as Lance takes them, or raise what is wrong with them."""
    if kind in VECTOR_TYPES:
        return vector_options(kind, options, find_field(dataset.schema, column).type)
    return text_options(options) if kind == "FTS" else {}


def describe_indices(dataset: Any) -> list[IndexContent]:
    """Return the indices of a dataset with their coverage in live rows."""
    live = _live_rows(dataset)
    return [_content(dataset, index, live) for index in dataset.describe_indices()]


def index_stats(dataset: Any, name: str) -> DescribeTableIndexStatsResponse:
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


def _live_rows(dataset: Any) -> dict[int, int]:
    """Return the number of rows that are not deleted, by fragment."""
    return {f.fragment_id: f.physical_rows - f.num_deletions for f in dataset.get_fragments()}


def _content(dataset: Any, index: Any, live: dict[int, int]) -> IndexContent:
    segments = list(index.segments)
    covered = {fragment for segment in segments for fragment in segment.fragment_ids}
    indexed = sum(rows for fragment, rows in live.items() if fragment in covered)
    created = [segment.created_at for segment in segments if segment.created_at]
    return IndexContent(
        index_name=index.name,
        index_uuid=str(segments[0].uuid) if segments else "",
        columns=list(index.field_names),
        status="done",
        index_type=_friendly(index),
        type_url=index.type_url,
        num_indexed_rows=indexed,
        num_unindexed_rows=sum(live.values()) - indexed,
        num_segments=len(segments),
        size_bytes=index.total_size_bytes,
        created_at=min(created) if created else None,
        index_version=max((segment.index_version for segment in segments), default=None),
        index_details=_details(dataset, index),
    )


def _details(dataset: Any, index: Any) -> str:
    """Return the options an index was built with, as JSON; the manifest omits some of those of a full-text index."""
    recorded = json.dumps(index.details or {})
    if _friendly(index) != "FTS" or not index.segments:
        return recorded
    key = (dataset.uri, str(index.segments[0].uuid))
    with _TEXT_DETAILS_LOCK:
        known = _TEXT_DETAILS.get(key)
    if known is not None:
        return known
    try:
        found = json.dumps(dataset.stats.index_stats(index.name)["indices"][0]["params"])
    except (OSError, RuntimeError, ValueError, LookupError) as error:  # such as a tokenizer whose model is not here
        logger.warning("the options of index %s cannot be read: %s", index.name, plain(str(error)))
        return recorded
    if len(found) <= _LARGEST_KEPT:
        with _TEXT_DETAILS_LOCK:
            _TEXT_DETAILS[key] = found
    return found


def _friendly(index: Any) -> str:
    kind = str(index.index_type).upper()
    return _SPELLINGS.get(kind, kind)


def _default_name(dataset: Any, column: str, kind: str, existing: Mapping[str, Any]) -> str:
    """Return the name of an index that is given none, as Lance chooses it: clients wait for an index by that name.

    It is that of the index it replaces, which is one of the same kind; vector indexes are all of one kind. An index of
    another kind stays.
    """
    base = f"{column if column in dataset.schema.names else plain_path(column)}_idx"
    others = {
        name for name, index in existing.items() if not (_covers(dataset, index, column) and _is_of_kind(index, kind))
    }
    return next(name for name in chain([base], (f"{base}_{n}" for n in count(2))) if name not in others)


def _covers(dataset: Any, index: Any, column: str) -> bool:
    return [_canonical(dataset, name) for name in index.field_names] == [_canonical(dataset, column)]


def _canonical(dataset: Any, column: str) -> str:
    """Return the one path that a column has, however it was written."""
    return join_path([column]) if column in dataset.schema.names else plain_path(column)


def _is_of_kind(index: Any, kind: str) -> bool:
    return _friendly(index) == kind or {_friendly(index), kind} <= VECTOR_TYPES


def _check_column(dataset: Any, column: str) -> None:
    if not column:
        raise InvalidInputError("The request names no column.")
    find_field(dataset.schema, column)
