"""One timer for all calls of a connection: one for each costs a turn of the loop when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

STANDSTILL_S: Final = 0.2
"""A timer that comes so much too late tells that the loop stood still."""
READ_S: Final = 0.1
"""Seconds in which the loop then reads what came meanwhile, before any peer is given up."""


class DueTimer:
    """Calls back at the earliest time that it was told.

    If the loop stood still until later (its process was stopped, or the machine is busy), it calls
    back a moment later: answers that came in time are still to be read, and a timer of a loop may
    come before them. That moment is given once, so a loop that is always late gives up, too.
    """

    def __init__(self, give_up_due: Callable[[], None]) -> None:
        """`give_up_due` gives up what is due, and tells the next time."""
        self._give_up_due = give_up_due
        self._handle: asyncio.TimerHandle | None = None
        self._due_s = 0.0  # a handle of uvloop does not always tell it
        self._stood_still = False

    def set_by(self, due_s: float) -> None:
        """Call back at `due_s` by the clock of the loop, or before."""
        if self._handle is None or due_s < self._due_s:
            self.cancel()
            self._due_s = due_s
            self._handle = asyncio.get_running_loop().call_at(due_s, self._come)

    def cancel(self) -> None:
        """Call back no more."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _come(self) -> None:
        self._handle = None
        now_s = asyncio.get_running_loop().time()
        self._stood_still = not self._stood_still and now_s - self._due_s > STANDSTILL_S
        if self._stood_still:
            self.set_by(now_s + READ_S)
        else:
            self._give_up_due()
