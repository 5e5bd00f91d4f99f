"""How fast are files written, flushed, read and recovered, and what memory does it take?

    python -m benchmarks.files [--mib 1024] [--rounds 3] [--only write,hflush,read,recovery,memory]

A LocalCluster on loopback, the client in this process. The bare-socket limit of `benchmarks.limit`
is measured in the same run, in turns with ours: same chunk size, window, replicas and durability.
A ratio is ours / limit, of MiB/s or of round trips.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks import limit
from benchmarks.stats import latencies, machine, median, resident_mib, say
from paxosblock import AsyncClient, LocalCluster, loop
from paxosblock.api.files import GET_FILE, GetFile
from paxosblock.client.file_writer import AsyncFileWriter
from paxosblock.config import ClientConfig
from paxosblock.local.node_process import Node
from paxosblock.net import control
from paxosblock.units import KIB, MIB

FLUSHES = 2000
FLUSH_BYTES = 1024
RECOVERIES = 20
OPEN_BLOCKS = 1000


@dataclass(frozen=True, slots=True)
class Run:
    """One run's cluster, client and sizes."""

    cluster: LocalCluster
    folder: Path
    fs: AsyncClient
    config: ClientConfig
    total_bytes: int
    rounds: int


async def write_file(fs: AsyncClient, path: str, total: int, durability: str) -> float:
    """Write `total` bytes in pieces of 1 MiB; return MiB/s from create to the end of close."""
    piece = os.urandom(MIB)
    begun = time.perf_counter()
    async with await fs.create(path, durability=durability, overwrite=True) as out:
        for _ in range(total // MIB):
            await out.write(piece)
    return total / MIB / (time.perf_counter() - begun)


async def read_file(fs: AsyncClient, path: str) -> float:
    """Read a whole file sequentially; return MiB/s."""
    begun, count = time.perf_counter(), 0
    async with await fs.open(path) as reader:
        async for piece in reader:
            count += len(piece)
    return count / MIB / (time.perf_counter() - begun)


async def bench_write(run: Run) -> None:
    """Throughput of writing at both durabilities, against the limit at the same one."""
    for durability in ("memory", "disk"):
        ours, bare = [], []
        await write_file(run.fs, "/bench/warm", 256 * MIB, durability)
        for _ in range(run.rounds):
            bare.append(
                await asyncio.to_thread(
                    limit.measure_write_limit,
                    run.config.chunk_size_bytes,
                    run.config.window,
                    durability == "disk",
                    run.total_bytes,
                    folder=run.folder,
                )
            )
            ours.append(await write_file(run.fs, "/bench/write", run.total_bytes, durability))
        limits = [each.mib_per_s for each in bare]
        report_ratio(f"write, 3 replicas, durability {durability}", ours, limits)


async def bench_read(run: Run) -> None:
    """Throughput of reading a finalized file, against a bare sendfile/recv loop."""
    await write_file(run.fs, "/bench/read", run.total_bytes, "memory")
    ours, bare = [], []
    await read_file(run.fs, "/bench/read")
    for _ in range(run.rounds):
        bare.append(
            await asyncio.to_thread(
                limit.measure_read_limit,
                run.config.chunk_size_bytes,
                run.total_bytes,
                folder=run.folder,
            )
        )
        ours.append(await read_file(run.fs, "/bench/read"))
    report_ratio("read of a finalized file", ours, [each.mib_per_s for each in bare])


def report_ratio(label: str, ours: list[float], bare: list[float]) -> None:
    """Medians and their ratio, as one line."""
    say(
        f"{label:<44} {median(ours):7.0f} MiB/s  limit {median(bare):7.0f} MiB/s  "
        f"ratio {median(ours) / median(bare):.2f}   (rounds: "
        + " ".join(f"{mine:.0f}/{theirs:.0f}" for mine, theirs in zip(ours, bare, strict=True))
        + ")"
    )


async def bench_hflush(run: Run) -> None:
    """Round trip of an hflush of 1 KiB, against the limit's round trip, in turns."""
    piece = os.urandom(FLUSH_BYTES)
    for durability in ("memory", "disk"):
        ours: list[float] = []
        bare: list[limit.WriteLimit] = []
        ratios = []
        for _ in range(run.rounds):
            bare.append(
                await asyncio.to_thread(
                    limit.measure_round_trip,
                    FLUSH_BYTES,
                    durability == "disk",
                    FLUSHES,
                    folder=run.folder,
                )
            )
            async with await run.fs.create(
                "/bench/flush", durability=durability, overwrite=True
            ) as out:
                times = await flush_times(out, piece, FLUSHES)
            ratios.append(median(times) * 1e6 / bare[-1].p50_us)
            ours += times
        say(latencies(f"hflush of 1 KiB, durability {durability}", ours))
        p50, p99, p999 = (
            median([getattr(each, name) for each in bare]) / 1e3
            for name in ("p50_us", "p99_us", "p999_us")
        )
        say(f"{'  limit':<44} p50 {p50:7.3f} ms  p99 {p99:7.3f} ms  p99.9 {p999:7.3f} ms")
        say(
            f"  ratio of the p50s {median(ratios):.2f}   (rounds: "
            + " ".join(f"{ratio:.2f}" for ratio in ratios)
            + ")"
        )


async def bench_recovery(run: Run) -> None:
    """Measure from SIGKILL of a DataNode in mid-write to the next acknowledged chunk.

    The writer flushes 1 KiB after 1 KiB; the gap is the longest time between two acknowledgements
    around the kill. It holds detection (by connection loss), recovery, a new block and the chunk.
    """
    gaps = []
    piece = os.urandom(FLUSH_BYTES)
    for number in range(RECOVERIES):
        path = f"/bench/recovery/{number}"
        async with await run.fs.create(path, durability="memory", replication=3) as out:
            await flush_times(out, piece, 50)
            victim = await asyncio.to_thread(victim_of, run, path)
            victim.kill()
            times = await flush_times(out, piece, 200)
            gaps.append(max(times))
        await asyncio.to_thread(victim.start)
    say(latencies("kill of a DataNode to the next acknowledged chunk", gaps))


def victim_of(run: Run, path: str) -> Node:
    """A DataNode that holds a replica of the file's last block."""
    last = control.NameNodes(run.cluster.addresses).call(GET_FILE, GetFile(path)).last_block
    assert last is not None, "the writer has flushed"
    members = {member.address for member in last.members}
    return next(node for node in run.cluster.datanodes if node.address in members)


async def flush_times(out: AsyncFileWriter, piece: bytes, count: int) -> list[float]:
    """Durations in seconds of `count` writes with an hflush each."""
    times = []
    for _ in range(count):
        begun = time.perf_counter()
        await out.write(piece)
        await out.hflush()
        times.append(time.perf_counter() - begun)
    return times


async def bench_memory(run: Run) -> None:
    """Resident memory of the client while it writes, of DataNodes with many blocks open."""
    say(f"client after everything above: {resident_mib():.0f} MiB resident")
    writers = []
    for number in range(OPEN_BLOCKS):
        out = await run.fs.create(f"/bench/open/{number}", durability="memory")
        await out.write(b"x" * FLUSH_BYTES)
        await out.hflush()
        writers.append(out)
    resident = [resident_mib(node.pid) for node in run.cluster.datanodes if node.pid is not None]
    for out in writers:
        await out.close()
    say(f"DataNodes with {OPEN_BLOCKS} blocks open: {max(resident):.0f} MiB resident at most")


BENCHMARKS: dict[str, Callable[[Run], Awaitable[None]]] = {
    "write": bench_write,
    "hflush": bench_hflush,
    "read": bench_read,
    "recovery": bench_recovery,
    "memory": bench_memory,
}


async def run_all(options: argparse.Namespace) -> None:
    """Start a cluster and run what was asked for."""
    config = ClientConfig(window=options.window, chunk_size_bytes=options.chunk_kib * KIB)
    with (
        tempfile.TemporaryDirectory(dir=options.folder) as folder,
        LocalCluster(datanodes=options.datanodes, path=Path(folder) / "cluster") as cluster,
    ):
        say(machine())
        say(
            f"{options.datanodes} DataNodes, chunk {options.chunk_kib} KiB, "
            f"window {options.window}, {options.mib} MiB per round, {options.rounds} rounds, "
            f"in {folder}"
        )
        async with AsyncClient(cluster.url, config=config) as fs:
            run = Run(cluster, Path(folder), fs, config, options.mib * MIB, options.rounds)
            for name in options.only.split(","):
                await BENCHMARKS[name](run)


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--chunk-kib", type=int, default=512)
    parser.add_argument("--window", type=int, default=4)
    parser.add_argument("--datanodes", type=int, default=3)
    parser.add_argument(
        "--folder",
        type=Path,
        help="where all nodes and the limit write; on a tmpfs the one disk they share is left out",
    )
    parser.add_argument("--only", default=",".join(BENCHMARKS))
    loop.run(run_all(parser.parse_args()))


if __name__ == "__main__":
    main()
