"""K14 on a node in memory: what became of blocks since the backup that was brought back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from paxosblock.api.fsck_call import CHECK_FILES, CheckFiles, Condition
from paxosblock.api.lease_call import RECOVER_LEASE, LeaseRecovery, MemberAnswer, RecoverLease
from paxosblock.api.namenode import (
    ADD_BLOCK,
    APPEND,
    FINALIZE_BLOCK,
    GET_BLOCK,
    SEAL_BLOCK,
    AddBlock,
    AppendFile,
    BlockRequest,
    CloseFile,
)
from paxosblock.api.status import (
    CLUSTER_STATUS,
    SAFE_MODE,
    ClusterStatusRequest,
    SafeModeAction,
    SafeModeRequest,
)
from paxosblock.errors import NotFoundError, NotReadyError, SafeModeError
from paxosblock.host.disk import OsDisk
from paxosblock.namenode.backups import Backup, begin
from paxosblock.namenode.blocks.replication.fsck import conditions
from paxosblock.namenode.catalog import learning
from paxosblock.namenode.catalog.members import Demand
from paxosblock.namenode.catalog.records import BlockEntry
from paxosblock.namenode.kv.interface import Versioned
from paxosblock.namenode.raft.machine import ReplicatedMachine
from paxosblock.protocol import finalize
from paxosblock.protocol.finalize import BlockRecord, Refused
from paxosblock.protocol.types import BlockId, Generation, ReplicaState, StorageId
from tests.memory_table import MemoryTable, Place
from tests.namenode.cluster import Network, acceptors
from tests.namenode.memory_store import MemoryStore
from tests.namenode.scene import ANN, BOB, MEMBERS, Scene, finalize_request, new_scene
from tests.waiting import wait_until_async

FOURTH = StorageId("s4")


@dataclass
class Cluster:
    """A NameNode over four storages, which may get its catalog back as it was once."""

    folder: Path
    network: Network = field(default_factory=lambda: Network(acceptors(*MEMBERS, FOURTH)))
    scene: Scene = field(init=False)
    saved: dict[bytes, Versioned] = field(default_factory=dict)
    entry: int = 0

    async def start(self) -> None:
        self.scene = await new_scene(network=self.network)

    def back_up(self) -> None:
        view = self.scene.store.view()
        self.saved, self.entry = dict(view.scan(b"", b"")), view.revision

    async def restore(self, *absent: str) -> None:
        """Bring the backup back; the storages report, but for those that are `absent`."""
        await self.scene.close()
        table = MemoryTable(place=Place(OsDisk(), self.folder))
        table.write(self.entry, self.saved)
        begin(Backup(self.entry, "cluster-1"), table)
        store = MemoryStore()
        store.machine = ReplicatedMachine(table)
        for name, acceptor in self.network.reach.items():
            acceptor.alive = name not in absent
        self.scene = await new_scene(network=self.network, store=store)
        await self.enough_is_reported()

    async def restore_without_replicas(self) -> None:
        """Bring back what is there now, with no replica left; the operator leaves safe mode."""
        self.back_up()
        for acceptor in self.network.reach.values():
            acceptor.replicas.clear()
        await self.restore()
        await self.leave_safe_mode()

    async def enough_is_reported(self) -> None:
        """The wait for reports ends, as an operator's word would end it."""
        self.scene.node.safe_mode.leave()

    async def leave_safe_mode(self) -> None:
        await self.scene.service.call(SAFE_MODE, SafeModeRequest(SafeModeAction.LEAVE))

    async def file(self, chunks: int = 1, path: str = "/f") -> BlockRecord:
        """A closed file of one block, which all members hold."""
        scene = self.scene
        view = await scene.add_block(await scene.create(path))
        scene.write(view, *[chunks] * len(view.record.members))
        request = finalize_request(BlockEntry(view.record), chunks)
        record = (await scene.service.call(FINALIZE_BLOCK, request)).record
        await scene.node.catalog.close_file(CloseFile(file_of(scene, record), record.writer))
        await self.all_hold(record)
        return record

    async def all_hold(self, record: BlockRecord) -> None:
        held = self.scene.node.replicas.holders
        await wait_until_async(lambda: set(held(record)) >= set(record.members))

    async def record(self, block: BlockId) -> BlockRecord:
        return (await self.scene.service.call(GET_BLOCK, BlockRequest(block))).record

    async def move(self, record: BlockRecord, away: StorageId, to: StorageId) -> BlockRecord:
        """K12, then K13: the block is at `to` and no longer at `away`."""
        node = self.scene.node
        holders = node.replicas.holders(record)
        answer = await self.network.ask(to, finalize.finalize_message(record, holders))
        assert answer.block == record.block
        node.replicas.note(record.block, to, record.finalized_generation)
        copied = await node.catalog.add_replica(record.block, to, record.finalized_generation)
        assert not isinstance(copied, Refused)
        whole = tuple(each for each in copied.record.members if each != away)
        left = await node.catalog.remove_replica(
            record.block, away, record.finalized_generation, whole
        )
        assert not isinstance(left, Refused)
        node.finalizer.dismiss(record.block, away, record.finalized_generation, live=True)
        node.finalizer.spread(left.record)
        await self.all_hold(left.record)
        await wait_until_async(lambda: record.block not in self.network.reach[away].replicas)
        return left.record

    async def learned(self, block: BlockId) -> BlockRecord:
        """The record after a turn of the learner, with all its members at the same version."""
        await self.scene.node.learner.turn()
        record = await self.record(block)
        if not record.restored:
            await self.all_hold(record)
        return record


