"""Names of columns: which Lance could not read again."""

from __future__ import annotations

import pytest
from lance_namespace.errors import TableSchemaValidationError

from pennon.tables.schema_checks import check_column_names

#: What would take minutes if each name were compared with all others.
MANY = [f"column_{number}" for number in range(100_000)]


@pytest.mark.parametrize("odd", ["", "a.b", "a`b", "a\0b", "_rowid", MANY[7]])
def test_one_name_among_many_is_found(odd: str) -> None:
    check_column_names(MANY)
    with pytest.raises(TableSchemaValidationError, match=r"Invalid column name|Duplicate column name"):
        check_column_names([*MANY, odd])
