"""Who may do what: every operation, with every role, inside and outside of what was granted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from lance_namespace.errors import (
    LanceNamespaceError,
    NamespaceNotFoundError,
    PermissionDeniedError,
    TableNotFoundError,
)

from pennon.core.caller import ANONYMOUS_ADMIN, Grant, Principal, Role
from pennon.server.auth.authorization import authorize
from pennon.server.operations.model import Operation
from pennon.server.operations.table import OPERATIONS

#: What each operation needs, repeated here so that a change is deliberate.
READING = {
    "AnalyzeTableQueryPlan",
    "CountTableRows",
    "DescribeCaller",
    "DescribeColumnFunction",
    "DescribeColumnState",
    "DescribeJob",
    "DescribeLineage",
    "DescribeMaintenancePolicy",
    "DescribeMaterializedView",
    "DescribeNamespace",
    "DescribeNamespaceMaintenancePolicy",
    "DescribeTable",
    "DescribeTableHealth",
    "DescribeTableIndexStats",
    "DescribeTableVersion",
    "DescribeTransaction",
    "DescribeVersionRetention",
    "DescribeViewFunctions",
    "DiffBranch",
    "DiffTableVersions",
    "ExplainTableQueryPlan",
    "FetchBlobs",
    "FollowJob",
    "GetTableStats",
    "GetTableTagVersion",
    "GetWriteBuffer",
    "GetWriteBufferStats",
    "ListAllTables",
    "ListColumnErrors",
    "ListJobs",
    "ListMaterializedViews",
    "ListNamespaces",
    "ListTableBranches",
    "ListTableFragments",
    "ListTableIndices",
    "ListTableHealth",
    "ListTables",
    "ListTableTags",
    "ListTableVersions",
    "NamespaceExists",
    "PrewarmData",
    "PrewarmIndex",
    "QueryJobEvents",
    "QueryTable",
    "ReadBlob",
    "TableExists",
}
#: These filter by themselves what they answer.
FILTERED = {
    "AlterTransaction",
    "CancelJob",
    "DescribeCaller",
    "DescribeJob",
    "DescribeTransaction",
    "FollowJob",
    "ListAllTables",
    "ListJobs",
    "ListMaterializedViews",
    "ListNamespaces",
    "ListTables",
    "PauseJob",
    "QueryJobEvents",
    "ResumeJob",
    "RetryJob",
}
HOME = ("home", "inner")
ROWS = {row.id: row for row in OPERATIONS}


def request(row: Operation, identifier: tuple[str, ...]) -> Any:
    """Return a request for an operation on an object."""
    named = SimpleNamespace(id=list(identifier))
    if row.id == "BatchCreateTableVersions":
        return SimpleNamespace(entries=[named])
    if row.id == "BatchCommitTables":
        kinds = ("declare_table", "create_table_version", "delete_table_versions", "deregister_table")
        empty = dict.fromkeys(kinds)
        return SimpleNamespace(operations=[SimpleNamespace(**{**empty, kind: named}) for kind in kinds])
    return SimpleNamespace(id=named.id, new_namespace_id=None, new_table_name="renamed")


def outcome(row: Operation, principal: Principal, identifier: tuple[str, ...]) -> type[LanceNamespaceError] | None:
    try:
        authorize(row, principal, request(row, identifier))
    except LanceNamespaceError as error:
        return type(error)
    return None


@pytest.mark.parametrize("row", OPERATIONS, ids=lambda row: row.id)
class TestMatrix:
    def test_the_role_is_the_one_that_is_needed(self, row: Operation) -> None:
        assert row.permission.role == (Role.READER if row.id in READING else Role.WRITER)

    @pytest.mark.parametrize("role", Role)
    def test_inside_of_what_was_granted_the_role_decides(self, row: Operation, role: Role) -> None:
        for scope in ((), HOME[:1], HOME):
            principal = Principal("ada", (Grant(role, scope),))
            found = outcome(row, principal, (*HOME, "object"))
            allowed = role >= row.permission.role or row.id in FILTERED
            assert found is (None if allowed else PermissionDeniedError)

    @pytest.mark.parametrize("role", Role)
    def test_objects_outside_the_granted_namespace_do_not_exist(self, row: Operation, role: Role) -> None:
        principal = Principal("ada", (Grant(role, HOME),))
        hidden = NamespaceNotFoundError if row.permission.kind == "namespace" else TableNotFoundError
        for identifier in (("other",), ("other", "object"), ("home", "other"), ("homes", "inner", "object")):
            assert outcome(row, principal, identifier) is (None if row.id in FILTERED else hidden)

    @pytest.mark.parametrize("role", Role)
    def test_on_the_way_namespaces_can_be_seen_and_nothing_else(self, row: Operation, role: Role) -> None:
        principal = Principal("ada", (Grant(role, HOME),))
        for identifier in ((), HOME[:1]):
            found = outcome(row, principal, identifier)
            if row.id in FILTERED:
                assert found is None
            elif row.permission.kind == "namespace":
                assert found is (None if row.id in READING else PermissionDeniedError)
            else:
                assert found is TableNotFoundError

    def test_a_table_that_is_called_like_the_namespace_is_not_in_it(self, row: Operation) -> None:
        principal = Principal("ada", (Grant(Role.ADMIN, HOME),))
        if row.permission.kind == "table" and row.id not in FILTERED:
            assert outcome(row, principal, HOME) is TableNotFoundError

    def test_without_keys_everything_is_allowed(self, row: Operation) -> None:
        assert outcome(row, ANONYMOUS_ADMIN, ("anything", "at", "all")) is None

    def test_without_grants_everything_is_refused(self, row: Operation) -> None:
        if row.id not in FILTERED:
            assert outcome(row, Principal("nobody", ()), ("a", "b")) is not None


class TestSeveralObjects:
    writer = Principal("ada", (Grant(Role.WRITER, ("a",)), Grant(Role.READER, ("b",))))

    @pytest.mark.parametrize(
        ("namespace", "error"),
        [(None, None), (["a"], None), (["a", "c"], None), (["b"], PermissionDeniedError), (["c"], TableNotFoundError)],
    )
    def test_a_table_is_moved_only_between_places_that_may_both_be_written(
        self, namespace: list[str] | None, error: type[Exception] | None
    ) -> None:
        moved = SimpleNamespace(id=["a", "t"], new_namespace_id=namespace, new_table_name="t")
        if error is None:
            authorize(ROWS["RenameTable"], self.writer, moved)
        else:
            with pytest.raises(error):
                authorize(ROWS["RenameTable"], self.writer, moved)

    @pytest.mark.parametrize(
        ("tables", "error"),
        [
            ([["a", "t"], ["a", "u"]], None),
            ([["a", "t"], ["b", "t"]], PermissionDeniedError),
            ([["a", "t"], ["c", "t"]], TableNotFoundError),
            ([["a", "t"], ["a"]], TableNotFoundError),
        ],
    )
    def test_a_batch_needs_the_role_on_every_table(
        self, tables: list[list[str]], error: type[Exception] | None
    ) -> None:
        entries = SimpleNamespace(entries=[SimpleNamespace(id=table) for table in tables])
        if error is None:
            authorize(ROWS["BatchCreateTableVersions"], self.writer, entries)
        else:
            with pytest.raises(error):
                authorize(ROWS["BatchCreateTableVersions"], self.writer, entries)

    def test_the_error_says_who_is_what_and_what_is_needed(self) -> None:
        expected = "DropTable requires the role writer; the key 'ada' is a reader there"
        with pytest.raises(PermissionDeniedError, match=expected):
            authorize(ROWS["DropTable"], self.writer, SimpleNamespace(id=["b", "t"]))
