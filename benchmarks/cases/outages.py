"""How long does a failure keep writers, and users of names, waiting?

A client does one thing after the other without a pause: writers append 16 KiB and flush, users of
names make directories. Then something fails. The outage is the longest time without a success,
from the failure on until something succeeds that was begun after it. Default settings throughout.

    writer/kill     SIGKILL of a DataNode that holds a replica of the block being written (of four)
    writer/rebuild  the same of a file with `WriteOptions("rebuild")`, without a replacement
    writer/copy     the same with a replacement, which fetches the 64 MiB of the block
    writer/stop     SIGSTOP of it: it stays connected and says nothing
    writer/cut      its bytes are held back in both directions: nobody can tell why it is silent
    writer/slow     one `fdatasync` of it takes 1.5 s: no failure, and the block goes on
    names/kill      SIGKILL of the NameNode that leads (of three)
    names/stop      SIGSTOP of it
    names/cut       its bytes are held back, those of its own connections, too

For writers it also counts the blocks that a failure ended: a slow disk or a rebuild should end
none. Services of the tests hold bytes back and slow disks: those kinds need a checkout.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from benchmarks.cases.namenodes import wait_level
from benchmarks.host import progress
from benchmarks.suite import Bench, case
from paxosblock.base.replacement import OnFailure, Replacement, WriteOptions
from paxosblock.base.units import GIB, KIB, MIB
from paxosblock.client import AsyncClient
from paxosblock.client.writing.file_writer import AsyncFileWriter
from paxosblock.client.writing.receipt import FlushReceipt
from paxosblock.local.cluster import LocalCluster
from paxosblock.local.node_process import Node
from paxosblock.protocol.types import StorageId

PIECE: Final = bytes(16 * KIB)
DATANODES: Final = 4
NAMENODES: Final = 3
GIVE_UP_S: Final = 120.0
SLOW_S: Final = 1.5


class Activity:
    """A client that does one thing after the other, and the times of its successes."""

    def __init__(self, act: Callable[[], Awaitable[object]]) -> None:
        """`act` does one thing."""
        self._act = act
        self.done: list[tuple[float, float]] = []
        """Begin and end of every success."""
        self._progress = asyncio.Event()
        self._ended = False

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Act for the length of the `with`; an error of the client comes out of it."""
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _run(self) -> None:
        try:
            while True:
                begun = time.perf_counter()
                await self._act()
                self.done.append((begun, time.perf_counter()))
                self._progress.set()
        finally:
            self._ended = True
            self._progress.set()

    async def success_begun_after(self, instant: float, until: Callable[[], bool]) -> None:
        """Wait until `until` holds and a success was begun after this instant, or it cannot act."""
        async with asyncio.timeout(GIVE_UP_S):
            while not (self._ended or (self.done and self.done[-1][0] > instant and until())):
                self._progress.clear()
                await self._progress.wait()

    def longest_wait_s(self, since: float) -> float:
        """Return the longest time without a success since that instant."""
        ends = [end for _, end in self.done if end > since]
        return max(end - start for start, end in zip([since, *ends], ends, strict=False))


@dataclass(frozen=True)
class Fails:
    """One way to fail: `fail` causes it, `heal` undoes it; `is_over` is True after its effect."""

    fail: Callable[[], object]
    heal: Callable[[], object]
    is_over: Callable[[], bool] = lambda: True


async def outage_s(activity: Activity, fault: Fails) -> float:
    """Let it fail under an activity, and return the longest time without a success."""
    async with activity.running():
        await activity.success_begun_after(0.0, lambda: len(activity.done) >= 3)
        begun = time.perf_counter()
        await asyncio.to_thread(fault.fail)
        await activity.success_begun_after(time.perf_counter(), fault.is_over)
    return activity.longest_wait_s(begun)


# -- writers ---------------------------------------------------------------------------------------


Failure = Callable[[LocalCluster, Node], Fails]


async def measure_writers(
    cluster: LocalCluster, kind: Kind, count: int, filled_bytes: int
) -> tuple[list[float], int]:
    """Return the outages of so many failures, each of which meets one of the DataNodes of the block
    being written, and how many blocks they ended."""
    outages, ended = list[float](), 0
    async with AsyncClient(cluster.url) as fs:
        for number in range(count):
            await asyncio.to_thread(cluster.wait_registered)
            async with fs.create(
                f"/outage-{number}",
                overwrite=True,
                replication=3,
                options=WriteOptions(kind.on_failure, kind.replacement),
            ) as out:
                if kind.replacement is Replacement.ALWAYS:
                    await out.write(bytes(filled_bytes))
                before = await flushed(out)
                victim = await asyncio.to_thread(owner_of, cluster, before.replicas[0])
                fault = kind.failure(cluster, victim)
                try:
                    outages.append(await outage_s(Activity(lambda: flushed(out)), fault))  # at once
                finally:
                    await asyncio.to_thread(fault.heal)
                ended += (await flushed(out)).block != before.block
    return outages, ended


