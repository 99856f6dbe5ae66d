"""Operations on maintenance policies: what applies to a table or a namespace, and where each value is set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lance_namespace.errors import InvalidInputError, PermissionDeniedError

from pennon.catalog import maintenance_state, namespaces, tables
from pennon.core.caller import current_caller
from pennon.core.clock import now_millis
from pennon.core.identifiers import Identifier, format_identifier
from pennon.maintenance.policy import PREFIX, MaintenancePolicy, check_values, own_values, resolve_policy, to_properties
from pennon.namespace.models.maintenance import (
    AlterMaintenancePolicyRequest,
    AlterMaintenancePolicyResponse,
    DescribeMaintenancePolicyRequest,
    DescribeMaintenancePolicyResponse,
    PolicyValue,
)
from pennon.namespace.requests import namespace_id, request_as, table_id
from pennon.namespace.resolver import TableResolver, missing_namespace, missing_table
from pennon.namespace.transaction_records import record_transaction
from pennon.services import Services

if TYPE_CHECKING:
    from pennon.catalog import Connection
    from pennon.catalog.properties import Properties
    from pennon.catalog.tables import Table
    from pennon.core.caller import Principal
    from pennon.core.settings import Settings


@dataclass(frozen=True)
class _Level:
    """A table or a namespace that may set values of a policy."""

    identifier: Identifier
    properties: Mapping[str, str]
    is_table: bool = False


@dataclass(frozen=True)
class MaintenancePolicyOperations:
    """Describe and alter the maintenance policies of tables and namespaces."""

    services: Services
    resolver: TableResolver

    def describe_maintenance_policy(
        self, request: DescribeMaintenancePolicyRequest
    ) -> DescribeMaintenancePolicyResponse:
        """Describe the effective policy of a table."""
        request = request_as(DescribeMaintenancePolicyRequest, request)
        table = self.resolver.table(table_id(request))
        levels = self.services.database.read(lambda connection: _table_levels(connection, table))
        return DescribeMaintenancePolicyResponse(policy=self._describe(levels))

    def alter_maintenance_policy(self, request: AlterMaintenancePolicyRequest) -> AlterMaintenancePolicyResponse:
        """Set values of a table's policy, or reset them to the inherited ones."""
        request = request_as(AlterMaintenancePolicyRequest, request)
        changes = _check_changes(request)
        table = self.resolver.table(table_id(request))

        def work(connection: Connection) -> tuple[list[_Level], str]:
            current = tables.find_by_id(connection, table.id) if tables.lock(connection, table.id) else None
            if current is None:
                raise missing_table(connection, table.identifier)
            altered = replace(current, properties=_merge(current.properties, changes))
            tables.set_properties(connection, table.id, altered.properties)
            maintenance_state.wake(connection, table.id, now_millis())
            transaction_id = record_transaction(connection, "AlterMaintenancePolicy", altered.identifier)
            return _table_levels(connection, altered), transaction_id

        levels, transaction_id = self.services.database.write(work)
        return AlterMaintenancePolicyResponse(policy=self._describe(levels), transaction_id=transaction_id)

    def describe_namespace_maintenance_policy(
        self, request: DescribeMaintenancePolicyRequest
    ) -> DescribeMaintenancePolicyResponse:
        """Describe the policy that tables in a namespace inherit."""
        namespace = namespace_id(request_as(DescribeMaintenancePolicyRequest, request))
        principal = current_caller().principal
        if principal.role_on(namespace) is None:
            name = format_identifier(namespace)
            raise PermissionDeniedError(f"The key {principal.name!r} is only granted namespaces below {name!r}.")
        levels = self.services.database.read(lambda connection: _namespace_levels(connection, namespace))
        return DescribeMaintenancePolicyResponse(policy=self._describe(levels))

    def alter_namespace_maintenance_policy(
        self, request: AlterMaintenancePolicyRequest
    ) -> AlterMaintenancePolicyResponse:
        """Set values of the policy that tables in a namespace inherit, or reset them to the inherited ones."""
        request = request_as(AlterMaintenancePolicyRequest, request)
        changes = _check_changes(request)
        namespace = namespace_id(request)

        def work(connection: Connection) -> tuple[list[_Level], str]:
            if not namespaces.lock(connection, namespace):
                raise missing_namespace(namespace, connection)
            own = namespaces.find_properties(connection, namespace) or {}
            namespaces.set_properties(connection, namespace, _merge(own, changes))
            maintenance_state.wake_below(connection, namespace, now_millis())
            transaction_id = record_transaction(connection, "AlterNamespaceMaintenancePolicy", namespace)
            return _namespace_levels(connection, namespace), transaction_id

        levels, transaction_id = self.services.database.write(work)
        return AlterMaintenancePolicyResponse(policy=self._describe(levels), transaction_id=transaction_id)

    def effective_policy(self, table: Table) -> MaintenancePolicy:
        """Return the policy that applies to a table."""
        levels = self.services.database.read(lambda connection: _table_levels(connection, table))
        return resolve_policy(self.services.settings, [level.properties for level in levels])

    def _describe(self, levels: list[_Level]) -> dict[str, PolicyValue]:
        settings, principal = self.services.settings, current_caller().principal
        return {field: _describe_field(settings, levels, field, principal) for field in MaintenancePolicy.model_fields}


def _describe_field(settings: Settings, levels: list[_Level], field: str, principal: Principal) -> PolicyValue:
    properties = [level.properties for level in levels]
    value = getattr(resolve_policy(settings, properties), field)
    inherited = getattr(resolve_policy(settings, properties[:-1]), field)
    origin = next((level for level in reversed(levels) if field in own_values(level.properties)), None)
    if origin is None:
        return PolicyValue(value=value, level="server", inherited=inherited)
    if origin.is_table:
        return PolicyValue(value=value, level="table", inherited=inherited)
    visible = principal.role_on(origin.identifier) is not None
    name = format_identifier(origin.identifier) if visible else None
    return PolicyValue(value=value, level="namespace", namespace=name, inherited=inherited)


def _table_levels(connection: Connection, table: Table) -> list[_Level]:
    """Return what may set values of a table's policy: its namespaces, outermost first, and the table."""
    return [*_namespace_levels(connection, table.namespace), _Level(table.identifier, table.properties, is_table=True)]


def _namespace_levels(connection: Connection, namespace: Identifier) -> list[_Level]:
    above = [namespace[:depth] for depth in range(len(namespace) + 1)]
    found = [(part, namespaces.find_properties(connection, part)) for part in above]
    if found[-1][1] is None:
        raise missing_namespace(namespace, connection)
    return [_Level(part, properties or {}) for part, properties in found]


def _check_changes(request: AlterMaintenancePolicyRequest) -> dict[str, str | None]:
    """Return the properties to set or, by None, to remove; raise an error that names an unknown or invalid field."""
    if not request.policy:
        raise InvalidInputError("policy is empty; name at least one field to set, or to reset with null.")
    known = MaintenancePolicy.model_fields
    given = {name: value for name, value in request.policy.items() if value is not None or name not in known}
    stored = to_properties(check_values(given))
    return {PREFIX + name: stored.get(PREFIX + name) for name in request.policy}


def _merge(properties: Mapping[str, str], changes: Mapping[str, str | None]) -> Properties:
    merged = {**properties, **changes}
    return {name: value for name, value in merged.items() if value is not None}
