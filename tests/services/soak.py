"""A cluster of real processes at work for long, of which some are killed; then what each still
holds:  python -m tests.services.soak --seconds 1200

Memory, descriptors, threads and disk of each process are measured at rest after a first round of
work, and again after the last one. Between the two they may grow by what the bounds allow, however
long that was. Some processes are never killed: what they hold has no other end.

A NameNode's table and journal take their room step by step (a cache of blocks, what waits in memory
for the next file of the table, up to 64 MiB of journal), so names are made and deleted before the
first measurement until they have it: `--names 800` thousand.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from paxosblock import Client, LocalCluster, Marker
from paxosblock.base.units import KIB, MIB
from paxosblock.config import ClientConfig, DataNodeConfig
from paxosblock.datanode.volumes.volume import STEP_THREADS
from paxosblock.errors import PaxosBlockError
from paxosblock.local.node_process import Node
from tests import secure
from tests.services.content import content
from tests.waiting import wait_until

CLIENTS: Final = 4
ROUND_FILES: Final = 12
FILE_BYTES: Final = 400 * KIB
CONFIG: Final = ClientConfig(
    chunk_size=32 * KIB, block_size=256 * KIB, rpc_timeout_s=2.0, retry_for_s=60.0
)
BACK_WITHIN_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Held:
    """The holdings of one process."""

    memory_bytes: int
    descriptors: int
    threads: int
    disk_bytes: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The length of one run, and how often a process is killed."""

    seed: int
    seconds: float
    kill_every_s: float
    thousands_of_names: int = 0


OF_DATANODES: Final = Held(
    memory_bytes=32 * MIB,
    descriptors=12,
    threads=DataNodeConfig().sync_threads_per_volume + STEP_THREADS,
    disk_bytes=24 * MIB,
)
"""A DataNode may hold so much more at rest than after the first round. All files are deleted then:
it keeps the last 64 block files open that it read, as long as they are there. Threads are begun
when they are needed and stay, up to this number for a volume: on a quiet machine the first round
needs few of them, while a later moment, at which the disk is slow, may need all."""
OF_NAMENODES: Final = replace(OF_DATANODES, memory_bytes=64 * MIB, threads=10, disk_bytes=160 * MIB)
"""The same for a NameNode, whose journal and table are cut short and merged now and then."""
THOUSAND: Final = 1000
NAME_BYTES: Final = 150


def held(node: Node) -> Held:
    """Return what a node holds now."""
    process = Path(f"/proc/{node.pid}")
    pages = int((process / "statm").read_text().split()[1])
    return Held(
        pages * os.sysconf("SC_PAGE_SIZE"),
        len(os.listdir(process / "fd")),
        len(os.listdir(process / "task")),
        sum(_size(file) for folder in node.volumes for file in folder.rglob("*")),
    )


def _size(file: Path) -> int:
    try:
        return file.stat().st_blocks * 512
    except FileNotFoundError:
        return 0  # it was deleted while we looked


def excess(first: Held, now: Held, bounds: Held) -> list[str]:
    """Return the figures that grew by more than `bounds`, in words."""
    names = [field.name for field in fields(Held)]
    rows = zip(names, astuple(first), astuple(now), astuple(bounds), strict=True)
    return [
        f"{name} grew from {before} to {after}, by more than {bound}"
        for name, before, after, bound in rows
        if after - before > bound
    ]


class Soak:
    """One run."""

    def __init__(self, cluster: LocalCluster, plan: Plan) -> None:
        self._cluster = cluster
        self._plan = plan
        self._rng = random.Random(plan.seed)
        self._mortal = (*cluster.namenodes[1:], *cluster.datanodes[1:])
        self._mistakes: list[str] = []
        self._paced = threading.Event()
        self.files = self.kills = 0

    def run(self) -> list[str]:
        """Work, kill and rest; return what is not as it should be."""
        plan = self._plan
        self._take_room(plan.thousands_of_names)
        self._work_until(time.monotonic(), kills=None)
        first = {node.name: held(node) for node in self._cluster.nodes}
        self._work_until(time.monotonic() + plan.seconds, kills=plan.kill_every_s)
        for node in self._cluster.nodes:
            bounds = OF_NAMENODES if node in self._cluster.namenodes else OF_DATANODES
            self._expect(node, first[node.name], bounds)
        return self._mistakes

    def _take_room(self, thousands: int) -> None:
        """Make and delete so many thousand names."""
        with Client(self._cluster.url, CONFIG) as fs:
            for each in range(thousands):
                folder = f"/room-{each}"
                names = (f"{folder}/{number:0{NAME_BYTES}}" for number in range(THOUSAND))
                fs.transact([Marker(name) for name in names])
                fs.delete(folder, recursive=True)

    def _expect(self, node: Node, first: Held, bounds: Held) -> None:
        try:
            wait_until(lambda: not excess(first, held(node), bounds), timeout_s=BACK_WITHIN_S)
        except AssertionError:
            told = "; ".join(excess(first, held(node), bounds))
            self._mistakes.append(f"{node.name} holds too much at rest: {told}")

    def _work_until(self, end_s: float, kills: float | None) -> None:
        workers = [
            threading.Thread(target=self._work, args=(number, end_s)) for number in range(CLIENTS)
        ]
        for worker in workers:
            worker.start()
        while kills is not None and time.monotonic() < end_s:
            self._paced.wait(min(kills, max(0.0, end_s - time.monotonic())))
            self._kill_one()
        for worker in workers:
            worker.join()

    def _kill_one(self) -> None:
        node = self._rng.choice(self._mortal)
        node.kill()
        node.start()
        self.kills += 1

    def _work(self, number: int, end_s: float) -> None:
        """Write, read and delete files, once at least, until it is time to end."""
        with Client(self._cluster.url, CONFIG) as fs:
            done = 0
            while done < ROUND_FILES or time.monotonic() < end_s:
                self._one_file(fs, f"/soak-{number}-{done}")
                done += 1
        self.files += done

    def _one_file(self, fs: Client, path: str) -> None:
        data = content(path, 0, FILE_BYTES)
        try:
            with fs.create(path, overwrite=True) as out:
                out.write(data[: FILE_BYTES // 2])
                out.hflush()
                out.write(data[FILE_BYTES // 2 :])
            with fs.open(path) as file:
                if file.read() != data:
                    self._mistakes.append(f"{path} is not what was written")
            fs.delete(path)
        except PaxosBlockError as error:
            self._mistakes.append(f"{path}: {error!r}")


def soak(folder: Path, plan: Plan, say: Callable[[str], object]) -> list[str]:
    """Run a cluster of three NameNodes and four DataNodes; return what was wrong."""
    with LocalCluster(4, 3, folder) as cluster:
        run = Soak(cluster, plan)
        mistakes = run.run()
        for node in cluster.nodes:
            say(f"{node.name}: {held(node)}")
        say(f"{run.files} files were written, read and deleted, {run.kills} processes killed")
    return mistakes


def main() -> int:
    """Run one soak; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=1200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kill-every", type=float, default=10, help="seconds")
    parser.add_argument("--names", type=int, default=800, help="thousands that are made before")
    secure.add_switch(parser)
    options = parser.parse_args()
    with TemporaryDirectory() as folder, secure.as_told(options):
        plan = Plan(options.seed, options.seconds, options.kill_every, options.names)
        mistakes = soak(Path(folder) / "c", plan, print)
    sys.stdout.writelines(f"{mistake}\n" for mistake in mistakes)
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(main())
