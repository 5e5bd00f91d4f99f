"""How long do the status page and `/metrics` of a NameNode take, with many files and DataNodes?

A NameNode runs as a process. Its one directory has all files, and the DataNodes are made up: they
register and are never missed. A browser gets one page after the other over one connection. The
longest turn of the loop is in processor time, as `/metrics` tells it.
"""

from __future__ import annotations

import time
from typing import Final

import aiohttp

from benchmarks.cases.namenodes import LONGEST_TURN_GOAL_MS, longest_turn_s
from benchmarks.suite import Bench, case
from paxosblock.api.namenode import TRANSACT, Transact
from paxosblock.api.reports import REGISTER, Register, StorageReport
from paxosblock.api.transaction import Marker
from paxosblock.host.user import claimed_user
from paxosblock.net.calls.rpc import RpcClient
from paxosblock.net.port.caller import USER
from paxosblock.protocol.types import Durability, StorageId

FILES: Final = 200_000
DATANODES: Final = 100
AT_ONCE: Final = 1000
GETS: Final = 100
GOAL_MS: Final = {"p50": 100.0, "p99": 100.0}
SETTINGS: Final = {"namenode": {"datanode_stale_after": "5h", "datanode_dead_after": "6h"}}
PATHS: Final = {
    "the first page": "/",
    "the first page as JSON": "/page.json",
    "a page of 1,000 files": "/files?path=/d",
    "the same as JSON": "/files.json?path=/d",
    "/metrics": "/metrics",
}


@case("page")
async def page(bench: Bench) -> None:
    """How long do the status page and `/metrics` take, with 200,000 files and 100 DataNodes?"""
    files, gets = bench.size(FILES, 10), bench.size(GETS, 2)
    cluster = await bench.cluster(1, 1, SETTINGS, fresh=True)
    leader = cluster.wait_leader()
    address = leader.address
    async with RpcClient() as client:
        await _fill(client, address, files, bench.size(DATANODES - 1, 2))
    async with aiohttp.ClientSession(headers={USER: claimed_user()}) as browser:
        for what, path in PATHS.items():
            await _got(browser, f"http://{address}{path}")  # the first one makes templates
            for number in bench.rounds:
                longest_turn_s(leader)
                times_s = []
                async with bench.measured(cluster) as spent:
                    for _ in range(gets):
                        begun_s = time.perf_counter()
                        await _got(browser, f"http://{address}{path}")
                        times_s.append(time.perf_counter() - begun_s)
                used_s = spent.per(gets)
                goals = GOAL_MS if path != "/metrics" else None
                bench.emit_times(what, times_s, number, goals_ms=goals, processor_s=used_s)
                turn_ms, goal_ms = longest_turn_s(leader) * 1e3, LONGEST_TURN_GOAL_MS
                bench.emit(f"{what}: longest turn", turn_ms, "ms", number, goal=goal_ms)


async def _fill(client: RpcClient, address: str, files: int, datanodes: int) -> None:
    for number in range(datanodes):
        room = StorageReport(StorageId(f"s{number}"), 1 << 40, 1 << 39, 1 << 38)
        here = Register(f"dn{number}", f"10.0.0.{number}:9864", "run", (room,))
        await client.call(address, REGISTER.name, here, REGISTER.answer, 60.0)
    for start in range(0, files, AT_ONCE):
        names = range(start, min(start + AT_ONCE, files))
        markers = tuple(Marker(f"/d/file-{number:08d}") for number in names)
        made = Transact(markers, 3, 1 << 27, Durability.DISK)
        await client.call(address, TRANSACT.name, made, TRANSACT.answer, 60.0)


async def _got(browser: aiohttp.ClientSession, url: str) -> None:
    async with browser.get(url) as answer:
        answer.raise_for_status()
        await answer.read()
