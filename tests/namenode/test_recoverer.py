"""FinalizeBlock(b), K11: the recoverer against real acceptors that lag, die, hang and race."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from paxosblock.api.file_pages import GET_FILE, GetFile
from paxosblock.api.namenode import DELETE, GET_BLOCK, SEAL_BLOCK, BlockRequest, DeletePath
from paxosblock.api.status import EXPLAIN
from paxosblock.config import NameNodeConfig
from paxosblock.errors import NotFoundError, NotReadyError
from paxosblock.protocol.finalize import BlockRecord
from paxosblock.protocol.messages import NextGS, RecoveryWrite
from paxosblock.protocol.types import BlockId, BlockState, ReplicaState, StorageId
from tests.namenode.cluster import CHUNK_BYTES, Network, acceptors
from tests.namenode.memory_store import MemoryStore
from tests.namenode.scene import ANN, Scene, new_scene
from tests.waiting import wait_until_async

IMPATIENT = NameNodeConfig(recovery_timeout_s=1.0)


class MakeScene:
    """Makes scenes that end with the test."""

    def __init__(self) -> None:
        self._scenes: list[Scene] = []

    async def __call__(
        self,
        *,
        store: MemoryStore | None = None,
        network: Network | None = None,
        config: NameNodeConfig | None = None,
    ) -> Scene:
        scene = await new_scene(store=store, network=network, config=config)
        self._scenes.append(scene)
        return scene

    async def close(self) -> None:
        for scene in self._scenes:
            await scene.close()


@pytest.fixture
async def make_scene() -> AsyncIterator[MakeScene]:
    scenes = MakeScene()
    yield scenes
    await scenes.close()


async def written(scene: Scene, *counts: int) -> BlockRecord:
    """An open block of which the members have voted for so many chunks, member by member."""
    view = await scene.add_block(await scene.create("/f"))
    scene.write(view, *counts)
    return view.record


async def seal(scene: Scene, block: BlockId) -> BlockRecord:
    """Ask the service to finalize the block; the record once it is."""
    return (await scene.service.call(SEAL_BLOCK, BlockRequest(block, ANN))).record


def all_finalized(scene: Scene, block: BlockId, length: int) -> bool:
    replicas = [acceptor.replicas.get(block) for acceptor in scene.network.reach.values()]
    return all(
        replica is not None
        and replica.registers.state is ReplicaState.FINALIZED
        and replica.length == length
        for replica in replicas
    )


async def test_a_recovery_keeps_a_chunk_that_every_replica_voted_for(
    make_scene: MakeScene,
) -> None:
    scene = await make_scene()
    record = await written(scene, 3, 3, 3)
    sealed = await seal(scene, record.block)
    assert (sealed.state, sealed.length) == (BlockState.FINALIZED, 3)
    assert sealed.size_bytes == 3 * CHUNK_BYTES


async def test_members_that_lag_are_completed_by_copies_from_each_other(
    make_scene: MakeScene,
) -> None:
    scene = await make_scene()
    record = await written(scene, 4, 3, 2)
    sealed = await seal(scene, record.block)
    await wait_until_async(lambda: all_finalized(scene, sealed.block, sealed.length))
    assert sealed.length in (3, 4)


async def test_a_block_nobody_wrote_to_is_finalized_with_length_zero(
    make_scene: MakeScene,
) -> None:
    scene = await make_scene()
    record = await written(scene, 0, 0, 0)
    sealed = await seal(scene, record.block)
    assert (sealed.finalized, sealed.length, sealed.size_bytes) == (True, 0, 0)


@pytest.mark.parametrize("turns", range(10))
async def test_a_force_may_join_a_recovery_at_any_moment(make_scene: MakeScene, turns: int) -> None:
    """Also while the generation of an attempt without it is allocated (K2)."""
    scene = await make_scene(store=MemoryStore(yielding=True))
    record = await written(scene, 2, 2, 2)
    _, *silent = record.members
    for storage in silent:
        scene.acceptor(storage).alive = False
    alone = asyncio.create_task(scene.node.recoverer.finalize(record.block))
    for _ in range(turns):
        await asyncio.sleep(0)
    forced = await scene.node.recoverer.finalize(record.block, tuple(silent))
    assert (forced.record.length, forced.record.forced) == (2, True)
    assert await alone == forced


@pytest.mark.parametrize("hangs", [False, True])
async def test_one_member_that_is_dead_or_hangs_does_not_delay_the_others(
    make_scene: MakeScene, hangs: bool
) -> None:
    scene = await make_scene(config=NameNodeConfig(recovery_timeout_s=60.0))
    record = await written(scene, 2, 2, 2)
    if hangs:
        scene.network.hung.add(record.members[0])
    else:
        scene.network.reach[record.members[0]].alive = False
    async with asyncio.timeout(5):
        sealed = await seal(scene, record.block)
    assert sealed.length == 2


async def test_without_a_quorum_the_error_says_who_is_silent_and_nothing_is_decided(
    make_scene: MakeScene,
) -> None:
    scene = await make_scene(config=IMPATIENT)
    record = await written(scene, 2, 2, 2)
    for storage in record.members[:2]:
        scene.network.reach[storage].alive = False
    with pytest.raises(NotReadyError) as caught:
        await seal(scene, record.block)
    message = str(caught.value)
    assert "promises from 1 and votes from 0 of 3 members, 2 needed" in message
    assert all(storage in message for storage in record.members[:2])
    undecided = (await scene.service.call(GET_BLOCK, BlockRequest(record.block))).record
    assert undecided.state is BlockState.UNDER_RECOVERY


async def test_a_recovery_that_failed_is_made_good_once_the_members_are_back(
    make_scene: MakeScene,
) -> None:
    scene = await make_scene(config=IMPATIENT)
    record = await written(scene, 2, 2, 2)
    for storage in record.members[:2]:
        scene.network.reach[storage].alive = False
    with pytest.raises(NotReadyError):
        await seal(scene, record.block)
    for storage in record.members[:2]:
        scene.network.reach[storage].crash()
        await scene.register(storage)
    sealed = await seal(scene, record.block)
    assert sealed.length == 2


async def given_up(scene: Scene) -> BlockRecord:
    """A block under recovery, of which two members were away when its writer sealed it; they are
    back, and the writer is gone."""
    record = await written(scene, 2, 2, 2)
    for storage in record.members[:2]:
        scene.network.reach[storage].alive = False
    with pytest.raises(NotReadyError):
        await seal(scene, record.block)
    for storage in record.members[:2]:
        scene.network.reach[storage].crash()
        await scene.register(storage)
    return record


def is_decided(scene: Scene, block: BlockId) -> bool:
    (demand,) = scene.node.catalog.demands((block,))
    return demand is not None and demand.entry.record.finalized


async def test_the_leader_goes_on_with_a_recovery_that_gave_up(make_scene: MakeScene) -> None:
    scene = await make_scene(config=IMPATIENT)
    record = await given_up(scene)
    await wait_until_async(lambda: is_decided(scene, record.block))
    assert (await scene.node.catalog.get_block(record.block)).record.length == 2


async def test_the_next_leader_takes_up_what_is_under_recovery(make_scene: MakeScene) -> None:
    scene = await make_scene(config=IMPATIENT)
    record = await given_up(scene)
    await scene.close()
    after = await make_scene(store=scene.store, network=scene.network, config=IMPATIENT)
    await wait_until_async(lambda: is_decided(after, record.block))


async def test_a_reader_need_not_wait_for_the_end_of_a_long_pause(make_scene: MakeScene) -> None:
    scene = await make_scene(config=IMPATIENT)
    record = await given_up(scene)
    for _ in range(10):
        scene.node.recoverer._stuck[record.block].failed({}, "nobody answered")
    await scene.service.call(GET_FILE, GetFile("/f"))
    await wait_until_async(lambda: is_decided(scene, record.block))


async def test_while_too_few_members_live_no_generation_is_spent(make_scene: MakeScene) -> None:
    scene = await make_scene(config=IMPATIENT)
    record = await given_up(scene)
    scene.clock.now += IMPATIENT.datanode_dead_after_s
    await scene.beat(record.members[0])
    scene.node.recoverer.take_up(record.block)
    before = await scene.node.catalog.get_block(record.block)
    await scene.node.recoverer.turn()
    assert scene.node.recoverer.unended == 1
    assert await scene.node.catalog.get_block(record.block) == before
    await scene.beat(record.members[1])
    await wait_until_async(lambda: is_decided(scene, record.block))


async def test_a_reader_is_told_how_long_and_why_a_block_is_under_recovery(
    make_scene: MakeScene,
) -> None:
    scene = await make_scene(config=IMPATIENT)
    record = await given_up(scene)
    view = await scene.service.call(GET_BLOCK, BlockRequest(record.block))
    assert re.match(r"for \d+ s or longer; the last try failed: block \d+: not rec", view.trouble)
    assert "promises from 1 and votes from 0 of 3 members, 2 needed" in view.trouble


async def test_a_member_that_comes_back_is_finalized_on_its_block_report(
    make_scene: MakeScene,
) -> None:
    scene = await make_scene()
    record = await written(scene, 3, 3, 1)
    away = record.members[2]
    scene.network.reach[away].alive = False
    await seal(scene, record.block)
    scene.network.reach[away].crash()
    await scene.register(away)
    await wait_until_async(lambda: all_finalized(scene, record.block, 3))
    explained = await scene.service.call(EXPLAIN, BlockRequest(record.block))
    assert (explained.hdfs_state, explained.path) == ("complete", "/f")


async def test_those_who_ask_while_a_recovery_runs_join_it(make_scene: MakeScene) -> None:
    scene = await make_scene()
    record = await written(scene, 1, 1, 1)
    answers = await asyncio.gather(*(seal(scene, record.block) for _ in range(10)))
    assert len(set(answers)) == 1
    assert answers[0].generation == 2  # one for the seal, one for its result


async def test_a_finalized_block_is_answered_without_asking_anybody(make_scene: MakeScene) -> None:
    scene = await make_scene()
    record = await written(scene, 0, 0, 0)
    first = await seal(scene, record.block)
    await wait_until_async(lambda: all_finalized(scene, record.block, 0))
    scene.network.asked.clear()
    assert await seal(scene, record.block) == first
    assert scene.network.asked == []


async def test_a_block_that_is_not_there_is_not_found(make_scene: MakeScene) -> None:
    scene = await make_scene()
    with pytest.raises(NotFoundError, match="block 99: no such block"):
        await seal(scene, BlockId(99))


async def test_a_block_that_is_deleted_during_its_recovery_is_not_found(
    make_scene: MakeScene,
) -> None:
    """A member answers before it drops its replica, and one after: it knows of no chunk, which no
    member of a block that is there may say."""
    scene = await make_scene()
    record = await written(scene, 5, 5, 5)
    first, *others = record.members
    for storage in others:
        scene.acceptor(storage).alive = False
    recovery = asyncio.create_task(seal(scene, record.block))
    await wait_until_async(lambda: first in scene.node.recoverer.heard(record.block))
    await scene.service.call(DELETE, DeletePath("/f"))
    await wait_until_async(lambda: scene.node.catalog.demands((record.block,)) == (None,))
    second = scene.acceptor(others[0])
    second.replicas.clear()
    second.alive = True
    with pytest.raises(NotFoundError, match="no such block"):
        await recovery


async def test_the_history_tells_generations_votes_and_lengths(make_scene: MakeScene) -> None:
    scene = await make_scene()
    record = await written(scene, 2, 2, 2)
    await seal(scene, record.block)
    history = (await scene.service.call(EXPLAIN, BlockRequest(record.block))).history
    events = [line.event for line in history]
    assert events[0] == "recovery starts"
    assert events.count("last vote") >= 2
    assert "chose" in events
    assert events.count("recovery vote") >= 2
    recovered = next(line for line in history if line.event == "recovered")
    assert (recovered.generation, recovered.detail) == (2, "length 2")


async def test_recovery_carries_names_of_chunks_and_no_bytes(make_scene: MakeScene) -> None:
    scene = await make_scene()
    record = await written(scene, 3, 3, 3)
    await seal(scene, record.block)
    kinds = {type(question) for _, question in scene.network.asked}
    assert {NextGS, RecoveryWrite} <= kinds
    tails = [q.tail for _, q in scene.network.asked if isinstance(q, RecoveryWrite)]
    assert all(len(tail) == 2 for tail in tails)  # the window, as length and checksum


@pytest.mark.parametrize("seed", range(15))
async def test_two_namenodes_that_race_on_one_store_agree_under_loss_and_delay(
    make_scene: MakeScene, seed: int
) -> None:
    chance = random.Random(seed)
    store = MemoryStore(yielding=True)
    reach = acceptors("s1", "s2", "s3")
    networks = [
        Network(reach, loss=0.2, turns_max=6, random=random.Random(f"{seed}/{name}"))
        for name in ("first", "second")
    ]
    first = await make_scene(store=store, network=networks[0])
    second = await make_scene(store=store, network=networks[1])
    acknowledged = chance.randint(0, 3)
    record = await written(first, *(acknowledged + chance.randint(0, 2) for _ in range(3)))
    answers = await asyncio.gather(
        first.node.recoverer.finalize(record.block), second.node.recoverer.finalize(record.block)
    )
    assert answers[0].record == answers[1].record
    assert answers[0].record.length >= acknowledged
    await wait_until_async(lambda: all_finalized(first, record.block, answers[0].record.length))


@pytest.mark.parametrize("seed", range(15))
async def test_crashing_members_never_lose_an_acknowledged_chunk(
    make_scene: MakeScene, seed: int
) -> None:
    chance = random.Random(seed)
    scene = await make_scene(
        network=Network(acceptors("s1", "s2", "s3"), turns_max=5, random=random.Random(seed))
    )
    acknowledged = chance.randint(1, 3)
    record = await written(scene, *(acknowledged + chance.randint(0, 2) for _ in range(3)))
    victim = chance.choice(record.members)
    sealing = asyncio.create_task(seal(scene, record.block))
    for _ in range(chance.randint(0, 20)):
        await asyncio.sleep(0)
    scene.network.reach[victim].alive = False
    scene.network.reach[victim].crash()
    sealed = await sealing
    assert sealed.length >= acknowledged
    await scene.register(victim)
    await wait_until_async(lambda: all_finalized(scene, sealed.block, sealed.length))


async def test_when_the_only_holder_of_what_was_chosen_dies_a_new_generation_chooses_at_once(
    make_scene: MakeScene,
) -> None:
    scene = await make_scene()
    record = await written(scene, 3, 2, 2)
    ahead, second, third = record.members
    scene.network.reach[second].peers = scene.network.reach[third].peers = {}
    sealing = asyncio.create_task(seal(scene, record.block))
    await wait_until_async(lambda: has_happened(scene, record.block, "refused"))
    scene.network.reach[ahead].alive = False
    assert (await sealing).length == 2
    assert not has_happened(scene, record.block, "recovery takes too long")


async def test_a_member_that_refused_is_asked_again(make_scene: MakeScene) -> None:
    """The second member lacks a chunk and cannot reach its holder at first."""
    scene = await make_scene()
    record = await written(scene, 3, 2, 2)
    _, second, third = record.members
    scene.network.hung.add(third)
    peers = scene.network.reach[second].peers
    scene.network.reach[second].peers = {}
    sealing = asyncio.create_task(seal(scene, record.block))
    await wait_until_async(lambda: has_happened(scene, record.block, "refused"))
    scene.network.reach[second].peers = peers
    assert (await sealing).generation == 2  # the first recovery's, and its result's


def has_happened(scene: Scene, block: BlockId, event: str) -> bool:
    return event in [line.event for line in scene.node.history.of(block)]


async def test_weak_members_wait_for_a_strong_one(make_scene: MakeScene) -> None:
    scene = await make_scene(config=IMPATIENT)
    record = await written(scene, 2, 2, 2)
    first, second, strong = record.members
    lose_votes(scene, record.block, first)
    lose_votes(scene, record.block, second)
    scene.network.reach[strong].alive = False
    with pytest.raises(NotReadyError, match=rf"all of them weak; unreachable: {strong}$"):
        await seal(scene, record.block)
    scene.network.reach[strong].alive = True
    sealed = await seal(scene, record.block)
    assert sealed.length == 2


async def test_a_last_attempt_without_time_does_not_hide_who_answered_before(
    make_scene: MakeScene,
) -> None:
    scene = await make_scene(config=NameNodeConfig(recovery_timeout_s=1.2))
    record = await written(scene, 2, 2, 2)
    answers, *silent = record.members
    scene.network.hung.update(silent)
    sealing = asyncio.create_task(seal(scene, record.block))
    await wait_until_async(lambda: scene.node.recoverer.heard(record.block))
    scene.network.hung.add(answers)
    with pytest.raises(NotReadyError, match=f"promises from 1 .*unreachable: {', '.join(silent)}$"):
        await sealing


def lose_votes(scene: Scene, block: BlockId, storage: StorageId) -> None:
    """The machine crashes and takes all votes with it that were in memory only."""
    replica = scene.network.reach[storage].replicas[block]
    scene.network.reach[storage].replicas[block] = replace(
        replica.having(weak=True), log=replica.log.truncate(0), restarted=True
    )
