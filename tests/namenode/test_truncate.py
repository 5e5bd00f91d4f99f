"""Truncating: decided on drafts, with boundaries that holders tell; members learn it afterwards."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from paxosblock.api.care import SET_REPLICATION, SetReplication
from paxosblock.api.datanode import FindChunk, FoundChunk
from paxosblock.api.file_pages import GetFile
from paxosblock.api.methods import Once
from paxosblock.api.namenode import (
    CLOSE_FILE,
    FINALIZE_BLOCK,
    NO_BLOCK,
    TRANSACT,
    AppendFile,
    CloseFile,
)
from paxosblock.api.transaction import (
    BLOCKS_MOVED_MAX,
    AssertFile,
    Concat,
    Operation,
    Rename,
    Truncate,
)
from paxosblock.errors import (
    InvalidRequestError,
    IsDirectoryError,
    LeaseError,
    NotFoundError,
    NotReadyError,
    OutcomeUnknownError,
    PaxosBlockError,
    UnavailableError,
)
from paxosblock.namenode.blocks import cutter
from paxosblock.namenode.catalog.boundaries import Boundary, Cut
from paxosblock.namenode.catalog.draft import Draft, Slices
from paxosblock.namenode.catalog.namespace import Context
from paxosblock.namenode.catalog.records import RECOVERY_WRITER, BlockEntry
from paxosblock.namenode.catalog.truncate import truncate
from paxosblock.namenode.kv.interface import Committed, Conflict, Edit, View
from paxosblock.protocol.finalize import finalize_message
from paxosblock.protocol.messages import Finalized
from paxosblock.protocol.types import BlockId, StorageId
from tests.namenode.cluster import CHUNK_BYTES, acceptors
from tests.namenode.memory_store import MemoryStore
from tests.namenode.scene import (
    ANN,
    BOB,
    MEMBERS,
    NamedCatalog,
    Scene,
    add_block,
    blocks_of,
    closed_file,
    create_request,
    file_with_blocks,
    finalize,
    finalize_request,
    new_catalog,
    new_scene,
    sweep_everything,
)
from tests.namenode.test_transactions import apply, request_of
from tests.waiting import wait_until_async


def boundary_is_asked_of(scene: Scene) -> list[FindChunk]:
    """The questions about chunks that holders were asked, as they come."""
    asked: list[FindChunk] = []
    network = scene.network
    answer = network.find_chunk

    async def counted(question: FindChunk) -> FoundChunk:
        asked.append(question)
        return await answer(question)

    network.find_chunk = counted  # type: ignore[method-assign] # it is the network that is watched
    return asked


async def written(scene: Scene, path: str = "/f", *lengths: int) -> list[BlockEntry]:
    """A closed file with blocks of so many chunks, which all members hold."""
    file, previous = await scene.create(path), NO_BLOCK
    for length in lengths:
        view = await scene.add_block(file, previous)
        scene.write(view, *(length,) * len(view.record.members))
        done = finalize_request(BlockEntry(view.record, file), length)
        await scene.service.call(FINALIZE_BLOCK, done)
        previous = view.record.block
    await scene.service.call(CLOSE_FILE, CloseFile(file, ANN))
    entries = await blocks_of(scene.node.catalog, file)
    for entry in entries:
        await all_hold(scene, entry)
    return entries


async def all_hold(scene: Scene, entry: BlockEntry) -> None:
    """Wait until all members of a block have told that they hold what was decided of it."""
    replicas, record = scene.node.replicas, entry.record
    await wait_until_async(lambda: set(replicas.holders(record)) == set(record.members))


async def cut(scene: Scene, path: str, length: int, once: Once | None = None) -> None:
    await scene.service.call(TRANSACT, replace(request_of(Truncate(path, length)), once=once))


async def state(catalog: NamedCatalog, path: str) -> tuple[int, list[tuple[BlockId, int]]]:
    """The length of a file, and its blocks with their chunks."""
    status = await catalog.status(path)
    entries = await blocks_of(catalog, status.file_id)
    return status.size, [(entry.record.block, entry.record.length) for entry in entries]


# --- the decision --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chunks", "left"),
    [(6, [3, 1, 2]), (5, [3, 1, 1]), (4, [3, 1]), (3, [3]), (2, [2]), (1, [1]), (0, [])],
)
async def test_a_file_is_cut_between_any_two_chunks_in_one_entry_of_the_log(
    chunks: int, left: list[int]
) -> None:
    store = MemoryStore()
    catalog = await new_catalog(store)
    await closed_file(catalog, "/f", 3, 1, 2)
    before, blocks_before = store.machine.revision, (await state(catalog, "/f"))[1]
    await apply(catalog, Truncate("/f", chunks * CHUNK_BYTES))
    kept = [(block, count) for (block, _), count in zip(blocks_before, left, strict=False)]
    assert await state(catalog, "/f") == (chunks * CHUNK_BYTES, kept)
    assert store.machine.revision == before + (chunks < 6)
    assert (await catalog.status("/f")).truncations == (chunks < 6)


async def test_a_block_that_is_cut_gets_a_fresh_finalized_generation_and_remembers_it() -> None:
    catalog = await new_catalog()
    file = await closed_file(catalog, "/f", 3)
    (before,) = await blocks_of(catalog, file)
    await apply(catalog, Truncate("/f", CHUNK_BYTES))
    (after,) = await blocks_of(catalog, file)
    assert after.record.finalized_generation == before.record.generation + 1
    assert after.record.cut_generation == after.record.finalized_generation
    assert (after.record.length, after.record.size_bytes) == (1, CHUNK_BYTES)


async def test_what_is_behind_the_cut_is_swept_as_the_blocks_of_a_deleted_file_are() -> None:
    catalog = await new_catalog()
    file = await closed_file(catalog, "/f", 1, 2, 3)
    cut_off = [entry.record.block for entry in (await blocks_of(catalog, file))[1:]]
    await apply(catalog, Truncate("/f", CHUNK_BYTES))
    assert [entry.record.block for entry in await sweep_everything(catalog)] == cut_off
    assert (await catalog.counts()).blocks == 1


async def test_a_file_goes_down_and_up_again_by_concat_and_append() -> None:
    catalog = await new_catalog()
    await closed_file(catalog, "/f", 2, 2)
    await closed_file(catalog, "/more", 3)
    await apply(catalog, Truncate("/f", 3 * CHUNK_BYTES), Concat("/f", ("/more",)))
    length, found = await state(catalog, "/f")
    assert (length, [count for _, count in found]) == (6 * CHUNK_BYTES, [2, 1, 3])
    status = await catalog.status("/f")
    opened = await catalog.append(AppendFile("/f", BOB))
    assert opened.last == found[-1][0]
    entry = await add_block(catalog, status.file_id, opened.last, BOB)
    await finalize(catalog, entry, 1, BOB)
    await catalog.close_file(CloseFile(status.file_id, BOB))
    await apply(catalog, Truncate("/f", 0))
    assert await state(catalog, "/f") == (0, [])
    assert (await catalog.status("/f")).truncations == 2


async def test_a_cut_inside_a_chunk_is_refused_with_the_place_where_the_chunk_begins() -> None:
    catalog = await new_catalog()
    file = await closed_file(catalog, "/f", 2, 2)
    before = await state(catalog, "/f")
    for length, boundary in ((3 * CHUNK_BYTES + 4, 3 * CHUNK_BYTES), (CHUNK_BYTES - 1, 0)):
        with pytest.raises(InvalidRequestError, match="is inside a chunk") as caught:
            await apply(catalog, Rename("/f", "/g"), Truncate("/g", length))
        facts = {"path": "/g", "file": file, "length": length, "boundary": boundary}
        assert caught.value.details == facts | {"operation": 2}
    assert await state(catalog, "/f") == before


async def test_an_empty_block_of_a_fenced_writer_stays_at_the_new_end() -> None:
    """Its replicas refuse the node that was about to make them."""
    catalog = await new_catalog()
    inode = await file_with_blocks(catalog, "/f", 2, 0, 1, 0)
    empty = [entry.record.block for entry in await blocks_of(catalog, inode.number)][1::2]
    await catalog.fence("/f")
    await catalog.close_file(CloseFile(inode.number, RECOVERY_WRITER))
    await apply(catalog, Truncate("/f", CHUNK_BYTES))
    length, found = await state(catalog, "/f")
    assert (length, [block for block, count in found if not count]) == (CHUNK_BYTES, empty)
    places = (await catalog.file_page(GetFile("/f"))).page.blocks
    assert [each.offset for each in places] == [0, CHUNK_BYTES, CHUNK_BYTES]
    await apply(catalog, Truncate("/f", 0))
    assert [block for block, _ in (await state(catalog, "/f"))[1]] == empty


REFUSALS: list[tuple[Operation, type[PaxosBlockError], str]] = [
    (Truncate("/f", 21), InvalidRequestError, "'/f': has 20 bytes and cannot be truncated to 21"),
    (Truncate("/f", -1), InvalidRequestError, "'/f': has 20 bytes and cannot be truncated to -1"),
    (Truncate("/none", 0), NotFoundError, "'/none': no such file or directory"),
    (Truncate("/", 0), IsDirectoryError, "'/': is a directory"),
    (Truncate("/open", 0), LeaseError, "'/open': is being written by ann; take_over ends that"),
]


@pytest.mark.parametrize(("operation", "kind", "says"), REFUSALS, ids=lambda each: str(each)[:30])
async def test_what_cannot_be_truncated_is_refused_in_one_line_and_nothing_changes(
    operation: Operation, kind: type[PaxosBlockError], says: str
) -> None:
    store = MemoryStore()
    catalog = await new_catalog(store)
    await closed_file(catalog, "/f", 2)
    await catalog.create(create_request("/open"))
    before = store.machine.revision
    with pytest.raises(kind) as caught:
        await apply(catalog, operation)
    assert str(caught.value) == says
    assert store.machine.revision == before


async def test_a_file_of_very_many_blocks_is_cut_in_several_steps() -> None:
    catalog = await new_catalog()
    file = await closed_file(catalog, "/f", *(1,) * 5)
    with pytest.raises(InvalidRequestError, match="truncate it to 30 bytes first") as caught:
        await catalog.decide(int, _cut_two_at_most, Truncate("/f", CHUNK_BYTES), 1)
    assert caught.value.details == {"path": "/f", "cut_first": 3 * CHUNK_BYTES}
    for left in (3, 1):
        cut = await catalog.decide(int, _cut_two_at_most, Truncate("/f", left * CHUNK_BYTES), 1)
        assert cut.value == 2
    assert len(await blocks_of(catalog, file)) == 1


def _cut_two_at_most(draft: Draft, operation: Truncate, context: Context) -> Slices[int]:
    return (yield from truncate(draft, operation, context, 2))


async def test_the_blocks_that_a_transaction_cuts_off_and_moves_count_together() -> None:
    catalog = await new_catalog()
    await closed_file(catalog, "/many", *(1,) * BLOCKS_MOVED_MAX)
    await closed_file(catalog, "/f", 1)
    await closed_file(catalog, "/g", 1)
    with pytest.raises(InvalidRequestError, match=f"cuts at most {BLOCKS_MOVED_MAX - 1} blocks"):
        await apply(catalog, Concat("/f", ("/g",)), Truncate("/many", 0))
    await apply(catalog, Truncate("/many", 0))
    assert await state(catalog, "/many") == (0, [])


async def test_a_file_that_was_cut_since_it_was_looked_at_is_no_more_the_same() -> None:
    """Also if it is as long again."""
    catalog = await new_catalog()
    await closed_file(catalog, "/f", 2)
    await closed_file(catalog, "/g", 1)
    seen = await catalog.status("/f")
    guard = AssertFile("/f", seen.file_id, seen.size, seen.truncations)
    await apply(catalog, guard)
    await apply(catalog, Truncate("/f", CHUNK_BYTES), Concat("/f", ("/g",)))
    assert (await catalog.status("/f")).size == seen.size
    with pytest.raises(InvalidRequestError, match="'/f': was truncated meanwhile"):
        await apply(catalog, guard)


# --- with holders --------------------------------------------------------------------------------


async def test_a_holder_tells_the_boundary_and_all_members_learn_the_shorter_version(
    scene: Scene,
) -> None:
    (entry,) = await written(scene, "/f", 3)
    asked = boundary_is_asked_of(scene)
    await cut(scene, "/f", 2 * CHUNK_BYTES)
    assert {question.storage for question in asked} == set(entry.record.members)
    after = await scene.node.catalog.get_block(entry.record.block)
    await all_hold(scene, after)
    for member in after.record.members:
        assert scene.network.reach[member].replicas[entry.record.block].length == 2
    told = [line.event for line in scene.node.history.of(entry.record.block)]
    assert told.index("truncated") < len(told) - 1 - told[::-1].index("finalized")
    assert not scene.node.alarms.counts


async def test_a_cut_between_blocks_needs_nobody(scene: Scene) -> None:
    await written(scene, "/f", 2, 2)
    for storage in MEMBERS:
        scene.acceptor(storage).alive = False
    asked = boundary_is_asked_of(scene)
    await cut(scene, "/f", 2 * CHUNK_BYTES)
    await cut(scene, "/f", 0)
    assert asked == []


async def test_the_replicas_of_blocks_behind_the_cut_are_deleted(scene: Scene) -> None:
    entries = await written(scene, "/f", 2, 2)
    await cut(scene, "/f", CHUNK_BYTES)
    gone = entries[1].record
    await wait_until_async(
        lambda: all(gone.block not in scene.acceptor(each).replicas for each in gone.members)
    )
    assert entries[0].record.block in scene.acceptor(gone.members[0]).replicas


async def test_one_member_that_answers_is_enough(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cutter, "CONFIRM_S", 0.0)
    (entry,) = await written(scene, "/f", 3)
    dead, hung, _ = entry.record.members
    scene.acceptor(dead).alive = False
    scene.network.hung.add(hung)
    await cut(scene, "/f", CHUNK_BYTES)
    assert (await scene.node.catalog.status("/f")).size == CHUNK_BYTES


async def test_nobody_who_tells_the_boundary_leaves_the_file_as_it_is(scene: Scene) -> None:
    (entry,) = await written(scene, "/f", 3)
    first, second, third = entry.record.members
    scene.acceptor(first).alive = False
    scene.acceptor(second).dead.add(entry.record.block)
    del scene.acceptor(third).replicas[entry.record.block]
    with pytest.raises(NotReadyError, match="no member tells where its chunks begin") as caught:
        await cut(scene, "/f", CHUNK_BYTES)
    assert "connection refused" in str(caught.value)
    assert (await scene.node.catalog.status("/f")).size == 3 * CHUNK_BYTES


async def test_answers_that_are_not_of_what_was_decided_are_passed_over(scene: Scene) -> None:
    """Two that agree would count more than the one that is right."""
    (entry,) = await written(scene, "/f", 3)
    *liars, sound = entry.record.members
    answer = scene.network.find_chunk
    said = asyncio.Semaphore(0)

    async def lie(question: FindChunk) -> FoundChunk:
        told = await answer(question)
        if question.storage in liars:
            said.release()
            return FoundChunk(0, 0, told.size_bytes + 1)
        assert question.storage == sound
        for _ in liars:
            await said.acquire()
        return told

    scene.network.find_chunk = lie  # type: ignore[method-assign] # two members are not sound
    await cut(scene, "/f", 2 * CHUNK_BYTES)
    assert (await scene.node.catalog.get_block(entry.record.block)).record.length == 2


def tells(scene: Scene, told: dict[StorageId, int]) -> None:
    """These say that the chunk they are asked for is another one; the others answer after them."""
    answer, said = scene.network.find_chunk, asyncio.Event()

    async def tell(question: FindChunk) -> FoundChunk:
        found = await answer(question)
        if question.storage not in told:
            await said.wait()
            return found
        said.set()
        index = told[question.storage]
        return FoundChunk(index, index * CHUNK_BYTES, found.size_bytes)

    scene.network.find_chunk = tell  # type: ignore[method-assign] # it is no sound member


async def test_two_members_that_say_the_same_count_more_than_the_first_to_answer(
    scene: Scene,
) -> None:
    (entry,) = await written(scene, "/f", 3)
    tells(scene, {entry.record.members[0]: 1})
    await cut(scene, "/f", 2 * CHUNK_BYTES)
    assert (await scene.node.catalog.get_block(entry.record.block)).record.length == 2


async def test_two_members_that_contradict_each_other_leave_the_file_as_it_is(
    scene: Scene,
) -> None:
    (entry,) = await written(scene, "/f", 3)
    wrong, dead, right = entry.record.members
    scene.acceptor(dead).alive = False
    tells(scene, {wrong: 1})
    with pytest.raises(NotReadyError, match="contradict each other") as caught:
        await cut(scene, "/f", 2 * CHUNK_BYTES)
    assert wrong in str(caught.value)
    assert right in str(caught.value)
    assert (await scene.node.catalog.status("/f")).size == 3 * CHUNK_BYTES


async def test_a_member_that_leaves_meanwhile_has_the_holders_asked_again() -> None:
    """K13 gives what is there another generation."""
    scene = await new_scene("s1", "s2", "s3", "s4")
    (entry,) = await written(scene, "/f", 3)
    catalog, record = scene.node.catalog, entry.record
    asked, answer = boundary_is_asked_of(scene), scene.network.find_chunk
    await scene.service.call(SET_REPLICATION, SetReplication("/f", 2))

    async def leaves_first(question: FindChunk) -> FoundChunk:
        if len(asked) == 0:
            first, *others = record.members
            await catalog.remove_replica(
                record.block, first, record.finalized_generation, tuple(others)
            )
        return await answer(question)

    scene.network.find_chunk = leaves_first  # type: ignore[method-assign] # K13 comes between
    await cut(scene, "/f", CHUNK_BYTES)
    after = (await catalog.get_block(record.block)).record
    assert (after.length, len(after.members)) == (1, 2)
    assert {question.version.finalized_generation for question in asked} == {
        record.finalized_generation,
        record.finalized_generation + 1,
    }
    await scene.close()


async def test_a_copy_of_the_longer_version_is_no_member(scene: Scene) -> None:
    """K12 names the version; what was copied goes."""
    (entry,) = await written(scene, "/f", 3)
    fourth = StorageId("s4")
    scene.network.reach |= acceptors(fourth)
    scene.acceptor(fourth).peers = scene.network.reach
    copied = finalize_message(entry.record, entry.record.members)
    assert isinstance(scene.acceptor(fourth).answer(copied), Finalized)
    await cut(scene, "/f", CHUNK_BYTES)
    await scene.register(fourth)
    after = await scene.node.catalog.get_block(entry.record.block)
    assert fourth not in after.record.members
    await wait_until_async(lambda: entry.record.block not in scene.acceptor(fourth).replicas)
    await all_hold(scene, after)


async def test_a_member_that_was_away_is_told_when_it_reports_the_longer_version(
    scene: Scene,
) -> None:
    (entry,) = await written(scene, "/f", 3)
    away = entry.record.members[0]
    scene.acceptor(away).alive = False
    await cut(scene, "/f", CHUNK_BYTES)
    after = await scene.node.catalog.get_block(entry.record.block)
    await wait_until_async(lambda: len(scene.node.replicas.holders(after.record)) == 2)
    assert len(scene.node.replicas.whole(after.record)) == 3, "it has all the chunks"
    await scene.register(away)
    await all_hold(scene, after)
    assert scene.acceptor(away).replicas[entry.record.block].length == 1
    assert not scene.node.alarms.counts


async def test_a_request_that_comes_twice_cuts_once(scene: Scene) -> None:
    await written(scene, "/f", 3)
    once = Once("session", 1)
    scene.store.fail_after = True
    with pytest.raises(OutcomeUnknownError):
        await cut(scene, "/f", 2 * CHUNK_BYTES, once)
    await cut(scene, "/f", 2 * CHUNK_BYTES, once)
    assert (await scene.node.catalog.status("/f")).truncations == 1


class DeposedAfterwards(MemoryStore):
    """A store of which another NameNode leads after the next commit, while `armed`."""

    armed = deposed = False

    async def commit(self, edit: Edit) -> Committed | Conflict:
        """Commit, and be deposed."""
        outcome = await super().commit(edit)
        self.deposed = self.armed
        return outcome

    async def barrier(self) -> View:
        """Refuse once it is deposed."""
        if self.deposed:
            raise UnavailableError("another NameNode leads")
        return await super().barrier()


async def test_what_fails_after_a_block_was_cut_does_not_say_that_nothing_was_done() -> None:
    store = DeposedAfterwards()
    scene = await new_scene(store=store)
    await written(scene, "/f", 3)
    store.armed = True
    await cut(scene, "/f", CHUNK_BYTES)
    assert store.deposed
    store.armed = store.deposed = False
    assert (await scene.node.catalog.status("/f")).size == CHUNK_BYTES
    await scene.close()


async def test_a_leader_that_never_told_the_members_leaves_that_to_the_walk() -> None:
    """P5 does not depend on the process that cut the block."""
    scene = await new_scene()
    (entry,) = await written(scene, "/f", 3)
    await scene.node.catalog.decide(
        int,
        truncate,
        Truncate("/f", CHUNK_BYTES),
        1,
        boundaries={
            Cut(entry.record.block, entry.record.finalized_generation, CHUNK_BYTES): Boundary(
                1, CHUNK_BYTES
            )
        },
    )
    for storage in MEMBERS:
        await scene.report(storage)
    await all_hold(scene, await scene.node.catalog.get_block(entry.record.block))
    lengths = {scene.acceptor(each).replicas[entry.record.block].length for each in MEMBERS}
    assert lengths == {1}
    await scene.close()
