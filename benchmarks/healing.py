"""How fast do a dead node's blocks come back, and what does that cost who writes meanwhile?

    python -m benchmarks.healing [--mib 768] [--small 800] [--seconds 6] [--bandwidth 64MiB/s]
                                 [--folder DIR] [--json]

Six DataNodes on this machine, default settings but for the times after which a DataNode is dead and
its replicas are missed, which are short. `--bandwidth` is `copy_bandwidth` of each: all of them
share the machine's cores and its disk, which DataNodes on machines of their own do not. Three
times a DataNode is killed for good, and every block it held gets a third replica again on another
one:

1. large blocks: MiB/s, beside the bare-socket copy (`limit.py`: one sender, one receiver, CRC32C,
   `pwrite`), and beside its bound: what the DataNodes that are left may receive together
   (`copy_bandwidth` of each);
2. small blocks: blocks/s, and processor time of the NameNode for each;
3. large blocks again, while a writer writes: what it loses against the same writer on the same
   DataNodes once nothing is copied any more.

Counted is from the first block that is whole again to the last.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from benchmarks.stats import machine, processor_seconds, say
from paxosblock import AsyncClient, LocalCluster, loop
from paxosblock.bench.limit import measure_write_limit
from paxosblock.client.locations import BlockLocation
from paxosblock.config import ClientConfig, DataNodeConfig
from paxosblock.local.node_process import Node
from paxosblock.protocol.types import BlockId
from paxosblock.units import KIB, MIB, parse_rate

DATANODES: Final = 6
REPLICATION: Final = 3
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
    first to the last; processor seconds of the NameNode meanwhile."""

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

    @property
    def namenode_us(self) -> float:
        """Return processor microseconds of the NameNode for each."""
        return self.namenode_s / self.blocks * 1e6


@dataclass(frozen=True, slots=True)
class Figures:
    """All that is measured, in MiB/s and so on as it is named."""

    healing_mib_per_s: float
    bare_copy_mib_per_s: float
    bound_mib_per_s: float
    share_of_limit: float
    small_blocks_per_s: float
    namenode_us_per_copy: float
    writer_mib_per_s: float
    writer_while_healing_mib_per_s: float
    writer_loses: float


async def write_blocks(fs: AsyncClient, path: str, count: int, block_bytes: int) -> None:
    """Write a file of so many blocks."""
    piece = bytes(min(block_bytes, CHUNK_BYTES))
    async with await fs.create(path, block_size=block_bytes, chunk_size=len(piece)) as out:
        for _ in range(count * block_bytes // len(piece)):
            await out.write(piece)


async def heal(fs: AsyncClient, path: str, namenode: Node, dead: Node) -> Healed:
    """Wait until all blocks of a file that `dead` held have their replicas again.

    Raises:
        TimeoutError: they have not after `HEALED_WITHIN_S`.
    """
    lost = {at.block for at in await fs.locations(path) if dead.address in at.hosts}
    dead.kill()
    first_s = used_s = 0.0
    before = 0
    async with asyncio.timeout(HEALED_WITHIN_S):
        while True:
            now_s, back = time.perf_counter(), _whole(await fs.locations(path), lost, dead)
            if back and not first_s:
                first_s, used_s = now_s, processor_seconds(namenode.pid)
                before = len(back)
            if len(back) == len(lost):
                break
            await asyncio.sleep(LOOK_EVERY_S)
    used_s = processor_seconds(namenode.pid) - used_s
    size_bytes = sum(at.length for at in back[before:])
    return Healed(len(back) - before, size_bytes, now_s - first_s, used_s)


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
    """Return MiB/s of the writer over so many seconds."""
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
    begin_s, begin_bytes = next(each for each in samples if each[0] >= end_s - healed.seconds)
    return (end_bytes - begin_bytes) / MIB / (end_s - begin_s)


async def run(cluster: LocalCluster, options: argparse.Namespace) -> Figures:
    """Kill three DataNodes, one after the other, and look."""
    large, namenode = options.mib * MIB // BLOCK_BYTES, cluster.namenode
    *_, third, second, first = cluster.datanodes
    config = ClientConfig(chunk_size_bytes=CHUNK_BYTES)
    async with AsyncClient(cluster.url, config) as fs, AsyncClient(cluster.url, config) as other:
        bare = await asyncio.to_thread(
            measure_write_limit, CHUNK_BYTES, 4, False, options.mib * MIB // 2, 1,
            folder=options.folder,
        )  # fmt: skip
        await write_blocks(fs, "/large", large, BLOCK_BYTES)
        healed = await heal(fs, "/large", namenode, first)
        bound = options.bandwidth / MIB * (DATANODES - 1)
        limit = min(bare.mib_per_s, bound)
        say(
            f"large blocks  {healed.mib_per_s:6.1f} MiB/s  bare-socket copy"
            f" {bare.mib_per_s:6.1f} MiB/s, bound {bound:.0f} MiB/s: {healed.mib_per_s / limit:.2f}"
            f"   ({healed.blocks} blocks of {BLOCK_BYTES // MIB} MiB in {healed.seconds:.1f} s)"
        )
        await fs.delete("/large")
        await write_blocks(fs, "/small", options.small, SMALL_BYTES)
        small = await heal(fs, "/small", namenode, second)
        say(
            f"small blocks  {small.blocks_per_s:6.1f} blocks/s, {small.namenode_us:.0f} us of the"
            f" NameNode's processor for each   ({small.blocks} blocks in {small.seconds:.1f} s)"
        )
        await fs.delete("/small")
        await write_blocks(fs, "/large", large, BLOCK_BYTES)
        writer = Writer(other)
        writing = asyncio.create_task(writer.run())
        while_healing = await rate_while_healing(writer, fs, "/large", namenode, third)
        alone = await rate(writer, options.seconds)
        writing.cancel()
        await asyncio.wait([writing])
    loses = 1 - while_healing / alone
    say(
        f"a writer      {while_healing:6.1f} MiB/s while blocks come back, {alone:6.1f} MiB/s"
        f" after: it loses {loses:.0%}"
    )
    return Figures(
        healed.mib_per_s, bare.mib_per_s, bound, healed.mib_per_s / limit, small.blocks_per_s,
        small.namenode_us, alone, while_healing, loses,
    )  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mib", type=int, default=768, help="user bytes in large blocks")
    parser.add_argument("--small", type=int, default=800, help="how many small blocks")
    parser.add_argument("--seconds", type=float, default=6.0, help="of the writer alone")
    parser.add_argument(
        "--bandwidth",
        type=parse_rate,
        default=DataNodeConfig().copy_bandwidth_bytes_per_s,
        help="copy_bandwidth of each DataNode, such as 64MiB/s",
    )
    parser.add_argument("--folder", type=Path, help="where; default: a temporary one")
    parser.add_argument("--json", action="store_true", help="also one line for machines")
    options = parser.parse_args()
    say(machine())
    settings = {"namenode": TIMES, "datanode": {"copy_bandwidth": f"{options.bandwidth}B/s"}}
    with (
        tempfile.TemporaryDirectory(dir=options.folder) as folder,
        LocalCluster(DATANODES, path=Path(folder) / "cluster", settings=settings) as cluster,
    ):
        figures = loop.run(run(cluster, options))
    if options.json:
        say(json.dumps(asdict(figures)))


if __name__ == "__main__":
    main()
