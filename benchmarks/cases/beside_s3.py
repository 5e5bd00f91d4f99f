"""A gateway's door of S3 beside servers of S3 that others make, and beside our own client.

One load, in Go, makes the same requests of all of them, one after the other in each round. Each
object of ours is on three DataNodes, on one disk here; the servers of others keep it once. Nobody
forces it to disk before it is acknowledged.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

from benchmarks.cases.gateways import WithGateway
from benchmarks.cases.namenodes import fill, path_of
from benchmarks.peers.beside import ask, clients, emit_answer, peers
from benchmarks.peers.processes import Peer
from benchmarks.peers.s3_servers import S3_PEERS, OurGateway
from benchmarks.stats import counted
from benchmarks.suite import Bench, Spent, case
from benchmarks.work import read_file, write_file
from paxosblock.base.units import GIB, KIB, MIB
from paxosblock.client import AsyncClient
from paxosblock.local.cluster import LocalCluster

BIG_BYTES: Final = 64 * MIB
STREAMS: Final = (1, 8)
NATIVE: Final = "our client, without a gateway"
SMALL_BYTES: Final = 4 * KIB
SMALL: Final = (
    ("put", "PUT of 4 KiB", 16),
    ("get", "GET of 4 KiB", 16),
    ("head", "HEAD", 32),
    ("race", "PUT if there is none, all at one key", 32),
)
LISTS: Final = "list of 1,000 keys"
ALL_SIZES: Final = (1000, 10_000, 100_000, 1_000_000)
USUAL_ALL: Final = 100_000
FILLERS: Final = 8
"""Callers that make the keys of a list, 125 each."""


@contextlib.asynccontextmanager
async def _sides(bench: Bench) -> AsyncIterator[tuple[list[Peer], LocalCluster]]:
    """Start ours, which comes first, and all that can be had; yield them, and our cluster."""
    async with peers(bench, S3_PEERS) as others:
        cluster = await bench.cluster(kind=WithGateway)
        with (
            tempfile.TemporaryDirectory(dir=bench.folder, prefix="ours-") as folder,
            OurGateway(Path(folder), cluster) as ours,
        ):
            await asyncio.to_thread(ours.start)
            yield [ours, *others], cluster


@case("s3-bytes-beside-peers", usual=False, room_bytes=8 * GIB)
async def s3_bytes_beside_peers(bench: Bench) -> None:
    """How many MiB/s does a gateway write and read, beside our own client and servers of S3?"""
    size = bench.size(BIG_BYTES, SMALL_BYTES)
    async with _sides(bench) as (sides, cluster), AsyncClient(cluster.url) as fs:
        for number in (0, *bench.rounds):  # the first is to warm up, and is not told
            for streams in STREAMS:
                await _bytes_of_native(bench, cluster, fs, (streams, number))
                for side in sides:
                    await asyncio.to_thread(side.ask, "prepare", run=f"bytes-{streams}")
                    for command, what in (("replace", "PUT"), ("get", "GET")):
                        answer, spent = await ask(
                            bench, side, command,
                            clients=streams, seconds=bench.seconds, bytes=size,
                        )  # fmt: skip
                        done = int(answer["count"]), spent
                        _emit_bytes(bench, what, (streams, number), done, **side.facts)


async def _bytes_of_native(
    bench: Bench, cluster: LocalCluster, fs: AsyncClient, at: tuple[int, int]
) -> None:
    streams, _ = at
    size = bench.size(BIG_BYTES, SMALL_BYTES)

    async def write(client: int, _: int) -> bool:
        await write_file(fs, f"/native/{client}", size, "memory")
        return True

    async def read(client: int, _: int) -> bool:
        await read_file(fs, f"/native/{client}")
        return True

    for act, what in ((write, "PUT"), (read, "GET")):
        async with bench.measured(cluster) as spent:
            acts = await clients(streams, bench.seconds, act)
        _emit_bytes(bench, what, at, (len(acts.times_s), spent), side=NATIVE)


def _emit_bytes(
    bench: Bench, what: str, at: tuple[int, int], done: tuple[int, Spent], **facts: Any
) -> None:
    (streams, number), (count, spent) = at, done
    if number:
        total = count * bench.size(BIG_BYTES, SMALL_BYTES)
        what, rate = (
            f"{what} of 64 MiB, {counted(streams, 'client')}",
            total / MIB / spent.elapsed_s,
        )
        per_gib = spent.per(total / GIB)
        bench.emit(
            what, rate, "MiB/s", number, processor_s=per_gib, per="GiB", clients=streams, **facts
        )


@case("s3-small-beside-peers", usual=False, room_bytes=8 * GIB)
async def s3_small_beside_peers(bench: Bench) -> None:
    """How many small requests a second does a gateway answer, and 32 that race for one key, beside
    servers of S3?"""
    async with _sides(bench) as (sides, _):
        for number in (0, *bench.rounds):  # the first is to warm up, and is not told
            for side in sides:
                for command, what, callers in SMALL:
                    run = f"race-{number}" if command == "race" else f"small-{number}"
                    await asyncio.to_thread(side.ask, "prepare", run=run)
                    told = await ask(
                        bench, side, command,
                        clients=callers, seconds=bench.seconds, bytes=SMALL_BYTES,
                    )  # fmt: skip
                    if number:
                        emit_answer(bench, what, side, number, told, clients=callers)


@case("s3-list-beside-peers", usual=False)
async def s3_list_beside_peers(bench: Bench) -> None:
    """How long does a list of 1,000 keys take at a gateway, beside servers of S3?"""
    async with _sides(bench) as (sides, _):
        for side in sides:
            await asyncio.to_thread(side.ask, "prepare", run="list")
            await asyncio.to_thread(side.ask, "fill", clients=FILLERS, seconds=0, bytes=0)
        for number in (0, *bench.rounds):  # the first is to warm up, and is not told
            for side in sides:
                told = await ask(bench, side, "list", clients=1, seconds=bench.seconds, bytes=0)
                if number:
                    emit_answer(bench, LISTS, side, number, told, clients=1)


@case("s3-list-all", usual=False, room_bytes=4 * GIB)
async def s3_list_all(bench: Bench) -> None:
    """How long does a list of all keys of a bucket take at a gateway, by a thousand?"""
    cluster = await bench.cluster(1, 1, kind=WithGateway, fresh=True)
    bucket, there = path_of(0).split("/")[1], 0
    with (
        tempfile.TemporaryDirectory(dir=bench.folder, prefix="ours-") as folder,
        OurGateway(Path(folder), cluster) as ours,
    ):
        await asyncio.to_thread(ours.start)
        for size in bench.sizes(ALL_SIZES, USUAL_ALL, 10):
            await fill(cluster.addresses[0], there, size)
            there = size
            await asyncio.to_thread(ours.ask, "prepare", run="", bucket=bucket, keys=size)
            for number in bench.rounds:
                answer, spent = await ask(bench, ours, "list-all", clients=1, seconds=0, bytes=0)
                took_s, per_key = float(answer["seconds"]), spent.per(size)
                bench.emit(
                    "list of all keys", took_s, "s", number,
                    at=(size, "keys"), processor_s=per_key, per="key", goal=25.0 * size / 1e6,
                )  # fmt: skip
