"""The log of small replicas: damage, torn tails, room that is won back, snapshots (FORMAT.md 8)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from paxosblock.base.checksum import crc32c
from paxosblock.datanode.store.disk_format import SHIPPED, SmallLimits
from paxosblock.datanode.store.file_store import FileStore
from paxosblock.datanode.store.identity import read_identity
from paxosblock.datanode.store.small_log import SmallLog
from paxosblock.datanode.store.small_records import RecordKind
from paxosblock.datanode.store.small_replicas import SmallPlace
from paxosblock.datanode.volumes import write_out
from paxosblock.datanode.volumes.volume_snapshot import roll_back
from paxosblock.errors import ConfigError, CorruptionError, StorageError
from paxosblock.host.disk import FileHandle
from paxosblock.journal.record_log import SegmentRemoved
from paxosblock.journal.segment import HEADER_BYTES
from paxosblock.net.wire import HEADER_BYTES as FRAME_HEADER_BYTES
from paxosblock.protocol.messages import Created, Delete, Deleted, Finalized, Nack, Vote
from paxosblock.protocol.types import SMALL_BYTES_MAX, BlockId, Durability, Generation, Reason
from tests.datanode.node import BLOCK, Node, chunk, frame, name, refusal, running
from tests.disks.faults import HELD, SYNCS, Fault
from tests.disks.power_cut import Files
from tests.disks.simulated import SimulatedDisk
from tests.format.loading import load_all
from tests.waiting import wait_until_async

FOLDER = Path("/volume")
SEGMENT = FOLDER / "small" / "log_1"
BLOCKS = tuple(BlockId(number) for number in (11, 12, 13))


async def put(node: Node, block: BlockId, *, finalized: bool = True) -> None:
    """Write a small replica of one chunk, which tells its block."""
    assert isinstance(await node.create(block, small=True), Created)
    vote = await node.send(frame(0, chunk(0, salt=int(block)), block=block))
    assert isinstance(vote, Vote)
    if finalized:
        named = name(0, salt=int(block))
        assert isinstance(await node.finalize(1, [named], block=block), Finalized)


async def written(*blocks: BlockId, marked: bool = False, limits: SmallLimits = SHIPPED) -> Files:
    """The files of a volume with these small replicas."""
    disk = SimulatedDisk()
    async with running(FOLDER, disk=disk, limits=limits) as node:
        for block in blocks:
            await put(node, block)
        if marked:
            await node.volumes[0].run(node.volumes[0].store.tidy)
    return disk.files()


def found(files: Files, boot: str) -> dict[BlockId, bytes | None]:
    """The user data of each replica that is there; None: it is dead, or its bytes are damaged."""
    store = FileStore(SimulatedDisk(files), FOLDER, boot)
    result: dict[BlockId, bytes | None] = {}
    for one in load_all(store):
        result[one.block] = None
        if not one.corrupt and one.files is not None and one.replica is not None:
            log = one.replica.log
            if not len(log):
                result[one.block] = b""
                continue
            chunks = range(len(log))
            into = memoryview(bytearray(store.size_of(log, chunks)))
            try:
                records = store.read(store.open(one.files), one.block, log, chunks, into)
            except CorruptionError:
                continue
            result[one.block] = b"".join(records.take_payloads())
    return result


WRITTEN = asyncio.run(written(*BLOCKS, marked=True))
UNMARKED = {path: data for path, data in WRITTEN.items() if path.name != "durable"}
"""The mark was garbled by a power cut, or an earlier version wrote the log."""
WHOLE = {block: chunk(0, salt=int(block)) for block in BLOCKS}


def test_small_replicas_have_no_files_and_are_found_again() -> None:
    assert not [path for path in WRITTEN if "blk_" in path.name]
    assert found(WRITTEN, "boot-1") == found(WRITTEN, "boot-2") == WHOLE


@given(st.integers(0, len(WRITTEN[SEGMENT]) * 8 - 1), st.sampled_from(["boot-1", "boot-2"]))
@settings(max_examples=300, deadline=None)
def test_a_flipped_bit_is_told_and_nothing_wrong_is_served(bit: int, boot: str) -> None:
    data = bytearray(WRITTEN[SEGMENT])
    data[bit // 8] ^= 1 << bit % 8
    there = found(WRITTEN | {SEGMENT: bytes(data)}, boot)
    assert there.keys() == WHOLE.keys(), "none is forgotten"
    assert all(read in (None, WHOLE[block]) for block, read in there.items())


@pytest.mark.parametrize("boot", ["boot-1", "boot-2"])
@pytest.mark.parametrize("at", range(HEADER_BYTES))
def test_a_damaged_byte_of_a_segments_head_costs_nothing(at: int, boot: str) -> None:
    """The first record says whose log it is, too."""
    data = bytearray(WRITTEN[SEGMENT])
    data[at] ^= 0xFF
    assert found(WRITTEN | {SEGMENT: bytes(data)}, boot) == WHOLE


def test_without_a_mark_a_segment_that_nobody_can_read_fails_the_volume() -> None:
    """Heads of segment and first record are damaged: no record tells which blocks it had."""
    data = bytearray(WRITTEN[SEGMENT])
    data[0] ^= 0xFF
    data[HEADER_BYTES] ^= 0xFF
    with pytest.raises(StorageError, match="not known what its replicas have promised"):
        found(UNMARKED | {SEGMENT: bytes(data)}, "boot-1")


@given(st.integers(HEADER_BYTES, len(WRITTEN[SEGMENT])), st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_a_torn_tail_takes_only_what_nobody_was_told_of(size: int, garbage: bytes) -> None:
    """Nothing tells of what is behind the cut, as when the machine crashes in a write."""
    there = found(UNMARKED | {SEGMENT: WRITTEN[SEGMENT][:size] + garbage}, "boot-2")
    assert all(read in (b"", WHOLE[block]) for block, read in there.items())
    assert list(there) == list(BLOCKS)[: len(there)]


def test_the_end_of_a_process_in_a_write_is_no_damage() -> None:
    cut = WRITTEN[SEGMENT][:-5]
    assert found(WRITTEN | {SEGMENT: cut}, "boot-1") == WHOLE


def test_a_segment_of_a_later_format_is_refused_and_nothing_is_changed() -> None:
    data = bytearray(WRITTEN[SEGMENT])
    data[7] += 1
    data[24:28] = crc32c(bytes(data[:24])).to_bytes(4, "little")
    files = WRITTEN | {SEGMENT: bytes(data)}
    disk = SimulatedDisk(files)
    with pytest.raises(ConfigError, match="log_1 is of format 3"):
        FileStore(disk, FOLDER, "boot-2").load()
    assert disk.files() == files


@pytest.mark.parametrize("with_mark", [True, False])
def test_a_log_of_the_format_before_is_refused_and_nothing_is_changed(with_mark: bool) -> None:
    head = b"PXL1" + b"saltsalt" + b"boot-1".ljust(64, b"\0")
    mark = b"PXLMARK1" + b"".join(each.to_bytes(8, "little") for each in (1, 80, 0))
    files = WRITTEN | {SEGMENT: head + crc32c(head).to_bytes(4, "little")}
    files[SEGMENT.with_name("durable")] = mark + crc32c(mark).to_bytes(4, "little")
    if not with_mark:
        del files[SEGMENT.with_name("durable")]
    disk = SimulatedDisk(files)
    with pytest.raises(ConfigError, match="was written by another version of paxosblock"):
        FileStore(disk, FOLDER, "boot-2").load()
    assert disk.files() == files


async def test_without_a_mark_a_segment_that_is_missing_fails_the_volume() -> None:
    files = await written(*BLOCKS, limits=SmallLimits(segment_bytes=200))
    del files[SEGMENT.with_name("log_2")], files[SEGMENT.with_name("durable")]
    with pytest.raises(StorageError, match="log_2 is missing"):
        FileStore(SimulatedDisk(files), FOLDER, "boot-2").load()


async def test_a_chunk_whose_segment_is_gone_is_damage() -> None:
    # CREATED and CHUNK, then FINALIZED in the second segment.
    files = await written(BLOCKS[0], limits=SmallLimits(segment_bytes=300))
    del files[SEGMENT]
    assert found(files, "boot-2") == {BLOCKS[0]: None}


# -- what a writer may not do, and what a disk may ------------------------------------------------


async def test_a_writer_that_sends_more_than_it_announced_is_refused() -> None:
    async with running(FOLDER, disk=SimulatedDisk()) as node:
        assert isinstance(await node.create(BLOCKS[0], small=True), Created)
        large = frame(0, bytes(SMALL_BYTES_MAX + 1), block=BLOCKS[0])
        assert refusal(await node.send(large)) is Reason.NO_SPACE
        assert isinstance(await node.send(frame(0, block=BLOCKS[0])), Vote)
        second = await node.send(frame(1, block=BLOCKS[0]))
        assert refusal(second) is Reason.NO_SPACE


async def test_a_full_disk_refuses_a_small_replica_and_goes_on() -> None:
    disk = SimulatedDisk()
    async with running(FOLDER, disk=disk) as node:
        await put(node, BLOCKS[0])
        await node.create(BLOCKS[1], small=True)
        disk.full = True
        vote = await node.send(frame(0, chunk(0, salt=12), block=BLOCKS[1]))
        assert refusal(vote) is Reason.NO_SPACE
        disk.full = False
        assert isinstance(await node.send(frame(0, chunk(0, salt=12), block=BLOCKS[1])), Vote)
        assert isinstance(await node.finalize(1, [name(0, salt=12)], block=BLOCKS[1]), Finalized)
    there = found(disk.files(), "boot-1")
    assert there == {block: WHOLE[block] for block in BLOCKS[:2]}


async def test_a_dead_replica_that_is_decided_to_be_empty_is_alive_again() -> None:
    """D9: nothing of it is to be copied, and nothing of it is thrown away afterwards."""
    disk = SimulatedDisk()
    async with running(FOLDER, disk=disk) as node:
        await put(node, BLOCKS[0], finalized=False)
        block = node.acceptor.find(BLOCKS[0], node.storage)
        assert block is not None
        block.mark_corrupt("a bit has flipped")
        assert isinstance(await node.finalize(1, [], block=BLOCKS[0]), Finalized)
        assert block.corrupt == ""
    assert found(disk.files(), "boot-2") == {BLOCKS[0]: b""}


async def test_a_sync_that_fails_fails_the_volume_and_no_vote_leaves() -> None:
    disk = SimulatedDisk()
    async with running(FOLDER, disk=disk) as node:
        await node.create(BLOCKS[0], small=True)
        disk.breaks(Fault(("sync",), "log_1", "EIO"))
        assert isinstance(await node.send(frame(0, block=BLOCKS[0])), Nack)
        assert node.volumes[0].failed


async def test_votes_that_wait_for_no_disk_are_written_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(write_out, "PIECE_BYTES", 1)
    disk = SimulatedDisk()
    async with running(FOLDER, disk=disk) as node:
        volume = node.volumes[0]
        await node.create(BLOCKS[0], durability=Durability.MEMORY, small=True)
        before = disk.synced.count(SEGMENT)
        assert isinstance(await node.send(frame(0, block=BLOCKS[0])), Vote)
        await wait_until_async(
            lambda: not volume.write_out.unwritten_bytes, what="the log to be synced"
        )
        assert disk.synced.count(SEGMENT) == before + 1
        assert not volume.failed


# -- segments -------------------------------------------------------------------------------------


async def test_votes_do_not_wait_for_a_disk_that_hangs_while_a_segment_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The content of the segment before is synced, and once more what a vote appended meanwhile."""
    disk, hanging = SimulatedDisk(), Fault(SYNCS, path=str(SEGMENT), delay_s=HELD)
    async with running(FOLDER, disk=disk) as node:
        for block in BLOCKS:
            await node.create(block, Durability.MEMORY, small=True)
        store = node.volumes[0].store
        assert isinstance(store, FileStore)
        store.small.log.limits = SmallLimits(segment_bytes=1)

        async def vote(block: BlockId) -> None:
            assert isinstance(await node.send(frame(0, chunk(0, salt=block), block=block)), Vote)
            assert disk.plan.waiting == 1, "the vote waited for the disk"

        await node.send(frame(0, chunk(0, salt=BLOCKS[0]), block=BLOCKS[0]))
        disk.breaks(hanging)
        creating = asyncio.ensure_future(node.create(BLOCK, Durability.MEMORY, small=True))
        await wait_until_async(lambda: disk.plan.waiting, what="the sync of the full segment")
        await vote(BLOCKS[1])
        disk.breaks(replace(hanging, times=1))
        await wait_until_async(
            lambda: disk.met and disk.plan.waiting, what="the sync of what the vote appended"
        )
        await vote(BLOCKS[2])
        assert not creating.done()
        disk.mend()
        assert isinstance(await creating, Created)
    for boot in ("boot-1", "boot-2"):
        assert found(disk.files(), boot) == WHOLE | {BLOCK: b""}


