"""Committing operations on several tables in one transaction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lance_namespace import (
    BatchCommitTablesRequest,
    BatchCommitTablesResponse,
    BatchDeleteTableVersionsRequest,
    BatchDeleteTableVersionsResponse,
    CommitTableOperation,
    CommitTableResult,
    CreateTableVersionRequest,
    CreateTableVersionResponse,
    DeclareTableRequest,
    DeclareTableResponse,
    DeregisterTableRequest,
    DeregisterTableResponse,
)
from lance_namespace.errors import InvalidInputError, TableNotFoundError

from pennon.catalog import StillReferencedError
from pennon.catalog.versions import Version
from pennon.commits.authority import OvertakenError
from pennon.core.identifiers import common_namespace
from pennon.namespace.operations import missing_namespace, record_transaction, request_as, table_id
from pennon.namespace.tables import TableOperations
from pennon.namespace.versions import VersionOperations, proposal_of

if TYPE_CHECKING:
    from pennon.catalog import Connection
    from pennon.catalog.tables import Table
    from pennon.core.identifiers import Identifier


@dataclass(frozen=True)
class _Step:
    """One operation of a batch: what it does in the transaction, and what follows once that is durable."""

    identifier: Identifier
    apply: Callable[[Connection, str], object]
    finish: Callable[[object], CommitTableResult]
    #: The table that is forgotten, where that is what it does.
    leaving: Table | None = None


class BatchOperations(TableOperations, VersionOperations):
    """Commit a batch of table operations: all of them, or none."""

    def batch_commit_tables(self, request: BatchCommitTablesRequest) -> BatchCommitTablesResponse:
        """Check every operation, apply all in one transaction, then do what storage needs."""
        request = request_as(BatchCommitTablesRequest, request)
        if not request.operations:
            raise InvalidInputError("The batch is empty.")
        try:
            return self._commit_batch(request)
        except OvertakenError:
            # Planned again, each version of it either is the one that was recorded meanwhile, or has lost.
            return self._commit_batch(request)

    def _commit_batch(self, request: BatchCommitTablesRequest) -> BatchCommitTablesResponse:
        deletions = [one.delete_table_versions for one in request.operations if one.delete_table_versions is not None]
        if not deletions:
            return self._commit_planned(request)
        with self.services.writer.turn(*(self._table(table_id(one)) for one in deletions)):  # nobody names what goes
            return self._commit_planned(request)

    def _commit_planned(self, request: BatchCommitTablesRequest) -> BatchCommitTablesResponse:
        steps = [self._plan(operation) for operation in request.operations]
        common = common_namespace([step.identifier for step in steps])

        def work(connection: Connection) -> tuple[str, list[object]]:
            transaction_id = record_transaction(connection, "BatchCommitTables", common)
            return transaction_id, [self._apply(step, connection, transaction_id) for step in steps]

        with self.marked_deregistered([step.leaving for step in steps if step.leaving is not None]):
            transaction_id, applied = self._write(work)
        results = [step.finish(result) for step, result in zip(steps, applied, strict=True)]
        return BatchCommitTablesResponse(transaction_id=transaction_id, results=results)

    def _apply(self, step: _Step, connection: Connection, transaction_id: str) -> object:
        try:
            return step.apply(connection, transaction_id)
        except StillReferencedError:
            raise missing_namespace(step.identifier[:-1]) from None

    def _plan(self, operation: CommitTableOperation) -> _Step:
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

    def _plan_declare(self, request: DeclareTableRequest) -> _Step:
        table = self.plan_table(table_id(request), request.location, request.properties)
        response = DeclareTableResponse(
            location=table.location,
            storage_options=self.services.storage_root.client_options(vend=request.vend_credentials),
            properties=table.properties,
            managed_versioning=table.managed,
        )

        def finish(result: object) -> CommitTableResult:
            response.transaction_id = str(result)
            return CommitTableResult(declare_table=response)

        return _Step(table.identifier, lambda connection, _: self.declare_planned(connection, table), finish)

    def _plan_version(self, request: CreateTableVersionRequest) -> _Step:
        table = self._table(table_id(request))
        if not table.managed:
            raise InvalidInputError("A table that Pennon does not manage cannot be committed in a batch.")
        staged = self.services.authority.stage(table, proposal_of(request), by_client=True)

        def apply(connection: Connection, transaction_id: str) -> Version:
            if isinstance(staged, Version):
                return staged
            try:
                return self.services.authority.record(connection, staged, transaction_id)
            except StillReferencedError:
                raise TableNotFoundError("A table of the batch was dropped.") from None

        def finish(result: object) -> CommitTableResult:
            assert isinstance(result, Version)  # noqa: S101 (apply returned it)
            version = result if isinstance(staged, Version) else self.services.authority.publish(staged, result)
            response = CreateTableVersionResponse(
                transaction_id=version.transaction_id, version=self.version_model(table, version)
            )
            return CommitTableResult(create_table_version=response)

        return _Step(table.identifier, apply, finish)

    def _plan_delete(self, request: BatchDeleteTableVersionsRequest) -> _Step:
        table, branch, doomed = self.plan_deletion(request)
        if not table.managed:
            raise InvalidInputError("Versions of a table that Pennon does not manage cannot be deleted in a batch.")

        def finish(result: object) -> CommitTableResult:
            self.delete_manifests(table, doomed)
            response = BatchDeleteTableVersionsResponse(deleted_count=len(doomed), transaction_id=str(result))
            return CommitTableResult(delete_table_versions=response)

        return _Step(table.identifier, lambda c, _: self.delete_records(c, table, branch, doomed), finish)

    def _plan_deregister(self, request: DeregisterTableRequest) -> _Step:
        table = self._table(table_id(request))

        def finish(result: object) -> CommitTableResult:
            response = DeregisterTableResponse(
                transaction_id=str(result),
                id=list(table.identifier),
                location=table.location,
                properties=table.properties,
            )
            return CommitTableResult(deregister_table=response)

        return _Step(table.identifier, lambda connection, _: self.forget(connection, table), finish, table)
