"""Operations on the maintenance of tables: their health, maintenance jobs, and why versions are kept."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, cast

from lance_namespace.errors import InvalidInputError, InvalidTableStateError

from pennon.catalog import jobs, maintenance_state, namespaces, table_health, tables, versions
from pennon.commits.history import stored_versions
from pennon.core.caller import current_caller
from pennon.core.clock import now_millis
from pennon.core.identifiers import format_identifier
from pennon.core.job_model import MAINTENANCE, MAINTENANCE_PRIORITY, MAINTENANCE_TARGET, JobKind, MaintenanceSpec
from pennon.core.paging import page_size
from pennon.maintenance import retention_reasons
from pennon.maintenance.health import Action, Due, measure
from pennon.maintenance.policy import MaintenancePolicy, check_values
from pennon.maintenance.ranking import weights_of
from pennon.maintenance.schedule import Schedule, earliest_start, plan_maintenance
from pennon.namespace.maintenance_policies import MaintenancePolicyOperations
from pennon.namespace.models.maintenance import (
    CleanupPlan,
    DescribedHealth,
    DescribeTableHealthRequest,
    DescribeTableHealthResponse,
    DescribeVersionRetentionRequest,
    DescribeVersionRetentionResponse,
    DueAction,
    HealthSummary,
    KeptVersions,
    ListTableHealthRequest,
    ListTableHealthResponse,
    MaintainTableRequest,
    MaintainTableResponse,
    MaintenancePlan,
    MaintenanceRun,
    NextMaintenance,
    TableSummary,
    VersionRange,
    VersionRetention,
)
from pennon.namespace.requests import namespace_id, parse_choice, request_as, table_id
from pennon.namespace.resolver import TableResolver, missing_namespace, missing_table, readable_scopes
from pennon.namespace.transaction_records import record_transaction
from pennon.services import Services
from pennon.storage.layout import check_branch
from pennon.tables.lance_errors import typed_errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pennon.catalog import Connection
    from pennon.catalog.jobs import Job
    from pennon.catalog.table_health import TableHealth
    from pennon.catalog.tables import Table
    from pennon.catalog.versions import Statistics, Version
    from pennon.maintenance.health import TableHealth as Measured

_KINDS = (JobKind.MAINTAIN, JobKind.COMPACT, JobKind.OPTIMIZE_INDICES, JobKind.CLEANUP)
#: Fields of a policy that say when maintenance starts automatically; a job that was asked for ignores them.
_AUTOMATIC_FIELDS = ("enabled", "quiet_hours")
_DEFAULT_TABLES = 10
#: Kinds of jobs that remove versions.
_CLEANING = (JobKind.MAINTAIN, JobKind.CLEANUP)


@dataclass(frozen=True)
class MaintenanceOperations:
    """Describe the health of tables, and maintain them."""

    services: Services
    resolver: TableResolver
    policies: MaintenancePolicyOperations

    def describe_table_health(self, request: DescribeTableHealthRequest) -> DescribeTableHealthResponse:
        """Measure the newest version of a table, and say what maintenance would do about it."""
        request = request_as(DescribeTableHealthRequest, request)
        table, branch = self.resolver.table(table_id(request)), check_branch(request.branch)
        policy = self.policies.effective_policy(table)
        health = self._measure(table, branch, policy)
        active, last = self.services.database.read(lambda connection: _runs(connection, table, branch))
        schedule, start = self._schedule(table, branch, policy)
        due = [*health.due, *(step for step in schedule.due if step.action == Action.CLEANUP)]
        if active is not None:
            following = NextMaintenance(reason=f"a job is {active.state}")
        else:
            following = self._next(table, policy, schedule, start)
        return DescribeTableHealthResponse(
            active=active, last=last, next=following, **{**asdict(health), "due": [_due(step) for step in due]}
        )

    def list_table_health(self, request: ListTableHealthRequest) -> ListTableHealthResponse:
        """List the tables of a namespace that need maintenance most, the worst first, as the catalog knows them."""
        request = request_as(ListTableHealthRequest, request)
        namespace = namespace_id(request)
        size = page_size(request.limit or _DEFAULT_TABLES, self.services.settings.page_limit)
        weights = weights_of(self.services.settings)

        def read(connection: Connection) -> list[TableHealth]:
            if not namespaces.exists(connection, namespace):
                raise missing_namespace(namespace, connection)
            scopes = readable_scopes(namespace)
            return [table for scope in scopes for table in table_health.worst(connection, scope, weights, size)]

        found = sorted(self.services.database.read(read), key=lambda table: table.score, reverse=True)
        return ListTableHealthResponse(tables=[_summary(table) for table in found[:size]])

    def maintain_table(self, request: MaintainTableRequest) -> MaintainTableResponse | MaintenancePlan:
        """Submit a maintenance job, or return the one that is active; a dry run returns its plan instead."""
        request = request_as(MaintainTableRequest, request)
        kind = JobKind(parse_choice("kind", request.kind, _KINDS))
        spec = _spec_of(request)
        table, branch = self.resolver.table(table_id(request)), check_branch(request.branch)
        if not table.managed:
            name = format_identifier(table.identifier)
            raise InvalidTableStateError(
                f"Pennon does not manage the commits of table {name!r}, so it does not maintain the table. Register it "
                "with manage_registered_tables, or maintain it with Lance."
            )
        if request.dry_run:
            return self._plan(table, branch, kind, spec)
        self.services.ownership.require_table(table)
        self.services.datasets.newest(table, branch)  # raises an error if there is no such branch or version
        return self.services.database.write(lambda connection: self._submit(connection, table, branch, kind, spec))

    def describe_version_retention(self, request: DescribeVersionRetentionRequest) -> DescribeVersionRetentionResponse:
        """Return why versions are kept."""
        request = request_as(DescribeVersionRetentionRequest, request)
        table, branch = self.resolver.table(table_id(request)), check_branch(request.branch)
        policy = self.policies.effective_policy(table)
        numbers = dict.fromkeys(request.versions)
        reasons = retention_reasons.why_kept(self.services, table, branch, numbers, policy)
        found = [VersionRetention(version=version, reasons=reasons[version]) for version in numbers]
        return DescribeVersionRetentionResponse(versions=found)

    def _measure(self, table: Table, branch: str, policy: MaintenancePolicy, *, is_requested: bool = False) -> Measured:
        """Measure the newest version, with what is due automatically, or for a user who asks for maintenance."""
        dataset = self.services.datasets.at(table, branch, None)
        known = self.services.database.read(lambda connection: maintenance_state.find(connection, table.id, branch))
        count = self._count_versions(table, branch)
        since = 0 if is_requested else known.state.unindexed_since if known is not None else None
        with typed_errors():
            return measure(
                dataset,
                branch,
                policy,
                versions=count,
                unindexed_since=since,
                is_stale=known is not None and known.has_stale_entries,
                all_small=is_requested,
            )

    def _count_versions(self, table: Table, branch: str) -> int:
        if not table.managed:
            return len(stored_versions(self.resolver.folder(table), table.id, branch))
        return self.services.database.read(lambda connection: versions.count(connection, table.id, branch))

    def _schedule(self, table: Table, branch: str, policy: MaintenancePolicy) -> tuple[Schedule, int]:
        """Return what the catalog says is due on a branch, and when it may start."""
        now = now_millis()

        def read(connection: Connection) -> tuple[Schedule, int]:
            known = maintenance_state.find(connection, table.id, branch)
            if known is None or known.statistics is None:
                return Schedule(), now
            found = plan_maintenance(connection, known, known.statistics, policy, now)
            return found, earliest_start(known.state, policy, now)

        return self.services.database.read(read)

    def _next(self, table: Table, policy: MaintenancePolicy, schedule: Schedule, start: int) -> NextMaintenance:
        """Return when maintenance may start automatically, or why it does not."""
        if not table.managed:
            return NextMaintenance(reason="never: Pennon does not manage the commits of the table")
        if not (policy.enabled and self.services.settings.maintenance_enabled):
            return NextMaintenance(reason="never: automatic maintenance is off")
        if not self.services.worker_registry.alive():
            return NextMaintenance(reason="when a worker runs; start one with `pennon worker`")
        if schedule.due:
            return NextMaintenance(at_millis=start, reason=", ".join(step.reason for step in schedule.due))
        return NextMaintenance(at_millis=schedule.next_at, reason=schedule.next_reason or "when something is due")

    def _plan(self, table: Table, branch: str, kind: JobKind, spec: MaintenanceSpec) -> MaintenancePlan:
        policy = self.policies.effective_policy(table).model_copy(update=spec.get("policy", {}))
        health = self._measure(table, branch, policy, is_requested=True)
        due = [step for step in health.due if kind in (JobKind.MAINTAIN, step.action)]
        return MaintenancePlan(
            branch=branch,
            version=health.version,
            kind=kind,
            due=[_due(step) for step in due],
            cleanup=self._plan_cleanup(table, branch, policy) if kind in _CLEANING else None,
            policy=policy.model_dump(),
        )

    def _plan_cleanup(self, table: Table, branch: str, policy: MaintenancePolicy) -> CleanupPlan:
        plan = retention_reasons.plan_cleanup(self.services, table, branch, policy)
        by_reason: dict[str, list[int]] = {}
        for version, reasons in plan.kept.items():
            by_reason.setdefault(" ".join(reasons), []).append(version)
        kept = [
            KeptVersions(reason=reason, count=len(found), versions=_ranges(found))
            for reason, found in by_reason.items()
        ]
        return CleanupPlan(
            versions_to_remove=len(plan.remove), remove=_ranges(plan.remove), kept=kept, versions_recent=plan.recent
        )

    def _submit(
        self, connection: Connection, table: Table, branch: str, kind: JobKind, spec: MaintenanceSpec
    ) -> MaintainTableResponse:
        # Locked, so that two requests at the same moment do not submit two jobs.
        if not tables.lock(connection, table.id):
            raise missing_table(connection, table.identifier)
        for job in jobs.active_on(connection, table.id):
            if (job.branch, job.kind) == (branch, kind) and _does_the_same(job, spec):
                return MaintainTableResponse(job_id=job.id, job_type=kind, state=job.state, submitted=False)
        caller = current_caller()
        job = self.services.queue.submit(
            connection,
            kind,
            table,
            spec,
            branch=branch,
            target=MAINTENANCE_TARGET,
            priority=MAINTENANCE_PRIORITY,
            submitted_by=caller.principal.name,
            context=caller.context,
        )
        transaction_id = record_transaction(connection, "MaintainTable", table.identifier)
        return MaintainTableResponse(
            job_id=job.id, job_type=kind, state=job.state, submitted=True, transaction_id=transaction_id
        )


def counted_health(statistics: Statistics | None) -> HealthSummary | None:
    """Return the health of a version from its statistics, if they are known."""
    if statistics is None:
        return None
    return HealthSummary(
        fragments=statistics.fragments,
        small_fragments=statistics.small_fragments,
        rows=statistics.rows,
        deleted_rows=statistics.deleted_rows,
        unindexed_rows=statistics.unindexed_rows,
        bytes=statistics.data_bytes,
        indices=statistics.indices,
    )


def described_health(connection: Connection, version: Version) -> DescribedHealth | None:
    """Return the health of a version with the state of its branch's maintenance, if its statistics are known."""
    counted, statistics = counted_health(version.statistics), version.statistics
    known = maintenance_state.find(connection, version.table_id, version.branch)
    if counted is None or statistics is None or known is None:
        return None
    share = statistics.deleted_rows / max(statistics.rows + statistics.deleted_rows, 1)
    return DescribedHealth(
        **counted.model_dump(),
        bytes_deleted=round(share * statistics.data_bytes),
        versions=versions.count(connection, version.table_id, version.branch),
        last_maintenance_millis=known.state.ended_at,
        next_maintenance_millis=known.state.due_at,
        due=known.state.due or None,
    )


