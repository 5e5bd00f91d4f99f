"""Messages that NameNodes get from a DataNode, over real control calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from aiohttp import web

from paxosblock.api.datanode import Envelope
from paxosblock.api.methods import Done, Method
from paxosblock.api.reports import (
    ALL_BLOCKS,
    BLOCK_REPORT,
    HEARTBEAT,
    LAST_BLOCK,
    REGISTER,
    BlockRange,
    BlockReport,
    Heartbeat,
    HeartbeatAnswer,
    Register,
    Registered,
    ReportAnswer,
)
from paxosblock.config import DataNodeConfig
from paxosblock.datanode.data_node import DataNode, open_volumes
from paxosblock.datanode.reporter import REFUSES
from paxosblock.datanode.store.identity import enter_cluster, give_identity, read_identity
from paxosblock.errors import (
    ConfigError,
    CorruptionError,
    InvalidRequestError,
    NotReadyError,
    OutcomeUnknownError,
    UnavailableError,
)
from paxosblock.host.disk import Disk, OsDisk
from paxosblock.namenode.blocks.datanodes import Reported
from paxosblock.net.calls.call_server import RpcRouter, add_calls
from paxosblock.net.calls.rpc import RpcClient
from paxosblock.protocol.messages import Create, Delete, Finalize
from paxosblock.protocol.types import (
    FIRST_GENERATION,
    BlockId,
    Durability,
    Generation,
    ReplicaState,
)
from tests.datanode.node import BLOCK, WINDOW, frame, name
from tests.disks.faults import SYNCS, Fault
from tests.disks.simulated import SimulatedDisk
from tests.waiting import wait_until_async

T = TypeVar("T")

QUICK = DataNodeConfig(heartbeat_interval_s=0.05, block_report_interval_s=3600.0)


@dataclass
class Listener:
    """A NameNode's end of the four calls, which takes down what it is told."""

    heard: list[Any] = field(default_factory=list)
    answer: HeartbeatAnswer = field(default_factory=lambda: HeartbeatAnswer(register=False))
    knows: str = ""
    cluster: str = ""
    leads: bool = True
    reported: Reported = field(default_factory=Reported)
    again_after_s: float = 0.0
    takes: Callable[[BlockReport], Awaitable[None]] | None = None
    """Is awaited with a report before that is answered."""
    runner: web.AppRunner | None = None

    async def start(self, port: int = 0) -> str:
        """Listen; returns the address."""
        app, router = web.Application(), RpcRouter()
        for method in (REGISTER, HEARTBEAT, BLOCK_REPORT):
            router.register(method.name, method.request, self._answer_of(method))
        add_calls(app, router)
        self.runner = web.AppRunner(app)
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", port).start()
        return f"127.0.0.1:{self.runner.addresses[0][1]}"

    async def stop(self) -> None:
        """No node is reached here any more."""
        if self.runner is not None:
            await self.runner.cleanup()

    def _answer_of(self, method: Method[Any, Any]) -> Callable[[Any], Any]:
        async def answer(request: Any) -> object:
            incarnation = getattr(request, "incarnation", self.knows)
            if isinstance(request, Register):
                self.knows, self.reported = incarnation, Reported()
            elif incarnation != self.knows:
                raise NotReadyError("register first")
            self.heard.append(request)
            if isinstance(request, BlockReport):
                return await self._take(request)
            if isinstance(request, Register):
                if not self.leads:
                    raise UnavailableError("another NameNode leads")
                if request.cluster not in {"", self.cluster}:
                    raise InvalidRequestError(f"it is of cluster {request.cluster}")
                return Registered(self.cluster)
            return self.answer if method is HEARTBEAT else Done()

        return answer

    async def _take(self, report: BlockReport) -> ReportAnswer:
        if self.takes is not None:
            await self.takes(report)
        if report.covers is not None:
            self.reported.add(report.covers)
        return ReportAnswer(self.reported.up_to, self.again_after_s)

    def all(self, kind: type[T]) -> list[T]:
        """Everything of this kind that was heard."""
        return [message for message in self.heard if isinstance(message, kind)]

    async def hears(self, kind: type[T], which: Callable[[T], bool] = lambda _: True) -> T:
        """Wait for such a message."""
        await wait_until_async(lambda: [m for m in self.all(kind) if which(m)], what=kind.__name__)
        return next(message for message in self.all(kind) if which(message))