async def flushed(out: AsyncFileWriter) -> FlushReceipt:
    """One piece more, acknowledged."""
    await out.write(PIECE)
    return await out.hflush()


def owner_of(cluster: LocalCluster, storage: StorageId) -> Node:
    """Return the DataNode that a storage belongs to."""
    (address,) = (
        node.address
        for node in cluster.status().datanodes
        if storage in (volume.storage for volume in node.storages)
    )
    return next(node for node in cluster.datanodes if node.address == address)


# -- names -----------------------------------------------------------------------------------------


async def measure_names(cluster: LocalCluster, kind: Kind, count: int) -> list[float]:
    """Return the outages of clients that make directories while the NameNode that leads fails so
    many times."""
    outages = list[float]()
    async with AsyncClient(cluster.url) as fs:
        names = (f"/directory-{number}" for number in itertools.count())
        for _ in range(count):
            await asyncio.to_thread(wait_level, cluster)
            victim = await asyncio.to_thread(cluster.wait_leader)
            fault = kind.failure(cluster, victim)
            try:
                outages.append(await outage_s(Activity(lambda: fs.mkdirs(next(names))), fault))
            finally:
                await asyncio.to_thread(fault.heal)
    return outages


# -- all of it -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """The failures and the clients that they keep waiting."""

    failure: Failure
    service: str = ""
    """The class of the tests' services that makes a cluster which can fail so."""
    namenodes: int = 1
    on_failure: OnFailure = OnFailure.SEAL
    replacement: Replacement | None = None


def kill(_: LocalCluster, node: Node) -> Fails:
    """SIGKILL, and a start."""
    return Fails(node.kill, node.start)


def stop(_: LocalCluster, node: Node) -> Fails:
    """SIGSTOP and SIGCONT."""
    return Fails(node.pause, node.resume)


def cut(cluster: Any, node: Node) -> Fails:
    """A partition, and its end."""
    held_back = contextlib.ExitStack()
    return Fails(lambda: held_back.enter_context(cluster.cut(node)), held_back.close)


def slow(cluster: Any, node: Node) -> Fails:
    """One sync of a block file that takes long."""
    faults = import_module("tests.disks.faults")
    fault = faults.Fault(faults.SYNCS, path="/rbw/", delay_s=SLOW_S, times=1)
    return Fails(
        lambda: cluster.break_disk(node, fault),
        lambda: cluster.mend_disk(node),
        lambda: bool(cluster.met(node)),
    )


REBUILD: Final = OnFailure.REBUILD
CUT: Final = "tests.services.partitions.PartitionedCluster"
FAULTY: Final = "tests.services.faulty_node.FaultyCluster"
KINDS: Final = {
    "writer/kill": Kind(kill),
    "writer/rebuild": Kind(kill, on_failure=REBUILD, replacement=Replacement.NEVER),
    "writer/copy": Kind(kill, on_failure=REBUILD, replacement=Replacement.ALWAYS),
    "writer/stop": Kind(stop),
    "writer/cut": Kind(cut, CUT),
    "writer/slow": Kind(slow, FAULTY),
    "names/kill": Kind(kill, namenodes=NAMENODES),
    "names/stop": Kind(stop, namenodes=NAMENODES),
    "names/cut": Kind(cut, CUT, NAMENODES),
}
SMALL: Final = {"writer/kill", "writer/cut", "writer/slow"}
"""One kind on each class of clusters."""
GOALS_MS: Final = {kind: {"p99": 1000.0} for kind in KINDS if kind.endswith(("stop", "cut"))}


def cluster_of(kind: Kind) -> type[LocalCluster] | None:
    """Return the class that makes clusters for a kind; None when this is no checkout."""
    if not kind.service:
        return LocalCluster
    module, _, name = kind.service.rpartition(".")
    try:
        found: type[LocalCluster] = getattr(import_module(module), name)
    except ImportError:
        return None
    return found


@case("outages", usual=False, room_bytes=4 * GIB)
async def outages(bench: Bench) -> None:
    """How long does a failure keep writers, and users of names, waiting?"""
    for name, kind in KINDS.items():
        if bench.options.small and name not in SMALL:
            continue
        made = cluster_of(kind)
        if made is None:
            progress(f"{bench.case}: {name} is left out: it needs a checkout")
            continue
        cluster = await bench.cluster(DATANODES, kind.namenodes, kind=made)
        for number in bench.rounds:
            count, ended = bench.size(10, 1), 0
            if kind.namenodes > 1:
                times = await measure_names(cluster, kind, count)
            else:
                times, ended = await measure_writers(cluster, kind, count, bench.size(64, 1) * MIB)
                bench.emit(f"{name}, blocks ended of {count}", ended, "blocks", number)
            bench.emit_times(name, times, number, goals_ms=GOALS_MS.get(name))
