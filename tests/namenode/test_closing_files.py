"""The end of writing a file: close, take-over, expired leases. No state is stuck."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable

import pytest
from msgspec.structs import replace

from paxosblock.api.file_pages import GET_FILE, GetFile
from paxosblock.api.methods import Once
from paxosblock.api.namenode import (
    ADD_BLOCK,
    CLOSE_FILE,
    CREATE,
    DELETE,
    FINALIZE_BLOCK,
    GET_BLOCK,
    LIST,
    NO_BLOCK,
    RENAME,
    RENEW_LEASES,
    REPORT_BAD_REPLICA,
    SEAL_BLOCK,
    STAT,
    TAKE_OVER,
    TRANSACT,
    AddBlock,
    BadReplica,
    BlockRequest,
    BlockView,
    CloseFile,
    CreateFile,
    DeletePath,
    FinalizeBlock,
    ListDirectory,
    PathRequest,
    RenamePath,
    RenewLeases,
    TakeOver,
    Transact,
)
from paxosblock.api.path_attributes import GET_ATTRIBUTES, GetAttributes
from paxosblock.api.transaction import Operation, Rename, SetAttributes
from paxosblock.config import NameNodeConfig
from paxosblock.errors import (
    CorruptionError,
    FencedError,
    InvalidRequestError,
    LeaseError,
    NotFoundError,
    NotReadyError,
    Outcome,
    OutcomeUnknownError,
    PaxosBlockError,
)
from paxosblock.namenode.blocks.queues import CALLS_AT_ONCE
from paxosblock.namenode.housekeeper import RETRY_S
from paxosblock.protocol.chunk_log import ChunkLog
from paxosblock.protocol.messages import Create, Delete, Finalize, Nack
from paxosblock.protocol.types import (
    FIRST_GENERATION,
    BlockId,
    Durability,
    ReplicaState,
    StorageId,
    WriterId,
)
from tests.namenode.cluster import CHUNK_BYTES, Acceptor
from tests.namenode.scene import ANN, BOB, MEMBERS, Scene, create_request, new_scene
from tests.waiting import wait_until_async

CONFIG = NameNodeConfig(recovery_timeout_s=1.0)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = await new_scene(config=CONFIG)
    yield scene
    await scene.close()


async def written(scene: Scene, path: str = "/f", *counts: int) -> tuple[int, BlockId]:
    """A file with one open block whose members hold `counts` chunks."""
    file = await scene.create(path)
    view = await scene.add_block(file)
    scene.write(view, *(counts or (2, 2, 2)))
    return file, view.record.block


def last_of(block: BlockId, length: int = 2) -> FinalizeBlock:
    """Return the message with which its writer ends the block."""
    return FinalizeBlock(block, ANN, FIRST_GENERATION, length, length * CHUNK_BYTES)


async def finalize(scene: Scene, block: BlockId, length: int = 2) -> None:
    await scene.service.call(FINALIZE_BLOCK, last_of(block, length))


async def is_open(scene: Scene, path: str = "/f") -> bool:
    return (await scene.service.call(STAT, PathRequest(path))).open


def has_finalized(acceptor: Acceptor, block: BlockId) -> bool:
    replica = acceptor.replicas.get(block)
    return replica is not None and replica.registers.state is ReplicaState.FINALIZED


def silence(scene: Scene, *storages: StorageId) -> None:
    for storage in storages:
        scene.network.reach[storage].alive = False


async def test_a_close_waits_until_a_member_has_reported_the_block_finalized(
    scene: Scene,
) -> None:
    file, block = await written(scene)
    await finalize(scene, block)
    status = await scene.service.call(CLOSE_FILE, CloseFile(file, ANN))
    assert (status.open, status.size) == (False, 20)
    assert (await scene.service.call(GET_BLOCK, BlockRequest(block))).complete


async def test_a_close_without_any_report_says_what_is_missing_and_may_be_repeated(
    scene: Scene,
) -> None:
    file, block = await written(scene)
    silence(scene, *scene.network.reach)
    await finalize(scene, block)
    with pytest.raises(NotReadyError) as caught:
        await scene.service.call(CLOSE_FILE, CloseFile(file, ANN))
    assert str(caught.value) == (
        f"block {block}: 0 of 3 members have reported it finalized, 1 needed to close the file"
    )
    assert await is_open(scene)
    await scene.register("s2")
    assert not (await scene.service.call(CLOSE_FILE, CloseFile(file, ANN))).open


async def entries_made(scene: Scene, call: Awaitable[object]) -> int:
    """Return how many entries the catalog's log grows by while `call` is answered."""
    before = (await scene.node.catalog.view()).revision
    await call
    return (await scene.node.catalog.view()).revision - before


