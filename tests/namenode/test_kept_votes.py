"""The votes that a decision came from are there after a restart, at another NameNode, for days."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from paxosblock.api.namenode import SEAL_BLOCK, BlockRequest, FinalizeBlock
from paxosblock.api.status import EXPLAIN, VoteLine
from paxosblock.config import NameNodeConfig
from paxosblock.errors import NotReadyError
from paxosblock.namenode.blocks.history import NO_ANSWER, History
from paxosblock.namenode.catalog import kept_votes, keys
from paxosblock.namenode.catalog.changes import Changes
from paxosblock.namenode.catalog.draft import Draft, in_one
from paxosblock.namenode.catalog.kept_votes import NO_QUORUM, OPENED
from paxosblock.protocol.finalize import BlockRecord
from paxosblock.protocol.types import BlockId, Generation, StorageId
from tests.namenode.cluster import CHUNK_BYTES
from tests.namenode.memory_store import MemoryStore
from tests.namenode.scene import ANN, Scene, new_scene
from tests.waiting import wait_until_async

BLOCK = BlockId(7)
IMPATIENT = NameNodeConfig(recovery_timeout_s=0.3)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = await new_scene(store=MemoryStore())
    yield scene
    await scene.close()


async def sealed(scene: Scene) -> BlockRecord:
    view = await scene.add_block(await scene.create("/f"))
    scene.write(view, 3, 2, 2)
    return (await scene.service.call(SEAL_BLOCK, BlockRequest(view.record.block, ANN))).record


async def explained(scene: Scene, block: BlockId) -> tuple[VoteLine, ...]:
    return (await scene.service.call(EXPLAIN, BlockRequest(block))).history


def decided(generation: int, event: str, time_ms: int = 1) -> kept_votes.Grounds:
    vote = VoteLine(time_ms, Generation(generation), "last vote", StorageId("s1"), "length 3")
    return vote, VoteLine(time_ms, Generation(generation), event, StorageId(""), "length 3")


async def keep(scene: Scene, block: BlockId, grounds: kept_votes.Grounds) -> None:
    """One decision about a block."""

    def decide(draft: Draft) -> None:
        draft.put(keys.block(block), b"decided")
        kept_votes.keep(draft, block, grounds)

    await Changes(scene.store).make(in_one(decide))


async def test_another_namenode_tells_the_votes_of_a_recovery(scene: Scene) -> None:
    block = (await sealed(scene)).block
    told = await explained(scene, block)
    other = await new_scene(store=scene.store)
    try:
        assert not other.node.history.of(block)
        found = await explained(other, block)
    finally:
        await other.close()
    events = [line.event for line in found]
    assert (events[0], events[-1]) == ("recovery starts", "recovered")
    assert events.count("last vote") >= 2
    assert events.count("recovery vote") >= 2
    assert found == told[: len(found)]
    assert len(set(told)) == len(told)  # the one that led tells no line twice


async def test_another_namenode_tells_why_a_recovery_is_not_ended() -> None:
    """Two of three members are away: nothing is decided, and what was heard is there all the same,
    of the last try of many."""
    scene = await new_scene(store=MemoryStore(), config=IMPATIENT)
    view = await scene.add_block(await scene.create("/f"))
    scene.write(view, 3, 2, 2)
    block = view.record.block
    for storage in view.record.members[:2]:
        scene.network.reach[storage].alive = False
    catalog, tries = scene.node.catalog, 2
    for _ in range(tries):
        with pytest.raises(NotReadyError):
            await scene.service.call(SEAL_BLOCK, BlockRequest(block, ANN))
    await wait_until_async(
        lambda: [line.event for line in scene.node.history.of(block)].count(NO_QUORUM) >= tries
    )
    assert catalog.applied.count(keys.KEPT_VOTES[0]) == 1
    await scene.close()
    other = await new_scene(store=scene.store)
    try:
        found = await explained(other, block)
    finally:
        await other.close()
    events = [line.event for line in found]
    assert (events[0], events[1], events[-1]) == (NO_QUORUM, "recovery starts", NO_QUORUM)
    assert found[0].detail.endswith("before the next line")
    silent = [line.storage for line in found if line.event == NO_ANSWER]
    assert sorted(silent) == sorted(view.record.members[:2])  # asked again and again, told once
    assert "last vote" in events


async def test_a_block_that_its_writer_ends_keeps_none(scene: Scene) -> None:
    view = await scene.add_block(await scene.create("/f"))
    scene.write(view, 2, 2, 2)
    record = view.record
    end = FinalizeBlock(record.block, ANN, record.generation, 2, 2 * CHUNK_BYTES)
    await scene.node.catalog.finalize_by_writer(end)
    assert not scene.node.catalog.applied.count(keys.KEPT_VOTES[0])


def test_a_decision_has_the_steps_since_the_one_before() -> None:
    history = History(lambda: 5)
    history.add(BLOCK, Generation(1), "last vote", StorageId("s1"))
    first = history.grounds(BLOCK, Generation(2), "recovered", "length 3")
    history.decided(BLOCK, first)
    history.add(BLOCK, Generation(2), "finalized", StorageId("s1"))
    history.add(BLOCK, Generation(3), "last vote", StorageId("s1"))
    assert [line.event for line in first] == ["last vote", "recovered"]
    second = history.grounds(BLOCK, Generation(4), "recovered", "length 3")
    assert [line.event for line in second] == ["finalized", "last vote", "recovered"]
    opened = history.grounds(BLOCK, Generation(3), OPENED, "for ann")
    assert [line.event for line in opened] == ["last vote", OPENED]


async def test_a_block_keeps_its_last_decisions_and_counts_times_that_it_was_opened(
    scene: Scene,
) -> None:
    catalog = scene.node.catalog
    for number in range(12):
        await keep(scene, BLOCK, decided(number, "recovered", number))
    lines = kept_votes.of_block(catalog.applied, BLOCK)
    assert [line.generation for line in lines[::2]] == list(range(4, 12))
    for number in range(12, 15):
        await keep(scene, BLOCK, decided(number, OPENED, number))
    lines = kept_votes.of_block(catalog.applied, BLOCK)
    assert [line.generation for line in lines] == [
        *(number for number in range(5, 12) for _ in range(2)),
        12,
        14,
        14,
    ]
    assert (lines[-3].event, lines[-3].detail) == (OPENED, "2 times before the next line")


async def test_old_votes_go_and_the_oldest_of_too_many(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = scene.node.catalog
    now_ms = catalog.now_ms()
    for number in range(1, 7):
        at_ms = now_ms - 1_000_000 if number == 6 else now_ms - 1000 + number
        await keep(scene, BlockId(number), decided(1, "recovered", at_ms))
    await catalog.forget_votes(100.0, if_too_many=True)
    assert catalog.applied.count(keys.KEPT_VOTES[0]) == 6
    await catalog.forget_votes(100.0)
    assert not kept_votes.of_block(catalog.applied, BlockId(6))
    monkeypatch.setattr(kept_votes, "OF_ALL", 2)
    await catalog.forget_votes(100.0, if_too_many=True)
    left = [key for key, _ in catalog.applied.scan(*keys.KEPT_VOTES)]
    assert left == [keys.kept_votes(BlockId(each), Generation(1)) for each in (4, 5)]
