"""A NameNode, three DataNodes and a client in one process, and the ways through them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from paxosblock.client.async_client import AsyncClient
from paxosblock.config import ClientConfig, DataNodeConfig, NameNodeConfig
from paxosblock.datanode import datanode_server as datanode
from paxosblock.errors import NoSpaceError, PaxosBlockError, UnavailableError
from paxosblock.namenode import namenode_server as namenode
from tests.waiting import wait_until_async
from tests.ways.tracing import Tracer, Way, files

TRIES: Final = 9
"""Each way is gone so often, and the shortest counts: in others something came in between, as when
a socket had only a part of a chunk."""
MOST_TRIES: Final = 60
"""So often on a busy machine, until a way was once as short as it is known to be."""
CHUNK_BYTES: Final = 512 * 1024
SELDOM_S: Final = 3600.0

_CHUNK: Final = bytes(CHUNK_BYTES)
_NAMENODE: Final = NameNodeConfig(
    heartbeat_interval_s=SELDOM_S,
    datanode_stale_after_s=2 * SELDOM_S,
    datanode_dead_after_s=3 * SELDOM_S,
)

Steps = AsyncGenerator[Way]


async def mkdirs(fs: AsyncClient, trace: Tracer) -> Steps:
    """A directory in the root."""
    for number in range(MOST_TRIES):
        yield await trace.way_of(fs.mkdirs(f"/directory-{number}"))


async def stat(fs: AsyncClient, trace: Tracer) -> Steps:
    """The status of a directory."""
    await fs.mkdirs("/stat")
    for _ in range(MOST_TRIES):
        yield await trace.way_of(fs.stat("/stat"))


async def chunk(fs: AsyncClient, trace: Tracer) -> Steps:
    """`write` of 512 KiB and `hflush`, the second chunk of a block with three replicas."""

    async def write() -> None:
        await out.write(_CHUNK)
        await out.hflush()

    for number in range(MOST_TRIES):
        async with await fs.create(f"/chunk-{number}") as out:
            await write()
            yield await trace.way_of(write())


async def pread(fs: AsyncClient, trace: Tracer) -> Steps:
    """`pread` of 1,000 bytes of a closed file from which was read before."""
    async with await fs.create("/pread") as out:
        await out.write(_CHUNK)
    for number in range(MOST_TRIES):
        async with await fs.open("/pread") as file:
            await file.pread(1000, 0)
            yield await trace.way_of(file.pread(1000, 1000 + number))


async def take_over(fs: AsyncClient, trace: Tracer) -> Steps:
    """Recovery of a block with one chunk, whose writer is gone."""
    for number in range(MOST_TRIES):
        async with AsyncClient(fs.addresses) as writer:
            out = await writer.create(f"/take-over-{number}")
            await out.write(_CHUNK)
            await out.hflush()
        way = await trace.way_of(fs.take_over(f"/take-over-{number}"))
        with contextlib.suppress(PaxosBlockError):
            await out.close()
        yield way


WAYS: Final[tuple[Callable[[AsyncClient, Tracer], Steps], ...]] = (
    mkdirs, stat, chunk, pread, take_over
)  # fmt: skip


async def shortest(folder: Path, known: Mapping[str, tuple[int, int]]) -> dict[str, Way]:
    """Return the ways, by their names, in a cluster with new folders.

    Args:
        folder: where the nodes' folders are made.
        known: the length of ways on a quiet machine: each is gone until it is as short.
    """
    tracer = Tracer()
    with tracer.tracing():
        async with cluster(folder) as fs:
            return {
                way.__name__: await _shortest(way(fs, tracer), known.get(way.__name__))
                for way in WAYS
            }


async def _shortest(steps: Steps, known: tuple[int, int] | None) -> Way:
    found: list[Way] = []
    async with contextlib.aclosing(steps):
        async for way in steps:
            found.append(way)
            least = min(found, key=length)
            if len(found) >= TRIES and (known is None or length(least) <= known):
                break
    return least


def length(way: Way) -> tuple[int, int]:
    """Return the files and the calls of a way."""
    return len(files(way)), way.total()


@contextlib.asynccontextmanager
async def cluster(folder: Path, *, block_tokens: bool = False) -> AsyncIterator[AsyncClient]:
    """A cluster with new folders below `folder`, to which a file was written; its client."""
    async with contextlib.AsyncExitStack() as stack:
        enter, listen = stack.enter_async_context, "127.0.0.1:0"
        names = namenode.running(
            replace(_NAMENODE, block_tokens=block_tokens),
            listen=listen,
            path=folder / "names",
            node_id="names",
        )
        addresses = [(await enter(names)).address]
        for name in ("one", "two", "three"):
            await enter(
                datanode.running(
                    DataNodeConfig(block_tokens=block_tokens),
                    listen=listen,
                    paths=[folder / name],
                    namenodes=addresses,
                    node_id=name,
                )
            )
        fs = await enter(AsyncClient(addresses, ClientConfig()))
        await wait_until_async(lambda: _can_write(fs), what="three DataNodes")
        yield fs


async def _can_write(fs: AsyncClient) -> bool:
    """Write a file, so that connections are open and decoders are built."""
    try:
        async with await fs.create("/first", overwrite=True) as out:
            await out.write(_CHUNK)
    except (NoSpaceError, UnavailableError):
        return False
    return True
