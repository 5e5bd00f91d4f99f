"""HDFS in the same run: one NameNode and three DataNodes each, in turns with ours.

Both sides have as many clients, in one process of their own kind: threads that share a
`DistributedFileSystem` in a JVM that stays warm, tasks that share an `AsyncClient`. Durability:

    memory   ours: every replica has received it; a block is forced to disk at its end.
             HDFS: every replica has received it; nothing is forced.
    disk     ours: a chunk is acknowledged when every replica has forced it to disk.
             HDFS: a block is forced to disk at its end (SYNC_BLOCK); flushes by `hsync`, as ours.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from benchmarks import host
from benchmarks.cases.namenodes import fill
from benchmarks.peers.beside import ask, clients, emit_acts, emit_answer, peer, seconds_of
from benchmarks.peers.hdfs import DATANODES, Hdfs
from benchmarks.stats import counted
from benchmarks.suite import Bench, Spent, case
from benchmarks.work import DURABILITIES, read_file, write_file
from paxosblock.base.units import GIB, KIB, MIB
from paxosblock.client import AsyncClient
from paxosblock.local.cluster import LocalCluster

CLIENTS: Final = 64
REPLICAS: Final = 3
STREAMS: Final = (1, 4)
SMALL_BYTES: Final = 4 * KIB
SMALL_CLIENTS: Final = 16
CALLS: Final = ("mkdirs", "stat", "list", "rename", "create", "delete")
WHAT: Final = {"create": "create and close"}


@case("names-beside-hdfs", usual=False, room_bytes=4 * GIB)
async def names_beside_hdfs(bench: Bench) -> None:
    """How many calls a second does one NameNode answer 64 clients, beside HDFS's?"""
    async with peer(bench, Hdfs) as hdfs:
        cluster = await bench.cluster()
        async with AsyncClient(cluster.url) as fs:
            for number in (0, *bench.rounds):  # the first is to warm up, and is not told
                await _names_of_ours(bench, cluster, fs, number)
                await _names_of_hdfs(bench, hdfs, number)


async def _names_of_ours(bench: Bench, cluster: LocalCluster, fs: AsyncClient, number: int) -> None:
    for call, act in acts_on_names(fs, f"client-{number}").items():
        async with bench.measured(cluster) as spent:
            acts = await clients(CLIENTS, seconds_of(bench, number), act)
        if number:
            emit_acts(bench, WHAT.get(call, call), number, acts, spent, clients=CLIENTS)


def acts_on_names(fs: AsyncClient, run: str) -> dict[str, Callable[[int, int], Awaitable[bool]]]:
    """Return what a client does for each call, in an order in which each finds what it needs."""
    made: dict[int, int] = {}

    async def mkdirs(client: int, number: int) -> bool:
        await fs.mkdirs(f"/{run}/{client}/{number}")
        made[client] = number
        return True

    async def stat(client: int, _: int) -> bool:
        await fs.stat(f"/{run}/{client}")
        return True

    async def list_it(client: int, _: int) -> bool:
        await fs.ls(f"/{run}/{client}/0")
        return True

    async def rename(client: int, number: int) -> bool:
        names = (f"/{run}/{client}/0", f"/{run}/{client}/moved")
        await fs.rename(*(names if number % 2 == 0 else names[::-1]))
        return True

    async def create(client: int, number: int) -> bool:
        await (await fs.create(f"/{run}/{client}/f{number}")).close()
        return True

    async def delete(client: int, number: int) -> bool:
        if number >= made.get(client, 0):
            return False
        await fs.delete(f"/{run}/{client}/{number + 1}", recursive=True)
        return True

    return dict(zip(CALLS, (mkdirs, stat, list_it, rename, create, delete), strict=True))


async def _names_of_hdfs(bench: Bench, hdfs: Hdfs, number: int) -> None:
    for call in CALLS:
        told = await ask(
            bench, hdfs, "names",
            what=call, clients=CLIENTS, run=f"r{number}", seconds=seconds_of(bench, number),
        )  # fmt: skip
        if number:
            emit_answer(bench, WHAT.get(call, call), hdfs, number, told, clients=CLIENTS)