async def test_a_close_ends_the_last_block_in_the_same_entry_of_the_log(scene: Scene) -> None:
    file, block = await written(scene)
    close = CloseFile(file, ANN, last_of(block))
    assert await entries_made(scene, scene.service.call(CLOSE_FILE, close)) == 1
    view = await scene.service.call(GET_BLOCK, BlockRequest(block))
    assert (view.record.length, view.complete, await is_open(scene)) == (2, True, False)
    again = await scene.service.call(CLOSE_FILE, close)
    assert (again.open, again.size) == (False, 20)


async def test_a_close_that_ends_an_empty_block_drops_it(scene: Scene) -> None:
    file, block = await written(scene, "/f", 0, 0, 0)
    close = CloseFile(file, ANN, last_of(block, 0))
    for _ in range(2):
        assert (await scene.service.call(CLOSE_FILE, close)).size == 0
    assert (await scene.service.call(GET_FILE, GetFile("/f"))).blocks == ()
    await wait_until_async(lambda: not any(a.replicas for a in scene.network.reach.values()))


async def test_a_close_that_ended_the_last_block_is_answered_when_a_member_reported_it(
    scene: Scene,
) -> None:
    """The file is closed by then; who repeats the close waits for the same."""
    file, block = await written(scene)
    silence(scene, *scene.network.reach)
    close = CloseFile(file, ANN, last_of(block))
    with pytest.raises(NotReadyError, match="0 of 3 members have reported it finalized"):
        await scene.service.call(CLOSE_FILE, close)
    assert not await is_open(scene)
    await scene.register("s2")
    assert (await scene.service.call(CLOSE_FILE, close)).size == 20


async def test_a_close_with_a_length_that_a_recovery_did_not_decide_changes_nothing(
    scene: Scene,
) -> None:
    file, block = await written(scene)
    await scene.service.call(SEAL_BLOCK, BlockRequest(block, ANN))
    with pytest.raises(FencedError, match="was finalized with 2 chunks"):
        await scene.service.call(CLOSE_FILE, CloseFile(file, ANN, last_of(block, 1)))
    assert await is_open(scene)
    await scene.service.call(CLOSE_FILE, CloseFile(file, ANN, last_of(block)))
    assert not await is_open(scene)


async def test_a_close_cannot_end_a_block_of_another_file(scene: Scene) -> None:
    file, block = await written(scene)
    other, _ = await written(scene, "/other")
    with pytest.raises(InvalidRequestError, match=f"/other': block {block} is not one of"):
        await scene.service.call(CLOSE_FILE, CloseFile(other, ANN, last_of(block)))
    with pytest.raises(InvalidRequestError, match="cannot have 7 bytes"):
        await scene.service.call(
            CLOSE_FILE, CloseFile(file, ANN, FinalizeBlock(block, ANN, FIRST_GENERATION, 0, 7))
        )
    assert await is_open(scene)
    assert not (await scene.service.call(GET_BLOCK, BlockRequest(block))).record.finalized


async def test_a_writer_that_was_fenced_ends_no_block_by_a_close(scene: Scene) -> None:
    file, block = await written(scene)
    await scene.node.catalog.fence("/f")
    with pytest.raises(FencedError):
        await scene.service.call(CLOSE_FILE, CloseFile(file, ANN, last_of(block)))
    assert not (await scene.service.call(GET_BLOCK, BlockRequest(block))).record.finalized


async def test_a_block_that_was_never_written_leaves_the_file_and_the_datanodes(
    scene: Scene,
) -> None:
    file = await scene.create("/f")
    view = await scene.add_block(file)
    await scene.service.call(SEAL_BLOCK, BlockRequest(view.record.block, ANN))
    await scene.service.call(CLOSE_FILE, CloseFile(file, ANN))
    assert (await scene.service.call(GET_FILE, GetFile("/f"))).blocks == ()
    await wait_until_async(lambda: not any(a.replicas for a in scene.network.reach.values()))


