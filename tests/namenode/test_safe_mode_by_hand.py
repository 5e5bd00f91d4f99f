"""Safe mode as an operator enters it: no name changes, and all else goes on."""

from __future__ import annotations

from typing import Any

import pytest

from paxosblock.api.care import SET_REPLICATION, SetReplication
from paxosblock.api.file_pages import GET_FILE, GetFile
from paxosblock.api.methods import Method, Once
from paxosblock.api.namenode import (
    ADD_BLOCK,
    APPEND,
    CLOSE_FILE,
    CONCAT,
    CREATE,
    DELETE,
    DELETE_BLOCK,
    FINALIZE_BLOCK,
    MKDIRS,
    NO_BLOCK,
    NO_FILE,
    RENAME,
    STAT,
    TAKE_OVER,
    TRANSACT,
    AddBlock,
    AppendFile,
    CloseFile,
    ConcatFiles,
    DeleteBlock,
    DeletePath,
    FinalizeBlock,
    MakeDirectories,
    PathRequest,
    RenamePath,
    TakeOver,
    Transact,
)
from paxosblock.api.status import (
    CLUSTER_STATUS,
    SAFE_MODE,
    ClusterStatusRequest,
    SafeModeAction,
    SafeModeRequest,
    SafeModeStatus,
)
from paxosblock.api.transaction import MakeDirectory
from paxosblock.errors import Outcome, SafeModeError
from paxosblock.namenode.catalog import keys
from paxosblock.namenode.catalog.deadlines import Ended
from paxosblock.namenode.kv.interface import Committed, Conflict, Edit
from paxosblock.protocol.types import FIRST_GENERATION, BlockId, Durability, WriterId
from tests.namenode.cluster import CHUNK_BYTES
from tests.namenode.memory_store import MemoryStore
from tests.namenode.scene import ANN, BOB, Scene, create_request, new_catalog, new_scene


async def ask(scene: Scene, action: SafeModeAction) -> SafeModeStatus:
    return await scene.service.call(SAFE_MODE, SafeModeRequest(action))


async def write_block(scene: Scene, file: int, previous: BlockId = NO_BLOCK) -> BlockId:
    """A finalized block at the end of a file."""
    view = await scene.add_block(file, previous)
    scene.write(view, *(1 for _ in view.record.members))
    block = view.record.block
    length = FinalizeBlock(block, ANN, FIRST_GENERATION, 1, CHUNK_BYTES)
    await scene.service.call(FINALIZE_BLOCK, length)
    return block


async def closed(scene: Scene, path: str) -> int:
    """A closed file of one block."""
    file = await scene.create(path)
    await write_block(scene, file)
    await scene.service.call(CLOSE_FILE, CloseFile(file, ANN))
    return file


REFUSED: dict[Method[Any, Any], Any] = {
    MKDIRS: MakeDirectories("/new"),
    CREATE: create_request("/new", BOB),
    APPEND: AppendFile("/a", BOB),
    RENAME: RenamePath("/a", "/new"),
    DELETE: DeletePath("/a"),
    CONCAT: ConcatFiles("/a", ("/b",)),
    TRANSACT: Transact((MakeDirectory("/new"),), 3, 1 << 20, Durability.DISK),
    SET_REPLICATION: SetReplication("/a", 2),
}


@pytest.mark.parametrize("method", REFUSED, ids=lambda method: method.name)
async def test_what_changes_names_is_refused_until_it_is_left(method: Method[Any, Any]) -> None:
    scene = await new_scene()
    for path in ("/a", "/b"):
        await closed(scene, path)
    await ask(scene, SafeModeAction.ENTER)
    revision = scene.store.machine.revision
    with pytest.raises(SafeModeError, match="safemode leave") as refused:
        await scene.service.call(method, REFUSED[method])
    assert (refused.value.outcome, refused.value.retriable) == (Outcome.NEVER, True)
    assert scene.store.machine.revision == revision
    await ask(scene, SafeModeAction.LEAVE)
    await scene.service.call(method, REFUSED[method])
    await scene.close()


async def test_a_block_without_a_file_is_not_deleted() -> None:
    scene = await new_scene()
    view = await scene.service.call(ADD_BLOCK, AddBlock(NO_FILE, ANN, NO_BLOCK, window=2))
    block = view.record.block
    await ask(scene, SafeModeAction.ENTER)
    with pytest.raises(SafeModeError):
        await scene.service.call(DELETE_BLOCK, DeleteBlock(block))
    assert not (await scene.service.call(DELETE_BLOCK, DeleteBlock(BlockId(block + 1)))).existed
    await ask(scene, SafeModeAction.LEAVE)
    assert (await scene.service.call(DELETE_BLOCK, DeleteBlock(block))).existed
    await scene.close()


