"""Limits work to a number of bytes per second, so that others get the rest."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Final

from paxosblock.base.units import MIB

GIVES_WAY: Final = 4
"""The rate is divided by this while it gives way: a copy never stands still."""
LEAST_BYTES_PER_S: Final = MIB
"""The lowest rate: at a lower one a piece of a copy would take longer than its receiver waits."""


class Throttle:
    """Makes callers of `take` wait for each other, so that together they keep to a rate, which is
    lower while `gives_way()`.

    A caller after a pause goes on at once: time that was not used is not kept for later.
    """

    def __init__(
        self, bytes_per_s: float = math.inf, gives_way: Callable[[], bool] = lambda: False
    ) -> None:
        """Start idle."""
        self._bytes_per_s = bytes_per_s
        self._gives_way = gives_way
        self._free_s = 0.0
        """The loop's time at which everything taken so far has passed."""

    @property
    def bytes_per_s(self) -> float:
        """The rate at this moment."""
        if not self._gives_way():
            return self._bytes_per_s
        return min(self._bytes_per_s, max(LEAST_BYTES_PER_S, self._bytes_per_s / GIVES_WAY))

    async def take(self, size_bytes: int) -> None:
        """Return once `size_bytes` fit the rate, after the bytes that others took before."""
        now_s = asyncio.get_running_loop().time()
        begin_s = max(self._free_s, now_s)
        self._free_s = begin_s + size_bytes / self.bytes_per_s
        if begin_s > now_s:
            await asyncio.sleep(begin_s - now_s)