async def test_blocks_of_length_zero_leave_a_closed_file_wherever_they_are(scene: Scene) -> None:
    file, previous = await scene.create("/f"), NO_BLOCK
    for count in (0, 2, 0, 1, 0):
        view = await scene.add_block(file, previous)
        previous = view.record.block
        scene.write(view, count, count, count)
        await finalize(scene, previous, count)
    await scene.service.call(CLOSE_FILE, CloseFile(file, ANN))
    shown = (await scene.service.call(GET_FILE, GetFile("/f"))).blocks
    assert [(each.offset, each.record.length) for each in shown] == [(0, 2), (20, 1)]
    left = {each.record.block for each in shown}
    await wait_until_async(
        lambda: all(set(a.replicas) == left for a in scene.network.reach.values())
    )


async def test_a_writer_that_was_fenced_before_it_made_its_replicas_gets_none(
    scene: Scene,
) -> None:
    """W1: chunks that all members vote for must not go into a block that left its file."""
    file = await scene.create("/f")
    view = await scene.service.call(ADD_BLOCK, AddBlock(file, ANN, NO_BLOCK, window=2))
    await scene.service.call(TAKE_OVER, TakeOver("/f"))
    members = [scene.network.reach[at] for at in view.record.members]
    await wait_until_async(lambda: all(has_finalized(at, view.record.block) for at in members))
    create = Create(view.record.block, 2, Durability.DISK)
    assert [type(at.answer(create)) for at in members] == [Nack, Nack, Nack]


async def test_a_writer_that_renews_keeps_its_file_from_others(scene: Scene) -> None:
    await scene.create("/f")
    scene.clock.now += CONFIG.lease_soft_limit_s - 1
    assert (await scene.service.call(RENEW_LEASES, RenewLeases((ANN,)))).lost == ()
    scene.clock.now += CONFIG.lease_soft_limit_s - 1
    with pytest.raises(LeaseError, match="'/f': is being written by ann"):
        await scene.service.call(CREATE, create_request("/f", BOB, overwrite=True))
    await scene.create("/g", BOB)
    with pytest.raises(LeaseError, match="'/f': is being written by ann"):
        await scene.service.call(RENAME, RenamePath("/g", "/f", overwrite=True))


async def test_after_the_soft_limit_another_writer_may_replace_the_file(scene: Scene) -> None:
    file, block = await written(scene)
    scene.clock.now += CONFIG.lease_soft_limit_s
    made = await scene.service.call(CREATE, create_request("/f", BOB, overwrite=True))
    assert made.status.file_id != file
    await wait_until_async(lambda: not any(a.replicas for a in scene.network.reach.values()))
    with pytest.raises(NotFoundError):
        await finalize(scene, block)


async def test_after_the_soft_limit_anybody_may_have_the_block_sealed(scene: Scene) -> None:
    _, block = await written(scene)
    with pytest.raises(LeaseError):
        await scene.service.call(SEAL_BLOCK, BlockRequest(block, BOB))
    scene.clock.now += CONFIG.lease_soft_limit_s
    assert (await scene.service.call(SEAL_BLOCK, BlockRequest(block, BOB))).record.length == 2


async def test_after_the_hard_limit_the_namenode_recovers_and_closes_the_file(
    scene: Scene,
) -> None:
    await written(scene, "/f", 3, 2, 2)
    scene.clock.now += CONFIG.lease_hard_limit_s
    for storage in scene.network.reach:
        await scene.register(storage)
    await scene.node.housekeeper.check_leases()
    await wait_until_async(lambda: closed(scene))
    assert (await scene.service.call(STAT, PathRequest("/f"))).size in (20, 30)
    assert len(scene.node.leases) == 0


async def closed(scene: Scene) -> bool:
    return not await is_open(scene)


async def test_an_expiry_that_fails_is_tried_again_until_it_works(scene: Scene) -> None:
    _, block = await written(scene)
    silence(scene, *scene.network.reach)
    scene.clock.now += CONFIG.lease_hard_limit_s
    await scene.node.housekeeper.check_leases()
    recoverer = scene.node.recoverer
    await wait_until_async(lambda: "the last try failed" in recoverer.trouble(block))
    assert recoverer.unended == 1, "it is told while nothing is under way, too"
    assert await is_open(scene)
    for storage in scene.network.reach:
        await scene.register(storage)

    async def tried_again() -> bool:
        scene.clock.now += RETRY_S  # counts from when the failure was noted, a moment after it
        await scene.node.housekeeper.check_leases()
        return await closed(scene)

    await wait_until_async(tried_again)
    assert (await scene.service.call(GET_BLOCK, BlockRequest(block))).record.length == 2


