"""How fast are three NameNodes, asked as their users ask them: through RPC, as processes?

    python -m benchmarks.namenodes [--seconds 5] [--kills 30] [--files 50000 100000 200000]
                                   [--namenodes 3] [--only speed,failover,files] [--record]

`--record` keeps what was measured at growing numbers of files for the picture of `growth.py`.

A LocalCluster on loopback, `fdatasync` on, default settings. The clients share one process, one
connection each, and ask one after the other (`call_load.py`). Beside the rates stands the processor
time of each process for one operation: unlike a rate it says the same on a busy machine.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import date
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from benchmarks.growth import Point, record
from benchmarks.stats import (
    latencies,
    machine,
    percentile,
    processor_seconds,
    resident_mib,
    say,
)
from paxosblock import AsyncClient, LocalCluster, loop
from paxosblock.api.methods import Method, Once
from paxosblock.api.namenode import (
    CLOSE_FILE,
    CREATE,
    MKDIRS,
    RENAME,
    STAT,
    CloseFile,
    CreateFile,
    MakeDirectories,
    PathRequest,
    Rename,
)
from paxosblock.bench.call_load import Load, connect, run_load
from paxosblock.errors import PaxosBlockError
from paxosblock.local.node_process import Node, wait_until
from paxosblock.protocol.types import Durability, WriterId
from paxosblock.units import MIB

CLIENTS = 64


@dataclass(frozen=True, slots=True)
class Usage:
    """Processor seconds of the leader, of the average follower, and of the clients."""

    leader: float
    follower: float
    clients: float

    def since(self, before: Usage, operations: int) -> str:
        """Microseconds of each for one operation."""
        return "  ".join(
            f"{name} {(getattr(self, name) - getattr(before, name)) / operations * 1e6:.0f} us"
            for name in ("leader", "follower", "clients")
        )


def usage(cluster: LocalCluster, leader: Node) -> Usage:
    """Processor time up to now."""
    followers = [node for node in cluster.namenodes if node is not leader]
    total = sum(processor_seconds(node.pid) for node in followers)
    return Usage(
        processor_seconds(leader.pid), total / max(1, len(followers)), processor_seconds(None)
    )


def report(label: str, load: Load, cost: str = "") -> None:
    """One line of the table."""
    p50, p99 = (percentile(load.latencies, part) * 1e3 for part in (0.5, 0.99))
    say(f"{label:<34} {load.rate:>7,.0f} /s   p50 {p50:6.2f} ms   p99 {p99:6.2f} ms   {cost}")


# -- speed -----------------------------------------------------------------------------------------


def new_directories(run: str, client: int) -> Iterator[MakeDirectories]:
    """A directory of its own, and more and more in it. Named, as the client's own requests are."""
    return (
        MakeDirectories(f"/{run}/{client}/{number}", once=Once(f"{run}-{client}", number))
        for number in count()
    )


def new_files(run: str, client: int) -> Iterator[CreateFile]:
    """Files in a directory of its own; each has a writer of its own, as a client's have."""
    for number in count():
        writer, once = WriterId(f"{run}-{client}-{number}"), Once(f"{run}-{client}", number)
        path = f"/{run}/{client}/{number}"
        yield CreateFile(path, writer, False, 3, 128 * MIB, Durability.DISK, once=once)


def known_paths(run: str, client: int) -> Iterator[PathRequest]:
    """One path again and again."""
    return (PathRequest(f"/{run}/{client}") for _ in count())


async def measure_speed(cluster: LocalCluster, options: argparse.Namespace) -> None:
    """Rates with 64 clients, latencies with one."""
    leader = cluster.wait_leader()
    for clients in (1, CLIENTS):
        kinds: tuple[tuple[Method[Any, Any], Callable[[int], Iterator[Any]]], ...] = (
            (MKDIRS, partial(new_directories, f"d{clients}")),
            (CREATE, partial(new_files, f"f{clients}")),
            (STAT, partial(known_paths, f"d{clients}")),
        )
        for method, requests in kinds:
            before = usage(cluster, leader)
            load = await run_load(
                leader.address, method, requests, clients=clients, seconds=options.seconds
            )
            cost = usage(cluster, leader).since(before, len(load.latencies))
            report(f"{method.name}, {clients} client(s)", load, cost)


# -- fail-over -------------------------------------------------------------------------------------


async def measure_fail_over(cluster: LocalCluster, options: argparse.Namespace) -> None:
    """Measure from SIGKILL of the leader to the next change that a client is told of."""
    durations = []
    async with AsyncClient(cluster.url) as fs:
        for number in range(options.kills):
            await asyncio.to_thread(wait_level, cluster)
            victim = await asyncio.to_thread(cluster.wait_leader)
            await fs.mkdirs(f"/before/{number}")
            begun = time.perf_counter()
            await asyncio.to_thread(victim.kill)
            await fs.mkdirs(f"/after/{number}")
            durations.append(time.perf_counter() - begun)
            await asyncio.to_thread(victim.start)
    say(latencies(f"leader killed to next change, {options.kills} kills", durations))


def wait_level(cluster: LocalCluster) -> None:
    """Wait until every NameNode has applied what the leader has committed."""

    def level() -> bool:
        leader = cluster.standing(cluster.wait_leader())
        others = [cluster.standing(node) for node in cluster.namenodes]
        return leader is not None and all(
            each is not None and each.applied_index >= leader.commit_index for each in others
        )

    wait_until(level, 120, "the NameNodes did not come level")


# -- many files ------------------------------------------------------------------------------------


