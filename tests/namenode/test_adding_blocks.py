"""Places of new blocks: the choice made from what DataNodes have said so far."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from paxosblock.api.care import SET_REPLICATION, SetReplication
from paxosblock.api.file_pages import GET_FILE, GetFile
from paxosblock.api.namenode import (
    ADD_BLOCK,
    FINALIZE_BLOCK,
    GET_BLOCK,
    NO_BLOCK,
    NO_FILE,
    RENEW_LEASES,
    AddBlock,
    BlockRequest,
    BlockView,
    Excluded,
    FinalizeBlock,
    OpenBlock,
    RenewLeases,
)
from paxosblock.api.reports import HEARTBEAT, REGISTER, Heartbeat, Register, StorageReport
from paxosblock.base.rack import FAR_AWAY
from paxosblock.errors import InvalidRequestError, NoSpaceError, NotReadyError
from paxosblock.protocol.types import FIRST_GENERATION as FIRST
from paxosblock.protocol.types import BlockId, StorageId
from tests.namenode.cluster import Network, acceptors
from tests.namenode.scene import ANN, ROOM_BYTES, Scene, new_scene

_numbers = itertools.count()


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


async def all_registered(scene: Scene) -> None:
    """All three DataNodes are known, and the NameNode does not wait for more."""
    scene.clock.now += 2
    for storage in ("s1", "s2", "s3"):
        await scene.register(storage)


async def heartbeat(scene: Scene, storage: str) -> None:
    room = StorageReport(StorageId(storage), ROOM_BYTES, ROOM_BYTES, 0)
    answer = await scene.service.call(HEARTBEAT, Heartbeat(f"dn-{storage}", "run-1", (room,), 0))
    assert not answer.register


async def add_block(scene: Scene, *excluded: Excluded, replication: int = 3) -> BlockView:
    return await scene.service.call(
        ADD_BLOCK, AddBlock(NO_FILE, ANN, NO_BLOCK, 2, excluded=excluded, replication=replication)
    )


async def rolls(scene: Scene, members: int, *excluded: Excluded) -> bool:
    """The NameNode says that a block of so many members should be followed by another one now."""
    path = f"/written/{next(_numbers)}"
    file = await scene.create(path)
    await scene.service.call(SET_REPLICATION, SetReplication(path, members))
    block = (await scene.add_block(file)).record.block
    await scene.service.call(SET_REPLICATION, SetReplication(path, 3))
    renewal = RenewLeases((ANN,), (OpenBlock(block, members < 3, excluded),))
    answer = await scene.service.call(RENEW_LEASES, renewal)
    assert answer.roll in {(), (block,)}
    return bool(answer.roll)


async def test_a_storage_that_failed_the_writer_is_not_chosen_while_there_are_others(
    scene: Scene,
) -> None:
    await all_registered(scene)
    scene.clock.now += 1
    for storage in ("s1", "s2", "s3"):
        await heartbeat(scene, storage)
    view = await add_block(scene, Excluded(StorageId("s2"), 0.5), replication=2)
    assert set(view.record.members) == {"s1", "s3"}
    assert view.shortfall == ""


async def test_a_storage_that_failed_the_writer_is_left_out_until_it_is_heard_of(
    scene: Scene,
) -> None:
    """By what was heard of it before, it is live: it may have been killed this moment."""
    await all_registered(scene)
    scene.clock.now += 1
    failed = Excluded(StorageId("s2"), 0.5)
    view = await add_block(scene, failed)
    assert set(view.record.members) == {"s1", "s3"}
    assert view.shortfall == "DataNodes not used: dn-s2 (failed this writer)"
    assert not await rolls(scene, 2, failed)
    await heartbeat(scene, "s2")
    assert await rolls(scene, 2, failed)
    assert len((await add_block(scene, failed)).record.members) == 3
    assert not await rolls(scene, 2, replace(failed, resting=True))
    assert len((await add_block(scene, replace(failed, resting=True))).record.members) == 2


async def test_a_datanode_that_registered_since_it_failed_the_writer_is_taken_as_any_other(
    scene: Scene,
) -> None:
    await all_registered(scene)
    scene.clock.now += 1
    failed = Excluded(StorageId("s2"), 0.5, resting=True)
    assert set((await add_block(scene, failed)).record.members) == {"s1", "s3"}
    await scene.register("s2")
    assert len((await add_block(scene, failed)).record.members) == 3
    alone = {(await add_block(scene, failed, replication=1)).record.members for _ in range(50)}
    assert (StorageId("s2"),) in alone


async def test_a_writer_is_not_sent_to_a_datanode_that_is_silent_or_to_as_many_as_it_has(
    scene: Scene,
) -> None:
    await all_registered(scene)
    assert await rolls(scene, 2)
    scene.node.datanodes.suspect(StorageId("s3"))
    assert not await rolls(scene, 2)
    assert await rolls(scene, 1)


async def test_a_block_that_has_as_many_members_as_its_file_asks_for_now_is_not_left(
    scene: Scene,
) -> None:
    """Its writer calls it short by what the file asked for when it was opened."""
    await all_registered(scene)
    file = await scene.create("/f")
    await scene.service.call(SET_REPLICATION, SetReplication("/f", 2))
    block = (await scene.add_block(file)).record.block
    told = RenewLeases((ANN,), (OpenBlock(block, short=True),))
    assert (await scene.service.call(RENEW_LEASES, told)).roll == ()
    await scene.service.call(SET_REPLICATION, SetReplication("/f", 3))
    assert (await scene.service.call(RENEW_LEASES, told)).roll == (block,)


async def test_blocks_that_are_ended_or_gone_are_not_left(scene: Scene) -> None:
    file = await scene.create("/f")
    scene.clock.now += 2
    await scene.register("s1")
    view = await scene.add_block(file)
    await all_registered(scene)
    await scene.service.call(FINALIZE_BLOCK, FinalizeBlock(view.record.block, ANN, FIRST, 0, 0))
    told = (OpenBlock(view.record.block, short=True), OpenBlock(BlockId(12345), short=True))
    assert (await scene.service.call(RENEW_LEASES, RenewLeases((ANN,), told))).roll == ()


async def test_when_all_nodes_are_silent_there_is_no_place(scene: Scene) -> None:
    file = await scene.create("/f")
    scene.clock.now += 15
    with pytest.raises(NoSpaceError, match=r"found 0 of 3 replicas, 1 needed; .* not used: 1 dead"):
        await scene.add_block(file)


async def test_a_block_is_in_two_racks_and_begins_on_the_machine_of_its_writer(
    scene: Scene,
) -> None:
    await all_registered(scene)
    for storage, rack in (("s1", "/dc1/r1"), ("s2", "/dc1/r1"), ("s3", "/dc1/r2")):
        await scene.register(storage, rack=rack)
    for storage in ("s1", "s2", "s3"):
        request = AddBlock(NO_FILE, ANN, NO_BLOCK, 2, replication=2, host=f"dn-{storage}")
        view = await scene.service.call(ADD_BLOCK, request)
        assert view.record.members[0] == storage
        assert {member.rack for member in view.members} == {"/dc1/r1", "/dc1/r2"}


async def test_a_datanode_whose_rack_is_no_path_is_refused_and_nothing_is_known_of_it(
    scene: Scene,
) -> None:
    room = StorageReport(StorageId("s9"), ROOM_BYTES, ROOM_BYTES, 0)
    request = Register("dn-s9", "dn-s9:9864", "run-1", (room,), rack="r9")
    with pytest.raises(InvalidRequestError, match=r"^DataNode dn-s9: 'r9' is not a rack: a path"):
        await scene.service.call(REGISTER, request)
    with pytest.raises(InvalidRequestError, match=r"^DataNode dn-s9: 'a b' is not a machine's"):
        await scene.service.call(REGISTER, replace(request, rack="/r9", host="a b"))
    assert scene.node.datanodes.home(StorageId("s9")) is None


async def test_whoever_asks_for_a_block_is_told_how_far_its_members_are(scene: Scene) -> None:
    await all_registered(scene)
    for storage, rack in (("s1", "/dc1/r1"), ("s2", "/dc1/r1"), ("s3", "/dc2/r1")):
        await scene.register(storage, rack=rack)
    file = await scene.create("/f")
    block = (await scene.add_block(file)).record.block

    def apart(view: BlockView) -> dict[str, int]:
        return {member.storage: member.distance for member in view.members}

    of_file = await scene.service.call(GET_FILE, GetFile("/f", host="dn-s2"))
    assert apart(of_file.blocks[0]) == {"s1": 2, "s2": 0, "s3": 6}
    of_block = await scene.service.call(GET_BLOCK, BlockRequest(block, host="dn-s3"))
    assert apart(of_block) == {"s1": 6, "s2": 6, "s3": 0}
    nowhere = await scene.service.call(GET_BLOCK, BlockRequest(block, host="elsewhere"))
    assert set(apart(nowhere).values()) == {FAR_AWAY}
