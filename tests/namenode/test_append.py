"""Appending to closed files: new blocks behind the last one, one writer at a time."""

from __future__ import annotations

import asyncio

import pytest

from paxosblock.api.file_pages import GET_FILE, GetFile
from paxosblock.api.namenode import (
    ADD_BLOCK,
    APPEND,
    CLOSE_FILE,
    CREATE,
    FINALIZE_BLOCK,
    NO_BLOCK,
    RENEW_LEASES,
    AddBlock,
    Appendable,
    AppendFile,
    CloseFile,
    Excluded,
    MakeDirectories,
    RenewLeases,
)
from paxosblock.errors import (
    FencedError,
    IsDirectoryError,
    LeaseError,
    NotFoundError,
    NotReadyError,
    OutcomeUnknownError,
)
from paxosblock.namenode.catalog.records import RECOVERY_WRITER, BlockEntry
from paxosblock.protocol.types import BlockId, WriterId
from tests.namenode.memory_store import MemoryStore
from tests.namenode.scene import (
    ANN,
    BOB,
    NamedCatalog,
    Scene,
    add_block,
    blocks_of,
    closed_file,
    create_request,
    finalize,
    finalize_request,
    new_catalog,
    new_scene,
)

REQUEST = AppendFile("/f", BOB)


async def ids_of(catalog: NamedCatalog, file: int) -> list[BlockId]:
    return [entry.record.block for entry in await blocks_of(catalog, file)]


async def append_block(catalog: NamedCatalog, opened: Appendable, chunks: int) -> None:
    """Bob adds one block and closes the file."""
    entry = await add_block(catalog, opened.status.file_id, opened.last, BOB)
    await finalize(catalog, entry, chunks, BOB)
    await catalog.close_file(CloseFile(opened.status.file_id, BOB))


async def test_an_appended_block_comes_behind_those_that_were_there() -> None:
    catalog = await new_catalog()
    file = await closed_file(catalog, "/f", 2, 1)
    before = await ids_of(catalog, file)
    opened = await catalog.append(REQUEST)
    assert (opened.status.open, opened.status.size, opened.last) == (True, 30, before[-1])
    await append_block(catalog, opened, 3)
    status, entries = await catalog.status("/f"), await blocks_of(catalog, file)
    assert [entry.record.length for entry in entries] == [2, 1, 3]
    assert [entry.record.block for entry in entries][:2] == before
    assert (status.open, status.size, status.file_id) == (False, 60, file)


async def test_a_file_is_appended_to_again_and_again() -> None:
    catalog = await new_catalog()
    file = await closed_file(catalog, "/f")
    for number in range(3):
        writer = WriterId(f"writer-{number}")
        opened = await catalog.append(AppendFile("/f", writer))
        entry = await add_block(catalog, file, opened.last, writer)
        await finalize(catalog, entry, 1, writer)
        await catalog.close_file(CloseFile(file, writer))
    assert (await catalog.status("/f")).size == 30


async def test_an_append_that_adds_nothing_leaves_the_file_as_it_was() -> None:
    catalog = await new_catalog()
    file = await closed_file(catalog, "/f", 2)
    before = await ids_of(catalog, file)
    await catalog.append(REQUEST)
    await catalog.close_file(CloseFile(file, BOB))
    assert await ids_of(catalog, file) == before
    assert (await catalog.status("/f")).size == 20


async def test_an_empty_file_has_no_last_block() -> None:
    catalog = await new_catalog()
    await closed_file(catalog, "/f")
    assert (await catalog.append(REQUEST)).last == NO_BLOCK


async def test_a_repeated_append_gets_the_answer_of_the_first() -> None:
    catalog = await new_catalog()
    file = await closed_file(catalog, "/f", 2)
    first = await catalog.append(REQUEST)
    assert await catalog.append(REQUEST) == first
    await add_block(catalog, file, first.last, BOB)
    assert await catalog.append(REQUEST) == first


async def test_an_append_whose_answer_was_lost_is_done_once() -> None:
    store = MemoryStore()
    catalog = await new_catalog(store)
    await closed_file(catalog, "/f", 2)
    store.fail_after = True
    with pytest.raises(OutcomeUnknownError):
        await catalog.append(REQUEST)
    await append_block(catalog, await catalog.append(REQUEST), 1)
    assert (await catalog.status("/f")).size == 30