async def test_files_that_cannot_be_ended_are_tried_one_time_each_however_many_they_are(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scene.node.housekeeper, "_lanes", asyncio.Semaphore(1))
    paths = [f"/f{number}" for number in range(3)]
    for path in paths:
        await written(scene, path)
    silence(scene, *scene.network.reach)
    scene.clock.now += CONFIG.lease_hard_limit_s
    for _ in range(20):
        await scene.node.housekeeper.check_leases()
        scene.clock.now += RETRY_S
        await asyncio.sleep(0)
        expiries = [task for task in asyncio.all_tasks() if "expiry of" in task.get_name()]
        assert len(expiries) == len(paths)


async def test_a_take_over_that_fails_has_fenced_the_writer_and_is_finished_later(
    scene: Scene,
) -> None:
    file, block = await written(scene)
    silence(scene, StorageId("s1"), StorageId("s2"))
    with pytest.raises(NotReadyError, match="votes from 0 of 3 members, 2 needed"):
        await scene.service.call(TAKE_OVER, TakeOver("/f"))
    with pytest.raises(FencedError, match="recovery holds the file now"):
        await scene.service.call(CLOSE_FILE, CloseFile(file, ANN))
    assert (await scene.service.call(RENEW_LEASES, RenewLeases((ANN,)))).lost == (ANN,)
    await scene.register("s1")
    scene.clock.now += RETRY_S  # the housekeeper may have tried it, too
    await scene.node.housekeeper.check_leases()
    await wait_until_async(lambda: closed(scene))
    assert (await scene.service.call(GET_BLOCK, BlockRequest(block))).record.length == 2


async def test_a_file_whose_blocks_are_all_decided_needs_no_datanode_to_be_fenced(
    scene: Scene,
) -> None:
    file, block = await written(scene)
    await finalize(scene, block)
    await wait_until_async(lambda: complete(scene, block))
    silence(scene, *scene.network.reach)
    assert not (await scene.service.call(TAKE_OVER, TakeOver("/f"))).open
    with pytest.raises(FencedError, match="'/f': was closed by namenode"):
        await scene.service.call(CLOSE_FILE, CloseFile(file, ANN))


async def complete(scene: Scene, block: BlockId) -> bool:
    return (await scene.service.call(GET_BLOCK, BlockRequest(block))).complete


async def test_a_file_may_be_deleted_while_it_is_written(scene: Scene) -> None:
    file, _ = await written(scene)
    await scene.service.call(DELETE, DeletePath("/f"))
    with pytest.raises(NotFoundError):
        await scene.service.call(CLOSE_FILE, CloseFile(file, ANN))
    scene.clock.now += CONFIG.lease_hard_limit_s
    await scene.node.housekeeper.check_leases()
    await wait_until_async(lambda: len(scene.node.leases) == 0)


async def test_a_member_that_missed_the_end_of_the_block_copies_it(scene: Scene) -> None:
    """K6 says that all members have all chunks; one lost its disk's content since."""
    _, block = await written(scene)
    victim = scene.acceptor("s2")
    del victim.replicas[block]
    await finalize(scene, block)
    await wait_until_async(lambda: is_finalized(scene, "s2", block))
    assert victim.replicas[block].length == 2


def is_finalized(scene: Scene, storage: str, block: BlockId) -> bool:
    replica = scene.acceptor(storage).replicas.get(block)
    return replica is not None and replica.registers.state is ReplicaState.FINALIZED


async def test_a_storage_that_hangs_gets_few_calls_and_holds_up_nobody(
    scene: Scene,
) -> None:
    file = await scene.create("/f")
    views: list[BlockView] = []
    for _ in range(CALLS_AT_ONCE + 8):
        view = await scene.add_block(file, views[-1].record.block if views else NO_BLOCK)
        scene.write(view, 1, 1, 1)
        scene.network.hung.add(StorageId("s1"))
        await finalize(scene, view.record.block, 1)
        views.append(view)
    await wait_until_async(
        lambda: all(is_finalized(scene, s, v.record.block) for v in views for s in ("s2", "s3"))
    )
    assert scene.network.calls.count(StorageId("s1")) <= CALLS_AT_ONCE < len(views)


