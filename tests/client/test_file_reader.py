"""Files being read: lengths, positions, fail-over (the read path against the shipped nodes)."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from paxosblock.api.datanode import Run
from paxosblock.api.file_pages import GET_FILE
from paxosblock.api.namenode import REPORT_BAD_REPLICA
from paxosblock.base.checksum import crc32c
from paxosblock.base.units import KIB
from paxosblock.client.async_client import AsyncClient
from paxosblock.client.reading.block_reader import _Sink, _Target
from paxosblock.client.reading.file_reader import AsyncFileReader
from paxosblock.client.writing.file_writer import AsyncFileWriter
from paxosblock.errors import (
    CorruptionError,
    InvalidRequestError,
    NotFoundError,
    ProtocolError,
    TruncatedError,
    UnavailableError,
)
from paxosblock.net.wire import FrameKind, Header
from paxosblock.protocol.chunk_log import ChunkLog, entry
from paxosblock.protocol.read import Version
from paxosblock.protocol.types import BlockId, ChunkIndex, Generation
from tests.client.shipped import DATANODE, NEAR, ShippedCluster, shipped_cluster
from tests.waiting import PATIENCE_S, wait_until_async

DATA = os.urandom(100 * KIB + 17)


@asynccontextmanager
async def stored(
    data: bytes = DATA, **settings: Any
) -> AsyncIterator[tuple[ShippedCluster, AsyncClient]]:
    """A cluster with a finalized file /a: blocks of 32 KiB, chunks of 4 KiB; no replica is near."""
    async with shipped_cluster(**{"host": "nowhere", **settings}) as (cluster, fs):
        async with await fs.create("/a", chunk_size=4 * KIB, block_size=32 * KIB) as out:
            await out.write(data)
        yield cluster, fs


async def test_a_file_is_read_back_whole() -> None:
    async with stored() as (_, fs), await fs.open("/a") as file:
        assert file.size == len(DATA)
        assert await file.read() == DATA
        assert await file.read() == b""
        assert file.tell() == len(DATA)


async def test_reads_of_any_size_continue_where_the_last_one_ended() -> None:
    async with stored() as (_, fs), await fs.open("/a") as file:
        pieces = []
        while piece := await file.read(3001):
            pieces.append(piece)
        assert b"".join(pieces) == DATA
        assert {len(piece) for piece in pieces[:-1]} == {3001}


@pytest.mark.parametrize("size", [7, 1500, 4 * KIB, 10_000])
async def test_reads_side_by_side_each_get_the_bytes_after_the_one_before(size: int) -> None:
    async with stored() as (_, fs), await fs.open("/a") as file:
        pieces = await asyncio.gather(*(file.read(size) for _ in range(8)))
        assert b"".join(pieces) == DATA[: 8 * size]


async def test_pieces_come_without_a_copy_and_stay_valid() -> None:
    async with stored() as (_, fs), await fs.open("/a") as file:
        pieces = [piece async for piece in file.pieces()]
        assert b"".join(pieces) == DATA


async def test_a_piece_that_is_held_stays_as_it_is_whoever_counts_references(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Later Pythons count fewer references; a buffer in use must not look idle for that."""
    count = sys.getrefcount
    monkeypatch.setattr(sys, "getrefcount", lambda it: count(it) - 2)
    data = os.urandom(300 * KIB)
    async with stored(data, prefetch_size=8 * KIB) as (_, fs), await fs.open("/a") as file:
        first = await file.next_piece()
        before = bytes(first)
        rest = [bytes(piece) async for piece in file.pieces()]
        assert first == before
        assert before + b"".join(rest) == data


async def test_positional_reads_leave_the_position_alone() -> None:
    async with stored() as (_, fs), await fs.open("/a") as file:
        assert await file.pread(32 * KIB - 5, 10) == DATA[32 * KIB - 5 : 32 * KIB + 5]
        assert await file.pread(0, len(DATA)) == DATA
        assert file.tell() == 0


