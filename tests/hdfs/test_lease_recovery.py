"""*Append/Hflush/Read Design*, 6.4: lease recovery, by the states of the last two blocks.

Here the last block but one is always decided (K1), so it is committed or complete, as there.
"""

from __future__ import annotations

import pytest

from paxosblock.api.namenode import STAT, TAKE_OVER, FileStatus, PathRequest, TakeOver
from paxosblock.errors import NotReadyError
from paxosblock.protocol.block_state import HdfsBlockState
from paxosblock.protocol.types import BlockState
from tests.hdfs.scenes import (
    COMMITTED,
    COMPLETE,
    CONSTRUCTION,
    RECOVERY,
    Case,
    closed_by_the_housekeeper,
    closed_whole,
    file_of,
    named,
    view,
)
from tests.namenode.cluster import CHUNK_BYTES
from tests.namenode.scene import MEMBERS, Scene
from tests.waiting import wait_until_async


async def take_over(scene: Scene) -> FileStatus:
    return await scene.service.call(TAKE_OVER, TakeOver("/f"))


async def is_open(scene: Scene) -> bool:
    return (await scene.service.call(STAT, PathRequest("/f"))).open


async def test_complete_and_complete_closes_the_file(case: Case) -> None:
    await file_of(case, COMPLETE, COMPLETE)
    closed = await take_over(case[0])
    assert (closed.open, closed.size) == (False, 4 * CHUNK_BYTES)


@pytest.mark.parametrize(
    ("penultimate", "last"),
    [(COMPLETE, COMMITTED), (COMMITTED, COMPLETE), (COMMITTED, COMMITTED)],
)
async def test_a_committed_block_makes_the_close_be_tried_again_and_is_never_forced(
    case: Case, penultimate: HdfsBlockState, last: HdfsBlockState
) -> None:
    """HDFS forces the file to close after some retries; none may have all of its bytes then."""
    scene, network = case
    await file_of(case, penultimate, last)
    with pytest.raises(NotReadyError, match="0 of 3 members have reported it finalized"):
        await take_over(scene)
    assert await is_open(scene)
    network.lost.clear()
    await wait_until_async(lambda: closed_by_the_housekeeper(scene))


@pytest.mark.parametrize("penultimate", [COMPLETE, COMMITTED])
async def test_a_last_block_under_construction_is_recovered(
    case: Case, penultimate: HdfsBlockState
) -> None:
    scene, network = case
    _, block = await file_of(case, penultimate, CONSTRUCTION)
    network.lost.clear()
    assert not (await take_over(scene)).open
    record = (await view(scene, block)).record
    # K2 allocated a generation for the recovery, K5 the finalized one above it.
    assert (record.state, record.generation, record.length) == (BlockState.FINALIZED, 2, 2)
    assert await closed_whole(scene)


@pytest.mark.parametrize("penultimate", [COMPLETE, COMMITTED])
async def test_a_last_block_under_recovery_gets_a_new_recovery(
    case: Case, penultimate: HdfsBlockState
) -> None:
    scene, network = case
    _, block = await file_of(case, penultimate, RECOVERY)
    network.lost.clear()
    assert not (await take_over(scene)).open
    record = (await view(scene, block)).record
    assert (record.state, record.generation, record.length) == (BlockState.FINALIZED, 3, 2)
    assert await closed_whole(scene)


@pytest.mark.parametrize("penultimate", [COMPLETE, COMMITTED])
async def test_a_recovery_that_fails_is_tried_again_without_end(
    case: Case, penultimate: HdfsBlockState
) -> None:
    """HDFS stops after some retries, and the file stays open."""
    scene, network = case
    _, block = await file_of(case, penultimate, CONSTRUCTION)
    network.lost.clear()
    for storage in MEMBERS[:2]:
        network.reach[storage].alive = False
    with pytest.raises(NotReadyError, match="not recovered in 1 s"):
        await take_over(scene)
    assert await named(scene, block) is RECOVERY
    for storage in MEMBERS[:2]:
        await scene.register(storage)
    await wait_until_async(lambda: closed_by_the_housekeeper(scene))