async def test_a_replica_that_its_datanode_found_damaged_is_replaced_by_a_copy(
    scene: Scene,
) -> None:
    block = await decided_everywhere(scene)
    s1 = scene.acceptor("s1")
    s1.dead.add(block)
    before = s1.replicas[block]
    await scene.service.call(REPORT_BAD_REPLICA, BadReplica(block, s1.storage, "chunk 1: crc"))
    await wait_until_async(lambda: block not in s1.dead)
    assert s1.replicas[block] is not before
    assert scene.node.alarms.counts["damaged"] == 1


async def test_a_member_that_holds_another_log_than_was_decided_is_never_told_to_delete_it(
    scene: Scene,
) -> None:
    _, block = await written(scene)
    s2 = scene.acceptor("s2")
    wrong = ChunkLog().append(1, 1).append(2, 2)
    s2.replicas[block] = replace(s2.replicas[block], log=wrong)
    await finalize(scene, block)
    await wait_until_async(lambda: is_finalized(scene, "s2", block))
    assert s2.replicas[block].log == scene.acceptor("s1").replicas[block].log
    assert all(not isinstance(question, Delete) for _, question in scene.network.asked)


async def test_nothing_is_dropped_before_the_copy_that_replaces_it_is_there(scene: Scene) -> None:
    """A member that says it holds the block may find damage when it is asked for the bytes."""
    block = await decided_everywhere(scene)
    s1 = scene.acceptor("s1")
    s1.dead.add(block)
    s1.peers = {}
    scene.network.asked.clear()
    await scene.service.call(REPORT_BAD_REPLICA, BadReplica(block, s1.storage, "chunk 1: crc"))
    await wait_until_async(lambda: len(scene.network.asked) > 2)
    assert block in s1.replicas


async def test_a_replica_in_which_its_datanode_finds_no_damage_stays_whatever_a_client_says(
    scene: Scene,
) -> None:
    block = await decided_everywhere(scene)
    scene.network.asked.clear()
    for storage in scene.network.reach:
        await scene.service.call(REPORT_BAD_REPLICA, BadReplica(block, storage, "bad memory here"))
    record = (await scene.service.call(GET_BLOCK, BlockRequest(block))).record
    await wait_until_async(lambda: {storage for storage, _ in scene.network.asked} == {*MEMBERS})
    await wait_until_async(lambda: len(scene.node.replicas.holders(record)) == 3)
    assert all(isinstance(question, Finalize) for _, question in scene.network.asked)


async def test_the_only_replica_is_kept_however_damaged_it_is(scene: Scene) -> None:
    _, block = await written(scene)
    silence(scene, StorageId("s2"), StorageId("s3"))
    await finalize(scene, block)
    await wait_until_async(lambda: is_finalized(scene, "s1", block))
    scene.network.asked.clear()
    await scene.service.call(REPORT_BAD_REPLICA, BadReplica(block, StorageId("s1"), "chunk 1: crc"))
    await wait_until_async(lambda: "s1" in [storage for storage, _ in scene.network.asked])
    assert is_finalized(scene, "s1", block)
    assert all(isinstance(question, Finalize) for _, question in scene.network.asked)


async def test_a_replica_called_damaged_is_kept_when_the_others_do_not_answer_any_more(
    scene: Scene,
) -> None:
    """They have reported it once; a client with bad memory must not cost the last copy."""
    block = await decided_everywhere(scene)
    silence(scene, StorageId("s2"), StorageId("s3"))
    scene.network.asked.clear()
    await scene.service.call(REPORT_BAD_REPLICA, BadReplica(block, StorageId("s1"), "chunk 1: crc"))
    await wait_until_async(lambda: "s1" in [storage for storage, _ in scene.network.asked])
    assert is_finalized(scene, "s1", block)
    assert all(isinstance(question, Finalize) for _, question in scene.network.asked)


async def test_one_copy_survives_a_client_that_calls_all_of_them_damaged(scene: Scene) -> None:
    block = await decided_everywhere(scene)
    silence(scene, StorageId("s3"))
    reports = (BadReplica(block, StorageId(storage), "crc") for storage in ("s1", "s2", "s3"))
    await asyncio.gather(*(scene.service.call(REPORT_BAD_REPLICA, report) for report in reports))
    await wait_until_async(lambda: all(is_finalized(scene, each, block) for each in ("s1", "s2")))


