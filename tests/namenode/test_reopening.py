"""Append opens the last block of a file again: K4, an APPEND, K7; given up (K9) at every step."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator

import pytest
from msgspec import structs
from msgspec.structs import replace

from paxosblock.api.care import AdminState
from paxosblock.api.namenode import (
    ADD_BLOCK,
    APPEND,
    CLOSE_FILE,
    CONCAT,
    DELETE,
    FINALIZE_BLOCK,
    GET_BLOCK,
    REOPEN_BLOCK,
    STAT,
    TAKE_OVER,
    AddBlock,
    AppendFile,
    BlockRequest,
    CloseFile,
    ConcatFiles,
    DeletePath,
    Excluded,
    FinalizeBlock,
    PathRequest,
    ReopenBlock,
    TakeOver,
)
from paxosblock.api.status import EXPLAIN, VoteLine
from paxosblock.config import NameNodeConfig
from paxosblock.errors import (
    FencedError,
    InvalidRequestError,
    NotFoundError,
    OutcomeUnknownError,
)
from paxosblock.namenode.blocks import history, leftovers, reopener
from paxosblock.namenode.blocks.replication.copies import Copy
from paxosblock.namenode.catalog import keys, reopening
from paxosblock.namenode.catalog.records import FileInode, NodeRecord
from paxosblock.namenode.closer import Closer
from paxosblock.namenode.kv.interface import Committed, Conflict, Edit, Versioned
from paxosblock.namenode.kv.state_machine import StateMachine
from paxosblock.protocol import recovery
from paxosblock.protocol.finalize import BlockRecord
from paxosblock.protocol.messages import Finalize, RecoveryWrite, Write
from paxosblock.protocol.types import (
    NO_GENERATION,
    BlockId,
    BlockState,
    ChunkIndex,
    Durability,
    ReplicaState,
    StorageId,
    WriterId,
)
from tests.namenode.cluster import CHUNK_BYTES, Network, acceptors
from tests.namenode.memory_store import MemoryStore
from tests.namenode.scene import ANN, BOB, MEMBERS, Scene, new_scene
from tests.waiting import wait_until_async

CHUNKS = 2
"""Chunks of the file before it is appended to."""
SIZE = CHUNKS * CHUNK_BYTES
S3, S4 = StorageId("s3"), StorageId("s4")
AWAY_S = 20.0
"""Silence after which a DataNode is dead, and nothing is copied yet."""


async def written(scene: Scene, path: str = "/f") -> ReopenBlock:
    """A closed file of one block, which Bob has opened for appending; what he asks for next."""
    file = await closed_file(scene, path)
    opened = await scene.service.call(APPEND, AppendFile(path, BOB))
    return ReopenBlock(file, BOB, opened.last, 2, CHUNK_BYTES, 8)


async def closed_file(scene: Scene, path: str) -> int:
    """A closed file of one block; its id."""
    call = scene.service.call
    file = await scene.create(path)
    view = await scene.add_block(file)
    scene.write(view, *[CHUNKS] * 3)
    block = view.record.block
    await call(FINALIZE_BLOCK, FinalizeBlock(block, ANN, view.record.generation, CHUNKS, SIZE))
    await wait_until_async(lambda: is_finalized(scene, block))
    for storage in MEMBERS:
        await scene.report(storage)
    await Closer.close(scene.node.closer, CloseFile(file, ANN))
    return file


def is_finalized(scene: Scene, block: BlockId, *storages: str) -> bool:
    held = (scene.acceptor(each).replicas.get(block) for each in storages or MEMBERS)
    return all(each and each.registers.state is ReplicaState.FINALIZED for each in held)


def is_at(scene: Scene, record: BlockRecord, *storages: str) -> bool:
    held = (scene.acceptor(each).replicas[record.block].registers for each in storages or MEMBERS)
    return all(each.accepted_generation == record.finalized_generation for each in held)


async def record_of(scene: Scene, block: BlockId) -> BlockRecord:
    return (await scene.service.call(GET_BLOCK, BlockRequest(block, BOB))).record


async def reopened(scene: Scene, asked: ReopenBlock) -> BlockRecord:
    answer = await scene.service.call(REOPEN_BLOCK, asked)
    assert answer.view is not None, answer.why
    return answer.view.record


async def left_alone(scene: Scene, asked: ReopenBlock) -> str:
    """Return why the block is left alone; the writer begins a new one, as nothing is in its way."""
    answer = await scene.service.call(REOPEN_BLOCK, asked)
    assert answer.view is None
    record = await record_of(scene, asked.block)
    assert record.finalized
    assert not record.reopening
    return answer.why


def write_on(scene: Scene, record: BlockRecord, count: int) -> None:
    """Bob writes chunks until all members have `count`."""
    for index in range(record.length, count):
        chunk = Write(
            record.block, record.writer_generation, ChunkIndex(index), CHUNK_BYTES, 70 + index, 0
        )
        for member in record.members:
            scene.network.reach[member].answer(chunk)


async def set_up(scene: Scene, asked: ReopenBlock, *accepted: str) -> BlockRecord:
    """K4, and the APPEND arrives at some members; then the NameNode that set it up is gone."""
    record = await record_of(scene, asked.block)
    entry = await scene.node.catalog.allocate_append(asked, record)
    assert entry is not None
    proposer = recovery.append(entry.record, entry.record.members)
    for storage in accepted:
        scene.acceptor(storage).answer(recovery.recovery_write(proposer))
    return entry.record


def is_under_way(scene: Scene) -> bool:
    return any(isinstance(each, RecoveryWrite) for _, each in scene.network.asked)


async def next_leader(scene: Scene) -> Scene:
    """The node ends in this moment; another one leads."""
    await scene.close()
    return await new_scene(store=scene.store, network=scene.network)


async def test_the_last_block_is_open_again_for_the_appender(scene: Scene) -> None:
    asked = await written(scene)
    before = await record_of(scene, asked.block)
    record = await reopened(scene, asked)
    assert (record.state, record.writer) == (BlockState.UNDER_CONSTRUCTION, BOB)
    assert (sorted(record.members), record.base_length) == ([*MEMBERS], CHUNKS)
    assert record.size_bytes == SIZE
    assert record.writer_generation > before.finalized_generation
    status = await scene.service.call(STAT, PathRequest("/f"))
    assert (status.open, status.size) == (True, SIZE), "never less than before"


async def test_the_file_has_one_block_when_it_is_closed_again(scene: Scene) -> None:
    asked = await written(scene)
    record = await reopened(scene, asked)
    write_on(scene, record, 5)
    end = FinalizeBlock(asked.block, BOB, record.writer_generation, 5, 5 * CHUNK_BYTES)
    await scene.service.call(FINALIZE_BLOCK, end)
    await wait_until_async(lambda: is_finalized(scene, asked.block))
    status = await scene.service.call(CLOSE_FILE, CloseFile(asked.file_id, BOB))
    assert (status.open, status.size) == (False, 5 * CHUNK_BYTES)
    (entry,) = [
        each async for page in scene.node.catalog.block_pages(asked.file_id) for each in page
    ]
    assert entry.record.length == 5


async def test_the_answer_to_a_close_is_the_file_as_it_was_closed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever another writer appended before the answer left."""
    asked = await written(scene)
    record = await reopened(scene, asked)
    write_on(scene, record, 3)
    close = scene.node.closer.close

    async def late(wanted: CloseFile) -> FileInode:
        closed = await close(wanted)
        await closed_file(scene, "/more")
        await scene.service.call(CONCAT, ConcatFiles("/f", ("/more",)))
        return closed

    monkeypatch.setattr(scene.node.closer, "close", late)
    end = FinalizeBlock(asked.block, BOB, record.writer_generation, 3, 3 * CHUNK_BYTES)
    status = await scene.service.call(CLOSE_FILE, CloseFile(asked.file_id, BOB, end))
    assert (status.open, status.size) == (False, 3 * CHUNK_BYTES)
    grown = await scene.service.call(STAT, PathRequest("/f"))
    assert grown.size == (3 + CHUNKS) * CHUNK_BYTES


