"""A node serves before it has read its finalized replicas: a caller of one waits for its read,
and nothing is said of a volume as a whole before all of it was read."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from paxosblock.api.datanode import (
    Envelope,
    FetchChunks,
    FindChunk,
    FindReplica,
    ListReplicas,
    NoAnswer,
    ReadBytes,
    Watch,
)
from paxosblock.api.reports import ALL_BLOCKS, BlockReport, Heartbeat, HeartbeatAnswer, Register
from paxosblock.datanode.reporter import reported
from paxosblock.datanode.store.layout import BlockFiles, by_block, meta_name, pairs, sort_in
from paxosblock.datanode.volumes import first_reads
from paxosblock.datanode.volumes.first_reads import read_all
from paxosblock.errors import NoSpaceError, PaxosBlockError, StorageError
from paxosblock.net.streams.stream_calls import Bulk
from paxosblock.protocol.messages import (
    Create,
    Delete,
    Deleted,
    Finalized,
    LastVote,
    NextGS,
    Read,
    ReadReply,
)
from paxosblock.protocol.read import Version
from paxosblock.protocol.types import BlockId, Durability, Generation, Reason
from tests.datanode.node import (
    WINDOW,
    Node,
    chunk,
    finalization,
    frame,
    name,
    refusal,
    running,
)
from tests.datanode.test_reporter import is_full, namenode, pages, reporting
from tests.datanode.test_resting import objects_become
from tests.datanode.test_scrubber import Clock, scrubbing
from tests.disks.faults import HELD, Fault
from tests.disks.simulated import SimulatedDisk
from tests.test_file_formats import with_tail_of_a_replica
from tests.waiting import wait_until_async

FOLDER = Path("/volume")
BLOCKS = tuple(BlockId(number) for number in range(1, 6))
ONE, OTHER = BLOCKS[:2]
LOG = [name(0), name(1)]


async def put(node: Node, *blocks: BlockId) -> None:
    """Write and finalize replicas in files of their own."""
    for block in blocks:
        await node.create(block)
        for index in range(2):
            await node.send(frame(index, block=block))
        assert isinstance(await node.finalize(1, LOG, block=block), Finalized)


async def disk_with(*blocks: BlockId, folders: Sequence[Path] = (FOLDER,)) -> SimulatedDisk:
    """The disk of a process that wrote a replica of each block into each folder, and ended."""
    disk = SimulatedDisk()
    for folder in folders:
        async with running(folder, disk=disk) as node:
            await put(node, *blocks)
    return disk.next_process()


def holds(disk: SimulatedDisk, block: BlockId, call: str = "open") -> None:
    """No process can read the metadata of this block until the disk is mended."""
    disk.breaks(Fault((call,), path=f"/current/{meta_name(block)}", delay_s=HELD))


def unread(node: Node) -> list[BlockId]:
    return [block for block in BLOCKS if node.acceptor.is_unread(block)]


async def read_rest(node: Node) -> None:
    """All that the node reads after its start."""
    for volume in node.volumes:
        await read_all(volume)


def seen(node: Node) -> list[object]:
    """All that is told of the replicas of a node."""
    blocks = (node.acceptor.find(block, node.storage) for block in BLOCKS)
    return [block and (block.replica, block.corrupt, reported(block)) for block in blocks]


# -- the names ------------------------------------------------------------------------------------

PARTS = ("blk_", "7", "70", "0", "07", "_5", "_0", ".1", ".meta", "x", str(2**64), "")


def test_the_pairs_and_the_other_files_together_are_what_is_there() -> None:
    rng, folder = random.Random(5), Path("/current")
    lone = 0
    for _ in range(3000):
        made = {"".join(rng.choices(PARTS, k=rng.randrange(1, 5))) for _ in range(9)}
        usual = [f"blk_{rng.choice((7, 70))}{rng.choice(('', '.meta', '_5'))}" for _ in range(3)]
        names = sorted(made.union(usual) - {""}, key=lambda _: rng.random())
        disk = SimulatedDisk({folder / each: b"" for each in names})
        alone, others = pairs(names)
        again: dict[BlockId, BlockFiles] = {}
        sort_in(again, folder, others)
        assert not again.keys() & alone.keys()
        for block, data in alone.items():
            sort_in(again, folder, (meta_name(block), data))
        whole = by_block(disk, folder)
        assert again.keys() == whole.keys()
        for block, files in whole.items():
            assert set(again[block].paths) == set(files.paths)
        lone += len(alone)
    assert lone > 1000


# -- whoever asks waits ---------------------------------------------------------------------------


async def test_a_node_serves_before_it_has_read_a_finalized_replica() -> None:
    disk = await disk_with(*BLOCKS)
    disk.breaks(Fault(("open", "read"), path="/current/"))
    async with running(FOLDER, disk=disk, unread=True) as node:
        assert disk.met == []
        assert (node.acceptor.count, unread(node)) == (len(BLOCKS), list(BLOCKS))
        assert isinstance(await node.ask(Read(ONE)), ReadReply)
        assert unread(node) == list(BLOCKS[1:])


async def test_what_is_told_of_replicas_is_the_same_however_they_were_read() -> None:
    disk = await disk_with(*BLOCKS)
    async with running(FOLDER, disk=disk) as node:
        before, used_bytes = seen(node), node.volumes[0].used_bytes
        assert used_bytes == sum(len(frame(index)[1]) for index in range(2)) * len(BLOCKS)
    async with running(FOLDER, disk=disk.next_process(), unread=True) as node:
        assert seen(node) == before
        assert node.volumes[0].used_bytes == used_bytes
    async with running(FOLDER, disk=disk.next_process(), unread=True) as node:
        for block in BLOCKS[1:]:
            assert isinstance(await node.ask(Read(block)), ReadReply)
        await read_rest(node)
        assert seen(node) == before
        assert node.volumes[0].used_bytes == used_bytes


VERSION = Version(Generation(0), Generation(1), 2)
ASKED: dict[str, Callable[[Node], Awaitable[object]]] = {
    "Read": lambda node: node.ask(Read(ONE)),
    "NextGS": lambda node: node.next_gs(5, block=ONE),
    "an old NextGS": lambda node: node.next_gs(1, block=ONE),
    "Create": lambda node: node.ask(Create(ONE, WINDOW, Durability.DISK)),
    "a small Create": lambda node: node.ask(Create(ONE, WINDOW, Durability.DISK, small=True)),
    "Finalize": lambda node: node.ask(finalization(1, LOG, block=ONE)),
    "another Finalize": lambda node: node.ask(finalization(1, LOG[:1], block=ONE)),
    "Delete": lambda node: node.ask(Delete(ONE, Generation(1))),
    "a chunk": lambda node: node.send(frame(2, block=ONE)),
    "Watch": lambda node: node.reader.watch(
        Watch(node.storage, Read(ONE), Generation(0), known_length=0, wait_ms=60_000)
    ),
}


@pytest.mark.parametrize("asked", ASKED)
async def test_a_request_waits_for_the_read_and_gets_the_answer_that_it_would_have_got(
    asked: str,
) -> None:
    disk = await disk_with(ONE, OTHER)
    async with running(FOLDER, disk=SimulatedDisk(disk.files())) as node:
        wanted, after = await ASKED[asked](node), seen(node)
    async with running(FOLDER, disk=disk, unread=True) as node:
        holds(disk, ONE)
        answer = asyncio.ensure_future(ASKED[asked](node))
        await wait_until_async(lambda: disk.plan.waiting == 1, what="a read")
        assert isinstance(await node.ask(Read(OTHER)), ReadReply)  # no other caller waits
        assert not answer.done()
        disk.mend()
        assert await answer == wanted
        assert seen(node) == after


async def test_of_several_requests_those_for_other_replicas_are_answered() -> None:
    disk = await disk_with(ONE, OTHER)
    async with running(FOLDER, disk=disk, unread=True) as node:
        holds(disk, ONE)
        promises = [
            NextGS(block, Generation(5), Generation(0), WINDOW, Durability.DISK)
            for block in (ONE, OTHER)
        ]
        late, answered = await node.acceptor.take_all(
            [Envelope(node.storage, each) for each in promises]
        )
        assert late == NoAnswer()
        assert isinstance(answered, LastVote)
        disk.mend()
        assert isinstance(await node.ask(promises[0]), LastVote)


async def test_bytes_of_a_replica_are_read_once_its_metadata_is() -> None:
    disk = await disk_with(ONE)
    async with running(FOLDER, disk=disk, unread=True) as node:
        holds(disk, ONE)
        request = ReadBytes(ONE, node.storage, VERSION, 10, 20, exact=True)
        fetched = FetchChunks(ONE, node.storage, (Generation(1),), 0, 2)
        assert node.reader.known_part(request) is None
        waiting = [
            asyncio.ensure_future(each)
            for each in (node.reader.read_bytes(request), node.reader.fetch_chunks(fetched))
        ]
        await wait_until_async(lambda: disk.plan.waiting > 0, what="a read")
        assert not any(each.done() for each in waiting)
        disk.mend()
        part, records = await asyncio.gather(*waiting)
        assert isinstance(part, Bulk)
        assert b"".join(part.frames[1:]) == chunk(0)[10:30]
        assert isinstance(records, Bulk)
        assert b"".join(records.frames) == b"".join(
            frame(index, block=ONE)[1] for index in range(2)
        )


async def test_a_replica_that_two_ask_for_at_the_same_time_is_read_once() -> None:
    disk = await disk_with(ONE)
    async with running(FOLDER, disk=disk, unread=True) as node:
        holds(disk, ONE)
        scan = asyncio.create_task(read_rest(node))
        promises = [asyncio.create_task(node.next_gs(n, block=ONE)) for n in (4, 5, 6)]
        await wait_until_async(lambda: disk.plan.waiting > 0, what="a read")
        disk.breaks(Fault(("read",), path="/current/"))  # what is held goes on
        votes = await asyncio.gather(*promises)
        await scan
        assert disk.met == ["read"]
        assert all(isinstance(vote, LastVote) for vote in votes)
        block = node.acceptor.find(ONE, node.storage)
        assert block is not None
        assert block.replica is not None
        assert block.replica.registers.max_generation == 6


async def test_a_promise_of_a_replica_that_was_unread_is_kept() -> None:
    disk = await disk_with(ONE)
    async with running(FOLDER, disk=disk, unread=True) as node:
        assert isinstance(await node.next_gs(5, block=ONE), LastVote)
    for reads in (True, False):
        async with running(FOLDER, disk=disk.next_process(), unread=reads) as node:
            assert refusal(await node.next_gs(4, block=ONE)) is Reason.FENCED


async def test_a_replica_that_was_deleted_unread_is_gone() -> None:
    disk = await disk_with(ONE, OTHER)
    async with running(FOLDER, disk=disk, unread=True) as node:
        assert isinstance(await node.ask(Delete(ONE, Generation(1))), Deleted)
        await read_rest(node)
        assert [block.id for block in node.acceptor.blocks()] == [OTHER]
        per_replica = sum(len(frame(index)[1]) for index in range(2))
        assert node.volumes[0].used_bytes == per_replica
    async with running(FOLDER, disk=disk.next_process(), unread=True) as node:
        assert [block.id for block in node.acceptor.blocks()] == [OTHER]


# -- what a read finds ----------------------------------------------------------------------------


def harmed(disk: SimulatedDisk, block: BlockId) -> SimulatedDisk:
    """The disk with a bit of the block's metadata flipped."""
    files = {path: bytearray(data) for path, data in disk.files().items()}
    files[FOLDER / "current" / meta_name(block)][20] ^= 1
    return SimulatedDisk({path: bytes(data) for path, data in files.items()})


