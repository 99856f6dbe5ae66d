"""What is sent to make and to refresh materialized views."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from pennon.client.manifests import manifest_fields, manifest_text
from pennon.client.queries import Query, query
from pennon.functions import Function

SchemaChange = Literal["fail", "rebuild", "ignore_new"]
#: How SQL begins, where one could also name a table.
_STATEMENT = re.compile(r"\s*(select|with)\s", re.IGNORECASE)
#: The server derives the columns of a view from its query.
_DERIVED = {"output_schema": None}
_KINDS = {"chunker": "chunker", "batched_chunker": "chunker", "udtf": "udtf"}


class ViewOptions(TypedDict, total=False):
    """How a view is kept up to date; the server has a default for each."""

    #: Whether it follows commits to its sources.
    auto_refresh: bool
    #: When it is refreshed, as cron writes it, in UTC.
    schedule: str | None
    #: What happens when a source gets columns that the view does not know.
    on_schema_change: SchemaChange


class RefreshOptions(TypedDict, total=False):
    """How a view is refreshed; the server has a default for each."""

    #: Compute the whole view, whatever changed.
    full: bool
    #: Refresh the views first that this one reads.
    cascade: bool
    #: The version of the source that the view shall hold.
    src_version: int | None
    #: Tasks at the same time, and calls at the same time within a task.
    concurrency: int | None
    intra_applier_concurrency: int | None
    #: Rows of a task, and of a fragment of the view.
    source_task_size: int | None
    max_rows_per_fragment: int | None
    #: Rows that a chunker's view may have.
    output_limit: int | None
    #: The cluster, as the server's settings name it.
    cluster: str | None
    #: The environment, in place of the function's own: with ``pip``, ``py_modules`` and ``env_vars``.
    manifest: Mapping[str, Any] | str | None
    #: Jobs with a higher one go first.
    priority: int
    #: Seconds after which the server ends the job.
    timeout: float | None


def query_body(asked: Query | Mapping[str, Any] | str | Any | None, sql: str | None) -> dict[str, Any]:
    """Return the part of a request that says what a view shows."""
    if sql is None and isinstance(asked, str) and _STATEMENT.match(asked):
        asked, sql = None, asked
    if (asked is None) == (sql is None):
        raise TypeError("A view shows a query, or what sql selects: give one of them.")
    if sql is not None:
        return {"kind": "query", "source_query": json.dumps({"sql": sql}), **_DERIVED}
    return {"kind": "query", "source_query": _query_text(asked), **_DERIVED}


def expansion_body(
    kind: Literal["chunker", "udtf"],
    source: Query | Mapping[str, Any] | str | Any,
    function: Any,
    columns: Sequence[str] | None,
    **more: Any,
) -> dict[str, Any]:
    """Return the part of a request that says which function makes a view's rows, and of what."""
    if not isinstance(function, Function) or _KINDS.get(function.kind) != kind:
        raise TypeError(f"The rows of such a view are made by a function of pennon.{kind}; {function!r} is not one.")
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
    spec = {key: value for key, value in entry.items() if value is not None}
    return {"kind": kind, "source_query": _query_text(source), "udtf_spec": spec, **_DERIVED}


def option_body(options: ViewOptions) -> dict[str, Any]:
    """Return the part of a request that says how a view is kept up to date."""
    _refuse_unknown(options, ViewOptions, "A view")
    return {name: value for name, value in options.items() if value is not None}


def refresh_body(options: RefreshOptions) -> dict[str, Any]:
    """Return the body of a request for a refresh: what was stated, and nothing of what was left open."""
    _refuse_unknown(options, RefreshOptions, "A refresh")
    body: dict[str, Any] = dict(options)
    body["timeout_seconds"] = body.pop("timeout", None)
    body["manifest"] = manifest_text(body.get("manifest"))
    return {name: value for name, value in body.items() if value is not None}


def _query_of(asked: Any) -> Query:
    if isinstance(asked, Mapping):
        raise TypeError("Say the columns in the query itself, where it is written as JSON.")
    return asked if isinstance(asked, Query) else query(asked)


def _query_text(asked: Any) -> str:
    document = dict(asked) if isinstance(asked, Mapping) else _query_of(asked).to_json()
    return json.dumps(document)


def _refuse_unknown(options: Mapping[str, Any], known: Any, what: str) -> None:
    unknown = sorted(options.keys() - known.__annotations__.keys())
    if unknown:
        raise TypeError(f"{what} has no option {unknown[0]!r}; it has {', '.join(sorted(known.__annotations__))}.")
