"""Batches: operations on several tables that commit in one transaction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import lance_namespace as ln
from lance_namespace.errors import InvalidInputError, TableNotFoundError

from pennon.catalog import ForeignKeyError
from pennon.catalog.versions import Version
from pennon.commits.authority import VersionConflictError
from pennon.core.identifiers import common_namespace
from pennon.namespace.new_tables import NewTables
from pennon.namespace.requests import request_as, table_id
from pennon.namespace.resolver import TableResolver, missing_namespace
from pennon.namespace.tables import TableOperations
from pennon.namespace.transaction_records import record_transaction
from pennon.namespace.versions import VersionOperations, proposal_of
from pennon.services import Services

if TYPE_CHECKING:
    from pennon.catalog import Connection
    from pennon.catalog.tables import Table
    from pennon.core.identifiers import Identifier


@dataclass(frozen=True)
class _Step:
    """One operation of a batch: its part of the transaction, and what to do after the commit."""

    identifier: Identifier
    apply: Callable[[Connection, str], object]
    finish: Callable[[object], ln.CommitTableResult]
    #: The table that the operation deregisters, if it does.
    deregistered: Table | None = None


@dataclass(frozen=True)
class BatchOperations:
    """Commit a batch of operations: all of them, or none."""

    services: Services
    resolver: TableResolver
    tables: TableOperations
    new_tables: NewTables
    versions: VersionOperations

    def batch_commit_tables(self, request: ln.BatchCommitTablesRequest) -> ln.BatchCommitTablesResponse:
        """Check every operation, apply all in one transaction, then update storage."""
        request = request_as(ln.BatchCommitTablesRequest, request)
        if not request.operations:
            raise InvalidInputError("The batch is empty.")
        try:
            return self._commit_batch(request)
        except VersionConflictError:
            # On the second plan, each version is either the one recorded meanwhile, or it lost the race.
            return self._commit_batch(request)

    def _commit_batch(self, request: ln.BatchCommitTablesRequest) -> ln.BatchCommitTablesResponse:
        deletions = [
            each.delete_table_versions for each in request.operations if each.delete_table_versions is not None
        ]
        if not deletions:
            return self._commit_planned(request)
        tables = [self.resolver.table(table_id(deletion)) for deletion in deletions]
        with self.services.writer.lock(*tables):  # so that nobody tags a version that is being deleted
            return self._commit_planned(request)

    def _commit_planned(self, request: ln.BatchCommitTablesRequest) -> ln.BatchCommitTablesResponse:
        steps = [self._plan(operation) for operation in request.operations]
        common = common_namespace([step.identifier for step in steps])

        def work(connection: Connection) -> tuple[str, list[object]]:
            transaction_id = record_transaction(connection, "BatchCommitTables", common)
            return transaction_id, [self._apply(step, connection, transaction_id) for step in steps]

        with self.tables.marked_deregistered([step.deregistered for step in steps if step.deregistered is not None]):
            transaction_id, applied = self.services.database.write(work)
        results = [step.finish(result) for step, result in zip(steps, applied, strict=True)]
        return ln.BatchCommitTablesResponse(transaction_id=transaction_id, results=results)

    def _apply(self, step: _Step, connection: Connection, transaction_id: str) -> object:
        try:
            return step.apply(connection, transaction_id)
        except ForeignKeyError:
            raise missing_namespace(step.identifier[:-1]) from None

    def _plan(self, operation: ln.CommitTableOperation) -> _Step:
        planners: list[tuple[object, Callable[..., _Step]]] = [
            (operation.declare_table, self._plan_declare),
            (operation.create_table_version, self._plan_version),
            (operation.delete_table_versions, self._plan_delete),
            (operation.deregister_table, self._plan_deregister),
        ]
        given = [(part, plan) for part, plan in planners if part is not None]
        if len(given) != 1:
            raise InvalidInputError("Each operation of a batch must name exactly one of its four kinds.")
        part, plan = given[0]
        return plan(part)

    def _plan_declare(self, request: ln.DeclareTableRequest) -> _Step:
        table = self.new_tables.plan(table_id(request), request.location, request.properties)
        response = ln.DeclareTableResponse(
            location=table.location,
            storage_options=self.services.storage_root.client_options(vend=request.vend_credentials),
            properties=table.properties,
            managed_versioning=table.managed,
        )

        def finish(result: object) -> ln.CommitTableResult:
            response.transaction_id = str(result)
            return ln.CommitTableResult(declare_table=response)

        return _Step(table.identifier, lambda connection, _: self.new_tables.declare(connection, table), finish)

    def _plan_version(self, request: ln.CreateTableVersionRequest) -> _Step:
        table = self.resolver.table(table_id(request))
        if not table.managed:
            raise InvalidInputError("A table that Pennon does not manage cannot be committed in a batch.")
        staged = self.services.authority.stage(table, proposal_of(request), by_client=True)

        def apply(connection: Connection, transaction_id: str) -> Version:
            if isinstance(staged, Version):
                return staged
            try:
                return self.services.authority.record_version(connection, staged, transaction_id)
            except ForeignKeyError:
                raise TableNotFoundError("A table of the batch was dropped.") from None

        def finish(result: object) -> ln.CommitTableResult:
            assert isinstance(result, Version)  # noqa: S101 (apply returned it)
            version = result if isinstance(staged, Version) else self.services.authority.publish(staged, result)
            response = ln.CreateTableVersionResponse(
                transaction_id=version.transaction_id, version=self.versions.version_model(table, version)
            )
            return ln.CommitTableResult(create_table_version=response)

        return _Step(table.identifier, apply, finish)

    def _plan_delete(self, request: ln.BatchDeleteTableVersionsRequest) -> _Step:
        table, branch, to_delete = self.versions.plan_deletion(request)
        if not table.managed:
            raise InvalidInputError("Versions of a table that Pennon does not manage cannot be deleted in a batch.")

        def finish(result: object) -> ln.CommitTableResult:
            self.versions.delete_manifests(table, to_delete)
            response = ln.BatchDeleteTableVersionsResponse(deleted_count=len(to_delete), transaction_id=str(result))
            return ln.CommitTableResult(delete_table_versions=response)

        return _Step(table.identifier, lambda c, _: self.versions.delete_records(c, table, branch, to_delete), finish)

    def _plan_deregister(self, request: ln.DeregisterTableRequest) -> _Step:
        table = self.resolver.table(table_id(request))

        def finish(result: object) -> ln.CommitTableResult:
            response = ln.DeregisterTableResponse(
                transaction_id=str(result),
                id=list(table.identifier),
                location=table.location,
                properties=table.properties,
            )
            return ln.CommitTableResult(deregister_table=response)

        return _Step(table.identifier, lambda connection, _: self.tables.deregister(connection, table), finish, table)
