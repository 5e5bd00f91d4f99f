"""What does a NameNode pay when a storage with very many replicas reports them?

A NameNode runs as a process, whose catalog has so many finalized blocks, all at one storage. The
shipped reporter of a DataNode, in this process, reports them; the replicas themselves are made up.
Then it comes back without any, so that all are missing, and answers no question. Meanwhile clients
ask for a path, one call after the other. For each of the two reports it shows the time that it
took, the processor time of the NameNode, the longest time that its loop was busy with one thing
(processor time, `loop_busy_seconds` of its `/metrics`), the time of a client's call, and the
longest silence of the DataNode as the NameNode saw it. It also shows the NameNode's memory for a
block: for its record, and for one replica that was reported.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from benchmarks.cases.namenodes import LONGEST_TURN_GOAL_MS, longest_turn_s
from benchmarks.host import resident_bytes
from benchmarks.suite import Bench, case
from paxosblock.api.reports import StorageReport, Timeline
from paxosblock.api.status import NAMENODE_STATUS, NameNodeStatusRequest, NodeStatus
from paxosblock.base.units import GIB
from paxosblock.client import AsyncClient
from paxosblock.config import DataNodeConfig, NameNodeConfig
from paxosblock.datanode.block import Block
from paxosblock.datanode.reporter import Reporter
from paxosblock.datanode.volumes.volume import Volume, open_volume
from paxosblock.host.disk import OsDisk
from paxosblock.local.cluster import LocalCluster
from paxosblock.namenode.catalog import keys
from paxosblock.namenode.catalog.catalog import Catalog
from paxosblock.namenode.catalog.records import BlockEntry, encode
from paxosblock.namenode.kv.interface import Committed, Edit
from paxosblock.namenode.membership import engine_of
from paxosblock.net.calls.rpc import RpcClient
from paxosblock.protocol.chunk_log import ChunkLog
from paxosblock.protocol.finalize import BlockRecord
from paxosblock.protocol.register import Replica
from paxosblock.protocol.types import (
    BlockId,
    BlockState,
    ChunkIndex,
    ChunkName,
    Durability,
    Generation,
    Registers,
    ReplicaState,
    StorageId,
    WriterId,
)

NODE = "many"
"""The DataNode's name."""
BLOCKS_AT_ONCE = 2000
LOOK_EVERY_S = 0.1
LOADED_WITHIN_S = 600.0
CLIENTS: Final = 8
"""Clients that ask for a path meanwhile."""
CHUNK = ChunkName(ChunkIndex(0), 100, 7)
DECIDED = Generation(1)


class Nobody:
    """A `ReplicaListener` that does nothing: no replica ever changes."""

    def replica_changed(self, block: BlockId, storage: StorageId) -> None:
        """Never called."""

    def replica_corrupt(self, block: BlockId, storage: StorageId, reason: str) -> None:
        """Never called."""


@dataclass(slots=True)
class Many:
    """The holdings of a DataNode: a replica of each block, made when somebody looks at it."""

    volume: Volume
    blocks_in_order: list[BlockId]

    @property
    def open_count(self) -> int:
        """No replica is being written."""
        return 0

    def blocks(self) -> Iterator[Block]:
        """None is dead, which is all that is asked."""
        return iter(())

    def behind(self, block: BlockId, storage: StorageId) -> Iterator[tuple[BlockId, Block]]:
        """Yield the blocks with greater ids; they are without a gap."""
        first = self.blocks_in_order[0] if self.blocks_in_order else block
        start = max(0, block - first + 1)
        for number in range(start, len(self.blocks_in_order)):
            each = self.blocks_in_order[number]
            yield each, self._made(each)

    def has_read(self, storage: StorageId) -> bool:
        """It has."""
        return True

    def find(self, block: BlockId, storage: StorageId) -> Block | None:
        """No replica ever changes."""
        return None

    async def storages(self) -> tuple[StorageReport, ...]:
        """Return the one volume."""
        return (self.volume.report(0),)

    @property
    def cluster(self) -> str:
        """That of its volume."""
        return self.volume.identity.cluster

    async def enter(self, cluster: str) -> None:
        """Let the volume keep it."""
        await self.volume.enter(cluster)

    def timelines(self) -> tuple[Timeline, ...]:
        """It never had a snapshot."""
        return ()

    async def be_taken_in(self) -> None:
        """It is."""

    def _made(self, number: BlockId) -> Block:
        block = Block(number, self.volume, Nobody())
        registers = Registers(
            max_generation=DECIDED,
            accepted_generation=DECIDED,
            epoch=Generation(0),
            base_length=1,
            state=ReplicaState.FINALIZED,
            window=1,
            durability=Durability.DISK,
            finalized_generation=DECIDED,
            finalized_length=1,
        )
        block.replica = Replica(number, registers, ChunkLog((CHUNK,)))
        return block


