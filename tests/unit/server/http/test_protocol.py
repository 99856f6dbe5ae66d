"""Heads and bodies of answers leave together, in their order; and no client is waited for when it does not go on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from pennon.server.http.exchange import ClientGoneError, Exchange
from pennon.server.http.protocol import CoalescingTransport, Protocol

HEAD = b"HTTP/1.1 200 OK\r\n\r\n"
GET = b"GET /a HTTP/1.1\r\nhost: localhost\r\n\r\n"
POST = b"POST /a HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n"
#: As often as it is looked for a client before it has stalled, and not once more.
CHECKS = 5


class Written:
    """A transport that remembers what was written."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.closed = False

    def is_closing(self) -> bool:
        return self.closed

    def write(self, data: bytes) -> None:
        if self.closed:
            raise RuntimeError("the handler is closed")  # as uvloop says it
        self.pieces.append(bytes(data))

    def close(self) -> None:
        self.closed = True


def transport() -> tuple[CoalescingTransport, Written]:
    written = Written()
    return CoalescingTransport(written), written  # type: ignore[arg-type]  # all that it uses of a transport


def test_head_and_body_leave_together_at_the_end_of_the_turn() -> None:
    async def answer() -> None:
        coalescing, written = transport()
        coalescing.write(HEAD)
        coalescing.write(b"body")
        assert written.pieces == []
        await asyncio.sleep(0)
        assert written.pieces == [HEAD + b"body"]

    asyncio.run(answer())


def test_answers_of_one_turn_are_written_when_all_of_them_are_made() -> None:
    async def answer(number: int, made: list[int], written: Written, coalescing: CoalescingTransport) -> None:
        made.append(number)
        coalescing.write(HEAD)
        coalescing.write(b"%d" % number)
        assert written.pieces == [], "another answer was still to be made"

    async def serve() -> None:
        pairs = [transport() for _ in range(5)]
        made: list[int] = []
        await asyncio.gather(*(answer(at, made, written, coalescing) for at, (coalescing, written) in enumerate(pairs)))
        await asyncio.sleep(0)
        assert made == list(range(5))
        assert [written.pieces for _, written in pairs] == [[HEAD + b"%d" % at] for at in range(5)]

    asyncio.run(serve())


def test_a_head_alone_is_an_answer() -> None:
    async def answer() -> None:
        coalescing, written = transport()
        coalescing.write(HEAD)
        coalescing.end()
        await asyncio.sleep(0)
        assert written.pieces == [HEAD]

    asyncio.run(answer())


@pytest.mark.parametrize("size", [1, 64 * 1024, 64 * 1024 + 1, 1024 * 1024])
def test_pieces_keep_their_order_whatever_their_size(size: int) -> None:
    async def answer() -> None:
        coalescing, written = transport()
        coalescing.write(HEAD)
        coalescing.write(b"a" * size)
        coalescing.write(b"b")
        coalescing.write(HEAD)
        coalescing.write(b"c")
        await asyncio.sleep(0)
        assert b"".join(written.pieces) == HEAD + b"a" * size + b"b" + HEAD + b"c"

    asyncio.run(answer())


def test_closing_writes_what_waits_first() -> None:
    async def answer() -> None:
        coalescing, written = transport()
        coalescing.write(HEAD)
        coalescing.write(b"body")
        coalescing.close()
        assert (written.pieces, written.closed) == ([HEAD + b"body"], True)
        await asyncio.sleep(0)
        assert written.pieces == [HEAD + b"body"]

    asyncio.run(answer())


def test_a_connection_that_was_lost_keeps_no_answer_from_others() -> None:
    async def serve() -> None:
        pairs = [transport() for _ in range(3)]
        for coalescing, _ in pairs:
            coalescing.write(HEAD)
            coalescing.write(b"body")
        pairs[0][1].closed = True
        await asyncio.sleep(0)
        pairs[0][0].write(b"more")
        assert [written.pieces for _, written in pairs] == [[], [HEAD + b"body"], [HEAD + b"body"]]

    asyncio.run(serve())


class Line(Written):
    """A connection whose client reads nothing of its own accord."""

    def __init__(self) -> None:
        super().__init__()
        self.aborted = False
        self.unread = 0

    def get_extra_info(self, _: str) -> None:
        return None

    def get_write_buffer_size(self) -> int:
        return self.unread

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def abort(self) -> None:
        self.aborted = True


