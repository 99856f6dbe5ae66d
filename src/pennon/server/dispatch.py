"""Carrying out an operation: read the request, recognise and authorize its caller, run it, answer."""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace
from typing import Any, TypeVar

from lance_namespace.errors import LanceNamespaceError, TableVersionNotFoundError
from pydantic import BaseModel

from pennon.catalog import namespaces
from pennon.core.caller import ANONYMOUS_ADMIN, Caller, Principal, current_caller, set_caller
from pennon.core.cancellation import Cancellation, set_cancellation
from pennon.core.identifiers import ROOT, Identifier, format_identifier
from pennon.core.logs import quoted
from pennon.namespace import PennonNamespace
from pennon.namespace.queries import Answer
from pennon.server.auth.authentication import Authenticator
from pennon.server.auth.authorization import authorize
from pennon.server.endpoints.data import Call
from pennon.server.endpoints.extensions import Reply
from pennon.server.http.bodies import BodyReader, RequestBody
from pennon.server.http.codec import build_request, delimiter_of, dump, parse_body, state_request
from pennon.server.http.context import context_of
from pennon.server.http.event_stream import JobFeed
from pennon.server.http.exchange import BodyTooLargeError, ClientGoneError, Exchange, Headers, version_header
from pennon.server.http.json_rows import JsonRows, wants_json
from pennon.server.http.response_cache import Recall
from pennon.server.http.stream_sender import StreamSender
from pennon.server.http.streams import BlobStream, BodyPipe, Outgoing, cut_off
from pennon.server.idempotency import Fingerprint, Replays, effect_of, replay
from pennon.server.lancedb_compat import Remote, database_named
from pennon.server.operations.model import Operation
from pennon.server.request import Request

logger = logging.getLogger("pennon.server")

Result = TypeVar("Result")

#: What LanceDB's remote client may expect of this server: several query vectors, structured full-text queries,
#: uploads in parts, blobs.
_FEATURES: Headers = ((b"phalanx-version", b"0.5.0"),)
_SAY_FEATURES = frozenset({"ListTables", "ListAllTables", "DescribeTable", "CreateTable", "CloneTable"})
_REPLAYED: Headers = ((b"idempotency-replayed", b"true"),)
_ARROW = "application/vnd.apache.arrow"
#: What is read of a body before a thread starts to work on it.
_HEAD_START_BYTES = 64 * 1024
#: What runs on the event loop must not take longer than this as a rule, of which each time counts for a tenth, and none
#: for so much that one pause of the whole process could break the rule; when it is broken, threads do it for a while.
_AT_ONCE_SECONDS = 0.005
_WITH_THREADS_SECONDS = 10.0
_SHARE_OF_ONE = 0.1
_MOST_OF_ONE = 4 * _AT_ONCE_SECONDS


