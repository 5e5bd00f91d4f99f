"""The balancer at work on a node in memory: storages become even, and no block pays for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable
from functools import partial

import pytest

from paxosblock.api.care import BALANCE, BALANCE_KEPT_S, Balance, BalanceStatus, Balancing
from paxosblock.api.namenode import (
    CLOSE_FILE,
    DELETE,
    FINALIZE_BLOCK,
    NO_BLOCK,
    CloseFile,
    DeletePath,
)
from paxosblock.api.reports import HEARTBEAT, REGISTER, Heartbeat, Register, StorageReport
from paxosblock.api.status import SAFE_MODE, SafeModeAction, SafeModeRequest
from paxosblock.errors import DeadlineError, ExistsError, InvalidRequestError
from paxosblock.namenode.blocks.acceptors import Answer, Question
from paxosblock.namenode.catalog.records import BlockEntry
from paxosblock.protocol.finalize import BlockRecord
from paxosblock.protocol.messages import Delete, Finalize
from paxosblock.protocol.types import BlockId, StorageId
from tests.namenode.cluster import CHUNK_BYTES, Network, acceptors
from tests.namenode.scene import ANN, Scene, finalize_request, new_scene
from tests.waiting import wait_until_async

ROOM_BYTES = 200
"""Of a storage, once the files are there: each block takes a twentieth of it."""
OLD = ("s1", "s2", "s3")
NEW = "s4"
DONE = {Balancing.BALANCED, Balancing.STUCK}


class Slow(Network):
    """DataNodes that may be slow to drop replicas."""

    keeps = False

    async def _answer(self, storage: StorageId, question: Question) -> Answer:
        if self.keeps and isinstance(question, Delete):
            raise DeadlineError(f"{storage}: no answer")
        return await super()._answer(storage, question)


class Cluster:
    """A scene whose DataNodes tell how full they are."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.room_bytes = 1 << 40

    def used_bytes(self, storage: str) -> int:
        held = self.scene.acceptor(storage).replicas.values()
        return sum(replica.length for replica in held) * CHUNK_BYTES

    def room(self, storage: str) -> StorageReport:
        used = self.used_bytes(storage)
        free = max(0, self.room_bytes - used)
        return StorageReport(StorageId(storage), self.room_bytes, free, used)

    async def enter(self, storage: str, rack: str = "/r1") -> None:
        """A DataNode registers, or again in another rack."""
        name = f"dn-{storage}"
        request = Register(name, f"{name}:9864", "run-1", (self.room(storage),), rack=rack)
        await self.scene.service.call(REGISTER, request)
        await self.scene.report(storage)

    async def pass_time(self, seconds: float) -> None:
        """All that live are heard of, and time passes."""
        self.scene.clock.now += seconds
        for storage, acceptor in self.scene.network.reach.items():
            if acceptor.alive and self.scene.node.datanodes.home(storage) is not None:
                beat = Heartbeat(f"dn-{storage}", "run-1", (self.room(storage),), 0)
                assert not (await self.scene.service.call(HEARTBEAT, beat)).register
                await self.scene.report(storage)

    async def file(self, path: str, blocks: int, *, closed: bool = True) -> list[BlockRecord]:
        """A file of blocks of one chunk, which all members hold and have told so."""
        scene, previous, records = self.scene, NO_BLOCK, list[BlockRecord]()
        file = await scene.create(path)
        for _ in range(blocks):
            view = await scene.add_block(file, previous)
            scene.write(view, *[1] * len(view.record.members))
            request = finalize_request(BlockEntry(view.record), 1)
            records.append((await scene.service.call(FINALIZE_BLOCK, request)).record)
            previous = view.record.block
            await self.pass_time(0)
        await wait_until_async(lambda: all(self.whole(record) == 3 for record in records))
        if closed:
            await scene.service.call(CLOSE_FILE, CloseFile(file, ANN))
        return records

    def whole(self, record: BlockRecord) -> int:
        return len(self.scene.node.replicas.whole(record))

    async def ask(self, balancer: str = "one", *, stop: bool = False) -> BalanceStatus:
        return await self.scene.service.call(BALANCE, Balance(balancer, 0.1, stop=stop))

    async def balance(self, balancer: str = "one", step_s: float = 0.2) -> BalanceStatus:
        """Ask every `step_s` until there is nothing more to do."""

        found = list[BalanceStatus]()

        async def once() -> bool:
            await self.pass_time(step_s)
            await self.scene.node.monitor.turn()
            found[:] = [await self.ask(balancer)]
            return found[0].phase in DONE

        await wait_until_async(once, what="the end of the balancer's work")
        return found[0]

    async def members(self, records: Iterable[BlockRecord]) -> list[tuple[StorageId, ...]]:
        wanted = tuple(record.block for record in records)
        found = await self.scene.node.catalog.block_entries(wanted)
        return [entry.record.members for entry in found if entry is not None]

    def copied(self) -> set[tuple[BlockId, StorageId]]:
        """The copies that the new storage was asked for."""
        return {
            (asked.block, storage)
            for storage, asked in self.scene.network.asked
            if isinstance(asked, Finalize) and storage == NEW
        }


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    """Three storages that are known, and an empty fourth one that is not."""
    network = Slow(acceptors(*OLD, NEW))
    network.reach[StorageId(NEW)].alive = False
    scene = await new_scene(network=network)
    cluster = Cluster(scene)
    scene.clock.now += 5
    for storage in OLD:
        await cluster.enter(storage)
    yield cluster
    await scene.close()


