"""How long does a failure keep writers, and users of names, waiting?

    python -m benchmarks.outages [KIND ...] [--count 30] [--delay 1.5] [--filled 64] [--json]

A client does one thing after the other without a pause: writers append 16 KiB and flush, users of
names make directories. Then something fails. The outage is the longest time without a success,
from the failure on until something succeeds that was begun after it. Default settings throughout.

    writer/kill     SIGKILL of a DataNode that holds a replica of the block being written (of four)
    writer/rebuild  the same of a file with on_failure="rebuild", without a replacement
    writer/copy     the same with a replacement, which fetches the `--filled` MiB of the block
    writer/stop     SIGSTOP of it: it stays connected and says nothing
    writer/cut      its bytes are held back in both directions: nobody can tell why it is silent
    writer/slow     one `fdatasync` of it takes `--delay` seconds: no failure, and the block goes on
    names/kill      SIGKILL of the NameNode that leads (of three)
    names/stop      SIGSTOP of it
    names/cut       its bytes are held back, those of its own connections, too

Of writers the blocks that were ended are counted, too: none should be by a slow disk or a rebuild.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.namenodes import wait_level
from benchmarks.stats import machine, percentile, say
from paxosblock import AsyncClient, LocalCluster, loop
from paxosblock.client.file_writer import AsyncFileWriter
from paxosblock.client.receipt import FlushReceipt
from paxosblock.local.node_process import Node
from paxosblock.protocol.types import StorageId
from paxosblock.replacement import OnFailure, Replacement
from paxosblock.units import KIB, MIB
from tests.disks.faults import SYNCS, Fault
from tests.services.faulty_node import FaultyCluster
from tests.services.partitions import PartitionedCluster

PIECE = bytes(16 * KIB)
DATANODES = 4
NAMENODES = 3
GIVE_UP_S = 120.0


@dataclass
class Results:
    """The results of one kind of failure."""

    outages_s: list[float] = field(default_factory=list)
    blocks_ended: int = 0

    def summary(self) -> dict[str, float]:
        """Milliseconds, and counts."""
        shares = {"p50_ms": 0.5, "p99_ms": 0.99, "max_ms": 1.0}
        found: dict[str, float] = {
            name: round(percentile(self.outages_s, share) * 1e3, 1)
            for name, share in shares.items()
        }
        return {"count": len(self.outages_s), **found, "blocks_ended": self.blocks_ended}


class Activity:
    """A client that does one thing after the other, and when each of them succeeded."""

    def __init__(self, act: Callable[[], Awaitable[object]]) -> None:
        """`act` is what it does."""
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
        """The longest time without a success since then."""
        ends = [end for _, end in self.done if end > since]
        return max(end - start for start, end in zip([since, *ends], ends, strict=False))


@dataclass(frozen=True)
class Fails:
    """One way to fail: `fail` makes it so, `heal` undoes it; `is_over` once it had its effect."""

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


Failure = Callable[[LocalCluster, Node, argparse.Namespace], Fails]


async def measure_writers(
    cluster: LocalCluster, kind: Kind, options: argparse.Namespace, results: Results
) -> None:
    """A file for each failure, which meets one of the DataNodes of the block being written."""
    filled_bytes = options.filled * MIB if kind.replacement is Replacement.ALWAYS else 0
    async with AsyncClient(cluster.url) as fs:
        for number in range(options.count):
            await asyncio.to_thread(cluster.wait_registered)
            async with await fs.create(
                f"/outage-{number}",
                replication=3,
                on_failure=kind.on_failure,
                replace_on_failure=kind.replacement,
            ) as out:
                await out.write(bytes(filled_bytes))
                before = await flushed(out)
                victim = await asyncio.to_thread(owner_of, cluster, before.replicas[0])
                fault = kind.failure(cluster, victim, options)
                try:
                    results.outages_s.append(
                        await outage_s(Activity(lambda: flushed(out)), fault)  # at once
                    )
                finally:
                    await asyncio.to_thread(fault.heal)
                results.blocks_ended += (await flushed(out)).block != before.block
            progress(number, results)


async def flushed(out: AsyncFileWriter) -> FlushReceipt:
    """One piece more, acknowledged."""
    await out.write(PIECE)
    return await out.hflush()


def owner_of(cluster: LocalCluster, storage: StorageId) -> Node:
    """The DataNode that a storage belongs to."""
    (address,) = (
        node.address
        for node in cluster.status().datanodes
        if storage in (volume.storage for volume in node.storages)
    )
    return next(node for node in cluster.datanodes if node.address == address)


# -- names -----------------------------------------------------------------------------------------


async def measure_names(
    cluster: LocalCluster, kind: Kind, options: argparse.Namespace, results: Results
) -> None:
    """Directories, while the NameNode that leads fails again and again."""
    async with AsyncClient(cluster.url) as fs:
        names = (f"/directory-{number}" for number in count())
        for number in range(options.count):
            await asyncio.to_thread(wait_level, cluster)
            victim = await asyncio.to_thread(cluster.wait_leader)
            fault = kind.failure(cluster, victim, options)
            try:
                results.outages_s.append(
                    await outage_s(Activity(lambda: fs.mkdirs(next(names))), fault)
                )
            finally:
                await asyncio.to_thread(fault.heal)
            progress(number, results)


# -- all of it -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """The thing that fails, and who waits for it."""

    failure: Failure
    cluster: Callable[..., AbstractContextManager[LocalCluster]]
    namenodes: int = 1
    on_failure: OnFailure = OnFailure.SEAL
    replacement: Replacement | None = None

    async def measure(self, options: argparse.Namespace, results: Results) -> None:
        """Fill in `results`, on a cluster of its own."""
        measure = measure_names if self.namenodes > 1 else measure_writers
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            path = Path(folder) / "cluster"
            with self.cluster(DATANODES, self.namenodes, path=path) as cluster:
                await measure(cluster, self, options, results)


def kill(_: LocalCluster, node: Node, __: argparse.Namespace) -> Fails:
    """SIGKILL, and a start."""
    return Fails(node.kill, node.start)


def stop(_: LocalCluster, node: Node, __: argparse.Namespace) -> Fails:
    """SIGSTOP and SIGCONT."""
    return Fails(node.pause, node.resume)


def cut(cluster: LocalCluster, node: Node, _: argparse.Namespace) -> Fails:
    """A partition, and its end."""
    assert isinstance(cluster, PartitionedCluster)
    held_back = contextlib.ExitStack()
    return Fails(lambda: held_back.enter_context(cluster.cut(node)), held_back.close)


def slow(cluster: LocalCluster, node: Node, options: argparse.Namespace) -> Fails:
    """One sync of a block file that takes long."""
    assert isinstance(cluster, FaultyCluster)
    fault = Fault(SYNCS, path="/rbw/", delay_s=options.delay, times=1)
    return Fails(
        lambda: cluster.break_disk(node, fault),
        lambda: cluster.mend_disk(node),
        lambda: bool(cluster.met(node)),
    )


KINDS = {
    "writer/kill": Kind(kill, LocalCluster),
    "writer/rebuild": Kind(
        kill, LocalCluster, on_failure=OnFailure.REBUILD, replacement=Replacement.NEVER
    ),
    "writer/copy": Kind(
        kill, LocalCluster, on_failure=OnFailure.REBUILD, replacement=Replacement.ALWAYS
    ),
    "writer/stop": Kind(stop, LocalCluster),
    "writer/cut": Kind(cut, PartitionedCluster),
    "writer/slow": Kind(slow, FaultyCluster),
    "names/kill": Kind(kill, LocalCluster, NAMENODES),
    "names/stop": Kind(stop, LocalCluster, NAMENODES),
    "names/cut": Kind(cut, PartitionedCluster, NAMENODES),
}


def progress(number: int, results: Results) -> None:
    """Print one line on standard error, for the person who waits: a run takes minutes."""
    sys.stderr.write(f"  {number + 1}: {results.outages_s[-1] * 1e3:.0f} ms\n")
    sys.stderr.flush()


def line(name: str, summary: dict[str, Any]) -> str:
    """One row of the table."""
    return (
        f"{name:<14} p50 {summary['p50_ms']:9.1f} ms   p99 {summary['p99_ms']:9.1f} ms   "
        f"max {summary['max_ms']:9.1f} ms   of {summary['count']}; "
        f"{summary['blocks_ended']} blocks ended"
    )


async def run(options: argparse.Namespace) -> None:
    """Measure one kind after the other, and print each as soon as it is done."""
    found: dict[str, dict[str, float]] = {}
    if not options.json:
        say(machine())
    for name in options.kinds or KINDS:
        sys.stderr.write(f"{name}, {options.count} times\n")
        results = Results()
        await KINDS[name].measure(options, results)
        found[name] = results.summary()
        if not options.json:
            say(line(name, found[name]))
    if options.json:
        say(json.dumps({"machine": machine(), "kinds": found}, indent=2))


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)}")
    parser.add_argument("--count", type=int, default=30, help="failures of each kind")
    parser.add_argument("--delay", type=float, default=1.5, help="of a slow sync, in seconds")
    parser.add_argument("--filled", type=int, default=64, help="MiB in the block of writer/copy")
    parser.add_argument("--folder", type=Path, help="where the nodes write")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    options = parser.parse_args()
    for kind in options.kinds:
        if kind not in KINDS:
            parser.error(f"no kind {kind!r}; there are {', '.join(KINDS)}")
    if options.count < 1:
        parser.error("--count is at least 1")
    loop.run(run(options))


if __name__ == "__main__":
    main()
