"""Requests that drop or alter something, with a field for what depends on it."""

from __future__ import annotations

from lance_namespace import (
    AlterTableAlterColumnsRequest,
    AlterTableDropColumnsRequest,
    DropNamespaceRequest,
    DropTableRequest,
)
from pydantic import Field

_CASCADE = Field(
    None,
    description="Whether to also drop dependents, or mark them as stale. By default, they prevent the change.",
)


class DropTable(DropTableRequest):
    """Drop a table, optionally with the views that read it."""

    cascade: bool | None = _CASCADE


class DropColumns(AlterTableDropColumnsRequest):
    """Drop columns, optionally with the feature columns and views that are computed from them."""

    cascade: bool | None = _CASCADE


class AlterColumns(AlterTableAlterColumnsRequest):
    """Alter columns, optionally also those that others are computed from."""

    cascade: bool | None = _CASCADE


class DropNamespace(DropNamespaceRequest):
    """Drop a namespace, optionally with views in other namespaces that read its tables."""

    cascade: bool | None = _CASCADE
