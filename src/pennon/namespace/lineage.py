"""Lineage: the tables, views and columns that others are computed from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lance_namespace.errors import LanceNamespaceError

from pennon.catalog import tables, views
from pennon.columns.feature_columns import feature_columns, find_feature_column
from pennon.core.caller import current_caller
from pennon.core.identifiers import format_identifier
from pennon.namespace.models.lineage import (
    DescribeLineageRequest,
    DescribeLineageResponse,
    LineageEdge,
    LineageNode,
)
from pennon.namespace.requests import parse_choice, request_as, table_id
from pennon.namespace.resolver import TableResolver
from pennon.services import Services
from pennon.views.lineage.origins import column_origins
from pennon.views.model.definition import Definition

if TYPE_CHECKING:
    from pennon.catalog import Connection
    from pennon.catalog.tables import Table


@dataclass(frozen=True)
class LineageOperations:
    """Describe what a table is computed from, and what is computed from it."""

    services: Services
    resolver: TableResolver

    def describe_lineage(self, request: DescribeLineageRequest) -> DescribeLineageResponse:
        """Return the part of the graph around a table that the caller may see."""
        request = request_as(DescribeLineageRequest, request)
        table = self.resolver.table(table_id(request))
        direction = parse_choice("direction", request.direction, ("both", "upstream", "downstream"))
        graph = _Graph()
        found = self.services.database.read(lambda connection: _neighbors(connection, table, direction, request.depth))
        for depth, near in found.values():
            graph.add_table(near, depth)
        for near_id in found:
            view = self.services.database.read(lambda connection, near_id=near_id: views.find(connection, near_id))  # type: ignore[misc]
            if view is not None:
                graph.add_view(near_id, Definition.from_json(view.definition))
        for _, near in found.values():
            self._add_feature_columns(graph, near)
        return graph.response()

    def _add_feature_columns(self, graph: _Graph, table: Table) -> None:
        try:
            dataset = self.services.datasets.at(table, "", None)
        except LanceNamespaceError:
            return  # only declared
        for name in feature_columns(dataset.schema):
            try:
                inputs = find_feature_column(dataset, name).inputs
            except LanceNamespaceError:
                inputs = ()  # an input or the function is missing
            graph.add_column(table.id, name, feature=True)
            for path in inputs:
                graph.link((table.id, path), (table.id, name))


class _Graph:
    """A graph of unique nodes and edges."""

    def __init__(self) -> None:
        self._tables: dict[str, LineageNode] = {}
        self._columns: dict[tuple[str, str], LineageNode] = {}
        self._edges: dict[tuple[str, str], None] = {}

    def add_table(self, table: Table, depth: int) -> None:
        """Add a table or a view."""
        name = format_identifier(table.identifier)
        kind = "view" if table.is_view else "table"
        self._tables[table.id] = LineageNode(id=name, kind=kind, name=name, depth=depth)

    def add_view(self, view_id: str, definition: Definition) -> None:
        """Add the edges of a view to its sources in the graph, and the edges of its columns."""
        for source in definition.sources:
            if source.table_id in self._tables:
                self._edges[self._tables[source.table_id].id, self._tables[view_id].id] = None
        for name, origins in column_origins(definition).items():
            self.add_column(view_id, name)
            for origin in origins:
                self.link(origin, (view_id, name))

    def add_column(self, table_id: str, name: str, *, feature: bool = False) -> LineageNode:
        """Add a column of a table in the graph."""
        table = self._tables[table_id]
        kind = "feature_column" if feature else "column"
        node = LineageNode(id=f"{table.id}:{name}", kind=kind, name=name, table=table.id, depth=table.depth)
        if feature or (table_id, name) not in self._columns:
            self._columns[table_id, name] = node
        return node

    def link(self, origin: tuple[str, str], target: tuple[str, str]) -> None:
        """Add the edge from a column to one that is computed from it."""
        if origin[0] in self._tables and target[0] in self._tables:
            self._edges[self.add_column(*origin).id, self.add_column(*target).id] = None

    def response(self) -> DescribeLineageResponse:
        """Return the graph as a response."""
        return DescribeLineageResponse(
            nodes=[*self._tables.values(), *self._columns.values()],
            edges=[LineageEdge(source=source, target=target) for source, target in self._edges],
        )


def _neighbors(connection: Connection, table: Table, direction: str, depth: int) -> dict[str, tuple[int, Table]]:
    """Return the tables around one that the caller may see, by id, each with its distance."""
    principal = current_caller().principal
    found = {table.id: (0, table)}
    steps = [step for name, step in (("upstream", -1), ("downstream", 1)) if direction in ("both", name)]
    for step in steps:
        frontier = [table.id]
        for distance in range(1, depth + 1):
            near = [other for table_id in frontier for other in _next(connection, table_id, step)]
            candidates = [tables.find_by_id(connection, other) for other in dict.fromkeys(near) if other not in found]
            visible = [
                other for other in candidates if other is not None and principal.role_on(other.namespace) is not None
            ]
            found |= {other.id: (step * distance, other) for other in visible}
            frontier = [other.id for other in visible]
    return found


def _next(connection: Connection, table_id: str, step: int) -> list[str]:
    if step > 0:
        return [dependent.view_id for dependent in views.dependents(connection, table_id)]
    view = views.find(connection, table_id)
    return [] if view is None else [source["table_id"] for source in view.definition["sources"]]
