"""A block file that is open for writes, and closed only when it is no longer in use.

A sync or a read of a file may still run in a thread when it is retired; until then its descriptor
must not go to another file. Users are counted on the event loop only; syncs run beside it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from paxosblock.base.checksum import Buffer
from paxosblock.errors import PaxosBlockError, StorageError
from paxosblock.host.disk import Disk, FileHandle
from paxosblock.host.kernel_syncs import KernelSyncs


class OpenFile:
    """One open file."""

    __slots__ = (
        "_disk",
        "_failure",
        "_retired",
        "_synced",
        "_syncing",
        "_users",
        "_writes",
        "handle",
    )

    def __init__(self, disk: Disk, handle: FileHandle) -> None:
        self.handle = handle
        self._disk = disk
        self._users = 0
        self._retired = False
        self._syncing = threading.Lock()
        self._failure: PaxosBlockError | None = None
        self._writes = 1  # a process that opens it does not know of those before
        self._synced = 0
        """So many of the writes are on stable storage."""

    def write(self, data: Buffer, offset: int) -> None:
        """As `Disk.write`."""
        self._disk.write(self.handle, data, offset)
        self._writes += 1  # after it: a sync that runs may not have it

    def sync(self) -> None:
        """Bring what was written to stable storage, unless it is there. Blocks.

        The system reports only once that it dropped bytes: a second `fdatasync` would succeed. So a
        sync after a failed one, or beside it, fails as well.

        Raises:
            StorageError: this sync or an earlier one failed.
        """
        self._bring(self._sync)

    def _sync(self, handle: FileHandle) -> None:
        writes = self._writes
        if self._synced < writes:
            self._disk.sync(handle)
            self._synced = writes

    def write_out(self) -> None:
        """Bring the written bytes to the disk, as `sync` does; but only `sync` makes sure that they
        are found again.
        """
        self._bring(self._disk.write_out)

    def _bring(self, step: Callable[[FileHandle], None]) -> None:
        with self._syncing:
            if self._failure is not None:
                raise self._failure
            try:
                step(self.handle)
            except PaxosBlockError as error:
                self._failure = error
                raise

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

        return self._begin_sync_of(self.handle, kernel, note, done)

    def _begin_sync_of(
        self,
        handle: FileHandle,
        kernel: KernelSyncs,
        note: Callable[[], None],
        done: Callable[[PaxosBlockError | None], None],
    ) -> bool:
        """As `begin_sync` for the file of a `handle`; `note` that its bytes are durable."""
        if not self._syncing.acquire(blocking=False):
            return False

        def ended(error: OSError | None) -> None:
            if error is not None:
                self._failure = StorageError.of("cannot sync", error)
                self._failure.__cause__ = error
            else:
                note()
            self._syncing.release()
            done(self._failure)

        if self._failure is None and kernel.begin(handle, ended):
            return True
        self._syncing.release()
        return False

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
        assert not self._retired, "a retired file is given to nobody"
        self._users += 1

    def release(self) -> None:
        """End a `borrow`."""
        self._users -= 1
        self._close_if_idle()

    def retire(self) -> None:
        """Close it as soon as its last user is done."""
        self._retired = True
        self._close_if_idle()

    def _close_if_idle(self) -> None:
        if self._retired and self._users == 0:
            self._disk.close(self.handle)
