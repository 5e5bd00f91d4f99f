"""A copy in the place of a damaged replica (D9), cut off by a power cut or a kill at any step.

The replica is really damaged, found by the scrubber, and replaced by a copy of a holder. Whatever
the disk has at any moment in between, what is loaded of it is the damaged replica, with all that is
left of it, or the whole copy, never none; and the next scrub and the next copy bring it to its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from paxosblock.base.units import GIB
from paxosblock.datanode.scrubber import Scrubber
from paxosblock.datanode.store.chunk_records import check_records
from paxosblock.datanode.store.file_store import FileStore
from paxosblock.datanode.store.layout import ReplicaFiles
from paxosblock.errors import CorruptionError
from paxosblock.protocol.messages import Finalized
from paxosblock.protocol.register import Replica
from paxosblock.protocol.types import Generation
from tests.datanode.node import BLOCK, Holder, Node, chunk, name, running
from tests.disks.power_cut import Files
from tests.disks.simulated import SimulatedDisk
from tests.format.loading import load_all
from tests.waiting import wait_until_async

FOLDER = Path("/volume")
DATA = FOLDER / "current" / "blk_7"
META = FOLDER / "current" / "blk_7.meta"
LOG = [name(i) for i in range(3)]
PROMISED = 5
"""The replica has promised more than it accepted: the copy must not forget it."""
STATES_PER_POINT = 60


def flip(disk: SimulatedDisk, path: Path, position: int) -> None:
    """Change one bit of what is in the file, and stays there."""
    file = disk.names_now[path]
    file.data[position] ^= 1
    file.settle()


def cut(disk: SimulatedDisk, path: Path, size: int) -> None:
    file = disk.names_now[path]
    del file.data[size:]
    file.settle()


def lose(disk: SimulatedDisk, path: Path) -> None:
    del disk.names_now[path], disk.names_durable[path]


DAMAGE: dict[str, Callable[[SimulatedDisk], None]] = {
    "a bit of a chunk": lambda disk: flip(disk, DATA, 200),
    "the end of the block file": lambda disk: cut(disk, DATA, 300),
    "the block file": lambda disk: lose(disk, DATA),
    "a bit of the metadata": lambda disk: flip(disk, META, 60),
}


async def scrub(node: Node) -> None:
    """Let the scrubber read all there is, once."""
    volume = node.volumes[0]
    scrubber = Scrubber(volume, node.acceptor, period_s=3600.0, bytes_per_s=GIB)
    task = asyncio.create_task(scrubber.run())
    try:
        await wait_until_async(lambda: volume.scrubbed.whole_ms, what="the end of a pass")
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def heal(node: Node) -> None:
    """D5 with the chunks of a holder, for what is dead."""
    healed = await node.finalize(PROMISED, LOG)
    assert healed == Finalized(BLOCK, Generation(PROMISED), node.storage, 3)


@dataclass(frozen=True, slots=True)
class Healing:
    """The disk at each moment from the damage on; `before` is what was promised."""

    before: Replica
    damaged: Files
    left: list[tuple[Files, ...]]


async def heal_slowly(damage: Callable[[SimulatedDisk], None]) -> Healing:
    """Damage a replica and heal it; note every state that a power cut leaves on the way."""
    disk = SimulatedDisk(records=True)
    async with running(FOLDER, disk=disk, holder=Holder([chunk(i) for i in range(3)])) as node:
        await node.create()
        await node.write(3)
        await node.finalize(1, LOG)
        await node.next_gs(PROMISED, base=1)
        damage(disk)
        damaged = disk.files()
        await scrub(node)
        block = node.acceptor.find(BLOCK, node.storage)
        assert block is not None
        assert block.replica is not None
        assert block.corrupt
        before, begun = block.replica, len(disk.history)
        await heal(node)
    moments = disk.history[begun - 1 :]
    left = [tuple(moment.states(STATES_PER_POINT, seed)) for seed, moment in enumerate(moments)]
    return Healing(before, damaged, left)


def is_healed(files: Files, before: Replica) -> bool:
    """Load what is left. False: it is the damaged replica, with all that it had."""
    disk = SimulatedDisk(files)
    (loaded,) = load_all(FileStore(disk, FOLDER, "boot-2"))
    assert loaded.block == BLOCK
    if loaded.replica is None:
        return False  # its metadata is damaged: nothing of it counts
    assert loaded.replica.registers.max_generation == before.registers.max_generation
    if loaded.corrupt:
        return False
    assert isinstance(loaded.files, ReplicaFiles)
    log = loaded.replica.log
    assert log.slice(0, len(log)) == tuple(LOG)
    try:
        check_records(BLOCK, log.slice(0, len(log)), disk.files()[loaded.files.path])
    except CorruptionError:
        return False
    return True


@pytest.mark.parametrize("damage", DAMAGE, ids=str)
async def test_a_power_cut_leaves_the_damaged_replica_or_the_copy_and_never_none(
    damage: str,
) -> None:
    healing = await heal_slowly(DAMAGE[damage])
    found = set()
    for last, states in zip([*[False] * (len(healing.left) - 1), True], healing.left, strict=True):
        for files in states:
            healed = is_healed(files, healing.before)
            found.add(healed)
            assert healed or not last, "what was answered is durable"
            if not healed and damage != "a bit of the metadata":
                kept = {
                    path: data for path, data in healing.damaged.items() if path.stem == "blk_7"
                }
                assert kept.items() <= files.items(), "the damaged one goes last"
    assert found == {True, False}


@pytest.mark.parametrize("damage", DAMAGE, ids=str)
async def test_what_a_power_cut_left_is_found_and_healed_by_the_next_process(damage: str) -> None:
    healing = await heal_slowly(DAMAGE[damage])
    seen: list[Files] = []
    for files in (files for states in healing.left for files in states[:3]):
        if files in seen:
            continue
        seen.append(files)
        disk = SimulatedDisk(files)
        holder = Holder([chunk(i) for i in range(3)])
        async with running(FOLDER, disk=disk, boot="boot-2", holder=holder) as node:
            await scrub(node)
            await heal(node)
            assert node.volumes[0].failed == ""
        assert is_healed(disk.files(), healing.before)
        replicas = {path.name for path in disk.files() if path.name.startswith("blk_")}
        assert len(replicas) == 2, "nothing is left beside it"
    assert len(seen) > 3
