"""A model of clusters that no test has: how soon is a node's loss mended, and what do reports cost?

Only one real node runs here. Time jumps from event to event: a DataNode is lost with its replicas,
counts as dead after `datanode_dead_after`, and its replicas as missing after `replicate_after`;
then copies begin and end, as many at a time as each DataNode may send and get, each at its share of
`copy_bandwidth`, and no faster than a NameNode on one processor can begin them. The blocks are
spread at random.

The inputs are the shipped settings, the processor time of a NameNode for one report, heartbeat and
copy, and its memory for a block: measured first, on NameNodes of this machine (`reported`),
and emitted. A copy costs as much as that of a small block in the case `healing`.

What it says stands beside what was measured: here the NameNode's processor and memory for up to
1,000,000 replicas, with costs from the fewest two numbers of them (what both have in common, such
as caches, is no cost of a replica); and in `healing-growth` the speed at which blocks of
a lost DataNode come back, with four to eight real ones.

The model leaves out: racks, switches between them, disks slower than `copy_bandwidth`, foreground
work, and what else a NameNode does.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from dataclasses import dataclass, field
from typing import Final

from benchmarks.cases.reports import LOADED_WITHIN_S, NODE, Many, Watch, fill
from benchmarks.host import processor_s, resident_bytes
from benchmarks.record import OURS
from benchmarks.suite import Bench, case
from paxosblock.api.reports import HEARTBEAT, REGISTER, Heartbeat, Register, StorageReport
from paxosblock.base.units import GIB, MIB
from paxosblock.config import DataNodeConfig, NameNodeConfig
from paxosblock.datanode.reporter import Reporter
from paxosblock.datanode.volumes.volume import open_volume
from paxosblock.host.disk import OsDisk
from paxosblock.namenode.blocks.block_reports import REPORTED_PER_S
from paxosblock.net.calls.rpc import RpcClient
from paxosblock.protocol.types import StorageId

REPLICATION: Final = 3
LOOK_AHEAD: Final = 16
"""Waiting blocks to look at for one that may begin, as a queue does that passes over blocks whose
holders are busy."""
CHOICES: Final = 3
"""Random targets of which the least busy gets the copy."""
NODES: Final = (100, 1000)
HELD: Final = 100_000
"""Replicas of each DataNode."""
COPY_US: Final = 1800.0
"""Microseconds of the NameNode's processor, as the case `healing` showed for a small block."""
MEASURED: Final = (50_000, 10**5, 2 * 10**5, 5 * 10**5, 10**6)
"""Replicas that are reported; the model has its costs from the fewest two."""
USUAL: Final = 10**5
MEASURED_HEARTBEATS: Final = 2_000


@dataclass(frozen=True, slots=True)
class Costs:
    """Microseconds of a NameNode's processor for one replica in a full report, for one heartbeat
    and for one copy, and bytes of its memory for a block and for a replica of it."""

    report_us: float
    heartbeat_us: float
    copy_us: float
    block_bytes: float
    replica_bytes: float


@dataclass(frozen=True, slots=True)
class Reported:
    """The use of a NameNode to which so many replicas, each of a block of its own, were reported:
    processor time for the report, memory for the blocks before it, and for the replicas after it;
    and the processor time of one heartbeat."""

    count: int
    report_s: float
    blocks_bytes: float
    replicas_bytes: float
    heartbeat_us: float

    def costs_beyond(self, fewer: Reported | None) -> Costs:
        """Return what each replica costs that `fewer` had not; None: from the first on."""
        first = fewer or Reported(0, 0.0, 0.0, 0.0, 0.0)
        more = self.count - first.count
        return Costs(
            report_us=max(0.0, self.report_s - first.report_s) / more * 1e6,
            heartbeat_us=self.heartbeat_us,
            copy_us=COPY_US,
            block_bytes=max(0.0, self.blocks_bytes - first.blocks_bytes) / more,
            replica_bytes=max(0.0, self.replicas_bytes - first.replicas_bytes) / more,
        )