def file_of(scene: Scene, record: BlockRecord) -> int:
    """The file of a block."""
    (entry,) = scene.node.catalog.demands((record.block,))
    assert entry is not None
    return entry.entry.file


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    cluster = Cluster(tmp_path)
    await cluster.start()
    yield cluster
    await cluster.scene.close()


async def test_a_block_that_moved_since_the_backup_is_where_its_replicas_are(
    cluster: Cluster,
) -> None:
    record = await cluster.file()
    cluster.back_up()
    away = record.members[0]
    (to,) = set(cluster.network.reach) - set(record.members)
    moved = await cluster.move(record, away, to)
    await cluster.restore()
    learned = await cluster.learned(record.block)
    assert set(learned.members) == set(moved.members)
    assert (learned.restored, learned.length) == (False, record.length)
    assert learned.finalized_generation > moved.generation + finalize.SKIPPED // 2
    assert not cluster.scene.node.alarms.counts
    assert not learning.is_restored(await cluster.scene.node.catalog.view())


async def test_nothing_is_decided_by_a_restored_record_and_its_file_is_not_appended_to(
    cluster: Cluster,
) -> None:
    record = await cluster.file()
    cluster.back_up()
    await cluster.restore(*MEMBERS, FOURTH)
    service = cluster.scene.service
    with pytest.raises(SafeModeError):
        await service.call(APPEND, AppendFile("/f", BOB))
    await cluster.leave_safe_mode()
    with pytest.raises(NotReadyError, match="a backup brought it back"):
        await service.call(APPEND, AppendFile("/f", BOB))
    refused = await cluster.scene.node.catalog.allocate_seal(record.block)
    assert isinstance(refused, Refused)


async def test_in_safe_mode_a_block_waits_for_all_members_that_the_backup_names(
    cluster: Cluster,
) -> None:
    record = await cluster.file()
    cluster.back_up()
    absent = record.members[2]
    await cluster.restore(absent)
    assert (await cluster.learned(record.block)).restored
    await cluster.leave_safe_mode()
    learned = await cluster.learned(record.block)
    assert set(learned.members) == set(record.members) - {absent}


async def test_a_member_whose_volume_has_failed_is_waited_for_as_one_that_is_absent(
    cluster: Cluster,
) -> None:
    record = await cluster.file()
    cluster.back_up()
    failed = record.members[2]
    await cluster.restore()
    cluster.network.reach[failed].alive = False
    await cluster.scene.beat(failed, failed="no disk")
    assert (await cluster.learned(record.block)).restored
    await cluster.leave_safe_mode()
    learned = await cluster.learned(record.block)
    assert set(learned.members) == set(record.members) - {failed}


