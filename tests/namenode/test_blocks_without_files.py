"""Blocks of embedders: they have a lease, end when their writer is gone, and can be deleted."""

from __future__ import annotations

import pytest

from paxosblock.api.methods import Once
from paxosblock.api.namenode import (
    ADD_BLOCK,
    DELETE_BLOCK,
    FINALIZE_BLOCK,
    GET_BLOCK,
    NO_BLOCK,
    NO_FILE,
    RENEW_LEASES,
    SEAL_BLOCK,
    AddBlock,
    BlockRequest,
    BlockView,
    DeleteBlock,
    Deletion,
    FinalizeBlock,
    RenewLeases,
)
from paxosblock.errors import InvalidRequestError, NotFoundError
from paxosblock.protocol.types import FIRST_GENERATION, BlockId
from tests.namenode.cluster import CHUNK_BYTES, Network, acceptors
from tests.namenode.memory_store import MemoryStore
from tests.namenode.scene import ANN, BOB, MEMBERS, Scene, new_scene
from tests.waiting import wait_until_async


async def written(scene: Scene, length: int) -> BlockView:
    view = await scene.add_block(NO_FILE)
    scene.write(view, *[length] * 3)
    return view


def hard_limit_s(scene: Scene) -> float:
    return scene.node.config.lease_hard_limit_s


async def renew(scene: Scene) -> bool:
    """Renew Ann's lease; whether she holds anything."""
    return not (await scene.service.call(RENEW_LEASES, RenewLeases((ANN,)))).lost


async def is_ended(scene: Scene, block: BlockId) -> bool:
    return (await scene.node.catalog.get_block(block)).record.finalized


async def wait_ended(scene: Scene, block: BlockId) -> None:
    def ended() -> bool:
        return "recovered" in [line.event for line in scene.node.history.of(block)]

    await wait_until_async(ended)


async def test_the_block_of_a_writer_that_is_gone_is_ended_with_what_was_acknowledged(
    scene: Scene,
) -> None:
    block = (await written(scene, 2)).record.block
    scene.clock.now += hard_limit_s(scene)
    await scene.node.housekeeper.check_leases()
    await wait_ended(scene, block)
    record = (await scene.node.catalog.get_block(block)).record
    assert (record.finalized, record.length) == (True, 2)
    assert await scene.node.catalog.open_blocks() == ()
    await wait_until_async(lambda: len(scene.node.block_leases) == 0)


async def test_a_writer_that_renews_keeps_its_block(scene: Scene) -> None:
    block = (await written(scene, 1)).record.block
    for _ in range(3):
        scene.clock.now += hard_limit_s(scene) - 1
        assert await renew(scene)
        await scene.node.housekeeper.check_leases()
    assert not await is_ended(scene, block)
    assert scene.node.recoverer.unended == 0


async def test_a_writer_holds_its_lease_for_files_and_blocks_alike(scene: Scene) -> None:
    assert not await renew(scene)
    block = (await written(scene, 1)).record.block
    assert await renew(scene)
    await scene.create("/f")
    finalize = FinalizeBlock(block, ANN, FIRST_GENERATION, 1, CHUNK_BYTES)
    await scene.service.call(FINALIZE_BLOCK, finalize)
    assert await renew(scene)  # for the file
    assert len(scene.node.block_leases) == 0


async def test_a_namenode_that_starts_gives_the_block_a_fresh_lease() -> None:
    store, network = MemoryStore(), Network(acceptors(*MEMBERS))
    before = await new_scene(store=store, network=network)
    block = (await written(before, 1)).record.block
    await before.close()
    scene = await new_scene(store=store, network=network)
    try:
        assert await renew(scene)
        scene.clock.now += hard_limit_s(scene)
        await scene.node.housekeeper.check_leases()
        await wait_ended(scene, block)
    finally:
        await scene.close()


@pytest.mark.parametrize("ended", [False, True])
async def test_a_deleted_block_leaves_the_catalog_and_its_members(
    scene: Scene, ended: bool
) -> None:
    block = (await written(scene, 1)).record.block
    if ended:
        await scene.service.call(SEAL_BLOCK, BlockRequest(block))
    assert await scene.service.call(DELETE_BLOCK, DeleteBlock(block)) == Deletion(existed=True)
    with pytest.raises(NotFoundError):
        await scene.service.call(GET_BLOCK, BlockRequest(block))
    await wait_until_async(
        lambda: not any(block in each.replicas for each in scene.network.reach.values())
    )
    assert await scene.service.call(DELETE_BLOCK, DeleteBlock(block)) == Deletion(existed=False)
    assert (await scene.node.catalog.open_blocks(), await renew(scene)) == ((), False)


async def test_a_copy_of_a_delete_gets_the_answer_of_the_first(scene: Scene) -> None:
    block = (await written(scene, 1)).record.block
    request = DeleteBlock(block, Once("session", 1))
    for _ in range(2):
        assert await scene.service.call(DELETE_BLOCK, request) == Deletion(existed=True)


async def test_a_block_of_a_file_is_not_deleted_alone(scene: Scene) -> None:
    view = await scene.add_block(await scene.create("/f"))
    with pytest.raises(InvalidRequestError, match="belongs to a file and is deleted with it"):
        await scene.service.call(DELETE_BLOCK, DeleteBlock(view.record.block))
    assert not await is_ended(scene, view.record.block)


async def test_the_lease_of_a_block_that_was_deleted_ends(scene: Scene) -> None:
    view = await scene.service.call(ADD_BLOCK, AddBlock(NO_FILE, BOB, NO_BLOCK, 2))
    block = view.record.block
    await scene.node.catalog.delete_block(DeleteBlock(block))  # behind the lease's back
    scene.clock.now += hard_limit_s(scene)
    await scene.node.housekeeper.check_leases()
    await wait_until_async(lambda: len(scene.node.block_leases) == 0)


async def test_a_block_without_a_file_remembers_how_many_replicas_were_asked_for(
    scene: Scene,
) -> None:
    scene.clock.now += 60.0  # a NameNode that just started waits for the fourth
    for storage in MEMBERS:
        await scene.register(storage)
    request = AddBlock(NO_FILE, ANN, NO_BLOCK, window=2, replication=4)
    view = await scene.service.call(ADD_BLOCK, request)
    entry = await scene.node.catalog.get_block(view.record.block)
    assert (len(entry.record.members), entry.replication) == (3, 4)
