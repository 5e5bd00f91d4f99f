"""Answers the calls of `api.namenode` and `api.reports`: each request is checked, the parts do it,
and the result is shown.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

from paxosblock.api.files import GET_FILE, FileView, GetFile
from paxosblock.api.leases import (
    RECOVER_LEASE,
    LeaseRecovery,
    RecoverLease,
)
from paxosblock.api.methods import Done, Method
from paxosblock.api.namenode import (
    ADD_BLOCK,
    APPEND,
    APPLICATION,
    CLOSE_FILE,
    CLUSTER_STATUS,
    CONCAT,
    CREATE,
    DELETE,
    DELETE_BLOCK,
    EXPLAIN,
    FINALIZE_BLOCK,
    GET_BLOCK,
    LIST,
    MKDIRS,
    NO_FILE,
    RENAME,
    RENEW_LEASES,
    REPORT_BAD_REPLICA,
    SEAL_BLOCK,
    STAT,
    TAKE_OVER,
    TRANSACT,
    AddBlock,
    Appendable,
    AppendFile,
    ApplicationAnswer,
    ApplicationRequest,
    BadReplica,
    BlockExplanation,
    BlockRequest,
    BlockView,
    CloseFile,
    ClusterStatus,
    ClusterStatusRequest,
    ConcatFiles,
    CreateFile,
    DeleteBlock,
    DeletePath,
    Deletion,
    FileStatus,
    FinalizeBlock,
    ListDirectory,
    Listing,
    MakeDirectories,
    PathRequest,
    Rename,
    Renewed,
    RenewLeases,
    ShortBlock,
    TakeOver,
    Transact,
)
from paxosblock.api.reports import (
    BLOCK_REPORT,
    HEARTBEAT,
    REGISTER,
    BlockReport,
    Heartbeat,
    HeartbeatAnswer,
    Register,
    Registered,
    ReportAnswer,
)
from paxosblock.errors import InvalidRequestError, LeaseError, NoSpaceError, NotReadyError
from paxosblock.logs import facts
from paxosblock.namenode import checks
from paxosblock.namenode.blocks.placement import Candidate, Wish, place, shortfall
from paxosblock.namenode.catalog import paths, tree
from paxosblock.namenode.catalog.records import BlockEntry, FileInode
from paxosblock.namenode.node import NameNode
from paxosblock.net.rpc import RpcRouter
from paxosblock.protocol.types import StorageId, WriterId
from paxosblock.transaction import TransactionOutcome

_log = logging.getLogger(__name__)

Q = TypeVar("Q")
A = TypeVar("A")


class Service:
    """One method per call; what each raises is documented where it is done."""

    def __init__(self, node: NameNode) -> None:
        """Answer for `node`."""
        self._node = node

    def add_to(self, router: RpcRouter) -> None:
        """Register every call."""

        def answer(method: Method[Q, A], handler: Callable[[Q], Awaitable[A]]) -> None:
            router.register(method.name, method.request, handler)

        def lead(
            method: Method[Q, A],
            handler: Callable[[Q], Awaitable[A]],
            *,
            several_steps: bool = False,
        ) -> None:
            as_leader = partial(self._node.leadership.answer, handler, several_steps=several_steps)
            answer(method, as_leader)

        lead(MKDIRS, self.mkdirs)
        lead(CREATE, self.create)
        lead(APPEND, self.append)
        lead(STAT, self.stat)
        lead(LIST, self.list)
        lead(RENAME, self.rename)
        lead(DELETE, self.delete)
        lead(CONCAT, self.concat)
        lead(TRANSACT, self.transact)
        lead(APPLICATION, self.application)
        lead(TAKE_OVER, self.take_over, several_steps=True)
        lead(RECOVER_LEASE, self.recover_lease, several_steps=True)
        lead(GET_FILE, self.get_file)
        lead(ADD_BLOCK, self.add_block)
        lead(FINALIZE_BLOCK, self.finalize_block)
        lead(SEAL_BLOCK, self.seal_block, several_steps=True)
        lead(DELETE_BLOCK, self.delete_block)
        lead(GET_BLOCK, self.get_block)
        lead(CLOSE_FILE, self.close_file, several_steps=True)
        lead(RENEW_LEASES, self.renew_leases)
        lead(CLUSTER_STATUS, self.cluster_status)
        lead(EXPLAIN, self.explain)
        # Every NameNode listens to DataNodes, so that whoever leads next knows them.
        answer(REPORT_BAD_REPLICA, self.report_bad_replica)
        answer(REGISTER, self.register)
        answer(HEARTBEAT, self.heartbeat)
        answer(BLOCK_REPORT, self.block_report)

    # --- namespace -------------------------------------------------------------------------------

    async def mkdirs(self, request: MakeDirectories) -> FileStatus:
        """Make directories."""
        checks.check_directory(request)
        made = await self._node.catalog.make_directories(request)
        _log.info("mkdirs", extra=facts(path=request.path))
        return made

    async def create(self, request: CreateFile) -> FileStatus:
        """Make an empty file and start its writer's lease."""
        checks.check_create(request)
        inode = await self._node.catalog.create(request, self._held_by_other_than(request.writer))
        self._node.leases.open(request.writer, inode.number, self._node.clock_s())
        if request.overwrite:
            self._node.housekeeper.garbage_waits()
        _log.info(
            "create", extra=facts(path=request.path, file=inode.number, writer=request.writer)
        )
        return tree.file_status(request.path, inode, length=0)  # it was made without a block

    async def append(self, request: AppendFile) -> Appendable:
        """Open a closed file again and start its writer's lease."""
        checks.check_append(request)
        opened = await self._node.catalog.append(request)
        file = opened.status.file_id
        self._node.leases.open(request.writer, file, self._node.clock_s())
        _log.info("append", extra=facts(path=request.path, file=file, writer=request.writer))
        return opened

    async def stat(self, request: PathRequest) -> FileStatus:
        """Show a file or directory."""
        return await self._node.catalog.stat(request.path)

    async def list(self, request: ListDirectory) -> Listing:
        """Show a page of a directory."""
        return await self._node.catalog.list(request)

    async def rename(self, request: Rename) -> FileStatus:
        """Move a file or directory."""
        moved = await self._node.catalog.rename(request, self._is_held)
        if request.overwrite:
            self._node.housekeeper.garbage_waits()
        _log.info("rename", extra=facts(source=request.source, destination=request.destination))
        return moved

    async def delete(self, request: DeletePath) -> Deletion:
        """Unlink a file or directory; what hung on it is swept behind the scenes."""
        deletion = await self._node.catalog.delete(request)
        if deletion.existed:
            self._node.housekeeper.garbage_waits()
            _log.info("delete", extra=facts(path=request.path, recursive=request.recursive))
        return deletion

    async def concat(self, request: ConcatFiles) -> FileStatus:
        """Move the blocks of closed files to the end of another."""
        status = await self._node.catalog.concat(request)
        _log.info("concat", extra=facts(path=request.target, sources=len(request.sources)))
        return status

    async def transact(self, request: Transact) -> TransactionOutcome:
        """Apply many operations in one step, or none."""
        checks.check_transact(request)
        outcome = await self._node.catalog.transact(request, self._is_held)
        self._node.housekeeper.garbage_waits()
        _log.info(
            "transaction",
            extra=facts(
                operations=len(request.operations),
                application=request.application.app_id if request.application else "",
                version=outcome.version,
                applied=outcome.applied,
            ),
        )
        return outcome

    async def application(self, request: ApplicationRequest) -> ApplicationAnswer:
        """Tell which version of an application was applied last."""
        checks.check_application(request)
        return ApplicationAnswer(await self._node.catalog.application_version(request.app_id))

    async def take_over(self, request: TakeOver) -> FileStatus:
        """Fence a file's writer, finalize its last block, close it."""
        inode = await self._node.closer.take_over(request.path, self._node.clock_s())
        _log.info("take over", extra=facts(path=request.path, file=inode.number))
        return await self._node.catalog.file_status(inode.number)

    async def recover_lease(self, request: RecoverLease) -> LeaseRecovery:
        """End the writing of a file; where that fails, tell who answered what."""
        catalog, reason = self._node.catalog, ""
        file = (await catalog.stat(request.path)).file_id
        checks.check_recover_lease(request, await catalog.unfinished(file))
        given_up = {each.block: each.members for each in request.give_up}
        try:
            await self._node.closer.take_over(request.path, self._node.clock_s(), given_up)
        except NotReadyError as error:
            reason = str(error)
        status = await catalog.stat(request.path)
        stuck = self._node.surveyor.stuck(await catalog.unfinished(file), status.block_size)
        if reason and not stuck:
            raise NotReadyError(f"{paths.shown(request.path)}: {reason}", path=request.path)
        told = facts(path=request.path, stuck=len(stuck), given_up=len(given_up))
        _log.info("recover lease", extra=told)
        return LeaseRecovery(status, stuck, reason)

    async def get_file(self, request: GetFile) -> FileView:
        """Show a file and a page of its blocks."""
        checks.check_get_file(request)
        return self._node.views.file(await self._node.catalog.file_page(request))

    # --- files being written, blocks -------------------------------------------------------------

    async def add_block(self, request: AddBlock) -> BlockView:
        """K1: place a new block."""
        checks.check_add_block(request)
        entry = await self._node.catalog.already_added(request)
        view = await self._place(request) if entry is None else self._node.views.block(entry)
        if request.file_id == NO_FILE and not view.record.finalized:
            block, writer = view.record.block, view.record.writer
            self._node.block_leases.open(writer, block, self._node.clock_s())
        return view

    async def finalize_block(self, request: FinalizeBlock) -> BlockView:
        """K6: FinalizeBlock(b, length)."""
        checks.check_finalize(request, self._node.config)
        entry = await self._node.finalizer.finalize_by_writer(request)
        self._node.block_leases.release(request.block)
        _log.info(
            "finalize block",
            extra=facts(block=request.block, writer=request.writer, length=request.length),
        )
        return self._node.views.block(entry)

    async def seal_block(self, request: BlockRequest) -> BlockView:
        """K11: FinalizeBlock(b). For the block's writer, or for anybody once its lease is over."""
        entry = await self._node.catalog.get_block(request.block)
        if not entry.record.finalized:
            await self._check_may_seal(entry, request.writer)
            entry = await self._node.recoverer.finalize(request.block)
        self._node.block_leases.release(request.block)
        return self._node.views.block(entry)

    async def delete_block(self, request: DeleteBlock) -> Deletion:
        """Delete a block without a file; its members are told to drop their replicas."""
        (entry,) = await self._node.catalog.block_entries((request.block,))
        deletion = await self._node.catalog.delete_block(request)
        self._node.block_leases.release(request.block)
        if deletion.existed and entry is not None:
            self._node.finalizer.delete_everywhere(entry)
            _log.info("delete block", extra=facts(block=request.block))
        return deletion

    async def get_block(self, request: BlockRequest) -> BlockView:
        """K10: show a block."""
        return self._node.views.block(await self._node.catalog.get_block(request.block))

    async def close_file(self, request: CloseFile) -> FileStatus:
        """End the writing of a file."""
        checks.check_close(request)
        await self._node.closer.close(request.file_id, request.writer)
        return await self._node.catalog.file_status(request.file_id)

    async def renew_leases(self, request: RenewLeases) -> Renewed:
        """Keep leases. One that does not lead any more knows too few writers to call any lost."""
        checks.check_renew(request)
        await self._node.catalog.confirm()
        now_s = self._node.clock_s()
        without_file = self._node.leases.renew(request.writers, now_s)
        without_block = set(self._node.block_leases.renew(request.writers, now_s))
        lost = tuple(writer for writer in without_file if writer in without_block)
        return Renewed(lost, tuple(s.writer for s in request.short if self._has_more_for(s)))

    async def report_bad_replica(self, request: BadReplica) -> Done:
        """Have a damaged replica replaced."""
        checks.check_bad_replica(request)
        await self._node.reports.damaged(request.block, request.storage, request.reason)
        return Done()

    # --- DataNodes -------------------------------------------------------------------------------

    async def register(self, request: Register) -> Registered:
        """Learn a DataNode. One that must not be here is an alarm."""
        checks.check_register(request)
        cluster = self._node.catalog.cluster_id
        try:
            self._node.datanodes.register(request, self._node.clock_s(), cluster)
        except InvalidRequestError as error:
            self._node.alarms.ring(f"refused {error}", address=request.address)
            raise
        return Registered(cluster)

    async def heartbeat(self, request: Heartbeat) -> HeartbeatAnswer:
        """Note that a DataNode lives."""
        now_s = self._node.clock_s()
        cluster = self._node.catalog.cluster_id
        if not self._node.datanodes.heartbeat(request, now_s, cluster):
            return HeartbeatAnswer(register=True)
        report = self._node.datanodes.must_report(request.node, now_s)
        return HeartbeatAnswer(register=False, report=report)

    async def block_report(self, request: BlockReport) -> ReportAnswer:
        """Take in what a storage holds."""
        checks.check_report(request)
        return ReportAnswer(await self._node.reports.take(request))

    # --- people ----------------------------------------------------------------------------------

    async def cluster_status(self, _: ClusterStatusRequest) -> ClusterStatus:
        """Show the cluster."""
        counts = await self._node.catalog.counts()
        return ClusterStatus(
            namenode=self._node.name,
            role="leader",
            files=counts.files,
            blocks=counts.blocks,
            open_files=counts.open_files,
            recoveries=self._node.recoverer.running,
            datanodes=self._node.views.datanodes(),
        )

    async def explain(self, request: BlockRequest) -> BlockExplanation:
        """Show what happened to a block."""
        entry = await self._node.catalog.get_block(request.block)
        return BlockExplanation(
            view=self._node.views.block(entry),
            hdfs_state=self._node.views.hdfs_state(entry),
            path=await self._node.catalog.block_path(entry),
            history=self._node.history.of(request.block),
        )

    # --- helpers ---------------------------------------------------------------------------------

    def _is_held(self, inode: FileInode) -> bool:
        return self._node.leases.is_live(inode.writer, self._node.clock_s())

    def _held_by_other_than(self, writer: WriterId) -> Callable[[FileInode], bool]:
        return lambda inode: inode.writer != writer and self._is_held(inode)

    async def _place(self, request: AddBlock) -> BlockView:
        """Choose members for a new block and make it."""
        node, config = self._node, self._node.config
        replication, block_size = request.replication, config.block_size_bytes
        if request.file_id != NO_FILE:
            inode = await node.catalog.open_file(request.file_id, request.writer)
            replication, block_size = inode.replication, inode.block_size
        block = await node.catalog.next_block()
        wish = Wish(
            replication=replication,
            min_replication=config.min_replication,
            block_size=block_size,
            seed=block,
        )
        candidates = node.datanodes.candidates(block_size, node.clock_s(), request.excluded)
        members = self._members(wish, candidates)
        entry = await node.catalog.add_block(request, block, members)
        node.datanodes.note_placed(entry.record.members)
        _log.info(
            "add block",
            extra=facts(
                block=entry.record.block,
                file=request.file_id,
                writer=request.writer,
                members=",".join(entry.record.members),
            ),
        )
        return replace(
            node.views.block(entry), shortfall=shortfall(wish, candidates, entry.record.members)
        )

    def _members(self, wish: Wish, candidates: tuple[Candidate, ...]) -> tuple[StorageId, ...]:
        """Place a block; a node that just started does not settle for fewer members than asked."""
        if not self._node.warming_up:
            return place(wish, candidates)
        try:
            return place(replace(wish, min_replication=wish.replication), candidates)
        except NoSpaceError as error:
            raise NotReadyError(f"{error}; this NameNode has just started") from error

    def _has_more_for(self, short: ShortBlock) -> bool:
        """True if the writer's next block would get more members, none of them stale."""
        node = self._node
        wish = Wish(short.replication, short.members + 1, short.block_size)
        found = node.datanodes.candidates(short.block_size, node.clock_s(), short.excluded)
        try:
            place(wish, tuple(candidate for candidate in found if not candidate.stale))
        except NoSpaceError:
            return False
        return True

    async def _check_may_seal(self, entry: BlockEntry, writer: WriterId) -> None:
        """K11: safety does not depend on this, the writer's progress does."""
        if entry.file == NO_FILE or entry.record.writer == writer:
            return
        holder = await self._node.catalog.holder(entry.file)
        if holder is not None and self._is_held(holder):
            raise LeaseError(
                f"block {entry.record.block}: is being written by {holder.writer}; "
                "take_over ends that",
                block=entry.record.block,
                writer=holder.writer,
            )
