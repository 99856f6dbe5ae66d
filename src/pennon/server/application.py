"""The ASGI application: finds the operation, recognises the caller, runs the namespace's method, answers."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial

from lance_namespace.errors import UnsupportedOperationError

from pennon import __version__
from pennon.catalog import jobs
from pennon.catalog.schema import latest_version, schema_version
from pennon.namespace import PennonNamespace
from pennon.server.console import console_pages
from pennon.server.dispatch import Handler
from pennon.server.error_responses import answer_error, as_known, status_for
from pennon.server.http.exchange import Exchange, Receive, Scope, Send
from pennon.server.http.routing import Match, Router
from pennon.server.metrics import MEDIA_TYPE, Metrics, jobs_text
from pennon.server.operations.model import Operation
from pennon.server.operations.openapi import build_document
from pennon.server.operations.table import OPERATIONS, UNSUPPORTED

logger = logging.getLogger("pennon.server")

Page = Callable[[Exchange], Awaitable[None]]
_CHORES_SECONDS = 60.0


class Application:
    """Pennon over HTTP."""

    def __init__(self, namespace: PennonNamespace) -> None:
        self._namespace = namespace
        self._services = namespace.services
        #: How long a client is waited for that stops in the middle of a request, or of reading its answer.
        self.stall_seconds = namespace.services.settings.stall_seconds
        self._handler = Handler(namespace)
        self._metrics = Metrics()
        self._router: Router[Operation | str | Page] = Router()
        self._add_routes()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the life of the process."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._serve(Exchange(scope, receive, send))

    def begin_request(self) -> None:
        """Take note that bytes of a request came in: from now on nothing older than it may be answered."""
        self._services.database.invalidate()

    def notice_end(self) -> None:
        """Take note that the server is to stop: streams without an end of their own get one."""
        self._handler.end_feeds()

    def _add_routes(self) -> None:
        for row in OPERATIONS:
            self._router.add(row.method, row.path, row)
        for operation_id, (method, path) in UNSUPPORTED.items():
            self._router.add(method, path, operation_id)
        pages: dict[str, Page] = {
            "/healthz": self._answer_health,
            "/readyz": self._answer_readiness,
            "/openapi.json": self._answer_openapi,
            "/metrics": self._answer_metrics,
            **console_pages(),
        }
        for path, page in pages.items():
            self._router.add("GET", path, page)
            self._router.add("HEAD", path, page)

    async def _live(self, receive: Receive, send: Send) -> None:
        chores = asyncio.create_task(self._do_chores())
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                chores.cancel()
                self._handler.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _do_chores(self) -> None:
        while True:
            try:
                await self._handler.in_thread(self._namespace.tidy)
            except Exception:
                logger.exception("the chores failed; they are tried again in a minute")
            await asyncio.sleep(_CHORES_SECONDS)

    async def _serve(self, exchange: Exchange) -> None:
        started = time.perf_counter()
        self._metrics.in_flight.inc()
        name, status = "unknown", 500
        try:
            match = self._router.find(exchange.raw_path)
            target = match.targets.get(exchange.method) if match else None
            if isinstance(target, Operation):
                name = target.id
            elif target is not None:
                name = target if isinstance(target, str) else "page"
            status = await self._dispatch(exchange, match, target)
        except Exception as error:
            known = as_known(error, exchange)
            status = status_for(known, name, exchange)
            if exchange.started:
                raise  # the head of the answer is out; all that can be told is that the rest will not come
            await answer_error(exchange, known, status)
            known.__traceback__ = None  # else the request stays in memory, in a cycle with this frame
            del known
        finally:
            self._metrics.in_flight.dec()
            self._metrics.observe(name, status, time.perf_counter() - started)

    async def _dispatch(
        self, exchange: Exchange, match: Match[Operation | str | Page] | None, target: Operation | str | Page | None
    ) -> int:
        if isinstance(target, Operation):
            assert match is not None  # noqa: S101 (a target comes with its match)
            return await self._handler.handle(target, exchange, match.values)
        if isinstance(target, str):
            raise UnsupportedOperationError(f"{target} is not offered by this version of Pennon.")
        if target is not None:
            await target(exchange)
            return exchange.status
        if match is not None:
            allowed = ", ".join(sorted(match.targets))
            error = UnsupportedOperationError(f"Use {allowed} for this path.")
            await answer_error(exchange, error, 405, ((b"allow", allowed.encode()),))
            return 405
        await answer_error(exchange, UnsupportedOperationError("There is nothing at this path."), 404)
        return 404

    async def _answer_health(self, exchange: Exchange) -> None:
        await exchange.answer(200, json.dumps({"status": "ok", "version": __version__}).encode())

    async def _answer_readiness(self, exchange: Exchange) -> None:
        version = await self._handler.in_thread(partial(schema_version, self._services.database))
        ready = version == latest_version()
        body = {"status": "ready" if ready else "not ready", "schema_version": version}
        await exchange.answer(200 if ready else 503, json.dumps(body).encode())

    async def _answer_openapi(self, exchange: Exchange) -> None:
        await exchange.answer(200, json.dumps(build_document()).encode())

    async def _answer_metrics(self, exchange: Exchange) -> None:
        counts = await self._handler.in_thread(partial(self._services.database.read, jobs.counts))
        await exchange.answer(200, self._metrics.text() + jobs_text(counts), MEDIA_TYPE)
