"""The time to wait for others, and by which clock. Nothing here does I/O."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

T = TypeVar("T")

MEAN_GAIN: Final = 1 / 8
DEVIATION_GAIN: Final = 1 / 4
DEVIATIONS: Final = 4


class AdaptiveTimeout:
    """The wait for what usually comes sooner: the retransmission timer of RFC 6298.

    It follows what was measured: the mean and four times the mean deviation from it, between two
    bounds. In vain, it doubles until something comes again.
    """

    def __init__(self, least_s: float, most_s: float) -> None:
        """Never less than `least_s` seconds, and never more than `most_s`."""
        self._least_s = min(least_s, most_s)
        self._most_s = most_s
        self._mean_s: float | None = None
        self._deviation_s = 0.0
        self._factor = 1

    def __repr__(self) -> str:
        return f"<AdaptiveTimeout {self.seconds:.3g} s>"

    @property
    def seconds(self) -> float:
        """Return how long to wait now."""
        return min(self._most_s, max(self._least_s, self.usual_s) * self._factor)

    @property
    def usual_s(self) -> float:
        """Return within how many seconds it nearly always came so far."""
        return (self._mean_s or 0.0) + DEVIATIONS * self._deviation_s

    def observe(self, took_s: float) -> None:
        """Note that what was waited for came after `took_s` seconds."""
        self._factor = 1
        if self._mean_s is None:
            self._mean_s, self._deviation_s = took_s, took_s / 2
            return
        error_s = took_s - self._mean_s
        self._deviation_s += (abs(error_s) - self._deviation_s) * DEVIATION_GAIN
        self._mean_s += error_s * MEAN_GAIN

    def back_off(self) -> None:
        """Wait for twice as long the next time: it did not come."""
        if self.seconds < self._most_s:
            self._factor *= 2


LATE_TURNS: Final = 4
"""Turns of its loop that a node on a machine as busy as ours needs to answer, each as late as ours.
"""
LATEST_S: Final = 0.5
"""A turn that came later than this says that our process stood still, and not how busy we are."""
LATENESS_LOSS: Final = 1 / 4
"""Share of a lateness that a tick in time takes away."""


class RunningClock:
    """A clock of the time in which this process ran, for judging others by.

    It moves in ticks. When a tick comes late, this process stood still (it was stopped, its loop
    was kept busy, the machine slept), and has not read yet what others sent meanwhile. So the clock
    moves on by one tick only, and no other process is judged before the next one. That one judges
    even if it is late, too: a loop that is always busy also reads everything that comes between two
    ticks.
    """

    def __init__(self, tick_s: float) -> None:
        """Make a clock that stands while no caller looks."""
        self.tick_s = tick_s
        self.now_s = 0.0
        """Seconds, as of the last tick."""
        self._late_s = 0.0
        self._judges: dict[object, Callable[[], None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._ticked_at = 0.0
        self._stood_still = False

    @property
    def allowance_s(self) -> float:
        """Return the seconds by which others may be late because the machine is busy.

        It is what our own ticks tell: a process that gets no processor for a while hears late of
        others, and those on the same machine, or one like it, are late as well. What is slow is not
        dead.
        """
        return LATE_TURNS * self._late_s

    async def within(self, seconds: float, work: Awaitable[T]) -> T:
        """Return what `work` returns.

        Raises TimeoutError, and cancels `work`, when it took longer than `seconds` by this clock,
        and than others may be late.
        """
        begun_s = self.now_s

        def judge() -> None:
            if self.now_s - begun_s > seconds + self.allowance_s:
                self.unwatch(limit)
                limit.reschedule(asyncio.get_running_loop().time())

        async with asyncio.timeout(None) as limit:
            self.watch(limit, judge)
            try:
                return await work
            finally:
                self.unwatch(limit)

    def watch(self, who: object, judge: Callable[[], None]) -> None:
        """Call `judge` at each tick but one that follows a standstill, until `unwatch(who)`."""
        self._judges[who] = judge
        if self._timer is None:
            self._wait()

    def unwatch(self, who: object) -> None:
        """Note that `who` no longer waits for any process."""
        self._judges.pop(who, None)
        if not self._judges and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def stop(self) -> None:
        """Forget all who wait."""
        for who in tuple(self._judges):
            self.unwatch(who)

    def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        self._ticked_at = loop.time()
        self._timer = loop.call_later(self.tick_s, self._tick)

    def _tick(self) -> None:
        elapsed_s = asyncio.get_running_loop().time() - self._ticked_at
        self.now_s += min(elapsed_s, self.tick_s)
        late_s = min(elapsed_s - self.tick_s, LATEST_S)
        self._late_s = max(late_s, self._late_s * (1 - LATENESS_LOSS))
        self._wait()
        stood_still_before, self._stood_still = self._stood_still, elapsed_s > 2 * self.tick_s
        if stood_still_before or not self._stood_still:
            for judge in tuple(self._judges.values()):
                judge()
