"""How does a NameNode bear many files, and how soon does another one lead when it is killed?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from functools import partial
from typing import Final
from urllib.request import urlopen

from benchmarks.call_load import connect, run_load
from benchmarks.host import processor_s, resident_bytes
from benchmarks.late_timer import LateTimer
from benchmarks.stats import counted
from benchmarks.suite import Bench, case
from paxosblock.api.namenode import (
    CLOSE_FILE,
    CREATE,
    MKDIRS,
    STAT,
    TRANSACT,
    CloseFile,
    CreateFile,
    MakeDirectories,
    PathRequest,
    Transact,
)
from paxosblock.api.transaction import Marker
from paxosblock.base.units import GIB, MIB
from paxosblock.client import AsyncClient
from paxosblock.local.cluster import LocalCluster
from paxosblock.local.node_process import Node, wait_until
from paxosblock.protocol.types import Durability, WriterId

CLIENTS: Final = 64
FILES: Final = (25_000, 50_000, 100_000, 200_000, 500_000, 10**6, 2 * 10**6, 5 * 10**6, 10**7)
NAMES: Final = (10**4, 3 * 10**4, 10**5, 3 * 10**5, 10**6)
USUAL: Final = 10**5
MADE_BY_CALLS: Final = 20_000
"""The last files of each size are made one by one, as clients do; those before by transactions, for
a catalog of millions would take hours to fill."""
MADE_AT_ONCE: Final = 1000
"""Files of a transaction. What the largest ones cost the others is a question of `big-files`."""
MISSED: Final = 8000
"""Files that a follower misses. Each is two entries, more than a leader keeps in memory behind a
flush, and those since the last one, so the follower gets the leader's table."""
LONGEST_TURN_GOAL_MS: Final = 20.0
LEVEL_WITHIN_S: Final = 600.0
REST_S: Final = 1.0
IDLE_SHARE: Final = 0.05
"""Of a processor: a NameNode at rest has timers, heartbeats and its loop."""


@case("failover")
async def fail_over(bench: Bench) -> None:
    """How long is it from SIGKILL of the NameNode that leads to the next change?"""
    cluster = await bench.cluster(1, 3)
    async with AsyncClient(cluster.url) as fs:
        for number in bench.rounds:
            durations = []
            for each in range(bench.size(10, 1)):
                await asyncio.to_thread(wait_level, cluster)
                victim = await asyncio.to_thread(cluster.wait_leader)
                await fs.mkdirs(f"/before/{number}/{each}")
                begun = time.perf_counter()
                await asyncio.to_thread(victim.kill)
                await fs.mkdirs(f"/after/{number}/{each}")
                durations.append(time.perf_counter() - begun)
                await asyncio.to_thread(victim.start)
            what = f"leader killed to next change, {counted(3, 'NameNode')}"
            bench.emit_times(what, durations, number, goals_ms={"p99": 1000})


@case("namenode-growth-3", usual=False, room_bytes=8 * GIB)
async def growth_of_three(bench: Bench) -> None:
    """How do rate, memory and restart of three NameNodes grow with their files?"""
    await _grow(bench, await bench.cluster(1, 3, fresh=True))


@case("namenode-growth", room_bytes=4 * GIB)
async def growth_of_one(bench: Bench) -> None:
    """How do rate, memory and restart of a NameNode grow with its files?"""
    await _grow(bench, await bench.cluster(1, fresh=True))