@dataclass(frozen=True, slots=True)
class Scale:
    """A cluster and its settings. Each DataNode holds `blocks` replicas of full blocks."""

    nodes: int
    blocks: int
    namenode: NameNodeConfig
    datanode: DataNodeConfig

    @property
    def copy_s(self) -> float:
        """Seconds that one copy takes at its share of the bandwidth of source and target."""
        sharing = max(self.namenode.copies_per_source, self.namenode.copies_per_target)
        share = self.datanode.copy_bandwidth_bytes_per_s / sharing
        return self.namenode.block_size / share

    @property
    def noticed_s(self) -> float:
        """Seconds from the loss of a node to the first copy."""
        return self.namenode.datanode_dead_after_s + self.namenode.replicate_after_s


@dataclass(slots=True)
class Healing:
    """The copies after one node was lost: who is busy, and what waits."""

    scale: Scale
    copy_us: float
    rng: random.Random
    sending: list[int] = field(init=False)
    getting: list[int] = field(init=False)
    waiting: list[tuple[int, ...]] = field(init=False)
    """The nodes that still hold each block."""
    under_way: list[tuple[float, int, int]] = field(default_factory=list)
    busy_until_s: float = 0.0
    """The NameNode, with beginning copies."""

    def __post_init__(self) -> None:
        others = range(self.scale.nodes - 1)
        self.sending, self.getting = [0] * len(others), [0] * len(others)
        held = REPLICATION - 1
        self.waiting = [tuple(self.rng.sample(others, held)) for _ in range(self.scale.blocks)]

    def run(self) -> float:
        """Return the seconds from the first copy to the last."""
        now_s = 0.0
        while self.waiting or self.under_way:
            while self._begin_one(now_s):
                pass
            now_s, source, target = heapq.heappop(self.under_way)
            self.sending[source] -= 1
            self.getting[target] -= 1
        return now_s

    def _begin_one(self, now_s: float) -> bool:
        """Begin the first waiting copy that may; False if none may now."""
        sent_most = self.scale.namenode.copies_per_source
        got_most = self.scale.namenode.copies_per_target
        for place in range(len(self.waiting) - 1, max(-1, len(self.waiting) - 1 - LOOK_AHEAD), -1):
            holders = self.waiting[place]
            source = min(holders, key=self.sending.__getitem__)
            target = self._target(holders)
            if self.sending[source] < sent_most and self.getting[target] < got_most:
                self.waiting[place] = self.waiting[-1]
                self.waiting.pop()
                self._begin(now_s, source, target)
                return True
        return False

    def _target(self, holders: tuple[int, ...]) -> int:
        drawn = [self.rng.randrange(self.scale.nodes - 1) for _ in range(CHOICES + len(holders))]
        able = [node for node in drawn if node not in holders]
        return min(able, key=self.getting.__getitem__) if able else drawn[0]

    def _begin(self, now_s: float, source: int, target: int) -> None:
        self.sending[source] += 1
        self.getting[target] += 1
        self.busy_until_s = max(now_s, self.busy_until_s) + self.copy_us / 1e6
        heapq.heappush(self.under_way, (self.busy_until_s + self.scale.copy_s, source, target))


@case("model", room_bytes=2 * GIB)
async def model(bench: Bench) -> None:
    """A model of 100 and 1,000 DataNodes: how soon is a lost one mended, what do reports cost?"""
    measured = [await reported(bench, count) for count in bench.sizes(MEASURED, USUAL, 200)]
    few, *more = measured[:2]
    costs = more[0].costs_beyond(few) if more else few.costs_beyond(None)
    for name, value in (
        ("input: processor for a reported replica", costs.report_us),
        ("input: processor for a heartbeat", costs.heartbeat_us),
        ("input: processor for a copy", costs.copy_us),
    ):
        bench.emit(name, value, "us")
    bench.emit("input: memory of a block", costs.block_bytes, "bytes")
    bench.emit("input: memory of its replica", costs.replica_bytes, "bytes")
    for nodes in bench.some(NODES):
        _tell(bench, Scale(nodes, bench.size(HELD, 100), NameNodeConfig(), DataNodeConfig()), costs)
    for each in measured:
        _check(bench, each, few, costs)


