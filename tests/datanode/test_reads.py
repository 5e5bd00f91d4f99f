"""Bytes and states for readers: what is served, what never is, and who is woken when."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from paxosblock.api.datanode import Chunks, FetchChunks, ReadBytes, Run, Watch
from paxosblock.base.checksum import crc32c
from paxosblock.base.units import MIB
from paxosblock.datanode import replica_reads
from paxosblock.datanode.replica_reads import (
    MAX_BUFFERS,
    MAX_CHUNKS,
    MAX_LOADS,
    MAX_PIECES,
    PIECE_BYTES,
)
from paxosblock.datanode.store.disk_format import FetchedChunks
from paxosblock.errors import CorruptionError, StorageError
from paxosblock.host.disk import FileHandle, OsDisk
from paxosblock.net.streams.stream_calls import Bulk
from paxosblock.net.wire import HEADER_BYTES, FrameKind, Header
from paxosblock.protocol.chunk_log import ENTRY_BYTES, read_entries
from paxosblock.protocol.messages import (
    Delete,
    Deleted,
    Finalized,
    LastVote,
    Nack,
    Read,
    ReadReply,
    RecoveryVote,
    Vote,
)
from paxosblock.protocol.read import Version
from paxosblock.protocol.types import (
    NO_GENERATION,
    BlockId,
    ChunkIndex,
    ChunkName,
    Durability,
    Generation,
    Reason,
)
from tests.datanode.node import BLOCK, Holder, Node, chunk, frame, name, refusal, running, unadopted
from tests.disks.faults import HELD, SYNCS, Fault
from tests.disks.simulated import SimulatedDisk
from tests.waiting import wait_until_async

FINAL = Version(Generation(0), Generation(1), 3)


async def three_finalized_chunks(node: Node) -> None:
    """A block of three chunks of 100 bytes, finalized under generation 1."""
    await node.create()
    await node.write(3)
    await node.finalize(1, [name(i) for i in range(3)])


async def read(
    node: Node, offset: int, size: int, version: Version = FINAL, *, exact: bool = False
) -> tuple[Served, bytes]:
    """Read bytes that must be served; return which chunks came, and their user data."""
    request = ReadBytes(BLOCK, node.storage, version, offset, size, exact)
    answer = await node.reader.read_bytes(request)
    assert isinstance(answer, Bulk)
    run = answer.reply
    assert isinstance(run, Run)
    if not run.names:
        assert (answer.count, answer.frames) == (0, ())
        return Served(run.first, run.offset, 0), b""
    assert answer.count == 1
    head, *parts = answer.frames
    payload, header = b"".join(parts), Header.unpack(head)
    assert (header.kind, header.index) == (FrameKind.RUN, run.first)
    assert header.payload_length == len(payload)
    begin = run.offset
    for end, crc in read_entries(run.names):
        assert crc32c(payload[begin - run.offset : end - run.offset]) == crc
        begin = end
    assert begin == run.offset + len(payload)
    return Served(run.first, run.offset, len(run.names) // ENTRY_BYTES), payload


class Served(NamedTuple):
    """The chunks of an answer: the first one, where it begins, and how many there are."""

    first: int
    offset: int
    chunks: int


def watch(node: Node, known: int, wait_ms: int = 60_000) -> asyncio.Task[ReadReply | Nack]:
    """Wait for more than `known` chunks of generation 0."""
    request = Watch(node.storage, Read(BLOCK), Generation(0), known, wait_ms)
    return asyncio.create_task(node.reader.watch(request))


async def test_a_range_is_answered_with_the_chunks_that_cover_it(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await three_finalized_chunks(node)
        assert await read(node, 150, 100) == (Served(1, 100, 2), chunk(1) + chunk(2))
        assert await read(node, 99, 1) == (Served(0, 0, 1), chunk(0))


async def test_a_read_past_the_end_has_no_chunks(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await three_finalized_chunks(node)
        assert await read(node, 300, 10) == (Served(3, 300, 0), b"")


async def test_one_reply_is_bounded_but_never_empty(tmp_path: Path) -> None:
    async with running(tmp_path, max_read_bytes=150) as node:
        await three_finalized_chunks(node)
        assert (await read(node, 0, 300))[0] == Served(0, 0, 1)
    async with running(tmp_path, max_read_bytes=1) as node:
        assert (await read(node, 250, 50))[0] == Served(2, 200, 1)


@pytest.mark.parametrize(
    ("offset", "size", "served"),
    [(110, 5, (1, 110, 1)), (199, 1, (1, 199, 1)), (150, 100, (1, 150, 2)), (50, 200, (0, 50, 3)),
     (0, 300, (0, 0, 3)), (290, 100, (2, 290, 1)), (300, 10, (3, 300, 0))],
)  # fmt: skip
async def test_who_wants_no_more_than_a_range_gets_parts_with_checksums_of_their_own(
    tmp_path: Path, offset: int, size: int, served: tuple[int, int, int]
) -> None:
    async with running(tmp_path) as node:
        await three_finalized_chunks(node)
        data = b"".join(map(chunk, range(3)))[offset : offset + size]
        assert await read(node, offset, size, exact=True) == (served, data)
    async with running(tmp_path, max_read_bytes=1) as node:
        if offset < 200 < offset + size:
            data, served = data[: 100 - offset % 100], (offset // 100, offset, 1)
            assert await read(node, offset, size, exact=True) == (served, data)


LARGE = chunk(0, 10 * PIECE_BYTES + 1)
ONLY = Version(Generation(0), Generation(1), 2)


class Counting(SimulatedDisk):
    """A disk in memory that counts what is read."""

    read_bytes = 0

    def read_cached(self, file: FileHandle, into: memoryview, offset: int) -> bool:
        self.read_bytes += len(into)
        return super().read_cached(file, into, offset)


async def test_parts_of_a_chunk_that_was_checked_are_read_without_the_rest_of_it() -> None:
    disk = Counting()
    async with running(Path("/volume"), disk=disk) as node:
        await small_chunks(node, [chunk(5), LARGE])
        for offset, size in ((0, 9), (PIECE_BYTES - 5, 9), (len(LARGE) - 9, 9), (PIECE_BYTES, 1)):
            served = await read(node, 100 + offset, size, ONLY, exact=True)
            assert served == ((1, 100 + offset, 1), LARGE[offset : offset + size])
        first = HEADER_BYTES + len(LARGE)
        assert disk.read_bytes == first + 2 * PIECE_BYTES + PIECE_BYTES + 1 + PIECE_BYTES


async def test_damage_of_a_chunk_whose_pieces_are_known_is_found_where_it_is_read(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as node:
        await small_chunks(node, [chunk(5), LARGE])
        await read(node, 100, 9, ONLY, exact=True)
        flip(tmp_path / "current" / "blk_7", 2 * HEADER_BYTES + 100 + PIECE_BYTES + 7)
        with pytest.raises(CorruptionError, match="chunk 1 of block 7"):
            await read(node, 100 + PIECE_BYTES, 1, ONLY, exact=True)
        assert [block for block, _, _ in node.notes.corrupt] == [BLOCK]
        answer = await node.reader.read_bytes(ReadBytes(BLOCK, node.storage, ONLY, 0, 1))
        assert refusal(answer) is Reason.CORRUPT


async def test_a_part_of_a_known_chunk_is_served_only_where_the_whole_one_would_be(
    tmp_path: Path,
) -> None:
    """Of a version that a sound replica holds, on a volume that works, and within the version."""
    async with running(tmp_path) as node:
        await small_chunks(node, [chunk(5), LARGE])
        await read(node, 100, 9, ONLY, exact=True)

        async def asked(version: Version, offset: int = 100) -> Bulk | Nack:
            request = ReadBytes(BLOCK, node.storage, version, offset, 9, exact=True)
            assert (node.reader.known_part(request) is not None) == (version == ONLY)
            return await node.reader.read_bytes(request)

        assert isinstance(await asked(ONLY), Bulk)
        other = Version(Generation(5), Generation(6), 2)
        for stale in (other, replace(ONLY, length=3), replace(ONLY, length=1)):
            assert refusal(await asked(stale)) is Reason.STALE
        for offset, size in ((-1, 9), (100 + len(LARGE) - 5, 9), (99, 9), (100, 0), (100, -1)):
            request = ReadBytes(BLOCK, node.storage, ONLY, offset, size, exact=True)
            assert node.reader.known_part(request) is None
        request = ReadBytes(BLOCK, node.storage, ONLY, 100, 9, exact=True)
        (volume,) = node.volumes
        volume.fail(StorageError("the disk broke"))
        assert node.reader.known_part(request) is None
        assert refusal(await node.reader.read_bytes(request)) is Reason.NO_REPLICA


async def test_very_many_small_chunks_are_one_frame_of_user_data(tmp_path: Path) -> None:
    """Empty ones too, which hsync makes; the names say where each ends."""
    payloads = [chunk(i, size=6 - i % 7) for i in range(2 * MAX_PIECES)]
    async with running(tmp_path) as node:
        version = await small_chunks(node, payloads)
        assert await read(node, 0, 10_000, version) == (
            Served(0, 0, len(payloads)),
            b"".join(payloads),
        )


@pytest.mark.parametrize("last", [5, 3, 7], ids=lambda size: f"the last of {size} bytes")
async def test_equally_long_small_chunks_are_served_like_any_others(
    tmp_path: Path, last: int
) -> None:
    payloads = [chunk(i, size=5) for i in range(2 * MAX_PIECES)] + [chunk(9, size=last)]
    data = b"".join(payloads)
    async with running(tmp_path) as node:
        version = await small_chunks(node, payloads)
        assert await read(node, 0, 10_000, version) == (Served(0, 0, len(payloads)), data)
        assert await read(node, 5, 10, version) == (Served(1, 5, 2), data[5:15])


@pytest.mark.parametrize("at", [0, 30, HEADER_BYTES - 1, HEADER_BYTES], ids=str)
@pytest.mark.parametrize("size", [5, 6], ids=["equally long", "others"])
@pytest.mark.parametrize("bad", [0, MAX_PIECES, 2 * MAX_PIECES - 1])
async def test_a_bit_that_flips_among_very_many_small_chunks_is_found(
    tmp_path: Path, at: int, size: int, bad: int
) -> None:
    payloads = [chunk(i, size=5 if i % 2 else size) for i in range(2 * MAX_PIECES)]
    before = sum(HEADER_BYTES + len(each) for each in payloads[:bad])
    async with running(tmp_path) as node:
        version = await small_chunks(node, payloads)
        flip(tmp_path / "current" / "blk_7", before + at)
        with pytest.raises(CorruptionError, match=f"chunk {bad} of block 7"):
            await read(node, 0, 10_000, version)


async def test_how_many_chunks_go_into_one_reply_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert MAX_CHUNKS * (HEADER_BYTES + ENTRY_BYTES) <= MIB
    monkeypatch.setattr(replica_reads, "MAX_CHUNKS", 3)
    async with running(tmp_path) as node:
        version = await small_chunks(node, [b"a"] * 5)
        assert await read(node, 1, 10_000, version) == (Served(1, 1, 3), b"aaa")


async def small_chunks(node: Node, payloads: list[bytes]) -> Version:
    """A finalized block of these chunks."""
    await node.create()
    for index, payload in enumerate(payloads):
        await node.send(frame(index, payload))
    log = [ChunkName(ChunkIndex(i), len(each), crc32c(each)) for i, each in enumerate(payloads)]
    await node.finalize(1, log)
    return Version(Generation(0), Generation(1), len(payloads))


async def test_another_version_is_stale(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await three_finalized_chunks(node)
        other = Version(Generation(0), Generation(5), 4)
        answer = await node.reader.read_bytes(ReadBytes(BLOCK, node.storage, other, 0, 10))
        assert isinstance(answer, Nack)
        assert answer is not None
        assert answer.reason is Reason.STALE


async def test_who_opened_a_block_before_a_member_left_is_served_afterwards(tmp_path: Path) -> None:
    """K13, P5: those who stay have the same chunks under a later generation."""
    async with running(tmp_path) as node:
        await three_finalized_chunks(node)
        before = await read(node, 0, 300)
        later = [await node.finalize(fgs, [name(i) for i in range(3)]) for fgs in (2, 3)]
        assert all(isinstance(reply, Finalized) for reply in later)
        assert await read(node, 0, 300) == before
        assert await read(node, 0, 300, Version(Generation(0), Generation(3), 3)) == before


async def test_a_member_that_is_told_a_later_generation_in_mid_read_serves_on(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as node:
        await three_finalized_chunks(node)
        for _ in range(MAX_LOADS):
            await node.reader._loads.acquire()
        waiting = asyncio.create_task(read(node, 0, 300))
        await wait_until_async(lambda: bool(node.reader._loads._waiters))
        await node.finalize(2, [name(i) for i in range(3)])
        node.reader._loads.release()
        assert (await waiting)[0].chunks == 3


async def test_who_opened_a_block_before_it_was_cut_is_refused_also_in_mid_read(
    tmp_path: Path,
) -> None:
    """K8: that is no corruption, and the replica serves the shorter version."""
    async with running(tmp_path) as node:
        await three_finalized_chunks(node)
        for _ in range(MAX_LOADS):
            await node.reader._loads.acquire()
        request = ReadBytes(BLOCK, node.storage, FINAL, 0, 300)
        waiting = asyncio.create_task(node.reader.read_bytes(request))
        await wait_until_async(lambda: bool(node.reader._loads._waiters))
        await node.finalize(2, [name(0)])
        node.reader._loads.release()
        for answer in (await waiting, await node.reader.read_bytes(request)):
            assert isinstance(answer, Nack)
            assert answer.reason is Reason.STALE
        assert node.notes.corrupt == []
        assert (await read(node, 0, 300, Version(Generation(0), Generation(2), 1)))[1] == chunk(0)


async def test_who_left_has_no_replica_for_readers(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await three_finalized_chunks(node)
        assert isinstance(await node.ask(Delete(BLOCK, Generation(1))), Deleted)
        answer = await node.reader.read_bytes(ReadBytes(BLOCK, node.storage, FINAL, 0, 300))
        assert isinstance(answer, Nack)
        assert answer.reason is Reason.NO_REPLICA


async def test_an_unfinalized_prefix_is_served_while_the_block_grows(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.create()
        await node.write(2)
        prefix = Version(Generation(0), NO_GENERATION, 2)
        assert await read(node, 0, 1000, prefix) == (
            Served(0, 0, 2),
            chunk(0) + chunk(1),
        )


async def test_a_block_that_is_finalized_while_its_read_waits_for_its_turn_is_served(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as node:
        await node.create()
        await node.write(3)
        for _ in range(MAX_LOADS):
            await node.reader._loads.acquire()
        prefix = Version(Generation(0), NO_GENERATION, 3)
        waiting = asyncio.create_task(read(node, 0, 300, prefix))
        await wait_until_async(lambda: bool(node.reader._loads._waiters))
        await node.finalize(1, [name(i) for i in range(3)])
        node.reader._loads.release()
        assert (await waiting)[0].chunks == 3


def open_files(folder: Path) -> list[str]:
    """The block files below `folder` that this process has open, deleted ones too."""
    links = [Path(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
    targets = [os.readlink(link) for link in links if link.is_symlink()]
    return [target for target in targets if target.startswith(str(folder)) and "blk_" in target]


async def test_a_finalized_file_is_opened_by_its_first_reader_and_stays_open(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as node:
        await three_finalized_chunks(node)
        assert open_files(tmp_path) == []
        await asyncio.gather(*(read(node, 0, 100) for _ in range(4)))
        assert len(open_files(tmp_path)) == 1
        await read(node, 100, 100)
        assert len(open_files(tmp_path)) == 1


async def test_only_the_files_that_were_read_last_stay_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_reads, "MAX_OPEN_FILES", 2)
    async with running(tmp_path) as node:
        blocks = [BlockId(number) for number in (11, 12, 13)]
        for block in blocks:
            await node.create(block)
            await node.send(frame(0, block=block))
            await node.finalize(1, [name(0)], block=block)
            version = Version(Generation(0), Generation(1), 1)
            await node.reader.read_bytes(ReadBytes(block, node.storage, version, 0, 1))
        still_open = [path.rpartition("/")[2] for path in open_files(tmp_path)]
        assert sorted(still_open) == ["blk_12", "blk_13"]


async def test_a_deleted_block_is_open_for_nobody_so_that_its_room_comes_back(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as node:
        await three_finalized_chunks(node)
        await read(node, 0, 100)
        assert isinstance(await node.ask(Delete(BLOCK, Generation(9))), Deleted)
        assert open_files(tmp_path) == []


async def test_a_dead_replica_that_was_being_written_is_deleted_with_its_room(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as node:
        await node.create()
        await node.write(3)
        flip(tmp_path / "rbw" / "blk_7", 60)
        with pytest.raises(CorruptionError):
            await read(node, 0, 10, Version(Generation(0), NO_GENERATION, 3))
        assert isinstance(await node.ask(Delete(BLOCK, Generation(0))), Deleted)
        assert open_files(tmp_path) == []


async def test_who_reads_while_a_block_is_extended_gets_the_version_that_was_asked_for(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as node:
        await three_finalized_chunks(node)
        assert await read(node, 0, 300)
        await node.reopen(5, [name(i) for i in range(3)], 1)
        await node.write(2, start=3, generation=5)
        longer = Version(Generation(5), NO_GENERATION, 5)
        reply, data = await read(node, 0, 1000, longer)
        assert reply.chunks == 5
        assert data[-100:] == chunk(4)


async def test_a_bit_that_flips_after_a_read_is_found_by_the_next_one(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await three_finalized_chunks(node)
        await read(node, 0, 300)
        flip(tmp_path / "current" / "blk_7", 200)
        with pytest.raises(CorruptionError):
            await read(node, 0, 300)


async def test_what_the_system_has_not_in_memory_is_read_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OsDisk, "read_cached", lambda *_: False)
    async with running(tmp_path) as node:
        await three_finalized_chunks(node)
        assert (await read(node, 0, 300))[1] == b"".join(map(chunk, range(3)))


class Forgetful(SimulatedDisk):
    """A disk whose files the system never has in memory; it tells what was read into."""

    def __init__(self) -> None:
        super().__init__()
        self.remembers = False
        self.buffers: list[object] = []

    def read_into(self, file: FileHandle, into: memoryview, offset: int) -> int:
        self.buffers.append(into.obj)
        return super().read_into(file, into, offset)


async def test_reads_in_a_thread_use_the_same_memory_again() -> None:
    disk = Forgetful()
    async with running(Path("/volume"), disk=disk) as node:
        await three_finalized_chunks(node)
        for _ in range(3 * MAX_BUFFERS):
            assert (await read(node, 0, 300))[1] == b"".join(map(chunk, range(3)))
        assert len(disk.buffers) == 3 * MAX_BUFFERS
        # A thread lets go of its buffer a moment after its result has come.
        assert len(set(map(id, disk.buffers))) <= MAX_BUFFERS


async def test_memory_that_a_thread_may_still_fill_is_given_to_nobody_else() -> None:
    """The thread of a read that was given up goes on until the disk answers."""
    disk = Forgetful()
    async with running(Path("/volume"), disk=disk) as node:
        await three_finalized_chunks(node)
        await read(node, 0, 300)
        disk.breaks(Fault(("read",), delay_s=HELD, times=1))
        given_up = asyncio.create_task(read(node, 0, 300))
        await wait_until_async(lambda: disk.plan.waiting)
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        _, data = await read(node, 0, 300)
        disk.mend()
        await wait_until_async(lambda: not disk.plan.waiting)
        assert data == b"".join(map(chunk, range(3)))
        assert disk.buffers[2] is not disk.buffers[1]


@pytest.mark.parametrize("in_memory", [True, False], ids=["in memory", "from the disk"])
@pytest.mark.parametrize("position", [3, 20, 60, 147])
async def test_a_flipped_bit_is_an_error_and_reported_and_the_replica_is_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, position: int, in_memory: bool
) -> None:
    if not in_memory:
        monkeypatch.setattr(OsDisk, "read_cached", lambda *_: False)
    async with running(tmp_path) as node:
        await three_finalized_chunks(node)
        flip(tmp_path / "current" / "blk_7", len(frame(0)[1]) + position)
        assert (await read(node, 0, 50))[1] == chunk(0), "chunk 0 is good"
        with pytest.raises(CorruptionError, match="chunk 1 of block 7"):
            await read(node, 150, 10)
        ((block, storage, reason),) = node.notes.corrupt
        assert (block, storage) == (BLOCK, node.storage)
        assert "chunk 1" in reason
        assert refusal(await node.ask(Read(BLOCK))) is Reason.CORRUPT


async def test_a_dead_replica_is_healed_by_a_full_copy(tmp_path: Path) -> None:
    holder = Holder([chunk(i) for i in range(3)])
    async with running(tmp_path, holder=holder) as node:
        await three_finalized_chunks(node)
        flip(tmp_path / "current" / "blk_7", 60)
        with pytest.raises(CorruptionError):
            await read(node, 0, 10)
        healed = await node.finalize(1, [name(i) for i in range(3)])
        assert healed == Finalized(BLOCK, Generation(1), node.storage, 3)
        assert (await read(node, 0, 300))[0].chunks == 3
        names = sorted(path.name for path in (tmp_path / "current").iterdir())
        assert names == ["blk_7.1", "blk_7.meta"]
    async with running(tmp_path) as node:
        assert (await read(node, 0, 300))[0].chunks == 3


@pytest.mark.parametrize("folder", ["rbw", "current"])
async def test_a_replica_of_which_nobody_knows_the_promise_takes_only_what_was_decided(
    tmp_path: Path, folder: str
) -> None:
    """Its metadata may hold a later promise than a recovery's; a decision voids them all."""
    log = [name(i) for i in range(3)]
    async with running(tmp_path) as node:
        await node.create()
        await node.write(3)
        if folder == "current":
            await node.finalize(1, log)
    (tmp_path / folder / "blk_7.meta").write_bytes(b"garbage")
    async with running(tmp_path, holder=Holder([chunk(i) for i in range(3)])) as node:
        assert refusal(await node.recover(9, log)) is Reason.CORRUPT
        assert refusal(await node.next_gs(9)) is Reason.CORRUPT
        assert isinstance(await node.finalize(9, log), Finalized)
        assert sorted(path.name for path in (tmp_path / "current").iterdir()) == [
            "blk_7",
            "blk_7.meta",
        ]
        assert list((tmp_path / "rbw").iterdir()) == []
    async with running(tmp_path) as node:
        version = Version(Generation(0), Generation(9), 3)
        assert (await read(node, 0, 300, version))[0].chunks == 3