async def test_the_close_waits_for_the_block_that_was_opened_again(scene: Scene) -> None:
    asked = await written(scene)
    record = await reopened(scene, asked)
    holder = await scene.node.catalog.holder(asked.file_id)
    assert holder is not None
    assert holder.appended_from == 0
    assert record.block == asked.block


async def test_a_repeated_request_is_answered_with_what_was_installed(scene: Scene) -> None:
    asked = await written(scene)
    first, second = await asyncio.gather(reopened(scene, asked), reopened(scene, asked))
    assert first == second
    other = await next_leader(scene)
    try:
        assert await reopened(other, asked) == first
    finally:
        await other.close()


ALONE: dict[str, Callable[[ReopenBlock], ReopenBlock]] = {
    "its window is 2 chunks": lambda asked: replace(asked, window=3),
    "it has 2 chunks": lambda asked: replace(asked, chunks=2),
    "it has 20 of 1048576 bytes": lambda asked: replace(asked, size_bytes=(1 << 20) - SIZE + 1),
}


@pytest.mark.parametrize("why", ALONE)
async def test_a_block_without_room_or_with_another_window_is_left_alone(
    scene: Scene, why: str
) -> None:
    asked = await written(scene)
    assert await left_alone(scene, ALONE[why](asked)) == why