async def test_it_is_shown_how_many_blocks_are_still_to_be_learned(cluster: Cluster) -> None:
    record, other = await cluster.file(), await cluster.file(path="/g")
    cluster.back_up()
    absent = min(set(record.members) - set(other.members), default=record.members[2])
    await cluster.restore(absent)
    waiting = [each for each in (record, other) if absent in each.members]
    await cluster.learned(record.block)

    async def shown() -> int:
        return (await cluster.scene.service.call(CLUSTER_STATUS, ClusterStatusRequest())).to_learn

    assert await shown() == len(waiting) > 0
    await cluster.leave_safe_mode()
    await cluster.learned(record.block)
    assert await shown() == 0


async def test_what_an_absent_storage_has_of_another_version_is_never_mixed_with_the_block(
    cluster: Cluster,
) -> None:
    record = await cluster.file()
    cluster.back_up()
    late = record.members[2]
    await cluster.restore(late)
    await cluster.leave_safe_mode()
    learned = await cluster.learned(record.block)
    cluster.network.reach[late].alive = True
    held = cluster.network.reach[late].replicas[record.block]
    assert held.registers.state is ReplicaState.FINALIZED
    message = finalize.finalize_message(learned, ())
    answer = cluster.network.reach[late].answer(message)
    assert type(answer).__name__ == "Nack", "it keeps nothing of another epoch"


async def test_a_block_that_was_open_at_the_backup_keeps_all_that_was_written_since(
    cluster: Cluster,
) -> None:
    scene = cluster.scene
    view = await scene.add_block(await scene.create("/open"))
    scene.write(view, 1, 1, 1)
    cluster.back_up()
    scene.write(view, 4, 3, 3)
    await cluster.restore()
    learned = await cluster.learned(view.record.block)
    assert (learned.finalized, learned.length) == (True, 4)
    assert set(learned.members) == set(view.record.members)


async def test_a_promise_above_all_that_were_skipped_is_exceeded(cluster: Cluster) -> None:
    record = await cluster.file()
    cluster.back_up()
    storage = cluster.network.reach[record.members[0]]
    high = Generation(record.generation + 2 * finalize.SKIPPED)
    held = storage.replicas[record.block]
    storage.replicas[record.block] = held.having(max_generation=high)
    await cluster.restore()
    assert (await cluster.learned(record.block)).restored, "the first try finds the promise"
    learned = await cluster.learned(record.block)
    assert (learned.restored, learned.generation > high) == (False, True)
    assert set(learned.members) == set(record.members)


async def findings(cluster: Cluster) -> list[Condition]:
    page = await cluster.scene.service.call(CHECK_FILES, CheckFiles("/"))
    return [each.condition for each in page.findings]


async def test_a_block_that_was_open_at_the_backup_and_that_nobody_has_is_unclear_not_missing(
    cluster: Cluster,
) -> None:
    """Its file is shown as being written, for ever, and an operator must be told why; but it may
    be one that was closed since without this block, so `--delete-corrupt` may not take it."""
    scene = cluster.scene
    view = await scene.add_block(await scene.create("/f"))
    cluster.back_up()
    for acceptor in cluster.network.reach.values():
        acceptor.replicas.clear()  # nothing was written to it, or the file was deleted since
    await cluster.restore()
    assert (await cluster.learned(view.record.block)).restored, "nobody can tell"
    assert await findings(cluster) == [Condition.OPEN, Condition.UNCLEAR]


@dataclass(frozen=True)
class Nowhere:
    """An open file after a restore: its first block is whole, its last one is nowhere."""

    first: BlockRecord
    last: BlockRecord


async def nowhere(cluster: Cluster, *absent: int) -> Nowhere:
    """The writer asked for a second block, and died before it made a replica. Members of that by
    these numbers are absent after the restore."""
    scene = cluster.scene
    file = await scene.create("/f")
    first = await scene.add_block(file)
    scene.write(first, 2, 2, 2)
    request = finalize_request(BlockEntry(first.record), 2)
    ended = (await scene.service.call(FINALIZE_BLOCK, request)).record
    await cluster.all_hold(ended)
    last = (await scene.service.call(ADD_BLOCK, AddBlock(file, ANN, ended.block, window=2))).record
    cluster.back_up()
    await cluster.restore(*(last.members[number] for number in absent))
    return Nowhere(ended, last)


