"""Long names in SQL, which Lance would compare with those of all columns."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest
from lance import LanceDataset
from lance_namespace.errors import TableColumnNotFoundError

from pennon.tables.query.column_names import check_long_names

LONG = "n" * 70
SPACED = f"a `{LONG}`"


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> LanceDataset:
    struct = pa.array([{LONG + "2": [{LONG + "3": 1}]}])
    rows = pa.table({"id": [1], LONG: [1], "info": struct, SPACED: [2]})
    return lance.write_dataset(rows, tmp_path_factory.mktemp("names") / "t")


@pytest.mark.parametrize(
    "sql",
    [
        "id = 1 AND other = 2",
        f"{LONG.upper()} = 1",
        f"`{LONG}` = 1",
        f"info.{LONG}2[1].{LONG}3 = 1",
        f"`a ``{LONG}``` = 2",
        f"id = '{LONG}4' OR id = \"{LONG}5\" -- {LONG}6",
        f"id = X'{'AB' * 100}' /* {LONG}7 */",
        None,
        "",
    ],
)
def test_known_and_short_names_pass(dataset: LanceDataset, sql: str | None) -> None:
    check_long_names(dataset, sql)


@pytest.mark.parametrize("sql", [f"{LONG}4 = 1", f"`{LONG} 5` = 1", f"id = 'x' AND info.{LONG}6 = 1", "z" * 5_000_000])
def test_an_unknown_long_name_is_refused(dataset: LanceDataset, sql: str) -> None:
    with pytest.raises(TableColumnNotFoundError, match="There is no column"):
        check_long_names(dataset, "id = 1", sql)
