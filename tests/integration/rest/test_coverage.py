"""Every operation of the specification is offered or said not to be, and every one that is offered is tried here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pennon.server.operations.table import OPERATIONS, UNSUPPORTED
from tests.integration.rest.samples import SAMPLES, WITHOUT_SAMPLE

if TYPE_CHECKING:
    from tests.integration.rest.wire import Wire

SPECIFICATION = """
AlterTableAddColumns AlterTableAlterColumns AlterTableBackfillColumns AlterTableDropColumns AlterTransaction
AnalyzeTableQueryPlan BatchCommitTables BatchCreateTableVersions BatchDeleteTableVersions CountTableRows
CreateMaterializedView CreateNamespace CreateTable CreateTableBranch CreateTableIndex CreateTableScalarIndex
CreateTableTag CreateTableVersion DeclareTable DeleteFromTable DeleteTableBranch DeleteTableTag DeregisterTable
DescribeNamespace DescribeTable DescribeTableIndexStats DescribeTableVersion DescribeTransaction DropNamespace
DropTable DropTableIndex ExplainTableQueryPlan GetTableStats GetTableTagVersion InsertIntoTable ListAllTables
ListNamespaces ListTableBranches ListTableIndices ListTables ListTableTags ListTableVersions MergeInsertIntoTable
NamespaceExists QueryTable RefreshMaterializedView RegisterTable RenameTable RestoreTable TableExists
UpdateFieldMetadata UpdateTable UpdateTableSchemaMetadata UpdateTableTag
""".split()  # noqa: SIM905 (it is far shorter than a list)
OLDER = ["CreateEmptyTable"]


def test_the_specification_is_complete() -> None:
    assert len(set(SPECIFICATION)) == 54


def test_every_operation_of_the_specification_is_offered_or_said_not_to_be() -> None:
    offered = {row.id for row in OPERATIONS}
    assert {*SPECIFICATION, *OLDER} <= offered | set(UNSUPPORTED)
    assert not offered & set(UNSUPPORTED)


def test_every_operation_that_is_offered_is_tried_here() -> None:
    assert {row.id for row in OPERATIONS} == set(SAMPLES) | WITHOUT_SAMPLE


@pytest.mark.parametrize("operation", UNSUPPORTED)
def test_unsupported_operations_have_a_typed_error(wire: Wire, operation: str) -> None:
    method, path = UNSUPPORTED[operation]
    path = path.replace("{id}", "t").replace("{index_name}", "i")
    for spelling in (path, f"{path}/", f"{path}?delimiter=%24"):
        answer = wire.send(method, spelling, b"" if method == "POST" else None)
        assert answer.outcome == (406, 0)
        assert operation in answer.json["error"]
