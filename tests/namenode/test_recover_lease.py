"""Ending a file whose members cannot do it alone: who answered what, and what a force does."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from paxosblock.api.lease_call import (
    RECOVER_LEASE,
    GiveUp,
    MemberAnswer,
    RecoverLease,
    StuckBlock,
)
from paxosblock.api.namenode import (
    CLOSE_FILE,
    FINALIZE_BLOCK,
    MKDIRS,
    BlockView,
    CloseFile,
    FinalizeBlock,
    MakeDirectories,
)
from paxosblock.config import NameNodeConfig
from paxosblock.errors import (
    FencedError,
    InvalidRequestError,
    IsDirectoryError,
    NotFoundError,
)
from paxosblock.protocol.types import FIRST_GENERATION, BlockId, StorageId
from tests.namenode.cluster import CHUNK_BYTES
from tests.namenode.scene import ANN, MEMBERS, Scene, new_scene

BLOCK_SIZE = 1 << 20


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = await new_scene(config=NameNodeConfig(recovery_timeout_s=1.0))
    yield scene
    await scene.close()


async def written(scene: Scene, *counts: int) -> BlockView:
    view = await scene.add_block(await scene.create("/f"))
    scene.write(view, *counts)
    return view


def cut_power(scene: Scene, block: BlockId, storage: str, left: int) -> None:
    """The machine forgets what was in its memory, and `left` chunks were not."""
    acceptor = scene.acceptor(storage)
    replica = acceptor.replicas[block]
    acceptor.replicas[block] = replace(
        replica.having(weak=True), log=replica.log.truncate(left), restarted=True
    )


async def stuck(scene: Scene) -> StuckBlock:
    found = await scene.service.call(RECOVER_LEASE, RecoverLease("/f"))
    assert found.status.open
    assert f"block {found.stuck[0].block}: not recovered in 1 s" in found.reason
    (block,) = found.stuck
    return block


async def test_who_answered_what_is_told_where_only_weak_members_are_left(scene: Scene) -> None:
    view = await written(scene, 3, 3, 3)
    first, second, third = view.record.members
    cut_power(scene, view.record.block, first, 1)
    cut_power(scene, view.record.block, second, 2)
    scene.acceptor(third).alive = False
    block = await stuck(scene)
    answers = {each.member.storage: (each.answer, each.length) for each in block.members}
    assert answers == {
        first: (MemberAnswer.WEAK, 1),
        second: (MemberAnswer.WEAK, 2),
        third: (MemberAnswer.UNREACHABLE, 0),
    }
    assert (block.needed, block.silent) == (2, (third,))
    assert (block.length, block.size_bytes) == (2, 2 * CHUNK_BYTES)
    assert block.at_risk_bytes == BLOCK_SIZE - 2 * CHUNK_BYTES


async def test_a_force_ends_the_block_with_the_longest_log_of_those_that_answer(
    scene: Scene,
) -> None:
    view = await written(scene, 3, 3, 3)
    first, second, third = view.record.members
    cut_power(scene, view.record.block, first, 1)
    cut_power(scene, view.record.block, second, 2)
    scene.acceptor(third).alive = False
    block = await stuck(scene)
    force = RecoverLease("/f", (GiveUp(block.block, block.silent),))
    found = await scene.service.call(RECOVER_LEASE, force)
    assert (found.stuck, found.status.open, found.status.size) == ((), False, 2 * CHUNK_BYTES)
    # The one that was given up comes back with more, and is brought to what was decided.
    await scene.register(third)
    await scene.node.replicas.wait_complete(
        (await scene.node.catalog.get_block(block.block)).record, 3
    )
    assert scene.acceptor(third).replicas[block.block].length == 2


async def test_one_strong_member_is_enough_for_a_force_and_loses_nothing_acknowledged(
    scene: Scene,
) -> None:
    view = await written(scene, 3, 3, 3)
    _, second, third = view.record.members
    scene.acceptor(second).alive = scene.acceptor(third).alive = False
    block = await stuck(scene)
    assert (block.length, block.at_risk_bytes) == (3, 0)
    assert block.silent == (second, third)
    force = RecoverLease("/f", (GiveUp(block.block, block.silent),))
    found = await scene.service.call(RECOVER_LEASE, force)
    assert (found.status.open, found.status.size) == (False, 3 * CHUNK_BYTES)


async def test_the_writer_of_a_block_that_was_forced_does_not_end_it_any_more(
    scene: Scene,
) -> None:
    view = await written(scene, 3, 3, 3)
    block = view.record.block
    first, second, third = view.record.members
    cut_power(scene, block, first, 1)
    for storage in (second, third):
        scene.acceptor(storage).alive = False
    await scene.node.catalog.allocate_seal(block, forced=True)
    for storage in (second, third):
        scene.acceptor(storage).alive = True
    with pytest.raises(FencedError, match="was allocated meanwhile"):
        await scene.service.call(
            FINALIZE_BLOCK, FinalizeBlock(block, ANN, FIRST_GENERATION, 3, 3 * CHUNK_BYTES)
        )


async def test_a_force_waits_for_those_that_the_operator_did_not_give_up(scene: Scene) -> None:
    """Another member went away since the operator looked: what they hold must not be dropped."""
    view = await written(scene, 3, 3, 3)
    _, second, third = view.record.members
    for storage in (second, third):
        scene.acceptor(storage).alive = False
    force = RecoverLease("/f", (GiveUp(view.record.block, (third,)),))
    found = await scene.service.call(RECOVER_LEASE, force)
    assert [block.silent for block in found.stuck] == [(second, third)]
    scene.acceptor(second).alive = True
    found = await scene.service.call(RECOVER_LEASE, RecoverLease("/f"))
    while found.stuck:  # it joined a recovery whose time was nearly up
        found = await scene.service.call(RECOVER_LEASE, RecoverLease("/f"))
    assert found.status.size == 3 * CHUNK_BYTES


async def test_a_force_of_a_block_that_was_ended_meanwhile_finds_its_file_closed(
    scene: Scene,
) -> None:
    view = await written(scene, 3, 3, 3)
    force = RecoverLease("/f", (GiveUp(view.record.block, view.record.members[:1]),))
    await scene.service.call(RECOVER_LEASE, RecoverLease("/f"))
    found = await scene.service.call(RECOVER_LEASE, force)
    assert (found.stuck, found.status.open) == ((), False)
    assert not (await scene.node.catalog.get_block(view.record.block)).record.forced


async def test_where_enough_members_answer_nothing_is_forced(scene: Scene) -> None:
    view = await written(scene, 3, 2, 2)
    scene.acceptor(view.record.members[2]).alive = False
    found = await scene.service.call(RECOVER_LEASE, RecoverLease("/f"))
    assert (found.stuck, found.status.open) == ((), False)
    assert not (await scene.node.catalog.get_block(view.record.block)).record.forced


async def test_a_closed_file_stays_as_it_is(scene: Scene) -> None:
    await scene.service.call(CLOSE_FILE, CloseFile(await scene.create("/f"), ANN))
    found = await scene.service.call(RECOVER_LEASE, RecoverLease("/f"))
    assert (found.stuck, found.status.open) == ((), False)


async def test_what_is_no_file_and_who_is_no_member_is_refused(scene: Scene) -> None:
    view = await written(scene, 1, 1, 1)
    block = view.record.block
    await scene.service.call(MKDIRS, MakeDirectories("/d"))
    with pytest.raises(NotFoundError):
        await scene.service.call(RECOVER_LEASE, RecoverLease("/nothing"))
    with pytest.raises(IsDirectoryError):
        await scene.service.call(RECOVER_LEASE, RecoverLease("/d"))
    wrong = {
        (BlockId(block + 1), MEMBERS[:1]): "is none of '/f'",
        (block, (StorageId("s9"),)): "give up some of s1, s2, s3",
        (block, ()): "give up some of",
        (block, MEMBERS): "one member at least must answer",
    }
    for (named, members), reason in wrong.items():
        with pytest.raises(InvalidRequestError, match=reason):
            await scene.service.call(RECOVER_LEASE, RecoverLease("/f", (GiveUp(named, members),)))
    assert (await scene.node.catalog.status("/f")).open
