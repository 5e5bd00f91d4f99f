"""The time to wait for others, and by which clock. Nothing here does I/O."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

MEAN_GAIN: Final = 1 / 8
DEVIATION_GAIN: Final = 1 / 4
DEVIATIONS: Final = 4


class Patience:
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
        return f"<Patience {self.seconds:.3g} s>"

    @property
    def seconds(self) -> float:
        """Return how long to wait now."""
        usual_s = (self._mean_s or 0.0) + DEVIATIONS * self._deviation_s
        return min(self._most_s, max(self._least_s, usual_s) * self._factor)

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


class RunningClock:
    """A clock of the time in which this process ran, for judging others by.

    It moves in ticks. When a tick comes late, this process stood still (it was stopped, its loop
    was kept busy, the machine slept), and has not read yet what others sent meanwhile. So the clock
    moves on by one tick only, and nobody is judged before the next one. That one judges even if it
    is late, too: a loop that is always busy also reads everything that comes between two ticks.
    """

    def __init__(self, tick_s: float) -> None:
        """Make a clock that stands while nobody looks."""
        self.tick_s = tick_s
        self.now_s = 0.0
        """Seconds, as of the last tick."""
        self._lookers: dict[object, Callable[[], None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._ticked_at = 0.0
        self._stood_still = False

    def look(self, who: object, judge: Callable[[], None]) -> None:
        """Call `judge` at each tick but one that follows a standstill, until `who` looks away."""
        self._lookers[who] = judge
        if self._timer is None:
            self._wait()

    def look_away(self, who: object) -> None:
        """Note that `who` no longer waits for anybody."""
        self._lookers.pop(who, None)
        if not self._lookers and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        self._ticked_at = loop.time()
        self._timer = loop.call_later(self.tick_s, self._tick)

    def _tick(self) -> None:
        elapsed_s = asyncio.get_running_loop().time() - self._ticked_at
        self.now_s += min(elapsed_s, self.tick_s)
        self._wait()
        stood_still_before, self._stood_still = self._stood_still, elapsed_s > 2 * self.tick_s
        if stood_still_before or not self._stood_still:
            for judge in tuple(self._lookers.values()):
                judge()