async def test_a_read_past_the_end_gives_nothing() -> None:
    async with stored() as (_, fs), await fs.open("/a") as file:
        assert await file.pread(len(DATA), 10) == b""
        assert await file.pread(len(DATA) - 3, 10) == DATA[-3:]
        file.seek(len(DATA) + 100)
        assert await file.read(10) == b""


async def test_a_negative_offset_makes_no_sense() -> None:
    async with stored() as (_, fs), await fs.open("/a") as file:
        with pytest.raises(InvalidRequestError, match="negative"):
            await file.pread(-1, 10)
        with pytest.raises(InvalidRequestError, match="negative"):
            file.seek(-1)
        with pytest.raises(InvalidRequestError, match="whence"):
            file.seek(0, 9)


async def test_seek_moves_like_in_any_python_file() -> None:
    async with stored() as (_, fs), await fs.open("/a") as file:
        assert file.seek(50 * KIB) == 50 * KIB
        assert await file.read(100) == DATA[50 * KIB : 50 * KIB + 100]
        assert file.seek(-50, io.SEEK_CUR) == 50 * KIB + 50
        assert await file.read(50) == DATA[50 * KIB + 50 : 50 * KIB + 100]
        assert file.seek(-7, io.SEEK_END) == len(DATA) - 7
        assert await file.read() == DATA[-7:]


async def test_a_small_read_does_not_fetch_the_whole_file() -> None:
    async with stored(chunk_size=4 * KIB) as (cluster, fs), await fs.open("/a") as file:
        assert await file.read(10) == DATA[:10]
        assert sum(node.wire.runs for node in cluster.nodes) == 1


async def test_a_datanode_that_answers_in_small_pieces_is_asked_again() -> None:
    nodes = [dataclasses.replace(DATANODE, max_read_bytes=1)] * 3
    async with stored(nodes=nodes) as (cluster, fs):
        async with await fs.open("/a") as file:
            assert await file.read() == DATA
        assert sum(node.wire.runs for node in cluster.nodes) == 26, "as many as there are chunks"


async def test_a_flipped_bit_is_never_served_and_is_reported() -> None:
    async with stored() as (cluster, fs):
        cluster.hold_namenode()  # the replicas on the disks are sound: none is replaced
        damaged = cluster.nodes[:2]
        for node in damaged:
            node.wire.faults.flips_reads = True
        for _ in range(4):
            async with await fs.open("/a") as file:
                assert await file.read() == DATA
        told = {report.storage for report in cluster.asked(REPORT_BAD_REPLICA)}
        assert told == {node.storage for node in damaged}


async def test_a_block_without_a_sound_replica_is_an_error_and_no_data() -> None:
    async with stored() as (cluster, fs):
        cluster.hold_namenode()  # the replicas on the disks are sound: none is replaced
        for node in cluster.nodes:
            node.wire.faults.flips_reads = True
        async with await fs.open("/a") as file:
            with pytest.raises(CorruptionError, match="checksum"):
                await file.read()


async def test_chunks_in_the_wrong_place_are_not_served() -> None:
    async with stored() as (cluster, fs):
        cluster.nodes[0].wire.faults.turns_reads = 4 * KIB
        for _ in range(4):
            async with await fs.open("/a") as file:
                assert await file.read() == DATA


async def test_sound_chunks_of_another_size_than_announced_are_not_served() -> None:
    """Their place in the block is not sure: another replica's bytes take it."""
    async with stored() as (cluster, fs):
        cluster.nodes[0].wire.faults.shortens_reads = True
        for _ in range(4):
            async with await fs.open("/a") as file:
                assert await file.read() == DATA
        assert cluster.nodes[0].wire.runs


async def test_a_file_of_very_many_small_chunks_is_read_with_few_requests() -> None:
    async with shipped_cluster() as (cluster, fs):
        async with await fs.create("/log", chunk_size=16) as out:
            await out.write(DATA[: 32 * KIB])
        async with await fs.open("/log") as file:
            assert await file.read() == DATA[: 32 * KIB]
        assert sum(node.wire.runs for node in cluster.nodes) <= 8


