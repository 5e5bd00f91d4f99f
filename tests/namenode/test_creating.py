"""Files that are made with the block that they begin with, and closed with how it ends."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from paxosblock.api.file_pages import GET_FILE, GetFile
from paxosblock.api.methods import Once
from paxosblock.api.namenode import (
    ADD_BLOCK,
    CLOSE_FILE,
    CREATE,
    DELETE,
    GET_BLOCK,
    NO_BLOCK,
    STAT,
    TAKE_OVER,
    AddBlock,
    BlockRequest,
    BlockView,
    CloseFile,
    CreatedFile,
    CreateFile,
    DeletePath,
    FinalizeBlock,
    FirstBlock,
    PathRequest,
    TakeOver,
)
from paxosblock.errors import FencedError, InvalidRequestError, NotFoundError
from paxosblock.namenode.catalog import keys
from paxosblock.namenode.catalog.draft import Draft
from paxosblock.protocol.messages import Delete
from paxosblock.protocol.types import FIRST_GENERATION, BlockId
from tests.namenode.cluster import CHUNK_BYTES
from tests.namenode.scene import (
    ANN,
    BOB,
    ROOM_BYTES,
    Scene,
    create_request,
    new_scene,
    sweep_everything,
)
from tests.waiting import wait_until_async


def request(path: str = "/f") -> CreateFile:
    return replace(create_request(path), first=FirstBlock(window=2))


async def made(scene: Scene, what: CreateFile | None = None) -> tuple[int, BlockView]:
    """A file, and the block that was made with it, which holds a chunk at each member."""
    created = await scene.service.call(CREATE, what or request())
    assert created.first is not None
    for storage in created.first.record.members:
        scene.network.reach[storage].create(created.first.record.block)
    scene.write(created.first, 1, 1, 1)
    return created.status.file_id, created.first


def ends(view: BlockView) -> FinalizeBlock:
    return FinalizeBlock(view.record.block, ANN, FIRST_GENERATION, 1, CHUNK_BYTES)


async def blocks(scene: Scene, path: str = "/f") -> list[BlockId]:
    found = (await scene.service.call(GET_FILE, GetFile(path))).blocks
    return [view.record.block for view in found]


async def revision(scene: Scene) -> int:
    return (await scene.node.catalog.view()).revision


async def test_one_entry_of_the_log_makes_a_file_and_its_block_one_closes_both(
    scene: Scene,
) -> None:
    await made(scene, request("/another"))  # reserves ids, each in an entry of its own
    before = await revision(scene)
    file, view = await made(scene)
    assert await revision(scene) == before + 1
    status = await scene.service.call(CLOSE_FILE, CloseFile(file, ANN, ends(view)))
    assert await revision(scene) == before + 2
    assert (status.open, status.size) == (False, CHUNK_BYTES)
    assert await blocks(scene) == [view.record.block]
    assert (await scene.service.call(GET_BLOCK, BlockRequest(view.record.block))).record.finalized


async def test_each_record_of_a_file_is_encoded_once_in_the_change_that_writes_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[bytes] = []
    put = Draft.put

    def noted(draft: Draft, key: bytes, value: bytes | None) -> None:
        written.append(key)
        put(draft, key, value)

    monkeypatch.setattr(Draft, "put", noted)
    file, view = await made(scene)
    assert keys.inode(file) in written
    assert len(written) == len(set(written))
    written.clear()
    await scene.service.call(CLOSE_FILE, CloseFile(file, ANN, ends(view)))
    assert {keys.inode(file), keys.block(view.record.block)} <= set(written)
    assert len(written) == len(set(written))


async def test_a_block_that_ends_with_its_file_does_not_follow_itself(scene: Scene) -> None:
    file, view = await made(scene)
    itself = replace(ends(view), following=view.record.block)
    with pytest.raises(InvalidRequestError, match="was not made ahead to follow"):
        await scene.service.call(CLOSE_FILE, CloseFile(file, ANN, itself))
    await scene.service.call(CLOSE_FILE, CloseFile(file, ANN, ends(view)))
    assert await blocks(scene) == [view.record.block]


async def test_a_closed_file_takes_the_room_that_it_has_and_not_that_of_a_whole_block(
    scene: Scene,
) -> None:
    """Between two heartbeats more small files are written than there is room for blocks."""
    large = replace(request(), block_size=ROOM_BYTES // 5 * 3)
    for path in ("/one", "/two", "/three"):
        file, view = await made(scene, replace(large, path=path))
        none = await scene.service.call(CREATE, replace(large, path=f"{path}-beside"))
        assert none.first is None, "the open one may still take all that there is"
        await scene.service.call(CLOSE_FILE, CloseFile(file, ANN, ends(view)))


async def test_until_it_is_closed_the_file_has_no_block(scene: Scene) -> None:
    """The bytes in the block were acknowledged to no writer, and no reader may wait for them."""
    await made(scene)
    assert await blocks(scene) == []
    assert (await scene.service.call(STAT, PathRequest("/f"))).size == 0


@pytest.mark.parametrize("once", [None, Once("session", 1)])
async def test_a_repeated_create_gets_the_block_that_was_made(
    scene: Scene, once: Once | None
) -> None:
    asked = replace(request(), once=once)
    first = await scene.service.call(CREATE, asked)
    before = await revision(scene)
    assert await scene.service.call(CREATE, asked) == first
    assert await revision(scene) == before


async def test_a_repeated_close_finds_the_file_closed(scene: Scene) -> None:
    file, view = await made(scene)
    closes = CloseFile(file, ANN, ends(view))
    status = await scene.service.call(CLOSE_FILE, closes)
    before = await revision(scene)
    assert await scene.service.call(CLOSE_FILE, closes) == status
    assert await revision(scene) == before


async def test_without_room_for_all_replicas_the_file_is_made_alone() -> None:
    scene = await new_scene("s1", "s2")
    try:
        assert await scene.service.call(CREATE, request()) == CreatedFile(
            await scene.service.call(STAT, PathRequest("/f"))
        )
    finally:
        await scene.close()


async def test_a_namenode_that_knows_no_datanode_yet_makes_the_file_alone() -> None:
    scene = await new_scene()
    try:
        for storage in scene.network.reach:
            await scene.beat(storage, failed="its disk")
        assert (await scene.service.call(CREATE, request())).first is None
    finally:
        await scene.close()


@pytest.mark.parametrize("how", ["closed empty", "taken over", "deleted", "another block"])
async def test_a_block_that_its_writer_does_not_use_goes(scene: Scene, how: str) -> None:
    file, view = await made(scene)
    match how:
        case "closed empty":
            await scene.service.call(CLOSE_FILE, CloseFile(file, ANN))
        case "taken over":
            await scene.service.call(TAKE_OVER, TakeOver("/f"))
        case "deleted":
            await scene.service.call(DELETE, DeletePath("/f"))
            await sweep_everything(scene.node.catalog)
        case _:
            await scene.service.call(ADD_BLOCK, AddBlock(file, ANN, NO_BLOCK, window=2))
    with pytest.raises(NotFoundError):
        await scene.service.call(GET_BLOCK, BlockRequest(view.record.block))


async def test_who_was_fenced_does_not_close_the_file_with_its_block(scene: Scene) -> None:
    file, view = await made(scene)
    assert (await scene.service.call(TAKE_OVER, TakeOver("/f"))).size == 0
    with pytest.raises(FencedError):
        await scene.service.call(CLOSE_FILE, CloseFile(file, ANN, ends(view)))
    assert await blocks(scene) == []


async def test_only_its_last_block_ends_with_a_file(scene: Scene) -> None:
    """Else what a block holds would go with it, and the writer be told that it was kept."""
    file, _ = await made(scene)
    other, of_other = await made(scene, request("/other"))
    with pytest.raises(InvalidRequestError, match="is not one of its blocks"):
        await scene.service.call(CLOSE_FILE, CloseFile(file, ANN, ends(of_other)))
    added = await scene.service.call(ADD_BLOCK, AddBlock(file, ANN, NO_BLOCK, window=2))
    for storage in added.record.members:
        scene.network.reach[storage].create(added.record.block)
    scene.write(added, 1, 1, 1)
    await scene.node.catalog.finalize_by_writer(ends(added))
    ahead = await scene.service.call(
        ADD_BLOCK, AddBlock(file, ANN, added.record.block, window=2, ahead=True)
    )
    with pytest.raises(InvalidRequestError, match="is not its last one"):
        await scene.service.call(CLOSE_FILE, CloseFile(file, ANN, ends(ahead)))
    assert not (
        await scene.service.call(GET_BLOCK, BlockRequest(ahead.record.block))
    ).record.finalized
    assert await blocks(scene) == [added.record.block]
    await scene.service.call(CLOSE_FILE, CloseFile(other, ANN, ends(of_other)))
    assert await blocks(scene, "/other") == [of_other.record.block]


@pytest.mark.parametrize("first", [FirstBlock(window=0), FirstBlock(2, host="a\nb")])
async def test_a_block_that_cannot_be_made_like_this_makes_no_file(
    scene: Scene, first: FirstBlock
) -> None:
    with pytest.raises(InvalidRequestError):
        await scene.service.call(CREATE, replace(request(), first=first))
    with pytest.raises(NotFoundError):
        await scene.service.call(STAT, PathRequest("/f"))


@pytest.mark.parametrize("is_sent", [True, False])
async def test_members_drop_a_block_that_was_not_used_only_if_they_may_have_heard_of_it(
    scene: Scene, *, is_sent: bool
) -> None:
    async def closed(path: str, *, is_sent: bool) -> BlockId:
        created = await scene.service.call(CREATE, request(path))
        assert created.first is not None
        block = created.first.record.block
        unsent = NO_BLOCK if is_sent else block
        await scene.service.call(CLOSE_FILE, CloseFile(created.status.file_id, ANN, unsent=unsent))
        return block

    def dropped() -> set[BlockId]:
        return {asked.block for _, asked in scene.network.asked if isinstance(asked, Delete)}

    block = await closed("/f", is_sent=is_sent)
    later = await closed("/later", is_sent=True)  # members are asked in order
    await wait_until_async(lambda: later in dropped())
    assert (block in dropped()) == is_sent
    assert await blocks(scene) == []


async def test_another_writer_does_not_get_the_block(scene: Scene) -> None:
    await made(scene)
    scene.clock.now += 61  # the writer's lease is over
    await scene.beat(*scene.network.reach)
    asked = replace(create_request("/f", BOB, overwrite=True), first=FirstBlock(window=2))
    created = await scene.service.call(CREATE, asked)
    assert created.first is not None
    assert created.first.record.writer == BOB
