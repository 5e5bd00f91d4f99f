"""Safe mode: when it ends, by itself and by hand, and what a NameNode knows of reports for it."""

from __future__ import annotations

import pytest

from paxosblock.api.namenode import (
    CLOSE_FILE,
    DELETE,
    FINALIZE_BLOCK,
    CloseFile,
    DeletePath,
    FinalizeBlock,
)
from paxosblock.api.status import SAFE_MODE, SafeModeAction, SafeModeRequest
from paxosblock.config import NameNodeConfig
from paxosblock.namenode.blocks.replicas import Replicas
from paxosblock.namenode.blocks.replication.safe_mode import SafeMode
from paxosblock.protocol.types import FIRST_GENERATION, BlockId, Generation, StorageId
from tests.namenode.cluster import CHUNK_BYTES
from tests.namenode.memory_store import MemoryStore
from tests.namenode.scene import (
    ANN,
    Scene,
    add_block,
    create_request,
    file_with_blocks,
    finalize,
    new_catalog,
    new_scene,
)
from tests.waiting import wait_until_async

ONE, TWO = Generation(1), Generation(2)
B = BlockId(7)
S1, S2 = StorageId("s1"), StorageId("s2")


def mode(threshold: float = 0.999, extension_s: float = 30.0) -> SafeMode:
    """Safe mode at the beginning of a term."""
    made = SafeMode(threshold, extension_s)
    made.begin()
    return made


# --- the state ------------------------------------------------------------------------------------


def test_it_holds_before_anything_is_known() -> None:
    assert SafeMode(0.999, 0.0).holds
    assert mode().holds


def test_it_ends_a_moment_after_enough_was_reported() -> None:
    safe_mode = mode()
    safe_mode.note(998, 1000, 0.0)
    safe_mode.note(999, 1000, 10.0)
    safe_mode.note(1000, 1000, 39.9)
    assert safe_mode.holds
    safe_mode.note(999, 1000, 40.0)
    assert not safe_mode.holds


def test_the_moment_begins_anew_when_the_share_falls_again() -> None:
    safe_mode = mode()
    safe_mode.note(1000, 1000, 0.0)
    safe_mode.note(900, 1000, 20.0)  # a DataNode told that it lost replicas
    safe_mode.note(1000, 1000, 35.0)
    assert safe_mode.holds
    safe_mode.note(1000, 1000, 65.0)
    assert not safe_mode.holds


def test_without_a_finalized_block_there_is_nothing_to_wait_for() -> None:
    safe_mode = mode()
    safe_mode.note(0, 0, 0.0)
    assert not safe_mode.holds


def test_of_a_few_blocks_one_that_is_lost_does_not_keep_it_on() -> None:
    """The others would not be copied at any fail-over, until an operator came."""
    safe_mode = mode(extension_s=0.0)
    safe_mode.note(8, 10, 0.0)
    assert safe_mode.holds
    safe_mode.note(9, 10, 100.0)
    assert not safe_mode.holds


def test_a_single_block_is_waited_for() -> None:
    """HDFS rounds down to none of them, and waits for nothing."""
    safe_mode = mode(extension_s=0.0)
    safe_mode.note(0, 1, 0.0)
    assert safe_mode.holds
    safe_mode.note(1, 1, 1.0)
    assert not safe_mode.holds


def test_many_lost_blocks_keep_it_on_until_an_operator_leaves() -> None:
    safe_mode = mode()
    safe_mode.note(8, 10, 1e6)
    status = safe_mode.status(1e6)
    assert (status.on, status.by_hand, status.reported, status.blocks) == (True, False, 8, 10)
    assert status.left_s is None
    safe_mode.leave()
    assert not safe_mode.holds


def test_entered_by_hand_it_stays_whatever_is_reported() -> None:
    by_hand = [True]
    safe_mode = SafeMode(0.999, 0.0, lambda: by_hand[0])
    safe_mode.begin()
    safe_mode.note(10, 10, 0.0)
    assert safe_mode.holds
    assert safe_mode.status(0.0).by_hand
    by_hand[0] = False
    assert not safe_mode.holds
    assert not safe_mode.status(0.0).by_hand


def test_what_ended_begins_again_with_a_term() -> None:
    safe_mode = mode(extension_s=0.0)
    safe_mode.note(10, 10, 0.0)
    assert not safe_mode.holds
    safe_mode.begin()
    assert safe_mode.holds


def test_status_tells_how_long_it_takes() -> None:
    safe_mode = mode()
    safe_mode.note(10, 10, 100.0)
    assert safe_mode.status(110.0).left_s == 20.0
    safe_mode.note(10, 10, 130.0)
    assert safe_mode.status(150.0).left_s == 0.0


