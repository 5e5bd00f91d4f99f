"""Calls are not given up for the time in which our own loop stood still; in virtual time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from paxosblock.host.due_timer import READ_S, STANDSTILL_S, DueTimer
from tests.raft.virtual_time import VirtualTimeLoop


@pytest.fixture
def loop() -> Iterator[VirtualTimeLoop]:
    loop = VirtualTimeLoop()
    yield loop
    loop.close()
    assert loop.lost == []


def test_it_comes_at_the_earliest_time_that_it_was_told(loop: VirtualTimeLoop) -> None:
    async def run() -> None:
        came: list[float] = []
        begun_s = loop.time()
        timer = DueTimer(lambda: came.append(loop.time() - begun_s))
        for due_s in (3.0, 1.0, 2.0):
            timer.set_by(begun_s + due_s)
        await loop.pass_time(5.0)
        assert came == [pytest.approx(1.0)]

    loop.run_until_complete(run())


@pytest.mark.parametrize("stood_still_s", [2 * STANDSTILL_S, 86_400.0])
def test_what_came_while_the_loop_stood_still_is_read_first(
    loop: VirtualTimeLoop, stood_still_s: float
) -> None:
    async def run() -> None:
        came: list[str] = []
        timer = DueTimer(lambda: came.append("given up"))
        timer.set_by(loop.time() + 1.0)
        loop.now += 1.0 + stood_still_s
        await loop.pass_time(READ_S / 2)
        came.append("an answer that was there")
        await loop.pass_time(READ_S)
        assert came == ["an answer that was there", "given up"]

    loop.run_until_complete(run())


def test_a_loop_that_is_always_late_gives_up_all_the_same(loop: VirtualTimeLoop) -> None:
    async def run() -> None:
        came: list[float] = []
        timer = DueTimer(lambda: came.append(loop.time()))
        timer.set_by(loop.time() + 1.0)
        for _ in range(2):
            loop.now += 10.0
            await loop.pass_time(0.01)
        assert len(came) == 1

    loop.run_until_complete(run())