async def test_a_damaged_replica_at_a_storage_that_is_no_member_is_not_found(scene: Scene) -> None:
    _, block = await written(scene)
    with pytest.raises(NotFoundError, match="storage s9 is no member"):
        await scene.service.call(REPORT_BAD_REPLICA, BadReplica(block, StorageId("s9"), "crc"))


async def test_a_member_that_does_not_name_a_block_it_held_is_told_again(scene: Scene) -> None:
    block = await decided_everywhere(scene)
    del scene.acceptor("s3").replicas[block]
    await scene.report("s3")
    await wait_until_async(lambda: is_finalized(scene, "s3", block))


async def test_the_walk_over_all_blocks_finds_a_member_that_lost_a_block_nobody_remembers(
    scene: Scene,
) -> None:
    block = await decided_everywhere(scene)
    del scene.acceptor("s3").replicas[block]
    scene.node.replicas.forget(block, StorageId("s3"))  # as after a restart of the NameNode
    scene.network.asked.clear()
    await scene.node.monitor.walk()
    await wait_until_async(lambda: is_finalized(scene, "s3", block))
    asked = {storage for storage, question in scene.network.asked if isinstance(question, Finalize)}
    assert asked == {"s3"}


async def decided_everywhere(scene: Scene) -> BlockId:
    """A finalized block that all members have reported."""
    _, block = await written(scene)
    await finalize(scene, block)
    record = (await scene.service.call(GET_BLOCK, BlockRequest(block))).record
    await wait_until_async(lambda: len(scene.node.replicas.holders(record)) == 3)
    return block


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (create_request("/f", WriterId("")), "a writer's id has 1 to 128 printable characters"),
        (create_request("/f", WriterId("namenode")), "'namenode' is not a client's writer id"),
        (
            CreateFile("/f", ANN, False, 0, 1, Durability.DISK),
            "replication 0: 1 to 32 replicas",
        ),
        (CreateFile("/f", ANN, False, 3, 0, Durability.DISK), "'/f': block size 0 bytes"),
        (
            CreateFile("/f", ANN, False, 3, 1, Durability.DISK, permission=0o7777),
            "permission 7777: 0 to 1777 (octal)",
        ),
    ],
)
async def test_a_create_that_makes_no_sense_is_refused(
    scene: Scene, request_: CreateFile, message: str
) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        await scene.service.call(CREATE, request_)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("length", "size", "message"),
    [
        (-1, 0, "-1 chunks; a block has at most 16384"),
        (16385, 16385, "16385 chunks; a block has at most 16384"),
        (2, -1, "2 chunks cannot have -1 bytes"),
        (0, 10, "0 chunks cannot have 10 bytes"),
    ],
)
async def test_a_length_that_no_block_has_is_refused(
    scene: Scene, length: int, size: int, message: str
) -> None:
    _, block = await written(scene)
    with pytest.raises(InvalidRequestError) as caught:
        await scene.service.call(
            FINALIZE_BLOCK, FinalizeBlock(block, ANN, FIRST_GENERATION, length, size)
        )
    assert str(caught.value) == f"block {block}: {message}"


# --- a close with other operations, in one step --------------------------------------------------


def published(
    file: int, last: FinalizeBlock | None, *operations: Operation, size: int | None = 20
) -> Transact:
    """The request by which a client completes a file and gives it its name."""
    close = CloseFile(file, ANN, last, size=size)
    named = operations or (Rename("/f", "/g"), SetAttributes("/g", {"user.a": b"1"}))
    once = Once(f"session-{file}", 1)
    return Transact(named, 3, 1 << 20, Durability.DISK, once=once, close=close)


async def names(scene: Scene) -> list[str]:
    return [each.path for each in (await scene.service.call(LIST, ListDirectory("/"))).entries]


async def test_a_file_is_closed_named_and_given_attributes_in_one_entry_of_the_log(
    scene: Scene,
) -> None:
    file, block = await written(scene)
    request = published(file, last_of(block))
    assert await entries_made(scene, scene.service.call(TRANSACT, request)) == 1
    status = await scene.service.call(STAT, PathRequest("/g"))
    assert (status.file_id, status.open, status.size) == (file, False, 20)
    assert (await scene.service.call(GET_BLOCK, BlockRequest(block))).complete
    assert scene.node.leases.renew((ANN,), scene.clock.now) == (ANN,), "its lease ended"
    asked = GetAttributes("/g")
    assert (await scene.service.call(GET_ATTRIBUTES, asked)).attributes == {"user.a": b"1"}