ENTRY = ChunkLog().append(3, crc32c(b"abc")).append(2, crc32c(b"de")).to_bytes()
RUN = Header(FrameKind.RUN, payload_length=5, block=BlockId(7))
WRONG_RUNS = {
    "another block": (Run(0, 0, ENTRY), replace(RUN, block=BlockId(8)), b"abcde"),
    "another place": (Run(0, 0, ENTRY), replace(RUN, index=ChunkIndex(1)), b"abcde"),
    "another kind": (Run(0, 0, ENTRY), replace(RUN, kind=FrameKind.CHUNK), b"abcde"),
    "too short": (Run(0, 0, ENTRY), replace(RUN, payload_length=4), b"abcd"),
    "a flipped bit in its last chunk": (Run(0, 0, ENTRY), RUN, b"abcdd"),
    "more than the version has": (Run(2, 0, ENTRY), RUN, b"abcde"),
    "an offset and no chunk before it": (Run(0, 1, ENTRY), RUN, b"abcde"),
    "beyond what was asked for": (Run(1, 1, ENTRY), RUN, b"abcde"),
    "half a name": (Run(0, 0, ENTRY[:-1]), RUN, b"abcde"),
    "names that go backwards": (Run(0, 0, ENTRY[12:] + ENTRY[:12]), RUN, b"abcde"),
    "no names": (Run(0, 0, b""), RUN, b"abcde"),
}


@pytest.mark.parametrize("wrong", WRONG_RUNS)
def test_a_run_of_chunks_that_is_not_what_was_asked_for_is_refused(wrong: str) -> None:
    with pytest.raises((CorruptionError, ProtocolError)):
        receive(*WRONG_RUNS[wrong])


def receive(reply: Run, header: Header, payload: bytes) -> None:
    """Take a run of chunks where the first five bytes of the block were asked for."""
    sink = _Sink(_Target(BlockId(7), 0, memoryview(bytearray(5))), VERSION)
    sink.reply_received(reply, 1)
    sink.chunk_received(header, memoryview(payload))


VERSION = Version(Generation(0), Generation(1), 3)


@pytest.mark.parametrize(
    "sizes", [(2, 2, 2, 2), (3, 3, 3, 1), (1, 2, 1, 2), (0, 3), (5,) * 20, (5,) * 20 + (6, 5)]
)
def test_each_byte_of_a_run_is_checked(sizes: tuple[int, ...]) -> None:
    """Also of chunks that are equally long, and are looked at together."""
    data, log = os.urandom(sum(sizes)), ChunkLog()
    for size in sizes:
        log = log.append(size, crc32c(data[log.size_bytes : log.size_bytes + size]))
    block, version = BlockId(7), Version(Generation(0), Generation(1), len(sizes))
    header = Header(FrameKind.RUN, payload_length=len(data), block=block)

    def received(payload: bytes) -> tuple[bytes, int]:
        target = _Target(block, 0, memoryview(bytearray(len(data))))
        sink = _Sink(target, version)
        sink.reply_received(Run(0, 0, log.to_bytes()), 1)
        place = sink.payload_buffer(header)
        assert place is not None
        place[:] = payload
        sink.chunk_received(header, place)
        return bytes(target.into), sink.chunk_bytes

    assert received(data) == (data, max(sizes))
    for at in range(len(data)):
        flipped = bytes(byte ^ (place == at) for place, byte in enumerate(data))
        with pytest.raises(CorruptionError, match=f"chunk {log.index_at(at)} of block 7"):
            received(flipped)


def test_of_a_run_that_covers_more_only_what_is_wanted_is_taken() -> None:
    into = bytearray(3)
    target = _Target(BlockId(7), 1, memoryview(into))
    sink = _Sink(target, VERSION)
    sink.reply_received(Run(0, 0, ENTRY), 1)
    assert sink.payload_buffer(RUN) is None
    sink.chunk_received(RUN, memoryview(b"abcde"))
    assert (bytes(into), target.complete, sink.chunk_bytes) == (b"bcd", True, 3)


