"""The memory budget of request bodies."""

from __future__ import annotations

import asyncio

import pytest
from lance_namespace.errors import ThrottlingError

from pennon.server.http.bodies import BodyBudget


def test_requests_wait_for_room_in_order_of_arrival() -> None:
    async def scenario() -> None:
        budget = BodyBudget(10)
        await budget.acquire(8)
        waiting = [asyncio.create_task(budget.acquire(size)) for size in (6, 1)]
        await asyncio.sleep(0)
        assert not any(task.done() for task in waiting)
        budget.remove(8)
        await asyncio.gather(*waiting)
        assert budget.used == 7

    asyncio.run(scenario())


def test_a_request_that_waits_too_long_is_throttled_and_takes_no_room() -> None:
    async def scenario() -> None:
        budget = BodyBudget(10, wait_seconds=0.01)
        await budget.acquire(8)
        with pytest.raises(ThrottlingError, match="body_memory_bytes"):
            await budget.acquire(6)
        budget.remove(8)
        await asyncio.sleep(0)
        assert budget.used == 0

    asyncio.run(scenario())


def test_a_request_cancelled_as_it_is_admitted_takes_no_room() -> None:
    async def scenario() -> None:
        budget = BodyBudget(10)
        await budget.acquire(8)
        waiting = asyncio.create_task(budget.acquire(6))
        await asyncio.sleep(0)
        waiting.cancel()
        budget.remove(8)  # admits it before the cancellation has reached it
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert budget.used == 0

    asyncio.run(scenario())
