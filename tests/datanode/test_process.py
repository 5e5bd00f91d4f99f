"""Real DataNode processes: killed in mid-write, fed with garbage, copied from, closed."""

from __future__ import annotations

import asyncio
import itertools
import random
import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from benchmarks.cases import replicas
from paxosblock.api.datanode import (
    ACCEPT,
    FIND_CHUNK,
    FIND_REPLICA,
    LIST_REPLICAS,
    Envelope,
    FindChunk,
    FindReplica,
    FoundChunk,
    ListReplicas,
    ReadBytes,
)
from paxosblock.api.datanode import StorageAddress as At
from paxosblock.api.limits import MAX_CHUNK_BYTES
from paxosblock.api.reports import BlockReport
from paxosblock.base.checksum import crc32c
from paxosblock.base.units import KIB, MIB
from paxosblock.errors import NoSpaceError, NotFoundError
from paxosblock.net.calls import control
from paxosblock.net.wire import FrameKind, Header, decode_error
from paxosblock.protocol.chunk_log import read_entries
from paxosblock.protocol.messages import (
    Delete,
    Deleted,
    Finalize,
    Finalized,
    NextGS,
    RecoveryVote,
    RecoveryWrite,
)
from paxosblock.protocol.read import Version
from paxosblock.protocol.types import (
    FIRST_GENERATION,
    NO_GENERATION,
    BlockId,
    Durability,
    Generation,
    Reason,
    ReplicaState,
    StorageId,
)
from tests.datanode.node import BLOCK, WINDOW, chunk, frame, name, refusal
from tests.datanode.process import (
    Client,
    DataNodeProcess,
    client_of,
    datanode,
    raw_connection,
)
from tests.datanode.test_reporter import namenode, pages
from tests.waiting import wait_until_async


@pytest.fixture
def node(tmp_path: Path) -> Iterator[DataNodeProcess]:
    """One DataNode whose NameNode cannot be reached."""
    with datanode(tmp_path / "node-a") as running:
        yield running


@pytest.fixture(scope="module")
def unharmed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataNodeProcess]:
    """One DataNode for everything that must not harm it."""
    with datanode(tmp_path_factory.mktemp("unharmed")) as running:
        yield running


@pytest.mark.parametrize("durability", list(Durability))
async def test_every_vote_that_arrived_is_there_after_kill_9(
    node: DataNodeProcess, durability: Durability
) -> None:
    chance = random.Random(7)
    for block in (BlockId(101), BlockId(102), BlockId(103)):
        payload = chance.randbytes(20 * KIB)
        async with client_of(node) as client:
            await client.create(block, durability)
            for index in range(40 + chance.randrange(40)):
                client.send(frame(index, payload, block=block))
                await client.wait_votes(index - 15)
            node.end(signal.SIGKILL)
            voted = len(client.votes)
        node.start()
        async with client_of(node) as client:
            last = await client.last_vote(1, block)
        assert last.length >= voted > 0
        assert not last.registers.weak
        stored = (node.paths[0] / "rbw" / f"blk_{block}").read_bytes()
        assert stored == b"".join(
            frame(index, payload, block=block)[1] for index in range(last.length)
        )


async def test_sigterm_closes_cleanly_and_the_next_process_goes_on(node: DataNodeProcess) -> None:
    async with client_of(node) as client:
        await client.create()
        client.send(frame(0))
        await client.wait_votes(1)
    assert node.end(signal.SIGTERM) == 0
    assert not (node.paths[0] / "address").exists()
    node.start()
    (found,) = control.call(node.address, LIST_REPLICAS, ListReplicas()).replicas
    assert (found.state.block, found.state.length, found.hdfs_state) == (BLOCK, 1, "rwr")


async def test_a_node_is_asked_for_one_replica_alone(node: DataNodeProcess) -> None:
    async with client_of(node) as client:
        await client.create(BLOCK)
        await client.create(BlockId(8))

    def found(block: BlockId, storage: StorageId) -> list[BlockId]:
        answer = control.call(node.address, FIND_REPLICA, FindReplica(block, storage))
        return [replica.state.block for replica in answer.replicas]

    assert found(BLOCK, node.storage) == [BLOCK]
    assert found(BlockId(9), node.storage) == []
    assert found(BLOCK, StorageId("another")) == []


