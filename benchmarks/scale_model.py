"""A model of clusters that no test has: how soon is a node's loss mended, and what do reports cost?

    python -m benchmarks.scale_model [--nodes 100 1000] [--blocks 100000]

No node runs here but one. Time jumps from event to event: a DataNode with its replicas is lost,
is dead after `datanode_dead_after`, is missed after `replicate_after`; then copies begin and end,
as many at a time as each DataNode may send and get, each at its share of `copy_bandwidth`, begun
no faster than a NameNode can that uses one processor. The blocks are spread at random.

The inputs are named in the output: the settings as they are shipped, and what one report, heartbeat
and copy costs a NameNode in processor time, and a block in memory. What is not given is measured
first, on a NameNode of this machine (`measured_costs`); a copy's cost is what `benchmarks.healing`
shows for small blocks, and without it copies cost nothing.

The model leaves out: racks, switches between them, disks slower than `copy_bandwidth`, foreground
work, and what else a NameNode does.
"""

from __future__ import annotations

import argparse
import heapq
import random
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks.reports import NODE, Many, Watch, fill
from benchmarks.stats import machine, processor_seconds, resident_mib, say
from paxosblock import LocalCluster, loop
from paxosblock.api.reports import HEARTBEAT, REGISTER, Heartbeat, Register, StorageReport
from paxosblock.config import DataNodeConfig, NameNodeConfig
from paxosblock.datanode.reporter import Reporter
from paxosblock.datanode.volume import open_volume
from paxosblock.disk import OsDisk
from paxosblock.namenode.blocks.reports import REPORTED_PER_S
from paxosblock.net.rpc import RpcClient
from paxosblock.protocol.types import StorageId
from paxosblock.units import GIB, MIB

REPLICATION: Final = 3
LOOK_AHEAD: Final = 16
"""Waiting blocks that are looked at for one that may begin, as in a queue that passes over those
whose holders have enough to do."""
CHOICES: Final = 3
"""Random targets of which the least busy gets the copy."""
MEASURED_BLOCKS: Final = 50_000
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
        return self.namenode.block_size_bytes / share

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


def show(scale: Scale, costs: Costs, seed: int) -> None:
    """Print what the model says of one cluster."""
    healing_s = Healing(scale, costs.copy_us, random.Random(seed)).run()
    size_bytes = scale.blocks * scale.namenode.block_size_bytes
    replicas = scale.nodes * scale.blocks
    used = costs.copy_us * scale.blocks / 1e6 / healing_s
    beats = scale.nodes / scale.namenode.heartbeat_interval_s * costs.heartbeat_us / 1e6
    reports = replicas * costs.report_us / 1e6
    report_every_s = max(scale.datanode.block_report_interval_s, replicas / REPORTED_PER_S)
    blocks = replicas / REPLICATION
    memory_bytes = blocks * costs.block_bytes + replicas * costs.replica_bytes
    say(f"{scale.nodes} DataNodes of {scale.blocks} blocks, {replicas / 1e6:.0f} million replicas:")
    say(
        f"  one is lost: whole again after {scale.noticed_s + healing_s:.0f} s, of which"
        f" {scale.noticed_s:.0f} s until the first copy;"
        f" {size_bytes / MIB / healing_s:.0f} MiB/s, {scale.blocks / healing_s:.0f} blocks/s;"
        f" the NameNode uses {used:.1%} of a processor for it"
    )
    say(
        f"  heartbeats: {beats:.1%} of a processor; full reports every"
        f" {report_every_s:.0f} s: {reports / report_every_s:.1%}; all reports after a start or"
        f" fail-over: {reports:.0f} s; memory: {memory_bytes / GIB:.1f} GiB"
    )


# -- the inputs that are measured ---------------------------------------------------------------


