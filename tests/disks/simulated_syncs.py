"""Syncs of simulated files that are under way while their processes go on, as the kernel does them.

What is written while a sync is under way need not be durable when it ends: here it never is.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

from paxosblock.errors import StorageError
from paxosblock.host.kernel_syncs import SYNCS_AT_ONCE, Done, KernelSyncs
from tests.disks.simulated import SimulatedDisk

Later = Callable[[Callable[[], None]], object]
"""Lets the disk do something some time."""
Tell = Callable[[Done, OSError | None], object]
"""Lets a process hear of the end of a sync."""


class SimulatedSyncs(KernelSyncs):
    """The syncs of one process on one disk."""

    def __init__(self, disk: SimulatedDisk, later: Later, tell: Tell | None = None) -> None:
        """Each ends when `later` does what it is given; then the process hears of it by `tell`, or
        in the next turn of its loop."""
        self._disk = disk
        self._later = later
        self._tell = tell or asyncio.get_running_loop().call_soon
        self._begun: dict[int, tuple[Callable[[], None], Done]] = {}
        self._numbers = itertools.count()
        self._closed = False

    def begin(self, file: int, done: Done) -> bool:
        if self._closed or len(self._begun) >= SYNCS_AT_ONCE or self._disk.dead:
            return False
        number = next(self._numbers)
        self._begun[number] = self._disk.begin_sync(file), done
        self._later(lambda: self._end(number, self._tell))
        return True

    def end_one(self) -> bool:
        """End the oldest sync, and let the process hear of it at once: it waits for that, and
        nothing else can happen meanwhile. False if there is none."""
        for number in self._begun:
            self._end(number, lambda done, error: done(error))
            return True
        return False

    def _end(self, number: int, tell: Tell) -> None:
        if number in self._begun:
            settle, done = self._begun.pop(number)
            tell(done, _failure(settle))

    def close(self) -> None:
        self._closed = True


def _failure(settle: Callable[[], None]) -> OSError | None:
    try:
        settle()
    except StorageError as error:
        cause = error.__cause__
        return cause if isinstance(cause, OSError) else OSError(str(error))
    return None
