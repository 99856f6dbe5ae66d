"""The table of operations is the only module of the server that knows an operation."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from pennon import server
from pennon.namespace import PennonNamespace
from pennon.server.operations.table import OPERATIONS, UNSUPPORTED

PACKAGE = Path(server.__file__).parent
NAMES = {row.id for row in OPERATIONS} | set(UNSUPPORTED) | {row.tag for row in OPERATIONS}
OTHERS = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "operations" / "table.py")


@pytest.mark.parametrize("module", OTHERS, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_other_module_names_an_operation_a_tag_or_a_path(module: Path) -> None:
    strings = [
        node.value
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    defaults = {"Table"} if module.name == "model.py" else set()
    assert not NAMES & set(strings) - defaults
    assert not [text for text in strings if text.startswith("/v1/") and not text.endswith("``")]


def test_ids_and_routes_are_unique_and_summaries_are_sentences() -> None:
    routes = [(row.method, row.path) for row in OPERATIONS]
    assert len(set(routes)) == len(routes)
    assert len({row.id for row in OPERATIONS}) == len(OPERATIONS)
    assert all(row.summary.endswith(".") for row in OPERATIONS)


def test_operations_without_an_endpoint_of_their_own_are_methods_of_the_namespace() -> None:
    parsed = [row for row in OPERATIONS if row.endpoint.__qualname__.startswith("_call_method")]
    assert len(parsed) > 40
    for row in parsed:
        assert row.parse_first
        assert row.request is not None
        name = "".join(f"_{char.lower()}" if char.isupper() else char for char in row.id).lstrip("_")
        assert callable(getattr(PennonNamespace, name))


def test_attributes_of_a_row_agree() -> None:
    for row in OPERATIONS:
        assert not (row.parse_first and row.body != "json")
        assert not (row.catalog_only and row.data_pool)