def test_a_part_of_the_first_chunk_is_taken_only_where_a_part_was_asked_for() -> None:
    log = ChunkLog().append(3, crc32c(b"abc"))
    part = Run(0, 1, entry(3, crc32c(b"bc")))
    header = Header(FrameKind.RUN, payload_length=2, block=BlockId(7))
    for exact in (True, False):
        into = bytearray(2)
        target = _Target(BlockId(7), 1, memoryview(into))
        sink = _Sink(target, replace(VERSION, length=len(log)), exact=exact)
        if not exact:
            with pytest.raises(ProtocolError, match="no answer"):
                sink.reply_received(part, 1)
            continue
        sink.reply_received(part, 1)
        place = sink.payload_buffer(header)
        assert place is not None
        place[:] = b"bd"
        with pytest.raises(CorruptionError):
            sink.chunk_received(header, place)
        place[:] = b"bc"
        sink.chunk_received(header, place)
        assert (bytes(into), target.complete) == (b"bc", True)


async def test_one_living_replica_is_enough_to_read_a_finalized_file() -> None:
    async with stored() as (cluster, fs):
        for node in cluster.nodes[1:]:
            await node.kill()
        async with await fs.open("/a") as file:
            assert await file.read() == DATA


async def test_a_datanode_that_dies_in_mid_read_is_not_noticed() -> None:
    async with stored(prefetch_size=1) as (cluster, fs), await fs.open("/a") as file:
        begin = await file.read(10)
        for node in cluster.nodes[:2]:
            await node.kill()
        assert begin + await file.read() == DATA


HERE = dataclasses.replace(DATANODE, host=NEAR)
AWAY = dataclasses.replace(DATANODE, host="away", rack="/away")


async def test_the_nearest_replica_is_read_as_long_as_nothing_speaks_against_it() -> None:
    nodes = HERE, dataclasses.replace(HERE, host="beside"), AWAY
    async with stored(nodes=nodes, host=NEAR) as (cluster, fs):
        here, beside, far = cluster.nodes
        async with await fs.open("/a") as file:
            assert await file.read() == DATA
        assert here.wire.runs
        assert [node.wire.asked["ReadBytes"] for node in (beside, far)] == [0, 0]
        await here.kill()
        async with await fs.open("/a") as file:
            assert await file.read() == DATA
        assert beside.wire.runs
        assert not far.wire.asked["ReadBytes"]
        await beside.kill()
        async with await fs.open("/a") as file:
            assert await file.read() == DATA


@asynccontextmanager
async def two_near() -> AsyncIterator[tuple[ShippedCluster, AsyncFileReader]]:
    """/a, of which two replicas are equally near, and the third is not."""
    async with stored(nodes=(HERE, HERE, AWAY), host=NEAR) as (cluster, fs):
        async with await fs.open("/a") as file:
            yield cluster, file
        assert not cluster.nodes[2].wire.asked["ReadBytes"]


async def a_kib(file: AsyncFileReader, place: int) -> None:
    assert await file.pread(place, KIB) == DATA[place : place + KIB]


async def test_replicas_that_are_equally_near_share_the_reads_that_run_side_by_side() -> None:
    async with two_near() as (cluster, file):
        await asyncio.gather(*(a_kib(file, place) for place in range(0, 16 * KIB, KIB)))
        assert [node.wire.runs for node in cluster.nodes] == [8, 8, 0]


async def test_reads_one_after_the_other_go_to_the_replica_that_has_checked_the_chunk() -> None:
    async with two_near() as (cluster, file):
        for place in range(0, 16 * KIB, KIB):  # of one block
            await a_kib(file, place)
        assert sorted(node.wire.runs for node in cluster.nodes) == [0, 0, 16]


async def test_readers_of_a_file_begin_with_different_replicas() -> None:
    async with stored() as (cluster, fs):
        async with AsyncExitStack() as files:
            for _ in range(64):
                await a_kib(await files.enter_async_context(await fs.open("/a")), 0)
        assert min(node.wire.runs for node in cluster.nodes) > 0


