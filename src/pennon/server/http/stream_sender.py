"""Sending of streamed responses: Arrow batches, blobs, and the events of jobs."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from pennon.server.http.event_stream import JobEventStream
    from pennon.server.http.exchange import Exchange, Headers
    from pennon.server.http.streams import ArrowResponse, BlobStream

Result = TypeVar("Result")

#: Interval of checks whether the caller of an event stream is still authenticated: a revoked key ends the stream.
_CHECK_SECONDS = 1.0


class Threads(Protocol):
    """Runs work on a thread."""

    def __call__(self, work: Callable[[], Result], *, data: bool = False) -> Coroutine[object, object, Result]:
        """Run work on a thread."""


class StreamSender:
    """Sends responses in pieces, no faster than their clients read."""

    def __init__(self, in_thread: Threads) -> None:
        self._in_thread = in_thread
        self._ending = asyncio.Event()

    def end(self) -> None:
        """End the event streams, which otherwise last as long as their jobs."""
        self._ending.set()

    async def send_stream(self, exchange: Exchange, stream: ArrowResponse | BlobStream) -> None:
        """Send a small response in one write, a large one in pieces: the next is read while one is sent."""
        if stream.ended:
            stream.close()
            await exchange.respond(stream.status, stream.first, stream.media_type, stream.headers)
            return
        content, length = stream.first, stream.length
        known: Headers = () if length is None else ((b"content-length", str(length).encode()),)
        await exchange.start(stream.status, stream.media_type, (*stream.headers, *known))
        try:
            while not stream.ended and not exchange.client_is_gone():
                ahead = asyncio.ensure_future(self._in_thread(stream.read, data=True))
                await exchange.send(content, more=True)
                content = await ahead
        finally:
            await self._in_thread(stream.close)
        await exchange.send(content, more=False)

    async def send_events(
        self, exchange: Exchange, events: JobEventStream, is_allowed: Callable[[], Awaitable[bool]]
    ) -> None:
        """Send events as they happen, while the caller may see them; no thread is held while nothing happens."""
        await exchange.start(200, events.media_type, events.headers)
        checked_at = time.monotonic()
        while not (exchange.client_is_gone() or self._ending.is_set()):
            if time.monotonic() - checked_at >= _CHECK_SECONDS:
                if not await is_allowed():
                    break
                checked_at = time.monotonic()
            content = await self._in_thread(events.read)
            if content:
                await exchange.send(content, more=True)
            if events.ended:
                break
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), events.pause)
        await exchange.send(b"", more=False)
