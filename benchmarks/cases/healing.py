"""How fast do a dead node's blocks come back, and what does that cost a writer meanwhile?

Six DataNodes run on this machine with default settings, except that the times after which a
DataNode is dead and its replicas are missed are short. All of them share the machine's cores and
its disk, which DataNodes on machines of their own do not. Three times a DataNode is killed for
good, and every block that it held gets a third replica again on another one:

1. large blocks: MiB/s, beside the smaller one of the bare-socket copy (`limit.py`: one sender, one
   receiver, CRC32C, `pwrite`) and of what the DataNodes that are left may receive together
   (`copy_bandwidth` of each); and beside what the model of large clusters says of this one;
2. small blocks: blocks/s, and processor time of the NameNode for each;
3. large blocks again, while a writer writes: its loss against the same writer on the same DataNodes
   once nothing is copied any more.

The case `healing-growth` does the first with four, six and eight DataNodes, and shows it beside
what the model of large clusters says of as many.

The time counts from the first block that is whole again to the last.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, replace
from typing import Final

from benchmarks.cases.scale_model import REPLICATION, Healing, Scale
from benchmarks.host import processor_s
from benchmarks.limit import measure_write_limit
from benchmarks.suite import LEADER, Bench, case
from paxosblock.base.units import GIB, KIB, MIB
from paxosblock.client import AsyncClient
from paxosblock.client.reading.locations import BlockLocation
from paxosblock.config import ClientConfig, DataNodeConfig, NameNodeConfig
from paxosblock.local.cluster import LocalCluster
from paxosblock.local.node_process import Node
from paxosblock.protocol.types import BlockId

DATANODES: Final = 6
MODELLED: Final = (4, 6, 8)
BLOCK_BYTES: Final = 8 * MIB
SMALL_BYTES: Final = 4 * KIB
CHUNK_BYTES: Final = 512 * KIB
TIMES: Final = {
    "datanode_stale_after": "1.5s",
    "datanode_dead_after": "3s",
    "replicate_after": "1s",
    "safe_mode_extension": "0s",
}
LOOK_EVERY_S: Final = 0.1
HEALED_WITHIN_S: Final = 90.0


@dataclass(frozen=True, slots=True)
class Healed:
    """The blocks that came back, the bytes of one replica of each, and the seconds it took from the
    last look that found none to the one that found all; processor seconds of the NameNode
    meanwhile."""

    blocks: int
    size_bytes: int
    seconds: float
    namenode_s: float

    @property
    def mib_per_s(self) -> float:
        """Return MiB of replicas made in a second."""
        return self.size_bytes / MIB / self.seconds

    @property
    def blocks_per_s(self) -> float:
        """Return replicas made in a second."""
        return self.blocks / self.seconds


async def write_blocks(fs: AsyncClient, path: str, count: int, block_bytes: int) -> None:
    """Write a file of that many blocks."""
    piece = bytes(min(block_bytes, CHUNK_BYTES))
    async with fs.create(path, block_size=block_bytes, chunk_size=len(piece)) as out:
        for _ in range(count * block_bytes // len(piece)):
            await out.write(piece)


async def heal(fs: AsyncClient, path: str, namenode: Node, dead: Node) -> Healed:
    """Wait until all blocks of a file that `dead` held have their replicas again.

    Raises:
        TimeoutError: they have not after `HEALED_WITHIN_S`.
    """
    lost = {at.block for at in await fs.locations(path) if dead.address in at.hosts}
    dead.kill()
    begun_s, used_s = time.perf_counter(), processor_s(namenode.pid)
    async with asyncio.timeout(HEALED_WITHIN_S):
        while len(back := _whole(await fs.locations(path), lost, dead)) < len(lost):
            if not back:
                begun_s, used_s = time.perf_counter(), processor_s(namenode.pid)
            await asyncio.sleep(LOOK_EVERY_S)
    used_s = processor_s(namenode.pid) - used_s
    size_bytes = sum(at.size for at in back)
    return Healed(len(back), size_bytes, time.perf_counter() - begun_s, used_s)


def _whole(places: list[BlockLocation], lost: set[BlockId], dead: Node) -> list[BlockLocation]:
    return [
        at
        for at in places
        if at.block in lost and dead.address not in at.hosts and len(at.hosts) >= REPLICATION
    ]


class Writer:
    """Writes one file after the other, as fast as it can, and counts."""

    def __init__(self, fs: AsyncClient) -> None:
        self._fs = fs
        self.acknowledged_bytes = 0

    async def run(self) -> None:
        """Write for ever."""
        piece, number = bytes(CHUNK_BYTES), 0
        while True:
            path = f"/foreground-{number % 2}"
            async with await self._fs.create(path, overwrite=True, block_size=BLOCK_BYTES) as out:
                for _ in range(8 * BLOCK_BYTES // len(piece)):
                    await out.write(piece)
                    self.acknowledged_bytes += len(piece)
            number += 1


async def rate(writer: Writer, seconds: float) -> float:
    """Return MiB/s of the writer over that many seconds."""
    before, begun = writer.acknowledged_bytes, time.perf_counter()
    await asyncio.sleep(seconds)
    written = writer.acknowledged_bytes - before
    return written / MIB / (time.perf_counter() - begun)


async def rate_while_healing(
    writer: Writer, fs: AsyncClient, path: str, namenode: Node, dead: Node
) -> float:
    """Return MiB/s of the writer while the blocks of `dead` come back."""
    healing = asyncio.create_task(heal(fs, path, namenode, dead))
    samples: list[tuple[float, int]] = []
    while not healing.done():
        samples.append((time.perf_counter(), writer.acknowledged_bytes))
        await asyncio.wait([healing], timeout=LOOK_EVERY_S)
    healed = await healing
    end_s, end_bytes = time.perf_counter(), writer.acknowledged_bytes
    sampled = (each for each in samples if each[0] >= end_s - healed.seconds)
    begin_s, begin_bytes = next(sampled, samples[-1])
    return (end_bytes - begin_bytes) / MIB / (end_s - begin_s)


@case("healing", usual=False, room_bytes=16 * GIB)
async def healing(bench: Bench) -> None:
    """How fast do the blocks of a lost DataNode come back, and what does a writer lose by it?"""
    for number in bench.rounds:
        cluster = await bench.cluster(DATANODES, settings={"namenode": TIMES}, fresh=True)
        await _three_lost(bench, cluster, number)


async def _three_lost(bench: Bench, cluster: LocalCluster, number: int) -> None:
    """Kill three DataNodes, one after the other, and measure."""
    large, namenode = bench.size(96, 6), cluster.namenode
    *_, third, second, first = cluster.datanodes
    config = ClientConfig(chunk_size=CHUNK_BYTES)
    async with AsyncClient(cluster.url, config) as fs, AsyncClient(cluster.url, config) as other:
        bare = await bench.bare(
            measure_write_limit, CHUNK_BYTES, 4, False, large * BLOCK_BYTES // 2, 1,
            folder=bench.folder,
        )  # fmt: skip
        await write_blocks(fs, "/large", large, BLOCK_BYTES)
        healed = await heal(fs, "/large", namenode, first)
        bound = DataNodeConfig().copy_bandwidth_bytes_per_s / MIB * (DATANODES - 1)
        what = "large blocks come back"
        bench.emit(what, healed.mib_per_s, "MiB/s", number, limit=min(bare.mib_per_s, bound))
        await fs.delete("/large")
        await write_blocks(fs, "/small", bench.size(800, 12), SMALL_BYTES)
        small = await heal(fs, "/small", namenode, second)
        used = {LEADER: small.namenode_s / small.blocks}
        bench.emit("small blocks come back", small.blocks_per_s, "/s", number, processor_s=used,
                   per="block")  # fmt: skip
        await fs.delete("/small")
        await write_blocks(fs, "/large", large, BLOCK_BYTES)
        writer = Writer(other)
        writing = asyncio.create_task(writer.run())
        while_healing = await rate_while_healing(writer, fs, "/large", namenode, third)
        alone = await rate(writer, bench.seconds)
        writing.cancel()
        await asyncio.wait([writing])
    what = "a writer while blocks come back, beside the same one afterwards"
    bench.emit(what, while_healing, "MiB/s", number, limit=alone, goal=0.8 * alone)


@case("healing-growth", usual=False, room_bytes=16 * GIB)
async def growth(bench: Bench) -> None:
    """Does the model say how fast the blocks of a lost DataNode come back, by their number?"""
    config = ClientConfig(chunk_size=CHUNK_BYTES)
    for number in bench.rounds:
        for count in bench.some(MODELLED):
            cluster = await bench.cluster(count, settings={"namenode": TIMES}, fresh=True)
            async with AsyncClient(cluster.url, config) as fs:
                await write_blocks(fs, "/large", bench.size(24 * count, 6), BLOCK_BYTES)
                await bench.quiet()
                healed = await heal(fs, "/large", cluster.namenode, cluster.datanodes[-1])
            what, at = "blocks of a lost one come back", (float(count), "DataNodes")
            bench.emit(what, healed.mib_per_s, "MiB/s", number, at=at)
            modelled = modelled_mib_per_s(count, healed.blocks)
            bench.emit(what, modelled, "MiB/s", number, at=at, side="model")


def modelled_mib_per_s(datanodes: int, blocks: int) -> float:
    """Return what the model of large clusters says of so many blocks, lost with one DataNode."""
    namenode = replace(NameNodeConfig(), block_size=BLOCK_BYTES)
    scale = Scale(datanodes, blocks, namenode, DataNodeConfig())
    return blocks * BLOCK_BYTES / MIB / Healing(scale, 0.0, random.Random(1)).run()
