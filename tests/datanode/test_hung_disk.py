"""A disk from which nothing comes back is told from one that is slow."""

from __future__ import annotations

from pathlib import Path

import pytest

from paxosblock.datanode.volumes.disk_probe import LATE_S, DiskProbe
from paxosblock.datanode.volumes.hung_disk import ASKED_AFTER_S, LONGEST_STEP_S, Standstill
from paxosblock.net.streams.beats import beat_wish
from tests.datanode.node import frame, running
from tests.datanode.test_served_stream import stream_to
from tests.disks.faults import HELD, SYNCS, Fault
from tests.disks.simulated import SimulatedDisk
from tests.waiting import wait_until_async

BEAT_S = 0.125
STANDS_S = 0.75
"""No volume takes a disk for one that hangs before."""


class Scene:
    """A disk as the test plays it, and a look at it at each beat."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.ended = self.asked = 0
        self.standstill = Standstill(lambda: self.now_s, lambda: self.ended, self._ask)

    def _ask(self) -> None:
        self.asked += 1

    def looks(self, count: int, *, waiting: bool = True, beat_s: float = BEAT_S) -> float:
        for _ in range(count):
            self.now_s += beat_s
            seconds = self.standstill.measure(waiting=waiting)
        return seconds


def test_a_disk_stands_while_neither_a_sync_nor_an_answer_comes_back() -> None:
    scene = Scene()
    scene.looks(1, waiting=False)
    assert scene.looks(80) == 80 * BEAT_S
    assert scene.asked == 1, "it has not answered yet"
    scene.standstill.answered()
    assert scene.looks(1) == 0.0


@pytest.mark.parametrize("what", ["a sync", "an answer"])
def test_a_disk_is_only_slow_while_anything_comes_back(what: str) -> None:
    scene = Scene()
    for _ in range(20):
        assert scene.looks(4) < STANDS_S
        if what == "a sync":
            scene.ended += 1
        elif scene.asked:
            scene.standstill.answered()
    assert scene.asked


def test_a_disk_that_works_or_that_nobody_waits_for_is_not_asked() -> None:
    scene = Scene()
    assert scene.looks(100, waiting=False) == 0.0
    for _ in range(100):
        scene.ended += 1
        scene.looks(1, beat_s=ASKED_AFTER_S / 2)
    assert scene.asked == 0


def test_time_in_which_nobody_looked_counts_little() -> None:
    """The process may have stood still, with answers in its queue."""
    scene = Scene()
    assert scene.looks(1, beat_s=3600.0) == LONGEST_STEP_S


async def test_beats_say_that_a_disk_hangs_and_nothing_of_one_that_is_slow(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    async with running(tmp_path, disk=disk) as node, stream_to(node) as (channel, votes, _):
        await node.create()
        channel.connection.send(beat_wish(0.05))
        disk.breaks(Fault(SYNCS, path="/rbw/", delay_s=HELD))
        channel.connection.send(frame(0)[1])
        (volume,) = node.volumes
        await wait_until_async(lambda: volume._standstill._answers >= 3, what="answers beside it")
        assert votes.votes == []
        assert max(beat.request for beat in votes.beats) < 1000 * STANDS_S
        disk.breaks(Fault(SYNCS, path="/rbw/", delay_s=HELD), Fault(SYNCS, delay_s=HELD))
        await wait_until_async(lambda: votes.beats[-1].request >= 1000 * STANDS_S, what="its beats")
        disk.mend()
        await wait_until_async(lambda: votes.votes and not votes.beats[-1].request)


async def test_a_volume_whose_disk_hangs_reports_no_room_until_it_answers(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    async with running(tmp_path, disk=disk) as node:
        look = DiskProbe(node.volumes[0], reserved_bytes=0, hung_after_s=HELD)
        await node.create()
        assert (await look.report()).free_bytes
        disk.breaks(Fault(SYNCS, delay_s=HELD))
        voting = node.send(frame(0))

        async def free_bytes() -> int:
            report = await look.report()
            assert report.failed == ""
            return report.free_bytes

        async def is_full() -> bool:
            is_late = node.volumes[0].stands_s() >= LATE_S
            return await free_bytes() == 0 and is_late

        await wait_until_async(is_full, what="no room")
        disk.mend()
        await voting
        await wait_until_async(free_bytes, what="room")
        look.close()
