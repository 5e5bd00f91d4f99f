"""Where new blocks go: the choice made from what DataNodes have said so far."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from paxosblock.errors import NoSpaceError, NotReadyError
from paxosblock.namenode_api import NO_BLOCK, NO_FILE, AddBlock
from paxosblock.protocol.types import StorageId
from tests.namenode.cluster import Network, acceptors
from tests.namenode.scene import ANN, Scene, new_scene


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    """Three DataNodes, of which only the first has registered yet."""
    reach = acceptors("s1", "s2", "s3")
    for late in ("s2", "s3"):
        reach[StorageId(late)].alive = False
    scene = await new_scene(network=Network(reach))
    yield scene
    await scene.close()


async def test_a_node_that_just_started_waits_for_datanodes_before_it_settles_for_fewer(
    scene: Scene,
) -> None:
    file = await scene.create("/f")
    with pytest.raises(NotReadyError, match=r"found 1 of 3 replicas, 3 needed; .* just started"):
        await scene.add_block(file)
    await scene.register("s2")
    await scene.register("s3")
    assert len((await scene.add_block(file)).record.members) == 3


async def test_later_it_takes_what_there_is(scene: Scene) -> None:
    file = await scene.create("/f")
    scene.clock.now += 2
    await scene.register("s1")
    assert (await scene.add_block(file)).record.members == ("s1",)


async def test_a_storage_that_failed_the_writer_is_not_chosen_again(scene: Scene) -> None:
    await scene.register("s2")
    await scene.register("s3")
    request = AddBlock(NO_FILE, ANN, NO_BLOCK, 2, excluded=(StorageId("s2"),), replication=2)
    assert set((await scene.service.add_block(request)).record.members) == {"s1", "s3"}


async def test_when_all_nodes_are_silent_there_is_no_place(scene: Scene) -> None:
    file = await scene.create("/f")
    scene.clock.now += 15
    with pytest.raises(NoSpaceError, match=r"found 0 of 3 replicas, 1 needed; .* not used: 1 dead"):
        await scene.add_block(file)
