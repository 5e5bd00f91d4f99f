"""A stall of the event loop is seen, and told once."""

from __future__ import annotations

import time

from paxosblock.stall import StallWatch
from tests.waiting import wait_until_async


def work_without_a_pause(seconds: float) -> None:
    ends = time.perf_counter() + seconds
    while time.perf_counter() < ends:
        pass


async def test_the_longest_stall_since_the_last_look_is_told() -> None:
    watch = StallWatch()
    watch.start()
    work_without_a_pause(0.2)
    seen: list[float] = []

    def noticed() -> bool:
        seen.append(watch.take())
        return seen[-1] > 0.15

    await wait_until_async(noticed)
    assert watch.take() < seen[-1]
    watch.stop()
