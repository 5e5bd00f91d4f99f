"""Room that a node keeps for itself, so that a full disk can still make promises.

A step that ends a block at a DataNode (a promise, a recovered log, a finalization) writes a little,
and so does a vote of a NameNode. If a full disk refused that, no reader could get chunks that every
member acknowledged until an operator made room; and a member of the cluster would stay in its old
term: it could neither follow the leader that the others elect, nor help to elect one.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from paxosblock.errors import NoSpaceError, StorageError
from paxosblock.host.disk import Disk, FileHandle, cut_file, is_shortage

T = TypeVar("T")

SMALLEST_PART: Final = 32
"""A small disk gives at most one part in this many."""


class KeptRoom:
    """A file of zeros that is shortened or emptied when a step needs its room. All methods
    block."""

    def __init__(
        self, disk: Disk, path: Path, size_bytes: int, piece_bytes: int, *, synced: bool = False
    ) -> None:
        """Take nothing before `keep`.

        Args:
            disk: where the file is.
            path: the file.
            size_bytes: how much is kept.
            piece_bytes: how much is taken, and given, at a time.
            synced: True to sync the room that was taken: some file systems find out only then if
                there is room.
        """
        self._disk = disk
        self._path = path
        self._wanted_bytes = size_bytes
        self._piece = bytes(piece_bytes)
        self._synced = synced
        # A step may have a step within that needs this room, too.
        self._lock = threading.RLock()
        self._size_bytes = 0

    def keep(self) -> None:
        """Take what is missing of the room, as far as the disk has it. Raises StorageError."""
        with self._lock:
            self._take()

    def give_back(self) -> None:
        """Give up what an earlier process took: starting on a full disk needs some room, too.

        A disk so full that it does not even let a file be emptied keeps it.
        """
        with self._lock, contextlib.suppress(NoSpaceError):
            if self._path.name in self._disk.names(self._path.parent):
                self._disk.close(self._emptied())

    def give(self, size_bytes: int = 1, *, leave_bytes: int = 0) -> bool:
        """Free at least `size_bytes` of it, in whole pieces; False if less than `leave_bytes` were
        left then, or there is no descriptor to do it with."""
        with self._lock:
            pieces = -(-size_bytes // len(self._piece))
            left_bytes = self._size_bytes - pieces * len(self._piece)
            if left_bytes < leave_bytes:
                return False
            try:
                cut_file(self._disk, self._path, left_bytes)
            except StorageError as error:
                if not is_shortage(error):
                    raise
                return False
            self._size_bytes = left_bytes
            return True

    def retried(self, step: Callable[[], T]) -> T:
        """Do `step`, which changes nothing when it finds no room; then once more, with this room.

        Raises:
            NoSpaceError: even that was not enough.
            Whatever else `step` raises.
        """
        try:
            return step()
        except NoSpaceError:
            with self._lock:
                self._disk.close(self._emptied())
                try:
                    return step()
                finally:
                    self._take()

    def _emptied(self) -> FileHandle:
        self._size_bytes = 0
        return self._disk.create(self._path)

    def _take(self) -> None:
        room = self._disk.room(self._path.parent)
        wanted = min(self._wanted_bytes, room.capacity_bytes // SMALLEST_PART)
        if self._size_bytes >= wanted:
            return
        with contextlib.suppress(NoSpaceError):
            file = self._disk.open(self._path) if self._size_bytes else self._emptied()
            try:
                while self._size_bytes < wanted:
                    self._disk.write(file, self._piece, self._size_bytes)
                    self._size_bytes += len(self._piece)
                if self._synced:
                    self._disk.sync(file)
            finally:
                self._disk.close(file)
