"""Maintenance policies: what keeps a table fast, with values from the server, its namespaces and the table itself.

A namespace or a table sets a value by a property named ``pennon.maintenance.<field>``. The table's own value wins, then
that of the nearest namespace, then the server's setting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

from lance_namespace.errors import InvalidInputError
from pydantic import BaseModel, ConfigDict, ValidationError

from pennon.catalog import namespaces
from pennon.core.errors import suggest
from pennon.core.quiet_hours import QuietHours
from pennon.core.settings import Settings

if TYPE_CHECKING:
    from pennon.catalog import Connection
    from pennon.catalog.tables import Table

PREFIX = "pennon.maintenance."


def _field(name: str) -> Any:
    """Return the bounds, the default and the description of a field: those of the server's setting."""
    return copy(Settings.model_fields[f"maintenance_{name}"])


class MaintenancePolicy(BaseModel):
    """The effective policy of a table."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    enabled: bool = _field("enabled")
    target_fragment_bytes: int = _field("target_fragment_bytes")
    target_fragment_rows: int = _field("target_fragment_rows")
    max_small_fragments: int = _field("max_small_fragments")
    max_deleted_share: float = _field("max_deleted_share")
    max_unindexed_rows: int = _field("max_unindexed_rows")
    max_unindexed_seconds: float = _field("max_unindexed_seconds")
    max_index_segments: int = _field("max_index_segments")
    min_version_seconds: float = _field("min_version_seconds")
    max_version_seconds: float = _field("max_version_seconds")
    max_versions: int = _field("max_versions")
    snapshot_seconds: float = _field("snapshot_seconds")
    min_file_seconds: float = _field("min_file_seconds")
    quiet_hours: QuietHours = _field("quiet_hours")
    max_bytes_per_second: int = _field("max_bytes_per_second")


def resolve_policy(settings: Settings, properties: Sequence[Mapping[str, str]]) -> MaintenancePolicy:
    """Return the effective policy; ``properties`` are those of the namespaces, outermost first, and of the table.

    Values that are invalid are ignored here: they were stored by another release, or as plain properties.
    """
    values: dict[str, object] = {
        name: getattr(settings, f"maintenance_{name}") for name in MaintenancePolicy.model_fields
    }
    for level in properties:
        values |= own_values(level)
    return MaintenancePolicy.model_validate(values)


def policy_of(connection: Connection, settings: Settings, table: Table) -> MaintenancePolicy:
    """Return the effective policy of a table."""
    levels = [table.namespace[:depth] for depth in range(len(table.namespace) + 1)]
    found = [namespaces.find_properties(connection, level) or {} for level in levels]
    return resolve_policy(settings, [*found, table.properties])


def own_values(properties: Mapping[str, str]) -> dict[str, object]:
    """Return the valid fields of a policy that a namespace or a table sets itself."""
    found: dict[str, object] = {}
    for name, text in properties.items():
        field = name.removeprefix(PREFIX)
        if field == name or field not in MaintenancePolicy.model_fields:
            continue
        try:
            found[field] = getattr(MaintenancePolicy.model_validate({field: text}), field)
        except ValidationError:
            continue
    return found


def check_values(values: Mapping[str, object]) -> dict[str, object]:
    """Return fields of a policy in their types; raises ``InvalidInputError`` for unknown fields and invalid values."""
    try:
        checked = MaintenancePolicy.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            known = list(MaintenancePolicy.model_fields)
            raise InvalidInputError(f"A maintenance policy has no field {name!r}.{suggest(name, known)}") from error
        raise InvalidInputError(f"The field {name!r} of the maintenance policy is invalid: {first['msg']}.") from error
    return {name: getattr(checked, name) for name in values}


def check_properties(properties: Mapping[str, str] | None) -> None:
    """Refuse properties of a table or a namespace that set an unknown field of a policy, or an invalid value."""
    named = {name.removeprefix(PREFIX): text for name, text in (properties or {}).items() if name.startswith(PREFIX)}
    check_values(named)


def to_properties(values: Mapping[str, object]) -> dict[str, str]:
    """Return the properties that set fields of a policy."""
    return {
        PREFIX + name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in values.items()
    }
