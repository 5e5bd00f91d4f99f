"""How long does it take to cut a file, and does it matter where?"""

from __future__ import annotations

import time
from typing import Any, Final

from benchmarks.suite import Bench, case
from benchmarks.work import write_file
from paxosblock.base.units import GIB, KIB, MIB
from paxosblock.client import AsyncClient
from paxosblock.config import ClientConfig

BLOCK: Final = 4 * MIB
CHUNK: Final = 256 * KIB
FOLDER: Final = "/bench"
KEPT: Final = {
    "between two blocks": 0,
    "behind the first chunk of a block": CHUNK,
    "in the middle of a block": BLOCK // 2,
    "before the last chunk of a block": BLOCK - CHUNK,
    "inside the first chunk of a block": CHUNK // 2,
    "inside the last chunk of a block": BLOCK - CHUNK // 2,
}
"""The bytes of the last block that each cut leaves."""
MANY: Final = 64


@case("truncate", usual=False, room_bytes=4 * GIB)
async def truncate(bench: Bench) -> None:
    """How long does a truncate take: between blocks, between chunks, inside one, of many blocks?

    A cut between two blocks is one call, one between two chunks asks their holders first, and what
    stays of a chunk that is cut is read and written anew.
    """
    cluster, count = await bench.cluster(), bench.size(50, 3)
    config = ClientConfig(block_size=BLOCK, chunk_size=CHUNK)
    facts: dict[str, Any] = {
        "block_bytes": BLOCK,
        "chunk_bytes": CHUNK,
        "durability": "memory",
    }
    async with AsyncClient(cluster.url, config=config) as fs:
        for number in bench.rounds:
            for where, kept in bench.some(tuple(KEPT.items())):
                path = f"{FOLDER}/cut-{kept}"
                await write_file(fs, path, count * BLOCK, "memory")
                await bench.quiet()
                times = []
                for first in reversed(range(count)):
                    length = first * BLOCK
                    times.append(await _seconds(fs, path, length + kept))
                    if kept:
                        await fs.truncate(path, length)
                bench.emit_times(f"truncate {where}", times, number, **facts)
            times = []
            for _ in range(bench.size(10, 1)):
                await write_file(fs, f"{FOLDER}/many", MANY * CHUNK, "memory", block_size=CHUNK)
                times.append(await _seconds(fs, f"{FOLDER}/many", 0))
            bench.emit_times(f"truncate of {MANY} blocks to nothing", times, number, **facts)
        await fs.delete(FOLDER, recursive=True)


async def _seconds(fs: AsyncClient, path: str, length: int) -> float:
    begun_s = time.perf_counter()
    await fs.truncate(path, length)
    return time.perf_counter() - begun_s
