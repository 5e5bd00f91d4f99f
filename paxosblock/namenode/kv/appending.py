"""Appending to a journal from the event loop.

The kernel waits for the disk where it does that (`kernel_syncs.py`). A thread that waits costs two
changes of threads for each batch, and the interpreter's lock again after each call of the system:
on two cores more than all else that a small change takes. Where the kernel does not, and for what
is rare, such as a new segment, it is the thread that does whatever else blocks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor

from paxosblock.kernel_syncs import KernelSyncs
from paxosblock.namenode.kv.journal import Journal


class Appending:
    """The appends to one journal, one after the other."""

    def __init__(self, journal: Journal, executor: Executor, kernel: KernelSyncs | None) -> None:
        """Sync by the `kernel`, which is closed with this; without one in the only thread of
        `executor`, where all else is done that the journal blocks for."""
        self._journal = journal
        self._executor = executor
        self._kernel = kernel
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def next_index(self) -> int:
        """Index of the entry that is appended next; none is being appended."""
        return self._journal.next_index

    def begin(self, entries: Sequence[bytes]) -> asyncio.Future[int]:
        """Append as `Journal.append`; the future gets what that returns or raises."""
        loop = asyncio.get_running_loop()
        appended: asyncio.Future[int] = loop.create_future()

        def done(found: int | Exception) -> None:
            self._idle.set()
            if appended.done():  # whoever waited was cancelled
                return
            if isinstance(found, int):
                appended.set_result(found)
            else:
                appended.set_exception(found)

        try:
            if self._kernel is not None and self._journal.begin_append(entries, self._kernel, done):
                self._idle.clear()
                return appended
        except Exception as error:  # it is told where all others are
            done(error)
            return appended
        return loop.run_in_executor(self._executor, self._journal.append, entries)

    async def close(self) -> None:
        """Wait until the kernel appends nothing any more."""
        await self._idle.wait()
        if self._kernel is not None:
            self._kernel.close()
