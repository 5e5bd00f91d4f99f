"""A block file that is open for writes, and closed only when nobody uses it any more.

A file is retired while a sync of it may still run in a thread, or a read; its number must not go to
another file meanwhile. Users are counted on the event loop only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from paxosblock.datanode.disk import Disk, FileHandle


class OpenFile:
    """One open file."""

    __slots__ = ("_disk", "_retired", "_users", "handle")

    def __init__(self, disk: Disk, handle: FileHandle) -> None:
        self.handle = handle
        self._disk = disk
        self._users = 0
        self._retired = False

    @contextmanager
    def used(self) -> Iterator[FileHandle]:
        """Keep the file open meanwhile."""
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
        """The other end of `borrow`."""
        self._users -= 1
        self._close_if_idle()

    def retire(self) -> None:
        """Close it as soon as its last user is done."""
        self._retired = True
        self._close_if_idle()

    def _close_if_idle(self) -> None:
        if self._retired and self._users == 0:
            self._disk.close(self.handle)
