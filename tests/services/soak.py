"""A cluster of real processes at work for long, of which some are killed; then what each still
holds:  python -m tests.services.soak --seconds 1200

Memory, descriptors, threads and disk of each process are measured at rest after a first round of
work, and again after the last one. Between the two they may grow by what `BOUNDS` allows, however
long that was. Some processes are never killed: what they hold has no other end.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from paxosblock import Client, LocalCluster
from paxosblock.config import ClientConfig
from paxosblock.errors import PaxosBlockError
from paxosblock.local.node_process import Node
from paxosblock.units import KIB, MIB
from tests.services.content import content
from tests.waiting import wait_until

CLIENTS: Final = 4
ROUND_FILES: Final = 12
FILE_BYTES: Final = 400 * KIB
CONFIG: Final = ClientConfig(
    chunk_size_bytes=32 * KIB, block_size_bytes=256 * KIB, rpc_timeout_s=2.0, retry_for_s=60.0
)
BACK_WITHIN_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Held:
    """The holdings of one process."""

    memory_bytes: int
    descriptors: int
    threads: int
    disk_bytes: int


BOUNDS: Final = Held(memory_bytes=32 * MIB, descriptors=12, threads=10, disk_bytes=24 * MIB)
"""A process may hold so much more at rest than after the first round. All files are deleted then: a
DataNode keeps the last 64 block files open that it read, as long as they are there. Threads are
begun when they are needed, up to a number for each volume, and stay; a journal is cut short now and
then."""


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


def excess(first: Held, now: Held) -> list[str]:
    """Return the figures that grew by more than is allowed, in words."""
    names = [field.name for field in fields(Held)]
    rows = zip(names, astuple(first), astuple(now), astuple(BOUNDS), strict=True)
    return [
        f"{name} grew from {before} to {after}, by more than {bound}"
        for name, before, after, bound in rows
        if after - before > bound
    ]


class Soak:
    """One run."""

    def __init__(self, cluster: LocalCluster, seed: int) -> None:
        self._cluster = cluster
        self._rng = random.Random(seed)
        self._mortal = (*cluster.namenodes[1:], *cluster.datanodes[1:])
        self._mistakes: list[str] = []
        self._paced = threading.Event()
        self.files = self.kills = 0

    def run(self, seconds: float, kill_every_s: float) -> list[str]:
        """Work, kill and rest; return what is not as it should be."""
        self._work_until(time.monotonic(), kills=None)
        first = {node.name: held(node) for node in self._cluster.nodes}
        self._work_until(time.monotonic() + seconds, kills=kill_every_s)
        for node in self._cluster.nodes:
            self._expect(node, first[node.name])
        return self._mistakes

    def _expect(self, node: Node, first: Held) -> None:
        try:
            wait_until(lambda: not excess(first, held(node)), timeout_s=BACK_WITHIN_S)
        except AssertionError:
            told = "; ".join(excess(first, held(node)))
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


def soak(
    folder: Path, seed: int, seconds: float, kill_every_s: float, say: Callable[[str], object]
) -> list[str]:
    """Run a cluster of three NameNodes and four DataNodes; return what was wrong."""
    with LocalCluster(4, 3, folder) as cluster:
        run = Soak(cluster, seed)
        mistakes = run.run(seconds, kill_every_s)
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
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        mistakes = soak(
            Path(folder) / "c", options.seed, options.seconds, options.kill_every, print
        )
    sys.stdout.writelines(f"{mistake}\n" for mistake in mistakes)
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(main())
