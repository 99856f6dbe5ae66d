"""Requests that create and refresh materialized views."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias, TypedDict

from pennon.client.backfill import check_options
from pennon.client.manifests import manifest_fields, manifest_text
from pennon.client.queries import OpenTable, Query, query
from pennon.client.transport import without_none
from pennon.functions import Function

if TYPE_CHECKING:
    from pennon.client.transport import JsonObject

#: What a view reads: a table, by its name or open, a query, or a query as JSON.
Source: TypeAlias = Query | Mapping[str, object] | str | OpenTable
SchemaChange: TypeAlias = Literal["fail", "rebuild", "ignore_new"]
#: How an SQL statement starts, to distinguish it from the name of a table.
_STATEMENT = re.compile(r"\s*(select|with)\s", re.IGNORECASE)
#: The server derives the schema of a view from its query.
_DERIVED = {"output_schema": None}
_KINDS = {"chunker": "chunker", "batched_chunker": "chunker", "udtf": "udtf"}


class ViewOptions(TypedDict, total=False):
    """How a view is kept up to date; the server has a default for each option."""

    #: Whether it is refreshed after commits to its sources.
    auto_refresh: bool
    #: Cron schedule of its refreshes, in UTC.
    schedule: str | None
    #: What happens when a source gets new columns.
    on_schema_change: SchemaChange


class RefreshOptions(TypedDict, total=False):
    """Options of a refresh; the server has a default for each."""

    #: Recompute the whole view instead of an incremental refresh.
    full: bool
    #: First refresh the views that this one reads.
    cascade: bool
    #: The version of the source to refresh to.
    src_version: int | None
    #: Most concurrent tasks, and concurrent calls within a task.
    concurrency: int | None
    intra_applier_concurrency: int | None
    #: Rows per task, and per fragment of the view.
    source_task_size: int | None
    max_rows_per_fragment: int | None
    #: Most rows of a chunker's view.
    output_limit: int | None
    #: Name of the Spark cluster, from the server's settings.
    cluster: str | None
    #: Environment that replaces the function's own: ``pip``, ``py_modules`` and ``env_vars``.
    manifest: Mapping[str, object] | str | None
    #: Jobs with a higher priority run first.
    priority: int
    #: Time limit of the job, in seconds.
    timeout: float | None


def query_body(source: Source | None, sql: str | None) -> JsonObject:
    """Return the fields of a request that define a view by a query or by SQL."""
    if sql is None and isinstance(source, str) and _STATEMENT.match(source):
        source, sql = None, source
    if (source is None) == (sql is None):
        raise TypeError("Define the view by a query or by sql=, exactly one of them.")
    text = json.dumps({"sql": sql}) if source is None else _query_json(source)
    return {"kind": "query", "source_query": text, **_DERIVED}


def function_body(
    kind: Literal["chunker", "udtf"],
    source: Source,
    function: object,
    columns: Sequence[str] | None,
    **more: str | None,
) -> JsonObject:
    """Return the fields of a request that define a view by a chunker or UDTF over a source."""
    if not isinstance(function, Function) or _KINDS.get(function.kind) != kind:
        raise TypeError(f"The view needs a function declared with pennon.{kind}; {function!r} is not.")
    if columns is not None:
        source = _query_of(source).select(list(columns))
    content = base64.b64encode(function.pack()).decode()
    entry = {
        "kind": kind,
        "udtf": content,
        "udtf_sha": hashlib.sha256(content.encode()).hexdigest(),
        "udtf_name": function.name,
        "udtf_version": function.version,
        "input_columns": list(function.inputs) or None,
        **manifest_fields(function.options.manifest),
        **more,
    }
    return {"kind": kind, "source_query": _query_json(source), "udtf_spec": without_none(entry), **_DERIVED}


def option_body(options: ViewOptions) -> JsonObject:
    """Return the fields of a request that say how a view is kept up to date."""
    check_options(options, ViewOptions, "a view")
    return without_none(options)


def refresh_body(options: RefreshOptions) -> JsonObject:
    """Return the body of a refresh request: the options that are set."""
    check_options(options, RefreshOptions, "a refresh")
    body: JsonObject = {**options}
    body["timeout_seconds"] = body.pop("timeout", None)
    body["manifest"] = manifest_text(options.get("manifest"))
    return without_none(body)


def _query_of(source: Source) -> Query:
    if isinstance(source, Mapping):
        raise TypeError("A query as JSON selects its columns itself; do not pass columns=.")
    return source if isinstance(source, Query) else query(source)


def _query_json(source: Source) -> str:
    return json.dumps(dict(source) if isinstance(source, Mapping) else _query_of(source).to_json())
