"""The replicas whose files a DataNode lends to clients on its machine, and those it does not."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from paxosblock.api.datanode import BorrowReplica, LentReplica, NotLent
from paxosblock.datanode.lender import Lender
from paxosblock.net.lending import LendingDoor, take
from paxosblock.net.wire import HEADER_BYTES
from paxosblock.protocol.chunk_log import ChunkLog
from paxosblock.protocol.messages import Delete
from paxosblock.protocol.read import Version
from paxosblock.protocol.types import NO_GENERATION, BlockId, Generation, Reason
from tests.datanode.node import BLOCK, Node, frame, name, refusal, running

FINAL = Version(Generation(0), Generation(1), 3)
LATER = Version(Generation(9), Generation(9), 3)
NAMES = [name(index) for index in range(3)]
RECORDS = b"".join(frame(index)[1] for index in range(3))


@contextmanager
def lending(node: Node) -> Iterator[Lender]:
    """Yield one with an open door."""
    lender, door = Lender(node.acceptor), LendingDoor.open()
    lender.door = door
    try:
        yield lender
    finally:
        door.close()


def request(node: Node, version: Version = FINAL) -> BorrowReplica:
    """Ask for the replica at the first volume."""
    return BorrowReplica(BLOCK, node.storage, version)


async def lent(lender: Lender, node: Node, version: Version = FINAL) -> tuple[int, ChunkLog]:
    """Return the descriptor of the file, and the names."""
    answer = await lender.lend(request(node, version))
    assert isinstance(answer, LentReplica), answer
    return await asyncio.to_thread(take, answer.offer), ChunkLog.from_bytes(answer.names)


async def finalized(node: Node) -> None:
    """A block of three chunks of 100 bytes, finalized under generation 1."""
    await node.create()
    await node.write(3)
    await node.finalize(1, NAMES)


async def test_a_finalized_replica_is_lent_with_the_names_of_its_version(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        with lending(node) as lender:
            await finalized(node)
            file, log = await lent(lender, node)
            assert list(log) == NAMES
            assert os.pread(file, 1000, 0) == RECORDS
            os.close(file)


async def test_what_is_being_written_small_of_another_version_or_gone_is_not_lent(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as node:
        with lending(node) as lender:
            assert refusal(await lender.lend(request(node))) is Reason.NO_REPLICA
            await node.create()
            await node.write(3)
            written = Version(Generation(0), NO_GENERATION, 3)
            assert await lender.lend(request(node, written)) == NotLent()
            await node.finalize(1, NAMES)
            for other in (
                replace(FINAL, length=2),
                replace(FINAL, epoch=Generation(9), finalized_generation=Generation(9)),
            ):
                assert refusal(await lender.lend(request(node, other))) is Reason.STALE
            small = BlockId(8)
            await node.create(small, small=True)
            sent = node.send(frame(0, block=small))
            await sent
            await node.finalize(1, [name(0)], block=small)
            one = BorrowReplica(small, node.storage, replace(FINAL, length=1))
            assert await lender.lend(one) == NotLent()  # its file has bytes of other blocks, too
            lender.door = None
            assert await lender.lend(request(node)) == NotLent(never=True)


async def test_a_file_that_was_lent_keeps_its_chunks_or_shows_that_it_lost_them(
    tmp_path: Path,
) -> None:
    """This happens beside an open descriptor, as FORMAT.md 9 says."""
    async with running(tmp_path) as node:
        with lending(node) as lender:
            await finalized(node)
            file, _ = await lent(lender, node)
            # An append: further records behind those of the version.
            await node.next_gs(2)
            await node.reopen(2, NAMES, finalized=1)
            await node.write(1, start=3, generation=2)
            assert os.pread(file, len(RECORDS), 0) == RECORDS
            # A cut of it: the file is shorter, and nothing else was changed.
            await node.finalize(3, NAMES[:2], epoch=2)
            assert os.pread(file, 1000, 0) == RECORDS[: 2 * (HEADER_BYTES + 100)]
            # Deleted: its bytes are there until their turn comes, or it has none.
            await node.ask(Delete(BLOCK, Generation(3)))
            assert os.pread(file, HEADER_BYTES + 100, 0) in (frame(0)[1], b"")
            os.close(file)
