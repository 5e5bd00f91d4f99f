"""What do the audit log and the metrics cost those whom they tell of?"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from benchmarks.call_load import run_load
from benchmarks.cases.calls import Names
from benchmarks.host import TICKS_PER_S
from benchmarks.suite import DATANODE, LEADER, Bench, case
from paxosblock.api.namenode import MKDIRS, FileStatus, MakeDirectories
from paxosblock.base.durations import Durations
from paxosblock.client import AsyncClient
from paxosblock.namenode.audit import keep_audit, note_done, of_path

CLIENTS: Final = 8
CHUNKS: Final = 4000
CHUNK_BYTES: Final = 100
LINES: Final = 50_000
TOGETHER: Final = 8
"""Changes that share a turn of the loop."""
AUDIT_GOAL: Final = 3.0
"""Percent of the processor time that a mkdirs takes of a NameNode."""
NOTES: Final = 200_000
METRICS_GOAL: Final = 2.0
"""Percent of the processor time that a chunk takes of a DataNode."""


@case("audit")
async def audit(bench: Bench) -> None:
    """What does the audit log cost a NameNode, per mkdirs?

    How many changes share a turn and a sync differs from run to run by more than a line costs: so
    the lines are measured by themselves, in all threads that they take.
    """
    cluster = await bench.cluster(1, 1)
    for number in bench.rounds:
        requests = Names(f"audit-{number}").new_directories
        address = cluster.namenode.address
        async with bench.measured(cluster) as spent:
            load = await run_load(address, MKDIRS, requests, clients=CLIENTS, seconds=bench.seconds)
        call_s = max(spent.processor_s[LEADER], 1 / TICKS_PER_S) / len(load.latencies)
        async with AsyncClient(cluster.url, cluster.client_config) as fs:
            made = await fs.stat("/")
        line_s = await _line_s(bench.folder / "audit.log", made, bench.size(LINES, 100))
        bench.emit("a mkdirs, processor time of the NameNode", call_s * 1e6, "us", number)
        bench.emit("its line of the audit log", line_s * 1e6, "us", number)
        bench.emit("the share of the line", line_s / call_s * 100, "%", number, goal=AUDIT_GOAL)


async def _line_s(file: Path, made: FileStatus, lines: int) -> float:
    """Return the seconds of a processor for one line, written to the file."""
    find, request = of_path("mkdirs"), MakeDirectories("/user/somebody/a/directory")
    async with AsyncExitStack() as stack:
        keep_audit(stack, file, 1 << 30, 2)
        begun_s = time.process_time()
        for each in range(lines):
            note_done(find, request, made)
            if each % TOGETHER == 0:
                await asyncio.sleep(0)
    return (time.process_time() - begun_s) / lines


@case("metrics")
async def metrics(bench: Bench) -> None:
    """What do the metrics of a chunk cost a DataNode, where chunks are small and alone?"""
    cluster = await bench.cluster(1, 1)
    chunks = bench.size(CHUNKS, 10)
    async with AsyncClient(cluster.url, cluster.client_config) as fs:
        for number in bench.rounds:
            async with (
                bench.measured(cluster) as spent,
                fs.create(f"/chunks-{number}", replication=1) as file,
            ):
                for _ in range(chunks):
                    await file.write(b"x" * CHUNK_BYTES)
                    await file.hflush()
            # A few chunks take less than the clock of processor time shows.
            chunk_s = max(spent.processor_s[DATANODE], 1 / TICKS_PER_S) / chunks
            noted_s = 2 * await asyncio.to_thread(_noting_s, bench.size(NOTES, 100))
            bench.emit("a chunk, processor time of its DataNode", chunk_s * 1e6, "us", number)
            share = noted_s / chunk_s * 100
            bench.emit("metrics of it: its vote, its sync", noted_s * 1e6, "us", number)
            bench.emit("their share", share, "%", number, goal=METRICS_GOAL)


def _noting_s(times: int) -> float:
    """Return the seconds that it takes to look at the clock twice and count a duration."""
    durations, clock = Durations(), time.perf_counter
    begun_s = time.process_time()
    for _ in range(times):
        came_s = clock()
        durations.note(clock() - came_s)
    return (time.process_time() - begun_s) / times
