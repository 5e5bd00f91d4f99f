"""A gateway's WebHDFS beside that of HDFS itself: one NameNode and three DataNodes each.

The load is Hadoop's own client in one JVM, with one file system at each side and a thread for each
caller; it makes the same requests of both, in turns. Nobody forces bytes to disk before they are
acknowledged; ours forces a block to disk at its end. A caller of HDFS is sent to a DataNode with
the bytes, one of ours brings them to the gateway, which is one process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from benchmarks import host
from benchmarks.cases.gateways import WithGateway
from benchmarks.peers.beside import emit_answer, peer, seconds_of
from benchmarks.peers.hdfs import Hdfs
from benchmarks.peers.processes import Answer
from benchmarks.record import OURS
from benchmarks.stats import counted
from benchmarks.suite import CLIENT, Bench, Spent, case
from paxosblock.base.units import GIB, KIB, MIB
from paxosblock.local.cluster import LocalCluster

BIG_BYTES: Final = 64 * MIB
CALLERS: Final = (1, 8)
IN_MEMORY: Final = {"client": {"durability": "memory"}}
"""Settings of the gateway: what HDFS does."""


@dataclass(frozen=True, slots=True)
class Side:
    """A server of WebHDFS."""

    address: str
    facts: dict[str, Any]
    pids: Callable[[], dict[str, list[int]]]
    """Its processes and that of the load, by role."""


@case("webhdfs-beside-hdfs", usual=False, room_bytes=8 * GIB)
async def webhdfs_beside_hdfs(bench: Bench) -> None:
    """How fast does a gateway write, read and tell of files, beside HDFS's own WebHDFS?"""
    async with peer(bench, Hdfs) as hdfs:
        cluster = await bench.cluster(settings=IN_MEMORY, kind=WithGateway)
        sides = (_ours(cluster, hdfs), Side(hdfs.web_address, hdfs.facts, hdfs.pids))
        for number in (0, *bench.rounds):  # the first is to warm up, and is not told
            for callers in CALLERS:
                for side in sides:
                    for what in ("write", "read", "stat"):
                        told = await _asked(bench, hdfs, side, what, (callers, number))
                        if number:
                            _emit(bench, side, what, told, (callers, number))


def _ours(cluster: LocalCluster, hdfs: Hdfs) -> Side:
    (gateway,) = cluster.gateways
    nodes = {"gateway": cluster.gateways, "NameNode": cluster.namenodes}
    nodes["DataNodes"] = cluster.datanodes

    def pids() -> dict[str, list[int]]:
        ours = {role: [each.pid or 0 for each in those] for role, those in nodes.items()}
        return {**ours, CLIENT: hdfs.pids()[CLIENT]}

    return Side(gateway.address, {"side": OURS}, pids)


async def _asked(
    bench: Bench, hdfs: Hdfs, side: Side, what: str, at: tuple[int, int]
) -> tuple[Answer, Spent]:
    """Return what the load measured at a side, and the processor time of all that took part."""
    callers, number = at
    await bench.quiet()
    pids = side.pids()
    before = {role: sum(map(host.processor_s, those)) for role, those in pids.items()}
    answer = await asyncio.to_thread(
        hdfs.ask, "web", at=side.address, what=what, run="web", clients=callers,
        seconds=seconds_of(bench, number), bytes=bench.size(BIG_BYTES, 4 * KIB),
    )  # fmt: skip
    spent = {role: sum(map(host.processor_s, those)) - before[role] for role, those in pids.items()}
    return answer, Spent(float(answer["seconds"]), spent)


def _emit(
    bench: Bench, side: Side, what: str, told: tuple[Answer, Spent], at: tuple[int, int]
) -> None:
    (answer, spent), (callers, number) = told, at
    if what == "stat":
        name = f"GETFILESTATUS, {counted(callers, 'client')}"
        emit_answer(bench, name, side, number, told, clients=callers)
        return
    name = f"{what} of 64 MiB, {counted(callers, 'client')}"
    total = int(answer["count"]) * bench.size(BIG_BYTES, 4 * KIB)
    bench.emit(
        name, total / MIB / spent.elapsed_s, "MiB/s", number,
        processor_s=spent.per(total / GIB), per="GiB", clients=callers, replicas=3, **side.facts,
    )  # fmt: skip
