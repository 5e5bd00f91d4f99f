"""A stall of the event loop is seen, and told once."""

from __future__ import annotations

import subprocess
import threading
import time

from paxosblock.host.stall import AwakeClock, StallWatch
from tests.waiting import wait_until_async


def work_without_a_pause() -> None:
    """Use 0.2 s of processor time."""
    ends = time.process_time() + 0.2
    while time.process_time() < ends:
        pass


def wait_without_work() -> None:
    """Do nothing for 0.2 s, as for want of a processor."""
    subprocess.run(["sleep", "0.2"], check=True)


async def test_the_longest_stall_since_the_last_look_is_told() -> None:
    watch = StallWatch()
    watch.start()
    work_without_a_pause()
    seen: list[float] = []

    def noticed() -> bool:
        seen.append(watch.take())
        return seen[-1] > 0.15

    await wait_until_async(noticed)
    watch.stop()
    assert watch.take() < seen[-1]
    assert 0.15 < watch.take_busy() <= seen[-1]
    assert watch.take_busy() == 0


def test_a_clock_by_which_others_are_judged_stands_while_its_process_does_not_run() -> None:
    shown_s = 1000.0
    clock = AwakeClock(lambda: shown_s)
    assert clock() == 1000.0
    for _ in range(10):
        shown_s += 0.5
        clock()
    assert clock() == 1005.0
    shown_s += 3600.0
    assert clock() == 1005.0, "nobody was heard of meanwhile"
    shown_s += 0.5
    assert clock() == 1005.5


async def test_a_watch_looks_at_the_clock_with_each_tick() -> None:
    looks = 0

    def look() -> float:
        nonlocal looks
        looks += 1
        return 0.0

    watch = StallWatch(AwakeClock(look))
    watch.start()
    await wait_until_async(lambda: looks > 5)
    watch.stop()


async def test_a_stall_without_work_is_not_called_busy() -> None:
    watch = StallWatch()
    watch.start()
    wait_without_work()
    await wait_until_async(lambda: watch.take() > 0.15)
    watch.stop()
    assert watch.take_busy() < 0.15


async def test_the_work_of_another_thread_is_not_the_loops() -> None:
    """As that of a database, which tidies up beside the loop."""
    watch = StallWatch()
    worker = threading.Thread(target=work_without_a_pause)
    watch.start()
    worker.start()
    wait_without_work()
    worker.join()
    await wait_until_async(lambda: watch.take() > 0.15)
    watch.stop()
    assert watch.take_busy() < 0.15