@case("bytes-beside-hdfs", usual=False, room_bytes=8 * GIB)
async def bytes_beside_hdfs(bench: Bench) -> None:
    """How fast are files written and read, whole and 4 KiB of them, beside HDFS?"""
    total = bench.size(512 * MIB, 8 * MIB)
    async with peer(bench, Hdfs) as hdfs:
        cluster = await bench.cluster()
        async with AsyncClient(cluster.url, short_circuit=False) as fs:  # HDFS's is off, too
            for number in (0, *bench.rounds):  # the first is to warm up, and is not told
                for streams in STREAMS:
                    for durability in DURABILITIES:
                        at = (streams, total, durability, number)
                        await _write_ours(bench, cluster, fs, at)
                        await _write_hdfs(bench, hdfs, at)
                    await _read_both(bench, cluster, fs, hdfs, (streams, total, number))
                for readers in (1, SMALL_CLIENTS):
                    await _pread_both(bench, cluster, fs, hdfs, (readers, number))


At = tuple[int, int, str, int]


async def _write_ours(bench: Bench, cluster: LocalCluster, fs: AsyncClient, at: At) -> None:
    streams, total, durability, _ = at
    writers = [
        write_file(fs, f"/bytes/{each}", total // streams, durability) for each in range(streams)
    ]
    async with bench.measured(cluster) as spent:
        await asyncio.gather(*writers)
    located = [await fs.locations(f"/bytes/{each}") for each in range(streams)]
    replicas = min(len(block.hosts) for blocks in located for block in blocks)
    if replicas < REPLICAS:
        host.progress(f"{bench.case}: a DataNode failed a writer: {replicas} replicas in a block")
    facts = {"durability": durability, "replicas": replicas}
    _emit_bytes(bench, _written(at), (total, at[-1]), spent, **facts)


async def _write_hdfs(bench: Bench, hdfs: Hdfs, at: At) -> None:
    streams, total, durability, number = at
    disk = int(durability == "disk")
    _, spent = await ask(
        bench, hdfs, "write", run="bytes", streams=streams, mib=total // MIB, disk=disk
    )
    called = "SYNC_BLOCK" if disk else "memory"
    facts = {**hdfs.facts, "durability": called}
    _emit_bytes(bench, _written(at), (total, number), spent, **facts)


def _written(at: At) -> str:
    return f"write, {counted(at[0], 'stream')}, durability {at[2]}"


async def _read_both(
    bench: Bench, cluster: LocalCluster, fs: AsyncClient, hdfs: Hdfs, at: tuple[int, int, int]
) -> None:
    """Read what was just written, which is in the page cache on both sides."""
    (streams, total, number), what = at, f"read, {counted(at[0], 'stream')}"
    async with bench.measured(cluster) as spent:
        await asyncio.gather(*(read_file(fs, f"/bytes/{each}") for each in range(streams)))
    _emit_bytes(bench, what, (total, number), spent)
    answer, theirs = await ask(bench, hdfs, "read", run="bytes", streams=streams)
    assert answer["bytes"] == total, "HDFS read all that it had written"
    _emit_bytes(bench, what, (total, number), theirs, **hdfs.facts)


def _emit_bytes(bench: Bench, what: str, at: tuple[int, int], spent: Spent, **facts: Any) -> None:
    total, number = at
    if number:
        per_gib, rate = spent.per(total / GIB), total / MIB / spent.elapsed_s
        facts = {"replicas": REPLICAS, **facts}
        bench.emit(what, rate, "MiB/s", number, processor_s=per_gib, per="GiB", **facts)


async def _pread_both(
    bench: Bench, cluster: LocalCluster, fs: AsyncClient, hdfs: Hdfs, at: tuple[int, int]
) -> None:
    """Read pieces of 4 KiB at random places of the first file that is there."""
    (readers, number), what = at, f"read of 4 KiB, {counted(at[0], 'reader')}"
    size = (await fs.stat("/bytes/0")).size
    async with fs.open("/bytes/0") as reader:
        where = random.Random(number)

        async def pread(_: int, __: int) -> bool:
            offset = where.randrange(size // SMALL_BYTES) * SMALL_BYTES
            assert len(await reader.pread(offset, SMALL_BYTES)) == SMALL_BYTES, "all of them"
            return True

        async with bench.measured(cluster) as spent:
            acts = await clients(readers, seconds_of(bench, number), pread)
    told = await ask(
        bench, hdfs, "pread",
        run="bytes", clients=readers, seconds=seconds_of(bench, number), bytes=SMALL_BYTES,
    )  # fmt: skip
    if number:
        emit_acts(bench, what, number, acts, spent, clients=readers)
        emit_answer(bench, what, hdfs, number, told, clients=readers)


@case("small-beside-hdfs", usual=False, room_bytes=4 * GIB)
async def small_beside_hdfs(bench: Bench) -> None:
    """How many files of 4 KiB do 16 writers make in a second, and how soon is a DataNode back?"""
    async with peer(bench, Hdfs) as hdfs:
        cluster = await bench.cluster()
        async with AsyncClient(cluster.url) as fs:
            for number in (0, *bench.rounds):  # the first is to warm up, and is not told
                for durability in DURABILITIES:
                    await _small_both(bench, cluster, fs, hdfs, (durability, number))
        await _starts(bench, cluster, hdfs)


async def _small_both(
    bench: Bench, cluster: LocalCluster, fs: AsyncClient, hdfs: Hdfs, at: tuple[str, int]
) -> None:
    (durability, number), piece = at, os.urandom(SMALL_BYTES)
    what = f"files of 4 KiB, {counted(SMALL_CLIENTS, 'writer')}, durability {durability}"

    async def write(client: int, each: int) -> bool:
        path = f"/small-{number}-{durability}/{client}/{each}"
        async with fs.create(path, durability=durability) as out:
            await out.write(piece)
        return True

    async with bench.measured(cluster) as spent:
        acts = await clients(SMALL_CLIENTS, seconds_of(bench, number), write)
    disk = int(durability == "disk")
    told = await ask(
        bench, hdfs, "small", run=f"small-{number}-{durability}",
        clients=SMALL_CLIENTS, seconds=seconds_of(bench, number), bytes=SMALL_BYTES, disk=disk,
    )  # fmt: skip
    if number:
        facts = {"clients": SMALL_CLIENTS, "replicas": REPLICAS}
        emit_acts(bench, what, number, acts, spent, durability=durability, **facts)
        called = "SYNC_BLOCK" if disk else "memory"
        emit_answer(bench, what, hdfs, number, told, durability=called, **facts)


async def _starts(bench: Bench, cluster: LocalCluster, hdfs: Hdfs) -> None:
    """Kill a DataNode of each with the blocks that it has by now, and start it again."""
    what = "a DataNode that was killed serves again"
    for number in bench.rounds:
        await bench.quiet()
        ours = cluster.datanodes[number % DATANODES]
        ours.kill()
        begun_s = time.perf_counter()
        await asyncio.to_thread(ours.start)
        bench.emit(what, time.perf_counter() - begun_s, "s", number)
        await bench.quiet()
        theirs = hdfs.datanodes[number % DATANODES]
        theirs.kill()
        since_ms, begun_s = int(time.time() * 1e3), time.perf_counter()
        await asyncio.to_thread(theirs.start)
        await asyncio.to_thread(hdfs.ask, "reported", since=since_ms, datanodes=1)
        took_s = time.perf_counter() - begun_s
        bench.emit(what, took_s, "s", number, **hdfs.facts)


@case("memory-beside-hdfs", usual=False, room_bytes=2 * GIB)
async def memory_beside_hdfs(bench: Bench) -> None:
    """What memory does an empty file cost the NameNode, beside HDFS's?"""
    files = bench.size(100_000, 1000)
    each = -(-files // CLIENTS)
    async with peer(bench, Hdfs) as hdfs:
        cluster = await bench.cluster(fresh=True)
        namenode = await asyncio.to_thread(cluster.wait_leader)
        assert namenode.pid is not None, "it leads"
        async with AsyncClient(cluster.url) as fs:
            create = acts_on_names(fs, "memory")["create"]

            async def one(client: int, number: int) -> bool:
                return number < each and await create(client, number)

            before = host.resident_bytes(namenode.pid)
            await clients(CLIENTS, float("inf"), one)
            grown = host.resident_bytes(namenode.pid) - before
        what, made = "memory of an empty file", each * CLIENTS
        bench.emit(what, grown / made, "bytes", told="growth of resident memory", files=made)
        before = await asyncio.to_thread(hdfs.live_heap_bytes)
        await asyncio.to_thread(
            hdfs.ask, "names", what="create", clients=CLIENTS, run="memory", count=each
        )
        grown = await asyncio.to_thread(hdfs.live_heap_bytes) - before
        facts = {**hdfs.facts, "told": "growth of the live heap", "files": made}
        bench.emit(what, grown / made, "bytes", **facts)
        # Most of ours is what the first files fill: changes that are not flushed, values in caches.
        many = bench.size(500_000, 1000)
        await fill(namenode.address, 0, many)
        before = host.resident_bytes(namenode.pid)
        await fill(namenode.address, many, 2 * many)
        grown = host.resident_bytes(namenode.pid) - before
        what = "memory of one more empty file, beside so many"
        bench.emit(what, grown / many, "bytes", told="growth of resident memory", files=made + many)
