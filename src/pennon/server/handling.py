"""Carrying out an operation: read the request, recognise and authorize its caller, run it, answer."""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace
from typing import Any, TypeVar

from pydantic import BaseModel

from pennon.core.caller import Caller, Principal, set_caller
from pennon.core.identifiers import ROOT
from pennon.namespace import PennonNamespace
from pennon.namespace.queries import Answer
from pennon.server.authentication import Authenticator
from pennon.server.authorization import authorize
from pennon.server.bindings import Call
from pennon.server.codec import build_request, delimiter_of, dump, parse_body, state_request
from pennon.server.context import context_of
from pennon.server.dialects import Remote
from pennon.server.exchange import BodyTooLargeError, ClientGoneError, Exchange, Headers
from pennon.server.operations import Operation
from pennon.server.streams import FILE_TYPE, STREAM_TYPE, BodyPipe, encode

logger = logging.getLogger("pennon.server")

Result = TypeVar("Result")

#: What LanceDB's remote client may expect of this server: several query vectors, structured full-text queries.
_FEATURES: Headers = ((b"phalanx-version", b"0.3.0"),)
_SAY_FEATURES = frozenset({"ListTables", "ListAllTables", "DescribeTable", "CreateTable"})
_ARROW = "application/vnd.apache.arrow"


class Handler:
    """Carries out operations: short ones and long ones on threads of their own, so that neither waits for the other."""

    def __init__(self, namespace: PennonNamespace) -> None:
        self._namespace = namespace
        self._house = namespace.house
        settings = self._house.settings
        self._largest_json = settings.max_json_bytes
        self._largest_upload = settings.max_upload_bytes
        self._buffer = settings.stream_buffer_bytes
        self._short = ThreadPoolExecutor(settings.threads, thread_name_prefix="pennon-metadata")
        self._long = ThreadPoolExecutor(settings.data_threads, thread_name_prefix="pennon-data")
        self._authenticator = Authenticator(self._house.database, insecure=settings.insecure)
        self._instant = self._house.database.embedded and self._house.places.root.probes_are_cheap

    async def handle(self, operation: Operation, exchange: Exchange, values: dict[str, bytes]) -> int:
        """Carry out one request and return the status it was answered with."""
        remote = Remote(operation, exchange)
        arrow = operation.arrow is True or (
            operation.arrow == "either" and exchange.headers.get("content-type", "").startswith(_ARROW)
        )
        reads_body = operation.method != "GET" and not arrow
        body = parse_body(await exchange.body(self._largest_json)) if reads_body else {}
        remote.read(body)
        principal = await self._recognise(exchange, body)
        stated = state_request(operation, exchange, body, values)
        if operation.binding is None:
            result = await self._run(operation, exchange, remote, principal, stated)
        else:
            result = await self._run_bound(operation, exchange, remote, principal, stated, arrow=arrow)
        if operation.changes:
            self._log(operation, exchange, principal, values)
        return await self._answer(operation, exchange, remote, result)

    async def in_thread(self, work: Callable[[], Result], *, long: bool = False) -> Result:
        """Run work on a thread, for the caller of the moment."""
        context = contextvars.copy_context()
        pool = self._long if long else self._short
        return await asyncio.get_running_loop().run_in_executor(pool, context.run, work)

    def close(self) -> None:
        """Let the threads end."""
        self._short.shutdown(cancel_futures=True)
        self._long.shutdown(cancel_futures=True)

    async def _recognise(self, exchange: Exchange, body: dict[str, Any]) -> Principal:
        if self._house.database.embedded:
            return self._authenticator.recognise(exchange, body)
        return await self.in_thread(partial(self._authenticator.recognise, exchange, body))

    def _admit(
        self, operation: Operation, exchange: Exchange, principal: Principal, request: Any, stated: dict[str, Any]
    ) -> None:
        authorize(operation, principal, request)
        context = context_of(exchange, stated) if operation.changes else {}
        set_caller(Caller(principal, exchange.request_id, context))

    async def _run(
        self, operation: Operation, exchange: Exchange, remote: Remote, principal: Principal, stated: dict[str, Any]
    ) -> BaseModel:
        request = build_request(operation, stated)
        remote.open_token(request)
        self._admit(operation, exchange, principal, request, stated)
        work = self._work(operation, exchange, request, remote)
        if operation.instant and self._instant and not self._needs_time(operation, request):
            return work()
        return await self.in_thread(work, long=operation.long)

    async def _run_bound(
        self,
        operation: Operation,
        exchange: Exchange,
        remote: Remote,
        principal: Principal,
        stated: dict[str, Any],
        *,
        arrow: bool,
    ) -> Any:
        identifier = tuple(stated.get("id") or ())
        self._admit(operation, exchange, principal, SimpleNamespace(id=identifier), stated)
        pipe = BodyPipe(asyncio.get_running_loop(), self._buffer) if arrow else None
        call = Call(self._namespace, identifier, stated, exchange.headers, pipe, remote.is_remote)
        assert operation.binding is not None  # noqa: S101 (that is what makes it bound)
        work = asyncio.ensure_future(self.in_thread(partial(operation.binding, call), long=True))
        if pipe is not None:
            await self._feed(exchange, pipe, work)
        return await work

    async def _feed(self, exchange: Exchange, pipe: BodyPipe, work: asyncio.Future[Any]) -> None:
        """Give a body to the work that reads it, until it ends or the work does."""
        work.add_done_callback(lambda _: pipe.abandon())
        failure = None
        try:
            async for chunk in exchange.chunks(self._largest_upload):
                if work.done():
                    break
                await pipe.feed(chunk)
        except (ClientGoneError, BodyTooLargeError) as error:
            failure = error
        pipe.end(failure)

    def _work(
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

    async def _answer(self, operation: Operation, exchange: Exchange, remote: Remote, result: Any) -> int:
        headers = _FEATURES if operation.id in _SAY_FEATURES else ()
        if isinstance(result, Answer):
            await self._answer_batches(exchange, result, as_file=not remote.is_remote)
        elif operation.answer == "value" or isinstance(result, dict):
            await exchange.answer(operation.status, json.dumps(result).encode())
        elif operation.response is None:
            await exchange.answer(operation.status, b"")
        else:
            remote.close_token(result)
            await exchange.answer(operation.status, dump(result), headers=headers)
        return operation.status

    async def _answer_batches(self, exchange: Exchange, answer: Answer, *, as_file: bool) -> None:
        """Send batches as they come: one is read while the one before it is sent."""
        following = encode(answer.reader, as_file=as_file)
        content = await self.in_thread(following, long=True)
        version = (b"x-lancedb-version", str(answer.version).encode())
        await exchange.start(200, FILE_TYPE if as_file else STREAM_TYPE, (version,))
        while content is not None and not exchange.client_is_gone():
            ahead = asyncio.ensure_future(self.in_thread(following, long=True))
            await exchange.send(content, more=True)
            content = await ahead
        await exchange.send(b"", more=False)

    def _log(self, operation: Operation, exchange: Exchange, principal: Principal, values: dict[str, bytes]) -> None:
        name = values.get("id", b"").decode("latin-1")
        logger.info("%s %s by %s (request %s)", operation.id, name, principal.name, exchange.request_id)