def test_a_segment_that_was_removed_is_read_to_the_end_and_then_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = SimulatedDisk()
    log = SmallLog(disk, SEGMENT.parent, "boot-1", SmallLimits(segment_bytes=1))
    log.begin_segment()
    at = log.records.append(RecordKind.CHUNK, BLOCK, b"bytes")
    log.begin_segment()

    def read_while_it_goes(file: FileHandle, size_bytes: int, offset: int) -> bytes:
        log.remove(at.segment)
        log.records.close_removed()
        return disk.read(file, size_bytes, offset)

    assert log.records.read(at, 5, read_while_it_goes) == b"bytes"
    with pytest.raises(SegmentRemoved):
        log.records.read(at, 5, disk.read)
    with monkeypatch.context() as patched:
        closed: list[FileHandle] = []
        patched.setattr(disk, "close", closed.append)
        log.records.close_removed()
        log.records.close_removed()
    assert len(closed) == 1


# -- room -----------------------------------------------------------------------------------------


@asynccontextmanager
async def short(disk: SimulatedDisk) -> AsyncIterator[Node]:
    limits = SmallLimits(segment_bytes=2000, worth_bytes=1, moved_bytes=500)
    async with running(FOLDER, disk=disk, limits=limits) as node:
        yield node


async def test_room_of_deleted_replicas_is_won_back_and_what_lives_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = SimulatedDisk()
    kept = {BlockId(number): chunk(0, salt=number) for number in range(0, 60, 10)}
    async with short(disk) as node:
        volume = node.volumes[0]
        for number in range(60):
            await put(node, BlockId(number))
        for number in range(60):
            if number % 10:
                answer = await node.ask(Delete(BlockId(number), Generation(1)))
                assert isinstance(answer, Deleted)
        before = disk.used_bytes()
        for _ in range(200):
            await volume.run(volume.store.tidy)
        assert disk.used_bytes() < before / 3
        for block, data in kept.items():
            owner = node.acceptor.find(block, node.storage)
            assert owner is not None
            assert owner.replica is not None
            assert isinstance(owner.files, SmallPlace)
            log, file = owner.replica.log, volume.store.open(owner.files)
            into = memoryview(bytearray(volume.store.size_of(log, range(1))))
            records = volume.store.read(file, block, log, range(1), into)
            assert bytes(records.take_payloads()[0]) == data
    assert found(disk.files(), "boot-1") == found(disk.files(), "boot-2") == kept


