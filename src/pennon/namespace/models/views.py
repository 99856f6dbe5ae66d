"""Requests and answers about materialized views: the specification's, LanceDB's client's, and Pennon's own."""

from __future__ import annotations

import json
from typing import Annotated, Any, Self

from lance_namespace import RefreshMaterializedViewRequest
from lance_namespace_urllib3_client.models import Identity, MaterializedViewUdtfEntry
from pydantic import BaseModel, Field, StrictBool, StrictInt, StrictStr, field_validator, model_validator

from pennon.namespace.models.columns import Seconds

_KINDS = ("query", "udtf", "chunker")
#: Of a request for a view, by the specification.
_REQUIRED = ("kind", "source_query", "output_schema")


class _ViewRequest(BaseModel):
    identity: Identity | None = None
    context: dict[str, StrictStr] | None = None
    id: list[str] | None = None


class CreateViewRequest(_ViewRequest):
    """A view to make: by the specification's fields, by LanceDB's client's ``query``, and by Pennon's own fields."""

    kind: StrictStr = "query"
    source_query: StrictStr | None = Field(default=None, description="JSON of Pennon's or geneva's, or Spark's SQL.")
    query: StrictStr | None = Field(default=None, description="A SELECT, as LanceDB's client sends it instead.")
    output_schema: StrictStr | None = Field(
        default=None, description="Base64 of an Arrow schema; null derives it from the query."
    )
    udtf_spec: MaterializedViewUdtfEntry | None = None
    with_no_data: StrictBool | None = True
    auto_refresh: StrictBool | None = False
    schedule: StrictStr | None = Field(default=None, description="When the view is refreshed, as cron writes it.")
    on_schema_change: StrictStr | None = Field(default=None, description="fail, rebuild or ignore_new.")
    branch: StrictStr | None = Field(default=None, description="main, if given: a view reads no other branch.")

    @field_validator("branch")
    @classmethod
    def _check_branch(cls, value: str | None) -> str | None:
        if value not in (None, "", "main"):
            raise ValueError("a view reads the main branch of its sources; merge the branch, or leave this out")
        return value

    @model_validator(mode="after")
    def _require_fields(self) -> Self:
        """Require what the specification requires, unless the request is one of LanceDB's client."""
        missing = [name for name in _REQUIRED if name not in self.model_fields_set] if self.query is None else []
        if missing:
            hint = "; send null to have it derived from the query" if missing == ["output_schema"] else ""
            raise ValueError(f"{' and '.join(map(repr, missing))} must be given{hint}")
        return self

    @field_validator("source_query", mode="before")
    @classmethod
    def _write_out(cls, value: Any) -> Any:
        """Take JSON as it is, too: the specification has it as text."""
        return json.dumps(value) if isinstance(value, dict) else value

    @field_validator("kind")
    @classmethod
    def _check_kind(cls, value: str) -> str:
        if value not in _KINDS:
            raise ValueError(f"it must be one of {', '.join(_KINDS)}")
        return value


class RefreshViewRequest(RefreshMaterializedViewRequest):
    """What to refresh and how: the specification's fields, LanceDB's client's, and Pennon's own."""

    source_version: StrictInt | None = None
    full: StrictBool = False
    dry_run: StrictBool = False
    cascade: StrictBool = False
    priority: Annotated[StrictInt, Field(ge=-1000, le=1000)] = 0
    timeout_seconds: Seconds | None = None


class RefreshPlan(BaseModel):
    """What a refresh would do."""

    mode: str
    reason: str
    #: Rows of the source that came, changed and went; none where only computing the view would tell.
    rows_to_add: int | None = None
    rows_to_update: int | None = None
    rows_to_remove: int | None = None
    #: How often functions would be given a row.
    udf_calls: int | None = None
    source_version: int
    source_versions: dict[str, int]
    #: Views that would be refreshed first.
    before: list[str] = []


class DescribeViewRequest(_ViewRequest):
    """Which view to tell about."""


class ViewSource(BaseModel):
    """A table that a view reads: which columns, at which version, and how far it has come since."""

    table: str
    id: list[str]
    columns: list[str]
    pinned_version: int | None = None
    version: int | None = None
    newest_version: int | None = None


class DescribeViewResponse(BaseModel):
    """What a view is, and how fresh."""

    id: list[str]
    name: str
    namespace: list[str]
    kind: str
    engine: str
    #: For LanceDB's client: how the next two are to be read, the query as SQL, and the table it reads first.
    format: int = 1
    query: str
    source_table: str
    incremental: bool
    rebuild_reason: str | None = None
    state: str
    reason: str | None = None
    version: int
    sources: list[ViewSource]
    function: dict[str, Any] | None = None
    auto_refresh: bool
    schedule: str | None = None
    on_schema_change: str
    created_at_millis: int
    refreshed_at_millis: int | None = None
    refreshed_version: int | None = None
    active_job: str | None = None
    failed_job: str | None = None


class ListViewsRequest(_ViewRequest):
    """Whose views to list."""

    page_token: StrictStr | None = None
    limit: StrictInt | None = None


class ListViewsResponse(BaseModel):
    """The names of views, as LanceDB's client reads them."""

    views: list[str]
    page_token: str | None = None


class DropViewRequest(_ViewRequest):
    """Which view to drop."""

    cascade: StrictBool | None = Field(default=None, description="Whether the views over it are dropped, too.")


class DropViewResponse(BaseModel):
    """The transaction that dropped a view."""

    transaction_id: str | None = None


class AlterViewRequest(_ViewRequest):
    """How a view is to be kept up to date from now on; what is left out stays."""

    auto_refresh: StrictBool | None = None
    schedule: StrictStr | None = Field(default=None, description="As cron writes it; the empty text ends it.")
    on_schema_change: StrictStr | None = None


class AlterViewResponse(BaseModel):
    """How a view is kept up to date now."""

    transaction_id: str
    auto_refresh: bool
    schedule: str | None = None
    on_schema_change: str
