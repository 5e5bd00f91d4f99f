"""Protocol messages that come in one call: each is answered as if it came alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from paxosblock.api.datanode import Control, Envelope, NoAnswer, StorageAddress
from paxosblock.datanode import acceptor as module
from paxosblock.datanode.store.disk_format import FetchedChunks
from paxosblock.datanode.volumes.volume import Volume
from paxosblock.errors import OutcomeUnknownError, StorageError
from paxosblock.net.wire import decode_error
from paxosblock.protocol.messages import Create, Created, Finalize, Finalized, RecoveryWrite, Vote
from paxosblock.protocol.types import BlockId, Durability, Generation, Reason
from tests.datanode.node import (
    BLOCK,
    WINDOW,
    Holder,
    Node,
    chunk,
    finalization,
    frame,
    name,
    refusal,
    running,
)

OTHER, THIRD = BlockId(8), BlockId(9)


def all_to(node: Node, *requests: Control) -> list[Envelope]:
    return [Envelope(node.storage, each) for each in requests]


async def with_a_chunk(node: Node, *blocks: BlockId) -> None:
    for block in blocks:
        assert isinstance(await node.create(block, small=True), Created)
        assert isinstance(await node.send(frame(0, block=block)), Vote)


def finalize(block: BlockId = BLOCK, generation: int = 1) -> Finalize:
    return finalization(generation, [name(0)], block=block)


def finalized(node: Node, block: BlockId = BLOCK) -> Finalized:
    return Finalized(block, Generation(1), node.storage, 1)


async def test_each_has_its_own_answer_in_order_and_they_share_syncs(tmp_path: Path) -> None:
    async with running(tmp_path) as node:
        more = [BlockId(number) for number in range(20, 30)]
        await with_a_chunk(node, BLOCK, OTHER, THIRD, *more)
        await node.next_gs(5, block=OTHER)
        syncs = node.volumes[0].commit.sync_count
        asked = all_to(node, finalize(), finalize(OTHER), finalize(THIRD), finalize(BlockId(10)))
        asked += all_to(node, *map(finalize, more))
        one, other, third, unknown, *rest = await node.acceptor.take_all(asked)
        assert (one, third) == (
            finalized(node),
            finalized(node, THIRD),
        )
        assert refusal(other) is Reason.STALE
        assert refusal(unknown) is Reason.NO_REPLICA
        assert rest == [finalized(node, block) for block in more]
        assert node.volumes[0].commit.sync_count <= syncs + 2, (
            "that of the first, and of all others"
        )
    async with running(tmp_path) as node:
        assert await node.acceptor.take_all(all_to(node, finalize(), finalize(THIRD))) == (
            one,
            third,
        )


async def test_a_volume_that_failed_fails_its_own_only(tmp_path: Path) -> None:
    async with running(tmp_path / "a", tmp_path / "b") as node:
        failed = node.volumes[1]
        await with_a_chunk(node, BLOCK)
        failed.fail(StorageError("gone"))
        other = Envelope(failed.storage, finalize(OTHER))
        answers = await node.acceptor.take_all([other, *all_to(node, finalize())])
        assert isinstance(answers[0], NoAnswer)
        error = decode_error(answers[0].error)
        assert isinstance(error, StorageError)
        assert failed.storage in str(error)
        assert isinstance(answers[1], Finalized)


class SlowHolder(Holder):
    """Sends nothing before it may."""

    def __init__(self, payloads: Sequence[bytes]) -> None:
        super().__init__(payloads)
        self.asked, self.may = asyncio.Event(), asyncio.Event()

    async def fetch(
        self,
        volume: Volume,
        request: RecoveryWrite | Finalize,
        chunks: range,
        peers: tuple[StorageAddress, ...],
    ) -> FetchedChunks:
        self.asked.set()
        await self.may.wait()
        return await super().fetch(volume, request, chunks, peers)


async def test_one_that_waits_for_chunks_holds_up_no_other_and_goes_on(tmp_path: Path) -> None:
    holder = SlowHolder([chunk(0)])
    async with running(tmp_path, holder=holder) as node:
        await with_a_chunk(node, BLOCK)
        await node.create(OTHER, small=True)
        asked = all_to(node, finalize(OTHER), finalize())
        assert await node.acceptor.take_all(asked) == (
            NoAnswer(),
            finalized(node),
        )
        assert holder.asked.is_set()
        alone = asyncio.ensure_future(node.ask(finalize(OTHER)))
        holder.may.set()
        assert isinstance(await alone, Finalized)


async def test_a_fault_of_ours_in_one_is_told_as_an_unknown_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path) as node:
        await with_a_chunk(node, BLOCK)
        create = Create(OTHER, WINDOW, Durability.DISK)
        begun = module.Acceptor.take

        async def take(acceptor: module.Acceptor, envelope: Envelope) -> object:
            if envelope.message is create:
                raise ZeroDivisionError
            return await begun(acceptor, envelope)

        monkeypatch.setattr(module.Acceptor, "take", take)
        answers = await node.acceptor.take_all(all_to(node, create, finalize()))
        assert isinstance(answers[0], NoAnswer)
        assert isinstance(decode_error(answers[0].error), OutcomeUnknownError)
        assert isinstance(answers[1], Finalized)
