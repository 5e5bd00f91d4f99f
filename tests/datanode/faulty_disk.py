"""A real disk that can be made slow, full or broken."""

from __future__ import annotations

import threading
from pathlib import Path

from paxosblock.datanode.disk import FileHandle, OsDisk, Room
from paxosblock.errors import NoSpaceError, StorageError
from paxosblock.net.wire import Buffer


class FaultyDisk(OsDisk):
    """Faults are switched on by the attributes; the rest is the operating system's."""

    def __init__(self) -> None:
        self.full = False
        """A write puts half of its bytes into the file and fails."""
        self.broken_below: Path | None = None
        """Every `sync` of a file below this folder fails once, and succeeds afterwards."""
        self.free_bytes: int | None = None
        self.sync_count = 0
        self.synced: list[Path] = []
        """Files, in the order in which they were synced."""
        self.waiting_count = 0
        """Syncs that wait for `may_sync`."""
        self.may_sync = threading.Event()
        """Cleared: a sync waits."""
        self.may_sync.set()

    def write(self, file: FileHandle, data: Buffer, offset: int) -> None:
        if self.full:
            super().write(file, memoryview(data)[: len(data) // 2], offset)
            raise NoSpaceError("cannot write: No space left on device")
        super().write(file, data, offset)

    def sync(self, file: FileHandle) -> None:
        self.waiting_count += 1
        self.may_sync.wait(timeout=30)
        self.waiting_count -= 1
        self.sync_count += 1
        path = Path(f"/proc/self/fd/{file}").readlink()
        if self.broken_below is not None and path.is_relative_to(self.broken_below):
            self.broken_below = None
            raise StorageError("cannot sync: Input/output error")
        super().sync(file)
        self.synced.append(path)

    def room(self, folder: Path) -> Room:
        room = super().room(folder)
        return room if self.free_bytes is None else Room(room.capacity_bytes, self.free_bytes)