@pytest.mark.parametrize("threshold", [0.0, 0.5, 1.0])
def test_more_is_never_reported_than_there_is(threshold: float) -> None:
    """A block that was deleted is on DataNodes for a while."""
    safe_mode = mode(threshold, 0.0)
    safe_mode.note(12, 10, 0.0)
    assert safe_mode.status(0.0).reported == 10
    assert not safe_mode.holds


# --- what was reported ----------------------------------------------------------------------------


def test_a_block_is_complete_while_enough_storages_hold_it() -> None:
    replicas = Replicas(min_replication=2)
    seen = []
    for change in (
        lambda: replicas.note(B, S1, ONE),
        lambda: replicas.note(B, S1, ONE),
        lambda: replicas.note(B, S2, ONE),
        lambda: replicas.note(B, S1, TWO),  # a member left: the other one is still to be told
        lambda: replicas.note(B, S2, TWO),
        lambda: replicas.forget(B, S1),
        lambda: replicas.note(B, S1, TWO),
        lambda: replicas.forget_block(B),
        lambda: replicas.forget_block(B),
    ):
        change()
        seen.append(replicas.complete)
    assert seen == [0, 0, 1, 1, 1, 0, 1, 0, 0]


async def test_a_catalog_counts_the_blocks_that_are_finalized() -> None:
    catalog = await new_catalog()
    assert await catalog.finalized_blocks() == 0
    await file_with_blocks(catalog, "/closed-soon", 2, 3)
    file = await catalog.create(create_request("/open"))
    assert await catalog.finalized_blocks() == 2
    entry = await add_block(catalog, file.number)
    assert await catalog.finalized_blocks() == 2
    await finalize(catalog, entry, 1)
    assert await catalog.finalized_blocks() == 3


# --- a node ---------------------------------------------------------------------------------------


async def written(scene: Scene, path: str = "/a") -> BlockId:
    """A closed file of one block at all storages; returns the block."""
    file = await scene.create(path)
    view = await scene.add_block(file)
    scene.write(view, *(1 for _ in view.record.members))
    await scene.service.call(
        FINALIZE_BLOCK, FinalizeBlock(view.record.block, ANN, FIRST_GENERATION, 1, CHUNK_BYTES)
    )
    await scene.service.call(CLOSE_FILE, CloseFile(file, ANN))
    return view.record.block


SLOW = NameNodeConfig(heartbeat_interval_s=0.01, safe_mode_extension_s=30.0)


async def test_a_new_cluster_is_not_in_safe_mode() -> None:
    scene = await new_scene(config=SLOW)
    assert not scene.node.safe_mode.holds
    await written(scene)
    assert not scene.node.safe_mode.holds
    await scene.close()


async def test_after_a_start_it_holds_until_the_blocks_were_reported_and_a_moment_passed() -> None:
    store = MemoryStore()
    before = await new_scene(store=store, config=SLOW)
    await written(before)
    await before.close()
    for acceptor in before.network.reach.values():
        acceptor.alive = False
    scene = await new_scene(store=store, network=before.network, config=SLOW)
    status = scene.node.safe_mode.status
    assert scene.node.safe_mode.holds
    assert status(scene.clock()).left_s is None
    await scene.register("s2")
    await wait_until_async(
        lambda: status(scene.clock()).left_s is not None, what="the report was counted"
    )
    assert scene.node.safe_mode.holds
    scene.clock.now += 30.0
    await wait_until_async(lambda: not scene.node.safe_mode.holds, what="the moment is over")
    await scene.close()


async def test_a_leftover_is_not_taken_away_before_it_ends() -> None:
    """Of a block that was deleted: its DataNode was away, and reports it to the next process."""
    store = MemoryStore()
    before = await new_scene(store=store, config=SLOW)
    await written(before, "/stays")
    block = await written(before, "/goes")
    before.acceptor("s1").alive = False
    await before.service.call(DELETE, DeletePath("/goes"))
    left = before.acceptor("s2").replicas
    await wait_until_async(lambda: block not in left, what="the others to be told")
    await before.close()
    scene = await new_scene(store=store, network=before.network, config=SLOW)
    held = scene.acceptor("s1").replicas
    await scene.register("s1")
    await scene.report("s1")
    assert scene.node.safe_mode.holds
    assert scene.node.datanodes.has_reported(StorageId("s1"))
    assert block in held
    await scene.service.call(SAFE_MODE, SafeModeRequest(SafeModeAction.LEAVE))
    await wait_until_async(
        lambda: not scene.node.datanodes.has_reported(StorageId("s1")),
        what="it to be asked for another report",
    )
    await scene.report("s1")
    await wait_until_async(lambda: block not in held, what="the leftover to go")
    await scene.close()