async def test_damaged_metadata_is_found_though_nobody_asks() -> None:
    disk = harmed(await disk_with(*BLOCKS), ONE)
    async with running(FOLDER, disk=disk, unread=True) as node:
        await read_rest(node)
        dead = [block for block in node.acceptor.blocks() if block.corrupt]
        assert [block.id for block in dead] == [ONE]
        assert "checksum" in dead[0].corrupt
        assert refusal(await node.next_gs(5, block=ONE)) is Reason.CORRUPT


async def test_damaged_metadata_is_found_by_whoever_asks() -> None:
    disk = harmed(await disk_with(*BLOCKS), ONE)
    async with running(FOLDER, disk=disk, unread=True) as node:
        assert refusal(await node.next_gs(5, block=ONE)) is Reason.CORRUPT
        assert isinstance(await node.next_gs(5, block=OTHER), LastVote)
        await read_rest(node)
        assert refusal(await node.next_gs(6, block=ONE)) is Reason.CORRUPT
        assert isinstance(await node.ask(Delete(ONE, Generation(1))), Deleted)
        assert node.acceptor.count == len(BLOCKS) - 1


async def test_metadata_of_a_later_format_fails_the_volume_and_is_left_as_it_is() -> None:
    disk = await disk_with(*BLOCKS)
    path = FOLDER / "current" / meta_name(ONE)
    later = with_tail_of_a_replica(disk.files()[path], 3)
    disk = SimulatedDisk({**disk.files(), path: later})
    async with running(FOLDER, disk=disk, unread=True) as node:
        await read_rest(node)
        said = node.volumes[0].failed
        assert f"{path} is of format 3, and this version of paxosblock knows up to 2" in said
        assert "\n" not in said
        with pytest.raises(StorageError):
            await node.next_gs(5, block=OTHER)
    assert disk.files()[path] == later


