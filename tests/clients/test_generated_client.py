"""The client generated from the specification (``lance_namespace_urllib3_client``) parses every answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import lance_namespace as ln
import pytest
from lance_namespace_urllib3_client import ApiClient, Configuration
from lance_namespace_urllib3_client.api.namespace_api import NamespaceApi
from lance_namespace_urllib3_client.api.table_api import TableApi
from lance_namespace_urllib3_client.api.transaction_api import TransactionApi
from lance_namespace_urllib3_client.exceptions import ApiException, BadRequestException, NotFoundException
from lance_namespace_urllib3_client.models import (
    AlterTransactionAction,
    AlterTransactionSetProperty,
    AlterTransactionSetStatus,
    CreateTableVersionEntry,
    ErrorResponse,
    VersionRange,
)

from pennon.server.operations.table import OPERATIONS
from tests.clients.lakes import ClientTable, rows
from tests.clients.staging import Stager


@dataclass(frozen=True)
class Apis:
    """The parts of the generated client, and a table at version 2 to use them on."""

    namespaces: NamespaceApi
    tables: TableApi
    transactions: TransactionApi
    table: ClientTable

    @property
    def space(self) -> str:
        return self.table.id[0]

    @property
    def id(self) -> str:
        return "$".join(self.table.id)

    def transaction(self) -> str:
        declared = self.tables.declare_table(f"{self.space}$declared", ln.DeclareTableRequest())
        assert declared.transaction_id is not None
        return declared.transaction_id


@pytest.fixture
def apis(table: ClientTable) -> Iterator[Apis]:
    table.write(rows(10), "create")
    table.write(rows(10, 20))
    with ApiClient(Configuration(host=table.lake.url)) as api:
        yield Apis(NamespaceApi(api), TableApi(api), TransactionApi(api), table)


def create_namespace(apis: Apis) -> None:
    request = ln.CreateNamespaceRequest(properties={"a": "b"})
    assert apis.namespaces.create_namespace(f"{apis.space}$child", request).properties == {"a": "b"}


def list_namespaces(apis: Apis) -> None:
    create_namespace(apis)
    assert apis.namespaces.list_namespaces(apis.space, limit=1).namespaces == ["child"]
    assert apis.space in apis.namespaces.list_namespaces("$").namespaces
    assert apis.namespaces.list_namespaces(apis.space, delimiter=".").namespaces == ["child"]


def describe_namespace(apis: Apis) -> None:
    create_namespace(apis)
    described = apis.namespaces.describe_namespace(f"{apis.space}.child", ln.DescribeNamespaceRequest(), delimiter=".")
    assert described.properties == {"a": "b"}


def drop_namespace(apis: Apis) -> None:
    create_namespace(apis)
    dropped = apis.namespaces.drop_namespace(f"{apis.space}$child", ln.DropNamespaceRequest())
    assert dropped.properties == {"a": "b"}
    assert dropped.transaction_id
    assert len(dropped.transaction_id) == 1


def namespace_exists(apis: Apis) -> None:
    apis.namespaces.namespace_exists(apis.space, ln.NamespaceExistsRequest())


def list_tables(apis: Apis) -> None:
    assert apis.namespaces.list_tables(apis.space, include_declared=True).tables == ["table"]


def list_all_tables(apis: Apis) -> None:
    assert f"{apis.space}.table" in apis.tables.list_all_tables(delimiter=".").tables


def register_table(apis: Apis) -> None:
    location = apis.table.location
    apis.tables.deregister_table(apis.id, ln.DeregisterTableRequest())
    registered = apis.tables.register_table(f"{apis.space}$again", ln.RegisterTableRequest(location=location))
    assert registered.location == location


def describe_table(apis: Apis) -> None:
    described = apis.tables.describe_table(apis.id, ln.DescribeTableRequest(), load_detailed_metadata=True)
    assert (described.version, described.managed_versioning) == (2, True)
    assert described.var_schema is not None
    assert [field.type.type for field in described.var_schema.fields] == ["int64", "string", "fixed_size_list"]


def table_exists(apis: Apis) -> None:
    apis.tables.table_exists(apis.id, ln.TableExistsRequest(version=2))


def drop_table(apis: Apis) -> None:
    assert apis.tables.drop_table(apis.id).id == apis.table.id


def deregister_table(apis: Apis) -> None:
    assert apis.tables.deregister_table(apis.id, ln.DeregisterTableRequest()).id == apis.table.id


def rename_table(apis: Apis) -> None:
    request = ln.RenameTableRequest(new_table_name="renamed")
    assert apis.tables.rename_table(apis.id, request).transaction_id


def declare_table(apis: Apis) -> None:
    declared = apis.tables.declare_table(f"{apis.space}$new", ln.DeclareTableRequest(properties={"a": "b"}))
    assert (declared.managed_versioning, declared.properties) == (True, {"a": "b"})


def list_table_versions(apis: Apis) -> None:
    first = apis.tables.list_table_versions(apis.id, limit=1, descending=True)
    assert [version.version for version in first.versions] == [2]
    second = apis.tables.list_table_versions(apis.id, limit=1, descending=True, page_token=first.page_token)
    assert [version.version for version in second.versions] == [1]


def create_table_version(apis: Apis) -> None:
    staged = Stager(apis.table.lake, apis.table.location).append(rows(20, 30))
    request = ln.CreateTableVersionRequest.model_validate({**staged.request(apis.table.id), "metadata": {"by": "hand"}})
    created = apis.tables.create_table_version(apis.id, request)
    assert created.version is not None
    assert (created.version.version, created.version.metadata) == (3, {"by": "hand"})
    apis.table.check(version=3, ids=range(30))


def describe_table_version(apis: Apis) -> None:
    described = apis.tables.describe_table_version(apis.id, ln.DescribeTableVersionRequest(version=1))
    assert described.version.version == 1
    assert described.version.manifest_size is not None
    assert described.version.timestamp_millis is not None


def batch_delete_table_versions(apis: Apis) -> None:
    request = ln.BatchDeleteTableVersionsRequest(ranges=[VersionRange(start_version=1, end_version=2)])
    assert apis.tables.batch_delete_table_versions(apis.id, request).deleted_count == 1
    apis.table.check(version=2, ids=range(20))


def batch_create_table_versions(apis: Apis) -> None:
    other = ClientTable(apis.table.lake, apis.table.client, apis.space, "other")
    other.write(rows(5), "create")
    staged = [(each, Stager(each.lake, each.location).append(rows(100, 105))) for each in (apis.table, other)]
    entries = [CreateTableVersionEntry.model_validate(stage.request(each.id)) for each, stage in staged]
    created = apis.tables.batch_create_table_versions(ln.BatchCreateTableVersionsRequest(entries=entries))
    assert [version.version for version in created.versions] == [3, 2]
    apis.table.check(version=3, ids=[*range(20), *range(100, 105)])
    other.check(version=2, ids=[*range(5), *range(100, 105)])


def batch_commit_tables(apis: Apis) -> None:
    staged = Stager(apis.table.lake, apis.table.location).append(rows(20, 30))
    version = ln.CreateTableVersionRequest.model_validate(staged.request(apis.table.id))
    ranges = [VersionRange(start_version=1, end_version=2)]
    operations = [
        ln.CommitTableOperation(declare_table=ln.DeclareTableRequest(id=[apis.space, "new"])),
        ln.CommitTableOperation(create_table_version=version),
        ln.CommitTableOperation(
            delete_table_versions=ln.BatchDeleteTableVersionsRequest(id=apis.table.id, ranges=ranges)
        ),
    ]
    committed = apis.tables.batch_commit_tables(ln.BatchCommitTablesRequest(operations=operations))
    assert committed.transaction_id
    declared, created, deleted = committed.results
    assert declared.declare_table is not None
    assert created.create_table_version is not None
    assert deleted.delete_table_versions is not None
    assert deleted.delete_table_versions.deleted_count == 1
    apis.table.check(version=3, ids=range(30))
    gone = ln.CommitTableOperation(deregister_table=ln.DeregisterTableRequest(id=[apis.space, "new"]))
    apis.tables.batch_commit_tables(ln.BatchCommitTablesRequest(operations=[gone]))
    assert apis.namespaces.list_tables(apis.space).tables == ["table"]


def describe_transaction(apis: Apis) -> None:
    described = apis.transactions.describe_transaction(apis.transaction(), ln.DescribeTransactionRequest())
    assert described.status == "Succeeded"
    assert described.properties is not None
    assert described.properties["operation"] == "DeclareTable"


def alter_transaction(apis: Apis) -> None:
    transaction = apis.transaction()
    note = AlterTransactionAction(setPropertyAction=AlterTransactionSetProperty(key="note", value="seen"))
    altered = apis.transactions.alter_transaction(transaction, ln.AlterTransactionRequest(actions=[note]))
    assert altered.properties is not None
    assert altered.properties["note"] == "seen"
    cancel = AlterTransactionAction(setStatusAction=AlterTransactionSetStatus(status="Canceled"))
    with pytest.raises(ApiException) as refused:
        apis.transactions.alter_transaction(transaction, ln.AlterTransactionRequest(actions=[cancel]))
    assert code_of(refused.value) == ln.ErrorCode.INVALID_TABLE_STATE


CALLS: dict[str, Callable[[Apis], None]] = {
    "CreateNamespace": create_namespace,
    "ListNamespaces": list_namespaces,
    "DescribeNamespace": describe_namespace,
    "DropNamespace": drop_namespace,
    "NamespaceExists": namespace_exists,
    "ListTables": list_tables,
    "ListAllTables": list_all_tables,
    "RegisterTable": register_table,
    "DescribeTable": describe_table,
    "TableExists": table_exists,
    "DropTable": drop_table,
    "DeregisterTable": deregister_table,
    "RenameTable": rename_table,
    "DeclareTable": declare_table,
    "ListTableVersions": list_table_versions,
    "CreateTableVersion": create_table_version,
    "DescribeTableVersion": describe_table_version,
    "BatchDeleteTableVersions": batch_delete_table_versions,
    "BatchCreateTableVersions": batch_create_table_versions,
    "BatchCommitTables": batch_commit_tables,
    "DescribeTransaction": describe_transaction,
    "AlterTransaction": alter_transaction,
}


def code_of(error: ApiException) -> int:
    """Return the code of an error whose body is the specification's."""
    parsed = ErrorResponse.model_validate(json.loads(str(error.body)))
    assert parsed.error
    assert parsed.detail
    return int(parsed.code)