class Handler:
    """Carries out operations: short ones and long ones on threads of their own, so that neither waits for the other."""

    def __init__(self, namespace: PennonNamespace) -> None:
        self._namespace = namespace
        self._services = namespace.services
        settings = self._services.settings
        self._bodies = BodyReader(settings.max_json_bytes, settings.body_memory_bytes)
        self._largest_upload = settings.max_upload_bytes
        self._buffer = settings.stream_buffer_bytes
        self._recorded_headers = frozenset(name.lower() for name in settings.recorded_headers)
        self._short = ThreadPoolExecutor(settings.threads, thread_name_prefix="pennon-metadata")
        self._long = ThreadPoolExecutor(settings.data_threads, thread_name_prefix="pennon-data")
        # A thread that takes a body in waits for its client: slow ones must not keep others from reading, nor those
        # from writing whose bodies are here already.
        self._uploads = ThreadPoolExecutor(settings.data_threads, thread_name_prefix="pennon-upload")
        self._inserts = ThreadPoolExecutor(settings.data_threads, thread_name_prefix="pennon-insert")
        self._authenticator = Authenticator(self._services.database, insecure=settings.insecure)
        self._replays = Replays(self._services.database)
        self._recall = Recall(self._services.database)
        self._sender = StreamSender(self.in_thread)
        self._took_seconds = 0.0
        self._with_threads_until = 0.0
        self._instant = self._services.database.embedded and self._services.storage_root.root.is_local

    async def handle(self, operation: Operation, exchange: Exchange, values: dict[str, bytes]) -> int:
        """Carry out one request and return the status it was answered with."""
        arrow = operation.arrow is True or (
            operation.arrow == "either" and exchange.headers.get("content-type", "").startswith(_ARROW)
        )
        if operation.method == "GET" or arrow:
            return await self._handle(operation, exchange, values, RequestBody(), arrow=arrow)
        body = await self._bodies.read(exchange, partial(self._recognise, exchange, {}))
        try:
            return await self._handle(operation, exchange, values, body, arrow=arrow)
        finally:
            body.release()

    async def _handle(
        self, operation: Operation, exchange: Exchange, values: dict[str, bytes], sent: RequestBody, *, arrow: bool
    ) -> int:
        raw = sent.content
        recalled = self._recall.find(exchange, raw) if operation.lasting and not sent.is_large else None
        if recalled is not None:
            await exchange.answer(operation.status, recalled, headers=_headers_of(operation))
            return operation.status
        if sent.is_large:
            exchange.watch()
        parsed = await self._unless_gone(exchange, partial(parse_body, raw)) if sent.is_large else parse_body(raw)
        body = parsed
        if operation.whole is not None:
            body = {operation.whole: parsed} if raw else {}
        principal = sent.principal or await self._recognise(exchange, body)
        database = await self._database_of(exchange, principal)
        remote = Remote(operation, exchange)
        remote.read(body, database)
        stated = state_request(operation, exchange, body, values, database)
        request = Request(operation, exchange, remote, principal, raw, stated, arrow, sent.is_large)
        key = self._replays.key_of(exchange) if operation.changes else None
        if key is None:
            return await self._answer(request, await self._carry_out(request))
        return await self._carry_out_once(request, key)

    async def _carry_out_once(self, request: Request, key: str) -> int:
        """Carry out a request under an idempotency key, or repeat the answer it was given before."""
        name = request.principal.name
        request.fingerprint = Fingerprint(request.operation, request.exchange)
        request.fingerprint.add(request.raw)
        await self._replays.enter(name, key)
        try:
            known = await self.in_thread(partial(self._replays.find, name, key))
            if known is not None:
                if request.arrow:
                    async for chunk in request.exchange.chunks(self._largest_upload):
                        request.fingerprint.add(chunk)
                status, answer = replay(
                    known, request.fingerprint(), self._services.storage_root.client_options(vend=None)
                )
                await request.exchange.answer(status, answer, headers=_REPLAYED)
                return status
            request.mark_effect = effect_of(name, key, request.fingerprint)
            result = await self._carry_out(request)
            answer = self._encode(request, result)
            status = result.status if isinstance(result, Reply) else request.operation.status
            done = request.fingerprint()
            await self.in_thread(partial(self._replays.complete, name, key, done, status, answer))
        finally:
            self._replays.leave(name, key)
        return await self._answer(request, result)

    async def _carry_out(self, request: Request) -> Any:
        if request.operation.changes and self._services.ownership.is_due:
            await self.in_thread(self._services.ownership.require)
        bound = request.operation.binding is not None
        try:
            result = await (self._run_bound(request) if bound else self._run(request))
        except (OSError, RuntimeError, TableVersionNotFoundError):
            await self._require_table(request)
            raise
        if request.operation.changes:
            self._services.database.invalidate()  # for requests that came along with this one
            self._log(request)
        return result

    async def _require_table(self, request: Request) -> None:
        """Raise that a table does not exist where reading it went wrong because it was dropped meanwhile."""
        operation, identifier = request.operation, request.stated.get("id")
        if identifier and operation.path.startswith("/v1/table/") and not operation.changes:
            await self.in_thread(partial(self._namespace.find_table, tuple(identifier)))

    async def in_thread(self, work: Callable[[], Result], *, long: bool = False) -> Result:
        """Run work on a thread, for the caller of the moment."""
        return await _run_on(self._long if long else self._short, work)

    def end_feeds(self) -> None:
        """End the streams of events that would go on for as long as what they tell of."""
        self._sender.end()

    def close(self) -> None:
        """Let the threads end."""
        for pool in (self._short, self._long, self._uploads, self._inserts):
            pool.shutdown(cancel_futures=True)

    async def _recognise(self, exchange: Exchange, body: dict[str, Any]) -> Principal:
        if self._services.database.embedded:
            return self._authenticator.recognise(exchange, body)
        return await self.in_thread(partial(self._authenticator.recognise, exchange, body))

    async def _database_of(self, exchange: Exchange, principal: Principal) -> Identifier:
        """Return the namespace a client works in: LanceDB's catalogs take root namespaces for databases.

        A database that is not a namespace stands for all there is, so that ``db://anything`` finds the root's tables.
        """
        name = database_named(exchange)
        if name is None or not principal.may_traverse((name,)):
            return ROOT
        find = partial(self._services.database.read, lambda connection: namespaces.exists(connection, (name,)))
        found = find() if self._services.database.embedded else await self.in_thread(find)
        return (name,) if found else ROOT

    def _admit(self, request: Request, model: Any) -> None:
        authorize(request.operation, request.principal, model)
        changes = request.operation.changes
        context = context_of(request.exchange, request.stated, self._recorded_headers) if changes else {}
        set_caller(Caller(request.principal, request.exchange.request_id, context, request.mark_effect))

    async def _run(self, request: Request) -> BaseModel:
        operation = request.operation
        build = partial(build_request, operation, request.stated)
        model = await self._unless_gone(request.exchange, build) if request.is_large else build()
        request.remote.open_token(model)
        self._admit(request, model)
        work = self._work(request, model)
        at_once = operation.instant and self._instant and not request.is_large
        if at_once and not self._needs_time(operation, model):
            result = work()
            if operation.lasting and request.principal is ANONYMOUS_ADMIN:
                request.holds = self._namespace.lasting(model)  # type: ignore[arg-type]  # as its operation has it
            return result
        return await self._in_time(request, work) if operation.long else await self.in_thread(work)

    async def _in_time(self, request: Request, work: Callable[[], Result]) -> Result:
        """Run work on a thread, but no reading for a client that went away while there was no thread for it.

        Lance cannot be interrupted before it gives a first batch: clients that give up and ask again must not add to
        what is done for nobody.
        """
        cancellation = Cancellation()
        set_cancellation(cancellation)
        if not request.operation.changes:
            request.exchange.watch(cancellation.cancel)
        return await self._unless_gone(request.exchange, work, long=request.operation.long)

    async def _unless_gone(self, exchange: Exchange, work: Callable[[], Result], *, long: bool = False) -> Result:
        """Run work on a thread, unless its client is known to be gone by the time there is one."""

        def unless_gone() -> Result:
            if exchange.client_is_gone():
                raise ClientGoneError("The client went away before there was time for its request.")
            return work()

        return await self.in_thread(unless_gone, long=long)

    async def _run_bound(self, request: Request) -> Any:
        identifier = tuple(request.stated.get("id") or ())
        self._admit(request, SimpleNamespace(id=identifier))
        loop = asyncio.get_running_loop()
        pipe = BodyPipe(loop, self._buffer, self._bodies.budget) if request.arrow else None
        call = Call(
            self._namespace, identifier, request.stated, request.exchange.headers, pipe, request.remote.is_remote
        )
        assert request.operation.binding is not None  # noqa: S101 (that is what makes it bound)
        run = partial(request.operation.binding, call)
        if pipe is None:
            if request.operation.answer == "batches" and wants_json(request.exchange.headers.get("accept", "")):
                return await self._in_time(request, lambda: JsonRows(run()))
            as_file = not request.remote.is_remote and request.operation.specified
            at_once = not request.is_large and self._run_at_once(request.operation, call, as_file=as_file)
            return at_once or await self._in_time(request, partial(_begin, run, as_file=as_file))
        try:
            return await self._feed(request, pipe, run)
        finally:
            pipe.abandon()

    def _run_at_once(self, operation: Operation, call: Call, *, as_file: bool) -> Any:
        """Run what takes less time than waking up a thread for it; when storage was slow, not again for a while."""
        began = time.monotonic()
        if operation.at_once is None or not self._instant or began < self._with_threads_until:
            return None
        answer = operation.at_once(call)
        if answer is None:
            return None
        outgoing = Outgoing(answer, as_file=as_file)
        took = min(time.monotonic() - began, _MOST_OF_ONE)
        self._took_seconds += _SHARE_OF_ONE * (took - self._took_seconds)
        if self._took_seconds > _AT_ONCE_SECONDS:
            self._took_seconds, self._with_threads_until = 0.0, began + _WITH_THREADS_SECONDS
        return outgoing

    async def _feed(self, request: Request, pipe: BodyPipe, run: Callable[[], Result]) -> Result:
        """Give a body to the work that reads it, until it ends or the work does.

        The work starts once there is something to read: a client that sends nothing holds no thread.
        """
        queued: Future[Result] | None = None
        work: asyncio.Future[Result] | None = None
        size, failure = 0, None
        try:
            async for chunk in request.exchange.chunks(self._largest_upload):
                if request.fingerprint is not None:
                    request.fingerprint.add(chunk)
                if work is not None and work.done():
                    if request.fingerprint is None or work.exception() is not None:
                        break
                    continue  # all of it is what the request is known by when it is repeated
                size += len(chunk)
                if work is None and size > _HEAD_START_BYTES:
                    queued = _submit(self._uploads, run)
                    work = asyncio.wrap_future(queued)
                    # Cancelled work has read nothing: the body is for the thread that does it instead.
                    work.add_done_callback(lambda done: None if done.cancelled() else pipe.abandon())
                await pipe.feed(chunk)
        except (ClientGoneError, BodyTooLargeError) as error:
            failure = error
        except asyncio.CancelledError:
            pipe.end(cut_off())  # or its reader would wait for ever, and keep the process from ending
            raise
        if queued is not None and queued.cancel():
            work = None  # no thread was free; what is here whole need not wait for slow clients, which hold them
        if work is None and failure is not None:
            raise failure
        pipe.end(failure)
        return await (_run_on(self._inserts, run) if work is None else work)

    def _work(self, request: Request, model: BaseModel) -> Callable[[], BaseModel]:
        method = getattr(self._namespace, request.operation.handler)
        if request.operation.id == "ListAllTables":
            if request.remote.lists_root:
                return partial(self._namespace.list_tables, model)  # type: ignore[arg-type]
            return partial(method, model, delimiter_of(request.exchange))
        return partial(method, model)

    def _needs_time(self, operation: Operation, request: Any) -> bool:
        """Tell whether an operation that is usually instant has to look at storage this time."""
        if operation.id == "DescribeTable":
            return bool(request.load_detailed_metadata) or request.tag is not None
        if operation.id == "ListAllTables" or (operation.id == "ListTables" and tuple(request.id or ()) == ROOT):
            return self._services.discovery.is_due()
        return False

    def _encode(self, request: Request, result: Any) -> bytes:
        if isinstance(result, Reply):
            return result.body if isinstance(result.body, bytes) else json.dumps(result.body).encode()
        if request.operation.answer == "value" or isinstance(result, dict):
            return json.dumps(result).encode()
        if request.operation.response is None:
            return b""
        request.remote.write(result)
        return dump(result)

    async def _answer(self, request: Request, result: Any) -> int:
        if isinstance(result, Outgoing | BlobStream):
            await self._sender.send_pieces(request.exchange, result)
            return result.status
        if isinstance(result, JsonRows):
            await request.exchange.answer(200, result.body, headers=version_header(result.version))
        elif isinstance(result, JobFeed):
            await self._sender.send_events(request.exchange, result, partial(self._is_still_allowed, request))
        elif isinstance(result, Reply):
            kind = b"application/octet-stream" if isinstance(result.body, bytes) else b"application/json"
            await request.exchange.answer(result.status, self._encode(request, result), kind, result.headers)
            return result.status
        else:
            content = self._encode(request, result)
            if request.holds is not None:
                self._recall.keep(request.exchange, request.raw, content, request.holds)
            await request.exchange.answer(request.operation.status, content, headers=_headers_of(request.operation))
        return request.operation.status

    async def _is_still_allowed(self, request: Request) -> bool:
        """Tell whether the caller of a request is still who it was: keys expire and are revoked."""
        self._services.database.invalidate()
        try:
            return await self._recognise(request.exchange, {}) == request.principal
        except LanceNamespaceError:
            return False

    def _log(self, request: Request) -> None:
        of_job = "{job_id}" in request.operation.path
        name = request.stated["job_id"] if of_job else format_identifier(request.stated.get("id") or ())
        caller, request_id = quoted(request.principal.name), request.exchange.request_id
        context = current_caller().context
        told = f" {json.dumps(context)}" if context else ""  # as JSON: nobody writes lines of their own
        logger.info("%s %s by %s (request %s)%s", request.operation.id, quoted(name), caller, request_id, told)


def _submit(pool: ThreadPoolExecutor, work: Callable[[], Result]) -> Future[Result]:
    return pool.submit(contextvars.copy_context().run, work)


async def _run_on(pool: ThreadPoolExecutor, work: Callable[[], Result]) -> Result:
    return await asyncio.wrap_future(_submit(pool, work))


def _headers_of(operation: Operation) -> Headers:
    return _FEATURES if operation.id in _SAY_FEATURES else ()


def _begin(run: Callable[[], Any], *, as_file: bool) -> Any:
    """Run an operation and, if it answers batches, make the first of them on the same thread."""
    result = run()
    return Outgoing(result, as_file=as_file) if isinstance(result, Answer) else result
