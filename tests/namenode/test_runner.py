"""One runner for every kind of recovery: REBUILD and APPEND against real acceptors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from paxosblock.namenode.blocks.runner import Attempt
from paxosblock.protocol import finalize, recovery
from paxosblock.protocol.finalize import BlockRecord
from paxosblock.protocol.messages import RecoveryWrite
from paxosblock.protocol.recovery import Phase, Proposer
from paxosblock.protocol.types import FIRST_GENERATION, StorageId
from tests.namenode.cluster import Acceptor
from tests.namenode.scene import ANN, Scene, finalize_request, new_scene
from tests.waiting import wait_until_async

SPARE = StorageId("s4")
PATIENCE_S = 30.0


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    made = await new_scene("s1", "s2", "s3")
    made.network.reach[SPARE] = Acceptor(SPARE, peers=made.network.reach)
    yield made
    await made.close()


async def written(scene: Scene, *counts: int) -> BlockRecord:
    """The record of an open block of which the members have voted for so many chunks."""
    view = await scene.add_block(await scene.create("/f"))
    scene.write(view, *counts)
    return view.record


def rebuilding(record: BlockRecord, *targets: StorageId) -> Proposer:
    """K3 and P1; the record itself stays in the test's hand."""
    allocated = finalize.allocate_rebuild(record, ANN, FIRST_GENERATION)
    assert isinstance(allocated, BlockRecord)
    return recovery.rebuild(allocated, targets)


async def run(scene: Scene, proposer: Proposer) -> tuple[Attempt, Proposer]:
    attempt = scene.node.runner.attempt(proposer)
    deadline_s = asyncio.get_running_loop().time() + PATIENCE_S
    async with asyncio.timeout(PATIENCE_S / 2):
        return attempt, await attempt.run(deadline_s)


async def test_a_rebuild_is_decided_by_the_votes_of_all_its_targets(scene: Scene) -> None:
    record = await written(scene, 3, 2, 2)
    *kept, lost = record.members
    scene.network.reach[lost].alive = False
    attempt, proposer = await run(scene, rebuilding(record, *kept, SPARE))
    assert (proposer.phase, set(proposer.votes)) == (Phase.DECIDED, {*kept, SPARE})
    assert proposer.choice is not None
    assert scene.acceptor(SPARE).replicas[record.block].length == proposer.choice.length
    assert not attempt.refused


@pytest.mark.parametrize("how", ["silent", "lacks chunks"])
async def test_a_target_that_fails_ends_a_rebuild_at_once_and_is_named(
    scene: Scene, how: str
) -> None:
    record = await written(scene, 2, 2, 2)
    if how == "silent":
        scene.network.reach[SPARE].alive = False
    else:
        scene.network.reach[SPARE].peers = {}
    attempt, proposer = await run(scene, rebuilding(record, *record.members, SPARE))
    assert proposer.phase is Phase.WRITING
    assert attempt.refused == {SPARE}


async def test_an_append_asks_for_no_promises_and_takes_all_targets(scene: Scene) -> None:
    view = await scene.add_block(await scene.create("/f"))
    scene.write(view, 2, 2, 2)
    entry = await scene.node.finalizer.finalize_by_writer(
        finalize_request(await scene.node.catalog.get_block(view.record.block), 2)
    )
    allocated = finalize.allocate_append(entry.record)
    assert isinstance(allocated, BlockRecord)
    scene.network.asked.clear()
    _, proposer = await run(scene, recovery.append(allocated, allocated.members))
    assert (proposer.phase, proposer.votes_needed) == (Phase.DECIDED, 3)
    asked = [q for _, q in scene.network.asked if getattr(q, "generation", 0)]
    assert {type(question) for question in asked} == {RecoveryWrite}


async def test_a_target_that_is_silent_does_not_end_a_seal(scene: Scene) -> None:
    record = await written(scene, 2, 2, 2)
    for storage in record.members[1:]:
        scene.network.reach[storage].alive = False
    allocated = finalize.allocate_seal(record)
    assert isinstance(allocated, BlockRecord)
    running = asyncio.create_task(run(scene, recovery.seal(allocated)))
    await wait_until_async(lambda: len(scene.network.asked) > len(record.members))
    for storage in record.members[1:]:
        scene.network.reach[storage].alive = True
    attempt, proposer = await running
    assert (proposer.phase, attempt.refused) == (Phase.DECIDED, set())
