"""A replica after its process, or its machine, starts again (D8, 2.9)."""

from __future__ import annotations

from pathlib import Path

import pytest

from paxosblock.api.datanode import ReadBytes
from paxosblock.datanode.store.damaged_file import decode_damaged, encode_damaged, read_damaged
from paxosblock.datanode.store.identity import VERSION
from paxosblock.datanode.store.meta import decode_metadata
from paxosblock.errors import NoSpaceError
from paxosblock.host.disk import OsDisk
from paxosblock.net.streams.stream_calls import Bulk
from paxosblock.protocol.messages import (
    Created,
    Finalized,
    LastVote,
    Read,
    ReadReply,
    RecoveryVote,
    Vote,
)
from paxosblock.protocol.read import Version
from paxosblock.protocol.replica_state import HdfsReplicaState, hdfs_state
from paxosblock.protocol.types import BlockId, Durability, Generation, Reason
from tests.datanode.node import BLOCK, Holder, Node, chunk, frame, name, refusal, running
from tests.disks.simulated import SimulatedDisk

FOLDER = Path("/volume")


async def state(node: Node) -> ReadReply:
    """The registers, which must be there."""
    reply = await node.ask(Read(BLOCK))
    assert isinstance(reply, ReadReply)
    return reply


async def test_an_rbw_replica_comes_back_as_rwr_and_takes_no_writes(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.create()
        await node.write(2)
    async with running(tmp_path) as node:
        block = node.acceptor.find(BLOCK, node.storage)
        assert block is not None
        assert block.replica is not None
        assert hdfs_state(block.replica) is HdfsReplicaState.RWR
        assert refusal(await node.send(frame(2))) is Reason.FENCED


async def test_a_recovery_makes_an_rwr_replica_take_writes_again(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.create()
        await node.write(2)
    async with running(tmp_path) as node:
        assert isinstance(await node.recover(1, [name(0), name(1)]), RecoveryVote)
        (vote,) = await node.write(1, start=2, generation=1)
        assert isinstance(vote, Vote)


async def test_a_restart_of_the_process_alone_leaves_a_memory_replica_strong(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as node:
        await node.create(durability=Durability.MEMORY)
        await node.write(3)
    async with running(tmp_path) as node:
        last = await node.next_gs(1)
        assert isinstance(last, LastVote)
        assert (last.registers.weak, last.length) == (False, 3)


async def test_a_crash_of_the_machine_makes_a_memory_replica_weak_for_good(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.create(durability=Durability.MEMORY)
        await node.write(3)
    for boot in ("boot-2", "boot-2", "boot-3"):
        async with running(tmp_path, boot=boot) as node:
            block = node.acceptor.find(BLOCK, node.storage)
            assert block is not None
            assert block.replica is not None
            assert block.replica.registers.weak, "it must not look strong after two restarts"


async def test_that_it_is_weak_is_on_disk_before_a_replica_answers(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.create(durability=Durability.MEMORY)
    async with running(tmp_path, boot="boot-2"):
        stored = decode_metadata((tmp_path / "rbw" / "blk_7.meta").read_bytes(), BLOCK)
        assert (stored.registers.weak, stored.boot) == (True, "boot-2")


FINALIZED, IN_FILES, IN_THE_LOG = BlockId(8), BLOCK, BlockId(9)


async def _with_one_of_each(node: Node) -> None:
    for block, small in ((FINALIZED, False), (IN_FILES, False), (IN_THE_LOG, True)):
        await node.create(block, durability=Durability.MEMORY, small=small)
        assert isinstance(await node.send(frame(0, block=block)), Vote)
    assert isinstance(await node.finalize(1, [name(0)], block=FINALIZED), Finalized)
    node.volumes[0].report(0)  # the heartbeat takes the room that is kept


async def _is_weak(node: Node, block: BlockId) -> bool:
    reply = await node.ask(Read(block))
    assert isinstance(reply, ReadReply)
    assert (reply.restarted, reply.length) == (True, 1)
    return reply.registers.weak


async def _bytes(node: Node, block: BlockId, generation: int) -> bytes:
    version = Version(Generation(0), Generation(generation), 1)
    answer = await node.reader.read_bytes(ReadBytes(block, node.storage, version, 0, 100))
    assert isinstance(answer, Bulk), answer
    return b"".join(answer.frames[1:])


async def test_a_volume_serves_what_it_has_though_its_disk_is_full_when_it_starts() -> None:
    """The disk refuses even to empty the file of the room that was kept."""
    disk = SimulatedDisk()
    async with running(FOLDER, disk=disk) as node:
        await _with_one_of_each(node)
    for number, boot in enumerate(("boot-2", "boot-2", "boot-3"), 10):
        another, disk.full = BlockId(number), True
        async with running(FOLDER, disk=disk, boot=boot) as node:
            assert node.volumes[0].failed == ""
            assert node.volumes[0].report(0).failed == ""
            assert await _bytes(node, FINALIZED, 1) == chunk(0)
            for block in (IN_FILES, IN_THE_LOG):
                assert await _is_weak(node, block), "the start before could not say so on disk"
                with pytest.raises(NoSpaceError):
                    await node.next_gs(1, block=block)
                assert await _is_weak(node, block)
            with pytest.raises(NoSpaceError):
                await node.create(another, small=True)
            disk.full = False
            assert isinstance(await node.create(another, small=True), Created)


async def test_what_a_full_start_left_as_it_was_goes_on_once_there_is_room() -> None:
    disk = SimulatedDisk()
    async with running(FOLDER, disk=disk) as node:
        await _with_one_of_each(node)
    disk.full = True
    async with running(FOLDER, disk=disk, boot="boot-2") as node:
        disk.full = False
        for block in (IN_FILES, IN_THE_LOG):
            last = await node.next_gs(1, block=block)
            assert isinstance(last, LastVote)
            assert (last.registers.weak, last.length) == (True, 1)
    async with running(FOLDER, disk=disk, boot="boot-2") as node:
        for block in (IN_FILES, IN_THE_LOG):
            assert await _is_weak(node, block)
            last = await node.next_gs(2, block=block)
            assert isinstance(last, LastVote), "its promise was kept, and is not above this"
            assert isinstance(await node.finalize(2, [name(0)], block=block), Finalized)
            assert await _bytes(node, block, 2) == chunk(0)


async def test_a_crash_of_the_machine_leaves_a_disk_replica_strong(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.create(durability=Durability.DISK)
        await node.write(3)
    async with running(tmp_path, boot="boot-2") as node:
        last = await node.next_gs(1)
        assert isinstance(last, LastVote)
        assert (last.registers.weak, last.length) == (False, 3)


async def test_a_recovery_makes_a_weak_replica_strong(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.create(durability=Durability.MEMORY)
        await node.write(1)
    async with running(tmp_path, boot="boot-2") as node:
        await node.recover(1, [name(0)], durability=Durability.MEMORY)
        assert not (await state(node)).registers.weak
    async with running(tmp_path, boot="boot-2") as node:
        last = await node.next_gs(2)
        assert isinstance(last, LastVote)
        assert not last.registers.weak


@pytest.mark.parametrize(
    ("durability", "boot", "weak"),
    [
        (Durability.DISK, "boot-1", False),
        (Durability.DISK, "boot-2", False),
        (Durability.MEMORY, "boot-1", False),
        (Durability.MEMORY, "boot-2", True),
    ],
)
async def test_a_restarted_replica_tells_readers_whether_it_may_have_lost_votes(
    tmp_path: Path, durability: Durability, boot: str, weak: bool
) -> None:
    async with running(tmp_path, boot="boot-1") as node:
        await node.create(durability=durability)
        await node.write(1)
    async with running(tmp_path, boot=boot) as node:
        told = await state(node)
        assert (told.registers.weak, told.restarted, told.length) == (weak, True, 1)


async def test_what_was_half_done_in_tmp_is_gone_after_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path):
        (tmp_path / "tmp" / "blk_7.draft0").write_bytes(b"half of a chunk")
    async with running(tmp_path):
        assert list((tmp_path / "tmp").iterdir()) == []


async def test_a_torn_last_record_is_cut_off_and_the_log_goes_on(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.create()
        await node.write(2)
    with (tmp_path / "rbw" / "blk_7").open("ab") as file:
        file.write(frame(2)[1][:-5])
    async with running(tmp_path) as node:
        assert (await state(node)).length == 2
        assert (tmp_path / "rbw" / "blk_7").stat().st_size == 2 * len(frame(0)[1])
        await node.recover(1, [name(0), name(1)])
        (vote,) = await node.write(1, start=2, generation=1)
        assert isinstance(vote, Vote)


async def test_a_storage_keeps_its_id_for_ever(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        storage, identity = node.storage, (tmp_path / VERSION).read_bytes()
    async with running(tmp_path, boot="boot-2") as node:
        assert node.storage == storage
        assert (tmp_path / VERSION).read_bytes() == identity


async def test_an_emptied_folder_comes_back_as_another_storage(tmp_path: Path) -> None:
    """A storage that lost its data does not answer under the name of the one that had it."""
    async with running(tmp_path / "volume") as node:
        await node.create()
        before = node.storage
    (tmp_path / "volume").rename(tmp_path / "lost")
    async with running(tmp_path / "volume") as node:
        assert node.storage != before
        assert refusal(await node.ask(Read(BLOCK), before)) is Reason.NO_REPLICA


@pytest.mark.parametrize("damage", ["a flipped bit", "no block file", "no metadata to believe"])
async def test_damage_that_was_found_is_known_after_a_restart_until_it_is_mended(
    tmp_path: Path, damage: str
) -> None:
    """A flipped bit looks sound until a reader comes: by then it was counted again."""
    log, data = [name(0), name(1)], tmp_path / "current" / "blk_7"
    meta = tmp_path / "current" / "blk_7.meta"
    async with running(tmp_path) as node:
        await node.create()
        await node.write(2)
        await node.finalize(1, log)
        block = node.acceptor.find(BLOCK, node.storage)
        assert block is not None
        match damage:
            case "a flipped bit":
                data.write_bytes(data.read_bytes()[:-1] + b"?")
            case "no block file":
                data.unlink()
            case _:
                meta.write_bytes(b"garbage")
        block.mark_corrupt("somebody met it")
    for _ in range(2):
        async with running(tmp_path) as node:
            assert refusal(await node.next_gs(1)) is Reason.CORRUPT
    async with running(tmp_path, holder=Holder([chunk(0), chunk(1)])) as node:
        assert isinstance(await node.finalize(1, log), Finalized)
    async with running(tmp_path) as node:
        assert isinstance(await node.ask(Read(BLOCK)), ReadReply)
        assert read_damaged(OsDisk(), tmp_path) == {}


def test_a_damaged_list_of_damaged_replicas_says_nothing() -> None:
    data = encode_damaged({BlockId(7): 0, BlockId(9): 3})
    assert decode_damaged(data, Path("damaged")) == {7: 0, 9: 3}
    for position in range(len(data)):
        harmed = bytearray(data)
        harmed[position] ^= 1
        assert decode_damaged(bytes(harmed), Path("damaged")) == {}
        assert decode_damaged(data[:position], Path("damaged")) == {}
