"""How fast are files written, flushed, read and recovered, and what memory does it take?

Settings are those that are shipped, and the limit has the same chunk size, window, replicas and
durability. Streams side by side share one client, as they share one sender of the limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks import limit
from benchmarks.host import resident_bytes
from benchmarks.stats import counted
from benchmarks.suite import Bench, case
from benchmarks.work import (
    AS_SHIPPED,
    DURABILITIES,
    SHIPPED,
    flush_times,
    read_file,
    victim_of,
    write_file,
)
from paxosblock.base.units import GIB, KIB, MIB
from paxosblock.client import AsyncClient
from paxosblock.local.cluster import LocalCluster

STREAMS: Final = (1, 4)
WRITERS: Final = (1, 20)
FLUSH_BYTES: Final = KIB
FLUSHED_WITHIN_A_SECOND: Final = 1000
FOLDER: Final = "/bench"


@case("write", room_bytes=12 * GIB)
async def write(bench: Bench) -> None:
    """How fast are files written, by one stream and by four, at both durabilities?"""
    cluster, total = await bench.cluster(), bench.size(GIB, 8 * MIB)
    async with AsyncClient(cluster.url) as fs:
        for durability in bench.some(DURABILITIES):
            await write_file(fs, f"{FOLDER}/warm", total // 4, durability)
            for number in bench.rounds:
                for streams in bench.some(STREAMS):
                    bare = await _bare(
                        bench, streams, _write_limit, total // streams, durability == "disk"
                    )
                    writers = [
                        write_file(fs, f"{FOLDER}/write-{each}", total // streams, durability)
                        for each in range(streams)
                    ]
                    async with bench.measured(cluster) as spent:
                        await asyncio.gather(*writers)
                    bench.emit(
                        f"write, {counted(streams, 'stream')}, durability {durability}",
                        total / MIB / spent.elapsed_s,
                        "MiB/s",
                        number,
                        limit=bare,
                        processor_s=spent.per(total / GIB),
                        per="GiB",
                        durability=durability,
                        **AS_SHIPPED,
                    )
        await fs.delete(FOLDER, recursive=True)


def _write_limit(total: int, sync: bool, folder: Path) -> float:
    """Return the MiB/s of a bare sender with three receivers."""
    return limit.measure_write_limit(
        SHIPPED.chunk_size, SHIPPED.window, sync, total, folder=folder
    ).mib_per_s


async def _bare(
    bench: Bench, streams: int, measure: Callable[..., float], *arguments: object
) -> float:
    """Return the MiB/s of that many bare streams together, each with processes of its own."""
    await bench.quiet()
    each = [asyncio.to_thread(measure, *arguments, folder=bench.folder) for _ in range(streams)]
    return sum(await asyncio.gather(*each))


@case("read", room_bytes=6 * GIB)
async def read(bench: Bench) -> None:
    """How fast is a finalized file read, by one stream and by four?"""
    cluster, total = await bench.cluster(), bench.size(GIB, 8 * MIB)
    async with AsyncClient(cluster.url) as fs:
        for streams in bench.some(STREAMS):
            for each in range(streams):
                path = f"{FOLDER}/read-{streams}-{each}"
                await write_file(fs, path, total // streams, "memory")
                await read_file(fs, path)
        for number in bench.rounds:
            for streams in bench.some(STREAMS):
                bare = await _bare(
                    bench, streams, limit.measure_read_limit, SHIPPED.chunk_size,
                    total // streams,
                )  # fmt: skip
                paths = [f"{FOLDER}/read-{streams}-{each}" for each in range(streams)]
                async with bench.measured(cluster) as spent:
                    await asyncio.gather(*(read_file(fs, path) for path in paths))
                bench.emit(
                    f"read, {counted(streams, 'stream')}",
                    total / MIB / spent.elapsed_s,
                    "MiB/s",
                    number,
                    limit=bare,
                    processor_s=spent.per(total / GIB),
                    per="GiB",
                    **AS_SHIPPED,
                )
        await fs.delete(FOLDER, recursive=True)


@case("hflush", room_bytes=GIB)
async def hflush(bench: Bench) -> None:
    """How long does an hflush of 1 KiB take, by one writer, and with twenty side by side?"""
    cluster = await bench.cluster()
    count = max(20, int(FLUSHED_WITHIN_A_SECOND * bench.seconds))
    async with AsyncClient(cluster.url) as fs:
        for durability in bench.some(DURABILITIES):
            for number in bench.rounds:
                bare = await bench.bare(
                    limit.measure_round_trip,
                    FLUSH_BYTES,
                    durability == "disk",
                    count,
                    folder=bench.folder,
                )
                for writers in WRITERS:
                    at = (durability, writers, number)
                    await _flushes(bench, cluster, fs, at, bare.times_s)
        await fs.delete(FOLDER, recursive=True)


async def _flushes(
    bench: Bench,
    cluster: LocalCluster,
    fs: AsyncClient,
    at: tuple[str, int, int],
    limit_s: list[float],
) -> None:
    """Let `writers` flush the same number of chunks together; the limit is that of one."""
    (durability, writers, number), piece = at, os.urandom(FLUSH_BYTES)
    count = len(limit_s) if writers == 1 else max(10, 3 * len(limit_s) // writers)
    async with contextlib.AsyncExitStack() as files:
        outs = [
            await files.enter_async_context(
                await fs.create(f"{FOLDER}/flush-{each}", durability=durability, overwrite=True)
            )
            for each in range(writers)
        ]
        async with bench.measured(cluster) as spent:
            times = await asyncio.gather(*(flush_times(out, piece, count) for out in outs))
    what = f"hflush of 1 KiB, {counted(writers, 'writer')}, durability {durability}"
    facts = {**AS_SHIPPED, "chunk_bytes": FLUSH_BYTES, "durability": durability}
    every = [each for some in times for each in some]
    bare = limit_s if writers == 1 else None
    bench.emit_times(what, every, number, limit_s=bare, **facts)
    bench.emit(
        what,
        len(every) / spent.elapsed_s,
        "/s",
        number,
        limit=len(limit_s) / sum(limit_s),
        processor_s=spent.per(len(every)),
        **facts,
    )


@case("kill", room_bytes=GIB)
async def kill(bench: Bench) -> None:
    """How long is it from SIGKILL of a DataNode in mid-write to the next acknowledged chunk?

    The writer flushes 1 KiB after 1 KiB; told is the longest time between two acknowledgements
    around the kill. It holds detection (by connection loss), recovery, a new block and the chunk.
    """
    cluster, piece = await bench.cluster(), os.urandom(FLUSH_BYTES)
    async with AsyncClient(cluster.url) as fs:
        for number in bench.rounds:
            gaps = []
            for each in range(bench.size(10, 1)):
                path = f"{FOLDER}/kill-{number}-{each}"
                async with fs.create(path, durability="memory") as out:
                    await flush_times(out, piece, 50)
                    victim = await asyncio.to_thread(victim_of, cluster, path)
                    victim.kill()
                    gaps.append(max(await flush_times(out, piece, 200)))
                await asyncio.to_thread(victim.start)
                await asyncio.to_thread(cluster.wait_registered)
            facts = {**AS_SHIPPED, "chunk_bytes": FLUSH_BYTES, "durability": "memory"}
            bench.emit_times(
                "DataNode killed to next chunk", gaps, number, goals_ms={"p50": 50}, **facts
            )
        await fs.delete(FOLDER, recursive=True)


@case("open-blocks", room_bytes=2 * GIB)
async def open_blocks(bench: Bench) -> None:
    """What memory has a DataNode with a thousand blocks open, and their client?"""
    cluster, count = await bench.cluster(fresh=True), bench.size(1000, 20)
    async with AsyncClient(cluster.url) as fs, contextlib.AsyncExitStack() as writers:
        for each in range(count):
            out = await writers.enter_async_context(
                await fs.create(f"{FOLDER}/open-{each}", durability="memory")
            )
            await out.write(bytes(FLUSH_BYTES))
            await out.hflush()
        most = max(resident_bytes(node.pid or 0) for node in cluster.datanodes)
        bench.emit("DataNode", most / MIB, "MiB", goal=150, clients=count, **AS_SHIPPED)
        own = resident_bytes()
        bench.emit("client, with the interpreter", own / MIB, "MiB", clients=count)
