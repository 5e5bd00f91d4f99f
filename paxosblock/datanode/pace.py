"""Work that must not take more than so many bytes per second from others."""

from __future__ import annotations

import asyncio
import math


class Pace:
    """Lets those who `take` bytes wait for each other, so that all together keep to a rate.

    Whoever comes after a pause is served at once: time that nobody used is not kept for later.
    """

    def __init__(self, bytes_per_s: float = math.inf) -> None:
        """Begin with nothing taken."""
        self.bytes_per_s = bytes_per_s
        self._free_s = 0.0
        """The time of the loop at which all is over that was taken up to now."""

    async def take(self, size_bytes: int) -> None:
        """Return once `size_bytes` fit the rate, after what others took before."""
        now_s = asyncio.get_running_loop().time()
        begin_s = max(self._free_s, now_s)
        self._free_s = begin_s + size_bytes / self.bytes_per_s
        if begin_s > now_s:
            await asyncio.sleep(begin_s - now_s)