async def test_a_file_that_is_followed_is_read_from_the_nearest_replica() -> None:
    async with stored(host=NEAR) as (cluster, fs):
        _, *others = cluster.nodes
        followed = bytearray()
        async for data in fs.follow("/a"):
            followed += data
        assert followed == DATA
        assert not any(node.wire.asked["ReadBytes"] for node in others)


async def test_a_silent_datanode_is_left_for_another_one() -> None:
    async with stored(rpc_timeout_s=0.2) as (cluster, fs):
        for node in cluster.nodes[:2]:
            node.wire.faults.ignores_reads = True
        async with await fs.open("/a") as file:
            assert await file.read() == DATA


async def test_no_replica_at_all_is_an_error_that_can_be_tried_again() -> None:
    async with stored(retry_for_s=1.0) as (cluster, fs), await fs.open("/a") as file:
        for node in cluster.nodes:
            await node.kill()
        with pytest.raises(UnavailableError, match="no replica"):
            await file.read()
        await cluster.nodes[0].start()
        assert await file.read() == DATA


async def test_an_open_file_has_everything_that_was_flushed_before_it_was_opened() -> None:
    async with (
        shipped_cluster() as (_, fs),
        await fs.create("/a", chunk_size=10, block_size=40) as out,
    ):
        for length in (0, 1, 7, 40, 41, 95):
            await out.write(DATA[out.tell() : length])
            await out.hflush()
            async with await fs.open("/a") as file:
                assert file.size == length
                assert await file.read() == DATA[:length]


@pytest.mark.parametrize("consistency", ["quorum", "all"])
async def test_both_ways_to_read_the_length_find_what_was_flushed(consistency: str) -> None:
    async with shipped_cluster() as (_, fs), await fs.create("/a", durability="memory") as out:
        await out.write(b"hello")
        await out.hflush()
        async with await fs.open("/a", consistency=consistency) as file:
            assert await file.read() == b"hello"


async def test_one_dead_datanode_does_not_stop_a_quorum_read() -> None:
    async with shipped_cluster() as (cluster, fs), await fs.create("/a") as out:
        await out.write(b"hello")
        await out.hflush()
        await cluster.nodes[0].kill()
        async with await fs.open("/a") as file:
            assert await file.read() == b"hello"


async def left_open(cluster: ShippedCluster, data: bytes, **sizes: Any) -> AsyncFileWriter:
    """The writer of /a is gone: it would end the block that loses a member."""
    async with AsyncClient([cluster.address]) as writer:
        out = await writer.create("/a", **sizes)
        await out.write(data)
        await out.hflush()
    return out


async def test_restarts_of_all_datanodes_under_an_idle_writer_do_not_stop_readers() -> None:
    """R2: a restarted replica that is not weak has all its votes."""
    async with shipped_cluster(retry_for_s=1.0) as (cluster, fs):
        out = await left_open(cluster, b"hello")
        for node in cluster.nodes:
            await node.kill()
            await node.start()
            async with await fs.open("/a") as file:
                assert (file.undecided, await file.read()) == ("", b"hello")
        await out.abort()


async def test_a_replica_that_may_have_lost_votes_is_not_counted() -> None:
    """R2: what it lacks was acknowledged."""
    async with shipped_cluster(retry_for_s=1.0) as (cluster, fs):
        out = await left_open(cluster, b"hello", durability="memory")
        for node in cluster.nodes[:2]:
            await node.kill()
            await node.start(boot="after a power cut")
        async with await fs.open("/a") as file:
            assert file.undecided
        await fs.take_over("/a")
        async with await fs.open("/a") as file:
            assert await file.read() == b"hello"
        await out.abort()


async def test_what_a_reader_has_seen_survives_that_all_machines_lose_power() -> None:
    """R2 asks in memory mode that what it counts is synced first."""
    async with shipped_cluster() as (cluster, fs):
        out = await left_open(cluster, b"hello", durability="memory")
        async with await fs.open("/a") as file:
            seen = await file.read()
        assert sum(node.wire.asked["Read and sync"] for node in cluster.nodes) >= 2
        for node in cluster.nodes:
            await node.kill()
            await node.start(boot="after a power cut")
        await fs.take_over("/a")
        assert await cluster.content("/a") == seen == b"hello"
        await out.abort()