async def test_a_copy_of_a_close_with_operations_gets_the_first_answer(scene: Scene) -> None:
    file, block = await written(scene)
    request = published(file, last_of(block))
    first = await scene.service.call(TRANSACT, request)
    assert await entries_made(scene, scene.service.call(TRANSACT, request)) == 0
    assert await scene.service.call(TRANSACT, request) == first
    await scene.service.call(DELETE, DeletePath("/g"))
    assert await scene.service.call(TRANSACT, request) == first, "also of a file that is gone"


async def test_a_refused_operation_leaves_the_file_to_its_writer(scene: Scene) -> None:
    file, block = await written(scene)
    await scene.create("/g", BOB)
    over = published(file, last_of(block), Rename("/f", "/g", overwrite=True))
    with pytest.raises(LeaseError):
        await scene.service.call(TRANSACT, over)
    assert await is_open(scene)
    view = await scene.service.call(GET_BLOCK, BlockRequest(block))
    assert not view.record.finalized
    assert scene.node.leases.renew((ANN,), scene.clock.now) == ()
    assert (await scene.service.call(CLOSE_FILE, CloseFile(file, ANN, last_of(block)))).size == 20


@pytest.mark.parametrize(
    ("last", "size", "error"),
    [
        (None, 20, InvalidRequestError),
        (2, 21, CorruptionError),
        (1, 20, CorruptionError),
    ],
)
async def test_a_file_that_is_not_as_its_writer_says_gets_no_name(
    scene: Scene, last: int | None, size: int, error: type[PaxosBlockError]
) -> None:
    file, block = await written(scene)
    ends = None if last is None else last_of(block, last)
    with pytest.raises(error):
        await scene.service.call(TRANSACT, published(file, ends, size=size))
    assert await names(scene) == ["/f"]
    assert await is_open(scene)


async def test_a_writer_that_was_fenced_gives_nothing_a_name(scene: Scene) -> None:
    file, block = await written(scene)
    await scene.service.call(TAKE_OVER, TakeOver("/f"))
    with pytest.raises(FencedError):
        await scene.service.call(TRANSACT, published(file, last_of(block)))
    assert await names(scene) == ["/f"]


async def test_a_close_with_operations_is_answered_when_a_member_reported_the_block(
    scene: Scene,
) -> None:
    """The file has its name by then, so the error says that this is not known."""
    file, block = await written(scene)
    silence(scene, *scene.network.reach)
    request = published(file, last_of(block))
    with pytest.raises(NotReadyError, match="0 of 3 members have reported it") as caught:
        await scene.service.call(TRANSACT, request)
    assert caught.value.outcome is Outcome.UNKNOWN
    assert await names(scene) == ["/g"]
    await scene.register("s2")
    assert (await scene.service.call(TRANSACT, request)).applied


async def test_a_leader_that_was_killed_in_the_middle_changes_nothing_for_the_next(
    scene: Scene,
) -> None:
    """Its entry was committed, its answer was lost: the copy goes to another NameNode."""
    file, block = await written(scene)
    request = published(file, last_of(block))
    scene.store.fail_after = True
    with pytest.raises(OutcomeUnknownError):
        await scene.service.call(TRANSACT, request)
    scene.store.fail_after = False
    other = await new_scene(store=scene.store, network=scene.network, config=CONFIG)
    assert (await other.service.call(TRANSACT, request)).applied
    assert await names(other) == ["/g"]
    assert (await other.service.call(GET_BLOCK, BlockRequest(block))).complete
    assert other.node.leases.expired(other.clock.now + 1_000_000) == ()
    await other.close()


async def test_an_empty_last_block_leaves_a_file_that_gets_its_name(scene: Scene) -> None:
    file, block = await written(scene, "/f", 0, 0, 0)
    await scene.service.call(TRANSACT, published(file, last_of(block, 0), size=0))
    assert (await scene.service.call(GET_FILE, GetFile("/g"))).blocks == ()
    await wait_until_async(lambda: not any(a.replicas for a in scene.network.reach.values()))
