"""Replicas whose bytes are damaged: members get a copy, leftovers go, whatever message was lost."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from paxosblock.api.namenode import DELETE, DeletePath
from paxosblock.protocol.finalize import finalize_message
from paxosblock.protocol.messages import Delete, Finalized
from paxosblock.protocol.types import ReplicaState
from tests.namenode.scene import Scene, new_scene
from tests.namenode.test_reducer import block_of_three, reduced, replica_at, with_copies
from tests.waiting import wait_until_async


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    found = await new_scene("s1", "s2", "s3", "s4")
    yield found
    await found.close()


async def test_the_dead_replica_of_a_member_is_replaced_and_many_reports_are_one_alarm(
    scene: Scene,
) -> None:
    record = await block_of_three(scene)
    holder = record.members[0]
    scene.acceptor(holder).dead.add(record.block)
    scene.acceptor(holder).peers = {}
    await scene.report(holder)
    await scene.report(holder)
    assert scene.node.alarms.counts["damaged"] == 1
    assert scene.node.replicas.damaged(record) == {holder}
    scene.acceptor(holder).peers = dict(scene.network.reach)
    await wait_until_async(lambda: not scene.acceptor(holder).dead)
    await wait_until_async(lambda: not scene.node.replicas.damaged(record))


async def test_the_dead_replica_of_a_deleted_block_goes_though_its_delete_was_lost(
    scene: Scene,
) -> None:
    record = await block_of_three(scene)
    holder = record.members[0]
    scene.acceptor(holder).dead.add(record.block)
    scene.network.hung.add(holder)
    await scene.service.call(DELETE, DeletePath("/f"))
    others = record.members[1:]
    await wait_until_async(lambda: not any(replica_at(scene, each, record) for each in others))
    scene.network.hung.clear()
    assert replica_at(scene, holder, record) is not None
    await scene.report(holder)
    await wait_until_async(lambda: replica_at(scene, holder, record) is None)


async def test_the_dead_replica_of_who_left_goes_when_it_is_reported(scene: Scene) -> None:
    record = await with_copies(scene, await block_of_three(scene))
    scene.network.hung.update(scene.network.reach)
    left, gone = await reduced(scene, record)
    for node in scene.network.reach:
        scene.node.finalizer.dismiss(record.block, node, record.finalized_generation, live=False)
    scene.network.hung.clear()
    scene.network.asked.clear()
    scene.acceptor(gone).dead.add(record.block)
    await scene.report(gone)
    await wait_until_async(lambda: replica_at(scene, gone, record) is None)
    sent = [each for at, each in scene.network.asked if at == gone and isinstance(each, Delete)]
    assert sent[-1] == Delete(record.block, record.finalized_generation)
    assert left.finalized_generation > record.finalized_generation


async def test_a_copy_that_died_before_it_became_a_member_is_made_anew(scene: Scene) -> None:
    """A Delete of the current version might come when it is one (D7)."""
    record = await block_of_three(scene)
    (spare,) = set(scene.network.reach) - set(record.members)
    answer = scene.acceptor(spare).answer(finalize_message(record, record.members))
    assert isinstance(answer, Finalized)
    scene.acceptor(spare).dead.add(record.block)
    await scene.report(spare)
    await wait_until_async(lambda: not scene.acceptor(spare).dead)
    replica = replica_at(scene, spare, record)
    assert replica is not None
    assert replica.registers.state is ReplicaState.FINALIZED


async def test_who_does_not_lead_deletes_nothing(scene: Scene) -> None:
    record = await block_of_three(scene)
    holder = record.members[0]
    scene.acceptor(holder).dead.add(record.block)
    scene.node.reports._judges = lambda: False
    scene.network.asked.clear()
    await scene.report(holder)
    assert holder not in scene.node.replicas.holders(record)
    assert scene.network.asked == []