async def with_new(cluster: Cluster, rack: str = "/r1") -> None:
    """The fourth storage comes."""
    cluster.room_bytes = ROOM_BYTES
    cluster.scene.acceptor(NEW).alive = True
    await cluster.enter(NEW, rack)
    await cluster.pass_time(1)
    await cluster.scene.node.monitor.turn()  # it may get copies from now on


async def test_an_empty_storage_gets_its_share_and_every_block_keeps_three_replicas(
    cluster: Cluster,
) -> None:
    records = await cluster.file("/f", 10)
    assert [cluster.used_bytes(storage) for storage in (*OLD, NEW)] == [100, 100, 100, 0]
    await with_new(cluster)
    status = await cluster.balance()
    assert (status.phase, status.left_bytes, status.under_way) == (Balancing.BALANCED, 0, 0)
    members = await cluster.members(records)
    moved = sum(NEW in each for each in members)
    assert (status.moved_blocks, status.moved_bytes) == (moved, moved * CHUNK_BYTES)
    assert moved == 6  # 60 of 200 bytes: a tenth below the mean
    assert all(len(set(each)) == 3 for each in members)
    assert status.furthest <= 0.1
    await cluster.ask(stop=True)
    again = await cluster.balance("again")
    assert (again.phase, again.moved_blocks) == (Balancing.BALANCED, 0)
    assert again.run != status.run


def has(held: Collection[BlockId], block: BlockId, wanted: bool) -> bool:
    return (block in held) == wanted


async def test_the_replica_that_left_is_dropped_and_those_who_stay_hold_the_new_version(
    cluster: Cluster,
) -> None:
    records = await cluster.file("/f", 10)
    await with_new(cluster)
    await cluster.balance()
    for record, members in zip(records, await cluster.members(records), strict=True):
        for storage in (*OLD, NEW):
            held, wanted = cluster.scene.acceptor(storage).replicas, storage in members
            await wait_until_async(partial(has, held, record.block, wanted))