async def fill(address: str, first: int, end: int) -> None:
    """Make the files from number `first` to `end`, each of them empty and closed."""
    numbers = iter(range(first, end))

    async def client() -> None:
        connection = await connect(address)
        for number in numbers:
            writer = WriterId(f"filler-{number}")
            path = f"/files/{number // 1000}/part-{number:08d}.parquet"
            request = CreateFile(
                path, writer, False, 3, 128 * MIB, Durability.DISK, owner="somebody"
            )
            file = await connection.call(CREATE, request)
            await connection.call(CLOSE_FILE, CloseFile(file.file_id, writer))
        connection.close()

    await asyncio.gather(*(client() for _ in range(CLIENTS)))


def back_and_forth(one: str) -> Iterator[Rename]:
    """Changes that make the log longer and the catalog no larger."""
    other = f"{one}-again"
    for number in count():
        yield Rename(one, other) if number % 2 == 0 else Rename(other, one)


def metrics(node: Node) -> dict[str, float]:
    """Return what a node's /metrics shows, by name. Each look begins the longest stalls anew."""
    prefix = "paxosblock_namenode_"
    with urlopen(f"http://{node.address}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    pairs = (line.removeprefix(prefix).split() for line in lines if line.startswith(prefix))
    return {name: float(value) for name, value in pairs}


async def measure_files(cluster: LocalCluster, options: argparse.Namespace) -> None:
    """Memory, restart and the longest stall of the leader's loop at growing numbers of files."""
    leader = await asyncio.to_thread(cluster.wait_leader)
    empty_mib = resident_mib(leader.pid or 0)
    points: list[Point] = []
    there = 0
    for files in options.files:
        stalls(leader)
        begun = time.perf_counter()
        await fill(leader.address, there, files)
        rate = (files - there) / (time.perf_counter() - begun)
        filling = stalls(leader)
        grown_mib = resident_mib(leader.pid or 0) - empty_mib
        there = files
        say(f"{files:,} files, made and closed at {rate:,.0f} /s")
        say(f"    memory of the leader        {grown_mib * MIB / files:7.0f} bytes for each")
        say(f"    longest stall while filling {filling}")
        restart_s = await asyncio.to_thread(restart, cluster)
        say(f"    a follower restarted, level {restart_s:7.2f} s")
        points.append(Point(files, round(grown_mib, 1), round(restart_s, 2), filling.rounded_ms))
        leader = await asyncio.to_thread(restart_all, cluster)
        before, during = await snapshot_stalls(leader, f"/renamed/{files}")
        say(f"    longest stall under load    {before}")
        say(f"      and with a snapshot       {during}")
    if options.record:
        record(f"{date.today()}, {machine()}", points)


def restart(cluster: LocalCluster) -> float:
    """Kill a follower; return the seconds from its start until it has all that was committed."""
    leader = cluster.wait_leader()
    follower = next(node for node in cluster.namenodes if node is not leader)
    follower.kill()
    begun = time.perf_counter()
    follower.start()
    wait_level(cluster)
    return time.perf_counter() - begun


def restart_all(cluster: LocalCluster) -> Node:
    """Afterwards the next snapshot comes soon, however large the last one was."""
    for node in cluster.namenodes:
        node.kill()
    for node in cluster.namenodes:
        node.launch()
    for node in cluster.namenodes:
        node.wait_ready()
    return cluster.wait_leader()


@dataclass(frozen=True, slots=True, order=True)
class Stall:
    """The longest stall of an event loop: in processor time of its process, and as it was."""

    busy_ms: float
    late_ms: float

    @property
    def rounded_ms(self) -> float:
        """Return the processor time, as it is recorded."""
        return round(self.busy_ms, 1)

    def __str__(self) -> str:
        return f"{self.busy_ms:7.1f} ms of processor time, {self.late_ms:.1f} ms on this machine"


def stalls(node: Node) -> Stall:
    """The longest ones since the last look at the node's metrics."""
    seen = metrics(node)
    return Stall(seen["loop_busy_seconds"] * 1e3, seen["loop_stall_seconds"] * 1e3)


async def snapshot_stalls(leader: Node, folder: str) -> tuple[Stall, Stall]:
    """Longest stalls in seconds full of renames before the next snapshot, and with it."""
    paths = [f"{folder}/{client}" for client in range(16)]
    async with AsyncClient(leader.address) as fs:
        for path in paths:
            await fs.mkdirs(path)
    moves = [back_and_forth(path) for path in paths]
    seen, written = [], metrics(leader)["raft_snapshots_written"]
    while metrics(leader)["raft_snapshots_written"] == written:
        await run_load(leader.address, RENAME, moves.__getitem__, clients=16, seconds=1)
        seen.append(stalls(leader))
    return max(seen[:-1], default=seen[-1]), seen[-1]


# -- all of it -------------------------------------------------------------------------------------


QUESTIONS: dict[str, Callable[[LocalCluster, argparse.Namespace], Awaitable[None]]] = {
    "speed": measure_speed,
    "failover": measure_fail_over,
    "files": measure_files,
}


async def run(options: argparse.Namespace) -> None:
    """Start a cluster for each question."""
    say(f"{machine()}, {options.namenodes} NameNodes")
    for name in options.only.split(","):
        settings = {"namenode": {"snapshot_growth": "4MiB"}} if name == "files" else {}
        with (
            tempfile.TemporaryDirectory(dir=options.folder) as folder,
            LocalCluster(1, options.namenodes, Path(folder) / "c", settings=settings) as cluster,
        ):
            try:
                await QUESTIONS[name](cluster, options)
            except PaxosBlockError as error:  # such as an election that a busy machine caused
                say(f"{name}: stopped: {error}")


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--namenodes", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--files", type=int, nargs="+", default=[50_000, 100_000, 200_000])
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--folder", type=Path, help="where the nodes write")
    parser.add_argument("--only", default=",".join(QUESTIONS))
    loop.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