async def test_a_block_of_another_durability_is_left_alone(scene: Scene) -> None:
    """A concat may have brought it."""
    asked = await written(scene)
    entry, file = reopening.requested(await scene.node.catalog.view(), asked)
    brought = structs.replace(entry.record, durability=Durability.MEMORY)
    assert reopening.left_alone(brought, file, asked) == "its durability is memory"
    assert reopening.left_alone(structs.replace(brought, length=0), file, asked) == "it is empty"


async def test_a_member_that_has_not_reported_the_block_yet_takes_part(scene: Scene) -> None:
    """A log is appended to again before all members have said that they finalized it."""
    asked = await written(scene)
    scene.node.replicas.forget(asked.block, S3)
    assert len((await reopened(scene, asked)).members) == 3


async def test_a_member_that_lost_the_block_gets_it_from_the_others(scene: Scene) -> None:
    asked = await written(scene)
    del scene.acceptor("s3").replicas[asked.block]
    assert len((await reopened(scene, asked)).members) == 3
    assert scene.acceptor("s3").replicas[asked.block].length == CHUNKS


async def test_a_block_at_a_node_that_is_to_leave_is_left_alone(scene: Scene) -> None:
    asked = await written(scene)
    leaving = NodeRecord(AdminState.DECOMMISSIONED, "dn-s3:9864", (S3,))
    scene.node.datanodes.admin.take([("dn-s3", leaving)], scene.clock(), 0)
    assert await left_alone(scene, asked) == "s3 is to leave"


async def test_in_safe_mode_no_member_is_left_out(scene: Scene) -> None:
    """Its replica would go, and safe mode lets nothing go."""
    asked = await written(scene)
    await scene.node.catalog.enter_safe_mode()
    short = replace(asked, excluded=(Excluded(S3, 0.1),))
    assert await left_alone(scene, short) == "2 of 3 members can go on, 3 needed in safe mode"
    assert len((await reopened(scene, asked)).members) == 3


async def test_a_member_that_does_not_live_is_left_out(scene: Scene) -> None:
    asked = await written(scene)
    scene.clock.now += 3600
    await scene.beat("s1", "s2")
    record = await reopened(scene, asked)
    assert sorted(record.members) == ["s1", "s2"]


async def test_a_member_that_failed_the_writer_is_left_out(scene: Scene) -> None:
    asked = await written(scene)
    scene.clock.now += 1
    record = await reopened(scene, replace(asked, excluded=(Excluded(S3, 0.1),)))
    assert sorted(record.members) == ["s1", "s2"]


