"""Making, opening and listing the materialized views of a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack
from urllib.parse import quote

from pennon.client.delegation import Delegating
from pennon.client.job import submitted
from pennon.client.queries import Query, query
from pennon.client.transport import new_key
from pennon.client.view import View, view_route
from pennon.client.view_requests import ViewOptions, expansion_body, option_body, query_body

if TYPE_CHECKING:
    from pennon.client.transport import Transport

#: What a view reads: a table by its name or open, a query, or a query as JSON.
Readable = Query | Mapping[str, Any] | str | Any


class ViewConnection(Delegating):
    """The part of a connection that is about views."""

    _transport: Transport

    def create_materialized_view(
        self,
        name: str,
        query: Readable | None = None,
        *,
        sql: str | None = None,
        select: Sequence[str] | Mapping[Any, Any] | None = None,
        where: str | None = None,
        limit: int | None = None,
        with_no_data: bool = False,
        namespace_path: Sequence[str] | None = None,
        progress: bool = True,
        **options: Unpack[ViewOptions],
    ) -> View:
        """Create a view, fill it, and return it.

        Args:
            name: The view's name.
            query: What it shows: ``pennon.query("ns.table").select(...).where(...)``, its JSON, a table, or SQL.
            sql: Or a SELECT in Spark's SQL, over any tables of the catalog.
            select: Of a table, the columns, as ``Query.select`` takes them.
            where: Of a table, the rows.
            limit: Of a table, how many rows.
            with_no_data: Leave the view empty until its first refresh.
            namespace_path: Where the view is.
            progress: Whether to show a bar while it is filled.
            options: ``auto_refresh``, ``schedule`` and ``on_schema_change``.
        """
        asked = _narrowed(query, select, where, limit)
        return self._create_view(name, namespace_path, query_body(asked, sql), with_no_data, progress, options)

    def create_chunk_view(
        self,
        name: str,
        source: Readable,
        chunker: Any,
        *,
        columns: Sequence[str] | None = None,
        with_no_data: bool = False,
        namespace_path: Sequence[str] | None = None,
        progress: bool = True,
        **options: Unpack[ViewOptions],
    ) -> View:
        """Create a view whose rows a function makes of each row of its source, fill it, and return it.

        Args:
            name: The view's name.
            source: The rows: a table, or a query.
            chunker: The function, made by ``pennon.chunker``.
            columns: The columns that children have from their parent; by default all of the source.
            with_no_data: Leave the view empty until its first refresh.
            namespace_path: Where the view is.
            progress: Whether to show a bar while it is filled.
            options: ``auto_refresh``, ``schedule`` and ``on_schema_change``.
        """
        body = expansion_body("chunker", source, chunker, columns)
        return self._create_view(name, namespace_path, body, with_no_data, progress, options)

    def create_udtf_view(
        self,
        name: str,
        source: Readable,
        udtf: Any,
        *,
        columns: Sequence[str] | None = None,
        partition_by: str | None = None,
        partition_by_indexed_column: str | None = None,
        with_no_data: bool = False,
        namespace_path: Sequence[str] | None = None,
        progress: bool = True,
        **options: Unpack[ViewOptions],
    ) -> View:
        """Create a view whose rows a function makes of all rows of its source, fill it, and return it.

        Args:
            name: The view's name.
            source: The rows: a table, or a query.
            udtf: The function, made by ``pennon.udtf``.
            columns: The columns of the source that the query has; by default all.
            partition_by: A column; the rows of each of its values are given to a call of their own.
            partition_by_indexed_column: A column with an IVF index; the rows of each of its partitions are.
            with_no_data: Leave the view empty until its first refresh.
            namespace_path: Where the view is.
            progress: Whether to show a bar while it is filled.
            options: ``auto_refresh``, ``schedule`` and ``on_schema_change``.
        """
        partitions = {"partition_by": partition_by, "partition_by_indexed_column": partition_by_indexed_column}
        body = expansion_body("udtf", source, udtf, columns, **partitions)
        return self._create_view(name, namespace_path, body, with_no_data, progress, options)

    def open_view(self, name: str, *, namespace_path: Sequence[str] | None = None) -> View:
        """Open a view; raises an error for a table that is none."""
        path = list(namespace_path or [])
        self._transport.ask(view_route((*path, name), "describe"))
        return View(self._inner.open_table(name, namespace_path=path), self._transport, path)

    open_materialized_view = open_view

    def list_materialized_views(self, namespace_path: Sequence[str] | None = None) -> list[str]:
        """Return the names of the views of a namespace."""
        namespace = quote("$".join(namespace_path or []) or "$", safe="$")
        return self._transport.get_all(f"/v1/namespace/{namespace}/materialized_view/list", "views")

    def _create_view(
        self,
        name: str,
        namespace_path: Sequence[str] | None,
        body: dict[str, Any],
        with_no_data: bool,
        progress: bool,
        options: ViewOptions,
    ) -> View:
        path = list(namespace_path or [])
        whole = {**body, **option_body(options), "with_no_data": with_no_data}
        answer = self._transport.post(view_route((*path, name), "create"), whole, idempotency_key=new_key())
        view = View(self._inner.open_table(name, namespace_path=path), self._transport, path)
        if not with_no_data:
            job = submitted(self._transport, answer, job_type="refresh", table="$".join((*path, name)))
            view.arrived(job, progress=progress)
        return view


def _narrowed(asked: Any, select: Any, where: str | None, limit: int | None) -> Any:
    """Return what is read with what was said beside it, as LanceDB's client says it."""
    if select is None and where is None and limit is None:
        return asked
    if asked is None or isinstance(asked, Query | Mapping):
        raise TypeError("select, where and limit go with a table; a query says them itself.")
    narrowed = query(asked)
    if select is not None:
        narrowed = narrowed.select(select)
    if where is not None:
        narrowed = narrowed.where(where)
    return narrowed if limit is None else narrowed.limit(limit)