async def fill(folder: Path, address: str, storage: StorageId, count: int) -> list[BlockId]:
    """Put so many finalized blocks of a storage into the catalog of a NameNode that is stopped."""
    store = engine_of(NameNodeConfig(), folder, address).store
    await store.start()
    catalog = Catalog(store)
    await catalog.start(1, "benchmark")
    record = BlockRecord(
        block=BlockId(0),
        state=BlockState.FINALIZED,
        generation=DECIDED,
        writer_generation=Generation(0),
        members=(storage,),
        writer=WriterId("benchmark"),
        window=1,
        durability=Durability.DISK,
        finalized_generation=DECIDED,
        length=1,
        size_bytes=CHUNK.size_bytes,
    )
    blocks = [await catalog.next_block() for _ in range(count)]
    assert blocks[-1] - blocks[0] == count - 1, "the ids of one process follow each other"
    for start in range(0, count, BLOCKS_AT_ONCE):
        puts = tuple(
            (keys.block(block), encode(BlockEntry(replace(record, block=block))))
            for block in blocks[start : start + BLOCKS_AT_ONCE]
        )
        assert isinstance(await store.commit(Edit(puts=puts)), Committed)
    await store.close()
    return blocks


class Watch:
    """Watches what a NameNode says of the DataNode meanwhile."""

    def __init__(self, namenode: str, client: RpcClient) -> None:
        self._namenode = namenode
        self._client = client
        self.silence_s = 0.0
        """The longest time for which the NameNode did not hear from the DataNode since `until`."""

    async def until(self, done: Callable[[NodeStatus], bool]) -> None:
        """Look until it is so."""
        begun = time.perf_counter()
        while True:
            status = await self._client.call(
                self._namenode, NAMENODE_STATUS.name, NameNodeStatusRequest(),
                NAMENODE_STATUS.answer, 30.0,
            )  # fmt: skip
            found = [node for node in status.datanodes if node.node == NODE]
            for node in found:
                silent_s = min(node.seconds_since_heartbeat, time.perf_counter() - begun)
                self.silence_s = max(self.silence_s, silent_s)
                if done(node):
                    return
            await asyncio.sleep(LOOK_EVERY_S)


async def ask_for_ever(fs: AsyncClient, took_s: list[float]) -> None:
    """Ask for a path, one call after the other."""
    while True:
        begun = time.perf_counter()
        await fs.stat("/")
        took_s.append(time.perf_counter() - begun)


COUNTS: Final = (10**4, 3 * 10**4, 10**5, 3 * 10**5, 10**6)
USUAL: Final = 10**5


@case("reports", room_bytes=4 * GIB)
async def reports(bench: Bench) -> None:
    """What does a NameNode pay when a DataNode with very many replicas reports them?"""
    for count in bench.sizes(COUNTS, USUAL, 200):
        cluster = await bench.cluster(1, fresh=True)
        folder = bench.folder / f"reporter-{count}"
        folder.mkdir()
        await _report_all_and_none(bench, cluster, folder, count)
        await asyncio.to_thread(shutil.rmtree, folder)


async def _report_all_and_none(
    bench: Bench, cluster: LocalCluster, folder: Path, count: int
) -> None:
    """Fill the catalog, report all, report none."""
    namenode, at = cluster.namenode, (float(count), "replicas")
    volume = open_volume(OsDisk(), folder / "volume", NODE, boot="benchmark", sync_threads=1)
    empty_bytes = resident_bytes(namenode.pid or 0)
    namenode.kill()
    blocks = await fill(namenode.volumes[0], namenode.address, volume.storage, count)
    await asyncio.to_thread(namenode.start, LOADED_WITHIN_S)
    await asyncio.to_thread(cluster.wait_registered)
    filled_bytes = reported_bytes = resident_bytes(namenode.pid or 0)
    async with RpcClient() as client:
        for name, held in (("all reported", blocks), ("all missing", [])):
            config = DataNodeConfig()
            reporter = Reporter(NODE, [namenode.address], Many(volume, held), client, config)

            async def report(reporter: Reporter = reporter, wanted: int = len(held)) -> float:
                watch = Watch(namenode.address, client)
                reporter.start("127.0.0.1:9")  # nobody answers questions there
                await watch.until(lambda node: node.blocks == wanted)
                return watch.silence_s

            await _measure(bench, cluster, name, at, report)
            await reporter.close()
            if held:
                reported_bytes = resident_bytes(namenode.pid or 0)
    volume.close()
    for what, grown in (
        ("memory of a block", filled_bytes - empty_bytes),
        ("memory of its replica", reported_bytes - filled_bytes),
    ):
        bench.emit(what, max(0, grown) / count, "bytes", at=at)


async def _measure(
    bench: Bench,
    cluster: LocalCluster,
    name: str,
    at: tuple[float, str],
    work: Callable[[], Awaitable[float]],
) -> None:
    """Do `work`, which returns the DataNode's longest silence, and emit the figures."""
    namenode = cluster.namenode
    async with AsyncClient([namenode.address]) as fs:
        await fs.stat("/")
        await asyncio.to_thread(longest_turn_s, namenode)  # forget the turns before
        took_s = list[float]()
        async with bench.measured(cluster) as spent:
            asking = [asyncio.create_task(ask_for_ever(fs, took_s)) for _ in range(CLIENTS)]
            silence_s = await work()
        for task in asking:
            task.cancel()
        await asyncio.wait(asking)
    facts: dict[str, Any] = {"at": at, "clients": CLIENTS}
    bench.emit(name, spent.elapsed_s, "s", processor_s=spent.per(at[0]), per="replica", **facts)
    turn_s = await asyncio.to_thread(longest_turn_s, namenode)
    bench.emit(f"{name}: longest turn", turn_s * 1e3, "ms", goal=LONGEST_TURN_GOAL_MS, **facts)
    bench.emit(f"{name}: longest silence of the DataNode", silence_s, "s", **facts)
    bench.emit_times(f"{name}: stat", took_s, **facts)
