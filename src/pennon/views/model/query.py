"""What a query asks for, before its tables are looked up."""

from __future__ import annotations

from dataclasses import dataclass, field

from pennon.core.identifiers import Identifier
from pennon.views.model.definition import Column


@dataclass(frozen=True)
class TableUse:
    """A table that a query names, and the version it wants of it: a number, a tag, or none for the newest."""

    name: Identifier
    version: int | str | None = None

    def __str__(self) -> str:
        return ".".join(self.name)


@dataclass(frozen=True)
class FunctionUse:
    """A function that computes columns of a view from columns of its source."""

    content: bytes = field(repr=False)
    inputs: tuple[str, ...]
    #: The view's columns, each with the field of the result that goes there; empty when the result itself does.
    outputs: tuple[tuple[str, str], ...]
    manifest: str | None = None
    #: Whether only geneva can read it.
    is_foreign: bool = False


@dataclass(frozen=True)
class StructuredQuery:
    """A query over one table whose expressions are in Lance's SQL."""

    source: TableUse
    #: None means all columns of the source.
    columns: tuple[Column, ...] | None = None
    where: str | None = None
    limit: int | None = None
    offset: int | None = None
    functions: tuple[FunctionUse, ...] = ()