async def test_a_quorum_read_waits_for_a_majority_to_reach_the_longest() -> None:
    """R2: one replica is ahead; what it alone has is not read until another one has it."""
    async with shipped_cluster() as (cluster, fs), await fs.create("/a", chunk_size=5) as out:
        await out.write(b"hello")
        await out.hflush()
        for node in cluster.nodes[1:]:
            node.wire.votes_may_go.clear()
        await cluster.nodes[2].kill()
        # chunk 1 gets to nodes 0 and 1 only; the writer is not told.
        writing = asyncio.create_task(out.write(b"world"))
        await wait_until_async(lambda: cluster.nodes[0].wire.votes == 2)
        async with await fs.open("/a") as file:
            assert await file.read() == b"helloworld"
        cluster.nodes[1].wire.votes_may_go.set()
        await writing


async def test_an_unknown_path_is_not_found() -> None:
    async with shipped_cluster() as (_, fs):
        with pytest.raises(NotFoundError):
            await fs.open("/nothing")
        with pytest.raises(InvalidRequestError, match="'quorum' or 'all'"):
            await fs.open("/nothing", consistency="maybe")


async def test_a_closed_reader_reads_nothing() -> None:
    async with stored() as (_, fs):
        file = await fs.open("/a")
        await file.close()
        with pytest.raises(InvalidRequestError, match="closed"):
            await file.read()


async def test_closing_the_client_ends_what_is_being_fetched() -> None:
    async with stored() as (cluster, fs):
        for node in cluster.nodes:
            node.wire.faults.ignores_reads = True
        file = await fs.open("/a")
        reading = asyncio.create_task(file.read())
        await wait_until_async(lambda: any(node.wire.asked["ReadBytes"] for node in cluster.nodes))
        await fs.close()
        with pytest.raises(InvalidRequestError, match="client is closed"):
            await asyncio.wait_for(reading, 5)


async def test_the_read_of_the_seed_needs_every_replica() -> None:
    """R1."""
    async with shipped_cluster(retry_for_s=1.0) as (cluster, fs):
        out = await left_open(cluster, b"hello")
        await cluster.nodes[0].kill()
        async with await fs.open("/a", consistency="all") as file:
            with pytest.raises(UnavailableError, match="too few of its replicas"):
                await file.read()
        await out.abort()


async def test_a_block_under_recovery_is_waited_for_and_then_read_as_decided() -> None:
    async with shipped_cluster() as (cluster, fs):
        out = await fs.create("/a")
        await out.write(b"hello")
        await out.hflush()
        await cluster.begin_recovery("/a")
        opening = asyncio.create_task(fs.open("/a"))
        looks = cluster.calls.count("get_file")
        await wait_until_async(lambda: cluster.calls.count("get_file") > looks + 1)
        assert not opening.done()
        await cluster.end_recovery()
        async with await opening as file:
            assert await file.read() == b"hello"
        await out.abort()


async def test_a_finalized_block_whose_members_were_not_told_yet_is_read() -> None:
    """R-fin of a committed block: any strong member with enough chunks."""
    async with shipped_cluster() as (cluster, fs):
        told, *others = cluster.nodes
        for node in others:
            node.wire.namenode_may_speak.clear()
        async with await fs.create("/a") as out:
            await out.write(b"hello")
        await told.kill()
        async with await fs.open("/a") as file:
            assert await file.read() == b"hello"


@asynccontextmanager
async def undecided(**settings: Any) -> AsyncIterator[tuple[ShippedCluster, AsyncClient, bytes]]:
    """/a has three finalized blocks of 40 bytes; the last one, 15 bytes, is under recovery."""
    async with shipped_cluster(retry_for_s=1.0, **settings) as (cluster, fs):
        out = await fs.create("/a", chunk_size=10, block_size=40)
        await out.write(DATA[:135])
        await out.hflush()
        await cluster.begin_recovery("/a")
        yield cluster, fs, DATA[:120]
        await cluster.end_recovery()
        await out.abort()


