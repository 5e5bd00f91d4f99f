"""The pace of work in the last minute, which tells when the rest will be done."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

LATELY_S: Final = 60.0
NOTED_MAX: Final = 1000
"""Steps that are remembered; faster work is judged by fewer seconds."""


class RecentRate:
    """The rate of work that is done in steps of different sizes."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        """Start without any; `clock_s` must not go back."""
        self._clock_s = clock_s
        self._done: deque[tuple[float, int]] = deque(maxlen=NOTED_MAX)

    def note(self, size_bytes: int) -> None:
        """Note a step that ends now."""
        self._done.append((self._clock_s(), size_bytes))

    def lately(self) -> tuple[float, float]:
        """Return steps and bytes per second of the last minute; 0 without two of them."""
        now_s = self._clock_s()
        while self._done and self._done[0][0] < now_s - LATELY_S:
            self._done.popleft()
        if len(self._done) < 2 or now_s <= self._done[0][0]:
            return 0.0, 0.0
        # The first step began before what is counted.
        took_s, steps = now_s - self._done[0][0], len(self._done) - 1
        size_bytes = sum(each for _, each in self._done) - self._done[0][1]
        return steps / took_s, size_bytes / took_s
