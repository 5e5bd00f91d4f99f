"""Counts of durations, for a histogram on `/metrics`."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from typing import Final

BOUNDS_S: Final = (
    *(0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
"""The longest duration of each count, in seconds; one more counts what took longer."""


class Durations:
    """Counts durations by length. What is on the way of a chunk or a change adds to the two
    attributes itself, as `note` does: it takes no call then."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        """Start with none."""
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0

    def note(self, took_s: float) -> None:
        """Count one."""
        self.counts[bisect_left(BOUNDS_S, took_s)] += 1
        self.sum_s += took_s

    @property
    def count(self) -> int:
        """Return how many were counted."""
        return sum(self.counts)

    def within_s(self, share: float) -> float | None:
        """Return the least bound in seconds within which so large a `share` of them was, None if
        that is longer than any bound, or none was counted."""
        wanted = share * self.count
        reached = zip(BOUNDS_S, accumulate(self.counts), strict=False)
        return next((bound for bound, count in reached if count >= wanted and count), None)
