"""What do a thousand idle and two hundred busy connections do to a gateway, and to others at it?

All are of this process, which takes its share of the same processors. Each busy one writes a file
through WebHDFS, reads it back, and begins again; one that is asked to try again does so. Meanwhile
a process of its own asks for the status of the root, over and over.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import multiprocessing
import time
from collections.abc import AsyncIterator
from concurrent.futures import ProcessPoolExecutor
from http import HTTPStatus
from typing import Any, Final

import aiohttp

from benchmarks.host import most_resident_bytes, resident_bytes
from benchmarks.suite import Bench, case
from paxosblock.config import GatewayConfig
from paxosblock.host.user import claimed_user
from paxosblock.local.cluster import LocalCluster

IDLE: Final = 1000
BUSY: Final = 200
FILE_BYTES: Final = 4 << 20
WITHIN_S: Final = 120.0
"""Seconds that a request may take in such a crowd."""


class WithGateway(LocalCluster):
    """A cluster with one gateway."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, gateways=1, **options)


@case("gateway-crowd")
async def gateway_crowd(bench: Bench) -> None:
    """What do 1,000 idle and 200 busy connections cost a gateway in memory, and others in time?"""
    idle, busy = bench.size(IDLE, 4), bench.size(BUSY, 2)
    cluster = await bench.cluster(3, 1, kind=WithGateway, fresh=True)
    (gateway,) = cluster.gateways
    base, pid = f"http://{gateway.address}/webhdfs/v1", gateway.pid or 0
    bound_bytes = GatewayConfig().request_memory_bytes
    ask = asyncio.get_running_loop().run_in_executor
    for number in bench.rounds:
        before = resident_bytes(pid)
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as other:
            alone_s = await ask(other, _asked_apart, base, bench.seconds)
            bench.emit_times("a status alone", alone_s, number)
            async with _idle(base, idle):
                beside_s = await ask(other, _asked_apart, base, bench.seconds)
                bench.emit_times("beside idle ones", beside_s, number, clients=idle)
                grown = resident_bytes(pid) - before
                bench.emit("memory of idle ones", grown / (1 << 20), "MiB", number, clients=idle)
                counts = [0] * busy
                async with _session() as session, asyncio.TaskGroup() as crowd:
                    each = [crowd.create_task(_use(session, base, n, counts)) for n in range(busy)]
                    beside_s = await ask(other, _asked_apart, base, bench.seconds)
                    grown = most_resident_bytes(pid) - before
                    for task in each:
                        task.cancel()
                bench.emit_times("beside busy ones", beside_s, number, clients=busy)
                rate = sum(counts) / bench.seconds
                bench.emit("files of busy ones", rate, "files/s", number, clients=busy)
                mib, goal = grown / (1 << 20), bound_bytes / (1 << 20)
                bench.emit("memory of all", mib, "MiB", number, goal=goal, clients=idle + busy)


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=WITHIN_S),
    )


def _asking(op: str, **more: str) -> dict[str, str]:
    return {"op": op, "user.name": claimed_user()} | more


def _asked_apart(base: str, seconds: float) -> list[float]:
    """Ask for the status of the root, one time after the other; return how long each took."""
    return asyncio.run(_asked(base, seconds))


async def _asked(base: str, seconds: float) -> list[float]:
    times_s: list[float] = []
    end_s = time.perf_counter() + seconds
    async with _session() as session:
        while not times_s or time.perf_counter() < end_s:
            begun_s = time.perf_counter()
            async with session.get(f"{base}/", params=_asking("GETFILESTATUS")) as answer:
                answer.raise_for_status()
                await answer.read()
            times_s.append(time.perf_counter() - begun_s)
    return times_s


@contextlib.asynccontextmanager
async def _idle(base: str, count: int) -> AsyncIterator[None]:
    """Keep so many connections open that have asked once."""
    host, _, port = base.removeprefix("http://").partition("/")[0].rpartition(":")
    head = f"GET /healthz HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode()
    writers = []
    try:
        for _ in range(count):
            reader, writer = await asyncio.open_connection(host, int(port))
            writers.append(writer)
            writer.write(head)
            await reader.readuntil(b"\r\n\r\n")
        yield
    finally:
        for writer in writers:
            writer.close()


async def _use(session: aiohttp.ClientSession, base: str, number: int, counts: list[int]) -> None:
    """Write a file and read it back until this is cancelled; count in `counts` how often."""
    url, content = f"{base}/bench-crowd/{number}", bytes(FILE_BYTES)
    create = _asking("CREATE", overwrite="true", data="true")
    while True:
        async with session.put(url, params=create, data=io.BytesIO(content)) as answer:
            if answer.status == HTTPStatus.FORBIDDEN:
                continue  # asked to try again
            answer.raise_for_status()
        async with session.get(url, params=_asking("OPEN")) as answer:
            if answer.status != HTTPStatus.FORBIDDEN:
                answer.raise_for_status()
            async for _ in answer.content.iter_any():
                pass
        counts[number] += 1
