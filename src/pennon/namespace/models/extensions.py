"""Requests and responses of operations that LanceDB's client sends and the specification does not have."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StrictBool, StrictInt, StrictStr
from pydantic.alias_generators import to_camel

from pennon.namespace.models.requests import BranchRequest, ObjectRequest

_Text = Annotated[StrictStr, Field(min_length=1)]
_Number = Annotated[StrictInt, Field(ge=0, lt=2**63)]


class CloneTableRequest(ObjectRequest):
    """The table to clone, by its location; at a version, a tag, or its latest version."""

    source_location: _Text
    source_version: _Number | None = None
    source_tag: StrictStr | None = None
    is_shallow: StrictBool | None = Field(True, description="Whether the clone references the data instead of copying.")


class CloneTableResponse(BaseModel):
    """The clone."""

    transaction_id: str
    location: str


class BeginUploadRequest(BranchRequest):
    """The branch to upload to; by default main."""


class BeginUploadResponse(BaseModel):
    """The upload that parts are added to."""

    upload_id: str


class UploadRequest(BeginUploadRequest):
    """An upload that has begun."""

    upload_id: _Text


class CompleteUploadResponse(BaseModel):
    """The version that an upload created."""

    version: int
    num_inserted_rows: int
    transaction_id: str | None = None


class EmptyResponse(BaseModel):
    """A response without fields."""

    model_config = ConfigDict(extra="forbid")


class DiffBranchRequest(ObjectRequest):
    """The branch to compare with main."""

    from_branch: _Text


class CherryPickRequest(DiffBranchRequest):
    """The branch whose changes to apply to main."""

    dry_run: StrictBool | None = Field(False, description="Whether only to report what would be applied.")


class _CamelCase(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class RowSummary(_CamelCase):
    """How the rows of a branch differ from those of main."""

    unchanged: int
    new_on_base: int
    new_on_branch: int
    stale_recompute: int
    inputs_changed: int
    delta_available: bool


class DiffBranchResponse(_CamelCase):
    """How a branch differs from main."""

    from_branch: str
    parent_version: int
    main_version: int
    branch_version: int
    row_count_main: int
    row_count_branch: int
    base_moved: bool
    mergeable: bool
    row_summary: RowSummary
    added_columns: list[dict[str, JsonValue]]
    removed_columns: list[dict[str, JsonValue]]
    changed_columns: list[dict[str, JsonValue]]
    added_indexes: list[dict[str, JsonValue]]
    removed_indexes: list[dict[str, JsonValue]]
    errors: list[dict[str, JsonValue]]
    merge_blockers: list[dict[str, JsonValue]]


class CherryPickPreview(_CamelCase):
    """The columns that a cherry-pick adds to main."""

    promoted_columns: list[str]


class CherryPickResponse(_CamelCase):
    """The outcome of a cherry-pick; LanceDB's client for Node.js calls it a merge, and knows it by other statuses."""

    status: Literal["ready", "failed", "cherryPicked", "rejected", "merged"]
    diff: DiffBranchResponse
    preview: CherryPickPreview
    main_version_after: int | None = None


class FetchBlobsRequest(ObjectRequest):
    """The rows whose blobs to read, in this order."""

    column: _Text
    row_ids: list[Annotated[StrictInt, Field(ge=0, lt=2**64)]]
    version: _Number | None = None
    branch: StrictStr | None = None


class PrewarmIndexRequest(ObjectRequest):
    """The index to load."""

    index_name: _Text


class WriteBufferResponse(BaseModel):
    """The write buffer of a table: always null, as every write is committed immediately."""

    lsm_write_spec: None
    lsm_stats: None
