"""Syncs of simulated files that are under way while their processes go on, as the kernel does them.

What is written while a sync is under way need not be durable when it ends: here it never is.
"""

from __future__ import annotations

import asyncio
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
        self._count = 0
        self._closed = False

    def begin(self, file: int, done: Done) -> bool:
        if self._closed or self._count >= SYNCS_AT_ONCE or self._disk.dead:
            return False
        self._count += 1
        settle = self._disk.begin_sync(file)
        self._later(lambda: self._end(settle, done))
        return True

    def _end(self, settle: Callable[[], None], done: Done) -> None:
        self._count -= 1
        error: OSError | None = None
        try:
            settle()
        except StorageError as failure:
            cause = failure.__cause__
            error = cause if isinstance(cause, OSError) else OSError(str(failure))
        self._tell(done, error)

    def close(self) -> None:
        self._closed = True
