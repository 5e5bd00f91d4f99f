"""How long to wait before the next try, and when to give up."""

from __future__ import annotations

import asyncio
import random
from typing import Final

FIRST_PAUSE_S: Final = 0.01
LONGEST_PAUSE_S: Final = 1.0


class Backoff:
    """Pauses that double from 10 ms to `longest_s`, until `give_up_s` seconds have passed.

    Each pause is shortened by up to a quarter at random, so that clients do not come in step.
    """

    def __init__(self, give_up_s: float, longest_s: float = LONGEST_PAUSE_S) -> None:
        self._clock = asyncio.get_running_loop().time
        self._deadline = self._clock() + give_up_s
        self._longest_s = longest_s
        self._pause_s = FIRST_PAUSE_S

    @property
    def left_s(self) -> float:
        """Seconds until it is time to give up; not above zero when it is."""
        return self._deadline - self._clock()

    @property
    def exhausted(self) -> bool:
        """True if it is time to give up."""
        return self.left_s <= 0

    def reset(self) -> None:
        """Something moved on: the next pause is short again (the deadline stays)."""
        self._pause_s = FIRST_PAUSE_S

    async def pause(self) -> None:
        """Wait before the next try, at most until the deadline."""
        pause_s = self._pause_s * (1 - random.random() / 4)
        self._pause_s = min(self._pause_s * 2, self._longest_s)
        await asyncio.sleep(max(0.0, min(pause_s, self.left_s)))
