"""The ASGI application: finds the operation, recognises the caller, runs the namespace's method, answers."""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from lance_namespace.errors import LanceNamespaceError, UnsupportedOperationError
from pydantic import BaseModel

from pennon import __version__
from pennon.catalog.schema import latest_version, schema_version
from pennon.core.caller import Caller, Principal, set_caller
from pennon.core.identifiers import ROOT
from pennon.namespace import PennonNamespace
from pennon.server.authentication import Authenticator
from pennon.server.authorization import authorize
from pennon.server.codec import build_request, delimiter_of, dump, parse_body
from pennon.server.context import context_of
from pennon.server.dialects import Remote
from pennon.server.exchange import Exchange, Receive, Scope, Send
from pennon.server.failures import answer_error, as_known, status_for
from pennon.server.metrics import MEDIA_TYPE, Metrics
from pennon.server.openapi import build_document
from pennon.server.operations import OPERATIONS, UNSUPPORTED, Operation
from pennon.server.routing import Match, Router

logger = logging.getLogger("pennon.server")

Page = Callable[[Exchange], Awaitable[None]]
Result = TypeVar("Result")
_CHORES_SECONDS = 3600.0


class Application:
    """Pennon over HTTP."""

    def __init__(self, namespace: PennonNamespace) -> None:
        self._namespace = namespace
        self._house = namespace.house
        settings = self._house.settings
        self._largest_body = settings.max_json_bytes
        self._threads = ThreadPoolExecutor(settings.threads, thread_name_prefix="pennon-metadata")
        self._authenticator = Authenticator(self._house.database, insecure=settings.insecure)
        self._metrics = Metrics()
        self._instant = self._house.database.embedded and self._house.places.root.probes_are_cheap
        self._router: Router[Operation | str | Page] = Router()
        self._add_routes()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the life of the process."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._serve(Exchange(scope, receive, send))
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})

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
                self._threads.shutdown(cancel_futures=True)
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _do_chores(self) -> None:
        while True:
            try:
                await self._in_thread(self._namespace.tidy)
            except Exception:
                logger.exception("the hourly chores failed; they are tried again in an hour")
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
        except Exception as error:  # noqa: BLE001 (every failure gets an answer)
            known = as_known(error, exchange)
            status = status_for(known)
            await answer_error(exchange, known, status)
        finally:
            self._metrics.in_flight.dec()
            self._metrics.observe(name, status, time.perf_counter() - started)

    async def _dispatch(
        self, exchange: Exchange, match: Match[Operation | str | Page] | None, target: Operation | str | Page | None
    ) -> int:
        if isinstance(target, Operation):
            assert match is not None  # noqa: S101 (a target comes with its match)
            return await self._operate(target, exchange, match.values)
        if isinstance(target, str):
            raise UnsupportedOperationError(f"{target} is not offered by this version of Pennon.")
        if target is not None:
            await target(exchange)
            return 200
        if match is not None:
            allowed = ", ".join(sorted(match.targets))
            error: LanceNamespaceError = UnsupportedOperationError(f"Use {allowed} for this path.")
            status = 405
        else:
            error, status = UnsupportedOperationError("There is nothing at this path."), 404
        await answer_error(exchange, error, status)
        return status

    async def _operate(self, operation: Operation, exchange: Exchange, values: dict[str, bytes]) -> int:
        raw = b"" if operation.method == "GET" else await exchange.body(self._largest_body)
        body = parse_body(raw)
        remote = Remote(operation, exchange)
        remote.read(body)
        instant = operation.instant and self._instant and not remote.wants_details
        principal = await self._recognise(exchange, body)
        request = build_request(operation, exchange, body, values)
        remote.open_token(request)
        authorize(operation, principal, request)
        context = context_of(exchange, body) if operation.changes else {}
        set_caller(Caller(principal, exchange.request_id, context))
        run = self._bind(operation, exchange, request, remote)
        response = run() if instant and not self._needs_time(operation, request) else await self._in_thread(run)
        remote.close_token(response)
        if operation.changes:
            logger.info(
                "%s %s by %s (request %s) %s",
                operation.id,
                values.get("id", b"").decode("latin-1"),
                principal.name,
                exchange.request_id,
                context or "",
            )
        await exchange.answer(operation.status, b"" if operation.response is None else dump(response))
        return operation.status

    async def _recognise(self, exchange: Exchange, body: dict[str, Any]) -> Principal:
        if self._house.database.embedded:
            return self._authenticator.recognise(exchange, body)
        return await self._in_thread(partial(self._authenticator.recognise, exchange, body))

    def _bind(
        self, operation: Operation, exchange: Exchange, request: BaseModel, remote: Remote
    ) -> Callable[[], BaseModel]:
        method = getattr(self._namespace, operation.handler)
        if operation.id == "ListAllTables":
            if remote.lists_root:
                return partial(self._namespace.list_tables, request)  # type: ignore[arg-type]
            return partial(method, request, delimiter_of(exchange))
        return partial(method, request)

    def _needs_time(self, operation: Operation, request: Any) -> bool:
        """Tell whether an operation that is usually instant has to look at storage this time."""
        if operation.id == "DescribeTable":
            return bool(request.load_detailed_metadata) or request.tag is not None
        if operation.id == "ListAllTables" or (operation.id == "ListTables" and tuple(request.id or ()) == ROOT):
            return self._house.discovery.is_due()
        return False

    async def _in_thread(self, work: Callable[[], Result]) -> Result:
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(self._threads, context.run, work)

    async def _answer_health(self, exchange: Exchange) -> None:
        await exchange.answer(200, json.dumps({"status": "ok", "version": __version__}).encode())

    async def _answer_readiness(self, exchange: Exchange) -> None:
        version = await self._in_thread(partial(schema_version, self._house.database))
        ready = version == latest_version()
        body = {"status": "ready" if ready else "not ready", "schema_version": version}
        await exchange.answer(200 if ready else 503, json.dumps(body).encode())

    async def _answer_openapi(self, exchange: Exchange) -> None:
        await exchange.answer(200, json.dumps(build_document()).encode())

    async def _answer_metrics(self, exchange: Exchange) -> None:
        await exchange.answer(200, self._metrics.text(), MEDIA_TYPE)
