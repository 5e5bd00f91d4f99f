"""The calls under way on one connection: the number of each, and one timer that gives them up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

NUMBER_MAX: Final = (1 << 32) - 1
"""The greatest number that a frame has room for."""
STANDSTILL_S: Final = 0.2
"""A timer that comes so much too late tells that the loop stood still."""
READ_S: Final = 0.1
"""Seconds in which the loop then reads what came meanwhile, before any peer is given up."""


class Due(Protocol):
    """A call that is given up at `due_s` by the clock of the loop."""

    due_s: float


C = TypeVar("C", bound=Due)


class PendingCalls(Generic[C]):
    """Calls by their numbers. One timer for all: one for each costs a turn of the loop as it ends.

    If the loop stood still until later than a call was due (its process was stopped, or the machine
    is busy), it is given up a moment later: answers that came in time are still to be read, and a
    timer of a loop may come before them. That moment is given once, so a loop that is always late
    gives up, too.
    """

    __slots__ = ("_due_s", "_give_up", "_last", "_stood_still", "_timer", "by_number")

    def __init__(self, give_up: Callable[[C], None]) -> None:
        """`give_up` fails one that is due, and is no longer in `by_number`."""
        self.by_number: dict[int, C] = {}
        """Take out those that are answered."""
        self._give_up = give_up
        self._last = 0
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = 0.0  # a handle of uvloop does not always tell it
        self._stood_still = False

    def add(self, call: C) -> int:
        """Return the number of a call that begins: 1, 2, ..., and 1 again after `NUMBER_MAX`."""
        self._last = number = self._last % NUMBER_MAX + 1  # a frame with 0 is about no call
        self.by_number[number] = call
        if self._timer is None or call.due_s < self._due_s:
            self._wait_until(call.due_s)
        return number

    def end(self) -> list[C]:
        """Give none up any more, as the connection is lost; return those that get no answer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        left, self.by_number = list(self.by_number.values()), {}
        return left

    def _wait_until(self, due_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due_s = due_s
        self._timer = asyncio.get_running_loop().call_at(due_s, self._come)

    def _come(self) -> None:
        self._timer = None
        now_s = asyncio.get_running_loop().time()
        self._stood_still = not self._stood_still and now_s - self._due_s > STANDSTILL_S
        if self._stood_still:
            self._wait_until(now_s + READ_S)
            return
        calls = self.by_number
        for number in [number for number, call in calls.items() if call.due_s <= now_s]:
            self._give_up(calls.pop(number))
        if calls:
            self._wait_until(min(call.due_s for call in calls.values()))
