"""BookKeeper, etcd, Kafka and NATS JetStream in the same run, three replicas each, and HDFS where
it fits.

An acknowledged write is on the disks of every replica (ours, HDFS by `hsync`, Kafka that flushes
every batch), or of two of three (BookKeeper, etcd, NATS with `sync_interval: always`). Each
system's own client makes the load, with as many callers in one process: in Java for HDFS,
BookKeeper and Kafka, in Go for etcd and NATS, in Python for ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping
from typing import Final

from benchmarks.cases.beside_hdfs import CLIENTS, acts_on_names
from benchmarks.cases.outages import Activity, Fails, outage_s
from benchmarks.peers.beside import (
    ask,
    clients,
    emit_acts,
    emit_answer,
    peer,
    peers,
    seconds_of,
)
from benchmarks.peers.bookkeeper import BookKeeper
from benchmarks.peers.gopeers import Etcd, Nats
from benchmarks.peers.hdfs import DATANODES, Hdfs
from benchmarks.peers.kafka import Kafka
from benchmarks.peers.processes import Peer, Server
from benchmarks.stats import counted
from benchmarks.suite import Bench, case
from benchmarks.work import victim_of
from paxosblock.base.units import GIB, KIB, MIB
from paxosblock.client import AsyncClient
from paxosblock.client.writing.file_writer import AsyncFileWriter
from paxosblock.local.cluster import LocalCluster
from paxosblock.local.node_process import Node

ENTRY_BYTES: Final = KIB
WRITERS: Final = (1, 20)
PIECE_BYTES: Final = 16 * KIB
VALUE_BYTES: Final = 100
COMMANDS: Final[Mapping[type[Peer], str]] = {
    Hdfs: "durable",
    BookKeeper: "durable",
    Kafka: "durable",
    Etcd: "put",
    Nats: "publish",
}
FAILING: Final[tuple[type[Peer], ...]] = (Hdfs, BookKeeper, Etcd, Nats)
"""Those whose nodes the case of failures kills."""
DISK_OF: Final[Mapping[type[Peer], Mapping[str, dict[str, int]]]] = {
    Hdfs: {"hsync, 3 of 3": {}},
    # So many bookies have forced an entry to disk before it is acknowledged: as usual, and as ours.
    BookKeeper: {"journal, 2 of 3": {"acks": 2}, "journal, 3 of 3": {"acks": 3}},
    # Its flushes of several partitions follow each other, and writers of one share a batch.
    Kafka: {
        "flushed, 3 of 3, a partition each": {"shared": 0},
        "flushed, 3 of 3, one partition": {"shared": 1},
    },
    Etcd: {"log, 2 of 3": {}},
    Nats: {"sync_interval always, 2 of 3": {}},
}
"""By peer: where a write has been forced to when it is acknowledged, and the load's options."""


@case("durable-beside-peers", usual=False, room_bytes=6 * GIB)
async def durable_beside_peers(bench: Bench) -> None:
    """How long does a durable write of 1 KiB take, by one writer, and with twenty, beside peers?"""
    async with peers(bench, list(COMMANDS)) as others:
        cluster = await bench.cluster()
        async with AsyncClient(cluster.url) as fs:
            for number in (0, *bench.rounds):  # the first is to warm up, and is not told
                for writers in WRITERS:
                    await _durable_ours(bench, cluster, fs, (writers, number))
                    for each in others:
                        await _durable_of(bench, each, (writers, number))


async def _durable_ours(
    bench: Bench, cluster: LocalCluster, fs: AsyncClient, at: tuple[int, int]
) -> None:
    (writers, number), piece = at, os.urandom(ENTRY_BYTES)
    async with contextlib.AsyncExitStack() as files:
        outs: list[AsyncFileWriter] = []
        for each in range(writers):
            path = f"/durable/{number}-{writers}-{each}"
            outs.append(await files.enter_async_context(await fs.create(path, durability="disk")))
            await outs[-1].write(piece)
            await outs[-1].hflush()

        async def write(client: int, _: int) -> bool:
            await outs[client].write(piece)
            await outs[client].hflush()
            return True

        async with bench.measured(cluster) as spent:
            acts = await clients(writers, seconds_of(bench, number), write)
    if number:
        facts = {"clients": writers, "replicas": 3, "durability": "disk, 3 of 3"}
        emit_acts(bench, _durable(writers), number, acts, spent, **facts)


