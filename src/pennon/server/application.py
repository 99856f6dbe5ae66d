"""The ASGI application: routes requests to operations and pages, and responds to errors."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from functools import partial
from typing import TYPE_CHECKING

from lance_namespace.errors import UnsupportedOperationError

from pennon import __version__
from pennon.catalog import jobs, maintenance_totals
from pennon.catalog.schema import latest_version, schema_version
from pennon.core.clock import now_millis
from pennon.namespace import PennonNamespace
from pennon.server.console import Page, console_pages
from pennon.server.dispatch import Dispatcher
from pennon.server.error_responses import send_error, status_for, to_protocol_error
from pennon.server.http.exchange import Exchange, Receive, Scope, Send
from pennon.server.http.routing import Match, Router
from pennon.server.lancedb_compat import STATUS_ONLY
from pennon.server.metrics import MEDIA_TYPE, Metrics, jobs_text, maintenance_text
from pennon.server.operations.model import Operation
from pennon.server.operations.openapi import build_document
from pennon.server.operations.table import OPERATIONS, UNSUPPORTED

if TYPE_CHECKING:
    from pennon.catalog import Connection

logger = logging.getLogger("pennon.server")

_MAINTENANCE_SECONDS = 60.0


class Application:
    """Pennon over HTTP."""

    def __init__(self, namespace: PennonNamespace) -> None:
        self._namespace = namespace
        self._services = namespace.services
        #: How long a client may stall while it sends a request or reads a response.
        self.stall_timeout_seconds = namespace.services.settings.stall_timeout_seconds
        self._dispatcher = Dispatcher(namespace)
        self._metrics = Metrics()
        self._router: Router[Operation | str | Page] = Router()
        self._add_routes()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the lifespan of the process."""
        if scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
        elif scope["type"] == "http":
            await self._serve(Exchange(scope, receive, send))

    def begin_shutdown(self) -> None:
        """End streams that would block a shutdown."""
        self._dispatcher.end_streams()

    def _add_routes(self) -> None:
        for row in OPERATIONS:
            self._router.add(row.method, row.path, row)
        for operation_id, (method, path) in UNSUPPORTED.items():
            self._router.add(method, path, operation_id)
        pages: dict[str, Page] = {
            "/healthz": self._health,
            "/readyz": self._readiness,
            "/openapi.json": self._openapi,
            "/metrics": self._metrics_page,
            **console_pages(),
        }
        for path, page in pages.items():
            self._router.add("GET", path, page)
            self._router.add("HEAD", path, page)

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        maintenance = asyncio.create_task(self._maintain())
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                maintenance.cancel()
                self._dispatcher.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _maintain(self) -> None:
        while True:
            try:
                await self._dispatcher.in_thread(self._namespace.maintain)
            except Exception:
                logger.exception("maintenance failed; retrying in %d s", _MAINTENANCE_SECONDS)
            await asyncio.sleep(_MAINTENANCE_SECONDS)

    async def _serve(self, exchange: Exchange) -> None:
        started = time.perf_counter()
        self._metrics.in_flight.inc()
        name, status, compatibility = "unknown", 500, STATUS_ONLY
        try:
            match = self._router.find(exchange.raw_path)
            target = match.targets.get(exchange.method) if match else None
            if isinstance(target, Operation):
                name, compatibility = target.id, target.lancedb
            elif target is not None:
                name = target if isinstance(target, str) else "page"
            status = await self._dispatch(exchange, match, target)
        except Exception as error:
            known = to_protocol_error(error, exchange)
            status = status_for(known, compatibility, exchange)
            if exchange.started:
                raise  # the headers are sent: all the server can do is to cut off the response
            await send_error(exchange, known, status)
            known.__traceback__ = None  # otherwise a cycle with this frame keeps the request in memory
            del known
        finally:
            self._metrics.in_flight.dec()
            self._metrics.observe(name, status, time.perf_counter() - started)

    async def _dispatch(
        self, exchange: Exchange, match: Match[Operation | str | Page] | None, target: Operation | str | Page | None
    ) -> int:
        if isinstance(target, Operation):
            assert match is not None  # noqa: S101 (a target has a match)
            return await self._dispatcher.dispatch(target, exchange, match.values)
        if isinstance(target, str):
            raise UnsupportedOperationError(f"{target} is not supported by this version of Pennon.")
        if target is not None:
            await target(exchange)
            return exchange.status
        if match is not None:
            allowed = ", ".join(sorted(match.targets))
            error = UnsupportedOperationError(f"Use {allowed} for this path.")
            await send_error(exchange, error, 405, ((b"allow", allowed.encode()),))
            return 405
        await send_error(exchange, UnsupportedOperationError(f"There is no operation at {exchange.path!r}."), 404)
        return 404

    async def _health(self, exchange: Exchange) -> None:
        await exchange.respond(200, json.dumps({"status": "ok", "version": __version__}).encode())

    async def _readiness(self, exchange: Exchange) -> None:
        version = await self._dispatcher.in_thread(partial(schema_version, self._services.database))
        ready = version == latest_version()
        body = {"status": "ready" if ready else "not ready", "schema_version": version}
        await exchange.respond(200 if ready else 503, json.dumps(body).encode())

    async def _openapi(self, exchange: Exchange) -> None:
        await exchange.respond(200, json.dumps(build_document()).encode())

    async def _metrics_page(self, exchange: Exchange) -> None:
        catalog = await self._dispatcher.in_thread(partial(self._services.database.read, _catalog_metrics))
        await exchange.respond(200, self._metrics.text() + catalog, MEDIA_TYPE)


def _catalog_metrics(connection: Connection) -> bytes:
    """Return the metrics that the catalog has, which are the same in all processes."""
    totals = maintenance_totals.read(connection)
    backlog = maintenance_totals.backlog(connection, now_millis())
    return jobs_text(jobs.count_by_state(connection)) + maintenance_text(totals, backlog)
