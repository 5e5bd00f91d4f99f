"""A catalog, or a whole node without a network face, for one test."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from paxosblock.api.namenode import (
    ADD_BLOCK,
    CREATE,
    NO_BLOCK,
    AddBlock,
    BlockView,
    CloseFile,
    ConcatFiles,
    CreateFile,
    DeletePath,
    Deletion,
    FileStatus,
    FinalizeBlock,
    ListDirectory,
    Listing,
    MakeDirectories,
    RenamePath,
    Transact,
)
from paxosblock.api.reports import (
    ALL_BLOCKS,
    BLOCK_REPORT,
    HEARTBEAT,
    REGISTER,
    BlockRange,
    BlockReport,
    Heartbeat,
    Register,
    StorageReport,
)
from paxosblock.api.transaction import TransactionOutcome
from paxosblock.base.paths import split
from paxosblock.base.rack import DEFAULT_RACK
from paxosblock.config import NameNodeConfig
from paxosblock.namenode.calls import LIST_LIMIT, Service
from paxosblock.namenode.catalog import namespace, transactions, tree
from paxosblock.namenode.catalog.boundaries import Boundary, BoundaryUnknownError, Cut
from paxosblock.namenode.catalog.catalog import Catalog, wall_clock_ms
from paxosblock.namenode.catalog.concat import concat
from paxosblock.namenode.catalog.draft import Draft, Slices, in_one
from paxosblock.namenode.catalog.namespace import Context
from paxosblock.namenode.catalog.permissions import ACTOR
from paxosblock.namenode.catalog.records import BlockEntry, FileInode
from paxosblock.namenode.kv.interface import KeyValueStore
from paxosblock.namenode.name_node import NameNode
from paxosblock.protocol.types import (
    FIRST_GENERATION,
    BlockId,
    Durability,
    StorageId,
    WriterId,
)
from tests.namenode.cluster import CHUNK_BYTES, Acceptor, Network, acceptors
from tests.namenode.memory_store import MemoryStore

TAG = 3
ANN = WriterId("ann")
BOB = WriterId("bob")
MEMBERS = (StorageId("s1"), StorageId("s2"), StorageId("s3"))
ROOM_BYTES = 1 << 40


def create_request(
    path: str, writer: WriterId = ANN, *, overwrite: bool = False, parent_must_exist: bool = False
) -> CreateFile:
    """A create as a client sends it."""
    return CreateFile(
        path, writer, overwrite, 3, 1 << 20, Durability.DISK, parent_must_exist=parent_must_exist
    )


@dataclass
class Clock:
    """A clock that a test sets."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


class NamedCatalog(Catalog):
    """A catalog whose decisions have names, for tests without a node."""

    def __init__(self, store: KeyValueStore, clock_ms: Callable[[], int] = wall_clock_ms) -> None:
        super().__init__(store, lambda _: self.all_held, clock_ms)
        self.all_held = False
        """True if the writer of every open file renews."""

    async def make_directories(self, request: MakeDirectories) -> FileStatus:
        ids, once = len(split(request.path)), request.once
        decide = in_one(namespace.make_directories)
        return (await self.decide(FileStatus, decide, request, ids, once=once)).value

    async def create(self, request: CreateFile) -> FileInode:
        ids, once = len(split(request.path)), request.once
        decide = in_one(namespace.create)
        return (await self.decide(FileInode, decide, request, ids, once=once)).value

    async def rename(self, request: RenamePath) -> FileStatus:
        decide = in_one(namespace.rename)
        return (await self.decide(FileStatus, decide, request, once=request.once)).value

    async def delete(self, request: DeletePath) -> Deletion:
        return (await self.decide(Deletion, namespace.delete, request, once=request.once)).value

    async def concat(self, request: ConcatFiles) -> FileStatus:
        def decide(draft: Draft, request: ConcatFiles, context: Context) -> Slices[FileStatus]:
            yield from concat(draft, request.target, request.sources, context)
            return tree.stat(draft, request.target, context.actor)

        return (await self.decide(FileStatus, decide, request, once=request.once)).value

    async def transact(self, request: Transact) -> TransactionOutcome:
        decide, ids = transactions.transact, transactions.new_inodes(request.operations)
        told: dict[Cut, Boundary] = {}
        while True:
            try:
                answer = await self.decide(
                    TransactionOutcome, decide, request, ids, once=request.once, boundaries=told
                )
                return answer.value
            except BoundaryUnknownError as unknown:
                chunks = unknown.cut.offset // CHUNK_BYTES
                told[unknown.cut] = Boundary(chunks, chunks * CHUNK_BYTES)

    async def application_version(self, app_id: str) -> int | None:
        last = transactions.last_applied(await self.view(), app_id)
        return None if last is None else last.version

    async def list(self, request: ListDirectory) -> Listing:
        return tree.list_directory(await self.view(), request, LIST_LIMIT, ACTOR.get())


async def new_catalog(store: MemoryStore | None = None) -> NamedCatalog:
    """A catalog on a fresh store in memory."""
    ticks = iter(range(1, 1 << 30))
    catalog = NamedCatalog(store or MemoryStore(), lambda: next(ticks))
    await catalog.start(TAG, "cluster-1")
    return catalog


async def sweep_everything(catalog: Catalog) -> list[BlockEntry]:
    """Sweep until nothing is left; return the blocks that went."""
    gone: list[BlockEntry] = []
    while (swept := await catalog.sweep()) is not None:
        gone += swept.removed
    assert not catalog.has_garbage
    return gone


async def add_block(
    catalog: Catalog, file: int, previous: BlockId = NO_BLOCK, writer: WriterId = ANN
) -> BlockEntry:
    """Add a block at `MEMBERS`."""
    request = AddBlock(file, writer, previous, window=2)
    return await catalog.add_block(request, await catalog.next_block(), MEMBERS)


