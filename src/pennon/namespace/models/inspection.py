"""Requests and answers about what a table is made of, beyond the specification."""

from __future__ import annotations

from typing import Annotated, Any

from lance_namespace_urllib3_client.models import Identity
from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr

_Version = Annotated[StrictInt, Field(ge=1, lt=2**63)]


class CallerRequest(BaseModel):
    """A question about the one who asks."""

    identity: Identity | None = None
    context: dict[str, StrictStr] | None = None


class CallerGrant(BaseModel):
    """A role within a namespace and all below it; the root is the empty list."""

    namespace: list[str]
    role: str


class DescribeCallerResponse(BaseModel):
    """Who the server takes the caller for, and what it may do."""

    name: str
    #: False while the server has no keys and lets everyone on this machine in.
    recognised_by_key: bool
    grants: list[CallerGrant]
    server_version: str


class _TableRequest(CallerRequest):
    id: list[str] | None = None
    branch: StrictStr | None = None


class DiffTableVersionsRequest(_TableRequest):
    """Which two versions to compare."""

    model_config = ConfigDict(populate_by_name=True)

    from_version: _Version = Field(alias="from")
    to_version: _Version = Field(alias="to")


class DiffTableVersionsResponse(BaseModel):
    """What one version has that another has not."""

    model_config = ConfigDict(populate_by_name=True)

    from_version: int = Field(alias="from")
    to_version: int = Field(alias="to")
    rows_before: int
    rows_after: int
    #: Whether rows could be told apart; where they could not, why.
    exact: bool
    reason: str | None = None
    rows_added: int | None = None
    rows_removed: int | None = None
    rows_updated: int | None = None
    added_columns: list[dict[str, Any]]
    removed_columns: list[dict[str, Any]]
    changed_columns: list[dict[str, Any]]
    added_indexes: list[str]
    removed_indexes: list[str]


class ListTableFragmentsRequest(_TableRequest):
    """Which table's fragments to list, and at which version."""

    version: _Version | None = None
    limit: Annotated[StrictInt, Field(ge=1)] | None = None
    page_token: StrictStr | None = None


class TableFragment(BaseModel):
    """A fragment: rows that are stored together."""

    id: int
    rows: int
    deleted_rows: int
    files: int
    bytes: int


class ListTableFragmentsResponse(BaseModel):
    """A page of fragments, by their ids."""

    version: int
    fragments: list[TableFragment]
    page_token: str | None = None


class DescribeColumnFunctionRequest(_TableRequest):
    """Which column's function to describe."""

    column: StrictStr


class FunctionDescription(BaseModel):
    """A function, read without loading it: what it is given, what it makes, and the text it was written as."""

    columns: list[str]
    inputs: list[str]
    name: str
    version: str
    digest: str
    kind: str
    stateful: bool | None = None
    python: str | None = None
    packages: dict[str, str] = Field(default_factory=dict)
    options: dict[str, Any] = Field(default_factory=dict)
    source: str | None = None


class DescribeColumnFunctionResponse(FunctionDescription):
    """What fills a column: a function, or an expression."""

    column: str
    expression: str | None = None
    auto_backfill: bool = False


class DescribeViewFunctionsRequest(CallerRequest):
    """Which view's functions to describe."""

    id: list[str] | None = None


class DescribeViewFunctionsResponse(BaseModel):
    """The functions that make columns of a view, or its rows; none where the query does all."""

    functions: list[FunctionDescription]
