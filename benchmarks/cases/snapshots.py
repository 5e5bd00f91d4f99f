"""What does a snapshot cost: to take it, and each change while it is there?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from benchmarks.suite import Bench, case
from paxosblock.base.units import GIB
from paxosblock.client import AsyncClient

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