async def measured_costs(cluster: LocalCluster, folder: Path, copy_us: float) -> Costs:
    """Let a NameNode take a full report and heartbeats, and look at what that costs it."""
    namenode = cluster.namenode
    volume = open_volume(OsDisk(), folder / "volume", NODE, boot="benchmark", sync_threads=1)
    empty_mib = resident_mib(namenode.pid or 0)
    namenode.kill()
    held = await fill(namenode.volumes[0], namenode.address, volume.storage, MEASURED_BLOCKS)
    namenode.start()
    cluster.wait_registered()
    filled_mib = resident_mib(namenode.pid or 0)
    async with RpcClient() as client:
        reporter = Reporter(NODE, [namenode.address], Many(volume, held), client, DataNodeConfig())
        before_s = processor_seconds(namenode.pid)
        reporter.start("127.0.0.1:9")  # nobody answers questions there
        await Watch(namenode.address, client).until(lambda node: node.blocks == len(held))
        report_s = processor_seconds(namenode.pid) - before_s
        reported_mib = resident_mib(namenode.pid or 0)
        await reporter.close()
        beats_s = await _heartbeats(namenode.address, namenode.pid, client)
    volume.close()
    return Costs(
        report_us=report_s / len(held) * 1e6,
        heartbeat_us=beats_s / MEASURED_HEARTBEATS * 1e6,
        copy_us=copy_us,
        block_bytes=(filled_mib - empty_mib) * MIB / len(held),
        replica_bytes=(reported_mib - filled_mib) * MIB / len(held),
    )


async def _heartbeats(address: str, pid: int | None, client: RpcClient) -> float:
    """Seconds of the NameNode's processor for `MEASURED_HEARTBEATS` of one DataNode."""
    storages = (StorageReport(StorageId("beats"), 1 << 40, 1 << 40, 0),)
    register = Register("beats", "127.0.0.1:9", "1", storages)
    await client.call(address, REGISTER.name, register, REGISTER.answer, 5.0)
    before_s = processor_seconds(pid)
    beat = Heartbeat("beats", "1", storages, 0)
    for _ in range(MEASURED_HEARTBEATS):
        await client.call(address, HEARTBEAT.name, beat, HEARTBEAT.answer, 5.0)
    return processor_seconds(pid) - before_s


def _costs(options: argparse.Namespace) -> Costs:
    given = (options.report_us, options.heartbeat_us, options.block_bytes, options.replica_bytes)
    if None not in given:
        report_us, heartbeat_us, block_bytes, replica_bytes = given
        return Costs(report_us, heartbeat_us, options.copy_us, block_bytes, replica_bytes)
    if any(each is not None for each in given):
        raise SystemExit(
            "give all of --report-us, --heartbeat-us, --block-bytes and --replica-bytes, or none"
        )
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(datanodes=1, path=Path(folder) / "cluster") as cluster,
    ):
        return loop.run(measured_costs(cluster, Path(folder), options.copy_us))


def main() -> None:
    """Measure what is not given, run the model and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--blocks", type=int, default=100_000, help="replicas of each DataNode")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report-us", type=float, help="processor of a NameNode for a replica")
    parser.add_argument("--heartbeat-us", type=float, help="the same for a heartbeat")
    parser.add_argument("--copy-us", type=float, default=0.0, help="the same for a copy")
    parser.add_argument("--block-bytes", type=float, help="memory of a NameNode for a block")
    parser.add_argument("--replica-bytes", type=float, help="the same for a replica of it")
    options = parser.parse_args()
    say(machine())
    costs, namenode, datanode = _costs(options), NameNodeConfig(), DataNodeConfig()
    say(
        f"inputs: {costs.report_us:.1f} us for a reported replica, {costs.heartbeat_us:.0f} us for"
        f" a heartbeat, {costs.copy_us:.0f} us for a copy, {costs.block_bytes:.0f} bytes for a"
        f" block and {costs.replica_bytes:.0f} for a replica of it;"
        f" blocks of {namenode.block_size_bytes // MIB} MiB, {REPLICATION} replicas,"
        f" copy_bandwidth {datanode.copy_bandwidth_bytes_per_s // MIB} MiB/s, "
        f"{namenode.copies_per_source} copies sent and {namenode.copies_per_target} got at a time"
    )
    for nodes in options.nodes:
        show(Scale(nodes, options.blocks, namenode, datanode), costs, options.seed)


if __name__ == "__main__":
    main()