async def test_a_damaged_member_is_left_out_where_nothing_takes_its_place(scene: Scene) -> None:
    asked = await written(scene)
    scene.clock.now += 1
    scene.node.replicas.note_damaged(asked.block, S3)
    s3_failed = replace(asked, excluded=(Excluded(S3, 0.1),))
    assert sorted((await reopened(scene, s3_failed)).members) == ["s1", "s2"]


async def test_a_block_that_lost_a_member_is_left_alone_once_the_next_one_gets_more(
    scene: Scene,
) -> None:
    """Else a log stays short for as long as it is appended to, as each line begins an epoch."""
    asked = await written(scene)
    scene.clock.now += 3600
    await scene.beat("s1", "s2")
    record = await reopened(scene, asked)
    assert sorted(record.members) == ["s1", "s2"], "there is nothing better"
    file, generation = asked.file_id, record.writer_generation
    end = FinalizeBlock(asked.block, BOB, generation, CHUNKS, SIZE)
    await scene.service.call(FINALIZE_BLOCK, end)
    await scene.service.call(CLOSE_FILE, CloseFile(file, BOB))
    await scene.register("s3")
    opened = await scene.service.call(APPEND, AppendFile("/f", ANN, window=2, chunks=8))
    assert not (await record_of(scene, asked.block)).reopening, "it is not even begun"
    again = replace(asked, block=opened.last, writer=ANN)
    assert await left_alone(scene, again) == "2 of 2 members can go on, a new block gets more"
    view = await scene.add_block(file, asked.block, ANN)
    assert sorted(view.record.members) == [*MEMBERS]


async def test_a_block_that_lost_a_member_is_left_alone_where_another_can_take_its_place() -> None:
    """All three replicas stay, also that of who is away: the block is healed as any other."""
    network = Network(acceptors("s1", "s2", "s3", "s4"))
    network.reach[S4].alive = False
    scene = await new_scene(network=network)
    asked = await written(scene)
    scene.clock.now += AWAY_S
    await scene.beat("s1", "s2")
    await scene.register("s4")
    why = await left_alone(scene, asked)
    assert why == "2 of 3 members can go on, a new block gets more"
    await scene.close()


async def test_a_block_that_is_being_copied_is_left_alone(scene: Scene) -> None:
    """An append would begin an epoch, in which what was copied counts for nothing."""
    asked = await written(scene)
    record = await record_of(scene, asked.block)
    scene.network.hung.add(S4)
    scene.node.copies.start(Copy(record, record.members, "dn-s1", S4, "dn-s4"))
    assert await left_alone(scene, asked) == "it is being copied"


async def test_without_most_of_its_members_a_block_is_left_alone(scene: Scene) -> None:
    """A storage that is left out is no member any more: its replica goes, before it was copied."""
    asked = await written(scene)
    scene.clock.now += 3600
    await scene.beat("s1")
    assert await left_alone(scene, asked) == "1 of 3 members can go on, 2 needed"


async def test_while_most_members_are_away_all_appends_share_one_new_block() -> None:
    """So a copy in the writer's way would save one block, and cost the replicas of who is away."""
    network = Network(acceptors("s1", "s2", "s3", "s4", "s5"))
    for storage in ("s4", "s5"):
        network.reach[StorageId(storage)].alive = False
    scene = await new_scene(network=network, config=NameNodeConfig(min_replication=2))
    asked = await written(scene)
    scene.clock.now += AWAY_S
    await scene.beat("s1")
    await scene.register("s4")
    await scene.register("s5")
    assert await left_alone(scene, asked) == "1 of 3 members can go on, 2 needed"
    view = await scene.add_block(asked.file_id, asked.block, BOB)
    record, writer = view.record, BOB
    assert sorted(record.members) == ["s1", "s4", "s5"]
    scene.write(view, 1, 1, 1)
    for length in range(1, 4):
        generation, size = record.writer_generation, length * CHUNK_BYTES
        end = FinalizeBlock(record.block, writer, generation, length, size)
        await scene.service.call(FINALIZE_BLOCK, end)
        await scene.service.call(CLOSE_FILE, CloseFile(asked.file_id, writer))
        writer = WriterId(f"appender {length}")
        opened = await scene.service.call(APPEND, AppendFile("/f", writer))
        assert opened.last == view.record.block
        record = await reopened(scene, replace(asked, block=opened.last, writer=writer))
        write_on(scene, record, length + 1)
    for storage in ("s2", "s3"):
        await scene.register(storage)
    old = await record_of(scene, asked.block)
    assert (sorted(old.members), len(scene.node.replicas.holders(old))) == ([*MEMBERS], 3)
    told = [each for each, question in network.asked if question.block == asked.block]
    assert not {"s4", "s5"} & set(told)
    await scene.close()


