"""Files that ask for another number of replicas than before."""

from __future__ import annotations

import pytest

from paxosblock.api.care import REPLICATION_MAX, SET_REPLICATION, SetReplication
from paxosblock.api.namenode import FINALIZE_BLOCK, MKDIRS, STAT, MakeDirectories, PathRequest
from paxosblock.errors import InvalidRequestError, IsDirectoryError, NotFoundError
from tests.namenode.scene import Scene, finalize_request


async def set_replication(scene: Scene, path: str, replication: int) -> int:
    request = SetReplication(path, replication)
    return (await scene.service.call(SET_REPLICATION, request)).replication


async def test_a_file_asks_for_another_number_of_replicas_from_then_on(scene: Scene) -> None:
    await scene.create("/f")
    assert await set_replication(scene, "/f", 2) == 2
    assert (await scene.service.call(STAT, PathRequest("/f"))).replication == 2


async def test_it_is_one_entry_of_the_log_and_none_when_nothing_changes(scene: Scene) -> None:
    await scene.create("/f")
    before = scene.store.view().revision
    await set_replication(scene, "/f", 2)
    assert scene.store.view().revision == before + 1
    await set_replication(scene, "/f", 2)
    assert scene.store.view().revision == before + 1


async def test_blocks_to_come_of_an_open_file_are_placed_so_and_the_open_one_stays(
    scene: Scene,
) -> None:
    file = await scene.create("/f")
    first = await scene.add_block(file)
    await set_replication(scene, "/f", 2)
    now = await scene.node.catalog.get_block(first.record.block)
    assert len(now.record.members) == 3
    await scene.service.call(FINALIZE_BLOCK, finalize_request(now, 0))
    second = await scene.add_block(file, first.record.block)
    assert len(second.record.members) == 2


async def test_what_is_no_file_has_no_replicas(scene: Scene) -> None:
    await scene.service.call(MKDIRS, MakeDirectories("/dir"))
    with pytest.raises(IsDirectoryError, match="'/dir': is a directory"):
        await set_replication(scene, "/dir", 2)
    with pytest.raises(NotFoundError, match="'/none': no such file or directory"):
        await set_replication(scene, "/none", 2)


@pytest.mark.parametrize("replication", [0, -1, REPLICATION_MAX + 1])
async def test_a_number_that_no_block_has_changes_nothing(scene: Scene, replication: int) -> None:
    await scene.create("/f")
    with pytest.raises(InvalidRequestError, match=f"replication {replication}: 1 to 32 replicas"):
        await set_replication(scene, "/f", replication)
    assert (await scene.service.call(STAT, PathRequest("/f"))).replication == 3
