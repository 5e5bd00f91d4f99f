"""Files that are appended to go on in their last block, through failures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from paxosblock.api.care import SET_ADMIN_STATE, AdminState, SetAdminState
from paxosblock.client.async_client import AsyncClient
from paxosblock.client.writing.block_writer import BlockWriter
from paxosblock.errors import OutcomeUnknownError
from paxosblock.protocol.types import Durability
from tests.client.shipped import ShippedCluster, shipped_cluster

OLD = b"what was there "
Served = tuple[ShippedCluster, AsyncClient]


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    """A closed file with one block, on three of four nodes."""
    async with shipped_cluster(4) as (cluster, fs):
        async with await fs.create("/log") as out:
            await out.write(OLD)
        cluster.calls.clear()
        yield cluster, fs


async def test_what_is_appended_goes_into_the_last_block(served: Served) -> None:
    cluster, fs = served
    for line in (b"one ", b"two"):
        async with await fs.append("/log") as out:
            assert (out.tell(), out.acknowledged) == (len(OLD), len(OLD)) or line == b"two"
            await out.write(line)
            receipt = await out.hflush()
            assert receipt.size == out.acknowledged == out.tell()
    assert await cluster.content("/log") == OLD + b"one two"
    assert len(await cluster.blocks("/log")) == 1
    assert (await fs.stat("/log")).size == len(OLD) + 7


async def test_nothing_is_asked_for_until_something_is_written(served: Served) -> None:
    cluster, fs = served
    async with await fs.append("/log"):
        pass
    assert "reopen_block" not in cluster.calls
    assert await cluster.content("/log") == OLD


async def test_a_block_that_is_left_alone_is_followed_by_a_new_one(served: Served) -> None:
    cluster, fs = served
    (member, *_) = await cluster.members("/log")
    leaves = SetAdminState(member.name, AdminState.DECOMMISSIONED)
    await fs._session.namenodes.call_once(SET_ADMIN_STATE, leaves)
    async with await fs.append("/log") as out:
        await out.write(b"one ")
        await out.hflush()
    assert cluster.calls.count("reopen_block") == cluster.calls.count("add_block") == 1
    assert await cluster.content("/log") == OLD + b"one "
    assert len(await cluster.blocks("/log")) == 2


async def test_a_new_block_is_asked_for_at_once_if_the_caller_wants_one(served: Served) -> None:
    cluster, fs = served
    async with await fs.append("/log", new_block=True) as out:
        await out.write(b"one ")
    assert "reopen_block" not in cluster.calls
    assert len(await cluster.blocks("/log")) == 2


async def test_when_the_answer_is_lost_the_writer_asks_again_for_the_same_block(
    served: Served,
) -> None:
    cluster, fs = served
    out = await fs.within(1.0).append("/log")
    await out.write(b"one ")
    cluster.answers_lost.add("reopen_block")
    with pytest.raises(OutcomeUnknownError):
        await out.hflush()
    cluster.answers_lost.clear()
    await out.hflush()
    await out.close()
    assert await cluster.content("/log") == OLD + b"one "
    assert "add_block" not in cluster.calls


async def test_a_call_that_is_cancelled_before_the_block_is_open_leaves_nothing_undone(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The block has a writer by then: the next call must not ask for another one."""
    cluster, fs = served
    opening = asyncio.Event()
    open_block = BlockWriter.open

    async def hangs_once(block: BlockWriter, *, small: bool = False) -> None:
        if not opening.is_set():
            opening.set()
            await asyncio.Event().wait()
        await open_block(block, small=small)

    monkeypatch.setattr(BlockWriter, "open", hangs_once)
    out = await fs.append("/log")
    await out.write(b"one ")
    flushing = asyncio.create_task(out.hflush())
    await opening.wait()
    flushing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await flushing
    receipt = await out.hflush()
    assert (receipt.size, out.acknowledged) == (len(OLD) + 4, len(OLD) + 4)
    await out.close()
    assert await cluster.content("/log") == OLD + b"one "
    assert len(await cluster.blocks("/log")) == 1


async def test_a_member_that_dies_before_it_is_reached_costs_only_that_block(
    served: Served,
) -> None:
    cluster, fs = served
    (member, *_) = await cluster.members("/log")
    cluster.answering["reopen_block"] = member.kill
    async with await fs.append("/log") as out:
        await out.write(b"one ")
        receipt = await out.hflush()
        assert receipt.size == out.acknowledged == len(OLD) + 4
    assert await cluster.content("/log") == OLD + b"one "
    assert len(await cluster.blocks("/log")) == 2


async def test_a_sync_counts_what_was_finalized_before_as_on_disk(served: Served) -> None:
    cluster, fs = served
    async with await fs.append("/log") as out:
        await out.write(b"one ")
        receipt = await out.hsync()
        assert receipt.durability is Durability.DISK
        assert receipt.chunk == 1
        (view,) = await cluster.blocks("/log")
        assert receipt.generation == view.record.writer_generation > 0
