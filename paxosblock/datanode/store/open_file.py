"""A block file that is open for writes, and closed only when it is no longer in use.

A sync or a read of a file may still run in a thread when it is retired; until then its descriptor
must not go to another file. Users are counted on the event loop only; syncs run beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from paxosblock.base.checksum import Buffer
from paxosblock.errors import PaxosBlockError
from paxosblock.host.disk import Disk, FileHandle
from paxosblock.host.kernel_syncs import KernelSyncs, SyncGuard


class OpenFile:
    """One open file."""

    __slots__ = (
        "_disk",
        "_guard",
        "_retired",
        "_synced",
        "_users",
        "_writes",
        "handle",
    )

    def __init__(self, disk: Disk, handle: FileHandle) -> None:
        self.handle = handle
        self._disk = disk
        self._users = 0
        self._retired = False
        self._guard = SyncGuard()
        self._writes = 1  # a process that opens it does not know of those before
        self._synced = 0
        """So many of the writes are on stable storage."""

    def write(self, data: Buffer, offset: int) -> None:
        """As `Disk.write`."""
        self._disk.write(self.handle, data, offset)
        self._writes += 1  # after it: a sync that runs may not have it

    def sync(self) -> None:
        """Bring what was written to stable storage, unless it is there. Blocks.

        Raises:
            StorageError: this sync or an earlier one failed.
        """
        self._bring(self._sync)

    def _sync(self) -> None:
        writes = self._writes
        if self._synced < writes:
            self._disk.sync(self.handle)
            self._synced = writes

    def write_out(self) -> None:
        """Bring the written bytes to the disk, as `sync` does; but only `sync` makes sure that they
        are found again.
        """
        self._bring(partial(self._disk.write_out, self.handle))

    def _bring(self, step: Callable[[], None]) -> None:
        self._guard.run(step)

    def begin_sync(
        self, kernel: KernelSyncs, done: Callable[[PaxosBlockError | None], None]
    ) -> bool:
        """As `sync` by the kernel; the event loop calls `done` with what `sync` would raise.

        Return False if `sync` has to do it, without calling `done`: a thread syncs this file now, a
        sync of it failed before, or the kernel refuses.
        """
        writes = self._writes

        def note() -> None:
            self._synced = max(self._synced, writes)

        return self._guard.begin(self.handle, kernel, note, done)

    @contextmanager
    def used(self) -> Iterator[FileHandle]:
        """Keep the file open within a `with`."""
        self.borrow()
        try:
            yield self.handle
        finally:
            self.release()

    def borrow(self) -> None:
        """Keep the file open until `release`."""
        assert not self._retired, "a retired file gets no new user"
        self._users += 1

    def release(self) -> None:
        """End a `borrow`."""
        self._users -= 1
        if self._retired:
            self._close_if_idle()

    def retire(self) -> None:
        """Close it as soon as its last user is done."""
        self._retired = True
        self._close_if_idle()

    def _close_if_idle(self) -> None:
        if self._users == 0:
            self._disk.close(self.handle)
