"""Requests and responses about lineage."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field, StrictInt, StrictStr

from pennon.namespace.models.requests import ObjectRequest


class DescribeLineageRequest(ObjectRequest):
    """A request for the lineage of a table in one direction or both, up to a distance."""

    direction: StrictStr | None = Field(None, description="both, upstream or downstream.")
    depth: Annotated[StrictInt, Field(ge=1, le=20)] = Field(
        5, description="The maximum distance from the table, in tables."
    )


class LineageNode(BaseModel):
    """A table, a view, or a column of one."""

    #: Unique in the response. The id of a column is the id of its table, a colon and its name.
    id: str
    #: table, view, column or feature_column.
    kind: str
    name: str
    #: For a column, the id of its table's node.
    table: str | None = None
    #: The distance in tables: negative upstream, positive downstream.
    depth: int = 0


class LineageEdge(BaseModel):
    """An edge from a node to one that is computed from it; both are ids."""

    source: str
    target: str


class DescribeLineageResponse(BaseModel):
    """The graph around a table."""

    nodes: list[LineageNode]
    edges: list[LineageEdge]
