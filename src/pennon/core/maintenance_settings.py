"""Settings of maintenance: the server's values of every field of a maintenance policy, and what it may use."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import BaseSettings

from pennon.core.quiet_hours import QuietHours

#: Bounds of values that a caller may set for a table: beyond them, sums with times would not fit into the catalog.
_MOST_SECONDS, _MOST = 10**9, 2**50


class MaintenanceSettings(BaseSettings):
    """The settings of maintenance; namespaces and tables can have other values of the policy's fields."""

    maintenance_enabled: bool = Field(True, description="Run maintenance of tables automatically.")
    maintenance_target_fragment_bytes: int = Field(
        256 * 1024 * 1024,
        ge=1024,
        le=_MOST,
        description="Size of a compacted fragment; one of half that size is left alone.",
    )
    maintenance_target_fragment_rows: int = Field(
        1024 * 1024, ge=1, le=_MOST, description="Maximum number of rows in a compacted fragment."
    )
    maintenance_max_small_fragments: int = Field(
        8, ge=2, le=_MOST, description="Number of fragments of about the same small size that are merged."
    )
    maintenance_max_deleted_share: float = Field(
        0.2, gt=0, le=1, description="Share of deleted rows above which a fragment is rewritten."
    )
    maintenance_max_unindexed_rows: int = Field(
        1000, ge=1, le=_MOST, description="Number of rows outside an index that are added to it."
    )
    maintenance_max_unindexed_seconds: float = Field(
        60, gt=0, le=_MOST_SECONDS, description="Time after which rows outside an index are added to it, however few."
    )
    maintenance_max_index_segments: int = Field(
        4, ge=1, le=_MOST, description="Number of segments of an index above which they are merged."
    )
    maintenance_min_version_seconds: float = Field(
        60, ge=0, le=_MOST_SECONDS, description="Time for which a version is kept after it was replaced by a newer one."
    )
    maintenance_max_version_seconds: float = Field(
        7 * 24 * 3600,
        gt=0,
        le=_MOST_SECONDS,
        description="Time after which a version that was replaced is removed, unless something needs it.",
    )
    maintenance_max_versions: int = Field(
        100,
        ge=1,
        le=_MOST,
        description="Number of versions above which the oldest are removed, unless something needs them.",
    )
    maintenance_snapshot_seconds: float = Field(
        3600,
        ge=0,
        le=_MOST_SECONDS,
        description="Keep the last version of each period of this length, also above the number of versions, until it "
        "reaches their maximum age; 0 keeps none.",
    )
    maintenance_min_file_seconds: float = Field(
        600,
        ge=0,
        le=_MOST_SECONDS,
        description="Time for which the files of a removed version are kept, for readers that have it open.",
    )
    maintenance_quiet_hours: QuietHours = Field(
        "", description="Daily period in UTC in which no maintenance starts automatically, such as 08:00-18:30."
    )
    maintenance_max_bytes_per_second: int = Field(
        0, ge=0, le=_MOST, description="Maximum rate of rewriting data; 0 means no limit."
    )
    maintenance_slots: int = Field(
        1, ge=0, le=64, description="Maximum number of concurrent maintenance jobs per worker; 0 runs none."
    )
    maintenance_spark_bytes: int = Field(
        1024**3, ge=0, description="Data above which a compaction runs on Spark instead of in the worker."
    )
