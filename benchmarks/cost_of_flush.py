"""The processor time of one durable flush: client, DataNodes, and the kernel's own threads.

    python -m benchmarks.cost_of_flush [--writers 20] [--flushes 400] [--rounds 3]

So many writers of one client write 1 KiB and flush it, again and again, to three DataNodes on one
disk. Wall time says nothing on a machine with other work, and the count of flushes is fixed. The
kernel's threads bring what was written to the disk, that of other programs, too.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path
from typing import Final

from paxosblock.client import AsyncClient
from paxosblock.client.writing.file_writer import AsyncFileWriter
from paxosblock.local.cluster import LocalCluster

PIECE: Final = bytes(1024)
WARMING: Final = 20
"""Flushes of each writer that are not counted."""
KERNEL_THREADS: Final = ("kworker", "jbd2")


def spent_ns(process: Path) -> int:
    """Return the processor time of all threads of a process in /proc."""
    threads = process.glob("task/*/schedstat")
    return sum(int(each.read_text(encoding="ascii").split()[0]) for each in threads)


def kernel_ns() -> dict[str, int]:
    """Return the processor time of each thread of the kernel that writes and syncs files."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            name = (process / "comm").read_text(encoding="utf-8")
            if name.startswith(KERNEL_THREADS):
                found[process.name] = spent_ns(process)
        except OSError:  # it has ended
            continue
    return found


async def flush(out: AsyncFileWriter, count: int) -> None:
    """Write and flush so many times."""
    for _ in range(count):
        await out.write(PIECE)
        await out.hflush()


async def one_round(fs: AsyncClient, cluster: LocalCluster, writers: int, flushes: int) -> str:
    """Return the line of a round: microseconds of a flush."""
    outs = [
        await fs.create(f"/flushes/{n}", durability="disk", overwrite=True) for n in range(writers)
    ]
    await asyncio.gather(*(flush(out, WARMING) for out in outs))
    processes = [Path(f"/proc/{pid}") for pid in (os.getpid(), *(n.pid for n in cluster.datanodes))]
    before, kernel = [spent_ns(each) for each in processes], kernel_ns()
    await asyncio.gather(*(flush(out, flushes) for out in outs))
    client_ns, *nodes_ns = (spent_ns(each) - ns for each, ns in zip(processes, before, strict=True))
    threads_ns = sum(ns - kernel.get(each, 0) for each, ns in kernel_ns().items())
    for out in outs:
        await out.close()
    client_us, nodes_us, threads_us = (
        ns / 1000 / writers / flushes for ns in (client_ns, sum(nodes_ns), threads_ns)
    )
    return (
        f"client {client_us:.0f} us, three DataNodes {nodes_us:.0f} us, "
        f"threads of the kernel {threads_us:.0f} us; load {os.getloadavg()[0]:.0f}\n"
    )


async def main() -> None:
    """Print a line for each round."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--writers", type=int, default=20)
    parser.add_argument("--flushes", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    with LocalCluster(datanodes=3) as cluster:
        async with AsyncClient(cluster.url) as fs:
            for _ in range(asked.rounds):
                sys.stdout.write(await one_round(fs, cluster, asked.writers, asked.flushes))
                sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main())
