"""Blocks made ahead: they have no place in their file until the block before them is ended."""

from __future__ import annotations

import pytest

from paxosblock.api.file_pages import GET_FILE, GetFile
from paxosblock.api.namenode import (
    ADD_BLOCK,
    CLOSE_FILE,
    CREATE,
    DELETE,
    FINALIZE_BLOCK,
    GET_BLOCK,
    NO_BLOCK,
    STAT,
    TAKE_OVER,
    AddBlock,
    BlockRequest,
    BlockView,
    CloseFile,
    DeletePath,
    FinalizeBlock,
    PathRequest,
    TakeOver,
)
from paxosblock.errors import FencedError, InvalidRequestError, NotFoundError
from paxosblock.protocol.types import FIRST_GENERATION, BlockId
from tests.namenode.cluster import CHUNK_BYTES
from tests.namenode.scene import ANN, BOB, Scene, create_request
from tests.waiting import wait_until_async


async def begun(scene: Scene, path: str = "/f") -> tuple[int, BlockView, BlockView]:
    """A file whose last block holds two chunks, and a block made ahead, with empty replicas."""
    file = await scene.create(path)
    view = await scene.add_block(file)
    scene.write(view, 2, 2, 2)
    ahead = await make_ahead(scene, file, view.record.block)
    for storage in ahead.record.members:
        scene.network.reach[storage].create(ahead.record.block)
    return file, view, ahead


async def make_ahead(scene: Scene, file: int, previous: BlockId) -> BlockView:
    return await scene.service.call(ADD_BLOCK, AddBlock(file, ANN, previous, window=2, ahead=True))


def ends(view: BlockView, following: BlockId = NO_BLOCK, length: int = 2) -> FinalizeBlock:
    size = length * CHUNK_BYTES
    return FinalizeBlock(view.record.block, ANN, FIRST_GENERATION, length, size, following)


async def shown(scene: Scene, path: str = "/f") -> list[tuple[BlockId, int]]:
    """The blocks of the file, and where they begin."""
    blocks = (await scene.service.call(GET_FILE, GetFile(path))).blocks
    return [(each.record.block, each.offset) for each in blocks]


async def is_gone(scene: Scene, block: BlockId) -> bool:
    """Nothing is left of the block, at the NameNode and at the DataNodes."""
    try:
        await scene.service.call(GET_BLOCK, BlockRequest(block))
    except NotFoundError:
        assert await scene.node.catalog.open_blocks() == ()
        return not any(block in each.replicas for each in scene.network.reach.values())
    return False


async def test_a_block_made_ahead_is_no_block_of_the_file_until_the_one_before_is_ended(
    scene: Scene,
) -> None:
    file, view, ahead = await begun(scene)
    block, following = view.record.block, ahead.record.block
    assert await shown(scene) == [(block, 0)]
    assert (await scene.service.call(STAT, PathRequest("/f"))).size == 0
    await scene.service.call(FINALIZE_BLOCK, ends(view, following))
    assert await shown(scene) == [(block, 0), (following, 2 * CHUNK_BYTES)]
    scene.write(ahead, 1, 1, 1)
    await scene.service.call(CLOSE_FILE, CloseFile(file, ANN, ends(ahead, length=1)))
    assert (await scene.service.call(STAT, PathRequest("/f"))).size == 3 * CHUNK_BYTES


async def test_one_entry_of_the_log_ends_a_block_and_begins_the_next(scene: Scene) -> None:
    _, view, ahead = await begun(scene)
    before = (await scene.node.catalog.view()).revision
    request = ends(view, ahead.record.block)
    await scene.service.call(FINALIZE_BLOCK, request)
    assert (await scene.node.catalog.view()).revision == before + 1
    await scene.service.call(FINALIZE_BLOCK, request)
    assert (await scene.node.catalog.view()).revision == before + 1, "a repeated request"