async def test_damage_met_while_room_is_won_back_is_not_copied_as_sound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = SimulatedDisk()
    async with short(disk) as node:
        volume = node.volumes[0]
        for number in range(40):
            await put(node, BlockId(number))
        where = disk.files()[SEGMENT].index(chunk(0, salt=1))
        disk.names_now[SEGMENT].data[where] ^= 1
        for number in range(2, 30):
            await node.ask(Delete(BlockId(number), Generation(1)))
        for _ in range(100):
            await volume.run(volume.store.tidy)
        there = found(disk.files(), "boot-1")
        assert there[BlockId(1)] is None
        assert there[BlockId(0)] == chunk(0, salt=0)
        assert not volume.failed


# -- snapshots and other versions -----------------------------------------------------------------


async def test_a_rollback_brings_small_replicas_back_as_they_were() -> None:
    disk = SimulatedDisk()
    async with running(FOLDER, disk=disk) as node:
        await put(node, BLOCKS[0])
    async with running(FOLDER, disk=disk.next_process(), upgrade=True) as node:
        await node.volumes[0].be_taken_in()
        await node.ask(Delete(BLOCKS[0], Generation(1)))
        await put(node, BLOCKS[1])
    roll_back(disk.next_process(), [FOLDER])
    assert found(disk.files(), "boot-1") == {BLOCKS[0]: WHOLE[BLOCKS[0]]}
    again = SimulatedDisk(disk.files())
    FileStore(again, FOLDER, "boot-1").load()
    assert b"forgot" not in again.files()[FOLDER / "VERSION"], "the mark is of the time since"


