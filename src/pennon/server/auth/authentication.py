"""Who calls: API keys, or anyone on loopback while no key is configured.

This is the seam for other ways to sign in: whatever recognises a caller returns a ``Principal`` with its grants.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

from lance_namespace.errors import PermissionDeniedError, UnauthenticatedError

from pennon.catalog import keys
from pennon.core.caller import ANONYMOUS_ADMIN, Principal

if TYPE_CHECKING:
    from pennon.catalog import Database
    from pennon.server.http.exchange import Exchange


#: No name of a host is longer, with its port.
_LONGEST_HOST = 300


class Authenticator:
    """Recognises callers by their keys."""

    def __init__(self, database: Database, *, insecure: bool) -> None:
        self._database = database
        self._insecure = insecure

    def recognise(self, exchange: Exchange, body: Mapping[str, Any]) -> Principal:
        """Return who calls, or raise why nobody may."""
        secret = _credential(exchange, body)
        key = self._database.read(lambda connection: keys.find(connection, secret)) if secret else None
        required = key is not None or self._database.cached_read(keys.any_configured)
        if not required:
            if not self._insecure:
                _refuse_strangers(exchange)
            return ANONYMOUS_ADMIN
        if secret is None:
            raise UnauthenticatedError("This server needs an API key; send it as x-api-key or as a bearer token.")
        if key is None:
            raise UnauthenticatedError("The API key is not known, was revoked or has expired.")
        return key.principal


def has_credential(exchange: Exchange) -> bool:
    """Tell whether the headers of a request name a key."""
    return _credential(exchange, {}) is not None


def _credential(exchange: Exchange, body: Mapping[str, Any]) -> str | None:
    """Return the key of a request; headers win over what the body states."""
    headers = exchange.headers
    if headers.get("x-api-key"):
        return headers["x-api-key"]
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token:
        return token.strip()
    identity = body.get("identity")
    if isinstance(identity, dict):
        stated = identity.get("api_key") or identity.get("auth_token")
        return stated if isinstance(stated, str) and stated else None
    return None


def _refuse_strangers(exchange: Exchange) -> None:
    """Keep web pages from using a server without keys through their visitor's browser."""
    host = exchange.headers.get("host", "")
    origin = exchange.headers.get("origin")
    if origin is not None and _parts_of(origin).netloc != host:
        raise PermissionDeniedError("Requests from other web sites are refused while no API key is configured.")
    if host and (len(host) > _LONGEST_HOST or not _is_own_name(host)):
        raise PermissionDeniedError("Address this server as localhost or by its IP while no API key is configured.")


def _parts_of(address: str) -> SplitResult:
    """Return the parts of an address; of one that cannot be read, none."""
    try:
        return urlsplit(address)
    except ValueError:
        return urlsplit("")


@lru_cache(maxsize=256)
def _is_own_name(host: str) -> bool:
    hostname = _parts_of(f"//{host}").hostname or ""
    if hostname == "localhost" or hostname.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(hostname)
    except ValueError:
        return False
    return True
