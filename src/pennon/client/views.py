"""Creating, opening and listing the materialized views of a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Unpack

from pennon.client.delegation import Delegating
from pennon.client.job import job_from_response
from pennon.client.queries import AnyFunction, Item, Query, query
from pennon.client.transport import new_key, object_path
from pennon.client.view import View, view_route
from pennon.client.view_requests import Source, ViewOptions, function_body, option_body, query_body

if TYPE_CHECKING:
    from lancedb.remote.db import RemoteDBConnection

    from pennon.client.columns import ColumnNames
    from pennon.client.transport import JsonObject, Transport


class ViewConnection(Delegating):
    """The methods of a connection for materialized views."""

    _inner: RemoteDBConnection
    _transport: Transport

    def create_materialized_view(
        self,
        name: str,
        query: Source | None = None,
        *,
        sql: str | None = None,
        select: Sequence[str] | Mapping[ColumnNames, Item] | None = None,
        where: str | None = None,
        limit: int | None = None,
        with_no_data: bool = False,
        namespace_path: Sequence[str] | None = None,
        progress: bool = True,
        **options: Unpack[ViewOptions],
    ) -> View:
        """Create a materialized view of a query, compute it, and return it.

        Args:
            name: The name of the view.
            query: The query: ``pennon.query("ns.table").select(...).where(...)``, its JSON, a table, or SQL.
            sql: Alternatively, a SELECT in Spark SQL over any tables of the catalog.
            select: For a table, its columns, as in ``Query.select``.
            where: For a table, an SQL filter.
            limit: For a table, the most rows.
            with_no_data: Leave the view empty until its first refresh.
            namespace_path: The namespace of the view.
            progress: Whether to show a progress bar.
            options: ``auto_refresh``, ``schedule`` and ``on_schema_change``.
        """
        source = _narrow(query, select, where, limit)
        return self._create_view(name, namespace_path, query_body(source, sql), with_no_data, progress, options)

    def create_chunk_view(
        self,
        name: str,
        source: Source,
        chunker: AnyFunction,
        *,
        columns: Sequence[str] | None = None,
        with_no_data: bool = False,
        namespace_path: Sequence[str] | None = None,
        progress: bool = True,
        **options: Unpack[ViewOptions],
    ) -> View:
        """Create a materialized view with the rows that a chunker makes of each source row, compute it, and return it.

        Args:
            name: The name of the view.
            source: The source: a table, or a query.
            chunker: A function declared with ``pennon.chunker``.
            columns: The source columns that are copied to the rows of the view; by default all.
            with_no_data: Leave the view empty until its first refresh.
            namespace_path: The namespace of the view.
            progress: Whether to show a progress bar.
            options: ``auto_refresh``, ``schedule`` and ``on_schema_change``.
        """
        body = function_body("chunker", source, chunker, columns)
        return self._create_view(name, namespace_path, body, with_no_data, progress, options)

    def create_udtf_view(
        self,
        name: str,
        source: Source,
        udtf: AnyFunction,
        *,
        columns: Sequence[str] | None = None,
        partition_by: str | None = None,
        partition_by_indexed_column: str | None = None,
        with_no_data: bool = False,
        namespace_path: Sequence[str] | None = None,
        progress: bool = True,
        **options: Unpack[ViewOptions],
    ) -> View:
        """Create a materialized view with the rows that a UDTF makes of its source, compute it, and return it.

        Args:
            name: The name of the view.
            source: The source: a table, or a query.
            udtf: A function declared with ``pennon.udtf``.
            columns: The source columns that the UDTF reads; by default all.
            partition_by: A column; the UDTF is called once for each of its values, with the rows of that value.
            partition_by_indexed_column: A column with an IVF index; the UDTF is called once for each partition of the
                index.
            with_no_data: Leave the view empty until its first refresh.
            namespace_path: The namespace of the view.
            progress: Whether to show a progress bar.
            options: ``auto_refresh``, ``schedule`` and ``on_schema_change``.
        """
        partitions = {"partition_by": partition_by, "partition_by_indexed_column": partition_by_indexed_column}
        body = function_body("udtf", source, udtf, columns, **partitions)
        return self._create_view(name, namespace_path, body, with_no_data, progress, options)

    def open_view(self, name: str, *, namespace_path: Sequence[str] | None = None) -> View:
        """Open a materialized view; raise an error if the table is not one."""
        path = list(namespace_path or [])
        self._transport.read(view_route((*path, name), "describe"))
        return View(self._inner.open_table(name, namespace_path=path), self._transport, path)

    open_materialized_view = open_view

    def list_materialized_views(self, namespace_path: Sequence[str] | None = None) -> list[str]:
        """Return the names of the materialized views in a namespace."""
        return self._transport.get_all(
            object_path("namespace", namespace_path or [], "materialized_view/list"), "views"
        )

    def _create_view(
        self,
        name: str,
        namespace_path: Sequence[str] | None,
        body: JsonObject,
        with_no_data: bool,
        progress: bool,
        options: ViewOptions,
    ) -> View:
        path = list(namespace_path or [])
        body = {**body, **option_body(options), "with_no_data": with_no_data}
        response = self._transport.post(view_route((*path, name), "create"), body, idempotency_key=new_key())
        view = View(self._inner.open_table(name, namespace_path=path), self._transport, path)
        if not with_no_data:
            job = job_from_response(self._transport, response, job_type="refresh", table="$".join((*path, name)))
            view.wait_for(job, progress=progress)
        return view


def _narrow(
    source: Source | None,
    select: Sequence[str] | Mapping[ColumnNames, Item] | None,
    where: str | None,
    limit: int | None,
) -> Source | None:
    """Return a table with the columns, filter and limit that LanceDB's client passes beside it."""
    if select is None and where is None and limit is None:
        return source
    if source is None or isinstance(source, Query | Mapping):
        raise TypeError("select, where and limit can only be combined with a table; a query has its own.")
    narrowed = query(source)
    if select is not None:
        narrowed = narrowed.select(select)
    if where is not None:
        narrowed = narrowed.where(where)
    return narrowed if limit is None else narrowed.limit(limit)
