"""A request on its way through the handler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pennon.core.caller import Principal
    from pennon.server.http.exchange import Exchange
    from pennon.server.idempotency import Fingerprint
    from pennon.server.lancedb_compat import Remote
    from pennon.server.operations.model import Operation


@dataclass
class Request:
    """A request on its way through the handler."""

    operation: Operation
    exchange: Exchange
    remote: Remote
    principal: Principal
    raw: bytes
    stated: dict[str, Any]
    arrow: bool
    #: Whether to handle its body on threads alone.
    is_large: bool = False
    fingerprint: Fingerprint | None = None
    mark_effect: Callable[..., None] | None = None
    #: Tells whether the answer still holds, where that can be told.
    holds: Callable[[], bool] | None = None
