"""DataNodes that are to leave: what holds them up, and when they may go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from paxosblock.api.care import (
    LEAVING,
    SET_ADMIN_STATE,
    SET_REPLICATION,
    AdminState,
    HoldUp,
    LeavingNode,
    LeavingRequest,
    SetAdminState,
    SetReplication,
)
from paxosblock.api.namenode import (
    CLOSE_FILE,
    DELETE,
    FINALIZE_BLOCK,
    CloseFile,
    DeletePath,
    FinalizeBlock,
)
from paxosblock.config import NameNodeConfig
from paxosblock.namenode.blocks.replication.leaving_nodes import LeavingNodes
from paxosblock.namenode.blocks.replication.monitor import WALK_PAUSE_S
from paxosblock.namenode.catalog.records import BlockEntry
from paxosblock.protocol.finalize import BlockRecord, finalize_message
from paxosblock.protocol.types import FIRST_GENERATION, StorageId
from tests.namenode.cluster import CHUNK_BYTES
from tests.namenode.scene import ANN, Scene, new_scene
from tests.waiting import wait_until_async

ALL = ("s1", "s2", "s3", "s4")
LEAVES = (AdminState.DECOMMISSIONED, AdminState.IN_MAINTENANCE)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = await new_scene(*ALL)
    yield scene
    await scene.close()


async def closed_file(scene: Scene, path: str, replication: int = 3) -> BlockRecord:
    """A closed file of one block, which all its members hold and have reported."""
    file = await scene.create(path)
    await scene.service.call(SET_REPLICATION, SetReplication(path, replication))
    view = await scene.add_block(file)
    scene.write(view, *[2] * replication)
    block = view.record.block
    request = FinalizeBlock(block, ANN, FIRST_GENERATION, 2, 2 * CHUNK_BYTES)
    record = (await scene.service.call(FINALIZE_BLOCK, request)).record
    await scene.service.call(CLOSE_FILE, CloseFile(file, ANN))
    await scene.node.replicas.wait_complete(record, replication)
    return record


async def say(scene: Scene, storage: str, admin: AdminState, for_s: float = 0) -> None:
    await scene.service.call(SET_ADMIN_STATE, SetAdminState(f"dn-{storage}", admin, for_s))


async def look(scene: Scene) -> dict[str, LeavingNode]:
    """Return how far the nodes are, by storage, after a look."""
    scene.node.leaving.changed()
    scene.node.leaving._changed.clear()
    await scene.node.leaving.walk()
    nodes = (await scene.service.call(LEAVING, LeavingRequest())).nodes
    return {node.status.node.removeprefix("dn-"): node for node in nodes}


async def copy(scene: Scene, record: BlockRecord, storage: str) -> None:
    """A copy of a finalized block that became a member, as the monitor makes one (D5, K12)."""
    target = StorageId(storage)
    await scene.network.ask(target, finalize_message(record, record.members))
    catalog, decided = scene.node.catalog, record.finalized_generation
    added = await catalog.add_replica(record.block, target, decided)
    assert isinstance(added, BlockEntry)
    await scene.report(storage)


async def test_nobody_leaves_until_somebody_says_so(scene: Scene) -> None:
    assert await look(scene) == {}


async def test_a_node_may_go_when_its_blocks_have_enough_replicas_elsewhere(scene: Scene) -> None:
    record = await closed_file(scene, "/f")
    first, *_ = record.members
    (spare,) = set(ALL) - set(record.members)
    await say(scene, first, AdminState.DECOMMISSIONED)
    node = (await look(scene))[first]
    assert (node.known, node.done, node.blocks, node.waiting) == (True, False, 1, 1)
    (held_up,) = node.held_up
    assert (held_up.path, held_up.why, held_up.elsewhere) == ("/f", HoldUp.TOO_FEW, 2)
    await copy(scene, record, spare)
    node = (await look(scene))[first]
    assert (node.done, node.waiting, node.held_up) == (True, 0, ())


async def test_a_node_without_a_block_may_go_at_once(scene: Scene) -> None:
    record = await closed_file(scene, "/f")
    (spare,) = set(ALL) - set(record.members)
    await say(scene, spare, AdminState.DECOMMISSIONED)
    assert (await look(scene))[spare].done


async def test_what_was_seen_before_a_change_is_not_told_after_it(scene: Scene) -> None:
    await closed_file(scene, "/f")
    await say(scene, "s1", AdminState.DECOMMISSIONED)
    await look(scene)
    await say(scene, "s2", AdminState.DECOMMISSIONED)
    nodes = (await scene.service.call(LEAVING, LeavingRequest())).nodes
    assert [(node.known, node.done) for node in nodes] == [(False, False)] * 2


async def test_a_look_that_a_change_came_into_tells_nothing(scene: Scene) -> None:
    await closed_file(scene, "/f")
    await say(scene, "s1", AdminState.DECOMMISSIONED)
    node = scene.node  # whose own ones look by themselves
    leaving = LeavingNodes(
        catalog=node.catalog,
        datanodes=node.datanodes,
        assessor=node.assessor,
        min_replication=1,
        clock_s=node.clock_s,
    )
    looking = asyncio.create_task(leaving.walk())
    await asyncio.sleep(0)  # it has looked at a page
    assert not looking.done()
    leaving.changed()
    await looking
    assert [node.known for node in leaving.status()] == [False]


async def test_too_few_other_nodes_are_told_and_setrep_helps(scene: Scene) -> None:
    record = await closed_file(scene, "/f")
    first, *_ = record.members
    (spare,) = set(ALL) - set(record.members)
    await say(scene, spare, AdminState.DECOMMISSIONED)
    await say(scene, first, AdminState.DECOMMISSIONED)
    node = (await look(scene))[first]
    assert [each.why for each in node.held_up] == [HoldUp.NO_ROOM]
    assert (node.others, node.held_up[0].wanted) == (2, 3)
    await scene.service.call(SET_REPLICATION, SetReplication("/f", 2))
    assert (await look(scene))[first].done


async def test_a_block_that_is_written_holds_its_node_up(scene: Scene) -> None:
    file = await scene.create("/f")
    members = (await scene.add_block(file)).record.members
    await say(scene, members[0], AdminState.DECOMMISSIONED)
    node = (await look(scene))[members[0]]
    assert (node.waiting, node.open_blocks, node.held_up[0].why) == (1, 1, HoldUp.OPEN)


async def test_a_block_that_nobody_can_read_holds_its_node_up(scene: Scene) -> None:
    record = await closed_file(scene, "/f", replication=1)
    (only,) = record.members
    await say(scene, only, AdminState.DECOMMISSIONED)
    scene.acceptor(only).alive = False
    scene.clock.now += 10 * 60
    for other in set(ALL) - {only}:
        await scene.register(other)
    node = (await look(scene))[only]
    assert [each.why for each in node.held_up] == [HoldUp.MISSING]


async def test_a_replica_that_is_not_reported_yet_is_not_elsewhere(scene: Scene) -> None:
    record = await closed_file(scene, "/f")
    first, second, _ = record.members
    await say(scene, first, AdminState.DECOMMISSIONED)
    await scene.service.call(SET_REPLICATION, SetReplication("/f", 2))
    assert (await look(scene))[first].done
    scene.node.replicas.forget(record.block, second)
    assert not (await look(scene))[first].done


async def test_blocks_of_a_deleted_file_hold_nobody_up(scene: Scene) -> None:
    record = await closed_file(scene, "/f")
    await say(scene, record.members[0], AdminState.DECOMMISSIONED)
    await scene.service.call(DELETE, DeletePath("/f"))
    assert (await look(scene))[record.members[0]].done


async def test_a_maintenance_wants_min_replication_others_only() -> None:
    scene = await new_scene(*ALL, config=NameNodeConfig(min_replication=2))
    record = await closed_file(scene, "/three")
    first, second, _ = record.members
    await say(scene, first, AdminState.IN_MAINTENANCE, 3600)
    assert (await look(scene))[first].done
    await say(scene, second, AdminState.IN_MAINTENANCE, 3600)
    nodes = await look(scene)
    assert [nodes[name].done for name in (first, second)] == [False, False]
    assert nodes[first].held_up[0].wanted == 2
    (spare,) = set(ALL) - set(record.members)
    await copy(scene, record, spare)
    assert all(node.done for node in (await look(scene)).values())
    await scene.close()


async def test_the_loop_looks_by_itself_as_soon_as_somebody_leaves(scene: Scene) -> None:
    record = await closed_file(scene, "/f")
    (spare,) = set(ALL) - set(record.members)
    await say(scene, spare, AdminState.DECOMMISSIONED)
    await scene.node.leaving.turn()
    assert (await scene.service.call(LEAVING, LeavingRequest())).nodes[0].done


async def turn(scene: Scene) -> None:
    """A turn of those who copy, with a view of this moment, and all that it began."""
    scene.clock.now += scene.node.config.heartbeat_interval_s
    await scene.beat(*ALL)
    await scene.node.monitor.turn()
    await wait_until_async(lambda: len(scene.node.copies) == 0)
    await scene.node.monitor.turn()


async def members(scene: Scene, record: BlockRecord) -> tuple[StorageId, ...]:
    return (await scene.node.catalog.get_block(record.block)).record.members


async def walked(scene: Scene) -> None:
    """The first walk over all blocks is over: what is found from now on, was looked for."""
    await scene.node.monitor.walk()
    await turn(scene)


async def test_what_leaves_or_rests_is_noticed_at_once(scene: Scene) -> None:
    """Not by the slow walk over all blocks: an operator wants to stop the node in a moment."""
    records = [await closed_file(scene, f"/{number}", replication=1) for number in range(2)]
    await walked(scene)
    for record, admin in zip(records, LEAVES, strict=True):
        (only,) = record.members
        await say(scene, only, admin, 3600 if admin is AdminState.IN_MAINTENANCE else 0)
        await turn(scene)
        for _ in range(3):
            assert set(await members(scene, record)) - {only}
            await turn(scene)
        assert (await look(scene))[only].done
        await say(scene, only, AdminState.IN_SERVICE)


async def test_a_file_that_asks_for_more_is_looked_at_at_once(scene: Scene) -> None:
    record = await closed_file(scene, "/f", replication=1)
    await walked(scene)
    await scene.service.call(SET_REPLICATION, SetReplication("/f", 3))

    async def has_three() -> bool:
        return len(await members(scene, record)) == 3

    await wait_until_async(has_three, timeout_s=WALK_PAUSE_S / 2)
