"""Gives the room of deleted replicas back, at a rate that leaves the disk to others."""

from __future__ import annotations

import contextlib
from typing import Final

from paxosblock.base.units import KIB
from paxosblock.datanode.volumes.throttle import Throttle
from paxosblock.datanode.volumes.volume import Volume
from paxosblock.errors import StorageError

FILE_BYTES: Final = 64 * KIB
"""A file counts as at least this much: its name, too, is work for the file system."""
SCARCE: Final = 10
"""If less than one part in this many of a disk is free, files are removed at once."""


class Remover:
    """Removes the files of one volume's deleted replicas."""

    def __init__(self, volume: Volume, bytes_per_s: float) -> None:
        """Remove `bytes_per_s` while there is room on the volume."""
        self._volume = volume
        self._pace = Throttle(bytes_per_s)

    async def run(self) -> None:
        """Remove the files that an earlier process left, and those deleted from now on."""
        volume = self._volume
        with contextlib.suppress(StorageError):  # the volume has failed, and says so
            while True:
                volume.deleted.clear()
                while (removed := await volume.run(volume.store.removals.remove_next)) is not None:
                    if not await volume.run(self._is_scarce):
                        await self._pace.take(max(removed, FILE_BYTES))
                await volume.deleted.wait()

    def _is_scarce(self) -> bool:
        room = self._volume.disk.room(self._volume.folder)
        return room.free_bytes < room.capacity_bytes // SCARCE