async def test_a_replica_is_not_dead_for_lack_of_a_file_descriptor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(first_reads, "TRY_AGAIN_S", 0.01)
    disk = await disk_with(*BLOCKS)
    async with running(FOLDER, disk=disk, unread=True) as node:
        disk.breaks(Fault(("open",), path=f"/current/{meta_name(OTHER)}", error="EMFILE"))
        with pytest.raises(NoSpaceError, match="too many files"):
            await node.next_gs(5, block=OTHER)
        scan = asyncio.create_task(read_rest(node))
        await wait_until_async(lambda: len(disk.met) > 3, what="another try")
        assert not scan.done()
        disk.mend()
        await scan
        assert isinstance(await node.next_gs(5, block=OTHER), LastVote)
        assert node.volumes[0].used_bytes == len(BLOCKS) * sum(len(frame(i)[1]) for i in range(2))


async def test_a_volume_that_fails_while_it_is_read_has_nothing_any_more() -> None:
    disk = await disk_with(*BLOCKS)
    async with running(FOLDER, disk=disk, unread=True) as node:
        holds(disk, ONE)
        scan = asyncio.create_task(read_rest(node))
        asked = asyncio.create_task(node.next_gs(5, block=ONE))
        await wait_until_async(lambda: disk.plan.waiting > 0, what="a read")
        node.volumes[0].fail(OSError("gone"))
        disk.mend()
        await scan
        with pytest.raises(PaxosBlockError):
            await asked
        assert node.acceptor.count == 0


