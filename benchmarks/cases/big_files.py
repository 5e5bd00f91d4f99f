"""What does a file of many blocks cost others that wait for the NameNode?

One NameNode with its store on disk, in this process and without sockets: it makes and encodes real
answers, and commits real edits. Beside each step stands the longest turn of the event loop
in it, in processor time, so that other processes do not count; heartbeats between NameNodes wait
for as long. There is no DataNode: the members of each block are noted beforehand, and the messages
to them are dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import AsyncIterator, Awaitable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from benchmarks.suite import LEADER, Bench, case
from paxosblock.api.file_pages import GET_FILE, GetFile
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
from paxosblock.api.transaction import (
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
from paxosblock.base.units import GIB, MIB
from paxosblock.config import NameNodeConfig
from paxosblock.host.stall import TICK_S, StallWatch
from paxosblock.host.startup import collect_seldom
from paxosblock.namenode.calls import Service
from paxosblock.namenode.catalog import blocks
from paxosblock.namenode.catalog.draft import Draft
from paxosblock.namenode.kv.interface import Committed
from paxosblock.namenode.name_node import NameNode, over_rpc
from paxosblock.namenode.raft.store import ReplicatedStore
from paxosblock.net.calls.rpc import RpcClient
from paxosblock.protocol.finalize import BlockRecord
from paxosblock.protocol.types import (
    FIRST_GENERATION,
    BlockId,
    Durability,
    StorageId,
    WriterId,
)

Q = TypeVar("Q")

PATH: Final = "/big/file"
ANN, BOB = WriterId("ann"), WriterId("bob")
MEMBERS: Final = (StorageId("s1"), StorageId("s2"), StorageId("s3"))
TURN_GOAL_MS: Final = 20.0
BLOCKS: Final = 100_000
CLIENTS: Final = 8
BATCH: Final = 100
"""Blocks that one edit adds while the file is made."""


@dataclass(frozen=True, slots=True)
class Stage:
    """The NameNode, and the watch over its loop."""

    bench: Bench
    node: NameNode
    service: Service
    store: ReplicatedStore
    stall: StallWatch

    async def step(self, name: str, work: Awaitable[object]) -> None:
        """Do one step, and emit how long it took and its longest turn."""
        await asyncio.sleep(2 * TICK_S)
        self.stall.take_busy()
        begun, used_s = time.perf_counter(), time.process_time()
        await work
        seconds, used_s = time.perf_counter() - begun, time.process_time() - used_s
        await asyncio.sleep(2 * TICK_S)  # a turn is noted by the tick behind it
        busy_ms = self.stall.take_busy() * 1e3
        self.bench.emit(name, seconds * 1e3, "ms", processor_s={LEADER: used_s}, per="step")
        self.bench.emit(f"{name}: longest turn", busy_ms, "ms", goal=TURN_GOAL_MS)


@contextlib.asynccontextmanager
async def started(bench: Bench) -> AsyncIterator[Stage]:
    """Yield a NameNode in a folder that goes away."""
    async with RpcClient() as client:
        store = ReplicatedStore(bench.folder / "big-files", "bench", ["bench"])
        await store.start()
        clock_s = asyncio.get_running_loop().time
        node = NameNode("bench", NameNodeConfig(), store, clock_s, over_rpc(client, 1.0))
        await node.start()
        stall = StallWatch()
        stall.start()
        yield Stage(bench, node, Service(node), store, stall)
        stall.stop()
        await node.close()
        await store.close()


async def fill(stage: Stage, count: int, path: str = PATH) -> int:
    """Make an open file of `count` finalized blocks that all members hold; return its id."""
    create = CreateFile(path, ANN, False, 3, 128 * MIB, Durability.DISK)
    file = (await stage.service.call(CREATE, create)).status.file_id
    previous = NO_BLOCK
    for first in range(0, count, BATCH):
        ids = [await stage.node.catalog.next_block() for _ in range(min(BATCH, count - first))]
        draft = Draft(stage.store.view())
        for block in ids:
            record = _add(draft, file, previous, block)
            for member in MEMBERS:
                stage.node.replicas.note(block, member, record.finalized_generation)
            previous = block
        assert isinstance(await stage.store.commit(draft.to_edit()), Committed)
    return file


def _add(draft: Draft, file: int, previous: BlockId, block: BlockId) -> BlockRecord:
    blocks.add(draft, AddBlock(file, ANN, previous, window=8), block, MEMBERS)
    size = 128 * MIB
    request = FinalizeBlock(block, ANN, FIRST_GENERATION, 256, size)
    return blocks.finalize_by_writer(draft, request).record


async def every_page(stage: Stage, clients: int) -> None:
    """`open` and read on to the end, by several clients side by side."""

    async def client() -> None:
        view = await stage.service.call(GET_FILE, GetFile(PATH))
        while view.next_place is not None:
            msgspec.msgpack.encode(view)
            request = GetFile(PATH, view.next_place, file_id=view.status.file_id)
            view = await stage.service.call(GET_FILE, request)
            await asyncio.sleep(0)  # with a socket, the call would wait for it here

    await asyncio.gather(*(client() for _ in range(clients)))


async def again(service: Service, method: Method[Q, object], request: Q, times: int) -> None:
    """The same call again and again, its answer encoded."""
    for _ in range(times):
        msgspec.msgpack.encode(await service.call(method, request))
        await asyncio.sleep(0)


async def swept(stage: Stage) -> None:
    """Delete the file, and wait until its blocks are gone."""
    await stage.service.call(DELETE, DeletePath(PATH))
    while stage.node.catalog.has_garbage:  # noqa: ASYNC110 - the sweep has no event to wait for
        await asyncio.sleep(0.1)


async def changed_beside(stage: Stage, work: Awaitable[object]) -> None:
    """Make directories while `work` goes on, one call after the other."""
    doing = asyncio.ensure_future(work)
    while not doing.done():
        await stage.service.call(MKDIRS, MakeDirectories("/beside"))
        await stage.service.call(DELETE, DeletePath("/beside"))
    await doing


async def measure_transactions(stage: Stage) -> None:
    """Transactions near their bounds, with other changes beside each."""

    async def transact(name: str, operations: Iterable[Operation]) -> None:
        request = Transact(tuple(operations), 3, 128 * MIB, Durability.DISK)
        await stage.step(name, changed_beside(stage, stage.service.call(TRANSACT, request)))

    parts = [f"part-{number:05}-of-a-job.parquet" for number in range(OPERATIONS_MAX)]
    for number in range(4):
        file = await fill(stage, BLOCKS_MOVED_MAX // 4, f"/joined/{number}")
        await stage.service.call(CLOSE_FILE, CloseFile(file, ANN))
    await stage.service.call(
        TRANSACT, Transact((Marker("/all"), MakeDirectory("/to")), 3, 128 * MIB, Durability.DISK)
    )
    concat = ConcatFiles("/all", tuple(f"/joined/{number}" for number in range(4)))
    await stage.step(
        f"concat of {BLOCKS_MOVED_MAX} blocks",
        changed_beside(stage, stage.service.call(CONCAT, concat)),
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


@contextlib.contextmanager
def as_in_a_namenode() -> Iterator[None]:
    """Collect garbage as a NameNode does."""
    thresholds = gc.get_threshold()
    gc.collect()
    collect_seldom()
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


@case("big-files", room_bytes=GIB)
async def big_files(bench: Bench) -> None:
    """What does a file of 100,000 blocks cost others that wait for the NameNode?"""
    count, times = bench.size(BLOCKS, 200), bench.size(1000, 10)
    async with started(bench) as stage:
        file = await fill(stage, count)
        with as_in_a_namenode():
            await _steps(stage, file, count, times)
            if not bench.options.small:
                await measure_transactions(stage)


async def _steps(stage: Stage, file: int, count: int, times: int) -> None:
    """All steps of one file."""
    service = stage.service
    status, listed = PathRequest(PATH), ListDirectory("/big")
    await stage.step(f"stat of the open file, {times} times", again(service, STAT, status, times))
    await stage.step(f"list of its directory, {times} times", again(service, LIST, listed, times))
    tail = GetFile(PATH, offset=count * 128 * MIB - 1)
    await stage.step(f"its last page, {times} times", again(service, GET_FILE, tail, times))
    await stage.step("all pages, 1 client", every_page(stage, 1))
    await stage.step(
        f"all pages, {CLIENTS} clients, stat and list beside",
        asyncio.gather(
            every_page(stage, CLIENTS),
            again(service, STAT, status, times),
            again(service, LIST, listed, times),
        ),
    )
    await stage.step("close by its writer", service.call(CLOSE_FILE, CloseFile(file, ANN)))
    await stage.step("append", service.call(APPEND, AppendFile(PATH, BOB)))
    await stage.step("take-over", service.call(TAKE_OVER, TakeOver(PATH)))
    await stage.step("delete and sweep", swept(stage))