async def test_a_copy_of_an_append_that_comes_after_the_close_does_not_open_the_file() -> None:
    catalog = await new_catalog()
    file = await closed_file(catalog, "/f", 2)
    await catalog.append(REQUEST)
    await catalog.close_file(CloseFile(file, BOB))
    with pytest.raises(FencedError):
        await catalog.append(REQUEST)
    assert not (await catalog.status("/f")).open


async def test_a_file_that_is_being_written_is_not_appended_to() -> None:
    catalog = await new_catalog()
    await catalog.create(create_request("/f"))
    with pytest.raises(LeaseError, match="is being written by ann"):
        await catalog.append(REQUEST)


async def test_of_many_appends_at_once_one_wins() -> None:
    catalog = await new_catalog(MemoryStore(yielding=True))
    await closed_file(catalog, "/f", 1)
    writers = [WriterId(f"writer-{number}") for number in range(8)]
    answers = await asyncio.gather(
        *(catalog.append(AppendFile("/f", writer)) for writer in writers), return_exceptions=True
    )
    assert (
        sorted(type(answer).__name__ for answer in answers) == ["Appendable"] + ["LeaseError"] * 7
    )


async def test_a_file_that_is_being_recovered_can_be_appended_to_later() -> None:
    catalog = await new_catalog()
    file = (await catalog.create(create_request("/f"))).number
    await catalog.fence("/f")
    with pytest.raises(NotReadyError):
        await catalog.append(REQUEST)
    await catalog.close_file(CloseFile(file, RECOVERY_WRITER))
    assert (await catalog.append(REQUEST)).status.open


async def test_what_is_no_file_is_not_appended_to() -> None:
    catalog = await new_catalog()
    await catalog.make_directories(MakeDirectories("/d"))
    with pytest.raises(NotFoundError):
        await catalog.append(REQUEST)
    with pytest.raises(IsDirectoryError):
        await catalog.append(AppendFile("/d", BOB))


async def test_who_appended_holds_a_lease_that_keeps_others_away(scene: Scene) -> None:
    await scene.create("/f")
    await scene.service.call(
        CLOSE_FILE, CloseFile((await scene.node.catalog.status("/f")).file_id, ANN)
    )
    await scene.service.call(APPEND, REQUEST)
    assert (await scene.service.call(RENEW_LEASES, RenewLeases((BOB,)))).lost == ()
    with pytest.raises(LeaseError):
        await scene.service.call(CREATE, create_request("/f", ANN, overwrite=True))


async def test_a_close_after_an_append_does_not_wait_for_replicas_of_older_blocks() -> None:
    """The DataNodes of an old block are away for good; that must not keep the file open."""
    scene = await new_scene("s1", "s2", "s3", "s4", "s5", "s6")
    try:
        file = await scene.create("/f")
        view = await scene.add_block(file)
        scene.write(view, 1, 1, 1)
        await scene.service.call(FINALIZE_BLOCK, finalize_request(BlockEntry(view.record), 1))
        await scene.service.call(CLOSE_FILE, CloseFile(file, ANN))
        away = view.record.members
        for storage in away:
            scene.acceptor(storage).alive = False
            scene.node.replicas.forget(view.record.block, storage)
        opened = await scene.service.call(APPEND, REQUEST)
        failed = tuple(Excluded(storage, 0.0) for storage in away)
        request = AddBlock(file, BOB, opened.last, window=2, excluded=failed)
        added = await scene.service.call(ADD_BLOCK, request)
        for storage in added.record.members:
            scene.network.reach[storage].create(added.record.block)
        scene.write(added, 2, 2, 2)
        await scene.service.call(FINALIZE_BLOCK, finalize_request(BlockEntry(added.record), 2, BOB))
        closed = await scene.service.call(CLOSE_FILE, CloseFile(file, BOB))
        assert (closed.open, closed.size) == (False, 30)
        shown = await scene.service.call(GET_FILE, GetFile("/f"))
        assert [each.offset for each in shown.blocks] == [0, 10]
    finally:
        await scene.close()
