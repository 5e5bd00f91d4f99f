"""The room that a node keeps for itself, on a disk without any other."""

from __future__ import annotations

import threading
from pathlib import Path

from paxosblock.errors import NoSpaceError
from paxosblock.host.kept_room import KeptRoom
from tests.disks.simulated import SimulatedDisk

PATH = Path("/volume/spare")


def _kept(disk: SimulatedDisk) -> KeptRoom:
    room = KeptRoom(disk, PATH, 4096, 1024)
    room.keep()
    return room


def test_a_disk_that_lets_no_file_be_emptied_keeps_what_an_earlier_process_took() -> None:
    disk = SimulatedDisk()
    _kept(disk)
    disk.full = True
    later = KeptRoom(disk, PATH, 4096, 1024)
    later.give_back()
    assert disk.size_of(PATH) == 4096
    disk.full = False
    later.give_back()
    assert disk.size_of(PATH) == 0


def test_a_step_within_a_step_that_finds_no_room_ends() -> None:
    disk = SimulatedDisk()
    room, refused = _kept(disk), list[int]()

    def inner() -> None:
        refused.append(2)
        raise NoSpaceError("no room")

    def outer() -> None:
        if not refused:
            refused.append(1)
            raise NoSpaceError("no room")
        room.retried(inner)

    def step() -> None:
        try:
            room.retried(outer)
        except NoSpaceError:
            refused.append(3)

    thread = threading.Thread(target=step, daemon=True)
    thread.start()
    thread.join(10)
    assert refused == [1, 2, 2, 3]
    assert disk.size_of(PATH) == 4096, "it was taken again"