@pytest.mark.parametrize("operation", CALLS)
def test_an_operation_is_called_and_its_answer_parsed(apis: Apis, operation: str) -> None:
    assert operation in {row.id for row in OPERATIONS}
    CALLS[operation](apis)


def test_errors_have_the_specifications_body_and_status(apis: Apis) -> None:
    def missing_table() -> Any:
        return apis.tables.describe_table(f"{apis.space}$missing", ln.DescribeTableRequest())

    def missing_namespace() -> Any:
        return apis.namespaces.describe_namespace(f"{apis.space}$missing", ln.DescribeNamespaceRequest())

    def taken() -> Any:
        return apis.tables.declare_table(apis.id, ln.DeclareTableRequest())

    def wrong() -> Any:
        return apis.namespaces.create_namespace("a$$b", ln.CreateNamespaceRequest())

    expected: list[tuple[Callable[[], Any], type[ApiException], int, ln.ErrorCode]] = [
        (missing_table, NotFoundException, 404, ln.ErrorCode.TABLE_NOT_FOUND),
        (missing_namespace, NotFoundException, 404, ln.ErrorCode.NAMESPACE_NOT_FOUND),
        (taken, ApiException, 409, ln.ErrorCode.TABLE_ALREADY_EXISTS),
        (wrong, BadRequestException, 400, ln.ErrorCode.INVALID_INPUT),
    ]
    for call, kind, status, code in expected:
        with pytest.raises(kind) as caught:
            call()
        assert (caught.value.status, code_of(caught.value)) == (status, code)
