"""The room for bytes on their way through a gateway."""

from __future__ import annotations

import asyncio

import pytest

from paxosblock.errors import UnavailableError
from paxosblock.gateway.budget import Budget
from tests.waiting import wait_until_async


async def test_requests_get_room_in_their_order_and_give_it_back() -> None:
    budget, order = Budget(11, wait_s=60), list[str]()
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
    async with budget.hold(1_000):  # more than all there is: it gets all that one can get
        assert budget.held_bytes == 9
    assert budget.held_bytes == 0


async def test_a_request_that_goes_away_lets_those_behind_it_in() -> None:
    budget, came = Budget(10, wait_s=60), asyncio.Event()

    async def hold(size: int) -> None:
        async with budget.hold(size):
            came.set()

    async with budget.hold(5):
        large = asyncio.create_task(hold(9))
        await asyncio.sleep(0)
        small = asyncio.create_task(hold(4))
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


async def test_a_request_that_went_away_before_it_got_room_gives_none_back() -> None:
    """As it did the budget grew by what it had asked for, with each program that left."""
    budget = Budget(10, wait_s=60)

    async def hold() -> None:
        async with budget.hold(9):
            pass

    async with budget.hold(9):
        waiting = asyncio.create_task(hold())
        await asyncio.sleep(0)
        waiting.cancel()  # and in the very turn in which there is room
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert budget.held_bytes == 0


async def test_what_came_with_those_who_wait_counts_and_has_a_bound_of_its_own() -> None:
    budget = Budget(80, wait_s=60)  # 10 of them are for what came

    async def hold(size_bytes: int, arrived_bytes: int) -> None:
        async with budget.hold(size_bytes, arrived_bytes):
            assert budget.held_bytes <= 80

    async with asyncio.TaskGroup() as group, budget.hold(70):
        for _ in range(2):
            group.create_task(hold(70, 5))
        await wait_until_async(lambda: budget.held_bytes == 80)
        with pytest.raises(UnavailableError, match="too many files on their way"):
            await hold(1, 1)
        group.create_task(hold(1, 0))  # nothing came with it: it may wait
        await asyncio.sleep(0)
        assert budget.held_bytes == 80
    assert budget.held_bytes == 0


async def test_one_request_may_wait_whatever_came_with_it() -> None:
    budget = Budget(8, wait_s=60)

    async def hold() -> None:
        async with budget.hold(7, arrived_bytes=100):
            assert budget.held_bytes == 7

    async with asyncio.TaskGroup() as group, budget.hold(7):
        group.create_task(hold())
        await wait_until_async(lambda: budget.held_bytes == 107)
    assert budget.held_bytes == 0
