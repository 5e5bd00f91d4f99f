"""How fast are files of other shapes: small ones, and those of other blocks and replicas?"""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from benchmarks import limit
from benchmarks.suite import Bench, case
from benchmarks.work import AS_SHIPPED, DURABILITIES, SHIPPED, write_file
from paxosblock.base.units import GIB, KIB, MIB
from paxosblock.client import AsyncClient

BLOCK_MIB: Final = (1, 2, 4, 8, 16, 32, 64, 128)
MOST_REPLICAS: Final = 5
SMALL_BYTES: Final = 4 * KIB
TASKS: Final = 16


@case("block-size", room_bytes=4 * GIB)
async def block_size(bench: Bench) -> None:
    """How fast are files written, by the size of their blocks?"""
    cluster, total = await bench.cluster(), bench.size(256 * MIB, 2 * MIB)
    facts = {**AS_SHIPPED, "durability": "memory"}
    async with AsyncClient(cluster.url) as fs:
        for number in bench.rounds:
            bare = await bench.bare(
                limit.measure_write_limit, SHIPPED.chunk_size, SHIPPED.window, False, total,
                folder=bench.folder,
            )  # fmt: skip
            for mib in bench.some(BLOCK_MIB):
                async with bench.measured(cluster) as spent:
                    await write_file(fs, "/shape", total, "memory", block_size=mib * MIB)
                bench.emit("write", total / MIB / spent.elapsed_s, "MiB/s", number,
                           at=(float(mib), "MiB in a block"), limit=bare.mib_per_s,
                           processor_s=spent.per(total / GIB), per="GiB", **facts)  # fmt: skip
        await fs.delete("/shape")


@case("replicas", room_bytes=8 * GIB)
async def replicas(bench: Bench) -> None:
    """How fast are files written, by the number of replicas, at both durabilities?"""
    cluster = await bench.cluster(bench.size(MOST_REPLICAS, 3))
    total = bench.size(256 * MIB, 2 * MIB)
    async with AsyncClient(cluster.url) as fs:
        for number in bench.rounds:
            for count in bench.some(range(1, MOST_REPLICAS + 1)):
                for durability in bench.some(DURABILITIES):
                    bare = await bench.bare(
                        limit.measure_write_limit, SHIPPED.chunk_size, SHIPPED.window,
                        durability == "disk", total, count, folder=bench.folder,
                    )  # fmt: skip
                    async with bench.measured(cluster) as spent:
                        await write_file(fs, "/shape", total, durability, replication=count)
                    bench.emit(f"write, durability {durability}", total / MIB / spent.elapsed_s,
                               "MiB/s", number, at=(float(count), "replicas"),
                               limit=bare.mib_per_s, processor_s=spent.per(total / GIB), per="GiB",
                               **{**AS_SHIPPED, "replicas": count})  # fmt: skip
        await fs.delete("/shape")


@case("small-files")
async def small_files(bench: Bench) -> None:
    """How many files of 4 KiB are written in a second, by 16 tasks, and by `put_many`?"""
    cluster = await bench.cluster()
    async with AsyncClient(cluster.url) as fs:
        await _write_small(fs, "/small/warm", "memory", bench.size(100, 1))
        for durability in DURABILITIES:
            for number in bench.rounds:
                folder = f"/small/{durability}-{number}"
                await _put_small(bench, fs, f"{folder}-together", durability, number)
                async with bench.measured(cluster) as spent:
                    times = await _write_small(fs, folder, durability, bench.size(1000, 4))
                what = f"files of 4 KiB, {TASKS} tasks, durability {durability}"
                facts: dict[str, Any] = {"clients": TASKS, "replicas": 3, "durability": durability}
                used = spent.per(len(times))
                bench.emit(what, len(times) / spent.elapsed_s, "/s", number, processor_s=used,
                           per="file", **facts)  # fmt: skip
                bench.emit_times(what, times, number, **facts)
        await fs.delete("/small", recursive=True)


async def _put_small(
    bench: Bench, fs: AsyncClient, folder: str, durability: str, number: int
) -> None:
    """Measure as many files that one task writes with `put_many`."""
    piece, count = os.urandom(SMALL_BYTES), bench.size(1000, 4)
    async with bench.measured(await bench.cluster()) as spent:
        await fs.put_many(((f"{folder}/{each}", piece) for each in range(count)),
                          durability=durability)  # fmt: skip
    bench.emit(f"files of 4 KiB, put_many, durability {durability}", count / spent.elapsed_s, "/s",
               number, processor_s=spent.per(count), per="file", clients=1, replicas=3,
               durability=durability)  # fmt: skip


async def _write_small(fs: AsyncClient, folder: str, durability: str, count: int) -> list[float]:
    """Write that many files side by side; return the seconds of each."""
    numbers, times, piece = iter(range(count)), list[float](), os.urandom(SMALL_BYTES)

    async def task() -> None:
        for number in numbers:
            begun = time.perf_counter()
            async with fs.create(f"{folder}/{number}", durability=durability) as out:
                await out.write(piece)
            times.append(time.perf_counter() - begun)

    await asyncio.gather(*(task() for _ in range(TASKS)))
    return times


@case("put-folder", usual=False, room_bytes=4 * GIB)
async def put_folder(bench: Bench) -> None:
    """How long does `fs put` of a folder of 10,000 files of 4 KiB take, beside `cp -r`?

    Eight files at once, at durability `disk`; the copy by `cp` counts until it is synced. `--max`
    makes it fewer files.
    """
    cluster, (count,) = await bench.cluster(), bench.sizes((10_000,), 10_000, 8)
    with tempfile.TemporaryDirectory(dir=bench.folder) as name:
        source, piece = Path(name, "source"), os.urandom(SMALL_BYTES)
        source.mkdir()
        for each in range(count):
            (source / str(each)).write_bytes(piece)
        async with AsyncClient(cluster.url) as fs:
            for number in bench.rounds:
                async with bench.measured(cluster) as spent:
                    await fs.upload(source, f"/put-folder/{number}", durability="disk")
                bare_s = await bench.bare(_copied_s, source, Path(name, f"copy-{number}"))
                what = f"put of {count:,} files of 4 KiB, durability disk"
                bench.emit(what, count / spent.elapsed_s, "/s", number, limit=count / bare_s,
                           processor_s=spent.per(count), per="file", replicas=3)  # fmt: skip
            await fs.delete("/put-folder", recursive=True)


def _copied_s(source: Path, copy: Path) -> float:
    """Return the seconds in which `cp -r` copies a folder, until all of it is on the disk."""
    begun_s = time.perf_counter()
    subprocess.run(["cp", "-r", source, copy], check=True)
    subprocess.run(["sync", "-f", copy], check=True)
    return time.perf_counter() - begun_s
