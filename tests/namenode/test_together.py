"""Members of many blocks come and go in one entry of the log, each judged by itself."""

from __future__ import annotations

import asyncio

import pytest

from paxosblock.errors import NotFoundError, OutcomeUnknownError
from paxosblock.namenode.catalog.member_batches import TOGETHER_MAX
from paxosblock.namenode.catalog.records import BlockEntry
from paxosblock.protocol.finalize import BlockRecord, Refused, Why
from paxosblock.protocol.types import BlockId, Generation, StorageId
from tests.namenode.memory_store import MemoryStore
from tests.namenode.scene import MEMBERS, NamedCatalog, blocks_of, file_with_blocks, new_catalog

S4 = StorageId("s4")


async def decided(catalog: NamedCatalog, count: int) -> list[BlockRecord]:
    """So many finalized blocks of one file."""
    file = await file_with_blocks(catalog, "/f", *([1] * count))
    return [entry.record for entry in await blocks_of(catalog, file.number)]


async def test_many_at_once_share_an_edit_and_each_gets_its_own_answer() -> None:
    store = MemoryStore()
    catalog = await new_catalog(store)
    first, *others = await decided(catalog, TOGETHER_MAX - 1)
    fgs, before = first.finalized_generation, store.commits
    old, gone, *grown = await asyncio.gather(
        catalog.add_replica(first.block, S4, Generation(0)),
        catalog.add_replica(BlockId(4711), S4, fgs),
        *(catalog.add_replica(each.block, S4, fgs) for each in others),
        return_exceptions=True,
    )
    assert store.commits == before + 1
    assert isinstance(old, Refused)
    assert old.why is Why.NEWER
    assert isinstance(gone, NotFoundError)
    for record, entry in zip(others, grown, strict=True):
        assert isinstance(entry, BlockEntry)
        assert entry.record.block == record.block
        assert entry.record.members == (*MEMBERS, S4)
        assert await catalog.get_block(record.block) == entry


async def test_each_is_decided_on_what_those_before_it_did() -> None:
    """Two members of a block never leave on the same reports, not even in one entry of the log."""
    store = MemoryStore()
    catalog = await new_catalog(store)
    (record,) = await decided(catalog, 1)
    block, fgs = record.block, record.finalized_generation
    added, left, again = await asyncio.gather(
        catalog.add_replica(block, S4, fgs),
        catalog.remove_replica(block, MEMBERS[0], fgs, (*MEMBERS[1:], S4)),
        catalog.remove_replica(block, MEMBERS[1], fgs, (MEMBERS[0], MEMBERS[2], S4)),
    )
    assert isinstance(added, BlockEntry)
    assert isinstance(left, BlockEntry)
    assert left.record.members == (*MEMBERS[1:], S4)
    assert isinstance(again, Refused)
    assert again.why is Why.NEWER


async def test_more_than_fit_go_in_several_edits() -> None:
    store = MemoryStore()
    catalog = await new_catalog(store)
    records, before = await decided(catalog, 2 * TOGETHER_MAX + 1), store.commits
    fgs = records[0].finalized_generation
    await asyncio.gather(*(catalog.add_replica(each.block, S4, fgs) for each in records))
    assert store.commits == before + 3


async def test_when_who_commits_is_cancelled_the_others_are_done_all_the_same() -> None:
    store = MemoryStore()
    catalog = await new_catalog(store)
    records = await decided(catalog, 3)
    fgs = records[0].finalized_generation
    store.yielding = True
    tasks = [asyncio.create_task(catalog.add_replica(each.block, S4, fgs)) for each in records]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    tasks[0].cancel()
    for task, record in zip(tasks[1:], records[1:], strict=True):
        entry = await task
        assert isinstance(entry, BlockEntry)
        assert await catalog.get_block(record.block) == entry
    assert tasks[0].cancelled()


async def test_what_may_not_have_been_committed_is_unknown_to_all_of_them() -> None:
    store = MemoryStore()
    catalog = await new_catalog(store)
    records = await decided(catalog, 2)
    fgs = records[0].finalized_generation
    store.fail_before = True
    asked = (catalog.add_replica(each.block, S4, fgs) for each in records)
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(each, OutcomeUnknownError) for each in outcomes)
    assert isinstance(await catalog.add_replica(records[0].block, S4, fgs), BlockEntry)


@pytest.mark.parametrize("count", [1, 3])
async def test_who_gives_up_before_its_turn_is_not_committed(count: int) -> None:
    store = MemoryStore()
    catalog = await new_catalog(store)
    *records, other = await decided(catalog, count + 1)
    fgs, before = other.finalized_generation, store.commits
    tasks = [asyncio.create_task(catalog.add_replica(each.block, S4, fgs)) for each in records]
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await catalog.add_replica(other.block, S4, fgs)
    assert store.commits == before + 1
    for record in records:
        assert (await catalog.get_block(record.block)).record.members == MEMBERS