async def test_a_move_counts_until_its_source_has_dropped_the_replica(cluster: Cluster) -> None:
    """However late that is. The source looks as full as before until then."""
    network = cluster.scene.network
    assert isinstance(network, Slow)
    network.keeps = True
    records = await cluster.file("/f", 10)
    await with_new(cluster)
    assert (await cluster.balance(step_s=1.0)).moved_blocks == 6
    assert max(map(cluster.used_bytes, OLD)) == 10 * CHUNK_BYTES
    await cluster.ask(stop=True)
    again = await cluster.balance("two", step_s=1.0)
    assert (again.phase, again.moved_blocks) == (Balancing.BALANCED, 0)
    network.keeps = False
    for _ in range(20):
        await cluster.pass_time(1.0)
    await wait_until_async(lambda: max(map(cluster.used_bytes, OLD)) < 10 * CHUNK_BYTES)
    await cluster.ask("two", stop=True)
    again = await cluster.balance("three", step_s=1.0)
    assert (again.phase, again.moved_blocks) == (Balancing.BALANCED, 0)
    assert sum(NEW in each for each in await cluster.members(records)) == 6


async def test_files_that_are_being_written_are_left_alone(cluster: Cluster) -> None:
    records = await cluster.file("/open", 10, closed=False)
    await with_new(cluster)
    status = await cluster.balance()
    assert (status.phase, status.why) == (
        Balancing.STUCK,
        "no block may be moved that would change it",
    )
    assert (status.moved_blocks, status.storages, cluster.copied()) == (0, 4, set())
    assert all(NEW not in each for each in await cluster.members(records))


async def test_no_block_loses_its_second_rack_for_it(cluster: Cluster) -> None:
    await cluster.enter("s3", "/r2")
    records = await cluster.file("/f", 10)
    await with_new(cluster, "/r1")
    status = await cluster.balance()
    members = await cluster.members(records)
    assert all("s3" in each for each in members), "the only storage of the second rack"
    assert sum(NEW in each for each in members) == status.moved_blocks == 6
    assert status.phase is Balancing.STUCK  # s3 is still too full


async def test_there_is_one_balancer_at_a_time_until_it_has_been_silent(cluster: Cluster) -> None:
    await cluster.ask("one")
    cluster.scene.clock.now += 3
    with pytest.raises(ExistsError, match=r"another balancer is at work, it was heard of 3\.0 s"):
        await cluster.ask("two")
    cluster.scene.clock.now += BALANCE_KEPT_S
    await cluster.ask("two")
    await cluster.ask("two", stop=True)
    await cluster.ask("three")


async def test_when_nobody_asks_any_more_what_is_under_way_ends_and_nothing_else_begins(
    cluster: Cluster,
) -> None:
    records = await cluster.file("/f", 10)
    await with_new(cluster)
    cluster.scene.network.hung.add(StorageId(NEW))
    await cluster.ask()
    await wait_until_async(lambda: len(cluster.copied()) == 3)  # one for each pair
    for _ in range(3):
        await cluster.pass_time(BALANCE_KEPT_S / 2)
    begun = cluster.copied()
    await cluster.scene.node.balancer.turn()
    assert cluster.copied() == begun
    assert len(begun) == 3
    assert all(len(each) == 3 for each in await cluster.members(records))


async def test_in_safe_mode_it_waits_and_then_goes_on(cluster: Cluster) -> None:
    await cluster.file("/f", 10)
    await with_new(cluster)
    await cluster.scene.service.call(SAFE_MODE, SafeModeRequest(SafeModeAction.ENTER))

    async def held_up() -> bool:
        return (await cluster.ask()).phase is Balancing.HELD_UP

    await wait_until_async(held_up)
    await cluster.scene.node.balancer.turn()
    assert cluster.copied() == set()
    assert (await cluster.ask()).why == "safe mode is on"
    await cluster.scene.service.call(SAFE_MODE, SafeModeRequest(SafeModeAction.LEAVE))
    assert (await cluster.balance()).moved_blocks == 6