async def test_only_who_holds_the_file_opens_its_last_block(scene: Scene) -> None:
    asked = await written(scene)
    with pytest.raises(FencedError):
        await scene.service.call(REOPEN_BLOCK, replace(asked, writer=ANN))
    with pytest.raises(InvalidRequestError, match="is not the last block"):
        await scene.service.call(REOPEN_BLOCK, replace(asked, block=BlockId(asked.block + 1)))
    with pytest.raises(InvalidRequestError, match="window 0"):
        await scene.service.call(REOPEN_BLOCK, replace(asked, window=0))


# --- begun when the file is opened ---------------------------------------------------------------


async def opened(scene: Scene) -> ReopenBlock:
    """As `written`, by a client that says how he writes."""
    file = await closed_file(scene, "/f")
    answer = await scene.service.call(APPEND, AppendFile("/f", BOB, window=2, chunks=8))
    return ReopenBlock(file, BOB, answer.last, 2, CHUNK_BYTES, 8)


async def test_an_append_begins_when_the_file_is_opened_and_the_writer_joins_it(
    scene: Scene,
) -> None:
    """One generation, one RecoveryWrite to each member; not installed before he asks."""
    asked = await opened(scene)
    await wait_until_async(lambda: is_open_at(scene, asked.block))
    before = await record_of(scene, asked.block)
    assert before.finalized
    assert before.reopening
    record = await reopened(scene, asked)
    assert (record.generation, record.writer) == (before.generation, BOB)
    told = [each for each, question in scene.network.asked if isinstance(question, RecoveryWrite)]
    assert sorted(told) == [*MEMBERS]


async def test_the_members_are_asked_before_the_appender_is_answered(scene: Scene) -> None:
    """They take longer than the appender, whose answer would go first."""
    await closed_file(scene, "/f")
    scene.network.asked.clear()
    await scene.service.call(APPEND, AppendFile("/f", BOB, window=2, chunks=8))
    told = [each for each, question in scene.network.asked if isinstance(question, RecoveryWrite)]
    assert sorted(told) == [*MEMBERS]