async def _durable_of(bench: Bench, other: Peer, at: tuple[int, int]) -> None:
    (writers, number), ways = at, DISK_OF[type(other)]
    for durability, options in ways.items():
        told = await ask(
            bench, other, COMMANDS[type(other)], run=f"durable-{number}-{writers}",
            clients=writers, seconds=seconds_of(bench, number), bytes=ENTRY_BYTES, **options,
        )  # fmt: skip
        if number:
            facts = {"clients": writers, "replicas": 3, "durability": durability}
            if len(ways) > 1:
                facts["side"] = f"{other.facts['side']}, {durability}"
            emit_answer(bench, _durable(writers), other, number, told, **facts)


def _durable(writers: int) -> str:
    return f"durable write of 1 KiB, {counted(writers, 'writer')}"


@case("keys-beside-etcd", usual=False, room_bytes=4 * GIB)
async def keys_beside_etcd(bench: Bench) -> None:
    """How many changes and looks a second do three NameNodes answer 64 clients, beside etcd?"""
    async with peer(bench, Etcd) as etcd:
        cluster = await bench.cluster(1, 3)
        async with AsyncClient(cluster.url) as fs:
            for number in (0, *bench.rounds):  # the first is to warm up, and is not told
                acts_of = acts_on_names(fs, f"keys-{number}")
                for what, call, command in (
                    ("mkdirs; put of 100 bytes", "mkdirs", "put"),
                    ("stat; get, linearizable", "stat", "get"),
                ):
                    async with bench.measured(cluster) as spent:
                        acts = await clients(CLIENTS, seconds_of(bench, number), acts_of[call])
                    told = await ask(
                        bench, etcd, command,
                        clients=CLIENTS, seconds=seconds_of(bench, number), bytes=VALUE_BYTES,
                    )  # fmt: skip
                    if number:
                        facts = {"clients": CLIENTS, "replicas": 3}
                        emit_acts(bench, what, number, acts, spent, **facts)
                        emit_answer(bench, what, etcd, number, told, **facts)


# -- failures --------------------------------------------------------------------------------------


@case("failures-beside-peers", usual=False, room_bytes=4 * GIB)
async def failures_beside_peers(bench: Bench) -> None:
    """For how long does a failure keep a writer, or a user of names, waiting, beside peers?"""
    async with peers(bench, FAILING) as others:
        cluster = await bench.cluster(DATANODES, 3)
        by_kind = {type(each): each for each in others}
        async with AsyncClient(cluster.url) as fs:
            for number in bench.rounds:
                await _killed(bench, cluster, fs, by_kind, number)
                await _taken_over(bench, cluster, by_kind, number)
                await _leader_killed(bench, cluster, fs, others, number)
            await _hung(bench, cluster, fs, by_kind)


Others = dict[type[Peer], Peer]
Failure = Callable[[Node], Fails]


def _kill(node: Node) -> Fails:
    return Fails(node.kill, node.start)


def _hang(node: Node) -> Fails:
    return Fails(node.pause, node.resume)


async def _killed(
    bench: Bench, cluster: LocalCluster, fs: AsyncClient, others: Others, number: int
) -> None:
    """Kill a node that holds a replica of what is being written."""
    what = "a node killed to the next write"
    waited = await _writer_waits(cluster, fs, f"/killed-{number}", _kill)
    bench.emit(what, waited * 1e3, "ms", number, durability="memory")
    for other, nodes, called in _storing(others):
        victim = nodes[number % len(nodes)]
        waited = await _outage(other, victim.kill, run=f"killed-{number}", bytes=PIECE_BYTES)
        await asyncio.to_thread(victim.start)
        _emit_wait(bench, what, other, (waited, number), called)
        await asyncio.to_thread(other.ask, "ready", datanodes=DATANODES)


def _storing(others: Others) -> list[tuple[Peer, list[Server], str]]:
    """Return the systems that store what writers write, their nodes, and their durability."""
    found: list[tuple[Peer, list[Server], str]] = []
    hdfs, bookkeeper = others.get(Hdfs), others.get(BookKeeper)
    if isinstance(hdfs, Hdfs):
        found.append((hdfs, hdfs.datanodes, "memory"))
    if isinstance(bookkeeper, BookKeeper):
        found.append((bookkeeper, bookkeeper.bookies, "journal, 2 of 3"))
    return found