async def test_the_later_of_two_replicas_that_are_unread_on_two_volumes_counts() -> None:
    folders = (FOLDER, Path("/other"))
    disk = await disk_with(ONE, folders=folders)
    async with running(folders[1], disk=disk.next_process()) as node:
        later = node.storage
        assert isinstance(await node.finalize(2, LOG, block=ONE), Finalized)
    async with running(*folders, disk=disk.next_process(), unread=True) as node:
        (block,) = node.acceptor.blocks()
        assert block.volume.storage == later
        assert node.acceptor.find(ONE, node.storage) is None


# -- what is said of a volume ---------------------------------------------------------------------


async def test_a_node_is_registered_and_serves_but_reports_a_volume_only_when_all_is_read() -> None:
    disk = await disk_with(*BLOCKS)
    holds(disk, ONE)
    async with namenode() as (listener, address), reporting(FOLDER, address, disk=disk) as node:
        await listener.hears(Register)
        await wait_until_async(lambda: disk.plan.waiting > 0, what="a read")
        listener.answer = HeartbeatAnswer(register=False, report=True)  # it is late
        promise = NextGS(OTHER, Generation(5), Generation(0), WINDOW, Durability.DISK)
        assert isinstance(await node.accept(Envelope(node.volumes[0].storage, promise)), LastVote)
        news = await listener.hears(BlockReport)
        assert (news.covers, [each.state.block for each in news.replicas]) == (None, [OTHER])
        assert (news.deleted, news.dead) == ((), ())
        beats = len(listener.all(Heartbeat))
        await wait_until_async(lambda: len(listener.all(Heartbeat)) > beats + 3, what="heartbeats")
        assert not pages(listener)
        disk.mend()
        await listener.hears(BlockReport, is_full)
        assert pages(listener)[0] == (ALL_BLOCKS, BLOCKS)