async def _grow(bench: Bench, cluster: LocalCluster) -> None:
    """Do one round: each size goes on from the one before."""
    leader = await asyncio.to_thread(cluster.wait_leader)
    empty_bytes, there = resident_bytes(leader.pid or 0), 0
    for files in bench.sizes(FILES, USUAL, 200):
        at = (float(files), "files")
        leader = await asyncio.to_thread(cluster.wait_leader)
        by_calls = max(there, files - MADE_BY_CALLS)
        with LateTimer() as timer:
            longest_turn_s(leader)
            await fill(leader.address, there, by_calls)
            async with bench.measured(cluster) as spent:
                await make(leader.address, by_calls, files)
            turn_s, late_s = longest_turn_s(leader), timer.take()
        made, there = files - by_calls, files
        bench.emit("create and close", made / spent.elapsed_s, "/s", at=at, clients=CLIENTS,
                   processor_s=spent.per(made))  # fmt: skip
        bench.emit("longest turn meanwhile", turn_s * 1e3, "ms", at=at, goal=LONGEST_TURN_GOAL_MS)
        bench.emit("a timer of highest priority beside it, late by", late_s * 1e3, "ms", at=at)
        grown = resident_bytes(leader.pid or 0) - empty_bytes
        bench.emit("memory beyond an empty one", max(0, grown) / MIB, "MiB", at=at)
        await _stat(bench, cluster, files, "stat")
        if not bench.options.small:
            await asyncio.to_thread(wait_merged, leader)
        await _stat(bench, cluster, files, "stat, once nothing is merged any more")
        room = sum(path.stat().st_size for path in leader.volumes[0].rglob("*") if path.is_file())
        bench.emit("room on disk", room / MIB, "MiB", at=at)
        what = "killed, started, serving" if len(cluster.namenodes) == 1 else "follower level again"
        bench.emit(what, await asyncio.to_thread(restart, cluster), "s", at=at, goal=5)


async def _stat(bench: Bench, cluster: LocalCluster, files: int, what: str) -> None:
    """Emit how many of so many files, far from each other, are looked at in a second."""
    leader = await asyncio.to_thread(cluster.wait_leader)
    async with bench.measured(cluster) as spent:
        load = await run_load(
            leader.address, STAT, partial(_known, files), clients=CLIENTS, seconds=bench.seconds
        )
    bench.emit(what, load.rate, "/s", at=(float(files), "files"), clients=CLIENTS,
               processor_s=spent.per(len(load.latencies)))  # fmt: skip


def wait_merged(node: Node) -> None:
    """Wait until a NameNode that no client asks has nothing to do: RocksDB has then merged what
    the last flushes left."""

    def rests() -> bool:
        before_s = processor_s(node.pid)
        time.sleep(REST_S)
        return processor_s(node.pid) - before_s < IDLE_SHARE * REST_S

    wait_until(rests, LEVEL_WITHIN_S, "the NameNode does not come to rest")


def _known(files: int, client: int) -> Iterator[PathRequest]:
    """Yield all files that there are, again and again, beginning elsewhere for each client."""
    number = client * files // CLIENTS
    while True:
        yield PathRequest(path_of(number % files))
        number += 7919  # a prime, so that one neighbour does not follow the other


def path_of(number: int) -> str:
    """Return the path of the file of this number."""
    return f"/files/{number // 1000}/part-{number:08d}.parquet"


async def fill(address: str, first: int, end: int) -> None:
    """Make the files from number `first` to `end` by transactions."""
    connection = await connect(address)
    for begun in range(first, end, MADE_AT_ONCE):
        numbers = range(begun, min(end, begun + MADE_AT_ONCE))
        markers = tuple(Marker(path_of(number)) for number in numbers)
        request = Transact(markers, 3, 128 * MIB, Durability.DISK, owner="somebody")
        await connection.call(TRANSACT, request)
    connection.close()


async def make(address: str, first: int, end: int, clients: int = CLIENTS) -> None:
    """Make the files from number `first` to `end`, each of them by a create and a close."""
    numbers = iter(range(first, end))

    async def client() -> None:
        connection = await connect(address)
        for number in numbers:
            writer = WriterId(f"filler-{number}")
            request = CreateFile(
                path_of(number), writer, False, 3, 128 * MIB, Durability.DISK, owner="somebody"
            )
            file = await connection.call(CREATE, request)
            await connection.call(CLOSE_FILE, CloseFile(file.status.file_id, writer))
        connection.close()

    await asyncio.gather(*(client() for _ in range(clients)))