async def test_a_repeated_request_gets_the_block_that_was_made_ahead(scene: Scene) -> None:
    file, view, ahead = await begun(scene)
    again = await make_ahead(scene, file, view.record.block)
    assert again.record == ahead.record
    await scene.service.call(FINALIZE_BLOCK, ends(view, ahead.record.block))
    third = await make_ahead(scene, file, ahead.record.block)
    assert third.record.block not in {view.record.block, ahead.record.block}


async def test_a_block_that_was_made_ahead_counts_neither_as_finalized_nor_as_without_a_file(
    scene: Scene,
) -> None:
    """Safe mode waits for reports of finalized blocks, and writers of open blocks hold leases."""
    _, view, ahead = await begun(scene)
    assert await scene.node.catalog.finalized_blocks() == 0
    assert await scene.node.catalog.open_blocks() == ()
    await scene.service.call(FINALIZE_BLOCK, ends(view, ahead.record.block))
    assert await scene.node.catalog.finalized_blocks() == 1


@pytest.mark.parametrize("how", ["close", "take over", "delete", "overwrite", "another block"])
async def test_a_block_made_ahead_that_is_not_wanted_goes_for_good(scene: Scene, how: str) -> None:
    file, view, ahead = await begun(scene)
    call = scene.service.call
    match how:
        case "close":
            await call(CLOSE_FILE, CloseFile(file, ANN, ends(view)))
        case "take over":
            await call(TAKE_OVER, TakeOver("/f"))
        case "delete":
            await call(DELETE, DeletePath("/f", False))
        case "overwrite":
            scene.clock.now += 61  # the writer's lease is over
            await call(CREATE, create_request("/f", BOB, overwrite=True))
        case _:
            await call(FINALIZE_BLOCK, ends(view))
            await call(ADD_BLOCK, AddBlock(file, ANN, view.record.block, window=2))
            for storage in ahead.record.members:  # when its replica is reported
                await scene.report(storage)

    async def gone() -> bool:
        return await is_gone(scene, ahead.record.block)

    await wait_until_async(gone)


async def test_who_was_fenced_begins_no_block_that_was_made_ahead(scene: Scene) -> None:
    _, view, ahead = await begun(scene)
    await scene.node.catalog.fence("/f")
    with pytest.raises(FencedError):
        await scene.service.call(FINALIZE_BLOCK, ends(view, ahead.record.block))
    assert await shown(scene) == [(view.record.block, 0)]
    assert not (
        await scene.service.call(GET_BLOCK, BlockRequest(view.record.block))
    ).record.finalized


async def test_only_the_block_that_was_made_ahead_for_the_file_follows_its_last_one(
    scene: Scene,
) -> None:
    file, view, ahead = await begun(scene)
    _, other, of_other = await begun(scene, "/other")
    for wrong in (of_other.record.block, other.record.block, view.record.block, BlockId(999)):
        with pytest.raises(InvalidRequestError, match="was not made ahead to follow"):
            await scene.service.call(FINALIZE_BLOCK, ends(view, wrong))
    assert await shown(scene) == [(view.record.block, 0)]
    await scene.service.call(FINALIZE_BLOCK, ends(view, ahead.record.block))
    third = await make_ahead(scene, file, ahead.record.block)
    with pytest.raises(InvalidRequestError, match="was not made ahead to follow"):
        await scene.service.call(FINALIZE_BLOCK, ends(view, third.record.block))


async def test_who_did_not_hear_that_its_block_follows_asks_for_a_block_and_gets_it(
    scene: Scene,
) -> None:
    file, view, ahead = await begun(scene)
    await scene.service.call(FINALIZE_BLOCK, ends(view, ahead.record.block))
    await scene.service.call(FINALIZE_BLOCK, ends(view))
    got = await scene.service.call(ADD_BLOCK, AddBlock(file, ANN, view.record.block, window=2))
    assert got.record.block == ahead.record.block