async def test_a_node_tells_where_a_chunk_begins_of_the_version_it_holds_and_of_no_other(
    node: DataNodeProcess,
) -> None:
    async with client_of(node) as client:
        await client.create()
        for index, size in enumerate((100, 7, 50)):
            client.send(frame(index, chunk(index, size)))
        await client.wait_votes(3)
    decided = Finalize(BLOCK, Generation(1), Generation(0), 3, 157, (), WINDOW, Durability.DISK)
    ask = Envelope(node.storage, decided)
    assert isinstance(await asyncio.to_thread(control.call, node.address, ACCEPT, ask), Finalized)

    async def find(length: int, offset: int, block: BlockId = BLOCK) -> FoundChunk:
        version = Version(Generation(0), Generation(1), length)
        wanted = FindChunk(block, node.storage, version, offset)
        return await asyncio.to_thread(control.call, node.address, FIND_CHUNK, wanted)

    found = [await find(3, offset) for offset in (0, 99, 100, 106, 107, 156)]
    assert found == [
        FoundChunk(index, start, 157)
        for index, start in ((0, 0), (0, 0), (1, 100), (1, 100), (2, 107), (2, 107))
    ]
    for length, block in ((4, BLOCK), (3, BlockId(99))):
        with pytest.raises(NotFoundError, match="does not hold this version of block"):
            await find(length, 0, block)


async def test_what_was_finalized_is_read_back_from_a_running_node(node: DataNodeProcess) -> None:
    async with client_of(node) as client:
        await client.create()
        for index in range(3):
            client.send(frame(index))
        await client.wait_votes(3)
        ask = Envelope(node.storage, finalize(3))
        told = await asyncio.to_thread(control.call, node.address, ACCEPT, ask)
        assert isinstance(told, Finalized)
        version = Version(Generation(0), Generation(1), 3)
        run, payload = await client.read(ReadBytes(BLOCK, node.storage, version, 0, 300))
        assert payload == b"".join(map(chunk, range(3)))
        assert [end for end, _ in read_entries(run.names)] == [100, 200, 300]
        for _ in range(2):
            part = ReadBytes(BLOCK, node.storage, version, 150, 9, exact=True)
            run, payload = await client.read(part)
            assert payload == chunk(1)[50:59]
            assert (run.first, run.offset) == (1, 150)
            assert [*read_entries(run.names)] == [(159, crc32c(payload))]


async def test_a_lagging_node_fetches_what_it_lacks_from_the_next_holder_that_answers(
    tmp_path: Path,
) -> None:
    with (
        datanode(tmp_path / "a") as a,
        datanode(tmp_path / "b") as b,
        datanode(tmp_path / "c") as c,
    ):
        for member in (a, b, c):
            async with client_of(member) as client:
                await client.create()
                for index in range(3 if member is b else 1):
                    client.send(frame(index))
                await client.wait_votes(3 if member is b else 1)
                await client.last_vote(1)
        a.end(signal.SIGKILL)
        request = recovery(3, (a, b, c))
        peers = (At(a.storage, "127.0.0.1:1"), At(b.storage, b.address))
        ask = Envelope(c.storage, request, peers)
        told = await asyncio.to_thread(control.call, c.address, ACCEPT, ask)
        assert isinstance(told, RecoveryVote)
        assert told.length == 3
        (found,) = control.call(c.address, LIST_REPLICAS, ListReplicas()).replicas
        assert (found.state.registers.accepted_generation, found.state.length) == (1, 3)
        assert found.last == name(2)


async def test_a_new_node_takes_a_full_copy_of_many_pieces(tmp_path: Path) -> None:
    with datanode(tmp_path / "a") as a, datanode(tmp_path / "b") as b:
        payload = random.Random(3).randbytes(MIB)
        count = 12
        async with client_of(a) as client:
            await client.create(durability=Durability.MEMORY)
            for index in range(count):
                client.send(frame(index, payload))
            await client.wait_votes(count)
        request = finalize(count, len(payload), (a,))
        for holder in (a, b):
            ask = Envelope(holder.storage, request, (At(a.storage, a.address),))
            told = await asyncio.to_thread(control.call, holder.address, ACCEPT, ask)
            assert isinstance(told, Finalized), told
        copies = [(node.paths[0] / "current" / f"blk_{BLOCK}").read_bytes() for node in (a, b)]
        assert copies[0] == copies[1]
        assert list((b.paths[0] / "tmp").iterdir()) == []


async def test_two_volumes_have_a_storage_each(tmp_path: Path) -> None:
    with datanode(tmp_path / "node-a", volumes=2) as node:
        assert all((path / "VERSION").exists() for path in node.paths)
        first, second = ((path / "VERSION").read_text() for path in node.paths)
        assert first != second


