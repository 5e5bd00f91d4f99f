"""*Append/Hflush/Read Design*, 8.3: what a block report changes, list by list and row by row."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from paxosblock.api.datanode import ReplicaSummary
from paxosblock.api.namenode import DELETE, DeletePath
from paxosblock.namenode.blocks.replicas import Verdict, judge
from paxosblock.namenode.catalog.records import BlockEntry
from paxosblock.protocol.finalize import BlockRecord
from paxosblock.protocol.messages import Delete
from paxosblock.protocol.types import Generation, ReplicaState, StorageId
from tests.hdfs.scenes import COMMITTED, COMPLETE, Case, file_of, is_complete, named, view
from tests.namenode.scene import Scene, finalize_request, new_scene
from tests.namenode.test_replicas import DECIDED, OPEN, REBUILT, summary
from tests.waiting import wait_until_async

RBW = ReplicaState.RBW
S1 = StorageId("s1")


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = await new_scene()
    yield scene
    await scene.close()


async def complete_block(scene: Scene) -> BlockRecord:
    """A block that all three members have reported."""
    view = await scene.add_block(await scene.create("/f"))
    scene.write(view, 1, 1, 1)
    entry = await scene.node.finalizer.finalize_by_writer(
        finalize_request(BlockEntry(view.record), 1)
    )
    await scene.node.replicas.wait_complete(entry.record, 3)
    return entry.record


async def test_delete_list_a_block_that_belongs_to_no_file(scene: Scene) -> None:
    record = await complete_block(scene)
    scene.acceptor("s1").alive = False  # it does not hear of the deletion
    await scene.service.call(DELETE, DeletePath("/f"))
    scene.acceptor("s1").alive = True
    await scene.report("s1")
    await wait_until_async(lambda: record.block not in scene.acceptor("s1").replicas)
    assert any(at == S1 and isinstance(asked, Delete) for at, asked in scene.network.asked)


async def test_add_list_a_replica_that_the_namenode_did_not_know(scene: Scene) -> None:
    record = await complete_block(scene)
    scene.node.replicas.forget(record.block, S1)
    assert S1 not in scene.node.replicas.holders(record)
    await scene.report("s1")
    assert S1 in scene.node.replicas.holders(record)


async def test_remove_list_a_replica_that_is_not_reported_any_more(scene: Scene) -> None:
    record = await complete_block(scene)
    scene.network.hung.add(S1)  # so that no DataNode brings it back
    scene.acceptor("s1").replicas.clear()
    await scene.report("s1")
    assert S1 not in scene.node.replicas.holders(record)


async def test_update_list_a_replica_that_was_rbw_and_is_finalized(case: Case) -> None:
    scene, network = case
    (block,) = await file_of(case, COMMITTED)
    record = (await view(scene, block)).record
    await scene.report("s1")
    assert scene.node.replicas.holders(record) == ()
    network.lost.clear()
    await wait_until_async(lambda: is_complete(scene, block))
    scene.node.replicas.forget(block, S1)
    await scene.report("s1")
    assert S1 in scene.node.replicas.holders(record)


async def test_a_committed_block_is_complete_with_the_first_finalized_replica(case: Case) -> None:
    scene, network = case
    (block,) = await file_of(case, COMMITTED)
    network.lost.clear()
    await wait_until_async(lambda: is_complete(scene, block))
    assert await named(scene, block) is COMPLETE


@pytest.mark.parametrize(
    ("row", "record", "reported", "verdict"),
    [
        ("complete, finalized, as recorded: add", DECIDED, summary(), Verdict.HOLDS),
        (
            "complete, finalized, another length: corrupt",
            DECIDED,
            summary(length=1),
            Verdict.ALARM,
        ),
        (
            "complete, finalized, an older generation: told the newer one, not corrupt",
            DECIDED,
            summary(accepted=3, promised=3),
            Verdict.FINALIZE,
        ),
        (
            "complete, finalized, a generation nobody allocated: corrupt",
            DECIDED,
            summary(accepted=9, promised=9),
            Verdict.ALARM,
        ),
        (
            "complete, rbw, of a member: told to finalize, not deleted",
            DECIDED,
            summary(state=RBW, accepted=2),
            Verdict.FINALIZE,
        ),
        (
            "complete, rbw, of no member: delete",
            DECIDED,
            summary("s9", RBW, 1, 1),
            Verdict.DELETE,
        ),
        (
            "complete, finalized, at a storage that is no member: a copy that becomes one (K12)",
            DECIDED,
            summary("s9"),
            Verdict.COPIED,
        ),
        (
            "under construction, finalized, not older: cannot be (I6)",
            OPEN,
            summary(accepted=0, promised=0),
            Verdict.ALARM,
        ),
        (
            "under construction, rbw, valid: nothing to do",
            OPEN,
            summary(state=RBW, accepted=0, promised=0),
            Verdict.FINE,
        ),
        (
            "under construction, rbw, promised to a recovery: nothing to do",
            replace(OPEN, generation=Generation(1)),
            summary(state=RBW, accepted=0, promised=1),
            Verdict.FINE,
        ),
        (
            "under construction, of an older generation, no member: outdated, delete",
            REBUILT,
            summary("s9", RBW, 1, 1),
            Verdict.DELETE,
        ),
        (
            "under construction, of an older generation, a member: ignored",
            REBUILT,
            summary(accepted=1, promised=1),
            Verdict.FINE,
        ),
        ("no such block: delete", None, summary(), Verdict.DELETE),
    ],
)
def test_a_row_of_the_table(
    row: str, record: BlockRecord | None, reported: ReplicaSummary, verdict: Verdict
) -> None:
    assert judge(record, True, reported).verdict is verdict, row


def test_a_temporary_replica_is_nobodys_business() -> None:
    assert judge(DECIDED, True, summary(state=ReplicaState.TEMPORARY)).verdict is Verdict.FINE
    assert judge(None, True, summary(state=ReplicaState.TEMPORARY)).verdict is Verdict.FINE
