"""The wait before the next try, and when to give up."""

from __future__ import annotations

import asyncio
from typing import Final

from paxosblock.net.calls.leader_search import pauses_s

LONGEST_PAUSE_S: Final = 1.0


class Backoff:
    """Pauses as `pauses_s` says, until `give_up_s` seconds have passed."""

    def __init__(self, give_up_s: float, longest_s: float = LONGEST_PAUSE_S) -> None:
        self._clock = asyncio.get_running_loop().time
        self._deadline = self._clock() + give_up_s
        self._longest_s = longest_s
        self._pauses = pauses_s(longest_s)

    @property
    def left_s(self) -> float:
        """Seconds until it is time to give up; not above zero when it is."""
        return self._deadline - self._clock()

    @property
    def exhausted(self) -> bool:
        """True if it is time to give up."""
        return self.left_s <= 0

    def reset(self) -> None:
        """Note progress: the next pause is short again (the deadline stays)."""
        self._pauses = pauses_s(self._longest_s)

    async def pause(self) -> None:
        """Wait before the next try, at most until the deadline."""
        await asyncio.sleep(max(0.0, min(next(self._pauses), self.left_s)))
