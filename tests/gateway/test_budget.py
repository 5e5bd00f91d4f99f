"""The room for bytes on their way through a gateway."""

from __future__ import annotations

import asyncio

import pytest

from paxosblock.errors import UnavailableError
from paxosblock.gateway.budget import Budget
from tests.waiting import wait_until_async


async def test_requests_get_room_in_their_order_and_give_it_back() -> None:
    budget, order = Budget(10, wait_s=60), list[str]()
    free = {name: asyncio.Event() for name in "abc"}

    async def hold(name: str, size: int) -> None:
        async with budget.hold(size):
            order.append(name)
            await free[name].wait()

    async with asyncio.TaskGroup() as group:
        for name, size in (("a", 6), ("b", 8), ("c", 1)):
            group.create_task(hold(name, size))
            await asyncio.sleep(0)
        assert order == ["a"]  # c would fit, but b was there before
        free["a"].set()
        await wait_until_async(lambda: len(order) == 3)
        assert (order, budget.held_bytes) == (["a", "b", "c"], 9)
        free["b"].set()
        free["c"].set()
    assert budget.held_bytes == 0


async def test_a_request_without_room_is_asked_to_try_again() -> None:
    budget = Budget(10, wait_s=0.01)
    async with budget.hold(10):
        with pytest.raises(UnavailableError, match="too many files on their way"):
            async with budget.hold(1):
                pass
    async with budget.hold(1_000):  # more than all there is: it gets all of it
        assert budget.held_bytes == 10
    assert budget.held_bytes == 0


async def test_a_request_that_goes_away_lets_those_behind_it_in() -> None:
    budget, came = Budget(10, wait_s=60), asyncio.Event()

    async def hold(size: int) -> None:
        async with budget.hold(size):
            came.set()

    async with budget.hold(5):
        large = asyncio.create_task(hold(10))
        await asyncio.sleep(0)
        small = asyncio.create_task(hold(5))
        await asyncio.sleep(0)
        large.cancel()
        await asyncio.wait_for(came.wait(), 30)
        await small
    assert budget.held_bytes == 0


async def test_a_request_that_goes_away_as_it_gets_room_gives_it_back() -> None:
    budget = Budget(10, wait_s=60)

    async def hold() -> None:
        async with budget.hold(10):
            pass

    async with budget.hold(10):
        waiting = asyncio.create_task(hold())
        await asyncio.sleep(0)
    waiting.cancel()  # in the very turn in which it got it
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert budget.held_bytes == 0
