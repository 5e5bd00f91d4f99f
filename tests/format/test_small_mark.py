"""The mark of the log of small replicas: a log that lost records is told from a torn one, and what
it may have forgotten is dead (FORMAT.md 8, PROTOCOL.md D11)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from paxosblock.datanode.store.disk_format import Forgot, SmallLimits
from paxosblock.datanode.store.file_store import FileStore
from paxosblock.datanode.store.identity import read_identity
from paxosblock.datanode.store.small_log import SmallLog
from paxosblock.datanode.store.small_records import FORMAT, RecordKind
from paxosblock.errors import StorageError
from paxosblock.host.disk import OsDisk
from paxosblock.journal.durable_mark import read_mark
from paxosblock.journal.record_log import MARK_NAME
from paxosblock.journal.segment import HEADER_BYTES, RECORD_BYTES
from paxosblock.protocol.messages import Created, Delete, Deleted, Finalized, LastVote, Vote
from paxosblock.protocol.types import BlockId, Durability, Generation, Reason
from tests.datanode.node import chunk, frame, name, refusal, running
from tests.disks.power_cut import Files
from tests.disks.simulated import SimulatedDisk
from tests.format.test_small_log import (
    BLOCKS,
    FOLDER,
    SEGMENT,
    UNMARKED,
    WHOLE,
    WRITTEN,
    found,
    put,
    written,
)

NEW = BlockId(99)
"""A block of after the loss."""
TWO_BITS = 0x41


def forgot_in(files: Files, boot: str = "boot-1") -> Forgot | None:
    """Return the losses that a start notes durably."""
    disk = SimulatedDisk(files)
    FileStore(disk, FOLDER, boot).load()
    identity = read_identity(disk, FOLDER)
    assert identity is not None
    return identity.forgot


def heads(data: bytes) -> list[int]:
    """The offsets of the records of a segment."""
    salt, at = data[16:24], list[int]()
    while (found_at := data.find(salt, at[-1] + 1 if at else HEADER_BYTES)) >= 0:
        at.append(found_at)
    return at


def flipped(data: bytes, at: int) -> bytes:
    """Two bits of it flipped, which the head's checksum does not mend."""
    return data[:at] + bytes((data[at] ^ TWO_BITS,)) + data[at + 1 :]


def mark_of(files: Files) -> tuple[int, ...]:
    numbers = read_mark(SimulatedDisk(files), SEGMENT.with_name(MARK_NAME), FORMAT)
    assert numbers is not None
    return numbers


# -- the mark -------------------------------------------------------------------------------------


def test_the_bytes_of_a_mark(tmp_path: Path) -> None:
    """Magic, segment, offset, the highest block, checksum."""
    log = SmallLog(OsDisk(), tmp_path, "boot-1")
    log.open()
    log.begin_segment()
    log.records.append(RecordKind.GONE, BlockId(0x1234))
    log.sync()
    log.records.close()
    data = (tmp_path / "durable").read_bytes()
    size = (tmp_path / "log_1").stat().st_size
    expected = b"PXLMARK2" + b"".join(each.to_bytes(8, "little") for each in (1, size, 0x1234))
    assert data[:-4] == expected
    assert len(data) == 36


async def test_the_mark_follows_every_sync_and_costs_none() -> None:
    disk = SimulatedDisk()
    async with running(FOLDER, disk=disk) as node:
        await put(node, BLOCKS[0])
        before = disk.synced.count(SEGMENT.with_name(MARK_NAME))
        for block in BLOCKS[1:]:
            await put(node, block)
            files = disk.files()
            assert mark_of(files) == (1, len(files[SEGMENT]), block)
        assert disk.synced.count(SEGMENT.with_name(MARK_NAME)) == before


async def test_a_vote_that_waits_for_no_disk_is_beyond_the_mark() -> None:
    """The end of a process in the middle of that write is no loss."""
    disk = SimulatedDisk()
    async with running(FOLDER, disk=disk) as node:
        await node.create(BLOCKS[0], Durability.MEMORY, small=True)
        assert isinstance(await node.send(frame(0, block=BLOCKS[0])), Vote)
        files = disk.files()
    assert mark_of(files)[1] < len(files[SEGMENT])
    assert forgot_in(files | {SEGMENT: files[SEGMENT][:-5]}) is None


# -- a log that ends before its mark --------------------------------------------------------------


