"""Requests that take something away, and say what is to happen to what depends on it."""

from __future__ import annotations

from lance_namespace import (
    AlterTableAlterColumnsRequest,
    AlterTableDropColumnsRequest,
    DropNamespaceRequest,
    DropTableRequest,
)
from pydantic import Field

_CASCADE = Field(None, description="Whether what depends on it goes with it, or is told that it is out of date.")


class DropTable(DropTableRequest):
    """Drop a table, and on request the views over it."""

    cascade: bool | None = _CASCADE


class DropColumns(AlterTableDropColumnsRequest):
    """Drop columns, and on request what is computed from them."""

    cascade: bool | None = _CASCADE


class AlterColumns(AlterTableAlterColumnsRequest):
    """Alter columns, also those that others are computed from if that is asked for."""

    cascade: bool | None = _CASCADE


class DropNamespace(DropNamespaceRequest):
    """Drop a namespace, and on request the views over its tables that are elsewhere."""

    cascade: bool | None = _CASCADE