# -- hostile peers --------------------------------------------------------------------------------

GARBAGE = {
    "zeros": bytes(200),
    "random": random.Random(1).randbytes(4096),
    "http": b"GET /healthz HTTP/1.1\r\nHost: a.name.that.is.long.enough\r\n\r\n",
    "a reply from a client": Header.of(FrameKind.REPLY, b"x").pack() + b"x",
    "a vote from a client": Header(FrameKind.VOTE).pack(),
    "a call that is no msgpack": Header.of(FrameKind.CALL, b"\xc1\xc1").pack() + b"\xc1\xc1",
    "a call with a wrong checksum": Header(FrameKind.CALL, payload_length=3).pack() + b"abc",
    "an endless call": Header(FrameKind.CALL, payload_length=MAX_CHUNK_BYTES).pack(),
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=list(GARBAGE))
async def test_garbage_ends_its_own_connection_with_an_error_and_nothing_else(
    unharmed: DataNodeProcess, garbage: bytes
) -> None:
    reader, writer = await raw_connection(unharmed)
    try:
        writer.write(garbage)
        answer = await asyncio.wait_for(reader.read(), 10)
    finally:
        writer.close()
        await writer.wait_closed()
    header = Header.unpack(answer)
    assert header.kind is FrameKind.ERROR
    error = decode_error(answer[-header.payload_length :])
    assert error.code in {"ProtocolError", "CorruptionError"}
    assert unharmed.healthy
    assert "Traceback" not in unharmed.log()


async def test_a_connection_that_stops_in_the_middle_of_a_chunk_leaves_no_vote(
    node: DataNodeProcess,
) -> None:
    async with client_of(node) as client:
        await client.create()
        _, writer = await raw_connection(node)
        writer.write(frame(0)[1][:-10])
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        assert (await client.last_vote(1)).length == 0


async def test_chunks_that_make_no_sense_are_refused_one_by_one(node: DataNodeProcess) -> None:
    async with client_of(node) as client:
        await client.create()
        client.send(frame(0, block=BlockId(404)))
        client.send(frame(5))
        client.send(frame(0, generation=9))
        header, sent = frame(0)
        client.send((header, sent[:-1] + b"\xff"))
        await wait_until_async(lambda: len(client.nacks) == 4)
        reasons = [nack.reason for nack in client.nacks]
        assert reasons == [Reason.NO_REPLICA, Reason.GAP, Reason.FENCED, Reason.CORRUPT]
        client.send(frame(0))
        await client.wait_votes(1)


async def test_a_reader_that_does_not_read_costs_no_memory(node: DataNodeProcess) -> None:
    payload = bytes(MIB)
    async with client_of(node) as client:
        await client.create(durability=Durability.MEMORY)
        for index in range(16):
            client.send(frame(index, payload))
            await client.wait_votes(index + 1)
        version = Version(Generation(0), NO_GENERATION, 16)
        request = ReadBytes(BLOCK, node.storage, version, 0, 16 * MIB)
        await client.read(request)
        before = node.resident_bytes
        client.channel.connection.pause_reading()
        calls = [asyncio.create_task(client.read(request)) for _ in range(60)]
        async with client_of(node) as other:
            for _ in range(5):
                await other.read(request)
        assert node.resident_bytes - before < 48 * MIB
        client.channel.connection.resume_reading()
        assert [len((await call)[1]) for call in calls] == [4 * MIB] * 60


async def test_a_thousand_open_blocks_fit_into_150_mib(node: DataNodeProcess) -> None:
    async with client_of(node) as client:
        for start in range(0, 1000, 50):
            blocks = [BlockId(start + number) for number in range(50)]
            await asyncio.gather(*(client.create(block, Durability.MEMORY) for block in blocks))
            for block in blocks:
                client.send(frame(0, bytes(64 * KIB), block=block))
            await client.wait_votes(start + 50)
        assert node.resident_bytes < 150 * MIB
        states = control.call(node.address, LIST_REPLICAS, ListReplicas()).replicas
        assert len(states) == 1000
        assert {found.state.registers.state for found in states} == {ReplicaState.RBW}


