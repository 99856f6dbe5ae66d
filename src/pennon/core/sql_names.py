"""Names in SQL: the one place that quotes them, for DataFusion and Spark alike."""

from __future__ import annotations


def quote_name(name: str) -> str:
    """Return a column or table name in backticks, with the backticks inside it doubled."""
    return "`" + name.replace("`", "``") + "`"