@pytest.mark.parametrize("boot", ["boot-1", "boot-2"])
def test_a_log_cut_short_anywhere_is_noticed(boot: str) -> None:
    """The rest of it is used. All else is forgotten: it is not there, and that is noted."""
    stop = mark_of(WRITTEN)[1]
    for size in range(0, stop, 7):
        files = WRITTEN | {SEGMENT: WRITTEN[SEGMENT][:size]}
        assert forgot_in(files, boot) is not None, size
        assert all(read == WHOLE[block] for block, read in found(files, boot).items())
    assert forgot_in(WRITTEN, boot) is None


def test_a_log_without_its_segments_is_noticed() -> None:
    files = dict(WRITTEN)
    del files[SEGMENT]
    assert forgot_in(files) == Forgot(BLOCKS[-1], 0)


async def test_a_log_without_a_segment_in_the_middle_is_noticed() -> None:
    files = await written(*BLOCKS, limits=SmallLimits(segment_bytes=200))
    del files[SEGMENT.with_name("log_3")]
    assert forgot_in(files) == Forgot(BLOCKS[-1], 3)


def cut_behind(block: BlockId, kind: int) -> Files:
    """The log ends with this record of the block; `kind` counts its records."""
    data = WRITTEN[SEGMENT]
    at = heads(data)
    return WRITTEN | {SEGMENT: data[: at[3 * BLOCKS.index(block) + kind + 1]]}


async def test_what_may_be_forgotten_promises_nothing_and_is_healed_by_a_full_copy() -> None:
    disk = SimulatedDisk(cut_behind(BLOCKS[0], 2))
    lost = BLOCKS[1]
    for _ in range(2):  # the next process still knows it
        async with running(FOLDER, disk=disk) as node:
            assert node.volumes[0].failed == ""
            await node.volumes[0].enter("cluster-1")  # writes `VERSION` anew
            assert refusal(await node.next_gs(1, block=lost)) is Reason.CORRUPT
            assert refusal(await node.create(lost, small=True)) is Reason.CORRUPT
            assert refusal(await node.send(frame(0, block=lost))) is Reason.NO_REPLICA
            assert node.acceptor.find(lost, node.storage) is None, "nothing is kept of it"
            assert node.acceptor.count == 1
            kept = node.acceptor.find(BLOCKS[0], node.storage)
            assert kept is not None
            assert kept.corrupt == ""
        disk = disk.next_process()
    async with running(FOLDER, disk=disk) as node:
        assert isinstance(await node.ask(Delete(BLOCKS[2], Generation(1))), Deleted)
        assert refusal(await node.next_gs(1, block=BLOCKS[2])) is Reason.CORRUPT
        node.holder.payloads = [chunk(0, salt=int(lost))]
        assert isinstance(await node.finalize(1, [name(0, salt=int(lost))], block=lost), Finalized)
        assert isinstance(await node.create(NEW, small=True), Created), "it came after the loss"
        assert isinstance(await node.next_gs(1, block=BlockId(98)), LastVote)


async def test_an_open_replica_before_the_loss_may_have_lost_its_vote() -> None:
    """It was created, and its vote is cut off: it must not say that it has none."""
    disk = SimulatedDisk(cut_behind(BLOCKS[1], 0))
    for _ in range(2):
        async with running(FOLDER, disk=disk) as node:
            assert refusal(await node.next_gs(1, block=BLOCKS[1])) is Reason.CORRUPT
            await put(node, NEW)  # a later segment is without loss
            answer = await node.ask(Delete(NEW, Generation(1)))
            assert isinstance(answer, Deleted)
        disk = disk.next_process()