async def recovered(cluster: Cluster, *empty: BlockId) -> LeaseRecovery:
    return await cluster.scene.service.call(RECOVER_LEASE, RecoverLease("/f", empty=empty))


async def test_a_block_that_no_storage_ever_had_is_shown_and_ends_empty_on_an_operators_word(
    cluster: Cluster,
) -> None:
    there = await nowhere(cluster)
    block = there.last.block
    (stuck,) = (await recovered(cluster)).stuck
    assert stuck.unsure == "DataNodes are waited for until an operator leaves safe mode"
    assert (await recovered(cluster, block)).reason.endswith(stuck.unsure)
    await cluster.leave_safe_mode()
    await cluster.learned(there.first.block)
    found = await recovered(cluster)
    (stuck,) = found.stuck
    assert (stuck.may_be_empty, stuck.unheard, found.status.open) == (True, (), True)
    assert {each.answer for each in stuck.members} == {MemberAnswer.NOTHING}
    assert cluster.network.reach[there.last.members[0]].replicas.get(block) is None
    closed = await recovered(cluster, block)
    assert (closed.stuck, closed.status.open, closed.status.size) == ((), False, 20)


async def test_an_empty_block_that_left_its_file_since_the_backup_leaves_it_again(
    cluster: Cluster,
) -> None:
    """No byte of the file is gone with it, so `fsck --delete-corrupt` must not delete the file."""
    scene = cluster.scene
    file = await scene.create("/f")
    empty = (await scene.add_block(file)).record.block
    await scene.service.call(SEAL_BLOCK, BlockRequest(empty, ANN))
    last = await scene.add_block(file, empty)
    scene.write(last, 2, 2, 2)
    request = finalize_request(BlockEntry(last.record), 2)
    ended = (await scene.service.call(FINALIZE_BLOCK, request)).record
    await cluster.all_hold(ended)
    cluster.back_up()
    await scene.node.closer.close(CloseFile(file, ANN))
    held = [cluster.network.reach[name].replicas for name in (*MEMBERS, FOURTH)]
    await wait_until_async(lambda: all(empty not in each for each in held))
    await cluster.restore()
    await cluster.leave_safe_mode()
    scene = cluster.scene
    page = await scene.service.call(CHECK_FILES, CheckFiles("/"))
    found = {each.block: each.condition for each in page.findings}
    assert found[empty] is Condition.UNCLEAR
    await cluster.learned(ended.block)
    with pytest.raises(NotFoundError):
        await cluster.record(empty)
    closed = (await recovered(cluster)).status
    assert (closed.open, closed.size) == (False, 20)
    assert scene.node.learner.left == 0


async def an_empty_last_block(cluster: Cluster) -> BlockId:
    """Let a closed file end in a block that the backup had empty, and that no storage has."""
    scene = cluster.scene
    file = await scene.create("/f")
    empty = (await scene.add_block(file)).record
    await scene.service.call(SEAL_BLOCK, BlockRequest(empty.block, ANN))
    cluster.back_up()
    for name in empty.members:
        del cluster.network.reach[name].replicas[empty.block]
    await cluster.restore()
    await cluster.leave_safe_mode()
    return empty.block


async def test_an_empty_last_block_stays_as_it_may_have_got_bytes_since(cluster: Cluster) -> None:
    assert (await cluster.learned(await an_empty_last_block(cluster))).restored


async def test_the_file_of_an_empty_last_block_lacks_nothing(cluster: Cluster) -> None:
    """As no byte is gone, `fsck --delete-corrupt` must not delete the file."""
    empty = await an_empty_last_block(cluster)
    await recovered(cluster)
    page = await cluster.scene.service.call(CHECK_FILES, CheckFiles("/"))
    (found,) = (each for each in page.findings if each.block == empty)
    assert found.condition is Condition.UNCLEAR


