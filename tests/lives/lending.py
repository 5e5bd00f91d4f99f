"""Files of simulated disks that DataNodes lend: all clients are on all machines."""

from __future__ import annotations

from collections.abc import Sequence

from paxosblock.api.datanode import Offer
from paxosblock.client.session.lent_files import LentFile
from paxosblock.errors import UnavailableError
from paxosblock.host.disk import FileHandle
from tests.disks.power_cut import File
from tests.disks.simulated import SimulatedDisk


class OpenAtDisk(LentFile):
    """The file of a replica, at the disk as the process found it that lent it: what becomes of the
    process and its machine changes nothing for who has the file open."""

    def __init__(self, file: File, names: bytes) -> None:
        super().__init__(-1, names)
        self._content = file

    def read(self, into: Sequence[memoryview], position: int) -> bool:
        for part in into:
            found = self._content.data[position : position + len(part)]
            if len(found) < len(part):
                return False
            part[:] = found
            position += len(part)
        return True

    def close(self) -> None:
        """Nothing is open but for this object."""


class Lent:
    """The files that are offered in a world."""

    def __init__(self) -> None:
        self._offered: dict[bytes, File] = {}
        self._count = 0
        self.taken = 0

    def door_to(self, disk: SimulatedDisk) -> SimulatedDoor:
        """Return the door of a DataNode with this disk."""
        return SimulatedDoor(self, disk)

    def offer(self, file: File) -> bytes:
        """Return the ticket for a file."""
        self._count += 1
        ticket = self._count.to_bytes(16, "little")
        self._offered[ticket] = file
        return ticket

    def take(self, offer: Offer, names: bytes) -> LentFile:
        """As `lent_files.take_file`."""
        if offer.ticket not in self._offered:
            raise UnavailableError("the offer is over")
        self.taken += 1
        return OpenAtDisk(self._offered.pop(offer.ticket), names)


class SimulatedDoor:
    """The door of a DataNode."""

    def __init__(self, lent: Lent, disk: SimulatedDisk) -> None:
        self._lent = lent
        self._disk = disk

    def offer(self, file: FileHandle) -> Offer:
        """As `LendingDoor.offer`."""
        return Offer("", 0, self._lent.offer(self._disk._handles[file]), 0, 0)

    def close(self) -> None:
        """The world forgets what was offered."""