async def test_the_last_block_is_looked_for_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look is a scan of the store, before which all pending changes are written."""
    file, scan, starts = await closed_file(scene, "/f"), StateMachine.scan, list[bytes]()

    def scanned(
        store: StateMachine, start: bytes, end: bytes, limit: int | None, reverse: bool
    ) -> Iterator[tuple[bytes, Versioned]]:
        starts.append(start)
        return scan(store, start, end, limit, reverse)

    monkeypatch.setattr(StateMachine, "scan", scanned)
    answer = await scene.service.call(APPEND, AppendFile("/f", BOB, window=2, chunks=8))
    await reopened(scene, ReopenBlock(file, BOB, answer.last, 2, CHUNK_BYTES, 8))
    assert starts.count(keys.places(file)[0]) == 1


async def test_what_members_grant_is_shown_and_not_logged(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """Each DataNode logs what it answers: here it would be most lines of a log that grows."""
    asked = await written(scene)
    with caplog.at_level(logging.INFO, history.__name__):
        record = await reopened(scene, asked)
    shown = [line.event for line in scene.node.history.of(asked.block)]
    assert shown.count("recovery vote") == len(record.members) == len(MEMBERS)
    told = [each.getMessage() for each in caplog.records if each.name == history.__name__]
    assert told == ["append starts", "opened again"]


async def test_a_copy_of_the_request_begins_nothing_more(scene: Scene) -> None:
    asked = await opened(scene)
    before = await record_of(scene, asked.block)
    await scene.service.call(APPEND, AppendFile("/f", BOB, window=2, chunks=8))
    assert (await record_of(scene, asked.block)).generation == before.generation
    assert (await reopened(scene, asked)).generation == before.generation


async def test_what_the_writer_does_not_ask_for_is_given_up(scene: Scene) -> None:
    """He may open a file and not write for hours; then all is as if he had not told how."""
    scene.node.reopener.set_up_s = 0.05
    asked = await opened(scene)
    begun = await record_of(scene, asked.block)
    await wait_until_async(lambda: is_finalized(scene, asked.block) and not is_begun(scene))
    record = await record_of(scene, asked.block)
    assert record.finalized_generation > begun.generation, "K9"
    scene.node.reopener.set_up_s = reopener.SET_UP_S
    assert (await reopened(scene, asked)).base_length == CHUNKS


def is_open_at(scene: Scene, block: BlockId) -> bool:
    held = (scene.acceptor(each).replicas[block].registers.state for each in MEMBERS)
    return all(each is ReplicaState.RBW for each in held)


def is_begun(scene: Scene) -> bool:
    return bool(scene.node.reopener._begun)


@pytest.mark.parametrize("chunks", [0, CHUNKS])
async def test_a_block_that_would_be_left_alone_is_not_begun(scene: Scene, chunks: int) -> None:
    await closed_file(scene, "/f")
    request = AppendFile("/f", BOB, window=2, chunks=chunks)
    answer = await scene.service.call(APPEND, request)
    assert not (await record_of(scene, answer.last)).reopening
    assert not is_begun(scene)


async def test_who_has_seen_a_member_fail_since_has_it_begun_anew_without_that(
    scene: Scene,
) -> None:
    asked = await opened(scene)
    scene.clock.now += 1
    record = await reopened(scene, replace(asked, excluded=(Excluded(S3, 0.1),)))
    assert sorted(record.members) == ["s1", "s2"]


async def test_a_chunk_that_does_not_fit_ends_what_was_begun(scene: Scene) -> None:
    asked = await opened(scene)
    why = await left_alone(scene, replace(asked, size_bytes=1 << 40))
    assert "bytes" in why
    await wait_until_async(lambda: is_finalized(scene, asked.block))


async def test_a_writer_that_closes_without_a_word_ends_what_was_begun(scene: Scene) -> None:
    asked = await opened(scene)
    status = await scene.service.call(CLOSE_FILE, CloseFile(asked.file_id, BOB))
    assert (status.open, status.size) == (False, SIZE)
    record = await record_of(scene, asked.block)
    assert not record.reopening
    await wait_until_async(lambda: is_at(scene, record))


# --- given up ------------------------------------------------------------------------------------


async def test_a_member_that_hangs_has_it_given_up_and_the_writer_begins_a_new_block(
    scene: Scene,
) -> None:
    scene.node.reopener.set_up_s = 0.05
    asked = await written(scene)
    before = await record_of(scene, asked.block)
    scene.network.hung.add(S3)
    assert await left_alone(scene, asked) == "its members did not take it in 0.05 s"
    record = await record_of(scene, asked.block)
    assert record.finalized_generation > before.finalized_generation + 1, "K9"
    assert (record.length, record.members) == (before.length, before.members)
    await wait_until_async(lambda: is_finalized(scene, asked.block, "s1", "s2"))
    view = await scene.add_block(asked.file_id, asked.block, BOB)
    assert view.record.block != asked.block


async def test_a_member_that_refuses_connections_is_left_out_within_the_same_second(
    scene: Scene,
) -> None:
    asked = await written(scene)
    scene.acceptor("s3").alive = False
    assert sorted((await reopened(scene, asked)).members) == ["s1", "s2"]


async def test_when_most_members_refuse_it_is_given_up(scene: Scene) -> None:
    asked = await written(scene)
    scene.acceptor("s3").alive = scene.acceptor("s2").alive = False
    assert await left_alone(scene, asked) == "1 of 3 members can go on, 2 needed"
    record = await record_of(scene, asked.block)
    await wait_until_async(lambda: is_at(scene, record, "s1"))


ACCEPTED = [(), ("s1",), ("s1", "s2"), MEMBERS]


@pytest.mark.parametrize("accepted", ACCEPTED)
async def test_after_a_fail_over_the_writer_asks_again_and_gets_it(
    scene: Scene, accepted: tuple[str, ...]
) -> None:
    asked = await written(scene)
    await set_up(scene, asked, *accepted)
    other = await next_leader(scene)
    try:
        record = await reopened(other, asked)
        assert (sorted(record.members), record.base_length) == ([*MEMBERS], CHUNKS)
    finally:
        await other.close()


@pytest.mark.parametrize("accepted", ACCEPTED)
async def test_a_leader_that_begins_gives_up_what_it_did_not_begin(
    scene: Scene, accepted: tuple[str, ...]
) -> None:
    """The appender is idle: no other service ends it, and none heals a block between two states."""
    asked = await written(scene)
    pending = await set_up(scene, asked, *accepted)
    other = await next_leader(scene)
    try:
        await wait_until_async(lambda: ended(other, asked.block) is not None)
        record = ended(other, asked.block)
        assert record is not None
        await wait_until_async(lambda: is_at(other, record, *MEMBERS))
        assert (record.length, record.members) == (CHUNKS, pending.members)
        later = await reopened(other, asked)
        assert (later.writer, later.base_length) == (BOB, CHUNKS)
    finally:
        await other.close()


class StuckStore(MemoryStore):
    """A store whose callers never hear what became of changes of the `stuck` key."""

    stuck = b""

    async def commit(self, edit: Edit) -> Committed | Conflict:
        if any(key == self.stuck for key, _ in edit.puts):
            raise OutcomeUnknownError("no majority has told that it has this entry")
        return await super().commit(edit)


async def test_an_append_that_cannot_be_ended_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leftovers, "RETRY_S", 0.01)
    store = StuckStore()
    scene = await new_scene(store=store)
    stuck, other = [await written(scene, path) for path in ("/stuck", "/other")]
    assert stuck.file_id < other.file_id, "it is the first that a leader looks at"
    for asked in (stuck, other):
        await set_up(scene, asked)
    store.stuck = keys.block(stuck.block)
    later = await next_leader(scene)
    try:
        await wait_until_async(lambda: ended(later, other.block) is not None)
        assert ended(later, stuck.block) is None
        store.stuck = b""
        await wait_until_async(lambda: ended(later, stuck.block) is not None)
    finally:
        await later.close()


def ended(scene: Scene, block: BlockId) -> BlockRecord | None:
    """The record of a block that is between no two states, as the leader has it."""
    (demand,) = scene.node.catalog.demands((block,))
    assert demand is not None
    return None if demand.entry.record.reopening else demand.entry.record


@pytest.mark.parametrize("accepted", ACCEPTED)
async def test_a_writer_that_closes_instead_leaves_the_file_as_it_was(
    scene: Scene, accepted: tuple[str, ...]
) -> None:
    asked = await written(scene)
    pending = await set_up(scene, asked, *accepted)
    status = await scene.service.call(CLOSE_FILE, CloseFile(asked.file_id, BOB))
    assert (status.open, status.size) == (False, SIZE)
    record = await record_of(scene, asked.block)
    assert record.finalized_generation > pending.generation, "K9, with the close"
    await wait_until_async(lambda: is_at(scene, record))


async def test_a_writer_that_adds_a_block_instead_ends_the_append(scene: Scene) -> None:
    asked = await written(scene)
    pending = await set_up(scene, asked, "s1")
    request = AddBlock(asked.file_id, BOB, asked.block, window=2)
    await scene.service.call(ADD_BLOCK, request)
    assert (await record_of(scene, asked.block)).finalized_generation > pending.generation


async def test_a_take_over_while_it_is_set_up_fences_the_writer_and_closes_the_file(
    scene: Scene,
) -> None:
    asked = await written(scene)
    scene.network.hung.add(S3)
    setting_up = asyncio.create_task(scene.service.call(REOPEN_BLOCK, asked))
    await wait_until_async(lambda: is_under_way(scene))
    status = await scene.service.call(TAKE_OVER, TakeOver("/f"))
    assert (status.open, status.size) == (False, SIZE)
    assert (await setting_up).view is None
    record = await record_of(scene, asked.block)
    assert record.finalized
    assert not record.reopening


async def test_a_take_over_between_the_votes_and_k7_is_seen_by_k7(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = await written(scene)
    catalog = scene.node.catalog
    install = catalog.install_append

    async def late(
        request: ReopenBlock, decided: recovery.Proposer, grounds: tuple[VoteLine, ...]
    ) -> object:
        await scene.service.call(TAKE_OVER, TakeOver("/f"))
        return await install(request, decided, grounds)

    monkeypatch.setattr(catalog, "install_append", late)
    with pytest.raises(FencedError):
        await scene.service.call(REOPEN_BLOCK, asked)
    record = await record_of(scene, asked.block)
    assert record.finalized
    assert not record.reopening
    await wait_until_async(lambda: is_finalized(scene, asked.block))


async def test_a_writer_that_dies_after_k7_leaves_at_least_what_was_there(scene: Scene) -> None:
    asked = await written(scene)
    await reopened(scene, asked)
    status = await scene.service.call(TAKE_OVER, TakeOver("/f"))
    assert (status.open, status.size) == (False, SIZE)


async def test_the_file_may_be_deleted_while_its_block_is_opened(scene: Scene) -> None:
    scene.node.reopener.set_up_s = 0.05
    asked = await written(scene)
    scene.network.hung.add(S3)
    setting_up = asyncio.create_task(scene.service.call(REOPEN_BLOCK, asked))
    await wait_until_async(lambda: is_under_way(scene))
    await scene.service.call(DELETE, DeletePath("/f"))
    assert (await setting_up).view is None
    with pytest.raises(NotFoundError):
        await scene.service.call(STAT, PathRequest("/f"))


async def test_nobody_is_told_to_finalize_while_it_is_set_up(scene: Scene) -> None:
    """A report of a member that has accepted the APPEND leads to nothing: K7 or K9 comes."""
    asked = await written(scene)
    await set_up(scene, asked, "s1")
    scene.network.asked.clear()
    await scene.report("s1")
    await scene.report("s2")
    assert not [each for _, each in scene.network.asked if isinstance(each, Finalize)]
    record = await record_of(scene, asked.block)
    scene.node.finalizer.spread(record)
    assert not scene.network.asked


async def test_explain_counts_the_times_before_the_last_one(scene: Scene) -> None:
    asked = await written(scene)
    writer_generation = NO_GENERATION
    for number in range(3):
        record = await reopened(scene, asked)
        writer_generation = record.writer_generation
        write_on(scene, record, record.length + 1)
        size = (record.length + 1) * CHUNK_BYTES
        end = FinalizeBlock(asked.block, asked.writer, writer_generation, record.length + 1, size)
        await scene.service.call(FINALIZE_BLOCK, end)
        await scene.service.call(CLOSE_FILE, CloseFile(asked.file_id, asked.writer))
        asked = replace(asked, writer=WriterId(f"next-{number}"))
        await scene.service.call(APPEND, AppendFile("/f", asked.writer))
    await wait_until_async(lambda: is_finalized(scene, asked.block))
    first, *last = (await scene.service.call(EXPLAIN, BlockRequest(asked.block))).history
    assert (first.event, first.detail) == ("opened again", "2 times before the next line")
    assert {line.generation for line in last} == {writer_generation, writer_generation + 1}
    assert len(last) <= 8