@case("table-taken", usual=False, room_bytes=8 * GIB)
async def table_taken(bench: Bench) -> None:
    """How long does a follower stand still that takes the leader's table, while others write?"""
    cluster = await bench.cluster(1, 3, {"namenode": {"snapshot_growth": "1MiB"}}, fresh=True)
    missed, there = bench.size(MISSED, 20), 0
    for files in bench.sizes(FILES, USUAL, 200):
        leader = await asyncio.to_thread(cluster.wait_leader)
        await fill(leader.address, there, files)
        there = max(there, files)
        for number in bench.rounds:
            await asyncio.to_thread(wait_level, cluster)
            leader = await asyncio.to_thread(cluster.wait_leader)
            behind = next(node for node in cluster.namenodes if node is not leader)
            await asyncio.to_thread(behind.kill)
            # One after the other, each call is an entry of its own.
            await make(leader.address, there, there + missed, clients=1)
            begun_s = time.perf_counter()
            await asyncio.to_thread(behind.start)
            worst, _ = await asyncio.gather(
                asyncio.to_thread(_watch_until_level, cluster, behind),
                make(leader.address, there + missed, there + 2 * missed),
            )
            there += 2 * missed
            at = (float(files), "files")
            bench.emit("level again", time.perf_counter() - begun_s, "s", number, at=at)
            bench.emit("taken", worst["raft_snapshots_installed"], "tables", number, at=at)
            for what, name in (
                ("longest stall of the follower", "loop_stall_seconds"),
                ("longest turn of the follower", "loop_busy_seconds"),
            ):
                bench.emit(what, worst[name] * 1e3, "ms", number, at=at, goal=LONGEST_TURN_GOAL_MS)


def _watch_until_level(cluster: LocalCluster, node: Node) -> dict[str, float]:
    """Return the highest values of a node's metrics until it has what the leader has by now."""
    leader = cluster.namenode_status(cluster.wait_leader())
    assert leader is not None, "it leads"
    worst: dict[str, float] = {}
    metrics(node)  # what its start did does not count

    def level() -> bool:
        now = metrics(node)
        worst.update({name: max(value, worst.get(name, 0)) for name, value in now.items()})
        return now["raft_applied_index"] >= leader.commit_index

    wait_until(level, LEVEL_WITHIN_S, "the follower did not come level")
    return worst


@case("list-directory", room_bytes=2 * GIB)
async def list_directory(bench: Bench) -> None:
    """How long does it take to list a directory of very many names?"""
    cluster = await bench.cluster(1, fresh=True)
    leader, there = cluster.namenode, 0
    async with AsyncClient(cluster.url) as fs:
        for names in bench.sizes(NAMES, USUAL, 100):
            new = (MakeDirectories(f"/many/{each:08d}") for each in range(there, names))
            await run_load(leader.address, MKDIRS, partial(_shared, new), clients=CLIENTS)
            there = names
            for number in bench.rounds:
                longest_turn_s(leader)
                async with bench.measured(cluster) as spent:
                    found = len(await fs.ls("/many"))
                assert found == names, "every name is listed once"
                at = (float(names), "names")
                bench.emit("the whole list", spent.elapsed_s, "s", number, at=at)
                bench.emit("names", names / spent.elapsed_s, "/s", number, at=at,
                           processor_s=spent.per(names))  # fmt: skip
                bench.emit("longest turn of the NameNode", longest_turn_s(leader) * 1e3, "ms",
                           number, at=at, goal=LONGEST_TURN_GOAL_MS)  # fmt: skip


def _shared(requests: Iterator[MakeDirectories], _client: int) -> Iterator[MakeDirectories]:
    """Return the same requests for every client: each is made once."""
    return requests


def wait_level(cluster: LocalCluster) -> None:
    """Wait until every NameNode has applied what the leader has committed."""

    def level() -> bool:
        leader = cluster.namenode_status(cluster.wait_leader())
        others = [cluster.namenode_status(node) for node in cluster.namenodes]
        return leader is not None and all(
            each is not None and each.applied_index >= leader.commit_index for each in others
        )

    wait_until(level, LEVEL_WITHIN_S, "the NameNodes did not come level")


def metrics(node: Node) -> dict[str, float]:
    """Return the values of a node's /metrics, by name. Each look resets the longest stalls."""
    prefix = "paxosblock_namenode_"
    with urlopen(f"http://{node.address}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    pairs = (line.removeprefix(prefix).split() for line in lines if line.startswith(prefix))
    return {name: float(value) for name, value in pairs}


def longest_turn_s(node: Node) -> float:
    """Return the longest turn of a node's loop since the last look, in its processor time."""
    return metrics(node)["loop_busy_seconds"]


def restart(cluster: LocalCluster) -> float:
    """Kill the last NameNode that does not lead, or the only one; return the seconds from its start
    until it has all that was committed."""
    leader = cluster.wait_leader()
    victim = ([node for node in cluster.namenodes if node is not leader] or [leader])[-1]
    victim.kill()
    begun = time.perf_counter()
    victim.start(LEVEL_WITHIN_S)
    wait_level(cluster)
    return time.perf_counter() - begun
