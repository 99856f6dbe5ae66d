"""Authentication by API keys; while no key is configured, anyone on loopback is an administrator.

Other kinds of authentication would be added here: they return a ``Principal`` with its grants.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from lance_namespace.errors import PermissionDeniedError, UnauthenticatedError

from pennon.catalog import keys
from pennon.catalog.changes import KEYS, key_subject
from pennon.core.caller import ANONYMOUS_ADMIN, Principal

if TYPE_CHECKING:
    from pydantic import JsonValue

    from pennon.catalog import Database
    from pennon.server.http.exchange import Exchange

#: No host name is longer, with its port.
_MAX_HOST_CHARACTERS = 300


class Authenticator:
    """Authenticates callers by their keys."""

    def __init__(self, database: Database, *, insecure: bool) -> None:
        self._database = database
        self._insecure = insecure

    def authenticate(self, exchange: Exchange, body: Mapping[str, JsonValue]) -> Principal:
        """Return the caller of a request, or raise the reason why it is refused."""
        secret = _credential(exchange, body)
        key = self._find(secret) if secret else None
        required = key is not None or self._database.cached_read(KEYS, keys.any_configured)
        if not required:
            if not self._insecure:
                _check_origin(exchange)
            return ANONYMOUS_ADMIN
        if secret is None:
            raise UnauthenticatedError("This server needs an API key; send it as x-api-key or as a bearer token.")
        if key is None:
            raise UnauthenticatedError("The API key is unknown, revoked or expired.")
        return key.principal

    def _find(self, secret: str) -> keys.Key | None:
        """Return the active key with a secret; a cached key may have expired since it was read."""
        digest = keys.digest_of(secret)
        try:
            key = self._database.cached_read(key_subject(digest), keys.find, digest)
        except keys.KeyNotFoundError:
            return None
        return key if key.is_active else None


def has_credential(exchange: Exchange) -> bool:
    """Tell whether the headers of a request have a key."""
    return _credential(exchange, {}) is not None


def _credential(exchange: Exchange, body: Mapping[str, JsonValue]) -> str | None:
    """Return the key of a request; headers take precedence over the body."""
    headers = exchange.headers
    if headers.get("x-api-key"):
        return headers["x-api-key"]
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token:
        return token.strip()
    identity = body.get("identity")
    if isinstance(identity, dict):
        key = identity.get("api_key") or identity.get("auth_token")
        return key if isinstance(key, str) and key else None
    return None


def _check_origin(exchange: Exchange) -> None:
    """Keep web pages of other origins from using a server without keys through the browsers of their visitors."""
    host = exchange.headers.get("host", "")
    origin = exchange.headers.get("origin")
    if origin is not None and _split_url(origin).netloc != host:
        raise PermissionDeniedError("Requests from other origins are refused while no API key is configured.")
    if host and (len(host) > _MAX_HOST_CHARACTERS or not _is_own_name(host)):
        raise PermissionDeniedError(
            "Use localhost or an IP address to reach this server while no API key is configured."
        )


def _split_url(url: str) -> SplitResult:
    """Return the parts of a URL; those of an invalid one are empty."""
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")


@lru_cache(maxsize=256)
def _is_own_name(host: str) -> bool:
    hostname = _split_url(f"//{host}").hostname or ""
    if hostname == "localhost" or hostname.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(hostname)
    except ValueError:
        return False
    return True