async def finalize(
    catalog: Catalog, entry: BlockEntry, length: int, writer: WriterId = ANN
) -> BlockEntry:
    """K6 with chunks of `CHUNK_BYTES`."""
    return await catalog.finalize_by_writer(finalize_request(entry, length, writer))


def finalize_request(entry: BlockEntry, length: int, writer: WriterId = ANN) -> FinalizeBlock:
    """K6 as a client sends it."""
    block = entry.record.block
    return FinalizeBlock(block, writer, FIRST_GENERATION, length, length * CHUNK_BYTES)


async def file_with_blocks(catalog: NamedCatalog, path: str, *lengths: int) -> FileInode:
    """An open file of `ANN` with finalized blocks of these lengths in chunks."""
    inode = await catalog.create(create_request(path))
    previous = NO_BLOCK
    for length in lengths:
        entry = await add_block(catalog, inode.number, previous)
        await finalize(catalog, entry, length)
        previous = entry.record.block
    return inode


async def blocks_of(catalog: Catalog, number: int) -> list[BlockEntry]:
    """The blocks of a file by its id, in order."""
    return [entry async for page in catalog.block_pages(number) for entry in page]


async def closed_file(catalog: NamedCatalog, path: str, *lengths: int) -> int:
    """A file that `ANN` wrote and closed; returns its id."""
    file = await file_with_blocks(catalog, path, *lengths)
    await catalog.close_file(CloseFile(file.number, ANN))
    return file.number


@dataclass
class Scene:
    """A NameNode over a network of acceptors in memory, its clock in the test's hand."""

    node: NameNode
    service: Service
    network: Network
    clock: Clock
    store: MemoryStore
    reports: Iterator[int] = field(default_factory=lambda: itertools.count(1), kw_only=True)
    incarnations: dict[str, str] = field(default_factory=dict[str, str], kw_only=True)

    def acceptor(self, storage: str) -> Acceptor:
        """One of the storages."""
        return self.network.reach[StorageId(storage)]

    async def register(
        self,
        storage: str,
        *,
        report: bool = True,
        rack: str = DEFAULT_RACK,
        incarnation: str = "run-1",
    ) -> None:
        """The DataNode `dn-<storage>`, on a machine of that name, registers and reports."""
        acceptor = self.acceptor(storage)
        acceptor.alive = True
        name = f"dn-{storage}"
        room = StorageReport(StorageId(storage), ROOM_BYTES, ROOM_BYTES, 0)
        self.incarnations[storage] = incarnation
        request = Register(name, f"{name}:9864", incarnation, (room,), rack=rack)
        await self.service.call(REGISTER, request)
        if report:
            await self.report(storage)

    async def beat(self, *storages: str, failed: str = "") -> None:
        """Heartbeats of these storages' DataNodes; `failed` is why their volumes are lost."""
        for storage in storages:
            room = StorageReport(StorageId(storage), ROOM_BYTES, ROOM_BYTES, 0, failed)
            beat = Heartbeat(f"dn-{storage}", self._incarnation(storage), (room,), 0)
            await self.service.call(HEARTBEAT, beat)

    async def report(self, storage: str, *, full: bool = True) -> None:
        """A block report of all replicas of a storage; not `full`, as if all had changed."""
        await self.service.call(BLOCK_REPORT, self.written(storage, ALL_BLOCKS if full else None))

    def written(self, storage: str, covers: BlockRange | None) -> BlockReport:
        """A report as a storage writes it now: all of a range, or as if all had changed."""
        acceptor = self.acceptor(storage)
        blocks = [
            block
            for block in sorted(acceptor.replicas)
            if covers is None or covers.after < block <= covers.last
        ]
        number, name = next(self.reports), StorageId(storage)
        replicas = tuple(acceptor.summary(each) for each in blocks if each not in acceptor.dead)
        dead = tuple(acceptor.dead_replica(each) for each in blocks if each in acceptor.dead)
        process = self._incarnation(storage)
        return BlockReport(f"dn-{storage}", process, name, number, covers, replicas, dead=dead)

    def _incarnation(self, storage: str) -> str:
        """The process that registered last for a storage."""
        return self.incarnations.get(storage, "run-1")

    async def create(self, path: str, writer: WriterId = ANN) -> int:
        """Make a file; return its id."""
        return (await self.service.call(CREATE, create_request(path, writer))).status.file_id

    async def add_block(
        self, file: int, previous: BlockId = NO_BLOCK, writer: WriterId = ANN
    ) -> BlockView:
        """Add a block and make its replicas, as a writer does."""
        view = await self.service.call(ADD_BLOCK, AddBlock(file, writer, previous, window=2))
        for storage in view.record.members:
            self.network.reach[storage].create(view.record.block)
        return view

    def write(self, view: BlockView, *counts: int) -> None:
        """Chunks that the members have voted for, member by member."""
        for storage, count in zip(view.record.members, counts, strict=True):
            self.network.reach[storage].write(view.record.block, count)

    async def close(self) -> None:
        """End the node's work."""
        await self.node.close()


async def new_scene(
    *storages: str,
    store: MemoryStore | None = None,
    network: Network | None = None,
    config: NameNodeConfig | None = None,
) -> Scene:
    """A started node; each storage (default: three) is a DataNode that registered."""
    store = store or MemoryStore()
    network = network or Network(acceptors(*(storages or MEMBERS)))
    clock = Clock()
    node = NameNode("nn", config or NameNodeConfig(), store, clock, lambda _: network)
    await node.start()
    scene = Scene(node, Service(node), network, clock, store)
    for storage in network.reach:
        if network.reach[storage].alive:
            await scene.register(storage)
    return scene
