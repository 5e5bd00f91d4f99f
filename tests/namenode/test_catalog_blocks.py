"""Blocks in the catalog: the rules K1 to K13 as edits, retries, and closing a file."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from paxosblock.api.namenode import (
    NO_BLOCK,
    NO_FILE,
    AddBlock,
    CloseFile,
    DeletePath,
    FinalizeBlock,
    MakeDirectories,
)
from paxosblock.errors import FencedError, InvalidRequestError, NotFoundError, OutcomeUnknownError
from paxosblock.namenode.catalog.ids import RANGE
from paxosblock.namenode.catalog.records import RECOVERY_WRITER, BlockEntry
from paxosblock.protocol.finalize import Refused, Why
from paxosblock.protocol.types import (
    FIRST_GENERATION,
    BlockId,
    BlockState,
    Generation,
    StorageId,
)
from tests.namenode.memory_store import MemoryStore
from tests.namenode.scene import (
    ANN,
    BOB,
    MEMBERS,
    TAG,
    NamedCatalog,
    add_block,
    blocks_of,
    create_request,
    file_with_blocks,
    finalize,
    finalize_request,
    new_catalog,
)

S4 = StorageId("s4")
T = TypeVar("T")


def done(outcome: BlockEntry | Refused) -> BlockEntry:
    assert isinstance(outcome, BlockEntry)
    return outcome


async def open_block(catalog: NamedCatalog, path: str = "/f") -> BlockEntry:
    """The first block of a new file."""
    file = await catalog.create(create_request(path))
    return await add_block(catalog, file.number)


async def test_k1_a_new_block_is_under_construction_for_its_writer() -> None:
    entry = await open_block(await new_catalog())
    record = entry.record
    assert (record.state, record.generation) == (BlockState.UNDER_CONSTRUCTION, 0)
    assert (record.writer, record.members, record.window) == (ANN, MEMBERS, 2)


async def test_k1_a_repeated_request_gets_the_block_of_the_first() -> None:
    catalog = await new_catalog()
    first = await open_block(catalog)
    assert await add_block(catalog, first.file) == first
    await finalize(catalog, first, 1)
    second = await add_block(catalog, first.file, first.record.block)
    assert await add_block(catalog, first.file, first.record.block) == second
    assert [entry.record.block for entry in await blocks_of(catalog, first.file)] == [
        first.record.block,
        second.record.block,
    ]


async def test_k1_many_copies_of_a_request_at_once_make_one_block() -> None:
    catalog = await new_catalog(MemoryStore(yielding=True))
    file = await catalog.create(create_request("/f"))
    entries = await asyncio.gather(*(add_block(catalog, file.number) for _ in range(10)))
    assert len({entry.record.block for entry in entries}) == 1


async def test_k1_the_previous_block_must_be_finalized() -> None:
    catalog = await new_catalog()
    first = await open_block(catalog)
    with pytest.raises(InvalidRequestError, match="finalize it before the next block"):
        await add_block(catalog, first.file, first.record.block)


async def test_k1_an_outdated_previous_block_is_refused() -> None:
    catalog = await new_catalog()
    file = await file_with_blocks(catalog, "/f", 1, 1)
    with pytest.raises(InvalidRequestError, match="is not the last block of file"):
        await add_block(catalog, file.number)
    with pytest.raises(InvalidRequestError, match="block 12: is not the last block"):
        await add_block(catalog, file.number, BlockId(12))


async def test_k1_only_the_holder_of_the_file_adds_blocks() -> None:
    catalog = await new_catalog()
    file = await catalog.create(create_request("/f"))
    with pytest.raises(FencedError, match="'/f': bob was fenced, ann holds the file now"):
        await add_block(catalog, file.number, writer=BOB)
    await catalog.fence("/f")
    with pytest.raises(FencedError, match="'/f': ann was fenced, recovery holds the file now"):
        await add_block(catalog, file.number)
    with pytest.raises(NotFoundError, match="file 99: no such file"):
        await add_block(catalog, 99)


async def test_a_block_without_a_file_stands_alone() -> None:
    catalog = await new_catalog()
    request = AddBlock(NO_FILE, ANN, NO_BLOCK, 2)
    entry = await catalog.add_block(request, await catalog.next_block(), MEMBERS)
    assert (entry.file, await catalog.block_path(entry)) == (NO_FILE, "")
    assert (await finalize(catalog, entry, 1)).record.finalized


async def test_k2_each_seal_gets_a_generation_of_its_own() -> None:
    catalog = await new_catalog(MemoryStore(yielding=True))
    block = (await open_block(catalog)).record.block
    seals = await asyncio.gather(*(catalog.allocate_seal(block) for _ in range(5)))
    assert sorted(done(seal).record.generation for seal in seals) == [1, 2, 3, 4, 5]


async def test_k2_a_finalized_block_is_not_sealed() -> None:
    catalog = await new_catalog()
    entry = await finalize(catalog, await open_block(catalog), 1)
    refused = await catalog.allocate_seal(entry.record.block)
    assert refused == Refused(Why.FINALIZED, entry.record)


async def test_k5_only_the_latest_recovery_decides() -> None:
    catalog = await new_catalog()
    block = (await open_block(catalog)).record.block
    first = done(await catalog.allocate_seal(block)).record.generation
    second = done(await catalog.allocate_seal(block)).record.generation
    early = await catalog.finalize_by_recovery(block, FIRST_GENERATION, first, 2, 20)
    assert isinstance(early, Refused)
    late = done(await catalog.finalize_by_recovery(block, FIRST_GENERATION, second, 1, 10))
    assert (late.record.length, late.record.finalized_generation) == (1, 3)


async def test_k6_the_writer_closes_over_a_recovery_that_was_only_allocated() -> None:
    catalog = await new_catalog()
    entry = await open_block(catalog)
    await catalog.allocate_seal(entry.record.block)
    assert (await finalize(catalog, entry, 2)).record.length == 2


async def test_k6_a_repeated_request_succeeds_again_and_commits_nothing() -> None:
    store = MemoryStore()
    catalog = await new_catalog(store)
    entry = await open_block(catalog)
    first = await finalize(catalog, entry, 2)
    commits = store.commits
    assert await finalize(catalog, entry, 2) == first
    assert store.commits == commits


async def test_k6_a_writer_learns_which_length_a_recovery_decided() -> None:
    catalog = await new_catalog()
    entry = await open_block(catalog)
    block = entry.record.block
    seal = done(await catalog.allocate_seal(block)).record.generation
    await catalog.finalize_by_recovery(block, FIRST_GENERATION, seal, 1, 10)
    with pytest.raises(FencedError, match="was finalized with 1 chunks, 10 bytes") as caught:
        await finalize(catalog, entry, 2)
    assert caught.value.details["length"] == 1


async def test_k6_another_writer_or_generation_is_refused() -> None:
    catalog = await new_catalog()
    entry = await open_block(catalog)
    with pytest.raises(FencedError, match="belongs to writer ann in generation 0"):
        await finalize(catalog, entry, 1, BOB)
    wrong = FinalizeBlock(entry.record.block, ANN, Generation(1), 1, 10)
    with pytest.raises(FencedError):
        await catalog.finalize_by_writer(wrong)


async def test_k12_a_copy_that_was_reported_becomes_a_member() -> None:
    store = MemoryStore()
    catalog = await new_catalog(store)
    record = (await finalize(catalog, await open_block(catalog), 2)).record
    grown = done(await catalog.add_replica(record.block, S4, record.finalized_generation))
    assert grown.record.members == (*MEMBERS, S4)
    assert (await catalog.get_block(record.block)) == grown
    commits = store.commits
    assert await catalog.add_replica(record.block, S4, record.finalized_generation) == grown
    assert store.commits == commits
    old = await catalog.add_replica(record.block, S4, Generation(0))
    assert isinstance(old, Refused)


async def test_k13_a_member_leaves_while_as_many_others_hold_it_as_its_file_asks_for() -> None:
    catalog = await new_catalog()
    record = (await finalize(catalog, await open_block(catalog), 2)).record
    block, fgs = record.block, record.finalized_generation
    refused = await catalog.remove_replica(block, MEMBERS[2], fgs, MEMBERS[:2])
    assert isinstance(refused, Refused)
    assert refused.why is Why.TOO_FEW
    await catalog.add_replica(block, S4, fgs)
    left = done(await catalog.remove_replica(block, MEMBERS[0], fgs, (*MEMBERS[1:], S4))).record
    assert left.members == (*MEMBERS[1:], S4)
    assert left.finalized_generation == fgs + 1
    again = await catalog.remove_replica(block, MEMBERS[1], fgs, (MEMBERS[2], S4))
    assert isinstance(again, Refused)
    assert again.why is Why.NEWER


async def test_k13_a_block_without_a_file_keeps_as_many_as_it_was_added_with() -> None:
    catalog = await new_catalog()
    request = AddBlock(NO_FILE, ANN, NO_BLOCK, window=2, replication=2)
    entry = await catalog.add_block(request, await catalog.next_block(), MEMBERS)
    record = (await finalize(catalog, entry, 1)).record
    block, fgs = record.block, record.finalized_generation
    one = await catalog.remove_replica(block, MEMBERS[2], fgs, MEMBERS[:1])
    assert isinstance(one, Refused)
    left = done(await catalog.remove_replica(block, MEMBERS[2], fgs, MEMBERS[:2])).record
    assert left.members == MEMBERS[:2]


async def test_k13_nobody_leaves_a_block_whose_file_was_deleted() -> None:
    """The block goes as a whole: its members are told when the sweep comes to it."""
    catalog = await new_catalog()
    file = await file_with_blocks(catalog, "/f", 1)
    record = (await blocks_of(catalog, file.number))[0].record
    await catalog.close_file(CloseFile(file.number, ANN))
    await catalog.delete(DeletePath("/f"))
    with pytest.raises(NotFoundError):
        await catalog.remove_replica(
            record.block, MEMBERS[2], record.finalized_generation, MEMBERS[:2]
        )


async def test_a_closed_file_has_the_length_of_its_blocks() -> None:
    catalog = await new_catalog()
    file = await file_with_blocks(catalog, "/f", 3, 2)
    closed = await catalog.close_file(CloseFile(file.number, ANN))
    assert (closed.inode.open, closed.inode.length, closed.dropped) == (False, 50, ())
    assert (await catalog.status("/f")).size == 50
    assert await catalog.open_files() == ()


async def test_while_a_file_is_open_only_decided_blocks_count() -> None:
    catalog = await new_catalog()
    file = await file_with_blocks(catalog, "/f", 3)
    last = (await blocks_of(catalog, file.number))[-1].record.block
    await add_block(catalog, file.number, last)
    assert (await catalog.status("/f")).size == 30


async def test_closing_drops_a_last_block_of_length_zero_and_those_before_go_first() -> None:
    catalog = await new_catalog()
    file = await file_with_blocks(catalog, "/f", 0, 2, 0)
    blocks = tuple(entry.record.block for entry in await blocks_of(catalog, file.number))
    dropped = await catalog.drop_empty(file.number, ANN, blocks)
    assert [entry.record.block for entry in dropped] == [blocks[0]]
    assert await catalog.drop_empty(file.number, ANN, blocks) == ()
    with pytest.raises(FencedError):
        await catalog.drop_empty(file.number, BOB, blocks)
    closed = await catalog.close_file(CloseFile(file.number, ANN))
    assert [entry.record.block for entry in closed.dropped] == [blocks[2]]
    (left,) = await blocks_of(catalog, file.number)
    assert left.record.length == 2
    for entry in (*dropped, *closed.dropped):
        with pytest.raises(NotFoundError):
            await catalog.get_block(entry.record.block)


async def test_an_empty_block_stays_when_it_is_not_its_own_writer_who_closes() -> None:
    """A fenced writer may be about to make its replicas: while they are there they refuse it."""
    catalog = await new_catalog()
    file = await file_with_blocks(catalog, "/f", 2, 0)
    await catalog.fence("/f")
    closed = await catalog.close_file(CloseFile(file.number, RECOVERY_WRITER))
    assert (closed.inode.length, closed.dropped) == (20, ())
    assert [entry.record.length for entry in await blocks_of(catalog, file.number)] == [2, 0]


async def test_a_file_with_an_open_block_is_not_closed() -> None:
    catalog = await new_catalog()
    entry = await open_block(catalog)
    with pytest.raises(InvalidRequestError) as caught:
        await catalog.close_file(CloseFile(entry.file, ANN))
    block = entry.record.block
    assert str(caught.value) == f"'/f': block {block} is not finalized (under construction)"


async def test_a_repeated_close_succeeds_and_another_writer_is_fenced() -> None:
    catalog = await new_catalog()
    file = await file_with_blocks(catalog, "/f", 1)
    first = await catalog.close_file(CloseFile(file.number, ANN))
    assert (await catalog.close_file(CloseFile(file.number, ANN))).inode == first.inode
    with pytest.raises(FencedError, match="'/f': was closed by ann"):
        await catalog.close_file(CloseFile(file.number, BOB))


async def test_a_block_added_at_the_same_time_never_ends_up_in_a_closed_file() -> None:
    """The close begins ever later: in some turn it is decided while the block is on its way."""
    conflicts = 0
    for turns in range(12):
        store = MemoryStore(yielding=True)
        catalog = await new_catalog(store)
        file = await file_with_blocks(catalog, "/f", 1)
        last = (await blocks_of(catalog, file.number))[-1].record.block

        async def close_later(catalog: NamedCatalog, number: int, turns: int) -> None:
            for _ in range(turns):
                await asyncio.sleep(0)
            await catalog.close_file(CloseFile(number, ANN))

        await asyncio.gather(
            add_block(catalog, file.number, last),
            close_later(catalog, file.number, turns),
            return_exceptions=True,
        )
        status = await catalog.status("/f")
        blocks = await blocks_of(catalog, file.number)
        assert status.open or all(entry.record.finalized for entry in blocks)
        conflicts += store.conflicts
    assert conflicts > 0, "one was decided before the other was there"


async def test_a_fenced_file_is_recoverys_until_it_is_closed() -> None:
    catalog = await new_catalog()
    file = await file_with_blocks(catalog, "/f", 1)
    fenced = await catalog.fence("/f")
    assert (fenced.writer, fenced.open) == (RECOVERY_WRITER, True)
    assert await catalog.fence("/f") == fenced
    with pytest.raises(FencedError):
        await catalog.close_file(CloseFile(file.number, ANN))
    closed = (await catalog.close_file(CloseFile(file.number, RECOVERY_WRITER))).inode
    assert await catalog.fence("/f") == closed


async def test_a_lease_that_is_over_fences_only_its_own_writer() -> None:
    catalog = await new_catalog()
    file = await catalog.create(create_request("/f"))
    assert await catalog.fence_writer(file.number, BOB) is None
    fenced = await catalog.fence_writer(file.number, ANN)
    assert fenced is not None
    assert fenced.writer == RECOVERY_WRITER
    await catalog.delete(DeletePath("/f"))
    assert await catalog.fence_writer(file.number, RECOVERY_WRITER) is None


@pytest.mark.parametrize("when", ["fail_before", "fail_after"])
async def test_after_an_unknown_outcome_the_same_requests_finish_the_work(when: str) -> None:
    """Every step of a writer may be repeated, whether or not it took effect the first time."""
    store = MemoryStore()
    catalog = await new_catalog(store)
    await catalog.next_block()
    await catalog.create(create_request("/other"))  # ids are reserved: only the steps fail

    async def twice(step: Callable[[], Awaitable[T]]) -> T:
        setattr(store, when, True)
        with pytest.raises(OutcomeUnknownError):
            await step()
        return await step()

    number = (await twice(lambda: catalog.create(create_request("/f")))).number
    entry = await twice(lambda: add_block(catalog, number))
    await twice(lambda: catalog.finalize_by_writer(finalize_request(entry, 2)))
    await twice(lambda: catalog.close_file(CloseFile(number, ANN)))
    status = await catalog.status("/f")
    assert (status.open, status.size) == (False, 20)
    assert len(await blocks_of(catalog, number)) == 1


async def test_thousands_of_directories_are_made_without_another_reservation() -> None:
    """All changes that make names would wait for it."""
    store = MemoryStore()
    catalog = await new_catalog(store)
    await catalog.make_directories(MakeDirectories("/a/b"))
    commits = store.commits
    for number in range(1000):
        await catalog.make_directories(MakeDirectories(f"/a/b/{number}"))
    assert store.commits == commits + 1000


async def test_ids_are_reserved_in_ranges_and_never_given_twice() -> None:
    store = MemoryStore(yielding=True)
    first, second = await new_catalog(store), await new_catalog(store)
    commits = store.commits
    pools = [first, second] * (RANGE // 2)
    taken = await asyncio.gather(*(catalog.next_block() for catalog in pools))
    assert len(set(taken)) == RANGE
    assert store.commits - commits <= 4
    assert all(block >> 32 == TAG for block in taken)
    assert all(first.was_allocated(block) for block in taken)
    assert not first.was_allocated(BlockId(taken[0] + (1 << 40)))
    assert not first.was_allocated(BlockId((TAG << 32) + 10 * RANGE))