async def test_a_file_whose_last_block_cannot_be_decided_is_read_as_far_as_it_is_decided(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with undecided() as (_, fs, decided), await fs.open("/a") as file:
        assert "under recovery" in file.undecided
        assert file.decided_size == len(decided)
        pieces = [await file.read(50) for _ in range(3)]
        with pytest.raises(UnavailableError, match="only the first 120 bytes") as caught:
            await file.read(50)
        assert [len(piece) for piece in pieces] == [50, 50, 20]
        assert b"".join(pieces) == decided
        assert caught.value.details == {"path": "/a", "decided_bytes": 120}
        assert file.tell() == len(decided)
    warnings = [record for record in caplog.records if "only the first" in record.getMessage()]
    assert len(warnings) == 1


async def test_a_length_that_is_not_decided_is_never_told() -> None:
    async with undecided() as (_, fs, decided), await fs.open("/a") as file:
        with pytest.raises(UnavailableError):
            _ = file.size
        with pytest.raises(UnavailableError):
            file.seek(0, io.SEEK_END)
        with pytest.raises(UnavailableError):
            await file.decide()
        assert f"at least {len(decided)}" in repr(file)
        with pytest.raises(UnavailableError):
            await fs.locations("/a")


async def test_a_read_that_promises_more_than_is_decided_returns_none_of_it() -> None:
    async with undecided() as (_, fs, decided), await fs.open("/a") as file:
        for reading in (file.read(), file.pread(110, 11), file.pread(500, 1)):
            with pytest.raises(UnavailableError):
                await reading
        assert file.tell() == 0
        assert await file.read(0) == b""
        assert await file.pread(110, 10) == decided[110:]
        assert await file.read(len(decided)) == decided
        assert await file.read(0) == b""
        with pytest.raises(UnavailableError):
            await file.readinto(bytearray(1))
        with pytest.raises(UnavailableError):
            await file.next_piece()


async def test_a_reader_goes_on_when_the_length_is_decided() -> None:
    async with undecided() as (cluster, fs, decided), await fs.open("/a") as file:
        pieces = [await file.next_piece() for _ in range(3)]
        assert b"".join(pieces) == decided
        file._session = fs.within(PATIENCE_S)._session
        more = asyncio.create_task(file.read(100))
        looks = cluster.calls.count("get_file")
        await wait_until_async(lambda: cluster.calls.count("get_file") > looks)
        await cluster.end_recovery()
        assert await more == DATA[120:135]
        assert (file.size, file.undecided, await file.decide()) == (135, "", 135)
        assert await file.read(1) == b""
        assert await file.pread(115, 100) == DATA[115:135]


async def test_a_reader_does_not_go_on_in_a_file_that_lost_what_was_decided() -> None:
    """I10."""
    async with undecided() as (cluster, fs, _), await fs.open("/a") as file:
        await cluster.end_recovery()
        cluster.changes[GET_FILE] = lambda view: replace(view, blocks=view.blocks[:2])
        with pytest.raises(TruncatedError, match="no longer has the 120 bytes that were read"):
            await file.decide()


async def test_a_reader_does_not_go_on_in_another_file_of_that_name() -> None:
    async with undecided() as (_, fs, _), await fs.open("/a") as file:
        await fs.rename("/a", "/b")
        async with await fs.create("/a"):
            pass
        with pytest.raises(NotFoundError, match="replaced"):
            await file.decide()


async def test_what_is_finalized_is_served_while_too_few_members_of_the_last_block_live() -> None:
    async with shipped_cluster(retry_for_s=1.0) as (cluster, fs):
        out = await left_open(cluster, DATA[:95], chunk_size=10, block_size=40)
        for node in cluster.nodes[1:]:
            await node.kill()
        async with await fs.open("/a") as file:
            assert "too few of its replicas answer" in file.undecided
            assert await file.read(100) == DATA[:80]
            with pytest.raises(UnavailableError, match="too few of its replicas"):
                await file.read(100)
            for node in cluster.nodes[1:]:
                await node.start()
            assert await file.read(100) == DATA[80:95]
        await out.abort()