def _check(bench: Bench, found: Reported, few: Reported, costs: Costs) -> None:
    """Emit what so many replicas cost a NameNode, and what they do in the model, which knows what
    the `few` took."""
    at, more = (float(found.count), "replicas"), found.count - few.count
    report_s = few.report_s + more * costs.report_us / 1e6
    held = few.blocks_bytes + few.replicas_bytes + more * (costs.block_bytes + costs.replica_bytes)
    for side, seconds, size_bytes in (
        (OURS, found.report_s, found.blocks_bytes + found.replicas_bytes),
        ("model", report_s, held),
    ):
        bench.emit("processor for all reports", seconds, "s", side=side, at=at)
        what = "memory for blocks of one replica"
        bench.emit(what, size_bytes / MIB, "MiB", side=side, at=at)


def _tell(bench: Bench, scale: Scale, costs: Costs) -> None:
    """Emit what the model says of one cluster."""
    at = (float(scale.nodes), f"DataNodes of {scale.blocks:,} replicas")
    healing_s = Healing(scale, costs.copy_us, random.Random(1)).run()
    replicas = scale.nodes * scale.blocks
    beats = scale.nodes / scale.namenode.heartbeat_interval_s * costs.heartbeat_us / 1e6
    reports_s = replicas * costs.report_us / 1e6
    report_every_s = max(scale.datanode.block_report_interval_s, replicas / REPORTED_PER_S)
    memory = replicas / REPLICATION * costs.block_bytes + replicas * costs.replica_bytes
    copying = costs.copy_us * scale.blocks / 1e6 / healing_s
    size_mib = scale.blocks * scale.namenode.block_size / MIB
    for what, value, unit in (
        ("a lost one is whole again after", scale.noticed_s + healing_s, "s"),
        ("copied", size_mib / healing_s, "MiB/s"),
        ("processor for copies", copying, "of one"),
        ("processor for heartbeats", beats, "of one"),
        ("processor for full reports", reports_s / report_every_s, "of one"),
        ("all reports after a fail-over", reports_s, "s"),
        ("memory of the NameNode", memory / GIB, "GiB"),
    ):
        bench.emit(what, value, unit, at=at, side="model")


# -- the inputs that are measured ---------------------------------------------------------------


async def reported(bench: Bench, blocks: int) -> Reported:
    """Let a NameNode take a full report of so many blocks, and heartbeats; return what it used."""
    cluster = await bench.cluster(1, fresh=True)
    namenode, folder = cluster.namenode, bench.folder / f"model-{blocks}"
    folder.mkdir()
    volume = open_volume(OsDisk(), folder / "volume", NODE, boot="benchmark", sync_threads=1)
    empty_bytes = resident_bytes(namenode.pid or 0)
    namenode.kill()
    held = await fill(namenode.volumes[0], namenode.address, volume.storage, blocks)
    await asyncio.to_thread(namenode.start, LOADED_WITHIN_S)
    await asyncio.to_thread(cluster.wait_registered)
    filled_bytes = resident_bytes(namenode.pid or 0)
    async with RpcClient() as client:
        reporter = Reporter(NODE, [namenode.address], Many(volume, held), client, DataNodeConfig())
        before_s = processor_s(namenode.pid)
        reporter.start("127.0.0.1:9")  # nobody answers questions there
        await Watch(namenode.address, client).until(lambda node: node.blocks == len(held))
        report_s = processor_s(namenode.pid) - before_s
        reported_bytes = resident_bytes(namenode.pid or 0)
        await reporter.close()
        beats = bench.size(MEASURED_HEARTBEATS, 20)
        beats_s = await _heartbeats(namenode.address, namenode.pid, client, beats)
    volume.close()
    return Reported(
        count=len(held),
        report_s=report_s,
        blocks_bytes=max(0, filled_bytes - empty_bytes),
        replicas_bytes=max(0, reported_bytes - filled_bytes),
        heartbeat_us=beats_s / beats * 1e6,
    )


async def _heartbeats(address: str, pid: int | None, client: RpcClient, count: int) -> float:
    """Return the seconds of the NameNode's processor for so many of one DataNode."""
    storages = (StorageReport(StorageId("beats"), 1 << 40, 1 << 40, 0),)
    register = Register("beats", "127.0.0.1:9", "1", storages)
    await client.call(address, REGISTER.name, register, REGISTER.answer, 5.0)
    before_s = processor_s(pid)
    beat = Heartbeat("beats", "1", storages, 0)
    for _ in range(count):
        await client.call(address, HEARTBEAT.name, beat, HEARTBEAT.answer, 5.0)
    return processor_s(pid) - before_s