def is_full(report: BlockReport) -> bool:
    """True for a page of a full report."""
    return report.covers is not None


def pages(listener: Listener) -> list[tuple[BlockRange, tuple[BlockId, ...]]]:
    """The pages of full reports that were heard: their ranges, and the blocks they name."""
    return [
        (report.covers, tuple(found.state.block for found in report.replicas))
        for report in listener.all(BlockReport)
        if report.covers is not None
    ]


@asynccontextmanager
async def reporting(
    folder: Path,
    *addresses: str,
    disk: Disk | None = None,
    config: DataNodeConfig = QUICK,
    upgrade: bool = False,
    others: Sequence[Path] = (),
) -> AsyncIterator[DataNode]:
    """A DataNode that reports to these NameNodes and says it is reached at port 4242."""
    async with RpcClient() as client:
        disk = disk or OsDisk()
        volumes = open_volumes(disk, [folder, *others], "node-1", config, "boot-1", upgrade=upgrade)
        node = DataNode("node-1", volumes, addresses, client, config)
        await node.load()
        node.start("127.0.0.1:4242")
        try:
            yield node
        finally:
            await node.close()


@asynccontextmanager
async def namenode() -> AsyncIterator[tuple[Listener, str]]:
    """A listening NameNode's end and its address."""
    listener = Listener()
    address = await listener.start()
    try:
        yield listener, address
    finally:
        await listener.stop()


async def create(node: DataNode, block: BlockId = BLOCK) -> None:
    """Make a replica on the only volume."""
    request = Create(block, WINDOW, Durability.DISK)
    await node.accept(Envelope(node.volumes[0].storage, request))


async def write(node: DataNode, count: int) -> None:
    """Write chunks and wait until they are durable."""
    loop = asyncio.get_running_loop()
    votes = [loop.create_future() for _ in range(count)]
    for index, vote in enumerate(votes):
        header, sent = frame(index)
        node.acceptor.write(header, memoryview(sent), vote.set_result)
    await asyncio.gather(*votes)


async def finalize(node: DataNode, count: int) -> None:
    """Finalize the first `count` chunks under generation 1."""
    request = Finalize(
        BLOCK, Generation(1), Generation(0), count, 100 * count, (), WINDOW, Durability.DISK
    )
    await node.accept(Envelope(node.volumes[0].storage, request))


async def test_a_node_registers_reports_everything_and_then_sends_heartbeats(
    tmp_path: Path,
) -> None:
    async with namenode() as (listener, address), reporting(tmp_path, address) as node:
        await listener.hears(Heartbeat)
        register, report = listener.heard[:2]
        assert isinstance(register, Register)
        assert (register.node, register.address) == ("node-1", "127.0.0.1:4242")
        (storage,) = register.storages
        assert storage.storage == node.volumes[0].storage
        assert 0 < storage.free_bytes < storage.capacity_bytes
        assert isinstance(report, BlockReport)
        assert (report.covers, report.replicas) == (ALL_BLOCKS, ())


async def test_a_change_is_reported_as_it_happens(tmp_path: Path) -> None:
    async with namenode() as (listener, address), reporting(tmp_path, address) as node:
        await listener.hears(BlockReport, is_full)
        await create(node)
        await write(node, 2)
        await finalize(node, 2)
        report = await listener.hears(
            BlockReport,
            lambda report: any(
                found.state.registers.state is ReplicaState.FINALIZED for found in report.replicas
            ),
        )
        (summary,) = report.replicas
        assert (report.covers, summary.hdfs_state, summary.last) == (None, "finalized", name(1))