async def test_a_block_of_a_backup_may_be_at_each_storage_that_has_not_told_what_it_holds(
    cluster: Cluster,
) -> None:
    """It may have moved there since: `fsck --delete-corrupt` must not delete its file."""
    record = await cluster.file()
    await cluster.restore_without_replicas()
    assert await findings(cluster) == [Condition.MISSING]
    await cluster.scene.register(FOURTH, report=False, incarnation="run-2")
    assert await findings(cluster) == [Condition.UNCLEAR]
    await cluster.scene.report(FOURTH)
    assert await findings(cluster) == [Condition.MISSING]
    assert (await cluster.record(record.block)).restored


async def test_a_word_ends_the_empty_last_block_of_a_closed_file(cluster: Cluster) -> None:
    empty = await an_empty_last_block(cluster)
    before = await recovered(cluster)
    assert not before.status.open
    assert [(each.block, each.may_be_empty) for each in before.stuck] == [(empty, True)]
    assert not (await recovered(cluster, empty)).stuck
    record = await cluster.record(empty)
    assert (record.restored, record.length) == (False, 0)


async def test_that_word_leaves_an_empty_replica_with_a_promise_at_each_member(
    cluster: Cluster,
) -> None:
    """A Create that is still on its way is refused then: else its writer would write on."""
    there = await nowhere(cluster)
    await cluster.leave_safe_mode()
    await cluster.scene.node.learner.learn_nothing(there.last.block)
    for name in there.last.members:
        replica = cluster.network.reach[name].replicas[there.last.block]
        assert replica.registers.max_generation > finalize.SKIPPED


async def test_no_word_ends_a_block_empty_that_a_storage_has(cluster: Cluster) -> None:
    there = await nowhere(cluster)
    block = there.last.block
    cluster.network.reach[there.last.members[0]].create(block)
    cluster.network.reach[there.last.members[0]].write(block, 1)
    await cluster.scene.report(there.last.members[0])
    await cluster.leave_safe_mode()
    refused = await recovered(cluster, block)
    assert "a storage has a replica of it" in refused.reason
    assert (await cluster.learned(block)).length == 1


async def test_datanodes_that_are_not_heard_are_named(cluster: Cluster) -> None:
    there = await nowhere(cluster, 1, 2)
    await cluster.leave_safe_mode()
    (stuck,) = (await recovered(cluster)).stuck
    heard, *absent = there.last.members
    assert stuck.unheard == tuple(sorted(f"dn-{each}" for each in absent))
    nothing = [each for each in stuck.members if each.answer is MemberAnswer.NOTHING]
    assert [each.member.storage for each in nothing] == [heard]
    assert stuck.may_be_empty


async def test_without_a_member_that_is_heard_no_word_suffices(cluster: Cluster) -> None:
    there = await nowhere(cluster, 0, 1, 2)
    await cluster.leave_safe_mode()
    refused = await recovered(cluster, there.last.block)
    assert "no member of it is heard" in refused.reason
    assert (await cluster.record(there.last.block)).restored


async def test_a_block_of_which_something_was_decided_is_never_ended_empty(
    cluster: Cluster,
) -> None:
    record = await cluster.file()
    await cluster.restore_without_replicas()
    with pytest.raises(NotReadyError, match="was decided of it before the backup"):
        await recovered(cluster, record.block)
    assert (await cluster.record(record.block)).restored


async def test_a_block_of_a_backup_is_unclear_while_a_datanode_with_it_may_come_back(
    cluster: Cluster,
) -> None:
    """An operator who sees nothing ends safe mode, and absent DataNodes are waited for no more."""
    strangers = tuple(StorageId(f"absent-{number}") for number in range(3))
    brought = finalize.bring_back(await cluster.file())
    record = msgspec.structs.replace(brought, members=strangers)
    assessor = cluster.scene.node.assessor
    need = assessor.need(Demand(BlockEntry(record), 3), assessor.view())
    assert [*conditions(need)] == [Condition.UNCLEAR]
    assert set(strangers) < set(need.elsewhere), "others have reported one"