async def test_a_log_that_an_earlier_version_left_is_not_believed() -> None:
    """It was rolled back by a program that knows of no log: what is in it was never promised."""
    files = dict(WRITTEN)
    lines = files[FOLDER / "VERSION"].replace(b"format=4", b"format=1").replace(b"small=1\n", b"")
    body = lines[: lines.rindex(b"crc=")]
    files[FOLDER / "VERSION"] = body + f"crc={crc32c(body):08x}\n".encode()
    disk = SimulatedDisk(files)
    identity = read_identity(disk, FOLDER)
    assert identity is not None
    assert not identity.small
    async with running(FOLDER, disk=disk) as node:
        assert node.acceptor.count == 0
    assert not [path for path in disk.files() if path.parent == SEGMENT.parent]


async def test_a_replica_that_was_being_written_goes_to_files_at_a_start() -> None:
    disk = SimulatedDisk()
    async with running(FOLDER, disk=disk) as node:
        assert isinstance(
            await node.create(BLOCKS[0], durability=Durability.MEMORY, small=True), Created
        )
        assert isinstance(await node.send(frame(0, block=BLOCKS[0])), Vote)
    async with running(FOLDER, disk=disk.next_process()) as node:
        block = node.acceptor.find(BLOCKS[0], node.storage)
        assert block is not None
        assert block.replica is not None
        assert (block.replica.length, block.replica.registers.weak) == (1, False)
    data = disk.files()[FOLDER / "rbw" / f"blk_{BLOCKS[0]}"]
    assert data[FRAME_HEADER_BYTES:] == chunk(0)
