"""What does a file of many blocks cost whoever else waits for the NameNode?

    python -m benchmarks.big_files [--blocks 100000] [--clients 8]

One NameNode with its store on disk, in this process and without sockets: what answers are made of
and encoded is real, and so are the transactions. Beside each step stands the longest turn of the
event loop in it, in processor time, so that other processes do not count; heartbeats between
NameNodes wait for as long. No DataNode is there: who holds a block is noted beforehand, and what
members are told in the end reaches nobody.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import logging
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from benchmarks.stats import machine, say
from paxosblock import loop
from paxosblock.api.files import GET_FILE, GetFile
from paxosblock.api.methods import Method
from paxosblock.api.namenode import (
    APPEND,
    CLOSE_FILE,
    CONCAT,
    CREATE,
    DELETE,
    LIST,
    MKDIRS,
    NO_BLOCK,
    STAT,
    TAKE_OVER,
    TRANSACT,
    AddBlock,
    AppendFile,
    CloseFile,
    ConcatFiles,
    CreateFile,
    DeletePath,
    FinalizeBlock,
    ListDirectory,
    MakeDirectories,
    PathRequest,
    TakeOver,
    Transact,
)
from paxosblock.config import NameNodeConfig
from paxosblock.namenode.calls import Service
from paxosblock.namenode.catalog import blocks
from paxosblock.namenode.catalog.draft import Draft
from paxosblock.namenode.kv.engine import SingleMemberStore
from paxosblock.namenode.kv.interface import Committed
from paxosblock.namenode.node import NameNode, over_rpc
from paxosblock.namenode.server import YOUNG_OBJECTS_MAX
from paxosblock.net.rpc import RpcClient
from paxosblock.protocol.finalize import BlockRecord
from paxosblock.protocol.types import (
    FIRST_GENERATION,
    BlockId,
    Durability,
    StorageId,
    WriterId,
)
from paxosblock.stall import TICK_S, StallWatch
from paxosblock.transaction import (
    BLOCKS_MOVED_MAX,
    OPERATIONS_MAX,
    RECORDS_MAX,
    AssertFile,
    Concat,
    Delete,
    MakeDirectory,
    Marker,
    Operation,
    Rename,
)
from paxosblock.units import MIB

Q = TypeVar("Q")

PATH: Final = "/big/file"
ANN, BOB = WriterId("ann"), WriterId("bob")
MEMBERS: Final = (StorageId("s1"), StorageId("s2"), StorageId("s3"))
BATCH: Final = 100
"""Blocks that one transaction adds while the file is made."""


@dataclass(frozen=True, slots=True)
class Bench:
    """The NameNode, and the watch over its loop."""

    node: NameNode
    service: Service
    store: SingleMemberStore
    stall: StallWatch

    async def step(self, name: str, work: Awaitable[object]) -> None:
        """Do one step, and say how long it took and its longest turn."""
        await asyncio.sleep(2 * TICK_S)
        self.stall.take_busy()
        begun = time.perf_counter()
        await work
        seconds = time.perf_counter() - begun
        await asyncio.sleep(2 * TICK_S)  # a turn is noted by the tick behind it
        busy_ms = self.stall.take_busy() * 1e3
        say(f"{name:<44} {seconds * 1e3:10.1f} ms   longest turn {busy_ms:7.1f} ms")


@contextlib.asynccontextmanager
async def started() -> AsyncIterator[Bench]:
    """A NameNode in a folder that goes away."""
    with tempfile.TemporaryDirectory(prefix="paxosblock-") as folder:
        async with RpcClient() as client:
            store = SingleMemberStore(Path(folder) / "kv")
            await store.start()
            clock_s = asyncio.get_running_loop().time
            node = NameNode("bench", NameNodeConfig(), store, clock_s, over_rpc(client, 1.0))
            await node.start()
            stall = StallWatch()
            stall.start()
            yield Bench(node, Service(node), store, stall)
            stall.stop()
            await node.close()
            await store.close()


async def fill(bench: Bench, count: int, path: str = PATH) -> int:
    """Make an open file of `count` finalized blocks that all members hold; return its id."""
    create = CreateFile(path, ANN, False, 3, 128 * MIB, Durability.DISK)
    file = (await bench.service.call(CREATE, create)).file_id
    previous = NO_BLOCK
    for first in range(0, count, BATCH):
        ids = [await bench.node.catalog.next_block() for _ in range(min(BATCH, count - first))]
        draft = Draft(bench.store.view())
        for block in ids:
            record = _add(draft, file, previous, block)
            for member in MEMBERS:
                bench.node.replicas.note(block, member, record.finalized_generation)
            previous = block
        assert isinstance(await bench.store.commit(draft.transaction()), Committed)
    return file


def _add(draft: Draft, file: int, previous: BlockId, block: BlockId) -> BlockRecord:
    blocks.add(draft, AddBlock(file, ANN, previous, window=8), block, MEMBERS)
    size = 128 * MIB
    request = FinalizeBlock(block, ANN, FIRST_GENERATION, 256, size)
    return blocks.finalize_by_writer(draft, request).record


async def every_page(bench: Bench, clients: int) -> None:
    """`open` and read on to the end, by several clients side by side."""

    async def client() -> None:
        view = await bench.service.call(GET_FILE, GetFile(PATH))
        while view.next_place is not None:
            msgspec.msgpack.encode(view)
            request = GetFile(PATH, view.next_place, file_id=view.status.file_id)
            view = await bench.service.call(GET_FILE, request)
            await asyncio.sleep(0)  # where a socket is, it would be waited for

    await asyncio.gather(*(client() for _ in range(clients)))


async def again(service: Service, method: Method[Q, object], request: Q, times: int) -> None:
    """The same call again and again, its answer encoded."""
    for _ in range(times):
        msgspec.msgpack.encode(await service.call(method, request))
        await asyncio.sleep(0)


async def swept(bench: Bench) -> None:
    """Delete the file, and wait until its blocks are gone."""
    await bench.service.call(DELETE, DeletePath(PATH))
    while await bench.node.catalog.garbage():  # noqa: ASYNC110 - the sweep tells nobody
        await asyncio.sleep(0.1)


async def changed_beside(bench: Bench, work: Awaitable[object]) -> None:
    """Make directories while `work` goes on, one call after the other."""
    doing = asyncio.ensure_future(work)
    while not doing.done():
        await bench.service.call(MKDIRS, MakeDirectories("/beside"))
        await bench.service.call(DELETE, DeletePath("/beside"))
    await doing


async def measure_transactions(bench: Bench) -> None:
    """Transactions near their bounds, with other changes beside each."""

    async def transact(name: str, operations: Iterable[Operation]) -> None:
        request = Transact(tuple(operations), 3, 128 * MIB, Durability.DISK)
        await bench.step(name, changed_beside(bench, bench.service.call(TRANSACT, request)))

    parts = [f"part-{number:05}-of-a-job.parquet" for number in range(OPERATIONS_MAX)]
    for number in range(4):
        file = await fill(bench, BLOCKS_MOVED_MAX // 4, f"/joined/{number}")
        await bench.service.call(CLOSE_FILE, CloseFile(file, ANN))
    await bench.service.call(
        TRANSACT, Transact((Marker("/all"), MakeDirectory("/to")), 3, 128 * MIB, Durability.DISK)
    )
    concat = ConcatFiles("/all", tuple(f"/joined/{number}" for number in range(4)))
    await bench.step(
        f"concat of {BLOCKS_MOVED_MAX} blocks",
        changed_beside(bench, bench.service.call(CONCAT, concat)),
    )
    count = f"{OPERATIONS_MAX}"
    await transact(f"{count} markers", (Marker(f"/from/{part}") for part in parts))
    await transact(f"{count} of them again", (Marker(f"/from/{part}") for part in parts))
    await transact(f"{count} renames", (Rename(f"/from/{part}", f"/to/{part}") for part in parts))
    await transact(f"{count} looks at files", (AssertFile(f"/to/{part}") for part in parts))
    await transact(
        f"{count} concats of empty files",
        (Concat(f"/to/{parts[0]}", (f"/to/{part}",)) for part in parts[1:]),
    )
    await transact(f"{count} markers", (Marker(f"/from/{part}") for part in parts))
    deletes = [Delete(f"/from/{part}") for part in parts]
    await transact(f"{count} deletes", deletes[1:])
    await transact("the markers again", (Marker(f"/from/{part}") for part in parts[:-1]))
    await transact(f"{count} deletes, the last of the directory", [*deletes[:-1], Delete("/from")])
    made = RECORDS_MAX // 3 - 10
    await transact(
        f"{made} directories made", (MakeDirectory(f"/made/{n}/a/b/c") for n in range(made // 4))
    )


async def measure(options: argparse.Namespace) -> None:
    """All steps, one after the other."""
    count = options.blocks
    async with started() as bench:
        service = bench.service
        say(machine())
        file = await fill(bench, count)
        gc.collect()
        gc.freeze()
        gc.set_threshold(YOUNG_OBJECTS_MAX)
        say(f"a file of {count} blocks")
        status, listed = PathRequest(PATH), ListDirectory("/big")
        await bench.step("stat of the open file, 1,000 times", again(service, STAT, status, 1000))
        await bench.step("list of its directory, 1,000 times", again(service, LIST, listed, 1000))
        tail = GetFile(PATH, offset=count * 128 * MIB - 1)
        await bench.step("its last page, 1,000 times", again(service, GET_FILE, tail, 1000))
        await bench.step("all pages, 1 client", every_page(bench, 1))
        await bench.step(
            f"all pages, {options.clients} clients, stat and list beside",
            asyncio.gather(
                every_page(bench, options.clients),
                again(service, STAT, status, 1000),
                again(service, LIST, listed, 1000),
            ),
        )
        await bench.step("close by its writer", service.call(CLOSE_FILE, CloseFile(file, ANN)))
        await bench.step("append", service.call(APPEND, AppendFile(PATH, BOB)))
        await bench.step("take-over", service.call(TAKE_OVER, TakeOver(PATH)))
        await bench.step("delete and sweep", swept(bench))
        await measure_transactions(bench)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--blocks", type=int, default=100_000)
    parser.add_argument("--clients", type=int, default=8)
    logging.getLogger("paxosblock").setLevel(logging.ERROR)  # of members that nobody reaches
    loop.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
