"""Requests and responses about callers, versions, fragments and functions, which the specification does not have."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr

from pennon.namespace.models.requests import BranchRequest, ObjectRequest, Request

_Version = Annotated[StrictInt, Field(ge=1, lt=2**63)]


class CallerRequest(Request):
    """A request for a description of the caller."""


class CallerGrant(BaseModel):
    """A role in a namespace and all below it; the root is the empty list."""

    namespace: list[str]
    role: str


class DescribeCallerResponse(BaseModel):
    """The name of the caller, and its grants."""

    name: str
    #: Whether the caller sent a valid key. False if the server has no keys and accepts all local callers.
    authenticated: bool
    grants: list[CallerGrant]
    server_version: str


class DiffTableVersionsRequest(BranchRequest):
    """A request to compare two versions of a branch."""

    model_config = ConfigDict(populate_by_name=True)

    from_version: _Version = Field(alias="from")
    to_version: _Version = Field(alias="to")


class DiffTableVersionsResponse(BaseModel):
    """The differences between two versions."""

    model_config = ConfigDict(populate_by_name=True)

    from_version: int = Field(alias="from")
    to_version: int = Field(alias="to")
    rows_before: int
    rows_after: int
    #: Whether the changed rows are known; if not, the reason says why.
    exact: bool
    reason: str | None = None
    rows_added: int | None = None
    rows_removed: int | None = None
    rows_updated: int | None = None
    added_columns: list[dict[str, object]]
    removed_columns: list[dict[str, object]]
    changed_columns: list[dict[str, object]]
    added_indexes: list[str]
    removed_indexes: list[str]


class ListTableFragmentsRequest(BranchRequest):
    """A request for the fragments of a version of a table."""

    version: _Version | None = None
    limit: Annotated[StrictInt, Field(ge=1)] | None = None
    page_token: StrictStr | None = None


class TableFragment(BaseModel):
    """A fragment of a table."""

    id: int
    rows: int
    deleted_rows: int
    files: int
    bytes: int


class ListTableFragmentsResponse(BaseModel):
    """A page of fragments, ordered by id."""

    version: int
    fragments: list[TableFragment]
    page_token: str | None = None


class DescribeColumnFunctionRequest(BranchRequest):
    """A request for the function of a feature column."""

    column: StrictStr


class FunctionDescription(BaseModel):
    """A function: its inputs, the columns it computes, its environment and its source code."""

    columns: list[str]
    inputs: list[str]
    name: str
    version: str
    digest: str
    kind: str
    stateful: bool | None = None
    python: str | None = None
    packages: dict[str, str] = Field(default_factory=dict)
    options: dict[str, object] = Field(default_factory=dict)
    source: str | None = None


class DescribeColumnFunctionResponse(FunctionDescription):
    """The function or expression of a feature column."""

    column: str
    expression: str | None = None
    auto_backfill: bool = False


class DescribeViewFunctionsRequest(ObjectRequest):
    """A request for the functions of a view."""


class DescribeViewFunctionsResponse(BaseModel):
    """The functions that compute columns or rows of a view; empty if its query calls none."""

    functions: list[FunctionDescription]
