"""Maintenance policies: what keeps a table fast, with values from the server, its namespaces and the table itself.

A namespace or a table sets a value by a property named ``pennon.maintenance.<field>``. The table's own value wins, then
that of the nearest namespace, then the server's setting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from lance_namespace.errors import InvalidInputError
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pennon.core.errors import suggest

if TYPE_CHECKING:
    from pennon.core.settings import Settings

PREFIX = "pennon.maintenance."


class MaintenancePolicy(BaseModel):
    """The effective policy of a table."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    enabled: bool = Field(True, description="Whether maintenance runs automatically.")
    target_fragment_bytes: int = Field(
        256 * 1024 * 1024, ge=1024, description="Size of a compacted fragment; one of half that size is left alone."
    )
    target_fragment_rows: int = Field(1024 * 1024, ge=1, description="Maximum number of rows in a compacted fragment.")
    max_small_fragments: int = Field(
        8, ge=2, description="Number of fragments of about the same small size that are merged."
    )
    max_deleted_share: float = Field(
        0.2, gt=0, le=1, description="Share of deleted rows above which a fragment is rewritten."
    )
    max_unindexed_rows: int = Field(1000, ge=1, description="Number of rows outside an index that are added to it.")
    max_unindexed_seconds: float = Field(
        60, gt=0, description="Time after which rows outside an index are added to it, however few."
    )
    max_index_segments: int = Field(4, ge=1, description="Number of segments of an index above which they are merged.")
    min_version_seconds: float = Field(
        600, ge=0, description="Age up to which no version is removed, for readers that have it open."
    )
    max_version_seconds: float = Field(
        7 * 24 * 3600, gt=0, description="Age above which a version is removed, unless something needs it."
    )
    max_versions: int = Field(
        1000, ge=1, description="Number of versions above which the oldest are removed, unless something needs them."
    )
    quiet_hours: str = Field(
        "", description="Daily period in UTC in which no maintenance starts automatically, such as 08:00-18:30."
    )
    max_bytes_per_second: int = Field(0, ge=0, description="Maximum rate of rewriting data; 0 means no limit.")


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