def _summary(table: TableHealth) -> TableSummary:
    return TableSummary(
        id=list(table.object),
        branch=table.branch,
        version=table.version,
        versions=table.versions,
        health=counted_health(table.statistics),
        due_at_millis=table.due_at,
        due=table.due or None,
    )


def _spec_of(request: MaintainTableRequest) -> MaintenanceSpec:
    """Return the spec of a job, or raise the error that names an invalid value."""
    given = request.policy or {}
    for field in _AUTOMATIC_FIELDS:
        if field in given:
            raise InvalidInputError(
                f"policy.{field} is about automatic maintenance and has no effect on one job; set it for the table "
                "with AlterMaintenancePolicy."
            )
    spec = MaintenanceSpec()
    if checked := check_values(given):
        spec["policy"] = cast("dict[str, bool | int | float | str]", checked)
    if request.timeout_seconds is not None:
        spec["timeout_seconds"] = request.timeout_seconds
    return spec


def _ranges(numbers: Iterable[int]) -> list[VersionRange]:
    """Return consecutive versions as ranges."""
    found: list[VersionRange] = []
    for number in sorted(numbers):
        if found and found[-1].last == number - 1:
            found[-1].last = number
        else:
            found.append(VersionRange(first=number, last=number))
    return found


def _due(step: Due) -> DueAction:
    return DueAction(action=step.action, reason=step.reason)


def _does_the_same(job: Job, spec: MaintenanceSpec) -> bool:
    """Return whether an active job does what is asked for; an automatic one only does what is due."""
    active = job.maintenance_spec
    return not active.get("reasons") and active.get("policy") == spec.get("policy")


def _runs(connection: Connection, table: Table, branch: str) -> tuple[MaintenanceRun | None, MaintenanceRun | None]:
    """Return the active maintenance job of a branch, and the last one that has ended."""
    active = [job for job in jobs.active_on(connection, table.id) if job.branch == branch and job.kind in MAINTENANCE]
    ended = jobs.newest_ended(connection, table.id, branch, MAINTENANCE_TARGET)
    return _run(active[0]) if active else None, _run(ended) if ended else None


def _run(job: Job) -> MaintenanceRun:
    return MaintenanceRun(
        job_id=job.id,
        job_type=job.kind,
        state=job.state,
        submitted_by=job.submitted_by,
        created_at_millis=job.created_at,
        finished_at_millis=job.finished_at,
        result=None if job.result is None else dict(cast("Mapping[str, object]", job.result)),
        message=None if job.failure is None else job.failure["message"],
    )
