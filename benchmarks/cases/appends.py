"""What does a log cost that grows line by line, each an append, and how fast is it read back?"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from benchmarks.cases.block_steps import Watch
from benchmarks.host import resident_bytes
from benchmarks.stats import median
from benchmarks.suite import Bench, case
from benchmarks.work import read_file, write_file
from paxosblock.base.units import GIB, KIB, MIB
from paxosblock.client import AsyncClient
from paxosblock.config import ClientConfig
from paxosblock.local.cluster import LocalCluster

LINE: Final = KIB
CHUNKS_UNDER_WAY: Final = 64
"""The window of the writer of small chunks, so that the file is there before long."""
READ_AT_LEAST: Final = 16 * MIB
"""A file that is shorter is read several times in a row, so that there is something to measure."""
APPENDS: Final = 1000


@case("appends", room_bytes=GIB)
async def appends(bench: Bench) -> None:
    """What does a file cost that grows by 1 KiB with each append, hflush and close?

    Of each also the set-up alone, from the call of `append` to the first chunk sent. `--max 100000`
    is a line a second for a day.
    """
    cluster, count = await bench.cluster(fresh=True), bench.sizes((APPENDS,), APPENDS, 5)[0]
    count = max(count, bench.options.most or 0)
    line, times, set_ups = os.urandom(LINE), list[float](), list[float]()
    async with AsyncClient(cluster.url) as fs:
        async with fs.create("/log"):
            pass
        watch = Watch()
        try:
            async with bench.measured(cluster) as spent:
                for _ in range(count):
                    begun = time.perf_counter()
                    async with fs.append("/log") as out:
                        await out.write(line)
                        await out.hflush()
                    times.append(time.perf_counter() - begun)
                    set_ups.append(watch.last_sent_s - begun)
        finally:
            watch.stop()
        what = "append, hflush, close of 1 KiB"
        bench.emit_times(what, times, processor_s=spent.per(count), appends=count)
        bench.emit_times("its set-up, to the first chunk sent", set_ups, goals_ms={"p50": 5})
        tenth = max(1, count // 10)
        for name, some in (("first", times[:tenth]), ("last", times[-tenth:])):
            bench.emit(f"{what}, the {name} tenth", median(some) * 1e3, "ms p50")
        bench.emit("blocks of the file", len(await fs.locations("/log")), "blocks")
        kept = sum(path.stat().st_size for path in _files_of(cluster, "namenode"))
        bench.emit("the NameNode's folder", kept / KIB, "KiB")
        bench.emit("the NameNode's memory", resident_bytes(cluster.namenode.pid or 0) / MIB, "MiB")
        replicas = sum(1 for _ in _files_of(cluster, "datanode"))
        bench.emit("files at three DataNodes", replicas, "files")
        await write_file(fs, "/at-once", count * LINE, "memory")
        await _compare(bench, fs, "/log", "/at-once", count * LINE)


@case("small-chunks", room_bytes=GIB)
async def small_chunks(bench: Bench) -> None:
    """How fast is a file in chunks of 1 KiB read, beside one that was written at once?"""
    cluster, size = await bench.cluster(), bench.size(64 * MIB, MIB)
    small = ClientConfig(chunk_size=LINE, window=CHUNKS_UNDER_WAY)
    async with AsyncClient(cluster.url, config=small) as fs:
        await write_file(fs, "/small", size, "memory")
    async with AsyncClient(cluster.url) as fs:
        await write_file(fs, "/large", size, "memory")
        await _compare(bench, fs, "/small", "/large", size)
        await fs.delete("/small")
        await fs.delete("/large")


async def _compare(bench: Bench, fs: AsyncClient, path: str, other: str, size: int) -> None:
    """Emit how fast `path` is read; the limit is a file that was written at once."""
    repeats = bench.size(max(1, READ_AT_LEAST // size), 1)
    for number in bench.rounds:
        ours, bare = [
            median([await read_file(fs, each) for _ in range(repeats)]) for each in (path, other)
        ]
        bench.emit(f"read of {path[1:]}, beside one written at once", ours, "MiB/s", number,
                   limit=bare)  # fmt: skip


def _files_of(cluster: LocalCluster, role: str) -> Iterator[Path]:
    """Yield the files in the folders of all nodes of a role; of DataNodes, those of replicas."""
    for folder in cluster.path.glob(f"{role}*"):
        for path in folder.rglob("*" if role == "namenode" else "blk_*"):
            if path.is_file():
                yield path
