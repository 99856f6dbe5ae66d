"""Answers that are sent as they are made: batches, blobs, and the events of jobs."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pennon.server.http.event_stream import JobFeed
    from pennon.server.http.exchange import Exchange, Headers
    from pennon.server.http.streams import BlobStream, Outgoing


#: How often it is checked whether a caller may still follow events: a key that was revoked opens nothing any more.
_CHECK_SECONDS = 1.0


class Threads(Protocol):
    """Runs work on threads."""

    def __call__(self, work: Callable[[], Any], *, long: bool = False) -> Awaitable[Any]:
        """Run work on a thread."""


class StreamSender:
    """Sends answers in pieces, none of them faster than its client reads."""

    def __init__(self, in_thread: Threads) -> None:
        self._in_thread = in_thread
        self._ending = asyncio.Event()

    def end(self) -> None:
        """End the streams that would go on for as long as what they report."""
        self._ending.set()

    async def send_pieces(self, exchange: Exchange, outgoing: Outgoing | BlobStream) -> None:
        """Send a small answer whole, a large one as it comes: a piece is read while the one before it is sent."""
        if outgoing.ended:
            outgoing.close()
            await exchange.answer(outgoing.status, outgoing.first, outgoing.media_type, outgoing.headers)
            return
        content, length = outgoing.first, outgoing.length
        known: Headers = () if length is None else ((b"content-length", str(length).encode()),)
        await exchange.start(outgoing.status, outgoing.media_type, (*outgoing.headers, *known))
        try:
            while not outgoing.ended and not exchange.client_is_gone():
                ahead = asyncio.ensure_future(self._in_thread(outgoing.read, long=True))
                await exchange.send(content, more=True)
                content = await ahead
        finally:
            await self._in_thread(outgoing.close)
        await exchange.send(content, more=False)

    async def send_events(self, exchange: Exchange, feed: JobFeed, is_allowed: Callable[[], Awaitable[bool]]) -> None:
        """Send events as they come, while the caller may see them; no thread is held while nothing happens."""
        await exchange.start(200, feed.media_type, feed.headers)
        checked_at = time.monotonic()
        while not (exchange.client_is_gone() or self._ending.is_set()):
            if time.monotonic() - checked_at >= _CHECK_SECONDS:
                if not await is_allowed():
                    break
                checked_at = time.monotonic()
            content = await self._in_thread(feed.read)
            if content:
                await exchange.send(content, more=True)
            if feed.ended:
                break
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), feed.pause)
        await exchange.send(b"", more=False)
