"""Control steps of small replicas, one record each: on the event loop, while the kernel syncs."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from paxosblock.api.datanode import CreateAndWrite, Envelope
from paxosblock.datanode.volumes.group_commit import GroupCommit
from paxosblock.datanode.volumes.volume import Volume
from paxosblock.errors import CorruptionError, NoSpaceError, ProtocolError, StorageError
from paxosblock.host.disk import OsDisk, Room
from paxosblock.host.kernel_syncs import Done, KernelSyncs
from paxosblock.net.streams.beats import beat_wish
from paxosblock.protocol.messages import Create, Created, Finalized, LastVote, Reply, Vote
from paxosblock.protocol.types import (
    FIRST_GENERATION,
    BlockId,
    Durability,
    Reason,
    ReplicaState,
)
from tests.datanode.node import (
    BLOCK,
    Node,
    chunk,
    finalization,
    frame,
    name,
    refusal,
    running,
)

FIRST = BlockId(1)


class Held(KernelSyncs):
    """Syncs that end when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[Done] = []

    def begin(self, file: int, done: Done) -> bool:
        self.taken.append(done)
        return True


@asynccontextmanager
async def held(folder: Path) -> AsyncIterator[tuple[Node, Held]]:
    """A node whose log has a segment; from then on its syncs are held."""
    async with running(folder) as node:
        await node.create(FIRST, small=True)
        kernel = Held()
        with ThreadPoolExecutor(1) as threads:
            node.volumes[0].commit = GroupCommit(threads, 1, kernel)
            yield node, kernel
        kernel.close()


async def turns() -> None:
    """Let everybody come as far as they can without the disk."""
    for _ in range(20):
        await asyncio.sleep(0)


def seen(node: Node) -> tuple[ReplicaState, int] | None:
    """State and length of the replica as everybody sees it."""
    block = node.acceptor.find(BLOCK, node.storage)
    state = None if block is None else block.state()
    return None if state is None else (state.registers.state, state.length)


def begun(step: Any) -> asyncio.Task[Reply]:
    task: asyncio.Task[Reply] = asyncio.ensure_future(step)
    return task


