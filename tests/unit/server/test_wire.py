"""Heads and bodies of answers leave together, small answers at the end of the loop's turn, in their order."""

from __future__ import annotations

import asyncio

import pytest

from pennon.server.wire import JoiningTransport

HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


class Written:
    """A transport that remembers what was written."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.closed = False

    def is_closing(self) -> bool:
        return self.closed

    def write(self, data: bytes) -> None:
        self.pieces.append(bytes(data))

    def close(self) -> None:
        self.closed = True


def transport() -> tuple[JoiningTransport, Written]:
    written = Written()
    return JoiningTransport(written), written


def test_head_and_body_leave_together_at_the_end_of_the_turn() -> None:
    async def answer() -> None:
        joining, written = transport()
        joining.write(HEAD)
        joining.write(b"body")
        assert written.pieces == []
        await asyncio.sleep(0)
        assert written.pieces == [HEAD + b"body"]

    asyncio.run(answer())


def test_answers_of_one_turn_are_written_when_all_of_them_are_made() -> None:
    async def answer(number: int, made: list[int], written: Written, joining: JoiningTransport) -> None:
        made.append(number)
        joining.write(HEAD)
        joining.write(b"%d" % number)
        assert written.pieces == [], "another answer was still to be made"

    async def serve() -> None:
        pairs = [transport() for _ in range(5)]
        made: list[int] = []
        await asyncio.gather(*(answer(at, made, written, joining) for at, (joining, written) in enumerate(pairs)))
        await asyncio.sleep(0)
        assert made == list(range(5))
        assert [written.pieces for _, written in pairs] == [[HEAD + b"%d" % at] for at in range(5)]

    asyncio.run(serve())


def test_a_head_alone_is_an_answer() -> None:
    async def answer() -> None:
        joining, written = transport()
        joining.write(HEAD)
        joining.end()
        await asyncio.sleep(0)
        assert written.pieces == [HEAD]

    asyncio.run(answer())


@pytest.mark.parametrize("size", [1, 64 * 1024, 64 * 1024 + 1, 1024 * 1024])
def test_pieces_keep_their_order_whatever_their_size(size: int) -> None:
    async def answer() -> None:
        joining, written = transport()
        joining.write(HEAD)
        joining.write(b"a" * size)
        joining.write(b"b")
        joining.write(HEAD)
        joining.write(b"c")
        await asyncio.sleep(0)
        assert b"".join(written.pieces) == HEAD + b"a" * size + b"b" + HEAD + b"c"

    asyncio.run(answer())


def test_closing_writes_what_waits_first() -> None:
    async def answer() -> None:
        joining, written = transport()
        joining.write(HEAD)
        joining.write(b"body")
        joining.close()
        assert (written.pieces, written.closed) == ([HEAD + b"body"], True)
        await asyncio.sleep(0)
        assert written.pieces == [HEAD + b"body"]

    asyncio.run(answer())
