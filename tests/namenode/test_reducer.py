"""Members that leave a block (K13): who, when, and what those who stay and who left are told."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Collection

import pytest
from msgspec.structs import replace

from paxosblock.api.care import SET_REPLICATION, SetReplication
from paxosblock.api.namenode import DELETE, DeletePath
from paxosblock.namenode.blocks.replication import needs
from paxosblock.namenode.blocks.replication.needs import StoragePlace, StorageState, StorageView
from paxosblock.namenode.blocks.replication.reducer import Leaver, Reducer, leaver
from paxosblock.namenode.catalog.records import BlockEntry
from paxosblock.protocol.finalize import BlockRecord, add_block, finalize_message
from paxosblock.protocol.messages import Delete, Finalize, Finalized, Nack
from paxosblock.protocol.register import Replica
from paxosblock.protocol.types import (
    BlockId,
    BlockState,
    Durability,
    Generation,
    ReplicaState,
    StorageId,
)
from tests.namenode.scene import ANN, Scene, finalize_request, new_scene
from tests.waiting import wait_until_async

S1, S2, S3, S4, S5 = (StorageId(f"s{number}") for number in range(1, 6))
FOUR = (S1, S2, S3, S4)
THREE = (S1, S2, S3)
LOST, LEAVING, AWAY = StorageState.LOST, StorageState.LEAVING, StorageState.AWAY

GONE = StoragePlace("dn-s2", LOST, live=False)


def decided(*members: StorageId, block: int = 1) -> BlockRecord:
    record = add_block(BlockId(block), members, ANN, 2, Durability.DISK)
    fgs = Generation(1)
    return replace(
        record, state=BlockState.FINALIZED, generation=fgs, finalized_generation=fgs, length=1
    )


def view_of(*members: StorageId, **changed: StoragePlace) -> StorageView:
    """Each on a node of its own in one rack, in service, but for those that are `changed`."""
    places = {each: StoragePlace(f"dn-{each}", rack="/r1") for each in members}
    places |= {StorageId(name): place for name, place in changed.items()}
    racks = {place.rack for place in places.values() if place.state is StorageState.IN_SERVICE}
    return StorageView(places, len(racks))


def at(storage: str, rack: str = "/r1", *, node: str = "") -> StoragePlace:
    return StoragePlace(node or f"dn-{storage}", rack=rack)


def chosen(
    members: tuple[StorageId, ...],
    view: StorageView,
    *,
    wanted: int = 3,
    holders: Collection[StorageId] | None = None,
    reported: Collection[StorageId] | None = None,
    damaged: Collection[StorageId] = (),
    full: dict[StorageId, float] | None = None,
    preferred: StorageId | None = None,
) -> Leaver | None:
    """Return who leaves a block that all hold and have reported, but for what is said otherwise."""
    record = decided(*members)
    held = members if holders is None else holders
    need = needs.assess(record, wanted, held, view, damaged)
    told = held if reported is None else reported
    fullness = (full or {}).get
    return leaver(record, need, view, told, lambda each: fullness(each, 0.5), preferred=preferred)


def who(found: Leaver | None) -> StorageId | None:
    return None if found is None else found.storage


# --- the choice -----------------------------------------------------------------------------------


def test_nobody_leaves_a_block_that_has_as_many_as_are_wanted() -> None:
    assert chosen((S1, S2, S3), view_of(*FOUR)) is None


def test_of_too_many_the_one_in_the_fullest_storage_leaves() -> None:
    found = chosen(FOUR, view_of(*FOUR), full={S3: 0.9, S2: 0.8})
    assert found == Leaver(S3, "is one too many", (S1, S2, S4))


def test_of_too_many_the_one_that_a_move_is_from_leaves_unless_its_rack_would_be_lost() -> None:
    view = view_of(*FOUR)
    assert who(chosen(FOUR, view, full={S3: 0.9}, preferred=S1)) == S1
    assert chosen((S1, S2, S3), view, preferred=S1) is None
    in_two_racks = view_of(*FOUR, s1=at("s1", "/r2"))
    assert who(chosen(FOUR, in_two_racks, full={S3: 0.9}, preferred=S1)) == S3


def test_storages_that_are_about_as_full_take_turns() -> None:
    view, left = view_of(*FOUR), set()
    full = {S1: 0.51, S2: 0.53, S3: 0.54, S4: 0.52}
    for block in range(100):
        record = decided(*FOUR, block=block)
        need = needs.assess(record, 3, FOUR, view)
        left.add(who(leaver(record, need, view, FOUR, full.__getitem__)))
    assert left == set(FOUR)


@pytest.mark.parametrize(
    ("changed", "damaged", "holders", "why"),
    [
        ({"s2": GONE}, (), FOUR, "is lost"),
        ({"s2": StoragePlace("dn-s2", LEAVING)}, (), FOUR, "was asked to leave"),
        ({}, (S2,), FOUR, "is damaged"),
        ({}, (), (S1, S3, S4), "does not hold it"),
    ],
    ids=["lost", "asked to leave", "damaged", "lagging"],
)
def test_who_is_of_no_use_or_asked_to_goes_before_the_others_even_if_they_are_fuller(
    changed: dict[str, StoragePlace],
    damaged: tuple[StorageId, ...],
    holders: tuple[StorageId, ...],
    why: str,
) -> None:
    view = view_of(*FOUR, **changed)
    found = chosen(FOUR, view, damaged=damaged, holders=holders, full={S4: 1.0})
    assert found == Leaver(S2, why, (S1, S3, S4))


def test_who_is_lost_goes_before_who_is_asked_to() -> None:
    view = view_of(*FOUR, s1=StoragePlace("dn-s1", LEAVING), s2=GONE)
    assert chosen(FOUR, view, wanted=2) == Leaver(S2, "is lost", (S3, S4))


@pytest.mark.parametrize(
    ("changed", "damaged", "holders"),
    [
        ({"s2": GONE}, (), THREE),
        ({"s2": StoragePlace("dn-s2", LEAVING)}, (), THREE),
        ({}, (S2,), THREE),
        ({}, (), (S1, S3)),
    ],
    ids=["lost", "asked to leave", "damaged", "lagging"],
)
def test_they_stay_until_as_many_others_as_are_wanted_are_sound(
    changed: dict[str, StoragePlace], damaged: tuple[StorageId, ...], holders: tuple[StorageId, ...]
) -> None:
    view = view_of(*FOUR, **changed)
    assert chosen(THREE, view, damaged=damaged, holders=holders) is None


def test_who_has_not_reported_this_version_does_not_count_as_staying() -> None:
    """A member left a moment ago: the next one waits until those who stay have answered (P5)."""
    five = (*FOUR, S5)
    assert chosen(five, view_of(*five), reported=()) is None
    assert chosen(five, view_of(*five), reported=(S1, S2, S3)) is None
    gone = view_of(*five, s5=StoragePlace("dn-s5", LOST, live=False))
    assert who(chosen(five, gone, reported=(S1, S2, S3))) == S5


def test_who_is_away_and_may_not_come_back_does_not_count_as_staying() -> None:
    away = StoragePlace("dn-s4", AWAY, live=False)
    assert chosen(FOUR, view_of(*FOUR, s4=away), holders=THREE) is None
    five = (*FOUR, S5)
    found = chosen(five, view_of(*five, s4=away), full={S2: 1.0})
    assert found == Leaver(S2, "is one too many", (S1, S3, S5))


def test_who_is_asked_to_leave_holds_the_block_and_does_not_count() -> None:
    view = view_of(*FOUR, s1=StoragePlace("dn-s1", LEAVING), s2=StoragePlace("dn-s2", LEAVING))
    assert chosen(FOUR, view) is None
    five = (*FOUR, S5)
    both = view_of(*five, s1=StoragePlace("dn-s1", LEAVING), s2=StoragePlace("dn-s2", LEAVING))
    assert chosen(five, both) == Leaver(S1, "was asked to leave", (S3, S4, S5))


def test_the_most_crowded_rack_loses_one_and_two_racks_stay_two() -> None:
    view = view_of(*FOUR, s1=at("s1", "/r2"))
    assert who(chosen(FOUR, view, full={S1: 1.0, S3: 0.9})) == S3
    assert who(chosen((S1, S2, S3), view, wanted=2, full={S1: 1.0, S2: 0.9})) == S2
    assert who(chosen((S1, S2), view, wanted=1, full={S1: 1.0})) == S1


def test_of_two_on_one_node_one_leaves_first() -> None:
    view = view_of(*FOUR, s2=at("s2", node="dn-s1"))
    assert who(chosen(FOUR, view, full={S4: 1.0, S2: 0.9})) == S2


def test_who_was_asked_to_leave_stays_for_the_second_rack_until_another_is_there() -> None:
    five = (*FOUR, S5)
    alone = StoragePlace("dn-s4", LEAVING, rack="/r2")
    assert chosen(FOUR, view_of(*FOUR, s4=alone)) == Leaver(
        S4, "was asked to leave", (S1, S2, S3)
    )  # no other DataNode is in service there
    assert chosen(FOUR, view_of(*five, s4=alone, s5=at("s5", "/r2"))) is None


def test_a_lost_member_leaves_though_it_was_in_the_second_rack() -> None:
    gone = StoragePlace("dn-s4", LOST, live=False, rack="/r2")
    view = view_of(*FOUR, S5, s4=gone, s5=at("s5", "/r2"))
    assert who(chosen(FOUR, view)) == S4


def test_a_block_without_a_file_any_more_is_left_to_the_sweep() -> None:
    assert chosen(FOUR, view_of(*FOUR), wanted=0) is None


def test_whatever_happens_as_many_as_are_wanted_stay_in_as_many_racks_as_they_were() -> None:
    """All standings, in any mixture: what holds of every choice."""
    chance = random.Random(1)
    for _ in range(5000):
        members = tuple(StorageId(f"s{n}") for n in range(1, chance.randint(2, 6)))
        places = {
            each: StoragePlace(
                f"dn-{chance.randint(1, 5)}",
                state := chance.choice(list(StorageState)),
                state is not LOST and chance.random() < 0.9,
                chance.choice(("/r1", "/r2", "/r3")),
            )
            for each in members
        }
        view = StorageView(places, len({place.rack for place in places.values()}))
        holders = tuple(each for each in members if chance.random() < 0.8)
        reported = tuple(each for each in holders if chance.random() < 0.8)
        wanted = chance.randint(1, 4)
        damaged = tuple(each for each in members if chance.random() < 0.1)
        found = chosen(
            members, view, wanted=wanted, holders=holders, reported=reported, damaged=damaged
        )
        if found is None:
            continue
        stay = [places[each] for each in found.staying]
        assert len(stay) >= wanted
        assert found.storage not in found.staying
        assert set(found.staying) <= set(reported) - set(damaged)
        assert all(place.live for place in stay)
        assert not any(place.state in (LOST, LEAVING) for place in stay)
        if found.why == "is one too many":
            before = {places[each].rack for each in (*found.staying, found.storage)}
            assert len({place.rack for place in stay}) >= min(2, wanted, len(before))


# --- carried out ----------------------------------------------------------------------------------


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    found = await new_scene("s1", "s2", "s3", "s4", "s5")
    yield found
    await found.close()


def reducer(scene: Scene, *, holds: bool = False) -> Reducer:
    node = scene.node
    return Reducer(
        catalog=node.catalog,
        replicas=node.replicas,
        finalizer=node.finalizer,
        history=node.history,
        background=node.background,
        fullness=lambda _: 0.5,
        holds=lambda: holds,
    )


async def block_of_three(scene: Scene) -> BlockRecord:
    """A finalized block of a file that asks for three replicas, all of them reported."""
    view = await scene.add_block(await scene.create("/f"))
    scene.write(view, 1, 1, 1)
    entry = await scene.node.finalizer.finalize_by_writer(
        finalize_request(BlockEntry(view.record), 1)
    )
    await wait_until_async(lambda: len(scene.node.replicas.holders(entry.record)) == 3)
    return entry.record


async def with_copies(scene: Scene, record: BlockRecord, count: int = 1) -> BlockRecord:
    """The block with so many copies that have become members (K12)."""
    spare = [each for each in scene.network.reach if each not in record.members]
    fgs = record.finalized_generation
    for target in spare[:count]:
        reply = scene.acceptor(target).answer(finalize_message(record, record.members))
        assert isinstance(reply, Finalized)
        entry = await scene.node.catalog.add_replica(record.block, target, fgs)
        assert isinstance(entry, BlockEntry)
        scene.node.replicas.note(record.block, target, fgs)
    return await now(scene, record)


def look(
    scene: Scene, record: BlockRecord, reduces: Reducer, view: StorageView | None = None
) -> bool:
    view = view or view_of(*scene.network.reach)
    need = needs.assess(record, 3, scene.node.replicas.whole(record), view)
    return reduces.reduce(BlockEntry(record), need, view)


async def now(scene: Scene, record: BlockRecord) -> BlockRecord:
    return (await scene.node.catalog.get_block(record.block)).record


async def reduced(
    scene: Scene, record: BlockRecord, view: StorageView | None = None
) -> tuple[BlockRecord, StorageId]:
    """The block after one look, and the member that has left it."""
    reduces = reducer(scene)
    assert look(scene, record, reduces, view)
    assert not look(scene, record, reduces, view), "one member of a block at a time"
    await wait_until_async(lambda: not reduces.busy)
    left = await now(scene, record)
    (gone,) = set(record.members) - set(left.members)
    return left, gone


def replica_at(scene: Scene, storage: StorageId, record: BlockRecord) -> Replica | None:
    return scene.acceptor(storage).replicas.get(record.block)


def deletes_sent_to(scene: Scene, storage: StorageId) -> list[Delete]:
    asked = (each for at, each in scene.network.asked if at == storage)
    return [each for each in asked if isinstance(each, Delete)]


async def test_those_who_stay_are_told_and_who_left_deletes_its_replica(scene: Scene) -> None:
    record = await with_copies(scene, await block_of_three(scene), 1)
    left, gone = await reduced(scene, record)
    replicas = scene.node.replicas
    assert len(replicas.whole(left)) == 3, "nothing lacks, although nobody has answered yet"
    await wait_until_async(lambda: len(replicas.holders(left)) == 3)
    await wait_until_async(lambda: replica_at(scene, gone, record) is None)
    for member in left.members:
        replica = replica_at(scene, member, record)
        assert replica is not None
        state = replica.registers
        assert state.state is ReplicaState.FINALIZED
        assert state.accepted_generation == left.finalized_generation
    lines = scene.node.history.of(record.block)
    assert [line.storage for line in lines if line.event == "left"] == [gone]


async def test_the_next_member_of_a_block_waits_until_those_who_stay_have_answered(
    scene: Scene,
) -> None:
    record = await with_copies(scene, await block_of_three(scene), 2)
    scene.network.hung.update(scene.network.reach)
    left, _ = await reduced(scene, record)
    note = scene.node.replicas.note
    for member in left.members:
        assert not look(scene, left, reducer(scene))
        note(left.block, member, left.finalized_generation)
    assert look(scene, left, reducer(scene))


async def test_nobody_leaves_in_safe_mode_or_while_an_append_is_set_up(scene: Scene) -> None:
    record = await with_copies(scene, await block_of_three(scene))
    assert not look(scene, record, reducer(scene, holds=True))
    opened = replace(record, generation=Generation(record.generation + 1))
    assert not look(scene, opened, reducer(scene))
    assert look(scene, record, reducer(scene))


async def test_a_file_that_asks_for_more_meanwhile_keeps_its_members(scene: Scene) -> None:
    """K13 counts what is wanted when it is applied, not when the choice was made."""
    record = await with_copies(scene, await block_of_three(scene))
    await scene.service.call(SET_REPLICATION, SetReplication("/f", 4))
    reduces = reducer(scene)
    assert look(scene, record, reduces)
    await wait_until_async(lambda: not reduces.busy)
    assert await now(scene, record) == record
    assert not any(isinstance(asked, Delete) for _, asked in scene.network.asked)


async def test_who_left_while_it_was_dead_is_told_to_delete_when_it_is_back(scene: Scene) -> None:
    record = await with_copies(scene, await block_of_three(scene))
    dead = record.members[0]
    scene.acceptor(dead).alive = False
    lost = view_of(*scene.network.reach, **{dead: StoragePlace(f"dn-{dead}", LOST, live=False)})
    left, gone = await reduced(scene, record, lost)
    assert gone == dead
    await wait_until_async(lambda: len(scene.node.replicas.holders(left)) == 3)
    assert deletes_sent_to(scene, dead) == []
    assert replica_at(scene, dead, record) is not None
    await scene.register(dead)
    await wait_until_async(lambda: replica_at(scene, dead, record) is None)
    assert all(replica_at(scene, member, record) is not None for member in left.members)


async def test_a_late_delete_does_nothing_where_the_storage_is_a_member_again(
    scene: Scene,
) -> None:
    """The reason for the fresh generation, with the real parts."""
    record = await with_copies(scene, await block_of_three(scene))
    left, gone = await reduced(scene, record)
    await wait_until_async(lambda: len(scene.node.replicas.holders(left)) == 3)
    await wait_until_async(lambda: replica_at(scene, gone, record) is None)
    (late,) = deletes_sent_to(scene, gone)
    again = await with_copies(scene, left, 2)
    assert gone in again.members
    assert isinstance(scene.acceptor(gone).answer(late), Nack)
    assert replica_at(scene, gone, record) is not None


async def test_a_block_that_is_deleted_meanwhile_goes_as_a_whole(scene: Scene) -> None:
    record = await with_copies(scene, await block_of_three(scene))
    await scene.service.call(DELETE, DeletePath("/f"))
    reduces = reducer(scene)
    look(scene, record, reduces)
    await wait_until_async(lambda: not reduces.busy)
    await wait_until_async(
        lambda: all(replica_at(scene, each, record) is None for each in record.members)
    )


async def test_who_left_is_not_told_the_version_that_it_did_not_have(scene: Scene) -> None:
    """It would make a copy for no reader, and keep it until it reports that."""
    view = await scene.add_block(await scene.create("/f"))
    scene.write(view, 1, 1, 1)
    slow = view.record.members[2]
    scene.acceptor(slow).alive = False
    entry = await scene.node.finalizer.finalize_by_writer(
        finalize_request(BlockEntry(view.record), 1)
    )
    await wait_until_async(lambda: len(scene.node.replicas.holders(entry.record)) == 2)
    record = await with_copies(scene, entry.record)
    _, gone = await reduced(scene, record)
    assert gone == slow
    told = len(scene.network.asked)
    scene.acceptor(slow).alive = True
    await wait_until_async(lambda: deletes_sent_to(scene, slow) != [])
    assert replica_at(scene, slow, record) is None
    asked = [each for at, each in scene.network.asked[told:] if at == slow]
    assert not any(isinstance(each, Finalize) for each in asked)
