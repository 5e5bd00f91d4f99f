"""A NameNode in memory for `MemoryDataNode`s: real records, real recoveries, real control calls.

Leases, placement and the namespace are as simple as the client's tests allow; whoever wants those
for real starts a `LocalCluster`. Which DataNodes failed a writer and were heard of since is judged
by the real registry.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
from aiohttp import web

from paxosblock.api.care import AdminState
from paxosblock.api.file_pages import GET_FILE, PAGE_BLOCKS, FileView, GetFile
from paxosblock.api.methods import Done
from paxosblock.api.namenode import (
    ADD_BLOCK,
    APPEND,
    CLOSE_FILE,
    CREATE,
    FINALIZE_BLOCK,
    GET_BLOCK,
    NO_BLOCK,
    NO_FILE,
    RENEW_LEASES,
    REOPEN_BLOCK,
    REPORT_BAD_REPLICA,
    SEAL_BLOCK,
    TAKE_OVER,
    AddBlock,
    Appendable,
    AppendFile,
    BadReplica,
    BlockMember,
    BlockRequest,
    BlockView,
    CloseFile,
    CreatedFile,
    CreateFile,
    Excluded,
    FileStatus,
    FinalizeBlock,
    Kind,
    OpenBlock,
    Renewed,
    RenewLeases,
    ReopenBlock,
    Reopened,
    TakeOver,
)
from paxosblock.api.rebuild import REBUILD_BLOCK, RebuildBlock
from paxosblock.api.reports import Heartbeat, Register, StorageReport
from paxosblock.base.rack import FAR_AWAY
from paxosblock.base.replacement import Failed
from paxosblock.client.async_client import AsyncClient
from paxosblock.config import ClientConfig
from paxosblock.errors import (
    ExistsError,
    FencedError,
    InvalidRequestError,
    NoSpaceError,
    NotFoundError,
    NotReadyError,
    OutcomeUnknownError,
)
from paxosblock.namenode.blocks.datanodes import DataNodes
from paxosblock.namenode.blocks.placement import Blame, Candidate, Wish
from paxosblock.namenode.blocks.replacing import members_after, members_of_next
from paxosblock.net.calls.call_server import RpcRouter, add_calls
from paxosblock.protocol import finalize, recovery
from paxosblock.protocol.finalize import BlockRecord, Refused
from paxosblock.protocol.messages import Delete, LastVote, RecoveryVote
from paxosblock.protocol.types import NO_WRITER, BlockId, BlockState, StorageId, WriterId
from tests.client.memory_node import MemoryDataNode


@dataclass(slots=True)
class _File:
    status: FileStatus
    writer: WriterId
    blocks: list[BlockId] = field(default_factory=list)
    ahead: list[BlockId] = field(default_factory=list)
    """Blocks that were made ahead and have no place yet."""


class MemoryCluster:
    """Nodes by storage, records by block, files by path."""

    def __init__(self, count: int) -> None:
        self.nodes = [MemoryDataNode(f"storage-{number}") for number in range(count)]
        self.by_storage = {node.storage: node for node in self.nodes}
        self.dead: set[StorageId] = set()
        self.silent: set[StorageId] = set()
        """Storages whose heartbeats do not arrive, dead or not."""
        self.datanodes = DataNodes(stale_after_s=1000, dead_after_s=1000)
        self.records: dict[BlockId, BlockRecord] = {}
        self.files: dict[str, _File] = {}
        self.bad_replicas: list[BadReplica] = []
        self.calls: list[str] = []
        self.unsent: list[bool] = []
        """For each close, whether the writer says that none heard of the block made with it."""
        self.left_alone = ""
        """The reason that no block is opened again; "" while blocks are."""
        self.page_blocks = PAGE_BLOCKS
        self.tell_members = True
        """True if members are told at once that a block is finalized."""
        self.forgotten_bytes = 0
        """Bytes that are missing from the length of a file when it is closed."""
        self.answers_lost: set[str] = set()
        """Control calls that are carried out, but whose answers do not arrive."""
        self.distances: dict[tuple[str, StorageId], int] = {}
        """Distances of storages from a machine, as this NameNode knows them."""
        self.warming_up = False
        """It has just started, and rebuilds no block."""
        self.disk_full = False
        """The NameNode's own: no call is carried out."""
        self.address = ""
        self._numbers = itertools.count(1)
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Start the DataNodes, then the NameNode."""
        for node in self.nodes:
            node.peers = self.by_storage
            await self.revive(node)
        await self.start_namenode()

    async def start_namenode(self) -> None:
        """Listen; again on the same port when it ran before."""
        router, app = RpcRouter(), web.Application()
        for method, handler in (
            (CREATE, self.create), (ADD_BLOCK, self.add_block), (SEAL_BLOCK, self.seal_block),
            (FINALIZE_BLOCK, self.finalize_block), (CLOSE_FILE, self.close_file),
            (GET_FILE, self.get_file), (GET_BLOCK, self.get_block), (TAKE_OVER, self.take_over),
            (REBUILD_BLOCK, self.rebuild_block), (RENEW_LEASES, self.renew),
            (REPORT_BAD_REPLICA, self.report_bad_replica),
            (APPEND, self.append), (REOPEN_BLOCK, self.reopen_block),
        ):  # fmt: skip
            router.register(method.name, method.request, self._counted(method.name, handler))
        add_calls(app, router)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        port = int(self.address.rpartition(":")[2] or 0)
        await web.TCPSite(self._runner, "127.0.0.1", port).start()
        self.address = "{}:{}".format(*self._runner.addresses[0][:2])

    def _counted(
        self, name: str, handler: Callable[[Any], Awaitable[object]]
    ) -> Callable[[Any], Awaitable[object]]:
        async def call(request: Any) -> object:
            self.calls.append(name)
            if self.disk_full:
                raise NoSpaceError("the disk of this NameNode is full", address=self.address)
            answer = await handler(request)
            if name in self.answers_lost:
                raise OutcomeUnknownError(f"the answer to {name} is lost")
            return answer

        return call

    async def stop_namenode(self) -> None:
        """Stop the NameNode alone."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def stop(self) -> None:
        """Stop all."""
        await self.stop_namenode()
        for node in self.nodes:
            await node.kill()

    async def kill(self, node: MemoryDataNode) -> None:
        """Kill a DataNode; the NameNode is not told, only its recoveries miss it."""
        self.dead.add(node.storage)
        await node.kill()

    async def revive(self, node: MemoryDataNode) -> None:
        """Start a DataNode, which registers, and is told what was finalized without it."""
        await node.start()
        self.dead.discard(node.storage)
        name = str(node.storage)
        register = Register(name, node.address, "run", (self._report(node),))
        self.datanodes.register(register, time.monotonic())
        for block, record in self.records.items():
            if record.finalized and node.storage in record.members:
                self.tell_finalized(block)

    def _hear(self) -> None:
        """The heartbeats that have come by now."""
        for node in self.nodes:
            if node.storage not in self.dead | self.silent:
                heartbeat = Heartbeat(str(node.storage), "run", (self._report(node),), 0)
                assert self.datanodes.heartbeat(heartbeat, time.monotonic())

    def _report(self, node: MemoryDataNode) -> StorageReport:
        return StorageReport(node.storage, 1 << 40, 1 << 40, 0)

    def content(self, path: str) -> bytes:
        """Return the bytes of a file: each block from its first live member that finalized it."""
        return b"".join(self._block_content(block) for block in self.files[path].blocks)

    def _block_content(self, block: BlockId) -> bytes:
        record = self.records[block]
        live = [self.by_storage[at] for at in record.members if at not in self.dead]
        datas = {node.data(block) for node in live}
        assert record.finalized
        assert len(datas) == 1, "replicas of a finalized block are equal"
        data = datas.pop()
        assert len(data) == record.size_bytes
        return data

    # -- what clients call ----------------------------------------------------------------------

    async def create(self, request: CreateFile) -> CreatedFile:
        if request.path in self.files and not request.overwrite:
            raise ExistsError(f"'{request.path}': exists already")
        status = FileStatus(
            request.path, Kind.FILE, next(self._numbers), 0, request.replication,
            request.block_size, request.durability, True, 0, 0, "", "", request.permission,
        )  # fmt: skip
        file = self.files[request.path] = _File(status, request.writer)
        if request.first is None:
            return CreatedFile(status)
        members = self._place(request.replication, ())
        if len(members) < request.replication:
            return CreatedFile(status)
        block = BlockId(next(self._numbers))
        self.records[block] = finalize.add_block(
            block, members, request.writer, request.first.window, request.durability
        )
        file.ahead.append(block)
        return CreatedFile(status, self._view(block))

    async def add_block(self, request: AddBlock) -> BlockView:
        blocks: list[BlockId] = []
        if request.file_id != NO_FILE:
            file = self._file(request.file_id)
            if file.writer != request.writer:
                raise FencedError("somebody else writes this file")
            blocks = file.blocks
            if request.ahead:
                blocks = file.ahead
            else:
                self._drop_ahead(file)
        if not request.ahead and blocks and blocks[-1] != request.previous:
            if self.records[blocks[-1]].finalized:
                raise InvalidRequestError(f"block {request.previous} is not the last block")
            return self._view(blocks[-1])
        if request.after is None:
            members = self._place(request.replication, request.excluded)
        else:
            wish = Wish(request.replication, 1, 1)
            members = members_of_next(wish, self._candidates(request.excluded), request.after)
        if len(members) < min(2, len(self.nodes)):
            raise NoSpaceError("too few DataNodes")
        block = BlockId(next(self._numbers))
        self.records[block] = finalize.add_block(
            block, members, request.writer, request.window, request.durability
        )
        blocks.append(block)
        short = len(members) < request.replication
        return msgspec.structs.replace(
            self._view(block), shortfall="too few DataNodes" if short else ""
        )

    def _drop_ahead(self, file: _File) -> None:
        for block in file.ahead:
            del self.records[block]
        file.ahead.clear()

    def _place(self, replication: int, excluded: tuple[Excluded, ...]) -> tuple[StorageId, ...]:
        """The first DataNodes in order, those that failed the writer only if it needs them."""
        found = self._candidates(excluded)
        usable = sorted(
            (c for c in found if c.blame < Blame.FRESH and c.admin is AdminState.IN_SERVICE),
            key=lambda c: c.blame,
        )
        return tuple(c.storage for c in usable[:replication])

    def _candidates(self, excluded: tuple[Excluded, ...]) -> tuple[Candidate, ...]:
        self._hear()
        return self.datanodes.candidates(time.monotonic(), excluded)

    async def rebuild_block(self, request: RebuildBlock) -> BlockView:
        if self.warming_up:
            raise NotReadyError("it does not know who lives")
        record = self._record(request.block)
        (file,) = (file for file in self.files.values() if request.block in file.blocks)
        if file.writer != request.writer or record.state is not BlockState.UNDER_CONSTRUCTION:
            raise FencedError("it is not this writer's any more")
        if record.writer_generation > request.generation:
            return self._view(request.block)
        left = tuple(each for each in record.members if each not in request.failed)
        failed = Failed(request.policy, len(record.members), left, request.flushed)
        wish, candidates = Wish(file.status.replication, 1, 1), self._candidates(request.excluded)
        return self.rebuild(request.block, members_after(wish, candidates, failed))

    async def append(self, request: AppendFile) -> Appendable:
        file = self._at(request.path)
        file.writer = request.writer
        file.status = msgspec.structs.replace(file.status, open=True)
        return Appendable(file.status, file.blocks[-1] if file.blocks else NO_BLOCK)

    async def reopen_block(self, request: ReopenBlock) -> Reopened:
        if self.left_alone:
            return Reopened(None, self.left_alone)
        if not self._record(request.block).finalized:
            return Reopened(self._view(request.block))
        return Reopened(self.reopen(request.block, request.writer))

    async def finalize_block(self, request: FinalizeBlock) -> BlockView:
        self._adopt(
            request.block,
            finalize.finalize_by_writer(
                self._record(request.block), request.writer, request.generation, request.length,
                request.size_bytes,
            ),
        )  # fmt: skip
        if request.following != NO_BLOCK:
            (file,) = (each for each in self.files.values() if request.block in each.blocks)
            if file.blocks[-1] == request.block:
                file.ahead.remove(request.following)
                file.blocks.append(request.following)
        return self._view(request.block)

    async def seal_block(self, request: BlockRequest) -> BlockView:
        record = self._record(request.block)
        if request.writer != NO_WRITER:
            owners = [file for file in self.files.values() if request.block in file.blocks]
            if any(file.writer != request.writer for file in owners):
                raise FencedError("somebody else writes this file")
        if not record.finalized:
            self.begin_recovery(request.block)
            self.end_recovery(request.block)
        return self._view(request.block)

    async def close_file(self, request: CloseFile) -> FileStatus:
        file = self._file(request.file_id)
        if file.writer != request.writer:
            raise FencedError("somebody else writes this file")
        if request.last is not None:
            if request.last.block in file.ahead and not file.blocks:
                file.blocks.append(request.last.block)
                file.ahead.clear()
            await self.finalize_block(request.last)
        self.unsent.append(request.unsent in file.ahead)
        return self._close(file)

    async def take_over(self, request: TakeOver) -> FileStatus:
        file = self._at(request.path)
        file.writer = WriterId("recovery")
        for block in file.blocks:
            await self.seal_block(BlockRequest(block))
        return self._close(file)

    async def get_file(self, request: GetFile) -> FileView:
        by_path = request.file_id == NO_FILE
        file = self._at(request.path) if by_path else self._file(request.file_id)
        views = [self._view(block, request.host) for block in file.blocks]
        start = request.place
        if request.offset is not None:
            before = sum(view.offset <= request.offset for view in views)
            start = max(before - 1, 0)
        end = start + self.page_blocks
        if end >= len(views):
            return FileView(file.status, tuple(views[start:]))
        return FileView(file.status, tuple(views[start:end]), end, views[-1])

    async def get_block(self, request: BlockRequest) -> BlockView:
        return self._view(request.block, request.host)

    async def renew(self, request: RenewLeases) -> Renewed:
        writers = {file.writer for file in self.files.values() if file.status.open}
        lost = tuple(writer for writer in request.writers if writer not in writers)
        return Renewed(lost, tuple(each.block for each in request.open_blocks if self._rolls(each)))

    def _rolls(self, told: OpenBlock) -> bool:
        """True if the next block would have more members, or as many, all in service."""
        members, now_s = self._record(told.block).members, time.monotonic()
        (wanted,) = (f.status.replication for f in self.files.values() if told.block in f.blocks)
        stay = all(
            self.datanodes.admin_state(member, now_s) is AdminState.IN_SERVICE for member in members
        )
        found = len(self._place(wanted, told.excluded))
        return found > len(members) if stay else found >= min(wanted, len(members))

    async def report_bad_replica(self, request: BadReplica) -> Done:
        self.bad_replicas.append(request)
        return Done()

    # -- records --------------------------------------------------------------------------------

    def _close(self, file: _File) -> FileStatus:
        records = [self._record(block) for block in file.blocks]
        if not all(record.finalized for record in records):
            raise NotReadyError("a block is not finalized")
        length = sum(record.size_bytes for record in records) - self.forgotten_bytes
        file.status = msgspec.structs.replace(file.status, open=False, size=length)
        return file.status

    def _file(self, number: int) -> _File:
        for file in self.files.values():
            if file.status.file_id == number:
                return file
        raise NotFoundError(f"file {number}: no such file")

    def _at(self, path: str) -> _File:
        if path not in self.files:
            raise NotFoundError(f"'{path}': no such file")
        return self.files[path]

    def _record(self, block: BlockId) -> BlockRecord:
        if block not in self.records:
            raise NotFoundError(f"block {block}: no such block")
        return self.records[block]

    def _adopt(self, block: BlockId, after: BlockRecord | Refused) -> None:
        if isinstance(after, Refused):
            raise FencedError(f"block {block}: {after.why.value}")
        after.check_follows(self.records[block])
        self.records[block] = after
        if after.finalized and self.tell_members:
            self.tell_finalized(block)

    def tell_finalized(self, block: BlockId, nodes: Sequence[MemoryDataNode] | None = None) -> None:
        """P5: Finalize to `nodes`, or every live member, the longest first."""
        record = self.records[block]
        live = [self.by_storage[at] for at in record.members if at not in self.dead]
        live.sort(key=lambda node: -len(node.frames[block]))
        message = finalize.finalize_message(record, tuple(node.storage for node in live[:1]))
        for node in live if nodes is None else nodes:
            node.handle(message)

    def replace_member(self, block: BlockId, leaving: StorageId, coming: StorageId) -> None:
        """A copy at `coming` becomes a member (K12), then `leaving` is none any more (K13, D7)."""
        record = self.records[block]
        fgs = record.finalized_generation
        self.by_storage[coming].handle(finalize.finalize_message(record, record.members))
        grown = finalize.add_replica(record, coming, fgs)
        assert not isinstance(grown, Refused)
        whole = tuple(member for member in grown.members if member != leaving)
        self._adopt(block, grown)
        self._adopt(block, finalize.remove_replica(grown, leaving, fgs, whole, len(whole)))
        self.by_storage[leaving].handle(Delete(block, fgs))

    def begin_recovery(self, block: BlockId) -> None:
        """K2: the block is under recovery."""
        self._adopt(block, finalize.allocate_seal(self.records[block]))

    def end_recovery(self, block: BlockId) -> None:
        """P1 to P4, K5: promises, the recovery's votes, the decision."""
        record = self.records[block]
        proposer = self._run(recovery.seal(record))
        assert proposer.choice is not None
        choice = proposer.choice
        self._adopt(
            block,
            finalize.finalize_by_recovery(
                record, proposer.base, proposer.generation, choice.length, choice.size_bytes
            ),
        )

    def cut(self, block: BlockId, length: int) -> None:
        """K8: a finalized block has only its first `length` chunks from now on."""
        record = self.records[block]
        held = next(each for each in self.nodes if each.storage in record.members)
        size = held.replicas[block].log.truncate(length).size_bytes
        self._adopt(block, finalize.truncate(record, length, size))

    def rebuild(self, block: BlockId, targets: tuple[StorageId, ...]) -> BlockView:
        """K3, P1 to P4, K7: the writer goes on with `targets`."""
        before = self.records[block]
        base = before.writer_generation
        self._adopt(block, finalize.allocate_rebuild(before, before.writer, base))
        proposer = self._run(recovery.rebuild(self.records[block], targets))
        assert proposer.choice is not None
        generation, length = proposer.generation, proposer.choice.length
        record = self.records[block]
        self._adopt(block, finalize.install_rebuild(record, base, generation, targets, length))
        return self._view(block)

    def reopen(self, block: BlockId, writer: WriterId) -> BlockView:
        """K4, P3, P4, K7: the finalized block is open again, for `writer`."""
        self._adopt(block, finalize.allocate_append(self.records[block]))
        record = self.records[block]
        base, members = record.writer_generation, record.members
        proposer = self._run(recovery.append(record, members))
        self._adopt(
            block, finalize.install_append(record, base, proposer.generation, members, writer)
        )
        return self._view(block)

    def _run(self, proposer: recovery.Proposer) -> recovery.Proposer:
        while proposer.phase in (recovery.Phase.PROMISING, recovery.Phase.WRITING):
            asked = [each for each in recovery.requests(proposer) if each[0] not in self.dead]
            if not asked:
                raise NotReadyError(f"block {proposer.block}: too few members live")
            for storage, request in asked:
                reply = self.by_storage[storage].handle(request)
                if isinstance(reply, LastVote):
                    proposer = recovery.on_last_vote(proposer, reply)
                elif isinstance(reply, RecoveryVote):
                    proposer = recovery.on_recovery_vote(proposer, reply)
        return proposer

    def _view(self, block: BlockId, host: str = "") -> BlockView:
        record = self._record(block)
        members = tuple(
            BlockMember(
                at,
                at,
                self.by_storage[at].address,
                at not in self.dead,
                distance=self.distances.get((host, at), FAR_AWAY),
            )
            for at in record.members
        )
        return BlockView(record, members, self._offset(block), complete=record.finalized)

    def _offset(self, block: BlockId) -> int:
        for file in self.files.values():
            if block in file.blocks:
                before = file.blocks[: file.blocks.index(block)]
                return sum(self.records[other].size_bytes for other in before)
        return 0


@asynccontextmanager
async def memory_cluster(
    count: int = 3, **settings: Any
) -> AsyncIterator[tuple[MemoryCluster, AsyncClient]]:
    """A running cluster and a client of it; `settings` are fields of `ClientConfig`."""
    cluster = MemoryCluster(count)
    await cluster.start()
    config = replace(ClientConfig(retry_for_s=30.0, vote_timeout_s=30.0), **settings)
    client = AsyncClient([cluster.address], config)
    try:
        yield cluster, client
    finally:
        await asyncio.wait_for(client.close(), 5)
        await cluster.stop()
