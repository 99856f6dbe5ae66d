"""Dispatch of operations: parse the request, authenticate and authorize its caller, run the endpoint, respond."""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from lance_namespace.errors import LanceNamespaceError, TableVersionNotFoundError
from pydantic import BaseModel

from pennon.core.caller import Caller, current_caller, set_caller
from pennon.core.cancellation import Cancellation, set_cancellation
from pennon.core.identifiers import format_identifier
from pennon.core.inline import NeedsThreadError, run_inline
from pennon.core.logs import quote
from pennon.namespace.queries import QueryResult
from pennon.server.auth.authorization import authorize
from pennon.server.auth.callers import Callers
from pennon.server.http.bodies import BodyReader, RequestBody
from pennon.server.http.client_context import client_context
from pennon.server.http.codec import build_request, dump, parse_body, read_params
from pennon.server.http.event_stream import JobEventStream
from pennon.server.http.exchange import BodyTooLargeError, ClientGoneError, Exchange, Headers, version_header
from pennon.server.http.json_rows import JsonRows, wants_json
from pennon.server.http.response_cache import CachedResponse, ResponseCache
from pennon.server.http.stream_sender import StreamSender
from pennon.server.http.streams import ArrowResponse, BlobStream, BodyPipe, connection_ended
from pennon.server.idempotency import Fingerprint, IdempotencyKeys, effect_recorder, replay
from pennon.server.inline_latency import InlineLatency
from pennon.server.lancedb_compat import is_lancedb
from pennon.server.request import RequestContext, Response

if TYPE_CHECKING:
    from pennon.namespace import PennonNamespace
    from pennon.server.operations.model import Operation

logger = logging.getLogger("pennon.server")

Result = TypeVar("Result")

#: What LanceDB's remote client may use with this server: several query vectors, structured full-text queries,
#: multipart uploads, blobs.
_FEATURES: Headers = ((b"phalanx-version", b"0.5.0"),)
_REPLAYED: Headers = ((b"idempotency-replayed", b"true"),)
_ARROW = "application/vnd.apache.arrow"
#: How much of an Arrow body is read before a thread starts to work on it.
_UPLOAD_START_BYTES = 64 * 1024


