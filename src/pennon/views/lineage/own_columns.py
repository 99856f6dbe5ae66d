"""The columns in the table of a view that a refresh writes; all others were added later."""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp, parse_one

from pennon.columns.feature_columns import feature_columns
from pennon.views.model.definition import Definition
from pennon.views.model.schemas import HIDDEN


def own_columns(definition: Definition, schema: pa.Schema) -> frozenset[str]:
    """Return the names of the columns that a refresh of a view writes."""
    found = {column.name for column in definition.columns}
    found |= {name for function in definition.functions for name, _ in function.outputs}
    if definition.expansion is not None:
        found |= set(definition.expansion.outputs)
    if definition.sql is not None:
        parsed = parse_one(definition.sql, dialect="spark")
        named = set(parsed.named_selects) if isinstance(parsed, exp.Query) else {"*"}
        # The columns of a star are not resolved again: a query can return all but feature columns.
        found |= set(schema.names) - set(feature_columns(schema)) if "*" in named else named
    return frozenset(found | set(HIDDEN))