async def test_replicas_that_are_lacking_come_first(cluster: Cluster) -> None:
    await cluster.file("/f", 10)
    await with_new(cluster)
    node = cluster.scene.node
    cluster.scene.network.hung.add(StorageId(NEW))
    cluster.scene.acceptor("s1").alive = False
    for _ in range(24):  # s1 is dead, and not waited for any more
        await cluster.pass_time(2)
    await node.monitor.turn()
    assert node.monitor.is_behind
    most = len(node.copies)
    assert 0 < most < 10, "the others wait for their turn"
    await cluster.ask()
    await node.balancer.turn()
    status = await cluster.ask()
    assert (status.phase, status.under_way) == (Balancing.HELD_UP, 0)
    assert status.why == "replicas that are lacking are made first"


async def test_no_more_is_moved_than_the_bandwidth_allows(cluster: Cluster) -> None:
    await cluster.file("/f", 10)
    await with_new(cluster)
    request = Balance("one", 0.1, bandwidth_bytes_per_s=1)  # so a block of ten bytes takes 10 s
    node = cluster.scene.node
    begun_s = cluster.scene.clock.now
    for _ in range(40):
        await cluster.scene.service.call(BALANCE, request)
        await node.balancer.turn()
        await wait_until_async(lambda: len(node.copies) == 0)
        await node.monitor.turn()  # the source leaves
        await wait_until_async(lambda: not node.reducer.busy)
        await cluster.pass_time(1)
        seconds = cluster.scene.clock.now - begun_s
        assert len(cluster.copied()) <= 1 + seconds / 10
    assert len(cluster.copied()) >= 4


async def test_a_storage_that_takes_no_copies_is_not_asked_for_ever(cluster: Cluster) -> None:
    records = await cluster.file("/f", 10)
    await with_new(cluster)
    cluster.scene.network.loss = 1.0
    status = await cluster.balance(step_s=2)
    assert status.phase is Balancing.STUCK
    assert status.why.endswith("copies failed")
    assert status.moved_blocks == 0 < status.failed
    assert [set(each) for each in await cluster.members(records)] == [set(OLD)] * 10


async def test_a_block_that_is_deleted_meanwhile_is_no_failure(cluster: Cluster) -> None:
    await cluster.file("/f", 10)
    await with_new(cluster)
    node = cluster.scene.node
    cluster.scene.network.hung.add(StorageId(NEW))
    await cluster.ask()
    await wait_until_async(lambda: len(node.copies) == 3)
    await cluster.scene.service.call(DELETE, DeletePath("/f"))

    async def is_over() -> bool:
        status = await cluster.ask()
        return (status.under_way, status.failed) == (0, 0)

    await wait_until_async(is_over)


async def test_a_new_leader_begins_anew_and_counts_anew(cluster: Cluster) -> None:
    await cluster.file("/f", 10)
    await with_new(cluster)
    before = await cluster.balance()
    cluster.scene.node.balancer.clear()
    after = await cluster.balance()
    assert (after.phase, after.moved_blocks) == (Balancing.BALANCED, 0)
    assert before.run != after.run


async def test_a_new_leader_does_not_call_it_done_before_every_storage_has_reported(
    cluster: Cluster,
) -> None:
    """Three storages that reported at once are even; the empty fourth one is only slower."""
    await cluster.file("/f", 10)
    await with_new(cluster)
    node = cluster.scene.node
    node.balancer.clear()
    node.datanodes.ask_for_report(StorageId(NEW))

    async def held_up() -> bool:
        return (await cluster.ask()).phase is Balancing.HELD_UP

    await wait_until_async(held_up)
    assert (await cluster.ask()).why == "storage s4 has not reported its replicas yet"
    await cluster.scene.report(NEW)
    assert (await cluster.balance()).moved_blocks == 6


async def test_what_makes_no_sense_is_refused(cluster: Cluster) -> None:
    for request in (
        Balance("", 0.1),
        Balance("one", 0.0),
        Balance("one", 1.1),
        Balance("one", float("nan")),
        Balance("one", 0.1, bandwidth_bytes_per_s=0),
    ):
        with pytest.raises(InvalidRequestError):
            await cluster.scene.service.call(BALANCE, request)
