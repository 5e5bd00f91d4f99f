"""A data stream at a DataNode: what a peer can make it hold is bounded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web
from msgspec.structs import replace

from paxosblock.api.datanode import (
    STREAM_CALLS,
    STREAM_REPLIES,
    CreateAndWrite,
    CreateAndWriteAll,
    NoAnswer,
    ReadBytes,
)
from paxosblock.api.datanode import Votes as VotesOfAll
from paxosblock.datanode.counters import CopiedBytes, DataNodeCounters
from paxosblock.datanode.replica_reads import PIECE_BYTES
from paxosblock.datanode.served_stream import MAX_WAITING_VOTES, ServedStream
from paxosblock.datanode.stream_rights import StreamRights
from paxosblock.errors import ProtocolError
from paxosblock.net.port.upgrade import STREAM
from paxosblock.net.streams.beats import arrived_bytes, beat_wish
from paxosblock.net.streams.connection import FrameConnection
from paxosblock.net.streams.stream_calls import Bulk, CallChannel, open_channel
from paxosblock.net.streams.stream_server import upgrade_handler
from paxosblock.net.wire import HEADER_BYTES, FrameKind, Header, MessageTable, decode_error
from paxosblock.protocol.messages import Create, Vote
from paxosblock.protocol.read import Version
from paxosblock.protocol.types import BlockId, Durability, Generation
from tests.datanode.node import BLOCK, Node, chunk, frame, name, running
from tests.datanode.process import Votes
from tests.disks.faults import HELD, SYNCS, Fault
from tests.disks.simulated import SimulatedDisk
from tests.net.streams import Written, feed
from tests.waiting import wait_until_async


@asynccontextmanager
async def stream_to(
    node: Node, rights: StreamRights | None = None
) -> AsyncIterator[tuple[CallChannel, Votes, DataNodeCounters]]:
    """A data stream to this acceptor, whose client has these rights."""
    counters = DataNodeCounters(
        node.acceptor, node.volumes, rooms=tuple, copied=lambda: CopiedBytes(0, 0)
    )
    app = web.Application()
    handler = upgrade_handler(
        app, lambda _: ServedStream(node.acceptor, node.reader, counters, rights)
    )
    app.router.add_get(STREAM.path, handler)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    votes = Votes()
    calls, replies = MessageTable(STREAM_CALLS), MessageTable(STREAM_REPLIES)
    channel = await open_channel("127.0.0.1", runner.addresses[0][1], calls, replies, votes)
    try:
        yield channel, votes, counters
    finally:
        channel.connection.abort()
        await channel.connection.wait_closed()
        await runner.cleanup()


async def test_a_connection_is_not_read_while_too_many_votes_wait_for_the_disk(
    tmp_path: Path,
) -> None:
    disk = SimulatedDisk()
    size = 20_000
    total = MAX_WAITING_VOTES * 4
    async with running(tmp_path, disk=disk) as node, stream_to(node) as (channel, votes, _):
        await node.create()
        block = next(node.acceptor.blocks())
        disk.breaks(Fault(SYNCS, delay_s=HELD))
        for index in range(total):
            channel.connection.send(frame(index, chunk(index, size))[1])
        await wait_until_async(lambda: block.replica and block.replica.length >= MAX_WAITING_VOTES)
        assert block.replica is not None
        # What was read from the socket before the pause still came.
        assert block.replica.length < MAX_WAITING_VOTES + 64 * 1024 / size + 1
        disk.mend()
        await wait_until_async(lambda: len(votes.votes) == total)
        assert block.synced == total


async def test_votes_and_refusals_are_counted(tmp_path: Path) -> None:
    async with running(tmp_path) as node, stream_to(node) as (channel, votes, counters):
        await node.create()
        channel.connection.send(frame(0)[1])
        channel.connection.send(frame(7)[1])
        await wait_until_async(lambda: votes.votes and votes.nacks)
        text = counters.metrics.render().decode()
        assert "paxosblock_datanode_votes_total 1.0" in text
        assert "paxosblock_datanode_vote_seconds_count 2.0" in text
        assert 'paxosblock_datanode_nacks_total{reason="gap"} 1.0' in text
        assert "paxosblock_datanode_streams 1.0" in text


async def test_votes_of_one_turn_leave_in_one_write(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        await node.create(durability=Durability.MEMORY)
        counters = DataNodeCounters(
            node.acceptor, node.volumes, rooms=tuple, copied=lambda: CopiedBytes(0, 0)
        )
        connection = FrameConnection(ServedStream(node.acceptor, node.reader, counters), "a client")
        transport = Written()
        connection.connection_made(transport)
        feed(connection, frame(0)[1] + frame(1)[1])
        await wait_until_async(lambda: transport.pieces)
        first, second = (Header.unpack(transport.pieces[0], at) for at in (0, HEADER_BYTES))
        assert [(each.kind, each.index) for each in (first, second)] == [
            (FrameKind.VOTE, 0),
            (FrameKind.VOTE, 1),
        ]
        assert len(transport.pieces) == 1
        connection.close()


async def test_a_replica_is_made_with_its_only_chunk_in_one_call(tmp_path: Path) -> None:
    async with running(tmp_path) as node, stream_to(node) as (channel, votes, counters):
        create = Create(BLOCK, 4, Durability.DISK, small=True)
        request = CreateAndWrite(node.storage, create, frame(0)[1])
        answer = await channel.call(request, timeout_s=10)
        assert isinstance(answer, Vote)
        assert (answer.storage, answer.index, answer.synced) == (node.storage, 0, True)
        assert votes.votes == []
        assert b"paxosblock_datanode_votes_total 1.0" in counters.metrics.render()


async def test_several_replicas_are_made_by_one_call_and_one_that_is_wrong_is_refused_by_itself(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as node, stream_to(node) as (channel, _, counters):
        first, *blocks = [BlockId(BLOCK + number) for number in range(21)]
        begun, *each = [
            CreateAndWrite(
                node.storage,
                Create(block, 4, Durability.DISK, small=True),
                frame(0, block=block)[1],
            )
            for block in (first, *blocks)
        ]
        await channel.call(begun, timeout_s=10)  # makes the log that small replicas share
        before = node.volumes[0].commit.sync_count
        each[7] = replace(each[7], frame=b"no chunk")
        answer = await channel.call(CreateAndWriteAll(tuple(each)), timeout_s=10)
        assert isinstance(answer, VotesOfAll)
        wrong = answer.each[7]
        assert isinstance(wrong, NoAnswer)
        assert isinstance(decode_error(wrong.error), ProtocolError)
        votes = [vote for vote in answer.each if isinstance(vote, Vote)]
        assert [vote.block for vote in votes] == blocks[:7] + blocks[8:]
        assert all(vote.synced for vote in votes)
        assert node.acceptor.find(blocks[7], node.storage) is None
        assert node.volumes[0].commit.sync_count <= before + 2
        assert b"paxosblock_datanode_votes_total 20.0" in counters.metrics.render()
        assert await channel.call(CreateAndWriteAll(()), timeout_s=10) == VotesOfAll(())


SIZE = 8 * PIECE_BYTES
FINAL = Version(Generation(0), Generation(1), 2)


async def finalized(node: Node) -> None:
    """A block of two chunks in which parts are worth remembering."""
    await node.create()
    for index in range(2):
        await node.send(frame(index, chunk(index, SIZE)))
    await node.finalize(1, [name(index, SIZE) for index in range(2)])


class Received:
    """A sink for one reply."""

    data = b""

    def reply_received(self, reply: Any, count: int) -> None:
        """One frame follows."""

    def payload_buffer(self, header: Header) -> None:
        """Let the connection lend one."""

    def chunk_received(self, header: Header, payload: memoryview) -> None:
        self.data = bytes(payload)


async def bytes_of(channel: CallChannel, request: ReadBytes) -> bytes:
    sink = Received()
    await channel.call(request, timeout_s=10, sink=sink)
    return sink.data


async def test_a_part_of_a_chunk_is_answered_while_a_whole_one_waits_for_the_disk() -> None:
    disk = SimulatedDisk()
    async with running(Path("/volume"), disk=disk) as node, stream_to(node) as (channel, _, _):
        await finalized(node)
        part = ReadBytes(BLOCK, node.storage, FINAL, 5, 9, exact=True)
        assert await bytes_of(channel, part) == chunk(0, SIZE)[5:14]
        disk.remembers = False
        disk.breaks(Fault(("read",), delay_s=HELD))
        request = ReadBytes(BLOCK, node.storage, FINAL, SIZE, SIZE)
        whole = asyncio.create_task(bytes_of(channel, request))
        await wait_until_async(lambda: disk.plan.waiting)
        disk.remembers = True
        assert await bytes_of(channel, part) == chunk(0, SIZE)[5:14]
        assert not whole.done()
        disk.mend()
        assert await whole == chunk(1, SIZE)


async def test_the_metrics_show_what_waits_for_a_disk(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    async with running(tmp_path, disk=disk) as node, stream_to(node) as (channel, votes, counters):
        await node.create()

        def shows(waiting: int) -> bool:
            line = f'syncs_waiting{{storage="{node.storage}"}} {waiting}.0'
            return line in counters.metrics.render().decode()

        assert shows(0)
        disk.breaks(Fault(SYNCS, delay_s=HELD))
        channel.connection.send(frame(0, chunk(0, 100))[1])
        await wait_until_async(lambda: shows(1))
        disk.mend()
        await wait_until_async(lambda: len(votes.votes) == 1)
        assert shows(0)


async def test_a_reader_that_does_not_read_is_answered_nothing_at_once() -> None:
    """Its parts wait with its other replies: what a connection has not sent is bounded."""
    async with running(Path("/volume"), disk=SimulatedDisk()) as node:
        await finalized(node)
        part = ReadBytes(BLOCK, node.storage, FINAL, 5, 9, exact=True)
        await node.reader.read_bytes(part)
        stream = ServedStream(
            node.acceptor,
            node.reader,
            DataNodeCounters(
                node.acceptor, node.volumes, rooms=tuple, copied=lambda: CopiedBytes(0, 0)
            ),
        )
        connection = stream._connection = FrameConnection(stream, "a peer")
        assert isinstance(stream._at_once(part), Bulk)
        connection.pause_writing()
        assert stream._at_once(part) is None
        connection.resume_writing()
        assert isinstance(stream._at_once(part), Bulk)


async def test_a_node_beats_while_its_disk_does_not_answer_and_it_does_not_read(
    tmp_path: Path,
) -> None:
    """Each beat tells the client what it has in flight, and whether that arrived."""
    disk = SimulatedDisk()
    async with running(tmp_path, disk=disk) as node, stream_to(node) as (channel, votes, _):
        await node.create()
        disk.breaks(Fault(SYNCS, delay_s=HELD))
        connection = channel.connection
        connection.send(beat_wish(0.01))
        for index in range(MAX_WAITING_VOTES * 4):
            connection.send(frame(index, chunk(index, 20_000))[1])
        await wait_until_async(lambda: votes.beats and votes.beats[-1].index >= MAX_WAITING_VOTES)
        count = len(votes.beats)
        await wait_until_async(lambda: len(votes.beats) >= count + 5)
        arrived = [arrived_bytes(beat, connection.sent_bytes) for beat in votes.beats[count:]]
        assert all(0 < each < connection.sent_bytes for each in arrived)
        assert votes.votes == []
        disk.mend()
        await wait_until_async(lambda: len(votes.votes) == MAX_WAITING_VOTES * 4)
        count = len(votes.beats)
        await wait_until_async(lambda: len(votes.beats) > count + 1)
        assert votes.beats[-1].index == 0
        assert arrived_bytes(votes.beats[-1], connection.sent_bytes) == connection.sent_bytes


async def test_a_node_beats_only_as_often_as_it_is_asked_to(tmp_path: Path) -> None:
    async with running(tmp_path) as node, stream_to(node) as (channel, votes, _):
        await node.create()
        channel.connection.send(frame(0)[1])
        await wait_until_async(lambda: votes.votes)
        assert votes.beats == []
        channel.connection.send(beat_wish(0.01))
        await wait_until_async(lambda: len(votes.beats) > 1)
        channel.connection.send(beat_wish(0), frame(1)[1])
        await wait_until_async(lambda: len(votes.votes) == 2)
        count = len(votes.beats)
        for index in range(2, 200):
            channel.connection.send(frame(index)[1])
            await wait_until_async(lambda: len(votes.votes) == index + 1)  # noqa: B023  # at once
        assert len(votes.beats) == count
