"""Tells people how much room a folder has, without waiting for a disk that hangs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

from paxosblock.errors import StorageError
from paxosblock.host.disk import Disk, Room

RECENT_S: Final = 5.0
"""Seconds for which an answer of the disk is good."""
PATIENCE_S: Final = 0.1
"""Seconds that a caller waits for the disk."""
UNKNOWN: Final = Room(0, 0)
"""The room of a folder whose disk has not told."""


class FolderRoom:
    """The room of one folder; one question at a time is under way."""

    def __init__(self, disk: Disk, folder: Path, clock_s: Callable[[], float]) -> None:
        """Ask nothing yet."""
        self._disk, self._folder, self._clock_s = disk, folder, clock_s
        self._seen = UNKNOWN
        self._due_s = float("-inf")
        self._asking: asyncio.Future[Room] | None = None

    async def seen(self) -> Room:
        """Return what the disk said last; `UNKNOWN` if it has not, or refuses to."""
        if self._asking is None and self._clock_s() >= self._due_s:
            self._asking = asyncio.ensure_future(asyncio.to_thread(self._room))
            self._asking.add_done_callback(self._told)
        if self._asking is not None:
            await asyncio.wait((self._asking,), timeout=PATIENCE_S)
        return self._seen

    def _room(self) -> Room:
        try:
            return self._disk.room(self._folder)
        except StorageError:
            return UNKNOWN

    def _told(self, asking: asyncio.Future[Room]) -> None:
        self._asking, self._due_s = None, self._clock_s() + RECENT_S
        if not asking.cancelled():
            self._seen = asking.result()
