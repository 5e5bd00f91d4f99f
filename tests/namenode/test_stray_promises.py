"""Promises to generations that no NameNode allocated: a block is recovered in spite of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from itertools import product

import pytest

from paxosblock.api.lease_call import RECOVER_LEASE, RecoverLease
from paxosblock.api.namenode import BlockView
from paxosblock.config import NameNodeConfig
from paxosblock.protocol.messages import LastVote, Nack, NextGS
from paxosblock.protocol.types import (
    FIRST_GENERATION,
    LEAP_MAX,
    Durability,
    Generation,
    Reason,
)
from tests.namenode.cluster import CHUNK_BYTES
from tests.namenode.scene import Scene, new_scene


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = await new_scene(config=NameNodeConfig(recovery_timeout_s=20.0))
    yield scene
    await scene.close()


async def written(scene: Scene) -> BlockView:
    view = await scene.add_block(await scene.create("/f"))
    scene.write(view, 3, 3, 3)
    return view


def stray(scene: Scene, view: BlockView, member: int, generation: int) -> LastVote | Nack:
    """A stranger asks a member for a promise."""
    record = view.record
    asked = NextGS(
        record.block, Generation(generation), FIRST_GENERATION, record.window, Durability.DISK
    )
    answer = scene.acceptor(record.members[member]).answer(asked)
    assert isinstance(answer, LastVote | Nack)
    return answer


def raise_promises(scene: Scene, view: BlockView, steps: Sequence[int]) -> None:
    """A stranger raises the promises of the members by so many steps, as far as each takes it."""
    for member, count in enumerate(steps):
        for step in range(1, count + 1):
            assert isinstance(stray(scene, view, member, step * LEAP_MAX), LastVote)


async def ends(scene: Scene) -> None:
    found = await scene.service.call(RECOVER_LEASE, RecoverLease("/f"))
    assert (found.stuck, found.status.open, found.status.size) == ((), False, 3 * CHUNK_BYTES)


async def test_a_promise_far_above_is_refused_and_the_block_is_recovered(scene: Scene) -> None:
    view = await written(scene)
    for member in range(3):
        refused = stray(scene, view, member, 2**63 - 1)
        assert isinstance(refused, Nack)
        assert (refused.reason, refused.max_generation) == (Reason.FENCED, 0)
    await ends(scene)


@pytest.mark.parametrize("steps", [*product((0, 1, 3), repeat=3)], ids=str)
async def test_a_block_is_recovered_whichever_promises_a_stranger_raised(
    steps: tuple[int, ...],
) -> None:
    scene = await new_scene(config=NameNodeConfig(recovery_timeout_s=20.0))
    view = await written(scene)
    raise_promises(scene, view, steps)
    await ends(scene)
    record = (await scene.node.catalog.get_block(view.record.block)).record
    await scene.node.replicas.wait_complete(record, 3)
    assert record.generation <= (max(steps) + 1) * LEAP_MAX, "as far as was needed"
    await scene.close()


async def test_a_member_that_was_away_meanwhile_is_brought_to_what_was_decided(
    scene: Scene,
) -> None:
    view = await written(scene)
    away = view.record.members[2]
    scene.acceptor(away).alive = False
    raise_promises(scene, view, (3, 2, 0))
    await ends(scene)
    scene.acceptor(away).alive = True
    await scene.register(away)
    record = (await scene.node.catalog.get_block(view.record.block)).record
    await scene.node.replicas.wait_complete(record, 3)
    assert len(scene.node.replicas.holders(record)) == 3


async def test_members_that_come_back_far_behind_are_brought_near() -> None:
    """One alone made the record's generation rise, and no quorum without the others."""
    scene = await new_scene(config=NameNodeConfig(recovery_timeout_s=1.0))
    view = await written(scene)
    away = view.record.members[1:]
    for storage in away:
        scene.acceptor(storage).alive = False
    raise_promises(scene, view, (3, 0, 0))
    found = await scene.service.call(RECOVER_LEASE, RecoverLease("/f"))
    assert found.stuck
    record = (await scene.node.catalog.get_block(view.record.block)).record
    assert record.generation > 2 * LEAP_MAX
    for storage in away:
        scene.acceptor(storage).alive = True
    await ends(scene)
    await scene.close()
