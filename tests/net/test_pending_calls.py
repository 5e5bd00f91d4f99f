"""Calls are numbered, and not given up for the time in which our own loop stood still; in virtual
time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from paxosblock.net.pending_calls import NUMBER_MAX, READ_S, STANDSTILL_S, PendingCalls
from tests.raft.virtual_time import VirtualTimeLoop


@dataclass
class Call:
    due_s: float


@pytest.fixture
def loop() -> Iterator[VirtualTimeLoop]:
    loop = VirtualTimeLoop()
    yield loop
    loop.close()
    assert loop.lost == []


def test_each_is_given_up_when_it_is_due(loop: VirtualTimeLoop) -> None:
    async def run() -> None:
        came: list[tuple[float, float]] = []
        begun_s = loop.time()
        pending = PendingCalls[Call](
            lambda call: came.append((call.due_s - begun_s, loop.time() - begun_s))
        )
        numbers = [pending.add(Call(begun_s + due_s)) for due_s in (3.0, 1.0, 2.0, 4.0)]
        assert numbers == [1, 2, 3, 4]
        assert pending.by_number.pop(3).due_s == begun_s + 2.0
        await loop.pass_time(3.5)
        assert came == [pytest.approx((due_s, due_s)) for due_s in (1.0, 3.0)]
        assert pending.end() == [Call(begun_s + 4.0)]
        await loop.pass_time(1.0)
        assert len(came) == 2

    loop.run_until_complete(run())


def test_no_call_has_the_number_that_is_about_the_connection(loop: VirtualTimeLoop) -> None:
    async def run() -> None:
        pending = PendingCalls[Call](lambda call: None)
        pending._last = NUMBER_MAX - 1
        assert [pending.add(Call(1.0)) for _ in range(3)] == [NUMBER_MAX, 1, 2]
        pending.end()

    loop.run_until_complete(run())


@pytest.mark.parametrize("stood_still_s", [2 * STANDSTILL_S, 86_400.0])
def test_what_came_while_the_loop_stood_still_is_read_first(
    loop: VirtualTimeLoop, stood_still_s: float
) -> None:
    async def run() -> None:
        came: list[str] = []
        pending = PendingCalls[Call](lambda call: came.append("given up"))
        pending.add(Call(loop.time() + 1.0))
        loop.now += 1.0 + stood_still_s
        await loop.pass_time(READ_S / 2)
        came.append("an answer that was there")
        await loop.pass_time(READ_S)
        assert came == ["an answer that was there", "given up"]

    loop.run_until_complete(run())


def test_a_loop_that_is_always_late_gives_up_all_the_same(loop: VirtualTimeLoop) -> None:
    async def run() -> None:
        came: list[Call] = []
        pending = PendingCalls[Call](came.append)
        pending.add(Call(loop.time() + 1.0))
        for _ in range(2):
            loop.now += 10.0
            await loop.pass_time(0.01)
        assert len(came) == 1

    loop.run_until_complete(run())