async def test_a_volume_that_is_read_slowly_keeps_up_no_report_of_another() -> None:
    folders = (FOLDER, Path("/other"))
    disk = SimulatedDisk()
    for folder, block in zip(folders, (ONE, OTHER), strict=True):
        async with running(folder, disk=disk) as node:
            await put(node, block)
    disk = disk.next_process()
    disk.breaks(Fault(("open",), path=f"/other/current/{meta_name(OTHER)}", delay_s=HELD))
    async with (
        namenode() as (listener, address),
        reporting(folders[0], address, disk=disk, others=folders[1:]),
    ):
        await listener.hears(BlockReport, is_full)
        assert pages(listener) == [(ALL_BLOCKS, (ONE,))]
        disk.mend()
        await wait_until_async(lambda: len(pages(listener)) > 1, what="the other report")
        assert pages(listener)[1] == (ALL_BLOCKS, (OTHER,))


async def test_all_replicas_are_listed_and_one_is_found_once_they_are_read() -> None:
    disk = await disk_with(*BLOCKS)
    holds(disk, ONE)
    async with reporting(FOLDER, disk=disk) as node:
        storage = node.volumes[0].storage
        listed = asyncio.create_task(node.list_replicas(ListReplicas()))
        found = asyncio.create_task(node.find_replica(FindReplica(ONE, storage)))
        where = asyncio.create_task(node.find_chunk(FindChunk(ONE, storage, VERSION, 150)))
        await wait_until_async(lambda: disk.plan.waiting > 0, what="a read")
        (other,) = (await node.find_replica(FindReplica(OTHER, storage))).replicas
        assert other.state.block == OTHER
        assert not any(each.done() for each in (listed, found, where))
        disk.mend()
        assert [each.state.block for each in (await listed).replicas] == list(BLOCKS)
        assert [each.state.block for each in (await found).replicas] == [ONE]
        assert ((await where).index, (await where).offset) == (1, 100)


async def test_the_scrubber_waits_until_all_is_read() -> None:
    disk = await disk_with(*BLOCKS)
    holds(disk, BLOCKS[-1])
    async with running(FOLDER, disk=disk, unread=True) as node:
        async with scrubbing(node, Clock()):
            scan = asyncio.create_task(read_rest(node))
            await wait_until_async(lambda: disk.plan.waiting > 0, what="a read")
            assert node.volumes[0].scrubbed.read_bytes == 0
            disk.mend()
            await scan
            await wait_until_async(lambda: node.volumes[0].scrubbed.whole_ms > 0, what="a pass")
        assert node.volumes[0].scrubbed.read_bytes == node.volumes[0].used_bytes


async def test_a_node_that_serves_clients_reads_half_of_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def counted(pause_s: float, *_: object) -> None:
        pauses.append(pause_s)
        await sleep(0)

    disk = await disk_with(*BLOCKS)
    async with running(FOLDER, disk=disk, unread=True) as node:
        monkeypatch.setattr(asyncio, "sleep", counted)
        node.volumes[0].serve()
        await read_rest(node)
        assert len(pauses) == 1
        assert pauses[0] > 0


async def test_a_replica_in_files_rests_when_nobody_holds_it() -> None:
    disk = await disk_with(*BLOCKS)
    async with running(FOLDER, disk=disk, unread=True) as node:
        assert isinstance(await node.next_gs(5, block=ONE), LastVote)
        await read_rest(node)
        await objects_become(0, node)
        assert refusal(await node.next_gs(4, block=ONE)) is Reason.FENCED
        await put(node, BlockId(99))
        await objects_become(0, node)