async def _writer_waits(
    cluster: LocalCluster, fs: AsyncClient, path: str, failure: Failure
) -> float:
    """Return the seconds that a writer of ours waits when a DataNode of its block fails."""
    piece = os.urandom(PIECE_BYTES)
    await asyncio.to_thread(cluster.wait_registered)
    async with fs.create(path, durability="memory") as out:

        async def flush() -> None:
            await out.write(piece)
            await out.hflush()

        await flush()
        fault = failure(await asyncio.to_thread(victim_of, cluster, path))
        try:
            return await outage_s(Activity(flush), fault)
        finally:
            await asyncio.to_thread(fault.heal)


async def _outage(other: Peer, fail: Callable[[], None], **options: object) -> float:
    """Return the seconds that a client of a peer waits from a failure on."""
    await asyncio.to_thread(other.ask, "outage-begin", **options)
    since = time.time_ns()
    await asyncio.to_thread(fail)
    answer = await asyncio.to_thread(other.ask, "outage-end", since=since)
    return float(answer["seconds"])


def _emit_wait(
    bench: Bench, what: str, of: Peer, at: tuple[float, int], durability: str = ""
) -> None:
    waited, number = at
    facts = {**of.facts, "durability": durability}
    bench.emit(what, waited * 1e3, "ms", number, **facts)


async def _taken_over(bench: Bench, cluster: LocalCluster, others: Others, number: int) -> None:
    """Close a file of 1 MiB whose writer is gone."""
    what, path = "an abandoned file taken over", f"/abandoned-{number}/0"
    async with AsyncClient(cluster.url) as writer, AsyncClient(cluster.url) as other:
        out = await writer.create(path, durability="memory")
        await out.write(bytes(MIB))
        await out.hflush()
        begun_s = time.perf_counter()
        await other.take_over(path)
        bench.emit(what, (time.perf_counter() - begun_s) * 1e3, "ms", number)
        await out.abort()
    if (hdfs := others.get(Hdfs)) is not None:
        await asyncio.to_thread(hdfs.ask, "abandon", run=f"abandoned-{number}")
        answer = await asyncio.to_thread(hdfs.ask, "take-over", run=f"abandoned-{number}")
        _emit_wait(bench, what, hdfs, (float(answer["seconds"]), number))


async def _leader_killed(
    bench: Bench, cluster: LocalCluster, fs: AsyncClient, others: list[Peer], number: int
) -> None:
    """Kill the one that leads; HDFS has one NameNode here, and BookKeeper's ledgers have none."""
    what = "the leader of three killed to the next change"
    victim = await asyncio.to_thread(cluster.wait_leader)
    made = iter(range(1 << 30))
    fault = _kill(victim)
    waited = await outage_s(Activity(lambda: fs.mkdirs(f"/led-{number}/{next(made)}")), fault)
    await asyncio.to_thread(fault.heal)
    bench.emit(what, waited * 1e3, "ms", number)
    for other in others:
        if isinstance(other, Etcd | Nats):
            leader = await asyncio.to_thread(other.leader)
            options = {"what": COMMANDS[type(other)], "bytes": ENTRY_BYTES}
            waited = await _outage(other, leader.kill, **options)
            await asyncio.to_thread(leader.start)
            _emit_wait(bench, what, other, (waited, number))


async def _hung(bench: Bench, cluster: LocalCluster, fs: AsyncClient, others: Others) -> None:
    """Stop a node, which stays connected and says nothing. Once: HDFS waits for over a minute."""
    what = "a node hung to the next write"
    waited = await _writer_waits(cluster, fs, "/hung", _hang)
    bench.emit(what, waited * 1e3, "ms", durability="memory")
    for other, nodes, called in _storing(others):
        victim = nodes[0]

        def stop(it: Server = victim) -> None:
            it.send(signal.SIGSTOP)

        waited = await _outage(other, stop, run="hung", bytes=PIECE_BYTES)
        victim.send(signal.SIGCONT)
        _emit_wait(bench, what, other, (waited, 1), called)