async def test_no_thread_takes_part_in_the_life_of_a_small_replica(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as node:
        await node.create(FIRST, small=True)
        with monkeypatch.context() as patched:
            patched.delattr(Volume, "run")
            assert isinstance(await node.create(small=True), Created)
            assert isinstance(await node.send(frame(0)), Vote)
            assert isinstance(await node.finalize(1, [name(0)]), Finalized)
    async with running(tmp_path) as node:
        assert seen(node) == (ReplicaState.FINALIZED, 1)


async def test_a_step_is_neither_told_nor_adopted_before_its_record_is_durable(
    tmp_path: Path,
) -> None:
    async with held(tmp_path) as (node, kernel):
        creating = begun(node.create(small=True))
        await turns()
        assert (creating.done(), seen(node), len(kernel.taken)) == (False, None, 1)
        kernel.taken.pop()(None)
        assert isinstance(await creating, Created)

        voting = node.send(frame(0))
        kernel.taken.pop()(None)
        assert isinstance(await voting, Vote)
        finalizing = begun(node.finalize(1, [name(0)]))
        await turns()
        assert (finalizing.done(), seen(node)) == (False, (ReplicaState.RBW, 1))
        assert refusal(await node.send(frame(1, chunk(1)))) is Reason.FENCED
        promising = begun(node.next_gs(2, base=1))
        await turns()
        assert not promising.done(), "nobody else is let in"
        kernel.taken.pop()(None)
        assert isinstance(await finalizing, Finalized)
        assert isinstance(await promising, LastVote)


async def test_steps_that_come_together_share_a_sync(tmp_path: Path) -> None:
    async with held(tmp_path) as (node, kernel):
        creating = [begun(node.create(BlockId(number), small=True)) for number in range(2, 12)]
        await turns()
        assert len(kernel.taken) == 1
        kernel.taken.pop()(None)
        await turns()
        kernel.taken.pop()(None)
        assert all(isinstance(each, Created) for each in await asyncio.gather(*creating))
        assert kernel.taken == []


async def test_a_sync_that_fails_takes_the_volume_and_tells_nothing(tmp_path: Path) -> None:
    async with held(tmp_path) as (node, kernel):
        creating = begun(node.create(small=True))
        await turns()
        kernel.taken.pop()(OSError(errno.EIO, os.strerror(errno.EIO)))
        with pytest.raises(StorageError, match="Input/output error"):
            await creating
        assert "Input/output error" in node.volumes[0].failed


# -- with the chunk in one message ----------------------------------------------------------------


def both(
    node: Node,
    sent: bytes,
    durability: Durability = Durability.DISK,
    block: BlockId = BLOCK,
) -> CreateAndWrite:
    return CreateAndWrite(node.storage, Create(block, 4, durability, small=True), sent)


async def sent_whole(node: Node, request: CreateAndWrite) -> Reply:
    """Answer as a data stream does: in one step, or in two if it cannot be one."""
    voting = node.acceptor.begin_whole(request)
    return await voting if voting else await node.acceptor.create_then_write(request)


async def test_a_replica_is_made_and_its_chunk_voted_for_in_one_message(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        answer = await sent_whole(node, both(node, frame(0)[1]))
        assert answer == Vote(BLOCK, FIRST_GENERATION, name(0).index, node.storage, synced=True)
        again = await sent_whole(node, both(node, frame(0)[1]))
        assert again == answer
        assert isinstance(await node.finalize(1, [name(0)]), Finalized)


async def test_whichever_of_the_two_is_refused_answers(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        other = await sent_whole(node, both(node, frame(0, generation=1)[1]))
        assert refusal(other) is Reason.FENCED
        assert seen(node) == (ReplicaState.RBW, 0)
        await node.next_gs(2)
        assert refusal(await sent_whole(node, both(node, frame(0)[1]))) is Reason.FENCED
        assert seen(node) == (ReplicaState.RBW, 0)


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        frame(0)[1][:-1],
        frame(0)[1] + b"x",
        frame(0, block=FIRST)[1],
        b"\0" + frame(0)[1][1:],
        beat_wish(1.0),
    ],
)
async def test_what_is_no_chunk_of_the_block_makes_no_replica(tmp_path: Path, sent: bytes) -> None:
    async with running(tmp_path) as node:
        with pytest.raises((ProtocolError, CorruptionError)):
            await sent_whole(node, both(node, sent))
        assert seen(node) is None


async def test_a_damaged_chunk_that_comes_with_create_is_not_voted_for(tmp_path: Path) -> None:
    damaged = frame(0)[1][:-1] + b"!"
    async with running(tmp_path) as node:
        await node.create(FIRST, small=True)  # the first record of a log is no single step
        answer = await sent_whole(node, both(node, damaged))
        assert refusal(answer) is Reason.CORRUPT
        assert seen(node) == (ReplicaState.RBW, 0)


async def test_an_asker_who_leaves_takes_nothing_back(tmp_path: Path) -> None:
    async with held(tmp_path) as (node, kernel):
        asking = begun(sent_whole(node, both(node, frame(0)[1])))
        await turns()
        asking.cancel()
        await asyncio.wait([asking])
        assert seen(node) is None
        kernel.taken.pop()(None)
        assert seen(node) == (ReplicaState.RBW, 1)
        assert not node.volumes[0].failed
        assert isinstance(await node.send(frame(0)), Vote)


@pytest.mark.parametrize("durability", Durability)
async def test_a_replica_and_its_chunk_wait_for_one_sync_and_let_nobody_in(
    tmp_path: Path, durability: Durability
) -> None:
    async with held(tmp_path) as (node, kernel):
        voting = begun(sent_whole(node, both(node, frame(0)[1], durability)))
        await turns()
        assert (voting.done(), seen(node), len(kernel.taken)) == (False, None, 1)
        assert refusal(await node.send(frame(0, chunk(0, salt=1)))) is Reason.FENCED
        promising = begun(node.next_gs(1))
        await turns()
        assert not promising.done(), "nobody else is let in"
        kernel.taken.pop()(None)
        assert isinstance(await voting, Vote)
        promised = await promising
        assert isinstance(promised, LastVote)
        assert promised.tail == (name(0),)
        assert kernel.taken == []
    async with running(tmp_path) as node:
        assert seen(node) == (ReplicaState.RBW, 1)


async def test_a_second_record_is_not_begun_beside_one_under_way(tmp_path: Path) -> None:
    """It would begin from the replica before the first, and forget the vote."""
    async with held(tmp_path) as (node, kernel):
        voting = begun(sent_whole(node, both(node, frame(0)[1])))
        creating = begun(node.create(small=True))
        await turns()
        while kernel.taken:
            kernel.taken.pop()(None)
            await turns()
        assert isinstance(await voting, Vote)
        assert isinstance(await creating, Created), "nothing was promised since (D1)"
        assert seen(node) == (ReplicaState.RBW, 1)


async def test_what_came_with_create_is_not_there_if_the_sync_fails(tmp_path: Path) -> None:
    async with held(tmp_path) as (node, kernel):
        voting = begun(sent_whole(node, both(node, frame(0)[1])))
        await turns()
        kernel.taken.pop()(OSError(errno.EIO, os.strerror(errno.EIO)))
        with pytest.raises(StorageError, match="Input/output error"):
            await voting
        assert seen(node) is None


async def test_if_only_the_chunk_finds_no_room_the_replica_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with held(tmp_path) as (node, kernel):

        def full(*_: object) -> None:
            raise NoSpaceError("no room")

        monkeypatch.setattr(node.volumes[0].store, "append", full)
        asking = begun(sent_whole(node, both(node, frame(0)[1])))
        await turns()
        assert not asking.done(), "it is told of a replica that must be durable"
        kernel.taken.pop()(None)
        answer = await asking
        assert refusal(answer) is Reason.NO_SPACE
        assert seen(node) == (ReplicaState.RBW, 0)
    async with running(tmp_path) as node:
        assert seen(node) == (ReplicaState.RBW, 0)


async def test_a_node_that_closes_waits_for_steps_that_were_begun(tmp_path: Path) -> None:
    async with held(tmp_path) as (node, kernel):
        voting = begun(sent_whole(node, both(node, frame(0)[1])))
        await turns()
        closing = asyncio.ensure_future(node.acceptor.close())
        await turns()
        assert not closing.done()
        kernel.taken.pop()(None)
        await closing
        assert isinstance(await voting, Vote)


async def test_steps_that_are_one_record_need_no_tasks(tmp_path: Path) -> None:
    async with held(tmp_path) as (node, kernel):
        blocks = [BlockId(number) for number in range(20, 30)]
        tasks = len(asyncio.all_tasks())
        making = [
            node.acceptor.begin_whole(both(node, frame(0, block=each)[1], block=each))
            for each in blocks
        ]
        kernel.taken.pop()(None)
        kernel.taken.pop()(None)
        made = [each.result() for each in making if each is not None]
        assert [each.block for each in made if isinstance(each, Vote)] == blocks
        asked = [Envelope(node.storage, finalization(1, [name(0)], block=each)) for each in blocks]
        finalizing = asyncio.ensure_future(node.acceptor.take_all(asked))
        await turns()
        assert len(asyncio.all_tasks()) == tasks + 1, "the one that waits for all"
        kernel.taken.pop()(None)
        kernel.taken.pop()(None)
        assert all(isinstance(each, Finalized) for each in await finalizing)


class FullDisk(OsDisk):
    """Has no room for anything new while it is `full`."""

    full = False

    def room(self, folder: Path) -> Room:
        return Room(1 << 30, 0) if self.full else super().room(folder)


async def test_on_a_full_disk_a_small_replica_is_finalized_and_none_is_made(tmp_path: Path) -> None:
    disk = FullDisk()
    async with running(tmp_path, disk=disk) as node:
        await node.create(FIRST, small=True)
        assert isinstance(await node.send(frame(0, block=FIRST)), Vote)
        disk.full = True
        assert isinstance(await node.finalize(1, [name(0)], block=FIRST), Finalized)
        with pytest.raises(NoSpaceError, match="has no room"):
            await node.create(small=True)
