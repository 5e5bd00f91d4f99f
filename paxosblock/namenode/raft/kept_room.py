"""Room that a member keeps for its votes, and for its next start.

A full disk that took no vote either would keep a member in its old term: it could not follow the
leader that the others elect, nor help to elect one, though neither needs room for the log.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

from paxosblock.disk import Disk, cut_file, is_shortage
from paxosblock.errors import NoSpaceError, StorageError
from paxosblock.units import KIB, MIB

NAME: Final = "spare"
SPARE_BYTES: Final = MIB
STEP_BYTES: Final = 64 * KIB
"""So much is given at a time: a vote takes a file of one block, and frees that of the one before.
Somebody else may be faster to take what was given, so there are some more."""
_ZEROS: Final = bytes(STEP_BYTES)


class KeptRoom:
    """A file of zeros that is shortened when a vote needs room. All methods block."""

    def __init__(self, disk: Disk, folder: Path) -> None:
        """Nothing is taken before `keep`."""
        self._disk, self._folder = disk, folder
        self._lock = threading.Lock()
        self._size_bytes = 0

    def give_back(self) -> None:
        """Give up what an earlier process took: a start on a full disk needs some room, too."""
        if NAME in self._disk.names(self._folder):
            cut_file(self._disk, self._folder / NAME, 0)

    def keep(self) -> None:
        """Take what is missing, as far as there is any: who finds too little says so then."""
        with self._lock, suppress(NoSpaceError, StorageError):
            if self._size_bytes < SPARE_BYTES:
                self._take()

    def give(self) -> bool:
        """Free a part of it; False when nothing is left, or no descriptor to do it with."""
        with self._lock:
            if not self._size_bytes:
                return False
            try:
                cut_file(self._disk, self._folder / NAME, self._size_bytes - STEP_BYTES)
            except StorageError as error:
                if not is_shortage(error):
                    raise
                return False
            self._size_bytes -= STEP_BYTES
            return True

    def _take(self) -> None:
        self._size_bytes = 0
        file = self._disk.create(self._folder / NAME)
        try:
            while self._size_bytes < SPARE_BYTES:
                self._disk.write(file, _ZEROS, self._size_bytes)
                self._size_bytes += STEP_BYTES
            self._disk.sync(file)  # some file systems find out only now whether there is room
        finally:
            self._disk.close(file)
