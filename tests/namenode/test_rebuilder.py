"""Rebuild(b): K3, P1 to P4, K7, P6 against real acceptors; the policies with real placement."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace

import msgspec
import pytest

from paxosblock.api.namenode import (
    ADD_BLOCK,
    APPEND,
    CLOSE_FILE,
    FINALIZE_BLOCK,
    REOPEN_BLOCK,
    SEAL_BLOCK,
    TAKE_OVER,
    AddBlock,
    AppendFile,
    BlockRequest,
    BlockView,
    CloseFile,
    Excluded,
    FinalizeBlock,
    ReopenBlock,
    TakeOver,
)
from paxosblock.api.rebuild import REBUILD_BLOCK, RebuildBlock
from paxosblock.base.replacement import Failed, Policy, Replacement
from paxosblock.config import NameNodeConfig
from paxosblock.errors import (
    FencedError,
    InvalidRequestError,
    NoSpaceError,
    NotReadyError,
    OutcomeUnknownError,
)
from paxosblock.namenode.name_node import WARM_UP_HEARTBEATS
from paxosblock.protocol.messages import Write
from paxosblock.protocol.types import (
    FIRST_GENERATION,
    BlockState,
    ChunkIndex,
    Generation,
    StorageId,
)
from tests.namenode.cluster import CHUNK_BYTES, Network
from tests.namenode.memory_store import MemoryStore
from tests.namenode.scene import ANN, BOB, Scene, new_scene
from tests.waiting import wait_until_async

DISABLE, NEVER, DEFAULT, ALWAYS = Replacement
CONFIG = NameNodeConfig(recovery_timeout_s=1.0)
WARM_S = WARM_UP_HEARTBEATS * CONFIG.heartbeat_interval_s


@pytest.fixture
async def four() -> AsyncIterator[Scene]:
    made = await scene_of(4)
    yield made
    await made.close()


@pytest.fixture
async def three() -> AsyncIterator[Scene]:
    made = await scene_of(3)
    yield made
    await made.close()


async def scene_of(count: int, *, store: MemoryStore | None = None) -> Scene:
    names = [f"s{number}" for number in range(1, count + 1)]
    made = await new_scene(*names, store=store, config=CONFIG)
    made.clock.now += WARM_S
    await made.beat(*names)
    return made


async def written(scene: Scene, *counts: int) -> BlockView:
    """An open block of which the members have voted for so many chunks, member by member."""
    view = await scene.add_block(await scene.create("/f"))
    scene.write(view, *counts)
    return view


def asked(
    view: BlockView, *failed: StorageId, policy: Replacement = NEVER, flushed: bool = False
) -> RebuildBlock:
    """The request of the writer whose members failed just now."""
    record = view.record
    excluded = tuple(Excluded(storage, 0.0, resting=True) for storage in failed)
    return RebuildBlock(
        record.block, ANN, record.writer_generation, failed, Policy(policy), flushed, excluded
    )


async def rebuild(scene: Scene, request: RebuildBlock) -> BlockView:
    return await scene.service.call(REBUILD_BLOCK, request)


def kill(scene: Scene, *storages: StorageId) -> None:
    for storage in storages:
        scene.acceptor(storage).alive = False


async def test_a_block_goes_on_without_a_member_and_keeps_what_is_acknowledged(
    three: Scene,
) -> None:
    view = await written(three, 3, 2, 2)
    *left, lost = view.record.members
    kill(three, lost)
    record = (await rebuild(three, asked(view, lost))).record
    assert (record.state, record.writer, record.writer_generation, record.members) == (
        BlockState.UNDER_CONSTRUCTION,
        ANN,
        Generation(1),
        tuple(left),
    )
    assert record.base_length == 3
    three.acceptor(left[0]).write(record.block, 3)
    request = FinalizeBlock(record.block, ANN, Generation(1), 3, 3 * CHUNK_BYTES)
    assert (await three.service.call(FINALIZE_BLOCK, request)).record.finalized


async def test_another_datanode_takes_the_place_and_fetches_what_there_is(four: Scene) -> None:
    view = await written(four, 2, 2, 2)
    *left, lost = view.record.members
    kill(four, lost)
    record = (await rebuild(four, asked(view, lost, policy=ALWAYS))).record
    (added,) = set(record.members) - set(left)
    assert len(record.members) == 3
    assert added not in view.record.members
    assert four.acceptor(added).replicas[record.block].length == 2


async def test_a_repeated_request_gets_what_was_installed_for_the_first(three: Scene) -> None:
    """P6: its answer was lost."""
    view = await written(three, 1, 1, 1)
    lost = view.record.members[0]
    kill(three, lost)
    first = await rebuild(three, asked(view, lost))
    three.network.asked.clear()
    assert await rebuild(three, asked(view, lost)) == first
    assert three.network.asked == []


async def test_those_who_ask_while_a_rebuild_runs_join_it(three: Scene) -> None:
    view = await written(three, 1, 1, 1)
    lost = view.record.members[0]
    kill(three, lost)
    views = await asyncio.gather(*(rebuild(three, asked(view, lost)) for _ in range(5)))
    assert {each.record.generation for each in views} == {1}


async def appended(scene: Scene, view: BlockView) -> BlockView:
    """The same block, ended for its writer and opened again by BOB."""
    record, count = view.record, 2
    ended = FinalizeBlock(record.block, ANN, record.generation, count, count * CHUNK_BYTES)
    await scene.service.call(FINALIZE_BLOCK, ended)
    file = (await scene.node.catalog.status("/f")).file_id
    await scene.service.call(CLOSE_FILE, CloseFile(file, ANN))
    await scene.service.call(APPEND, AppendFile("/f", BOB))
    request = ReopenBlock(file, BOB, record.block, 2, CHUNK_BYTES, 100)
    opened = (await scene.service.call(REOPEN_BLOCK, request)).view
    assert opened is not None
    return opened


@contextlib.asynccontextmanager
async def held_up(scene: Scene, request: RebuildBlock) -> AsyncIterator[asyncio.Task[BlockView]]:
    """A rebuild that waits, in here, for a member that cannot fetch the chunk that it lacks."""
    record = (await scene.node.catalog.get_block(request.block)).record
    has_it, lacks_it, lost = record.members
    length = scene.acceptor(has_it).replicas[request.block].length
    index = ChunkIndex(length)
    more = Write(request.block, record.writer_generation, index, CHUNK_BYTES, 99, length)
    scene.acceptor(has_it).answer(more)
    kill(scene, lost)
    peers, scene.acceptor(lacks_it).peers = scene.acceptor(lacks_it).peers, {}
    running = asyncio.create_task(rebuild(scene, request))
    history, before = scene.node.history, len(scene.node.history.of(request.block))
    await wait_until_async(
        lambda: "refused" in [line.event for line in history.of(request.block)[before:]]
    )
    yield running
    scene.acceptor(lacks_it).peers = peers


async def test_a_fenced_writer_does_not_join_the_rebuild_of_its_successor(three: Scene) -> None:
    """K3, P6: else its old chunks would stand where acknowledged ones of the successor were."""
    view = await written(three, 2, 2, 2)
    opened = await appended(three, view)
    *_, lost = opened.record.members
    async with held_up(three, msgspec.structs.replace(asked(opened, lost), writer=BOB)) as running:
        late = asyncio.create_task(rebuild(three, asked(view, lost)))
    with pytest.raises(FencedError, match="belongs to writer bob in generation"):
        await late
    record = (await running).record
    assert (record.writer, record.base_length) == (BOB, 3)


async def test_another_generation_of_the_same_writer_is_another_question(three: Scene) -> None:
    """Only a copy of a request joins; K3 refuses a generation that the writer does not have."""
    view = await written(three, 1, 1, 1)
    *_, lost = view.record.members
    async with held_up(three, asked(view, lost)) as running:
        never_had = msgspec.structs.replace(asked(view, lost), generation=Generation(9))
        late = asyncio.create_task(rebuild(three, never_had))
    with pytest.raises(FencedError, match="belongs to writer ann in generation"):
        await late
    assert (await running).record.base_length == 2


async def test_a_target_that_fails_means_a_new_generation_without_it(four: Scene) -> None:
    view = await written(four, 2, 2, 2)
    first, second, third = view.record.members
    (spare,) = set(four.network.reach) - set(view.record.members)
    kill(four, third, spare)
    record = (await rebuild(four, asked(view, third, policy=DEFAULT, flushed=True))).record
    assert (record.members, record.writer_generation) == ((first, second), 2)


async def test_hdfs_6937_a_member_that_cannot_fetch_what_it_lacks_is_not_left_out(
    three: Scene,
) -> None:
    """No node knows whose fault that is; the one it fetches from may be damaged."""
    view = await written(three, 3, 2, 2)
    _, second, third = view.record.members
    kill(three, third)
    peers, three.acceptor(second).peers = three.acceptor(second).peers, {}
    rebuilding = asyncio.create_task(rebuild(three, asked(view, third)))
    block = view.record.block
    await wait_until_async(
        lambda: sum(line.event == "refused" for line in three.node.history.of(block)) > 1
    )
    three.acceptor(second).peers = peers
    record = (await rebuilding).record
    assert (second in record.members, len(record.members), record.base_length) == (True, 2, 3)


async def test_a_namenode_that_dies_in_the_middle_leaves_it_to_the_next(four: Scene) -> None:
    """The first allocated a generation, and one target accepted it; nothing was installed."""
    view = await written(four, 3, 2, 2)
    first, _, third = view.record.members
    (spare,) = set(four.network.reach) - set(view.record.members)
    kill(four, third)
    four.network.hung.add(spare)
    dying = asyncio.create_task(rebuild(four, asked(view, third, policy=ALWAYS)))
    await wait_until_async(
        lambda: four.acceptor(first).replicas[view.record.block].registers.accepted_generation == 1
    )
    await four.node.close()
    with pytest.raises(OutcomeUnknownError):
        await dying
    four.network.hung.clear()
    after = await new_scene(store=four.store, network=Network(four.network.reach), config=CONFIG)
    after.clock.now += WARM_S
    await after.beat(*(each for each in four.network.reach if each != third))
    record = (await rebuild(after, asked(view, third, policy=ALWAYS))).record
    await after.close()
    assert (record.writer_generation, spare in record.members) == (2, True)
    assert record.base_length == 3


async def test_a_block_that_is_sealed_or_taken_over_is_fenced(three: Scene) -> None:
    view = await written(three, 1, 1, 1)
    lost = view.record.members[0]
    kill(three, lost)
    with pytest.raises(FencedError, match="belongs to writer ann"):
        await rebuild(three, msgspec.structs.replace(asked(view, lost), writer=BOB))
    await three.service.call(SEAL_BLOCK, BlockRequest(view.record.block, ANN))
    with pytest.raises(FencedError, match="not being written any more"):
        await rebuild(three, asked(view, lost))


async def test_a_seal_ends_a_rebuild_that_is_under_way(four: Scene) -> None:
    view = await written(four, 1, 1, 1)
    lost = view.record.members[0]
    (spare,) = set(four.network.reach) - set(view.record.members)
    kill(four, lost)
    four.network.hung.add(spare)
    rebuilding = asyncio.create_task(rebuild(four, asked(view, lost, policy=ALWAYS)))
    await wait_until_async(lambda: spare in [storage for storage, _ in four.network.asked])
    status = await four.service.call(TAKE_OVER, TakeOver("/f"))
    assert status.size == CHUNK_BYTES
    with pytest.raises(FencedError):
        await rebuilding


async def test_without_a_quorum_nothing_is_installed(three: Scene) -> None:
    view = await written(three, 1, 1, 1)
    _, *lost = view.record.members
    kill(three, *lost)
    with pytest.raises(NotReadyError, match="promises from 1 of 3 members"):
        await rebuild(three, asked(view, *lost))


async def test_members_that_all_failed_leave_nobody_to_go_on_with(three: Scene) -> None:
    view = await written(three, 1, 1, 1)
    with pytest.raises(NotReadyError, match="none of its members is left"):
        await rebuild(three, asked(view, *view.record.members))


async def test_a_namenode_that_has_just_started_does_not_know_who_lives() -> None:
    scene = await new_scene(config=CONFIG)
    view = await written(scene, 1, 1, 1)
    with pytest.raises(NotReadyError, match="has just started"):
        await rebuild(scene, asked(view, view.record.members[0]))
    await scene.close()


@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("policy", [NEVER, DEFAULT, ALWAYS])
async def test_with_three_datanodes_and_one_dead_every_policy_but_always_goes_on(
    three: Scene, policy: Replacement, flushed: bool
) -> None:
    view = await written(three, 1, 1, 1)
    *left, lost = view.record.members
    kill(three, lost)
    request = asked(view, lost, policy=policy, flushed=flushed)
    if policy is not ALWAYS:
        assert (await rebuild(three, request)).record.members == tuple(left)
        return
    with pytest.raises(NoSpaceError, match="policy 'always' needs 3 DataNodes, and there are 2: "):
        await rebuild(three, request)
    assert (await rebuild(three, with_best_effort(request))).record.members == tuple(left)


def with_best_effort(request: RebuildBlock) -> RebuildBlock:
    return msgspec.structs.replace(request, policy=replace(request.policy, best_effort=True))


@pytest.mark.parametrize("policy", [NEVER, DEFAULT, ALWAYS])
async def test_one_datanode_that_is_left_is_too_few_for_default_without_best_effort(
    three: Scene, policy: Replacement
) -> None:
    view = await written(three, 1, 1, 1)
    *left, lost = view.record.members
    kill(three, lost)
    view = await rebuild(three, asked(view, lost))
    last, lost_too = left
    kill(three, lost_too)
    request = msgspec.structs.replace(
        asked(view, lost_too, policy=policy), excluded=(
            Excluded(lost, 0.0, resting=True), Excluded(lost_too, 0.0, resting=True),
        )
    )  # fmt: skip
    if policy is not NEVER:
        with pytest.raises(NoSpaceError, match=f"policy '{policy.value}' needs 2 DataNodes"):
            await rebuild(three, request)
        request = with_best_effort(request)
    assert (await rebuild(three, request)).record.members == (last,)


async def test_disable_is_an_error_at_the_namenode(three: Scene) -> None:
    view = await written(three, 1, 1, 1)
    with pytest.raises(InvalidRequestError, match="policy 'disable'"):
        await rebuild(three, asked(view, view.record.members[0], policy=DISABLE))


@pytest.mark.parametrize(
    ("policy", "flushed", "count"),
    [(NEVER, True, 2), (DEFAULT, False, 2), (DEFAULT, True, 3), (ALWAYS, False, 3)],
)
async def test_the_block_after_one_that_was_sealed_gets_members_by_the_policy(
    four: Scene, policy: Replacement, flushed: bool, count: int
) -> None:
    file = await four.create("/f")
    view = await four.add_block(file)
    four.write(view, 1, 1, 1)
    *left, lost = view.record.members
    await four.service.call(SEAL_BLOCK, BlockRequest(view.record.block, ANN))
    failed = Failed(Policy(policy), 3, tuple(left), flushed)
    blamed = (Excluded(lost, 0.0, resting=True),)
    request = AddBlock(file, ANN, view.record.block, 2, blamed, after=failed)
    members = (await four.service.call(ADD_BLOCK, request)).record.members
    assert (len(members), set(left) <= set(members)) == (count, True)


async def test_without_a_policy_the_block_after_one_that_was_sealed_is_like_any_other(
    four: Scene,
) -> None:
    file = await four.create("/f")
    view = await four.add_block(file)
    await four.service.call(SEAL_BLOCK, BlockRequest(view.record.block, ANN))
    blamed = (Excluded(view.record.members[0], 0.0, resting=True),)
    request = AddBlock(file, ANN, view.record.block, 2, blamed)
    assert len((await four.service.call(ADD_BLOCK, request)).record.members) == 3


async def test_a_file_whose_block_was_rebuilt_closes_with_all_its_bytes(three: Scene) -> None:
    view = await written(three, 2, 2, 2)
    lost = view.record.members[0]
    kill(three, lost)
    record = (await rebuild(three, asked(view, lost))).record
    request = FinalizeBlock(record.block, ANN, record.writer_generation, 2, 2 * CHUNK_BYTES)
    await three.service.call(FINALIZE_BLOCK, request)
    file = (await three.node.catalog.status("/f")).file_id
    closed = await three.service.call(CLOSE_FILE, CloseFile(file, ANN))
    assert (closed.open, closed.size) == (False, 2 * CHUNK_BYTES)
    assert record.writer_generation > FIRST_GENERATION