class Dispatcher:
    """Runs operations; metadata, data and bodies have thread pools of their own, so that none waits for another."""

    def __init__(self, namespace: PennonNamespace) -> None:
        self._namespace = namespace
        self._services = namespace.services
        settings = self._services.settings
        self._bodies = BodyReader(settings.max_json_bytes, settings.body_memory_bytes)
        self._max_upload_bytes = settings.max_upload_bytes
        self._buffer_bytes = settings.stream_buffer_bytes
        self._recorded_headers = frozenset(name.lower() for name in settings.recorded_headers)
        self._metadata_pool = ThreadPoolExecutor(settings.metadata_threads, thread_name_prefix="pennon-metadata")
        self._data_pool = ThreadPoolExecutor(settings.data_threads, thread_name_prefix="pennon-data")
        # A thread that receives a body waits for its client: slow clients must not block reads, nor writes whose bodies
        # have arrived.
        self._upload_pool = ThreadPoolExecutor(settings.data_threads, thread_name_prefix="pennon-upload")
        self._insert_pool = ThreadPoolExecutor(settings.data_threads, thread_name_prefix="pennon-insert")
        self._callers = Callers(self._services.database, self.in_thread, insecure=settings.insecure)
        self._idempotency = IdempotencyKeys(self._services.database)
        self._response_cache = ResponseCache()
        self._sender = StreamSender(self.in_thread)
        self._inline_latency: defaultdict[str, InlineLatency] = defaultdict(InlineLatency)

    async def dispatch(self, operation: Operation, exchange: Exchange, path_values: dict[str, bytes]) -> int:
        """Handle one request and return the status of its response."""
        is_arrow = operation.body == "arrow" or (
            operation.body == "json or arrow" and exchange.headers.get("content-type", "").startswith(_ARROW)
        )
        body = RequestBody()
        if operation.method == "POST" and not is_arrow:
            body = await self._bodies.read(exchange, partial(self._callers.authenticate, exchange, {}))
        try:
            return await self._dispatch(operation, exchange, path_values, body, is_arrow=is_arrow)
        finally:
            body.release()

    async def _dispatch(
        self,
        operation: Operation,
        exchange: Exchange,
        path_values: dict[str, bytes],
        sent: RequestBody,
        *,
        is_arrow: bool,
    ) -> int:
        content = sent.content
        is_fresh = await self._callers.refresh()
        principal = sent.principal or await self._callers.by_headers(exchange, is_fresh=is_fresh)
        if operation.cacheable and principal is not None and is_fresh and not sent.is_large:
            cached = self._response_cache.find(principal, exchange, content)
            if cached is not None:
                await exchange.respond(operation.status, cached, headers=_headers_of(operation))
                return operation.status
        if sent.is_large:
            exchange.watch()
        parse = partial(parse_body, content)
        body = await self._run_unless_gone(exchange, parse) if sent.is_large else parse()
        if operation.body_field is not None:
            body = {operation.body_field: body} if content else {}
        principal = principal or await self._callers.authenticate(exchange, body)
        database = await self._callers.database_of(exchange, principal, is_fresh=is_fresh)
        operation.lancedb.read_body(body, exchange, database)
        params = read_params(operation, exchange, body, path_values, database)
        context = RequestContext(
            operation,
            exchange,
            self._namespace,
            principal,
            content,
            params,
            has_arrow_body=is_arrow,
            is_lancedb=is_lancedb(exchange),
            is_large=sent.is_large,
            allows_inline=is_fresh and not sent.is_large,
        )
        key = self._idempotency.key_of(exchange) if operation.mutates else None
        if key is None:
            return await self._respond(context, await self._execute(context))
        return await self._execute_once(context, key)

    async def _execute_once(self, context: RequestContext, key: str) -> int:
        """Execute a request under an idempotency key, or replay its response."""
        name, exchange = context.principal.name, context.exchange
        context.fingerprint = Fingerprint(context.operation, exchange)
        context.fingerprint.add(context.content)
        await self._idempotency.acquire(name, key)
        try:
            known = await self.in_thread(partial(self._idempotency.find, name, key))
            if known is not None:
                if context.has_arrow_body:
                    async for chunk in exchange.chunks(self._max_upload_bytes):
                        context.fingerprint.add(chunk)
                options = self._services.storage_root.client_options(vend=None)
                status, content = replay(known, context.fingerprint.hexdigest(), options)
                await exchange.respond(status, content, headers=_REPLAYED)
                return status
            context.mark_effect = effect_recorder(name, key, context.fingerprint.hexdigest)
            result = await self._execute(context)
            content = _encode(context, result)
            status = result.status if isinstance(result, Response) else context.operation.status
            fingerprint = context.fingerprint.hexdigest()
            await self.in_thread(partial(self._idempotency.complete, name, key, fingerprint, status, content))
        finally:
            self._idempotency.release(name, key)
        return await self._respond(context, result)

    async def _execute(self, context: RequestContext) -> object:
        mutates = context.operation.mutates
        if mutates and self._services.ownership.is_due:
            await self.in_thread(self._services.ownership.require)
        try:
            result = await self._run(context)
        except (OSError, RuntimeError, TableVersionNotFoundError):
            if context.operation.reads_table and context.id:
                # Raises "not found" if the read failed because the table was dropped meanwhile.
                await self.in_thread(partial(self._namespace.find_table, context.id))
            raise
        if mutates:
            _log(context)
        return result

    async def _run(self, context: RequestContext) -> object:
        operation = context.operation
        if operation.parse_first:
            parse = partial(build_request, operation, context.params)
            model = await self._run_unless_gone(context.exchange, parse) if context.is_large else parse()
            operation.lancedb.read_request(model, context.exchange)
            context.model = model
        self._authorize(context)
        if context.has_arrow_body:
            return await self._run_with_body(context)
        if context.allows_inline:
            try:
                result = self._run_inline(context)
            except NeedsThreadError:
                result = None
            if result is not None:
                return result
        run = partial(_run_endpoint, context)
        return await (self._run_cancellable(context, run) if operation.data_pool else self.in_thread(run))

    def _authorize(self, context: RequestContext) -> None:
        operation, principal = context.operation, context.principal
        authorize(operation, principal, context if context.model is None else context.model)
        recorded = client_context(context.exchange, context.params, self._recorded_headers) if operation.mutates else {}
        set_caller(Caller(principal, context.exchange.request_id, recorded, context.mark_effect))

    def _run_inline(self, context: RequestContext) -> object | None:
        """Run an endpoint on the event loop; return None if it might take longer than a switch to a thread."""
        operation = context.operation
        started, latency = time.monotonic(), self._inline_latency[operation.id]
        if not latency.is_low(started):
            return None
        if operation.catalog_only:
            run = partial(run_inline, partial(operation.endpoint, context))
            result, context.reads = self._services.database.cache.record(run)
            if operation.cacheable:
                validator = partial(self._namespace.descriptions.cache_validator, context.model)  # type: ignore[arg-type]  # its row's model
                context.is_fresh = run_inline(validator)
        elif operation.inline is None or _wants_json(context) or not self._services.storage_root.root.is_local:
            return None
        else:
            found = run_inline(partial(operation.inline, context))
            if not isinstance(found, QueryResult):
                return None
            result = ArrowResponse(found, as_file=_wants_file(context))
        latency.add(started)
        return result

    async def _run_cancellable(self, context: RequestContext, work: Callable[[], Result]) -> Result:
        """Run work on a thread for data; skip or cancel a read whose client has disconnected.

        Lance cannot be interrupted before its first batch: clients that give up and retry must not add to the load.
        """
        cancellation = Cancellation()
        set_cancellation(cancellation)
        if not context.operation.mutates:
            context.exchange.watch(cancellation.cancel)
        return await self._run_unless_gone(context.exchange, work, data=True)

    async def _run_unless_gone(self, exchange: Exchange, work: Callable[[], Result], *, data: bool = False) -> Result:
        """Run work on a thread, unless the client has disconnected by the time a thread is free."""

        def run() -> Result:
            if exchange.client_is_gone():
                raise ClientGoneError("The client disconnected before the server started to handle its request.")
            return work()

        return await self.in_thread(run, data=data)

    async def _run_with_body(self, context: RequestContext) -> object:
        """Run an endpoint that reads an Arrow body."""
        pipe = BodyPipe(asyncio.get_running_loop(), self._buffer_bytes, self._bodies.budget)
        context.body = pipe
        try:
            return await self._feed(context, pipe, partial(_run_endpoint, context))
        finally:
            pipe.abandon()

    async def _feed(self, context: RequestContext, pipe: BodyPipe, run: Callable[[], Result]) -> Result:
        """Feed a body to the work that reads it, until either ends.

        The work starts once there is something to read: a client that sends nothing holds no thread.
        """
        queued: Future[Result] | None = None
        work: asyncio.Future[Result] | None = None
        size, failure = 0, None
        try:
            async for chunk in context.exchange.chunks(self._max_upload_bytes):
                if context.fingerprint is not None:
                    context.fingerprint.add(chunk)
                if work is not None and work.done():
                    if context.fingerprint is None or work.exception() is not None:
                        break
                    continue  # the fingerprint covers the whole body
                size += len(chunk)
                if work is None and size > _UPLOAD_START_BYTES:
                    queued = _submit(self._upload_pool, run)
                    work = asyncio.wrap_future(queued)
                    # Cancelled work has read nothing: the body is for the thread that runs it instead.
                    work.add_done_callback(lambda done: None if done.cancelled() else pipe.abandon())
                await pipe.feed(chunk)
        except (ClientGoneError, BodyTooLargeError) as error:
            failure = error
        except asyncio.CancelledError:
            pipe.end(connection_ended())  # otherwise its reader would wait forever and block shutdown
            raise
        if queued is not None and queued.cancel():
            work = None  # no upload thread was free; a complete body need not wait for the slow clients that hold them
        if work is None and failure is not None:
            raise failure
        pipe.end(failure)
        return await (_run_on(self._insert_pool, run) if work is None else work)

    async def in_thread(self, work: Callable[[], Result], *, data: bool = False) -> Result:
        """Run work on a thread, as the current caller."""
        return await _run_on(self._data_pool if data else self._metadata_pool, work)

    def end_streams(self) -> None:
        """End the event streams, which otherwise last as long as their jobs."""
        self._sender.end()

    def close(self) -> None:
        """Stop the threads."""
        for pool in (self._metadata_pool, self._data_pool, self._upload_pool, self._insert_pool):
            pool.shutdown(cancel_futures=True)

    async def _respond(self, context: RequestContext, result: object) -> int:
        exchange, operation = context.exchange, context.operation
        if isinstance(result, ArrowResponse | BlobStream):
            await self._sender.send_stream(exchange, result)
            return result.status
        if isinstance(result, JsonRows):
            await exchange.respond(200, result.body, headers=version_header(result.version))
        elif isinstance(result, JobEventStream):
            await self._sender.send_events(exchange, result, partial(self._is_still_allowed, context))
        elif isinstance(result, Response):
            media_type = b"application/octet-stream" if isinstance(result.body, bytes) else b"application/json"
            await exchange.respond(result.status, _encode(context, result), media_type, result.headers)
            return result.status
        else:
            content = _encode(context, result)
            if context.is_fresh is not None:
                entry = CachedResponse(content, context.reads, context.is_fresh)
                self._response_cache.put(context.principal, exchange, context.content, entry)
            await exchange.respond(operation.status, content, headers=_headers_of(operation))
        return operation.status

    async def _is_still_allowed(self, context: RequestContext) -> bool:
        """Tell whether the caller of a request is still authenticated: keys expire and are revoked."""
        try:
            return await self._callers.authenticate(context.exchange, {}) == context.principal
        except LanceNamespaceError:
            return False