def recovery(count: int, members: tuple[DataNodeProcess, ...]) -> RecoveryWrite:
    """Generation 1 accepts `count` chunks of generation 0; every member may be a holder."""
    storages = tuple(member.storage for member in members)
    return RecoveryWrite(
        block=BLOCK,
        generation=Generation(1),
        base=Generation(0),
        epoch=Generation(0),
        length=count,
        size_bytes=count * 100,
        tail=tuple(name(index) for index in range(count)),
        chosen_generation=Generation(0),
        members=storages,
        holders=storages,
        window=WINDOW,
        durability=Durability.DISK,
    )


def finalize(
    count: int, chunk_bytes: int = 100, holders: tuple[DataNodeProcess, ...] = ()
) -> Finalize:
    """Generation 1 finalizes `count` chunks of the first epoch."""
    return Finalize(
        block=BLOCK,
        finalized_generation=Generation(1),
        epoch=Generation(0),
        length=count,
        size_bytes=count * chunk_bytes,
        holders=tuple(holder.storage for holder in holders),
        window=WINDOW,
        durability=Durability.DISK,
    )


async def test_a_datanode_out_of_descriptors_takes_no_new_replica_and_goes_on_with_others(
    node: DataNodeProcess,
) -> None:
    assert node.process is not None
    resource.prlimit(node.process.pid, resource.RLIMIT_NOFILE, (256, 256))
    async with client_of(node) as client:
        taken = await fill_up(client)
        assert len(taken) > 100
        for block in taken:
            client.send(frame(0, block=block))
        await client.wait_votes(len(taken))
        for block in taken:
            assert (await client.last_vote(1, block)).length == 1
        assert node.healthy
        for block in taken:
            told = await client.ask(Delete(block, Generation(1)))
            assert isinstance(told, Deleted), told
        await client.create(BlockId(2000))


async def fill_up(client: Client) -> list[BlockId]:
    """Create replicas until the node refuses one; return those it took."""
    taken: list[BlockId] = []
    with pytest.raises(NoSpaceError, match="too many files and connections are open"):
        await asyncio.wait_for(create_for_ever(client, taken), 60)
    return taken


async def create_for_ever(client: Client, taken: list[BlockId]) -> None:
    for number in itertools.count(1000):
        await client.create(BlockId(number))
        taken.append(BlockId(number))


MANY = 20_000
LAST = BlockId(replicas.FIRST + MANY - 1)
"""The replica that is read last, unless a caller asks."""


def volumes_unread(node: DataNodeProcess) -> int:
    """Return the number of its volumes that the node has not read yet, as it says itself."""
    with urlopen(f"http://{node.address}/metrics", timeout=20) as answer:
        lines = answer.read().decode().splitlines()
    (line,) = (each for each in lines if each.startswith("paxosblock_datanode_volumes_unread "))
    return int(float(line.split()[1]))


async def test_a_node_with_many_replicas_serves_before_it_has_read_them_and_keeps_its_promises(
    tmp_path: Path,
) -> None:
    """It is killed three times while it reads them; then it reports them all."""
    folder = tmp_path / replicas.NODE
    folder.mkdir()
    node = DataNodeProcess(folder)
    replicas.fill(node.paths[0], 0, MANY)
    (node.paths[0] / "current" / f"blk_{LAST - 7}.meta").write_bytes(b"garbage")
    try:
        for generation in (2, 3, 4):
            node.start()
            async with client_of(node) as client:
                last = await client.last_vote(generation, LAST)
                early = Generation(generation - 1)
                late = await client.ask(NextGS(LAST, early, early, WINDOW, Durability.DISK))
            assert await asyncio.to_thread(volumes_unread, node) == 1, "it serves while it reads"
            assert (last.length, last.registers.max_generation) == (1, generation)
            assert refusal(late) is Reason.FENCED
            node.end(signal.SIGKILL)
        async with namenode() as (listener, node.namenodes):
            node.start()
            async with client_of(node) as client:
                version = Version(FIRST_GENERATION, Generation(1), 1)
                request = ReadBytes(BlockId(LAST - 1), node.storage, version, 0, 10)
                _, data = await client.read(request)
            assert data == replicas.PAYLOAD
            assert not pages(listener), "nothing is said of the volume before all is read"
            await wait_until_async(lambda: listener.reported.complete, what="a whole report")
        told = [each for _, blocks in pages(listener) for each in blocks]
        assert sorted(told) == [*range(replicas.FIRST, LAST - 7), *range(LAST - 6, LAST + 1)]
        (dead,) = (each for report in listener.all(BlockReport) for each in report.dead)
        assert dead.block == LAST - 7
        assert await asyncio.to_thread(volumes_unread, node) == 0
    finally:
        node.kill()
