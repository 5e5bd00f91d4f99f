"""Work that several cases share: writing, reading and flushing files, and finding their blocks."""

from __future__ import annotations

import os
import time
from typing import Any, Final

from paxosblock.api.file_pages import GET_FILE, GetFile
from paxosblock.base.units import MIB
from paxosblock.client import AsyncClient
from paxosblock.client.writing.file_writer import AsyncFileWriter
from paxosblock.config import ClientConfig
from paxosblock.local.cluster import LocalCluster
from paxosblock.local.node_process import Node
from paxosblock.net.calls import control

SHIPPED: Final = ClientConfig()
DURABILITIES: Final = ("memory", "disk")
AS_SHIPPED: Final[dict[str, Any]] = {
    "replicas": SHIPPED.replication,
    "chunk_bytes": SHIPPED.chunk_size,
    "window": SHIPPED.window,
}
"""The facts of a record about a client with its own settings."""


async def write_file(fs: AsyncClient, path: str, total: int, durability: str, **how: Any) -> None:
    """Write `total` bytes in pieces of a MiB, and close the file; `how` goes to `create`."""
    piece = os.urandom(min(MIB, total))
    async with fs.create(path, durability=durability, overwrite=True, **how) as out:
        for start in range(0, total, len(piece)):
            await out.write(piece[: total - start])


async def read_file(fs: AsyncClient, path: str) -> float:
    """Read a whole file sequentially; return MiB/s."""
    begun, count = time.perf_counter(), 0
    async with fs.open(path) as reader:
        async for piece in reader.pieces():
            count += len(piece)
    return count / MIB / (time.perf_counter() - begun)


async def flush_times(out: AsyncFileWriter, piece: bytes, count: int) -> list[float]:
    """Return the seconds of each of `count` writes with an hflush."""
    times = []
    for _ in range(count):
        begun = time.perf_counter()
        await out.write(piece)
        await out.hflush()
        times.append(time.perf_counter() - begun)
    return times


def victim_of(cluster: LocalCluster, path: str) -> Node:
    """Return a DataNode that holds a replica of the last block of a file."""
    last = control.BlockingNameNodes(cluster.addresses).call(GET_FILE, GetFile(path)).last_block
    assert last is not None, "the writer has flushed"
    members = {member.address for member in last.members}
    return next(node for node in cluster.datanodes if node.address in members)
