"""Fields that all requests have, as those of the specification."""

from __future__ import annotations

from lance_namespace_urllib3_client.models import Identity
from pydantic import BaseModel, StrictStr


class Request(BaseModel):
    """A request that names no object."""

    identity: Identity | None = None
    context: dict[str, StrictStr] | None = None


class ObjectRequest(Request):
    """A request about a namespace, a table or a view."""

    id: list[str] | None = None


class BranchRequest(ObjectRequest):
    """A request about a branch of a table."""

    branch: StrictStr | None = None