async def test_a_deleted_replica_is_reported_as_deleted(tmp_path: Path) -> None:
    async with namenode() as (listener, address), reporting(tmp_path, address) as node:
        await create(node)
        await listener.hears(BlockReport, lambda report: bool(report.replicas))
        delete = Delete(BLOCK, Generation(0))
        await node.accept(Envelope(node.volumes[0].storage, delete))
        report = await listener.hears(BlockReport, lambda report: bool(report.deleted))
        assert (report.covers, report.replicas, report.deleted) == (None, (), (BLOCK,))


async def test_a_namenode_that_forgot_the_node_gets_everything_again(tmp_path: Path) -> None:
    async with namenode() as (listener, address), reporting(tmp_path, address) as node:
        await create(node)
        await listener.hears(Heartbeat)
        listener.heard.clear()
        listener.answer = HeartbeatAnswer(register=True)
        await listener.hears(Register)
        listener.answer = HeartbeatAnswer(register=False)
        report = await listener.hears(BlockReport, is_full)
        assert [found.state.block for found in report.replicas] == [BLOCK]


async def test_a_namenode_may_ask_for_the_whole_report(tmp_path: Path) -> None:
    async with namenode() as (listener, address), reporting(tmp_path, address):
        await listener.hears(Heartbeat)
        listener.heard.clear()
        listener.answer = HeartbeatAnswer(register=False, report=True)
        report = await listener.hears(BlockReport, is_full)
        assert report.node == "node-1"
        assert listener.all(Register) == []


async def test_a_namenode_that_is_down_keeps_nobody_waiting_and_is_told_when_it_is_back(
    tmp_path: Path,
) -> None:
    async with namenode() as (up, address), namenode() as (down, other):
        await down.stop()
        async with reporting(tmp_path, address, other) as node:
            await up.hears(Heartbeat)
            await create(node)
            await up.hears(BlockReport, lambda report: bool(report.replicas))
            assert down.heard == []
            await down.start(int(other.rpartition(":")[2]))
            report = await down.hears(BlockReport, is_full)
            assert [found.state.block for found in report.replicas] == [BLOCK]


async def test_a_node_reports_to_the_namenodes_of_the_latest_list_and_to_no_other(
    tmp_path: Path,
) -> None:
    async with (
        namenode() as (stays, first),
        namenode() as (leaves, second),
        namenode() as (comes, third),
        reporting(tmp_path, first, second) as node,
    ):
        await create(node)
        await leaves.hears(Heartbeat)
        listed = HeartbeatAnswer(register=False, namenodes=(first, third), namenodes_at=7)
        stays.answer = listed
        report = await comes.hears(BlockReport, is_full)
        assert [found.state.block for found in report.replicas] == [BLOCK]
        leaves.heard.clear()
        # One that has not heard of that list yet tells an earlier one.
        earlier = HeartbeatAnswer(register=False, namenodes=(first, second), namenodes_at=6)
        stays.answer = comes.answer = earlier
        stays.heard.clear()
        comes.heard.clear()
        await stays.hears(Heartbeat)
        await comes.hears(Heartbeat)
        await comes.hears(Heartbeat, lambda beat: beat is not comes.all(Heartbeat)[0])
        assert leaves.heard == []


async def test_a_change_that_was_not_heard_is_told_again(tmp_path: Path) -> None:
    async with namenode() as (listener, address), reporting(tmp_path, address) as node:
        await listener.hears(Heartbeat)
        await listener.stop()
        await create(node)
        listener.heard.clear()
        await listener.start(int(address.rpartition(":")[2]))
        report = await listener.hears(BlockReport, lambda report: bool(report.replicas))
        assert [found.state.block for found in report.replicas] == [BLOCK]


async def test_damage_is_reported_and_the_replica_no_more(tmp_path: Path) -> None:
    async with namenode() as (listener, address), reporting(tmp_path, address) as node:
        await create(node)
        block = node.find(BLOCK, node.volumes[0].storage)
        assert block is not None
        block.mark_corrupt(str(CorruptionError("a bit has flipped")))
        report = await listener.hears(BlockReport, lambda report: bool(report.dead))
        (dead,) = report.dead
        assert (dead.block, dead.max_generation) == (BLOCK, Generation(0))
        assert report.storage == node.volumes[0].storage
        assert "bit has flipped" in dead.reason
        assert (report.replicas, report.deleted) == ((), ())