async def test_a_member_that_holds_another_log_than_was_decided_takes_a_copy(
    tmp_path: Path,
) -> None:
    """D9: a copy beside it, in its place once it is whole; no node deletes a member's replica."""
    decided = [name(i, size=90, salt=2) for i in range(3)]
    async with running(tmp_path, holder=Holder()) as node:
        await node.create()
        await node.write(3)
        before = node.acceptor.find(BLOCK, node.storage)
        assert before is not None
        assert refusal(await node.finalize(4, decided)) is Reason.CORRUPT, "nobody sends a copy"
        assert (before.corrupt, (tmp_path / "rbw" / "blk_7").exists()) == ("", True)
        node.holder.payloads = [chunk(i, size=90, salt=2) for i in range(3)]
        assert await node.finalize(4, decided) == Finalized(BLOCK, Generation(4), node.storage, 3)
        ((_, _, why),) = node.notes.corrupt
        assert why == "its log is not the one that was decided"
        assert list((tmp_path / "rbw").iterdir()) == []
        assert unadopted(tmp_path) == []
    async with running(tmp_path) as node:
        version = Version(Generation(0), Generation(4), 3)
        payload = b"".join(chunk(i, size=90, salt=2) for i in range(3))
        assert (await read(node, 0, 270, version))[1] == payload