class App:
    """An application that answers how long a body was, or that it stopped; other requests take for ever."""

    stall_timeout_seconds = 3600.0

    def begin_request(self) -> None: ...

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        exchange = Exchange(scope, receive, send)
        if scope["method"] != "POST":
            await asyncio.Event().wait()
        try:
            size = sum([len(chunk) async for chunk in exchange.chunks(10_000)])
            await exchange.respond(200, b"%d" % size)
        except ClientGoneError as error:
            await exchange.respond(400, str(error).encode())


def with_line(talk: Callable[[Protocol, Line], Awaitable[None]]) -> None:
    """Let a test talk to the protocol, with time passing only when it looks."""

    async def run() -> None:
        config = uvicorn.Config(App(), ws="none", proxy_headers=False, log_config=None, timeout_keep_alive=3600)
        protocol, line = Protocol(config, ServerState(), {}), Line()
        protocol.connection_made(line)  # type: ignore[arg-type]
        await talk(protocol, line)
        protocol.connection_lost(None)

    asyncio.run(run())


async def check(protocol: Protocol, times: int = CHECKS) -> None:
    for _ in range(times):
        for _ in range(5):  # what was begun goes on
            await asyncio.sleep(0)
        protocol.check_progress()
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    "sent",
    [
        [],
        [b"GET /", *[b"a"] * CHECKS],
        [GET[:-2], *[b"a"] * CHECKS],
        [b"\r\n"] * CHECKS,
        [POST + b"\r\n" + bytes(1000), b"\r\n", *[b"\r\n"] * CHECKS],
    ],
    ids=["nothing", "a path", "headers", "empty lines", "empty lines after a request"],
)
def test_a_connection_without_a_request_is_ended_whatever_else_comes(sent: list[bytes]) -> None:
    async def talk(protocol: Protocol, line: Line) -> None:
        for piece in sent:
            protocol.data_received(piece)
            await check(protocol, 1)
        await check(protocol)
        assert line.aborted

    with_line(talk)


def test_a_body_may_come_slowly_but_not_stop() -> None:
    async def talk(protocol: Protocol, line: Line) -> None:
        protocol.data_received(POST + b"\r\n")
        for _ in range(100):
            protocol.data_received(b"a")
            await check(protocol, CHECKS - 1)
        assert line.pieces == []
        await check(protocol, 1)
        assert line.pieces[0].startswith(b"HTTP/1.1 400 ")
        assert b"connection: close" in line.pieces[0]
        assert b"stall_timeout_seconds" in line.pieces[0]
        assert line.closed

    with_line(talk)


def test_no_timeout_applies_while_the_server_works() -> None:
    async def talk(protocol: Protocol, line: Line) -> None:
        protocol.data_received(GET)
        await check(protocol, 2 * CHECKS)
        assert (line.pieces, line.aborted) == ([], False)

    with_line(talk)


def test_no_body_timeout_applies_before_100_continue() -> None:
    async def talk(protocol: Protocol, line: Line) -> None:
        protocol.data_received(b"GET" + POST[4:] + b"expect: 100-continue\r\n\r\n")
        await check(protocol, 2 * CHECKS)
        assert protocol.cycle.keep_alive
        protocol.data_received(bytes(1000))

    with_line(talk)


@pytest.mark.parametrize("answered", [False, True], ids=["while more comes", "when all was sent"])
def test_an_answer_may_be_read_slowly_but_not_be_left(answered: bool) -> None:
    async def talk(protocol: Protocol, line: Line) -> None:
        protocol.data_received(POST + b"\r\n" + bytes(1000) if answered else GET)
        line.unread = 1000
        for _ in range(50):
            line.unread -= 1
            await check(protocol, CHECKS - 1)
        for _ in range(50):
            protocol.resume_writing()  # and as much was written again
            await check(protocol, CHECKS - 1)
        protocol.resume_writing()
        for _ in range(CHECKS):
            assert not line.aborted
            line.unread += 1  # the server goes on writing a little
            await check(protocol, 1)
        assert line.aborted

    with_line(talk)


def test_a_head_without_end_is_refused() -> None:
    async def talk(protocol: Protocol, line: Line) -> None:
        protocol.data_received(POST + b"\r\n" + bytes(1000))
        await check(protocol, 1)
        protocol.data_received(GET[:-2] + b"x: ")
        for _ in range(15):
            protocol.data_received(b"a" * 65536)
        assert len(line.pieces) == 1
        protocol.data_received(b"a" * 65536)
        assert line.pieces[1].startswith(b"HTTP/1.1 400 ")
        assert line.closed

    with_line(talk)
