"""DataNodes that an operator lets leave, for good or for a while, and come back."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from paxosblock.api.care import SET_ADMIN_STATE, AdminState, AdminStatus, SetAdminState
from paxosblock.api.namenode import RENEW_LEASES, OpenBlock, RenewLeases
from paxosblock.errors import InvalidRequestError, NoSpaceError, NotFoundError
from paxosblock.protocol.types import StorageId
from tests.namenode.cluster import Network, acceptors
from tests.namenode.scene import ANN, Scene, new_scene

S1 = StorageId("s1")
HOUR_S = 3600.0


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = await new_scene("s1", "s2", "s3", "s4")
    scene.clock.now += 2  # it does not wait for DataNodes any more
    for storage in ("s1", "s2", "s3", "s4"):
        await scene.register(storage)
    yield scene
    await scene.close()


async def say(scene: Scene, node: str, admin: AdminState, for_s: float = 0) -> AdminStatus:
    return await scene.service.call(SET_ADMIN_STATE, SetAdminState(node, admin, for_s))


async def leave(scene: Scene, storage: str) -> AdminStatus:
    return await say(scene, f"dn-{storage}", AdminState.DECOMMISSIONED)


def state(scene: Scene, storage: StorageId = S1) -> AdminState:
    return scene.node.datanodes.admin_state(storage, scene.clock.now)


async def placed(scene: Scene, path: str) -> set[StorageId]:
    return set((await scene.add_block(await scene.create(path))).record.members)


async def test_a_node_that_leaves_gets_no_new_block(scene: Scene) -> None:
    done = await leave(scene, "s1")
    assert done == AdminStatus("dn-s1", "dn-s1:9864", AdminState.DECOMMISSIONED)
    assert await placed(scene, "/f") == {"s2", "s3", "s4"}
    await leave(scene, "s2")
    view = await scene.add_block(await scene.create("/g"))
    assert set(view.record.members) == {"s3", "s4"}
    assert view.shortfall == "DataNodes not used: dn-s1 (decommissioned), dn-s2 (decommissioned)"


async def test_a_node_that_is_taken_back_gets_blocks_again(scene: Scene) -> None:
    await leave(scene, "s1")
    await say(scene, "dn-s1", AdminState.IN_SERVICE)
    assert state(scene) is AdminState.IN_SERVICE
    assert not scene.node.datanodes.admin
    for storage in ("s2", "s3", "s4"):
        await leave(scene, storage)
    assert await placed(scene, "/f") == {"s1"}
    await leave(scene, "s1")
    with pytest.raises(NoSpaceError, match="storages not used: 4 decommissioned"):
        await placed(scene, "/g")


async def test_a_node_is_named_by_its_address_too(scene: Scene) -> None:
    await say(scene, "dn-s1:9864", AdminState.DECOMMISSIONED)
    assert state(scene) is AdminState.DECOMMISSIONED


async def test_nobody_is_one_line_and_nothing_changes(scene: Scene) -> None:
    before = scene.store.view().revision
    with pytest.raises(
        NotFoundError, match=r"^'nobody': no such DataNode: dn-s1, dn-s2, dn-s3, dn-s4$"
    ):
        await say(scene, "nobody", AdminState.DECOMMISSIONED)
    assert scene.store.view().revision == before


async def test_a_maintenance_has_an_end_and_nothing_else_has(scene: Scene) -> None:
    for for_s in (0, -1, float("inf")):
        with pytest.raises(InvalidRequestError, match=r"maintenance (0s|-1 s|inf s): more than 0"):
            await say(scene, "dn-s1", AdminState.IN_MAINTENANCE, for_s)
    with pytest.raises(InvalidRequestError, match="only a maintenance ends by itself"):
        await say(scene, "dn-s1", AdminState.DECOMMISSIONED, HOUR_S)
    assert not scene.node.datanodes.admin


async def test_a_node_in_maintenance_gets_no_block_until_its_time_is_over(scene: Scene) -> None:
    done = await say(scene, "dn-s1", AdminState.IN_MAINTENANCE, HOUR_S)
    assert done.until_ms - scene.node.catalog.now_ms() == pytest.approx(HOUR_S * 1000, abs=10_000)
    assert await placed(scene, "/f") == {"s2", "s3", "s4"}
    scene.clock.now += HOUR_S + 1
    assert state(scene) is AdminState.IN_SERVICE


async def test_a_maintenance_that_is_over_is_forgotten(scene: Scene) -> None:
    await say(scene, "dn-s1", AdminState.IN_MAINTENANCE, 0.001)
    await say(scene, "dn-s2", AdminState.IN_MAINTENANCE, HOUR_S)
    while len(await scene.node.catalog.node_records()) > 1:
        await scene.node.housekeeper.check_deadlines()
    ((name, _),) = await scene.node.catalog.node_records()
    assert name == "dn-s2"


async def test_a_maintenance_that_became_a_decommission_does_not_end(scene: Scene) -> None:
    await say(scene, "dn-s1", AdminState.IN_MAINTENANCE, 0.001)
    await leave(scene, "s1")
    assert await scene.node.catalog.due() == ()
    ((_, record),) = await scene.node.catalog.node_records()
    assert (record.admin, record.expires_ms) == (AdminState.DECOMMISSIONED, 0)


async def test_the_next_namenode_knows_who_leaves_also_of_nodes_that_it_never_saw(
    scene: Scene,
) -> None:
    await leave(scene, "s1")
    await say(scene, "dn-s2", AdminState.IN_MAINTENANCE, HOUR_S)
    await scene.close()
    network = Network(acceptors("s1", "s2", "s3", "s4"))
    for acceptor in network.reach.values():
        acceptor.alive = False
    after = await new_scene(store=scene.store, network=network)
    assert not len(after.node.datanodes)
    assert state(after) is AdminState.DECOMMISSIONED
    assert state(after, StorageId("s2")) is AdminState.IN_MAINTENANCE
    assert state(after, StorageId("s3")) is AdminState.IN_SERVICE
    await say(after, "dn-s1:9864", AdminState.IN_SERVICE)
    assert state(after) is AdminState.IN_SERVICE
    after.clock.now += HOUR_S + 1
    assert state(after, StorageId("s2")) is AdminState.IN_SERVICE
    await after.close()


async def rolls(scene: Scene, *paths: str) -> list[bool]:
    """Return, for each file, whether its open block should be left for another one now."""
    blocks = [(await scene.node.catalog.unfinished(int(path)))[0].record.block for path in paths]
    told = tuple(OpenBlock(block) for block in blocks)
    answer = await scene.service.call(RENEW_LEASES, RenewLeases((ANN,), told))
    return [block in answer.roll for block in blocks]


async def test_writers_leave_blocks_on_a_node_that_leaves(scene: Scene) -> None:
    files = [await scene.create(f"/f{number}") for number in range(16)]
    on_first = [S1 in (await scene.add_block(file)).record.members for file in files]
    assert {True, False} == set(on_first)
    names = [str(file) for file in files]
    assert not any(await rolls(scene, *names))
    await leave(scene, "s1")
    assert await rolls(scene, *names) == on_first


async def test_no_block_is_left_for_one_of_fewer_members(scene: Scene) -> None:
    file = await scene.create("/f")
    members = (await scene.add_block(file)).record.members
    (spare,) = {"s1", "s2", "s3", "s4"} - set(members)
    await leave(scene, spare)
    await leave(scene, members[0])
    assert await rolls(scene, str(file)) == [False]
    await say(scene, f"dn-{spare}", AdminState.IN_SERVICE)
    assert await rolls(scene, str(file)) == [True]
