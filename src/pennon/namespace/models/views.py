"""Requests and responses about materialized views, with fields of the specification, LanceDB's client and Pennon."""

from __future__ import annotations

import json
from typing import Annotated, Self

from lance_namespace import RefreshMaterializedViewRequest
from lance_namespace_urllib3_client.models import MaterializedViewUdtfEntry
from pydantic import BaseModel, Field, StrictBool, StrictInt, StrictStr, field_validator, model_validator

from pennon.namespace.models.columns import Seconds
from pennon.namespace.models.requests import ObjectRequest

_KINDS = ("query", "udtf", "chunker")
#: Fields that the specification requires of a request to create a view.
_REQUIRED = ("kind", "source_query", "output_schema")


class CreateViewRequest(ObjectRequest):
    """A request to create a view, with the specification's ``source_query`` or the ``query`` of LanceDB's client."""

    kind: StrictStr = "query"
    source_query: StrictStr | None = Field(
        default=None, description="A query as JSON of Pennon or geneva, or as Spark SQL."
    )
    query: StrictStr | None = Field(
        default=None, description="A SELECT, which LanceDB's client sends instead of source_query."
    )
    output_schema: StrictStr | None = Field(
        default=None, description="Base64 of an Arrow schema; null derives it from the query."
    )
    udtf_spec: MaterializedViewUdtfEntry | None = None
    with_no_data: StrictBool | None = True
    auto_refresh: StrictBool | None = False
    schedule: StrictStr | None = Field(default=None, description="When to refresh the view, as a cron expression.")
    on_schema_change: StrictStr | None = Field(default=None, description="fail, rebuild or ignore_new.")
    branch: StrictStr | None = Field(default=None, description="Must be main: a view reads no other branch.")

    @field_validator("branch")
    @classmethod
    def _check_branch(cls, value: str | None) -> str | None:
        if value not in (None, "", "main"):
            raise ValueError("a view reads the main branch of its sources; merge the branch, or leave this out")
        return value

    @model_validator(mode="after")
    def _require_fields(self) -> Self:
        """Require the fields of the specification, unless the request comes from LanceDB's client."""
        missing = [name for name in _REQUIRED if name not in self.model_fields_set] if self.query is None else []
        if missing:
            hint = "; send null to have it derived from the query" if missing == ["output_schema"] else ""
            raise ValueError(f"{' and '.join(map(repr, missing))} must be given{hint}")
        return self

    @field_validator("source_query", mode="before")
    @classmethod
    def _to_text(cls, value: object) -> object:
        """Accept a JSON object, too; the specification has it as text."""
        return json.dumps(value) if isinstance(value, dict) else value

    @field_validator("kind")
    @classmethod
    def _check_kind(cls, value: str) -> str:
        if value not in _KINDS:
            raise ValueError(f"it must be one of {', '.join(_KINDS)}")
        return value


class RefreshViewRequest(RefreshMaterializedViewRequest):
    """A request to refresh a view, with the fields of the specification and further ones."""

    source_version: StrictInt | None = None
    full: StrictBool = False
    dry_run: StrictBool = False
    cascade: StrictBool = False
    priority: Annotated[StrictInt, Field(ge=-1000, le=1000)] = 0
    timeout_seconds: Seconds | None = None


class RefreshPlan(BaseModel):
    """The plan of a refresh, which a dry run returns."""

    mode: str
    reason: str
    #: Rows of the source that were added, changed and removed; null if only the refresh itself can count them.
    rows_to_add: int | None = None
    rows_to_update: int | None = None
    rows_to_remove: int | None = None
    #: The number of rows that functions would be called with.
    udf_calls: int | None = None
    source_version: int
    source_versions: dict[str, int]
    #: Views that would be refreshed first.
    before: list[str] = []


class DescribeViewRequest(ObjectRequest):
    """A request for the description of a view."""


class ViewSource(BaseModel):
    """A table that a view reads: the columns, the version that the view has, and the newest version."""

    table: str
    id: list[str]
    columns: list[str]
    pinned_version: int | None = None
    version: int | None = None
    newest_version: int | None = None


class DescribeViewResponse(BaseModel):
    """The description of a view: its query, sources, state and settings."""

    id: list[str]
    name: str
    namespace: list[str]
    kind: str
    engine: str
    #: LanceDB's client reads these three: the format of the next two, the query as SQL, and the first source.
    format: int = 1
    query: str
    source_table: str
    incremental: bool
    rebuild_reason: str | None = None
    state: str
    reason: str | None = None
    version: int
    sources: list[ViewSource]
    function: dict[str, object] | None = None
    auto_refresh: bool
    schedule: str | None = None
    on_schema_change: str
    created_at_millis: int
    refreshed_at_millis: int | None = None
    refreshed_version: int | None = None
    active_job: str | None = None
    failed_job: str | None = None


class ListViewsRequest(ObjectRequest):
    """A request for the views of a namespace."""

    page_token: StrictStr | None = None
    limit: StrictInt | None = None


class ListViewsResponse(BaseModel):
    """A page of names of views, as LanceDB's client reads them."""

    views: list[str]
    page_token: str | None = None


class DropViewRequest(ObjectRequest):
    """A request to drop a view."""

    cascade: StrictBool | None = Field(default=None, description="Whether to also drop the views that read it.")


class DropViewResponse(BaseModel):
    """The transaction that dropped a view."""

    transaction_id: str | None = None


class AlterViewRequest(ObjectRequest):
    """A request to change when a view is refreshed; fields that are left out stay as they are."""

    auto_refresh: StrictBool | None = None
    schedule: StrictStr | None = Field(
        default=None, description="A cron expression; the empty string removes the schedule."
    )
    on_schema_change: StrictStr | None = None


class AlterViewResponse(BaseModel):
    """The settings of a view after the change."""

    transaction_id: str
    auto_refresh: bool
    schedule: str | None = None
    on_schema_change: str
