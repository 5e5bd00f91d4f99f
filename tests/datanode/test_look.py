"""Heartbeats tell of a volume that is late, hangs, answers again, or fails then."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from paxosblock.api.reports import StorageReport
from paxosblock.datanode.volumes import disk_probe as look_module
from paxosblock.datanode.volumes.disk_probe import DiskProbe
from paxosblock.protocol.messages import LastVote, Vote
from tests.datanode.node import Node, frame, running
from tests.disks.faults import HELD, Fault
from tests.disks.simulated import SimulatedDisk
from tests.waiting import wait_until_async

HUNG_AFTER_S = 0.2


@asynccontextmanager
async def looking(node: Node) -> AsyncIterator[list[DiskProbe]]:
    """The looks at all volumes of `node`."""
    looks = [
        DiskProbe(volume, reserved_bytes=0, hung_after_s=HUNG_AFTER_S) for volume in node.volumes
    ]
    try:
        yield looks
    finally:
        for look in looks:
            look.close()


def hanging(folder: Path, error: str = "") -> Fault:
    return Fault(("read",), path=f"{folder}/VERSION", delay_s=HELD, error=error)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count a look that has to wait as late at once."""
    monkeypatch.setattr(look_module, "PATIENCE_S", 0.0)
    monkeypatch.setattr(look_module, "LATE_S", 0.1)


async def sound(look: DiskProbe) -> StorageReport:
    """Look until the volume has answered."""

    async def answered() -> StorageReport | None:
        report = await look.report()
        return report if report.free_bytes and not report.failed else None

    report = await wait_until_async(answered, what="an answer")
    assert report is not None
    return report


async def test_a_volume_that_hangs_counts_as_failed_until_it_answers_and_others_do_not(
    tmp_path: Path,
) -> None:
    disk = SimulatedDisk()
    async with running(tmp_path / "a", tmp_path / "b", disk=disk) as node, looking(node) as looks:
        hung, other = looks
        before = [await sound(look) for look in looks]
        await node.create()
        disk.breaks(hanging(tmp_path / "a"))
        await wait_until_async(lambda: _reported(hung, "hangs since"), what="the reason")
        told = await hung.report()
        assert (told.storage, told.free_bytes) == (node.storage, 0)
        assert told.capacity_bytes == before[0].capacity_bytes
        assert str(tmp_path / "a") in told.failed
        assert node.volumes[0].hung == told.failed
        assert (await sound(other)).capacity_bytes == before[1].capacity_bytes
        assert disk.plan.waiting == 1, "nobody asks again meanwhile"
        disk.mend()
        assert (await sound(hung)).failed == ""
        assert (node.volumes[0].hung, node.volumes[0].failed) == ("", "")
        assert isinstance(await node.send(frame(0)), Vote)
        assert isinstance(await node.next_gs(1), LastVote)


async def test_a_volume_that_is_late_gets_no_new_blocks_and_has_not_failed(
    tmp_path: Path,
) -> None:
    disk = SimulatedDisk()
    async with running(tmp_path, disk=disk) as node:
        look = DiskProbe(node.volumes[0], reserved_bytes=0, hung_after_s=3600)
        await sound(look)
        disk.breaks(hanging(tmp_path))

        async def full() -> bool:
            report = await look.report()
            assert report.failed == ""
            return report.free_bytes == 0

        await wait_until_async(full, what="no room")
        assert node.volumes[0].hung == ""
        disk.mend()
        await sound(look)
        look.close()


async def test_a_volume_that_hangs_and_then_fails_has_failed_for_good(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    async with running(tmp_path, disk=disk) as node, looking(node) as (look,):
        await sound(look)
        disk.breaks(hanging(tmp_path, error="EIO"))
        await wait_until_async(lambda: _reported(look, "hangs since"), what="the reason")
        disk.mend()
        (volume,) = node.volumes

        async def told_and_no_longer_hung() -> bool:
            return (await look.report()).failed == volume.failed and not volume.hung

        await wait_until_async(lambda: _reported(look, "Input/output error"), what="the error")
        await wait_until_async(told_and_no_longer_hung, what="the end of the look")


async def test_a_failure_that_others_meet_is_told_while_the_look_hangs(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    async with running(tmp_path, disk=disk) as node, looking(node) as (look,):
        await sound(look)
        disk.breaks(hanging(tmp_path))
        await look.report()
        node.volumes[0].fail(OSError("it burns"))
        assert "it burns" in (await look.report()).failed
        disk.mend()


async def _reported(look: DiskProbe, what: str) -> bool:
    return what in (await look.report()).failed