async def test_every_full_report_names_what_is_damaged(tmp_path: Path) -> None:
    """The node that may replace it may not have heard of it, or not have been heard."""
    often = replace(QUICK, block_report_interval_s=0.05)
    async with (
        namenode() as (listener, address),
        reporting(tmp_path, address, config=often) as node,
    ):
        await create(node)
        block = node.find(BLOCK, node.volumes[0].storage)
        assert block is not None
        block.mark_corrupt(str(CorruptionError("a bit has flipped")))
        await listener.hears(BlockReport, lambda report: bool(report.dead))
        listener.heard.clear()
        report = await listener.hears(BlockReport, is_full)
        assert ([each.block for each in report.dead], report.replicas) == ([BLOCK], ())


async def test_the_next_full_report_comes_when_the_namenode_wants_it_and_not_before(
    tmp_path: Path,
) -> None:
    often = replace(QUICK, block_report_interval_s=0.01)
    async with namenode() as (listener, address):
        listener.again_after_s = 3600.0
        async with reporting(tmp_path, address, config=often):
            await listener.hears(BlockReport, is_full)
            await wait_until_async(lambda: len(listener.all(Heartbeat)) >= 4)
            assert len(listener.all(BlockReport)) == 1
            listener.again_after_s, listener.answer = 0.0, HeartbeatAnswer(False, report=True)
            await wait_until_async(lambda: len(listener.all(BlockReport)) >= 4)


async def test_damage_that_is_found_at_the_start_is_reported(tmp_path: Path) -> None:
    async with namenode() as (listener, address):
        async with reporting(tmp_path, address) as node:
            await create(node)
        (tmp_path / "rbw" / "blk_7.meta").write_bytes(b"garbage")
        listener.heard.clear()
        async with reporting(tmp_path, address):
            report = await listener.hears(BlockReport, is_full)
            (dead,) = report.dead
            assert (dead.block, dead.max_generation) == (BLOCK, FIRST_GENERATION)
            assert report.replicas == ()


async def test_a_failed_volume_is_reported_with_its_reason(tmp_path: Path) -> None:
    disk = SimulatedDisk()
    async with (
        namenode() as (listener, address),
        reporting(tmp_path, address, disk=disk) as node,
    ):
        await create(node)
        disk.breaks(Fault(SYNCS, path=f"{tmp_path}/", error="EIO", times=1))
        await write(node, 1)
        beat = await listener.hears(Heartbeat, lambda beat: beat.storages[0].failed != "")
        assert "Input/output error" in beat.storages[0].failed
        assert beat.storages[0].free_bytes == 0


BLOCKS = tuple(BlockId(number) for number in range(1, 6))
BY_TWO = (
    (BlockRange(BlockId(0), BLOCKS[1]), BLOCKS[:2]),
    (BlockRange(BLOCKS[1], BLOCKS[3]), BLOCKS[2:4]),
    (BlockRange(BLOCKS[3], LAST_BLOCK), BLOCKS[4:]),
)
SMALL_PAGES = replace(QUICK, block_report_page=2)


@asynccontextmanager
async def reporting_five(folder: Path, address: str) -> AsyncIterator[DataNode]:
    """A DataNode that has five replicas when it starts, and reports two in a page."""
    async with reporting(folder) as node:
        for block in reversed(BLOCKS):
            await create(node, block)
    async with reporting(folder, address, config=SMALL_PAGES) as node:
        yield node


async def test_a_full_report_comes_in_pages_that_leave_no_block_out(tmp_path: Path) -> None:
    async with namenode() as (listener, address), reporting_five(tmp_path, address):
        await wait_until_async(lambda: listener.reported.complete)
        assert tuple(pages(listener)) == BY_TWO
        numbers = [report.number for report in listener.all(BlockReport)]
        assert numbers == sorted(set(numbers))


