"""Room that a volume keeps for itself, so that a full disk can still make promises.

What ends a block (a promise, a recovered log, a finalization) writes a little. If a full disk
refused that too, chunks that everybody acknowledged could be read by nobody until somebody made
room.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from paxosblock.datanode.layout import SPARE
from paxosblock.disk import Disk, FileHandle
from paxosblock.errors import NoSpaceError
from paxosblock.units import KIB, MIB

T = TypeVar("T")

SPARE_BYTES: Final = 8 * MIB
"""Enough for a window of chunks of the default size, twice: as a draft, and in its block file."""
SMALLEST_PART: Final = 32
"""A small disk gives at most one part in so many."""
_PIECE: Final = bytes(256 * KIB)


class KeptRoom:
    """A file of zeros that is emptied when somebody needs its room. All methods block."""

    def __init__(self, disk: Disk, folder: Path) -> None:
        """Nothing is taken before `keep`."""
        self._disk = disk
        self._folder = folder
        self._path = folder / SPARE
        self._lock = threading.Lock()
        self._size_bytes = 0

    def keep(self) -> None:
        """Take what is missing of the room, as far as there is any. Raises StorageError."""
        with self._lock:
            self._take()

    def give_back(self) -> None:
        """Give up what an earlier process took; who starts on a full disk needs some room too."""
        with self._lock:
            if SPARE in self._disk.names(self._folder):
                self._disk.close(self._emptied())

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
        room = self._disk.room(self._folder)
        wanted = min(SPARE_BYTES, room.capacity_bytes // SMALLEST_PART)
        if self._size_bytes >= wanted:
            return
        with contextlib.suppress(NoSpaceError):
            file = self._disk.open(self._path) if self._size_bytes else self._emptied()
            try:
                while self._size_bytes < wanted:
                    self._disk.write(file, _PIECE, self._size_bytes)
                    self._size_bytes += len(_PIECE)
            finally:
                self._disk.close(file)
