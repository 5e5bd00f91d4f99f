"""What does a snapshot cost: to take it, and each change while it is there?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from benchmarks.cases.namenodes import longest_turn_s
from benchmarks.cases.watch import TURN_GOAL_MS
from benchmarks.host import resident_bytes
from benchmarks.suite import Bench, case
from paxosblock.base.units import GIB
from paxosblock.client import AsyncClient
from paxosblock.local.cluster import LocalCluster

FOLDER: Final = "/bench-snapshots"
CLIENTS: Final = 64


@case("snapshots", usual=False, room_bytes=2 * GIB)
async def snapshots(bench: Bench) -> None:
    """What does a snapshot cost: to take it, and each change while it is there?

    The permission of each directory is changed once before a snapshot is taken and once after it,
    when each change keeps what was before; then the snapshot is ended.
    """
    cluster, count = await bench.cluster(), bench.size(20_000, 64)
    paths = [f"{FOLDER}/{number % 100}/{number}" for number in range(count)]
    async with AsyncClient(cluster.url) as fs:
        await _all(paths, fs.mkdirs)

        async def change_all(how: str, mode: int, number: int) -> None:
            async with bench.measured(cluster) as spent:
                await _all(paths, lambda path: fs.set_permission(path, mode))
            rate = count / spent.elapsed_s
            what = f"set_permission, {how}"
            bench.emit(
                what, rate, "/s", number, processor_s=spent.per(count), clients=CLIENTS, names=count
            )

        for number in bench.rounds:
            await change_all("without a snapshot", 0o700, number)
            begun_s = time.perf_counter()
            await fs.create_snapshot(FOLDER, "s")
            bench.emit("a snapshot", time.perf_counter() - begun_s, "s", number, names=count)
            await change_all("with a snapshot", 0o755, number)
            await fs.delete_snapshot(FOLDER, "s")
            await bench.quiet()
        await fs.delete(FOLDER, recursive=True)


async def _all(paths: list[str], change: Callable[[str], Awaitable[object]]) -> None:
    """Change each, so many at a time."""
    left = iter(paths)

    async def work() -> None:
        for path in left:
            await change(path)

    await asyncio.gather(*(work() for _ in range(CLIENTS)))


SIZES: Final = (10_000, 100_000, 1_000_000)


@case("history", usual=False, room_bytes=2 * GIB)
async def history(bench: Bench) -> None:
    """How long do a deletion, undelete, a sum and a snapshot of many names take, with a history?

    Directories are made in one that is deleted and undeleted. The longest turn of the NameNode's
    loop is that of the sum.
    """
    cluster = await bench.cluster(settings={"namenode": {"history": "1d"}})
    leader = await asyncio.to_thread(cluster.wait_leader)
    async with AsyncClient(cluster.url, retry_for_s=120) as fs:
        for count in bench.sizes(SIZES, SIZES[0], 64):
            folder, at = f"{FOLDER}-{count}", (float(count), "names")
            await _all([f"{folder}/{each % 100}/{each}" for each in range(count)], fs.mkdirs)
            for number in bench.rounds:
                timed = partial(_timed, bench, number, at)
                await asyncio.to_thread(longest_turn_s, leader)
                await timed("content_summary", fs.content_summary(folder))
                turn_s = await asyncio.to_thread(longest_turn_s, leader)
                what = "content_summary, longest turn of the NameNode's loop"
                bench.emit(what, turn_s * 1e3, "ms", number, at=at, goal=TURN_GOAL_MS)
                await timed("a snapshot", fs.create_snapshot(folder, "s"))
                await fs.delete_snapshot(folder, "s")
                await timed("delete", fs.delete(folder, recursive=True))
                await timed("undelete", fs.undelete(folder))


async def _timed(
    bench: Bench, number: int, at: tuple[float, str], what: str, call: Awaitable[object]
) -> None:
    begun_s = time.perf_counter()
    await call
    bench.emit(what, (time.perf_counter() - begun_s) * 1e3, "ms", number, at=at)


@case("history-room", usual=False, room_bytes=2 * GIB)
async def history_room(bench: Bench) -> None:
    """What time, room and memory does a changed name take at the NameNode, with a history or not?

    The permission of each directory is changed once. The NameNode starts again before that and
    after it, so that all of it is in its database, which is counted by the bytes of its files; its
    memory is counted from the first change to the last.
    """
    for number in bench.rounds:
        for count in bench.sizes(SIZES[1:], SIZES[1], 64):
            for how, kept in (("without a history", "0s"), ("with a history", "1d")):
                settings = {"namenode": {"history": kept}}
                cluster = await bench.cluster(settings=settings, fresh=True)
                await _change_once(bench, cluster, how, count, number)


async def _change_once(
    bench: Bench, cluster: LocalCluster, how: str, count: int, number: int
) -> None:
    folder, at = f"{FOLDER}-room", (float(count), "names")
    paths = [f"{folder}/{each % 100}/{each}" for each in range(count)]
    async with AsyncClient(cluster.url, retry_for_s=120) as fs:
        await _all(paths, fs.mkdirs)
        table = await asyncio.to_thread(_table_bytes, cluster)
        memory = resident_bytes(cluster.namenode.pid or 0)
        async with bench.measured(cluster) as spent:
            await _all(paths, partial(fs.set_permission, permission=0o700))
        memory = resident_bytes(cluster.namenode.pid or 0) - memory
        table = await asyncio.to_thread(_table_bytes, cluster) - table
        await fs.delete(folder, recursive=True)
    rate, used = count / spent.elapsed_s, spent.per(count)
    bench.emit(f"a change, {how}", rate, "/s", number, at=at, processor_s=used, clients=CLIENTS)
    bench.emit(f"table of a changed name, {how}", table / count, "B", number, at=at)
    bench.emit(f"memory of a changed name, {how}", memory / count, "B", number, at=at)


def _table_bytes(cluster: LocalCluster) -> int:
    """Return the bytes of the NameNode's database; restart it, so that all is there."""
    namenode = cluster.namenode
    namenode.stop()
    folder = cluster.path / namenode.name / "raft" / "db"
    size = sum(path.stat().st_size for path in folder.iterdir())
    namenode.start()
    return size
