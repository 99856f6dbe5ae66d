"""The parsed query of a view, before its tables are resolved."""

from __future__ import annotations

from dataclasses import dataclass, field

from pennon.core.identifiers import Identifier
from pennon.views.model.definition import Column


@dataclass(frozen=True)
class TableUse:
    """A table in a query, and its version: a number, a tag, or none for the newest."""

    name: Identifier
    version: int | str | None = None

    def __str__(self) -> str:
        return ".".join(self.name)


@dataclass(frozen=True)
class QueryFunction:
    """A function that computes columns of a view from columns of its source."""

    content: bytes = field(repr=False)
    inputs: tuple[str, ...]
    #: The columns of the view, each with its field in the result; the field is empty for the whole result.
    outputs: tuple[tuple[str, str], ...]
    manifest: str | None = None
    #: Whether only geneva can load it.
    is_foreign: bool = False


@dataclass(frozen=True)
class StructuredQuery:
    """A query on one table with expressions in Lance's SQL."""

    source: TableUse
    #: None means all columns of the source.
    columns: tuple[Column, ...] | None = None
    where: str | None = None
    limit: int | None = None
    offset: int | None = None
    functions: tuple[QueryFunction, ...] = ()