async def test_room_that_is_won_back_brings_nothing_back_that_may_be_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The records of a replica that is in doubt are no copy of it in a later segment."""
    limits = SmallLimits(worth_bytes=1, worth_share=0)
    data = WRITTEN[SEGMENT]
    at = heads(data)
    disk = SimulatedDisk(WRITTEN | {SEGMENT: flipped(data, at[5] + 9)[: at[7]]})
    async with running(FOLDER, disk=disk, limits=limits) as node:
        await put(node, NEW)
        for _ in range(5):
            await node.volumes[0].run(node.volumes[0].store.tidy)
        assert SEGMENT not in disk.files()
    files = disk.files()
    assert found(files, "boot-1") == {BLOCKS[0]: WHOLE[BLOCKS[0]], NEW: chunk(0, salt=99)}
    async with running(FOLDER, disk=disk.next_process(), limits=limits) as node:
        for block in BLOCKS[1:]:
            assert refusal(await node.next_gs(1, block=block)) is Reason.CORRUPT


# -- damage in the middle -------------------------------------------------------------------------


@pytest.mark.parametrize("boot", ["boot-1", "boot-2"])
def test_a_head_damaged_beyond_mending_costs_only_what_it_is_about(boot: str) -> None:
    """Records behind it are read; only finalized ones are believed."""
    for number, at in enumerate(heads(WRITTEN[SEGMENT])[:-1]):  # the last one is of no block
        files = WRITTEN | {SEGMENT: flipped(WRITTEN[SEGMENT], at + 9)}
        assert forgot_in(files, boot) == Forgot(BLOCKS[-1], 1)
        there = found(files, boot)
        hurt = BLOCKS[number // 3]
        assert {block: read for block, read in there.items() if block != hurt} == {
            block: data for block, data in WHOLE.items() if block != hurt
        }
        assert there.get(hurt) in (None, WHOLE[hurt])


async def test_a_damaged_head_in_a_segment_without_an_index_costs_only_what_it_is_about(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = SimulatedDisk()
    async with running(FOLDER, disk=disk, limits=SmallLimits(segment_bytes=600)) as node:
        for block in BLOCKS:
            await put(node, block)
    files = {path: data for path, data in disk.files().items() if path.suffix != ".index"}
    assert SEGMENT.with_name("log_2") in files
    files[SEGMENT] = flipped(files[SEGMENT], heads(files[SEGMENT])[2] + 9)
    assert forgot_in(files) == Forgot(BLOCKS[-1], 1)
    assert found(files, "boot-1") == {block: WHOLE[block] for block in BLOCKS[1:]}


def test_a_segment_that_nobody_can_read_costs_its_own_replicas() -> None:
    """Its head and the head of its first record are damaged: nothing says whose log it is."""
    data = flipped(flipped(WRITTEN[SEGMENT], 0), HEADER_BYTES)
    files = WRITTEN | {SEGMENT: data}
    assert forgot_in(files) == Forgot(BLOCKS[-1], 1)
    assert found(files, "boot-1") == {}


async def test_a_damaged_header_of_a_segment_without_records_costs_nothing() -> None:
    """The process ended when it had just begun the segment."""
    disk = SimulatedDisk(WRITTEN)
    begun = SmallLog(disk, SEGMENT.parent, "boot-1")
    begun.open()
    list(begun.last_records())
    begun.begin_segment()
    second = SEGMENT.with_name("log_2")
    for damage in (0, 20):
        files = disk.files()
        files[second] = flipped(files[second][:HEADER_BYTES], damage)
        assert forgot_in(files) is None
        assert found(files, "boot-1") == WHOLE


def two_segments(damage: int) -> Files:
    """A log of two segments; these bits flipped in the word that says where the first one ended."""

    async def written_twice() -> Files:
        disk = SimulatedDisk(WRITTEN)
        async with running(FOLDER, disk=disk) as node:
            await put(node, NEW)
        return disk.files()

    files = asyncio.run(written_twice())
    second, at = SEGMENT.with_name("log_2"), HEADER_BYTES + RECORD_BYTES + 1
    data = files[second]
    return files | {second: data[:at] + bytes((data[at] ^ damage,)) + data[at + 1 :]}


def test_a_damaged_word_of_where_a_segment_ended_costs_nothing_that_is_finalized() -> None:
    """It can no longer be read."""
    files = two_segments(TWO_BITS)
    assert forgot_in(files) == Forgot(NEW, 2)
    assert found(files, "boot-1") == {**WHOLE, NEW: chunk(0, salt=99)}


@pytest.mark.parametrize("boot", ["boot-1", "boot-2"])
def test_a_bit_in_the_word_of_where_a_segment_ended_costs_nothing(boot: str) -> None:
    files = two_segments(0x40)
    assert forgot_in(files, boot) is None
    assert found(files, boot) == {**WHOLE, NEW: chunk(0, salt=99)}


@pytest.mark.parametrize("at", [0, 9])
def test_without_a_mark_nobody_knows_which_blocks_a_damaged_head_was_about(at: int) -> None:
    files = UNMARKED | {SEGMENT: flipped(WRITTEN[SEGMENT], heads(WRITTEN[SEGMENT])[4] + at)}
    with pytest.raises(StorageError, match="not known what its replicas have"):
        forgot_in(files)


async def test_a_second_loss_is_noticed_as_the_first_was() -> None:
    disk = SimulatedDisk(cut_behind(BLOCKS[0], 2))
    async with running(FOLDER, disk=disk) as node:
        await put(node, NEW)
    files = disk.files()
    del files[SEGMENT.with_name("log_2")]
    assert forgot_in(files) == Forgot(NEW, 1)
    assert found(files, "boot-1") == {BLOCKS[0]: WHOLE[BLOCKS[0]]}
