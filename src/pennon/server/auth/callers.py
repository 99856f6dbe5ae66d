"""The caller of a request and the namespace it works in, from cached reads where they are up to date."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from lance_namespace.errors import UnauthenticatedError

from pennon.catalog import namespaces
from pennon.catalog.changes import namespace_subject
from pennon.core.identifiers import ROOT, Identifier, is_valid_name
from pennon.core.inline import NeedsThreadError, run_inline
from pennon.server.auth.authentication import Authenticator, has_credential
from pennon.server.lancedb_compat import database_named

if TYPE_CHECKING:
    from pydantic import JsonValue

    from pennon.catalog import Database
    from pennon.core.caller import Principal
    from pennon.server.http.exchange import Exchange

Result = TypeVar("Result")


class _InThread(Protocol):
    def __call__(self, work: Callable[[], Result]) -> Awaitable[Result]: ...


class Callers:
    """Authenticates the callers of requests; its methods run on the event loop."""

    def __init__(self, database: Database, in_thread: _InThread, *, insecure: bool) -> None:
        self._database = database
        self._in_thread = in_thread
        self._authenticator = Authenticator(database, insecure=insecure)

    async def refresh(self) -> bool:
        """Bring cached reads up to date with all writes before this call; false if they must not be used."""
        fresh = self._database.refresh()
        return fresh if isinstance(fresh, bool) else await fresh

    async def authenticate(self, exchange: Exchange, body: Mapping[str, JsonValue]) -> Principal:
        """Return the caller of a request, or raise the reason why it is refused."""
        work = partial(self._authenticator.authenticate, exchange, body)
        return await self._read(work, is_fresh=await self.refresh())

    async def by_headers(self, exchange: Exchange, *, is_fresh: bool) -> Principal | None:
        """Return the caller by the headers alone; None if they have no credential, which may be in the body."""
        try:
            return await self._read(partial(self._authenticator.authenticate, exchange, {}), is_fresh=is_fresh)
        except UnauthenticatedError:
            if has_credential(exchange):
                raise
            return None

    async def database_of(self, exchange: Exchange, principal: Principal, *, is_fresh: bool) -> Identifier:
        """Return the namespace that a client works in: a database of LanceDB's client is a root namespace.

        An unknown database stands for the root, so that ``db://anything`` finds the root's tables.
        """
        name = database_named(exchange)
        if name is None or not is_valid_name(name) or not principal.may_traverse((name,)):
            return ROOT  # what is no name must not get into the cache
        namespace = (name,)
        find = partial(self._database.cached_read, namespace_subject(namespace), namespaces.exists, namespace)
        return namespace if await self._read(find, is_fresh=is_fresh) else ROOT

    async def _read(self, work: Callable[[], Result], *, is_fresh: bool) -> Result:
        """Read from the cache, or from the catalog on a thread."""
        if is_fresh:
            with suppress(NeedsThreadError):
                return run_inline(work)
        return await self._in_thread(work)
