"""Requests and answers about what is computed from what."""

from __future__ import annotations

from typing import Annotated

from lance_namespace_urllib3_client.models import Identity
from pydantic import BaseModel, Field, StrictInt, StrictStr


class DescribeLineageRequest(BaseModel):
    """From which table to look, in which direction, and how far."""

    identity: Identity | None = None
    context: dict[str, StrictStr] | None = None
    id: list[str] | None = None
    direction: StrictStr | None = Field(None, description="both, upstream or downstream.")
    depth: Annotated[StrictInt, Field(ge=1, le=20)] = Field(5, description="How many tables away to look.")


class LineageNode(BaseModel):
    """A table, a view, or a column of one."""

    #: Within this answer: a column's is that of its table, a colon and its name.
    id: str
    #: table, view, column or feature_column.
    kind: str
    name: str
    #: Of a column, the id of its table's node.
    table: str | None = None
    #: How many tables away it is: below zero upstream, above zero downstream.
    depth: int = 0


class LineageEdge(BaseModel):
    """Something that something else is computed from; both are ids of nodes."""

    source: str
    target: str


class DescribeLineageResponse(BaseModel):
    """What a table is computed from, and what is computed from it."""

    nodes: list[LineageNode]
    edges: list[LineageEdge]