async def test_writers_of_open_files_go_on_and_readers_read() -> None:
    scene = await new_scene()
    file, taken = await scene.create("/open"), await scene.create("/taken")
    first = await write_block(scene, file)
    await write_block(scene, taken)
    await ask(scene, SafeModeAction.ENTER)
    await write_block(scene, file, first)
    status = await scene.service.call(CLOSE_FILE, CloseFile(file, ANN))
    assert status.size == 2 * CHUNK_BYTES
    view = await scene.service.call(GET_FILE, GetFile("/open"))
    assert len(view.blocks) == 2
    assert (await scene.service.call(STAT, PathRequest("/open"))).size == 2 * CHUNK_BYTES
    await scene.service.call(TAKE_OVER, TakeOver("/taken"))
    await scene.close()


async def test_a_request_that_was_done_before_still_gets_its_answer() -> None:
    scene = await new_scene()
    request = MakeDirectories("/d", once=Once("s", 1))
    made = await scene.service.call(MKDIRS, request)
    await ask(scene, SafeModeAction.ENTER)
    assert await scene.service.call(MKDIRS, request) == made
    opened = AppendFile("/f", WriterId("carol"))
    await ask(scene, SafeModeAction.LEAVE)
    await closed(scene, "/f")
    answer = await scene.service.call(APPEND, opened)
    await ask(scene, SafeModeAction.ENTER)
    assert await scene.service.call(APPEND, opened) == answer
    await scene.close()


async def test_the_next_leader_is_in_it_too() -> None:
    store = MemoryStore()
    before = await new_scene(store=store)
    assert not (await ask(before, SafeModeAction.GET)).on
    status = await ask(before, SafeModeAction.ENTER)
    assert (status.on, status.by_hand) == (True, True)
    assert before.node.safe_mode.holds
    await before.close()
    scene = await new_scene(store=store, network=before.network)
    assert scene.node.safe_mode.holds
    with pytest.raises(SafeModeError):
        await scene.create("/new")
    shown = await scene.service.call(CLUSTER_STATUS, ClusterStatusRequest())
    assert shown.safe_mode == await ask(scene, SafeModeAction.GET)
    assert shown.safe_mode.by_hand
    assert not (await ask(scene, SafeModeAction.LEAVE)).on
    await scene.create("/new")
    await scene.close()


async def test_to_enter_and_to_leave_twice_changes_nothing() -> None:
    scene = await new_scene()
    revisions = []
    for action in (
        SafeModeAction.LEAVE,
        SafeModeAction.ENTER,
        SafeModeAction.ENTER,
        SafeModeAction.LEAVE,
        SafeModeAction.LEAVE,
    ):
        before = scene.store.machine.revision
        await ask(scene, action)
        revisions.append(scene.store.machine.revision - before)
    assert revisions == [0, 1, 0, 1, 0]
    await scene.close()


class OvertakenStore(MemoryStore):
    """Another NameNode enters safe mode just before the next commit."""

    overtakes = False

    async def commit(self, edit: Edit) -> Committed | Conflict:
        if self.overtakes:
            self.overtakes = False
            entered = await super().commit(Edit(puts=((keys.SAFE_MODE, b"0" * 8),)))
            assert isinstance(entered, Committed)
        return await super().commit(edit)


async def test_a_change_that_was_decided_before_is_refused_when_it_is_applied() -> None:
    store = OvertakenStore()
    scene = await new_scene(store=store)
    await scene.service.call(MKDIRS, MakeDirectories("/before"))
    store.overtakes = True
    with pytest.raises(SafeModeError):
        await scene.service.call(MKDIRS, MakeDirectories("/new"))
    assert store.conflicts == 1
    await scene.close()


async def test_a_directory_does_not_vanish_meanwhile() -> None:
    catalog = await new_catalog()
    await catalog.make_directories(MakeDirectories("/d", ttl_s=0.001))
    await catalog.enter_safe_mode()
    (due,) = await catalog.due()
    assert await catalog.end(due) is Ended.HELD
    await catalog.leave_safe_mode()
    assert await catalog.end(due) is Ended.DELETED