async def test_a_page_that_was_refused_is_written_again_and_those_before_it_are_not(
    tmp_path: Path,
) -> None:
    async def refuse(report: BlockReport) -> None:
        if report.covers is not None and report.covers.after == BLOCKS[1]:
            listener.takes = None
            raise OutcomeUnknownError("somebody else leads now")

    async with namenode() as (listener, address):
        listener.takes = refuse
        async with reporting_five(tmp_path, address):
            await wait_until_async(lambda: listener.reported.complete)
            assert tuple(pages(listener)) == (*BY_TWO[:2], *BY_TWO[1:])


async def test_a_leader_that_missed_the_first_pages_gets_them_without_asking_twice(
    tmp_path: Path,
) -> None:
    async def begin_to_lead(report: BlockReport) -> None:
        if report.covers is not None and report.covers.after == BLOCKS[1]:
            listener.takes, listener.reported = None, Reported()

    async with namenode() as (listener, address):
        listener.takes = begin_to_lead
        async with reporting_five(tmp_path, address):
            await wait_until_async(lambda: listener.reported.complete)
            assert tuple(pages(listener)) == (*BY_TWO[:2], *BY_TWO)


async def test_heartbeats_go_on_while_nobody_answers_a_report(tmp_path: Path) -> None:
    answered = asyncio.Event()

    async def hang(_: BlockReport) -> None:
        await answered.wait()

    async with namenode() as (listener, address):
        listener.takes = hang
        async with reporting(tmp_path, address):
            await listener.hears(BlockReport)
            before = len(listener.all(Heartbeat))
            await wait_until_async(lambda: len(listener.all(Heartbeat)) > before + 2)
            assert len(listener.all(BlockReport)) == 1
            answered.set()


async def test_a_change_gets_through_while_pages_of_the_full_report_are_refused(
    tmp_path: Path,
) -> None:
    async def refuse(report: BlockReport) -> None:
        if report.covers is not None:
            raise CorruptionError("nobody can read this")

    async with namenode() as (listener, address):
        listener.takes = refuse
        async with reporting(tmp_path, address) as node:
            await listener.hears(BlockReport, is_full)
            await create(node)
            change = await listener.hears(BlockReport, lambda report: report.covers is None)
            assert [found.state.block for found in change.replicas] == [BLOCK]


async def test_changes_come_in_pages_too(tmp_path: Path) -> None:
    async with (
        namenode() as (listener, address),
        reporting(tmp_path, address, config=SMALL_PAGES) as node,
    ):
        await wait_until_async(lambda: listener.reported.complete)
        await listener.stop()
        for block in BLOCKS:
            await create(node, block)
        listener.heard.clear()
        await listener.start(int(address.rpartition(":")[2]))
        told: set[BlockId] = set()

        def all_told() -> bool:
            found = [report for report in listener.all(BlockReport) if not is_full(report)]
            assert all(len(report.replicas) <= 2 for report in found)
            told.update(each.state.block for report in found for each in report.replicas)
            return told == set(BLOCKS)

        await wait_until_async(all_told)


async def test_replicas_being_written_are_counted(tmp_path: Path) -> None:
    async with namenode() as (listener, address), reporting(tmp_path, address) as node:
        await create(node)
        await write(node, 1)
        await listener.hears(Heartbeat, lambda beat: beat.open_blocks == 1)
        await finalize(node, 1)
        listener.heard.clear()
        assert (await listener.hears(Heartbeat)).open_blocks == 0
        await create(node, BLOCKS[0])
        await node.accept(Envelope(node.volumes[0].storage, Delete(BLOCKS[0], Generation(0))))
        assert node.open_count == 0


# -- the cluster it belongs to --------------------------------------------------------------------


def refusals(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.message == REFUSES]