async def test_a_promise_made_while_the_copy_comes_is_kept_and_the_wrong_log_stays(
    tmp_path: Path,
) -> None:
    class Slow(Holder):
        async def fetch(self, *asked: Any) -> FetchedChunks:
            draft = await super().fetch(*asked)
            assert isinstance(await node.next_gs(9), LastVote)
            return draft

    decided = [name(i, size=90) for i in range(2)]
    holder = Slow([chunk(i, size=90) for i in range(2)])
    async with running(tmp_path, holder=holder) as node:
        await node.create()
        await node.write(2)
        assert refusal(await node.finalize(4, decided)) is Reason.CORRUPT
        assert node.notes.corrupt == []
        assert refusal(await node.finalize(4, decided)) is Reason.STALE
        assert unadopted(tmp_path) == []


async def test_a_dead_replica_keeps_its_promise_against_a_full_copy(tmp_path: Path) -> None:
    async with running(tmp_path, holder=Holder([chunk(i) for i in range(3)])) as node:
        await three_finalized_chunks(node)
        await node.next_gs(5)
        flip(tmp_path / "current" / "blk_7", 60)
        with pytest.raises(CorruptionError):
            await read(node, 0, 10)
        refused = await node.finalize(4, [name(i) for i in range(3)])
        assert isinstance(refused, Nack)
        assert (refused.reason, refused.max_generation) == (Reason.CORRUPT, 5)


