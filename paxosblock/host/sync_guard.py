"""Lets one sync of a file run at a time, and none after one that failed.

The system reports only once that it dropped bytes: a second `fdatasync` would succeed. So a sync
after a failed one, or beside it, fails as well.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from paxosblock.errors import PaxosBlockError, StorageError
from paxosblock.host.disk import FileHandle
from paxosblock.host.kernel_syncs import KernelSyncs


class SyncGuard:
    """The syncs of one file, or of files that fail together."""

    __slots__ = ("_mutex", "failure")

    def __init__(self) -> None:
        self.failure: PaxosBlockError | None = None
        """Why nothing more can be made durable."""
        self._mutex = threading.Lock()

    def run(self, step: Callable[[], None]) -> None:
        """Do `step`, which syncs, and blocks.

        Raises:
            StorageError: this sync or an earlier one failed.
        """
        with self._mutex:
            if self.failure is not None:
                raise self.failure
            try:
                step()
            except PaxosBlockError as error:
                self.failure = error
                raise

    def begin(
        self,
        file: FileHandle,
        kernel: KernelSyncs,
        synced: Callable[[], None],
        done: Callable[[PaxosBlockError | None], None],
    ) -> bool:
        """Let the kernel sync `file`. Then the event loop calls `synced` if it is durable, and
        `done` with what `run` would raise.

        Return False, and call nothing, if `run` has to do it: another sync runs now, one failed
        before, or the kernel refuses.
        """
        if not self._mutex.acquire(blocking=False):
            return False

        def ended(error: OSError | None) -> None:
            if error is not None:
                self.failure = StorageError.of("cannot sync", error)
                self.failure.__cause__ = error
            else:
                synced()
            self._mutex.release()
            done(self.failure)

        if self.failure is None and kernel.begin(file, ended):
            return True
        self._mutex.release()
        return False
