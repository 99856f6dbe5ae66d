"""Which columns of a view's table the view computes itself; the others were added to it."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp, parse_one

from pennon.columns.feature_columns import feature_columns
from pennon.views.model.definition import Definition
from pennon.views.model.schemas import HIDDEN


def own_columns(definition: Definition, schema: pa.Schema) -> frozenset[str]:
    """Return the names of the columns of a view's table that a refresh writes."""
    found = {column.name for column in definition.columns}
    found |= {name for function in definition.functions for name, _ in function.outputs}
    if definition.expansion is not None:
        found |= set(definition.expansion.outputs)
    if definition.sql is not None:
        parsed = parse_one(definition.sql, dialect="spark")
        named = set(parsed.named_selects) if isinstance(parsed, exp.Query) else {"*"}
        # What a star stands for is not told again: all but what functions fill, which a query never makes.
        found |= set(schema.names) - set(feature_columns(schema)) if "*" in named else named
    return frozenset(found | set(HIDDEN))