async def test_a_dead_replica_does_not_forget_its_votes_for_a_repeated_recovery(
    tmp_path: Path,
) -> None:
    """The log of generation 1 has two chunks; the replica voted for a third one since."""
    log = [name(i) for i in range(2)]
    async with running(tmp_path, holder=Holder([chunk(i) for i in range(2)])) as node:
        await node.create()
        await node.write(2)
        await node.recover(1, log)
        (vote,) = await node.write(1, start=2, generation=1)
        assert isinstance(vote, Vote)
        flip(tmp_path / "rbw" / "blk_7", 60)
        with pytest.raises(CorruptionError):
            await read(node, 0, 10, Version(Generation(0), NO_GENERATION, 2))
        assert refusal(await node.recover(1, log)) is Reason.CORRUPT
        assert await node.recover(2, log) == RecoveryVote(BLOCK, Generation(2), 2, node.storage)


async def test_reads_that_meet_recoveries_and_deletions_never_see_corruption(
    tmp_path: Path,
) -> None:
    """The file is cut, moved and replaced under the readers."""
    holder = Holder([chunk(i) for i in range(3)])
    names = [name(i) for i in range(3)]
    async with running(tmp_path, holder=holder) as node:
        served, going = 0, True

        generations = tuple(Generation(g) for g in range(100))
        asked = FetchChunks(BLOCK, node.storage, generations, 0, 2)

        async def reader() -> None:
            nonlocal served
            while going:
                answer = await node.reader.fetch_chunks(asked)
                served += isinstance(answer, Bulk)
                # Readers that never rest keep the disk's threads from the interpreter: for minutes.
                await node.volumes[0].run(lambda: None)

        readers = [asyncio.create_task(reader()) for _ in range(4)]
        for generation in range(1, 60, 3):
            await node.finalize(generation, names)
            await node.reopen(generation + 1, names, finalized=generation)
            await node.write(1, start=3, generation=generation + 1)
            await node.finalize(generation + 2, names, epoch=generation + 1)
            if generation % 2:
                await node.ask(Delete(BLOCK, Generation(generation + 2)))
        going = False
        await asyncio.gather(*readers)
        assert served > 0
        assert node.notes.corrupt == []
        assert node.volumes[0].failed == ""