def _run_endpoint(context: RequestContext) -> object:
    """Run an endpoint and, if it returns Arrow batches, encode the first of them on the same thread."""
    result = context.operation.endpoint(context)
    if not isinstance(result, QueryResult):
        return result
    return JsonRows(result) if _wants_json(context) else ArrowResponse(result, as_file=_wants_file(context))


def _wants_json(context: RequestContext) -> bool:
    return wants_json(context.headers.get("accept", ""))


def _wants_file(context: RequestContext) -> bool:
    """Tell whether Arrow batches are sent in the file format, as the specification has it, and not as a stream."""
    return context.operation.in_spec and not context.is_lancedb


def _encode(context: RequestContext, result: object) -> bytes:
    if isinstance(result, Response):
        return result.body if isinstance(result.body, bytes) else json.dumps(result.body).encode()
    if context.operation.value_type is not None or isinstance(result, dict):
        return json.dumps(result).encode()
    if context.operation.response is None:
        return b""
    assert isinstance(result, BaseModel)  # noqa: S101 (its row names the model)
    context.operation.lancedb.write_response(result, context)
    return dump(result)


def _log(context: RequestContext) -> None:
    operation, params = context.operation, context.params
    name = str(params.get("job_id")) if operation.permission.kind == "job" else format_identifier(context.id)
    recorded = current_caller().context
    suffix = f" {json.dumps(recorded)}" if recorded else ""  # as JSON, so that no client can forge log lines
    caller, request_id = quote(context.principal.name), context.exchange.request_id
    logger.info("%s %s by %s (request %s)%s", operation.id, quote(name), caller, request_id, suffix)


def _headers_of(operation: Operation) -> Headers:
    return _FEATURES if operation.has_feature_header else ()


def _submit(pool: ThreadPoolExecutor, work: Callable[[], Result]) -> Future[Result]:
    return pool.submit(contextvars.copy_context().run, work)


async def _run_on(pool: ThreadPoolExecutor, work: Callable[[], Result]) -> Result:
    return await asyncio.wrap_future(_submit(pool, work))