async def test_a_node_enters_the_cluster_that_it_first_registers_with_and_keeps_that(
    tmp_path: Path,
) -> None:
    async with namenode() as (listener, address):
        listener.cluster = "first"
        async with reporting(tmp_path, address) as node:
            await listener.hears(Heartbeat)
            assert node.cluster == "first"
        listener.heard.clear()
        async with reporting(tmp_path, address):
            assert (await listener.hears(Register)).cluster == "first"
    identity = read_identity(OsDisk(), tmp_path)
    assert identity is not None
    assert identity.cluster == "first"


async def test_a_namenode_of_another_cluster_hears_no_reports_and_one_line_tells_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with namenode() as (own, address), namenode() as (other, elsewhere):
        own.cluster, other.cluster = "own", "other"
        async with reporting(tmp_path, address):
            await own.hears(Heartbeat)
        async with reporting(tmp_path, elsewhere, address):
            await own.hears(Heartbeat)
            await wait_until_async(lambda: len(other.all(Register)) > 3, what="it is tried again")
        assert not other.all(Heartbeat)
        assert not other.all(BlockReport)
        assert refusals(caplog) == [REFUSES]


async def test_a_node_that_nobody_takes_in_is_of_no_use_and_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with namenode() as (own, address), namenode() as (other, elsewhere):
        own.cluster, other.cluster = "own", "other"
        async with reporting(tmp_path, address) as node:
            await own.hears(Heartbeat)
        async with reporting(tmp_path, elsewhere, address) as node:
            failure = asyncio.create_task(node.wait_failure())
            await wait_until_async(lambda: len(other.all(Register)) > 3, what="it is refused")
            assert not failure.done(), "its own cluster takes it in"
            await own.stop()
            before = len(other.all(Register))
            await wait_until_async(lambda: len(other.all(Register)) > before + 3, what="refusals")
            assert not failure.done(), "its own cluster may be back in a moment"
            failure.cancel()
        caplog.clear()
        async with reporting(tmp_path, elsewhere, address) as node:
            error = await asyncio.wait_for(node.wait_failure(), 60)
            assert isinstance(error, ConfigError)
            assert str(error) == f"{REFUSES}: {elsewhere}: it is of cluster own"
        assert refusals(caplog) == [], "who ends says so then"


async def test_a_node_that_two_clusters_want_at_once_belongs_to_one(tmp_path: Path) -> None:
    async with namenode() as (one, address), namenode() as (two, elsewhere):
        one.cluster, two.cluster = "one", "two"
        async with reporting(tmp_path, address, elsewhere) as node:
            await wait_until_async(lambda: one.all(Heartbeat) or two.all(Heartbeat), what="a beat")
            mine, theirs = (one, two) if node.cluster == "one" else (two, one)
            await wait_until_async(
                lambda: [each for each in theirs.all(Register) if each.cluster == mine.cluster],
                what="it says where it belongs",
            )
            assert theirs.all(Heartbeat) == []


async def test_volumes_of_two_clusters_do_not_make_a_node(tmp_path: Path) -> None:
    for cluster in ("one", "two"):
        (tmp_path / cluster).mkdir()
        identity = give_identity(OsDisk(), tmp_path / cluster, "node-1")
        enter_cluster(OsDisk(), tmp_path / cluster, identity, cluster)
    folders = [tmp_path / "one", tmp_path / "two"]
    with pytest.raises(ConfigError, match="these volumes are of several clusters"):
        open_volumes(OsDisk(), folders, "node-1", QUICK, "boot-1")
    open_volumes(OsDisk(), [tmp_path / "one"], "node-1", QUICK, "boot-1")[0][0].close()


@pytest.mark.parametrize("name", ["kv", "raft"])
async def test_the_folder_of_a_namenode_is_refused_before_anything_is_written(
    tmp_path: Path, name: str
) -> None:
    theirs = tmp_path / "namenode"
    (theirs / name).mkdir(parents=True)
    (theirs / "address").write_text("nn:9870")
    with pytest.raises(ConfigError, match="namenode is the folder of a NameNode"):
        open_volumes(OsDisk(), [tmp_path / "new", theirs], "node-1", QUICK, "boot-1")
    assert sorted(each.name for each in theirs.iterdir()) == sorted(["address", name])
    assert not (tmp_path / "new").exists()