async def test_a_dead_replica_can_be_deleted(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.create()
        await node.write(1)
    (tmp_path / "rbw" / "blk_7.meta").write_bytes(b"garbage")
    async with running(tmp_path) as node:
        assert refusal(await node.next_gs(1)) is Reason.CORRUPT
        deleted = await node.ask(Delete(BLOCK, Generation(0)))
        assert deleted == Deleted(BLOCK, node.storage)
        assert list((tmp_path / "rbw").iterdir()) == []


async def test_a_block_file_that_vanished_is_corruption_and_not_an_empty_replica(
    tmp_path: Path,
) -> None:
    """Absence is never concluded from an error."""
    async with running(tmp_path) as node:
        await node.create()
        await node.write(1)
    (tmp_path / "rbw" / "blk_7").unlink()
    async with running(tmp_path) as node:
        assert refusal(await node.next_gs(1)) is Reason.CORRUPT


async def test_a_holder_sends_chunks_of_the_generations_it_is_asked_for(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.create()
        await node.write(3)
        asked = FetchChunks(BLOCK, node.storage, (Generation(0),), 1, 3)
        answer = await node.reader.fetch_chunks(asked)
        assert isinstance(answer, Bulk)
        assert answer.reply == Chunks(1, 100, 2, 200)
        other = FetchChunks(BLOCK, node.storage, (Generation(4),), 1, 3)
        refused = await node.reader.fetch_chunks(other)
        assert isinstance(refused, Nack)
        assert refused is not None
        assert refused.reason is Reason.STALE


async def test_a_watch_wakes_when_a_chunk_comes(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.create()
        waiting = watch(node, known=0)
        await asyncio.sleep(0)
        assert not waiting.done()
        await node.write(1)
        told = await waiting
        assert isinstance(told, ReadReply)
        assert told.length == 1


async def test_a_watch_tells_of_a_chunk_only_once_it_is_durable(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    async with running(tmp_path, disk=disk) as node:
        await node.create(durability=Durability.DISK)
        disk.breaks(Fault(SYNCS, delay_s=HELD))
        vote, waiting = node.send(frame(0)), watch(node, known=0)
        await wait_until_async(lambda: node.volumes[0].commit.waiting_count == 2)
        assert not waiting.done()
        disk.mend()
        await vote
        assert isinstance(await waiting, ReadReply)


async def test_a_watch_wakes_when_the_generation_is_fenced(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.create()
        waiting = watch(node, known=0)
        await asyncio.sleep(0)
        last = await node.next_gs(1)
        assert isinstance(last, LastVote)
        told = await waiting
        assert isinstance(told, ReadReply)
        assert told.registers.max_generation == 1


async def test_a_watch_without_news_is_answered_when_its_time_is_over(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.create()
        told = await watch(node, known=0, wait_ms=20)
        assert isinstance(told, ReadReply)
        assert told.length == 0


def flip(path: Path, position: int) -> None:
    """Change one bit on the disk."""
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)
