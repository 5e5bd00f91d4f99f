"""*Append/Hflush/Read Design*, 6.5: the six cases of two replicas that must agree on a length.

A third member is dead, so these two are the quorum. Where HDFS takes the shorter of two logs, the
longer one wins here: a chunk that one of them holds may have been returned by a quorum read.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from paxosblock.api.namenode import TAKE_OVER, BlockView, TakeOver
from paxosblock.config import NameNodeConfig
from paxosblock.errors import NotReadyError
from paxosblock.namenode.catalog.records import BlockEntry
from paxosblock.protocol.replica_state import HdfsReplicaState, hdfs_state
from paxosblock.protocol.types import Durability
from tests.namenode.cluster import forget_votes
from tests.namenode.scene import Scene, finalize_request, new_scene
from tests.waiting import wait_until_async

FINALIZED, RBW, RWR = HdfsReplicaState.FINALIZED, HdfsReplicaState.RBW, HdfsReplicaState.RWR
CONFIG = NameNodeConfig(recovery_timeout_s=1.0)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = await new_scene(config=CONFIG)
    yield scene
    await scene.close()


async def written(scene: Scene, one: int, other: int) -> BlockView:
    """An open block: two members that live hold so many chunks, and a dead one at most two."""
    view = await scene.add_block(await scene.create("/f"))
    scene.write(view, one, other, min(one, other, 2))
    scene.network.reach[view.record.members[2]].alive = False
    return view


async def ended_by_writer(scene: Scene, view: BlockView, length: int) -> None:
    await scene.node.finalizer.finalize_by_writer(finalize_request(BlockEntry(view.record), length))


def states(scene: Scene, view: BlockView) -> tuple[HdfsReplicaState, ...]:
    """Return what HDFS calls the replicas of the two that live."""
    block = view.record.block
    return tuple(
        hdfs_state(scene.network.reach[member].replicas[block])
        for member in view.record.members[:2]
    )


def lengths(scene: Scene, view: BlockView) -> tuple[int, ...]:
    block = view.record.block
    return tuple(
        scene.network.reach[member].replicas[block].length for member in view.record.members[:2]
    )


async def finalized_with(scene: Scene, view: BlockView, length: int) -> None:
    await wait_until_async(lambda: states(scene, view) == (FINALIZED, FINALIZED))
    assert lengths(scene, view) == (length, length)


async def test_case_1_finalized_and_finalized_are_equal_and_nothing_is_recovered(
    scene: Scene,
) -> None:
    view = await written(scene, 2, 2)
    await ended_by_writer(scene, view, 2)
    await finalized_with(scene, view, 2)
    decided = await scene.node.catalog.get_block(view.record.block)
    assert await scene.node.recoverer.finalize(view.record.block) == decided


async def test_case_1_finalized_and_finalized_that_differ_are_an_alarm(scene: Scene) -> None:
    view = await written(scene, 2, 2)
    await ended_by_writer(scene, view, 2)
    await finalized_with(scene, view, 2)
    acceptor = scene.network.reach[view.record.members[0]]
    held = acceptor.replicas[view.record.block]
    acceptor.replicas[view.record.block] = replace(
        held.having(base_length=1, finalized_length=1), log=held.log.truncate(1)
    )
    await scene.report(acceptor.storage)
    assert scene.node.alarms.counts["I7"] == 1


async def test_case_2_finalized_and_rbw_are_what_was_decided_however_long_the_rbw_one_is(
    scene: Scene,
) -> None:
    """The length is in the catalog before a member is told, so no recovery has to guess it."""
    view = await written(scene, 2, 2)
    late = scene.network.reach[view.record.members[1]]
    late.alive = False
    await ended_by_writer(scene, view, 2)
    late.alive = True
    late.write(view.record.block, 3)  # a chunk that was never acknowledged
    assert states(scene, view)[1] is RBW
    await scene.register(late.storage)
    await finalized_with(scene, view, 2)


async def test_case_3_finalized_and_rwr_mends_the_rwr_one_instead_of_leaving_it_out(
    scene: Scene,
) -> None:
    view = await written(scene, 2, 1)
    late = scene.network.reach[view.record.members[1]]
    late.alive = False
    await ended_by_writer(scene, view, 2)
    late.crash()
    assert states(scene, view)[1] is RWR
    await scene.register(late.storage)
    await finalized_with(scene, view, 2)


@pytest.mark.parametrize(("one", "other"), [(3, 2), (2, 3)])
async def test_case_4_rbw_and_rbw_agree_on_the_longer_one(
    scene: Scene, one: int, other: int
) -> None:
    view = await written(scene, one, other)
    assert states(scene, view) == (RBW, RBW)
    await scene.node.recoverer.finalize(view.record.block)
    await finalized_with(scene, view, 3)


@pytest.mark.parametrize(("one", "other"), [(3, 2), (2, 3)])
async def test_case_5_rbw_and_rwr_count_the_rwr_one_too(scene: Scene, one: int, other: int) -> None:
    """HDFS leaves the restarted one out; what only it holds may have been read."""
    view = await written(scene, one, other)
    scene.network.reach[view.record.members[1]].crash()
    assert states(scene, view) == (RBW, RWR)
    await scene.node.recoverer.finalize(view.record.block)
    await finalized_with(scene, view, 3)


async def test_case_6_rwr_and_rwr_keep_all_that_was_on_disk(scene: Scene) -> None:
    view = await written(scene, 3, 2)
    for member in view.record.members[:2]:
        scene.network.reach[member].crash(same_boot=False)
    assert states(scene, view) == (RWR, RWR)
    await scene.node.recoverer.finalize(view.record.block)
    await finalized_with(scene, view, 3)


async def test_case_6_rwr_and_rwr_that_may_have_lost_votes_wait_for_the_third(
    scene: Scene,
) -> None:
    """HDFS takes the shorter one and promises nothing; here nothing acknowledged is given up."""
    view = await written(scene, 2, 2)
    for member in view.record.members[:2]:
        acceptor = scene.network.reach[member]
        held = acceptor.replicas[view.record.block].having(durability=Durability.MEMORY)
        acceptor.replicas[view.record.block] = forget_votes(held, 1)
        acceptor.crash(same_boot=False)
    assert states(scene, view) == (RWR, RWR)
    with pytest.raises(NotReadyError, match="all of them weak"):
        await scene.node.recoverer.finalize(view.record.block)
    await scene.register(view.record.members[2])
    await scene.node.recoverer.finalize(view.record.block)
    await finalized_with(scene, view, 2)


async def test_replicas_without_a_byte_agree_on_none(scene: Scene) -> None:
    """HDFS removes the block. Here it stays, so that the writer that was fenced finds it ended."""
    view = await written(scene, 0, 0)
    closed = await scene.service.call(TAKE_OVER, TakeOver("/f"))
    assert (closed.open, closed.size) == (False, 0)
    await finalized_with(scene, view, 0)


async def test_the_latest_recovery_preempts_those_before(scene: Scene) -> None:
    view = await written(scene, 2, 2)
    block = view.record.block
    earlier = await scene.node.catalog.allocate_seal(block)
    assert isinstance(earlier, BlockEntry)
    later = await scene.node.recoverer.finalize(block)
    assert later.record.finalized_generation > earlier.record.generation + 1
