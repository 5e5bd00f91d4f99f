"""The time a node's event loop was busy with one thing, while everything else waited."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

TICK_S: Final = 0.01
STANDSTILL_S: Final = 1.0
"""A stall that is longer than this is none of ours: the process was stopped, or the machine was."""


class AwakeClock:
    """Seconds of another clock without those in which this process stood still.

    A node judges others by it. A node that stood still has not heard what they said meanwhile, so
    their silence tells nothing. The clock must be read more often than every `STANDSTILL_S`.
    """

    def __init__(self, clock_s: Callable[[], float]) -> None:
        """`clock_s` returns seconds and does not go back."""
        self._clock_s = clock_s
        self._seen_s = clock_s()
        self._still_s = 0.0

    def __call__(self) -> float:
        """Return what it shows."""
        now_s = self._clock_s()
        if now_s - self._seen_s > STANDSTILL_S:
            self._still_s += now_s - self._seen_s
        self._seen_s = now_s
        return now_s - self._still_s


class StallWatch:
    """A timer that notes how late it comes."""

    def __init__(self, clock: AwakeClock | None = None) -> None:
        """With each tick look at `clock`."""
        self._clock = clock
        self._longest_s = self._busiest_s = 0.0
        self._due_s = self._used_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Watch the running loop from now on."""
        self._due_s = time.perf_counter() + TICK_S
        self._used_s = time.thread_time()
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def stop(self) -> None:
        """Stop watching."""
        if self._timer is not None:
            self._timer.cancel()

    def take(self) -> float:
        """Return the longest delay in seconds since the last call."""
        longest_s, self._longest_s = self._longest_s, 0.0
        return longest_s

    def take_busy(self) -> float:
        """Return it in processor time of the loop's thread: without waiting for a processor, or for
        another thread."""
        busiest_s, self._busiest_s = self._busiest_s, 0.0
        return busiest_s

    def _tick(self) -> None:
        if self._clock is not None:
            self._clock()
        late_s = time.perf_counter() - self._due_s
        self._longest_s = max(self._longest_s, late_s)
        self._busiest_s = max(self._busiest_s, min(late_s, time.thread_time() - self._used_s))
        self.start()
