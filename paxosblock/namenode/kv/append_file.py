"""Appending to a journal from the event loop.

The kernel waits for the disk if it can (`kernel_syncs.py`). A thread that waits costs two changes
of threads for each batch, and takes the interpreter's lock after each system call: on two cores
that is more than all else that a small change takes. If the kernel cannot, and for rare work such
as a new segment, the thread does it that does all other work that blocks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Final

from paxosblock.base.units import KIB
from paxosblock.errors import NoSpaceError
from paxosblock.host.kernel_syncs import KernelSyncs
from paxosblock.namenode.kv.journal import Journal

LOOP_BYTES: Final = 256 * KIB
"""Longest batch that the event loop writes: the system takes some milliseconds for each MiB, where
memory that holds new data is dear."""


class Appending:
    """Appends to one journal, one batch after the other."""

    def __init__(self, journal: Journal, executor: Executor, kernel: KernelSyncs | None) -> None:
        """Let the `kernel` sync, which is closed with this object; without it sync in the only
        thread of `executor`, which does all other blocking work on the journal."""
        self._journal = journal
        self._executor = executor
        self._kernel = kernel
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def next_index(self) -> int:
        """Return the index of the next entry; no entry is being appended."""
        return self._journal.next_index

    def begin(self, entries: Sequence[bytes]) -> asyncio.Future[int]:
        """Append as `Journal.append`; the future gets what that returns or raises."""
        loop, journal, kernel = asyncio.get_running_loop(), self._journal, self._kernel
        taking = journal.log.taking
        assert taking is not None, "a journal has begun a segment"
        if (
            kernel is None
            or taking.end >= journal.segment_bytes
            or sum(map(len, entries)) > LOOP_BYTES
        ):
            return loop.run_in_executor(self._executor, journal.append, entries)
        appended: asyncio.Future[int] = loop.create_future()
        size_bytes = 0

        def done(error: Exception | None) -> None:
            self._idle.set()
            if error is None:
                journal.next_index += len(entries)
            if appended.done():  # the task that waited was cancelled
                return
            if error is None:
                appended.set_result(size_bytes)
            else:
                appended.set_exception(error)

        try:
            size_bytes = journal.write(entries)
        except NoSpaceError:  # the thread says so, or finds room
            return loop.run_in_executor(self._executor, journal.append, entries)
        except Exception as error:  # the future reports it, as it does all others
            done(error)
            return appended
        if journal.log.begin_sync(kernel, done):
            self._idle.clear()
            return appended
        count = len(entries)
        return loop.run_in_executor(self._executor, journal.finish, count, size_bytes)

    async def close(self) -> None:
        """Wait for an append that is under way, and release the kernel's part."""
        await self._idle.wait()
        if self._kernel is not None:
            self._kernel.close()
