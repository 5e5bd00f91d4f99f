"""Blocks that lost a replica get another one, and no others do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from itertools import combinations

import pytest
from msgspec.structs import replace

from paxosblock.api.care import SET_REPLICATION, SetReplication
from paxosblock.api.namenode import (
    DELETE,
    FINALIZE_BLOCK,
    GET_BLOCK,
    NO_BLOCK,
    RENEW_LEASES,
    BlockRequest,
    DeletePath,
    OpenBlock,
    RenewLeases,
)
from paxosblock.api.reports import ALL_BLOCKS, BLOCK_REPORT, REGISTER, Register, StorageReport
from paxosblock.api.status import (
    EXPLAIN,
    SAFE_MODE,
    ReplicationStatus,
    SafeModeAction,
    SafeModeRequest,
)
from paxosblock.base.units import GIB
from paxosblock.config import NameNodeConfig
from paxosblock.errors import NoSpaceError
from paxosblock.namenode.blocks.acceptors import Answer, Question
from paxosblock.namenode.blocks.replication import copies, monitor
from paxosblock.namenode.blocks.replication.copies import Copy
from paxosblock.namenode.catalog.records import BlockEntry
from paxosblock.protocol import finalize
from paxosblock.protocol.finalize import BlockRecord, Refused, finalize_message
from paxosblock.protocol.messages import Delete, Finalize, Finalized
from paxosblock.protocol.types import BlockId, Generation, ReplicaState, StorageId, WriterId
from tests.namenode.cluster import Network, acceptors
from tests.namenode.scene import ANN, Scene, finalize_request, new_scene
from tests.waiting import wait_until_async

DEAD_S = 15.0
LOST_S = 45.0
"""Silence after which what a DataNode holds is made again: dead, and `replicate_after` over."""
NAMES = ("s1", "s2", "s3", "s4")


class Refusing(Network):
    """Storages that are full answer so."""

    full: frozenset[str] = frozenset()

    async def ask(
        self, storage: StorageId, question: Question, *, timeout_s: float | None = None
    ) -> Answer:
        if storage in self.full and isinstance(question, Finalize):
            self.asked.append((storage, question))
            raise NoSpaceError(f"storage {storage} has no room")
        return await super().ask(storage, question, timeout_s=timeout_s)


async def scene_of(*names: str, config: NameNodeConfig | None = None) -> Scene:
    """DataNodes with an empty storage each."""
    return await new_scene(network=Refusing(acceptors(*names)), config=config)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = await scene_of(*NAMES)
    yield scene
    await scene.close()


async def blocks_of_three(scene: Scene, count: int = 1, path: str = "/f") -> list[BlockRecord]:
    """A file of so many blocks; all members hold them and have told so."""
    file, previous, records = await scene.create(path), NO_BLOCK, []
    for _ in range(count):
        view = await scene.add_block(file, previous)
        scene.write(view, *[1] * len(view.record.members))
        request = finalize_request(BlockEntry(view.record), 1)
        records.append((await scene.service.call(FINALIZE_BLOCK, request)).record)
        previous = view.record.block
        await scene.beat(*alive(scene))  # blocks are counted as open no more, and spread
    held = scene.node.replicas.holders
    await wait_until_async(lambda: all(len(held(each)) == len(each.members) for each in records))
    return records


async def record_of(scene: Scene, block: BlockId) -> BlockRecord:
    return (await scene.service.call(GET_BLOCK, BlockRequest(block))).record


async def silent(scene: Scene, silence_s: float, *storages: str) -> None:
    """Time passes in which all DataNodes but these are heard of."""
    for storage in storages:
        scene.acceptor(storage).alive = False
    scene.clock.now += silence_s
    await scene.beat(*(name for name in scene.network.reach if name not in storages))


def alive(scene: Scene) -> list[str]:
    return [name for name, each in scene.network.reach.items() if each.alive]


async def turn(scene: Scene) -> None:
    """One turn of the monitor with a view of this moment, and all that it began."""
    scene.clock.now += scene.node.config.heartbeat_interval_s
    await scene.beat(*alive(scene))
    await scene.node.monitor.turn()
    await wait_until_async(lambda: len(scene.node.copies) == 0)
    await scene.node.monitor.turn()
    await wait_until_async(lambda: not (scene.node.reducer.busy or len(scene.node.copies)))


def copied_to(scene: Scene, record: BlockRecord) -> list[str]:
    """The storages that were asked to make a copy, in order."""
    return [
        storage
        for storage, asked in scene.network.asked
        if isinstance(asked, Finalize)
        and (asked.block, asked.finalized_generation) == (record.block, record.finalized_generation)
        and storage not in record.members
    ]


def stranger(record: BlockRecord) -> str:
    """The one of the four storages that is no member."""
    (name,) = set(NAMES) - set(record.members)
    return name


NONE = ReplicationStatus()
WRITER = WriterId("appender")
Rule = Callable[[BlockRecord], BlockRecord | Refused]


async def test_a_lost_replica_comes_back_elsewhere(scene: Scene) -> None:
    (record,) = await blocks_of_three(scene)
    lost, new = record.members[0], stranger(record)
    await silent(scene, LOST_S, lost)
    await scene.node.monitor.turn()
    await turn(scene)
    after = await record_of(scene, record.block)
    assert set(after.members) == {*record.members, new} - {lost}
    replica = scene.acceptor(new).replicas[record.block]
    assert (replica.registers.state, replica.length) == (ReplicaState.FINALIZED, 1)
    assert copied_to(scene, record) == [new]
    assert scene.node.monitor.status == NONE
    await turn(scene)
    assert copied_to(scene, record) == [new]


async def scene_without_s3() -> Scene:
    """A NameNode that has been up for long enough to settle for fewer members than asked for."""
    network = Network(acceptors("s1", "s2", "s3"))
    network.reach[StorageId("s3")].alive = False
    scene = await new_scene(network=network)
    await silent(scene, LOST_S, "s3")
    return scene


async def test_a_block_with_too_few_members_is_copied_before_the_walk_finds_it() -> None:
    scene = await scene_without_s3()
    (record,) = await blocks_of_three(scene)
    await turn(scene)
    assert scene.node.monitor.status == ReplicationStatus(waiting=1), "there is nowhere to copy to"
    await scene.register("s3")
    await turn(scene)
    assert set((await record_of(scene, record.block)).members) == {"s1", "s2", "s3"}
    assert scene.node.monitor.status == NONE
    await scene.close()


async def test_a_member_that_died_before_it_reported_is_replaced_before_the_walk_finds_it(
    scene: Scene,
) -> None:
    """No storage that is lost held the block, by what was reported."""
    view = await scene.add_block(await scene.create("/f"))
    scene.write(view, 1, 1, 1)
    dead = view.record.members[0]
    scene.acceptor(dead).alive = False
    request = finalize_request(BlockEntry(view.record), 1)
    record = (await scene.service.call(FINALIZE_BLOCK, request)).record
    holders = scene.node.replicas.holders
    await wait_until_async(lambda: len(holders(record)) == 2)
    await wait_until_async(lambda: [each for each, _ in scene.network.asked].count(dead) > 2)
    await silent(scene, LOST_S, dead)
    await scene.node.monitor.turn()
    await turn(scene)
    assert copied_to(scene, record) == [stranger(record)]


async def unheard_of(scene: Scene) -> tuple[BlockRecord, StorageId]:
    """A block that the leader before decided, and a member that did not report it to this one,
    whose first walk is over."""
    (record,) = await blocks_of_three(scene)
    silent_one = record.members[0]
    scene.node.datanodes.ask_for_reports()  # as one that begins to lead does
    scene.node.replicas.forget(record.block, silent_one)
    for storage in set(NAMES) - {silent_one}:
        await scene.report(storage)
    await scene.node.monitor.walk()
    await turn(scene)
    assert scene.node.monitor.status == NONE
    return record, silent_one


async def test_a_member_that_never_reported_to_this_leader_is_replaced_before_the_next_walk(
    scene: Scene,
) -> None:
    record, dead = await unheard_of(scene)
    await silent(scene, LOST_S, dead)
    await scene.node.monitor.turn()
    await turn(scene)
    assert copied_to(scene, record) == [stranger(record)]


async def test_a_member_whose_first_report_lacks_a_block_is_replaced_before_the_next_walk(
    scene: Scene,
) -> None:
    record, member = await unheard_of(scene)
    scene.network.hung.add(member)  # nor does it fetch the block
    scene.acceptor(member).replicas.clear()
    await scene.report(member)
    await turn(scene)
    assert copied_to(scene, record) == [], "it may mend"
    scene.clock.now += scene.node.config.replicate_after_s
    await turn(scene)
    assert copied_to(scene, record) == [stranger(record)]


async def test_the_first_walk_of_a_term_begins_with_the_newest_blocks(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = [record.block for record in await blocks_of_three(scene, 4)]
    behind_the_second = 1 + scene.node.catalog.newest(1) - blocks[1]
    monkeypatch.setattr(monitor, "NEWEST", behind_the_second)
    await silent(scene, LOST_S, "s3", "s4")
    seen = list[BlockId]()
    scene.node.monitor.clear()
    monkeypatch.setattr(
        scene.node.monitor, "_looked", lambda entry, *_: seen.append(entry.record.block)
    )
    await scene.node.monitor.walk()
    assert seen == [*blocks[2:], *blocks]


async def test_a_block_that_is_being_written_at_too_few_datanodes_is_counted() -> None:
    scene = await scene_without_s3()
    view = await scene.add_block(await scene.create("/f"))
    renewed = RenewLeases((ANN,), (OpenBlock(view.record.block, short=True),))
    await scene.service.call(RENEW_LEASES, renewed)
    await turn(scene)
    assert scene.node.monitor.status == ReplicationStatus(short=1)
    await turn(scene)
    assert scene.node.monitor.status == ReplicationStatus(short=1), "it still is"
    await scene.service.call(DELETE, DeletePath("/f"))
    await turn(scene)
    assert scene.node.monitor.status == NONE
    await scene.close()


async def test_a_node_that_is_back_in_time_costs_no_copy(scene: Scene) -> None:
    (record,) = await blocks_of_three(scene)
    back = record.members[0]
    await silent(scene, LOST_S - 5, back)
    await turn(scene)
    assert (copied_to(scene, record), scene.node.monitor.status) == ([], NONE)
    await scene.register(back)
    await silent(scene, LOST_S)
    await turn(scene)
    assert copied_to(scene, record) == []


async def test_a_copy_that_was_not_begun_is_dropped_when_the_node_is_back(scene: Scene) -> None:
    (record,) = await blocks_of_three(scene)
    await scene.service.call(SAFE_MODE, SafeModeRequest(SafeModeAction.ENTER))
    await silent(scene, LOST_S, record.members[0])
    await turn(scene)
    assert scene.node.monitor.status == ReplicationStatus(waiting=1)
    await scene.register(record.members[0])
    await turn(scene)
    assert scene.node.monitor.status == NONE
    await scene.service.call(SAFE_MODE, SafeModeRequest(SafeModeAction.LEAVE))
    await turn(scene)
    assert copied_to(scene, record) == []


async def test_a_failed_volume_is_not_waited_for(scene: Scene) -> None:
    (record,) = await blocks_of_three(scene)
    await scene.beat(record.members[0], failed="no disk")
    scene.clock.now += 1.0
    await scene.beat(*record.members[1:], stranger(record))
    await scene.node.monitor.turn()
    await wait_until_async(lambda: len(scene.node.copies) == 0)
    assert copied_to(scene, record) == [stranger(record)]


async def test_a_failed_volume_s_blocks_come_back_on_another_volume_of_its_node(
    scene: Scene,
) -> None:
    (record,) = await blocks_of_three(scene)
    lost, other = record.members[0], stranger(record)
    await silent(scene, scene.node.config.datanode_dead_after_s, other)
    scene.acceptor(other).alive = True
    node = f"dn-{lost}"
    rooms = tuple(
        StorageReport(StorageId(storage), GIB, GIB, 0, failed)
        for storage, failed in ((lost, "no disk"), (other, ""))
    )
    await scene.service.call(REGISTER, Register(node, f"{node}:9864", "run-2", rooms))
    report = replace(scene.written(other, ALL_BLOCKS), node=node, incarnation="run-2")
    await scene.service.call(BLOCK_REPORT, report)
    await scene.node.monitor.turn()
    await wait_until_async(lambda: len(scene.node.copies) == 0)
    assert copied_to(scene, record) == [other]


def copies_asked(scene: Scene, records: list[BlockRecord]) -> list[tuple[StorageId, Finalize]]:
    """The targets of copies with what they were asked, in order."""
    known = {record.block: record for record in records}
    return [
        (target, asked)
        for target, asked in scene.network.asked
        if isinstance(asked, Finalize)
        and target not in known[asked.block].members
        and asked.finalized_generation == known[asked.block].finalized_generation
    ]


async def test_blocks_with_the_fewest_replicas_come_first(scene: Scene) -> None:
    await scene.close()
    few = NameNodeConfig(copies_per_source=1, copies_per_target=1)
    scene = await scene_of(*NAMES, "s5", config=few)
    try:
        records, left, lost = await blocks_of_three(scene, 20), dict[BlockId, int](), ("", "")
        for lost in combinations(scene.network.reach, 2):
            left = {each.block: len(set(each.members) - set(lost)) for each in records}
            if {1, 2} <= set(left.values()):
                break
        assert {1, 2} <= set(left.values()), "where blocks are is left to chance, but not so much"
        await silent(scene, LOST_S, *lost)
        await scene.node.monitor.turn()
        await wait_until_async(lambda: scene.node.monitor.status == NONE)
        order = [left[asked.block] for _, asked in copies_asked(scene, records)]
        assert order[0] == 1
        assert order.count(1) == 2 * sum(each == 1 for each in left.values())
        assert order.count(2) == sum(each == 2 for each in left.values())
    finally:
        await scene.close()


async def test_sources_and_targets_get_no_more_copies_than_they_may(scene: Scene) -> None:
    await scene.close()
    few = NameNodeConfig(copies_per_source=2, copies_per_target=3)
    scene = await scene_of(*NAMES, config=few)
    try:
        records = await blocks_of_three(scene, 30)
        scene.network.hung.update(map(StorageId, NAMES))
        await silent(scene, LOST_S, "s1")
        await scene.node.monitor.turn()
        status = scene.node.monitor.status
        lacking = sum(StorageId("s1") in each.members for each in records)
        assert status.under_way + status.waiting == lacking
        await wait_until_async(lambda: len(copies_asked(scene, records)) == status.under_way)
        asked = copies_asked(scene, records)
        for name in NAMES:
            assert sum(target == name for target, _ in asked) <= 3
            assert sum(question.holders[0] == name for _, question in asked) <= 2
        assert len(asked) >= 4
    finally:
        await scene.close()


async def copy_without_answer(scene: Scene) -> tuple[BlockRecord, StorageId]:
    """Begin the copy of a block that lost a member, to a storage that never answers."""
    (record,) = await blocks_of_three(scene)
    target = StorageId(stranger(record))
    scene.network.hung.add(target)
    await silent(scene, LOST_S, record.members[0])
    await scene.node.monitor.turn()
    await wait_until_async(lambda: copied_to(scene, record) == [target])
    return record, target


async def test_a_copy_is_given_up_when_another_process_takes_the_place_of_the_one_asked(
    scene: Scene,
) -> None:
    """The one asked never answers: its machine lost power, so that no reset came of its end."""
    record, target = await copy_without_answer(scene)
    await scene.register(target)
    assert len(scene.node.copies) == 1, "it is the same process"
    scene.network.hung.clear()
    await scene.register(target, incarnation="run-2")
    await wait_until_async(lambda: len(scene.node.copies) == 0)
    scene.clock.now += copies.REST_S
    await turn(scene)
    assert target in (await record_of(scene, record.block)).members


async def test_a_copy_is_given_up_when_the_datanode_that_was_asked_is_dead(scene: Scene) -> None:
    record, target = await copy_without_answer(scene)
    await silent(scene, scene.node.config.datanode_dead_after_s, record.members[0], target)
    await scene.node.monitor.turn()
    await wait_until_async(lambda: len(scene.node.copies) == 0)


async def test_a_copy_that_is_given_up_before_its_first_step_has_ended(scene: Scene) -> None:
    (record,) = await blocks_of_three(scene)
    target = StorageId(stranger(record))
    scene.node.copies.start(Copy(record, record.members, "dn-s1", target, f"dn-{target}"))
    node = scene.node.datanodes.home(target)
    assert node is not None
    again = Register(node.node, node.address, "run-2", tuple(node.storages.values()))
    scene.node.datanodes.register(again, scene.clock.now, ended={node.incarnation})
    scene.node.copies.give_up_lost()
    await wait_until_async(lambda: len(scene.node.copies) == 0)
    assert copied_to(scene, record) == []


async def test_without_a_place_a_block_waits_and_gets_the_next_node_that_comes() -> None:
    scene = await scene_of("s1", "s2", "s3")
    try:
        (record,) = await blocks_of_three(scene)
        await silent(scene, LOST_S, "s1")
        await turn(scene)
        assert scene.node.monitor.status == ReplicationStatus(waiting=1)
        scene.network.reach |= acceptors("s4")
        for acceptor in scene.network.reach.values():
            acceptor.peers = scene.network.reach
        await scene.register("s4")
        await turn(scene)
        assert copied_to(scene, record) == ["s4"]
        assert scene.node.monitor.status == NONE
    finally:
        await scene.close()


async def test_a_target_without_room_rests_and_another_one_is_taken(scene: Scene) -> None:
    await scene.close()
    scene = await scene_of(*NAMES, "s5")
    try:
        (record,) = await blocks_of_three(scene)
        full, other = sorted(set(scene.network.reach) - set(record.members))
        assert isinstance(scene.network, Refusing)
        scene.network.full = frozenset({full, other})
        await silent(scene, LOST_S, record.members[0])
        await turn(scene)
        tried = copied_to(scene, record)
        scene.network.full -= {full}
        await turn(scene)
        assert set(tried) <= {full, other}
        scene.clock.now += 10
        await turn(scene)
        assert full in (await record_of(scene, record.block)).members
        outcomes = scene.node.copies.outcomes
        assert (outcomes["made"], outcomes["failed"] >= 1) == (1, True)
    finally:
        await scene.close()


async def test_what_a_datanode_has_not_reported_yet_is_not_lost(scene: Scene) -> None:
    (record,) = await blocks_of_three(scene)
    late = record.members[0]
    scene.node.datanodes.ask_for_reports()  # as one that begins to lead does
    scene.node.replicas.forget(record.block, late)
    scene.network.hung.add(late)
    for _ in range(2):
        await turn(scene)
        await scene.node.monitor.walk()
        await silent(scene, 31)
    await turn(scene)
    assert (copied_to(scene, record), scene.node.monitor.status) == ([], NONE)


async def test_a_block_without_any_replica_left_is_missing_and_an_alarm(scene: Scene) -> None:
    (record,) = await blocks_of_three(scene)
    await silent(scene, LOST_S - 5, *record.members)
    await turn(scene)
    assert scene.node.monitor.status.missing == 0
    await silent(scene, 5, *record.members)
    await turn(scene)
    assert scene.node.monitor.status == ReplicationStatus(missing=1)
    assert scene.node.alarms.counts["missing"] == 1
    (told,) = scene.node.alarms.latest()
    assert told.endswith(f"no replica is left that can be read block={record.block}")
    await scene.register(record.members[0])
    await turn(scene)
    assert scene.node.monitor.status.missing == 0
    await turn(scene)
    assert stranger(record) in (await record_of(scene, record.block)).members


async def test_a_block_whose_members_have_not_told_of_its_version_yet_is_not_missing(
    scene: Scene,
) -> None:
    (record,) = await blocks_of_three(scene)
    await silent(scene, LOST_S, record.members[0])
    for _ in range(5):  # each line that is appended makes another version
        scene.network.hung.update(record.members)
        entry = await scene.node.catalog.change_block(record.block, end_anew)
        assert isinstance(entry, BlockEntry)
        for member in record.members:
            scene.node.replicas.forget(record.block, member)
        await silent(scene, 7, record.members[0])
        scene.node.monitor.look_at(record.block)
        await turn(scene)
        assert (scene.node.monitor.status.missing, scene.node.alarms.latest()) == (0, ())


def end_anew(record: BlockRecord) -> BlockRecord:
    """The record after K4 and K9: the same chunks under another generation."""
    generation = Generation(record.generation + 2)
    return replace(record, generation=generation, finalized_generation=generation)


async def test_the_alarm_about_a_missing_block_ends_when_it_is_there_again(scene: Scene) -> None:
    (record,) = await blocks_of_three(scene)
    await silent(scene, LOST_S, *record.members)
    await turn(scene)
    assert len(scene.node.alarms.latest()) == 1
    await scene.register(record.members[0])
    await turn(scene)
    assert scene.node.alarms.latest() == ()
    assert scene.node.alarms.counts["missing"] == 0


async def test_a_missing_block_is_no_alarm_in_safe_mode(scene: Scene) -> None:
    (record,) = await blocks_of_three(scene)
    await scene.service.call(SAFE_MODE, SafeModeRequest(SafeModeAction.ENTER))
    await silent(scene, LOST_S, *record.members)
    await turn(scene)
    assert scene.node.monitor.status == ReplicationStatus(missing=1)
    assert scene.node.alarms.counts["missing"] == 0
    await scene.service.call(SAFE_MODE, SafeModeRequest(SafeModeAction.LEAVE))
    await turn(scene)
    assert scene.node.alarms.counts["missing"] == 1


async def test_a_damaged_replica_is_counted_until_it_is_replaced(scene: Scene) -> None:
    (record,) = await blocks_of_three(scene)
    bad = record.members[0]
    scene.network.hung.add(bad)
    await scene.node.reports.damaged(record.block, bad, "bytes do not match")
    scene.node.monitor.look_at(record.block)
    await turn(scene)
    assert scene.node.monitor.status == ReplicationStatus(corrupt=1)
    scene.network.hung.clear()
    await scene.node.monitor.walk()
    scene.acceptor(bad).alive = True
    await scene.report(bad)
    await turn(scene)
    assert (copied_to(scene, record), scene.node.monitor.status) == ([], NONE)


async def test_a_damaged_replica_that_cannot_be_replaced_comes_back_elsewhere(
    scene: Scene,
) -> None:
    (record,) = await blocks_of_three(scene)
    bad = record.members[0]
    scene.network.hung.add(bad)
    await scene.node.reports.damaged(record.block, bad, "bytes do not match")
    scene.node.monitor.look_at(record.block)
    await turn(scene)
    assert copied_to(scene, record) == []
    await silent(scene, 31)
    await turn(scene)
    assert copied_to(scene, record) == [stranger(record)]


async def test_a_member_that_lost_a_block_is_told_again_before_another_gets_it(
    scene: Scene,
) -> None:
    (record,) = await blocks_of_three(scene)
    await turn(scene)
    gone = record.members[0]
    del scene.acceptor(gone).replicas[record.block]
    scene.node.replicas.forget(record.block, gone)
    scene.network.hung.add(gone)
    await scene.node.monitor.walk()
    await turn(scene)
    assert (copied_to(scene, record), scene.node.monitor.status) == ([], NONE)
    await silent(scene, 31)
    await turn(scene)
    assert copied_to(scene, record) == [stranger(record)]


async def test_a_file_that_asks_for_more_gets_more(scene: Scene) -> None:
    (record,) = await blocks_of_three(scene)
    await scene.service.call(SET_REPLICATION, SetReplication("/f", 4))
    await scene.node.monitor.walk()
    await turn(scene)
    assert copied_to(scene, record) == [stranger(record)]


async def test_blocks_of_deleted_files_and_open_ones_are_let_be(scene: Scene) -> None:
    (record,) = await blocks_of_three(scene)
    open_view = await scene.add_block(await scene.create("/open"))
    await scene.service.call(DELETE, DeletePath("/f"))
    await silent(scene, LOST_S, *record.members[:1], *open_view.record.members[:1])
    await scene.node.monitor.walk()
    await turn(scene)
    assert copied_to(scene, record) == copied_to(scene, open_view.record) == []
    assert scene.node.monitor.status == ReplicationStatus(short=1)


async def test_a_copy_whose_target_dies_is_given_up_for_another(scene: Scene) -> None:
    await scene.close()
    scene = await scene_of(*NAMES, "s5")
    try:
        (record,) = await blocks_of_three(scene)
        first, second = sorted(set(scene.network.reach) - set(record.members))
        scene.network.hung.update(map(StorageId, (first, second)))
        await silent(scene, LOST_S, record.members[0])
        await scene.node.monitor.turn()
        await wait_until_async(lambda: len(copied_to(scene, record)) == 1)
        (target,) = copied_to(scene, record)
        shown = (await scene.service.call(EXPLAIN, BlockRequest(record.block))).copied_to
        assert shown is not None
        assert shown.storage == target
        other = second if target == first else first
        scene.network.hung.clear()
        await silent(scene, DEAD_S + 1, record.members[0], target)
        await scene.node.monitor.turn()
        await turn(scene)
        assert copied_to(scene, record) == [target, other]
        assert other in (await record_of(scene, record.block)).members
        assert (await scene.service.call(EXPLAIN, BlockRequest(record.block))).copied_to is None
    finally:
        await scene.close()


async def test_a_finished_copy_that_nobody_knows_of_becomes_a_member(scene: Scene) -> None:
    """The NameNode that asked for it has lost its office, or its answer was lost."""
    (record,) = await blocks_of_three(scene)
    new = stranger(record)
    await silent(scene, LOST_S, record.members[0])
    asked = Finalize(
        record.block,
        record.finalized_generation,
        record.writer_generation,
        record.length,
        record.size_bytes,
        record.members[1:],
        record.window,
        record.durability,
    )
    scene.acceptor(new).answer(asked)
    await scene.report(new, full=False)
    await turn(scene)
    assert new in (await record_of(scene, record.block)).members
    assert (copied_to(scene, record), scene.node.monitor.status) == ([], NONE)


async def test_a_copy_of_a_block_that_was_deleted_meanwhile_is_deleted(scene: Scene) -> None:
    (record,) = await blocks_of_three(scene)
    new = stranger(record)
    generation = record.finalized_generation
    await scene.service.call(DELETE, DeletePath("/f"))
    await wait_until_async(lambda: not scene.acceptor(record.members[0]).replicas)
    scene.network.asked.clear()
    await scene.node.copies.adopt(record.block, StorageId(new), generation)
    await wait_until_async(lambda: bool(scene.network.asked))
    assert scene.network.asked == [(new, Delete(record.block, generation))]


async def test_a_copy_of_a_version_that_is_over_is_deleted_below_the_current_one(
    scene: Scene,
) -> None:
    (record,) = await blocks_of_three(scene)
    leaving, *staying = record.members
    left = await scene.node.catalog.remove_replica(
        record.block, leaving, record.finalized_generation, tuple(staying)
    )
    assert not isinstance(left, BlockEntry), "two stay of three that are asked for"
    await scene.service.call(SET_REPLICATION, SetReplication("/f", 2))
    await scene.node.catalog.remove_replica(
        record.block, leaving, record.finalized_generation, tuple(staying)
    )
    scene.network.asked.clear()
    new = StorageId(stranger(record))
    await scene.node.copies.adopt(record.block, new, record.finalized_generation)
    await wait_until_async(lambda: bool(scene.network.asked))
    assert scene.network.asked == [(new, Delete(record.block, record.finalized_generation))]
    assert new not in (await record_of(scene, record.block)).members


def changes_after_a_copy(scene: Scene, record: BlockRecord, *rules: Rule) -> None:
    """As soon as a stranger has reported its copy, and before K12, the record changes so."""
    network, ask, left = scene.network, scene.network.ask, list(rules)

    async def changed(
        storage: StorageId, question: Question, *, timeout_s: float | None = None
    ) -> Answer:
        answer = await ask(storage, question, timeout_s=timeout_s)
        if isinstance(answer, Finalized) and storage not in record.members:
            while left:
                await scene.node.catalog.change_block(record.block, left.pop(0))
        return answer

    network.ask = changed  # type: ignore[method-assign] # something else comes between


async def test_a_copy_that_met_a_later_version_of_the_epoch_is_finished_and_not_made_anew(
    scene: Scene,
) -> None:
    (record,) = await blocks_of_three(scene)
    new = StorageId(stranger(record))
    changes_after_a_copy(scene, record, lambda seen: finalize.truncate(seen, 0, 0))
    await silent(scene, LOST_S, record.members[0])
    scene.network.asked.clear()
    await scene.node.monitor.turn()
    await wait_until_async(lambda: len(scene.node.copies) == 0)
    after = await record_of(scene, record.block)
    assert new in after.members
    told = [asked for storage, asked in scene.network.asked if storage == new]
    assert told == [
        finalize_message(record, record.members[1:]),
        finalize_message(after, record.members[1:]),
    ]
    assert scene.acceptor(new).replicas[record.block].length == 0
    assert scene.node.copies.outcomes == {"made": 1, "failed": 0}


def appended(record: BlockRecord, allocated: int) -> tuple[Rule, ...]:
    """K4, K7 and K6: the block was appended to, in the epoch `allocated`."""
    epoch = Generation(allocated)
    return (
        finalize.allocate_append,
        lambda seen: finalize.install_append(
            seen, record.writer_generation, epoch, record.members, WRITER
        ),
        lambda seen: finalize.finalize_by_writer(seen, WRITER, epoch, 1, record.size_bytes),
    )


async def test_a_copy_that_met_another_epoch_goes_on_from_what_it_has(scene: Scene) -> None:
    (record,) = await blocks_of_three(scene)
    new = StorageId(stranger(record))
    changes_after_a_copy(scene, record, *appended(record, record.generation + 1))
    await silent(scene, LOST_S, record.members[0])
    scene.network.asked.clear()
    await scene.node.monitor.turn()
    await wait_until_async(lambda: len(scene.node.copies) == 0)
    after = await record_of(scene, record.block)
    assert (after.finalized, after.writer_generation) == (True, record.generation + 1)
    assert new in after.members
    told = [asked for storage, asked in scene.network.asked if storage == new]
    assert told == [
        finalize_message(record, record.members[1:]),
        finalize_message(after, record.members[1:], beginning=record.finalized_generation),
    ]
    assert scene.node.copies.outcomes == {"made": 1, "failed": 0}


async def test_a_copy_that_met_another_epoch_behind_a_cut_is_deleted(scene: Scene) -> None:
    """The chunks that were cut, and those that came after, have the same numbers."""
    (record,) = await blocks_of_three(scene)
    new = StorageId(stranger(record))
    rules = appended(record, record.generation + 2)
    changes_after_a_copy(scene, record, lambda seen: finalize.truncate(seen, 0, 0), *rules)
    await silent(scene, LOST_S, record.members[0])
    await scene.node.monitor.turn()
    await wait_until_async(lambda: len(scene.node.copies) == 0)
    after = await record_of(scene, record.block)
    assert (after.writer_generation, new in after.members) == (record.generation + 2, False)
    await wait_until_async(lambda: record.block not in scene.acceptor(new).replicas)
    assert scene.node.copies.outcomes == {"made": 0, "failed": 1}


async def test_the_end_of_a_term_ends_its_copies(scene: Scene) -> None:
    (record,) = await blocks_of_three(scene)
    scene.network.hung.add(StorageId(stranger(record)))
    await silent(scene, LOST_S, record.members[0])
    await scene.node.monitor.turn()
    assert scene.node.monitor.status == ReplicationStatus(under_way=1)
    await scene.close()
    assert scene.node.monitor.status == NONE
    assert [task.get_name() for task in asyncio.all_tasks() if "copy" in task.get_name()] == []
