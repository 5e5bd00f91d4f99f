"""How many edits per second does the NameNode's store commit, and what do its keys take?

One member in this process. Each client commits 100-byte values with a compare-and-set on its own
key, one after the other, and waits for `fdatasync`. The limit is one thread that appends a record
of the same length and calls `fdatasync`, in the same folder.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable
from contextlib import closing
from pathlib import Path
from typing import Final

from benchmarks.host import resident_bytes
from benchmarks.stats import counted
from benchmarks.suite import CLIENT, Bench, case
from paxosblock.base.units import GIB, MIB
from paxosblock.host.disk import OsDisk
from paxosblock.namenode.kv.interface import Committed, Edit, Expect
from paxosblock.namenode.kv.rocks_table import ROCKS
from paxosblock.namenode.kv.table import Checkpoint, pieces
from paxosblock.namenode.raft.member_folder import Limits
from paxosblock.namenode.raft.options import Options
from paxosblock.namenode.raft.store import ReplicatedStore

VALUE: Final = bytes(100)
CLIENTS: Final = (1, 64, 256)
KEYS: Final = (10**5, 2 * 10**5, 5 * 10**5, 10**6, 2 * 10**6, 5 * 10**6, 10**7)
USUAL: Final = 2 * 10**5
KEYS_AT_ONCE: Final = 1000
LONGEST_TURN_GOAL_MS: Final = 20.0


@case("store")
async def commits(bench: Bench) -> None:
    """How many edits a second does the store of one NameNode commit?"""
    for number in bench.rounds:
        bare = await bench.bare(bare_limit, bench.folder / "store-limit", bench.seconds)
        for clients in bench.some(CLIENTS):
            store = await started(bench.folder / f"store-{number}-{clients}")
            async with bench.measured() as spent:
                times = await changes(store, clients, bench.seconds)
            await store.close()
            what, rate = counted(clients, "client"), len(times) / spent.elapsed_s
            bench.emit(what, rate, "/s", number, limit=len(bare) / sum(bare), durability="disk",
                       processor_s=spent.per(len(times)), clients=clients)  # fmt: skip
            bench.emit_times(what, times, number, limit_s=bare, clients=clients)


async def started(folder: Path, limits: Limits | None = None) -> ReplicatedStore:
    """Return the store of a cluster's only NameNode, which leads."""
    options = Options(limits=limits or Limits())
    store = ReplicatedStore(folder, "bench", ["bench"], options=options)
    await store.start()
    await store.wait_leadership()
    return store


def bare_limit(path: Path, seconds: float) -> list[float]:
    """Append and sync records in one thread; return each one's duration in seconds."""
    times = []
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    end = time.perf_counter() + seconds
    while (begun := time.perf_counter()) < end:
        os.write(file, VALUE + bytes(60))
        os.fdatasync(file)
        times.append(time.perf_counter() - begun)
    os.close(file)
    return times


async def changes(store: ReplicatedStore, clients: int, seconds: float) -> list[float]:
    """Let so many clients change a key each, again and again; return the seconds of each change."""
    times, end = list[float](), time.perf_counter() + seconds

    async def client(key: bytes) -> None:
        revision = store.view().get(key).revision
        while (begun := time.perf_counter()) < end:
            result = await store.commit(Edit((Expect(key, revision),), ((key, VALUE),)))
            assert isinstance(result, Committed), "each client has its own key"
            revision = result.revision
            times.append(time.perf_counter() - begun)

    await asyncio.gather(*(client(b"bench/%d" % number) for number in range(clients)))
    return times


async def longest_pause_s(work: Awaitable[object]) -> float:
    """Await `work`; return the longest delay of a task that asks for 1 ms."""
    task = asyncio.ensure_future(work)
    worst = 0.0
    while not task.done():
        begun = time.perf_counter()
        await asyncio.sleep(0.001)
        worst = max(worst, time.perf_counter() - begun - 0.001)
    await task
    return worst


@case("store-growth", room_bytes=4 * GIB)
async def growth(bench: Bench) -> None:
    """How do memory, restart and pauses of the store grow with its keys?"""
    for keys in bench.sizes(KEYS, USUAL, 1000):
        await _grow(bench, bench.folder / f"store-of-{keys}", keys)


async def _grow(bench: Bench, folder: Path, keys: int) -> None:
    """Fill a store, restart it, and let it flush while clients go on."""
    at = (float(keys), "keys")
    empty_bytes = resident_bytes()
    store = await started(folder)

    async def fill() -> None:
        for first in range(0, keys, KEYS_AT_ONCE):
            numbers = range(first, first + KEYS_AT_ONCE)
            puts = tuple((b"file/%08d" % number, VALUE) for number in numbers)
            await store.commit(Edit(puts=puts))

    async with bench.measured() as spent:
        filling = await longest_pause_s(fill())
    used = {CLIENT: spent.processor_s[CLIENT] / keys}
    bench.emit("filled", spent.elapsed_s, "s", at=at, processor_s=used, per="key")
    bench.emit("memory", max(0, resident_bytes() - empty_bytes) / MIB, "MiB", at=at)
    quiet = await longest_pause_s(changes(store, 16, bench.seconds))
    await store.close()

    begun = time.perf_counter()
    store = await started(folder, Limits(flush_bytes=1))
    bench.emit("restart", time.perf_counter() - begun, "s", at=at, goal=5)
    flushing = await longest_pause_s(changes(store, 16, bench.seconds))
    installing = await longest_pause_s(_install(store, folder))
    await store.close()
    for what, pause_s in (
        ("longest pause while it is filled", filling),
        ("longest pause with 16 clients", quiet),
        ("the same with one flush after another", flushing),
        ("longest pause while the database is copied, sent and installed", installing),
    ):
        bench.emit(what, pause_s * 1e3, "ms", at=at, goal=LONGEST_TURN_GOAL_MS)


async def _install(store: ReplicatedStore, folder: Path) -> None:
    """Do what the leader and a member do when that is too far behind for the log."""
    with closing(await store.checkpoint()) as checkpoint:
        await asyncio.to_thread(_receive, checkpoint, folder / "member")


def _receive(checkpoint: Checkpoint, folder: Path) -> None:
    disk = OsDisk()
    disk.make_folder(folder)
    receiver = ROCKS.receive(disk, folder)
    for piece in pieces(checkpoint, MIB):
        receiver.write(piece)
    receiver.check()
    receiver.install().discard()
