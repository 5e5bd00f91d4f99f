"""The calls that take several steps, or concern only this process: one function for each `handled`
row of `calls.py`. The functions called here document the errors.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import zip_longest

import msgspec

from paxosblock.api.file_pages import FileView, GetFile
from paxosblock.api.lease_call import LeaseRecovery, RecoverLease
from paxosblock.api.methods import Done
from paxosblock.api.namenode import (
    NO_BLOCK,
    NO_FILE,
    AddBlock,
    Appendable,
    AppendFile,
    BadReplica,
    BlockRequest,
    BlockView,
    CloseFile,
    CreatedFile,
    CreatedFiles,
    CreateFile,
    CreateFiles,
    DeleteBlock,
    Deletion,
    FileStatus,
    FinalizeBlock,
    FirstBlock,
    Renewed,
    RenewLeases,
    ReopenBlock,
    Reopened,
    TakeOver,
    Transact,
)
from paxosblock.api.rebuild import RebuildBlock
from paxosblock.api.reports import (
    BlockReport,
    Heartbeat,
    HeartbeatAnswer,
    Register,
    Registered,
    ReportAnswer,
)
from paxosblock.api.transaction import TransactionOutcome
from paxosblock.base import paths
from paxosblock.base.replacement import Failed
from paxosblock.errors import (
    InvalidRequestError,
    LeaseError,
    NoSpaceError,
    NotReadyError,
    in_doubt,
)
from paxosblock.namenode import checks
from paxosblock.namenode.blocks.placement import Candidate, Wish, place, shortfall
from paxosblock.namenode.blocks.replacing import members_of_next
from paxosblock.namenode.catalog import creating, transactions
from paxosblock.namenode.catalog.blocks import Closed
from paxosblock.namenode.catalog.boundaries import Boundaries
from paxosblock.namenode.catalog.changes import Decided
from paxosblock.namenode.catalog.creating import Made, MadeTogether, Placed
from paxosblock.namenode.catalog.draft import Draft, Slices, in_one
from paxosblock.namenode.catalog.namespace import Context
from paxosblock.namenode.catalog.records import BlockEntry
from paxosblock.namenode.name_node import NameNode
from paxosblock.namenode.rolling import blocks_to_leave
from paxosblock.net.port.caller import CALLER
from paxosblock.protocol.types import NO_WRITER, BlockId, BlockState, StorageId, WriterId

# --- namespace -------------------------------------------------------------------------------


async def create(node: NameNode, request: CreateFile) -> CreatedFile:
    """Make a file, start its writer's lease, and place the block that it begins with."""
    (placed,) = await _placed_first(node, (request,))
    decision, ids = in_one(partial(creating.create, placed=placed)), len(paths.split(request.path))
    made = (await node.catalog.decide(Made, decision, request, ids, once=request.once)).value
    return _begun(node, request, made)


async def create_files(node: NameNode, request: CreateFiles) -> CreatedFiles:
    """Make files as `create` does, all in one step."""
    decision = partial(creating.create_all, placed=await _placed_first(node, request.files))
    made_paths = [each.path for each in request.files]
    if request.directory is not None:
        made_paths.append(request.directory.path)
    ids = sum(len(paths.split(path)) for path in made_paths)
    made = await node.catalog.decide(MadeTogether, decision, request, ids, once=request.once)
    pairs = zip(request.files, made.value.files, strict=True)
    return CreatedFiles(tuple(_begun(node, each, file) for each, file in pairs))


def _begun(node: NameNode, request: CreateFile, made: Made) -> CreatedFile:
    """Start the lease of a file that was made, and show the file to its writer."""
    node.leases.open(request.writer, made.status.file_id, node.clock_s(), CALLER.get())
    if request.overwrite:
        node.housekeeper.garbage_waits()
    if made.first is None:
        return CreatedFile(made.status)
    first = made.first.record
    node.datanodes.note_placed(first.block, first.members, _room_for_first(request))
    return CreatedFile(made.status, node.views.block(made.first, to_writer=True))


def _room_for_first(request: CreateFile) -> int:
    """Return how many bytes the first block of a file may get."""
    known = 0 if request.first is None else request.first.size
    return min(known or request.block_size, request.block_size)


async def append(node: NameNode, request: AppendFile) -> Appendable:
    """Open a closed file again and start its writer's lease."""
    opened = await node.reopener.append(request, node.clock_s())
    node.leases.open(request.writer, opened.status.file_id, node.clock_s(), CALLER.get())
    return opened


async def transact(node: NameNode, request: Transact) -> Decided[TransactionOutcome]:
    """Apply the operations in one step, after asking holders if they cut blocks; files are closed
    in the same step."""
    closed: list[Closed] = []

    def decision(draft: Draft, request: Transact, context: Context) -> Slices[TransactionOutcome]:
        closed.clear()  # another change came first, and it is decided again
        return transactions.transact(draft, request, context, closed.append)

    async def decide(boundaries: Boundaries) -> Decided[TransactionOutcome]:
        ids = transactions.new_inodes(request.operations)
        return await node.catalog.decide(
            TransactionOutcome, decision, request, ids, once=request.once, boundaries=boundaries
        )

    for each in request.all_closes:
        _check_close(node, each)
        await node.closer.prepare(each)
    outcome = await node.cutter.decide(decide)
    node.housekeeper.garbage_waits()
    with in_doubt():
        await node.closer.finish(zip_longest(request.all_closes, closed))
    return outcome


async def take_over(node: NameNode, request: TakeOver) -> FileStatus:
    """Fence a file's writer, finalize its last block, close it."""
    inode = await node.closer.take_over(request.path, node.clock_s())
    return await node.catalog.file_status(inode.number)


async def recover_lease(node: NameNode, request: RecoverLease) -> LeaseRecovery:
    """End the writing of a file; if that fails, report the answer of each member."""
    catalog, reason = node.catalog, ""
    file = (await catalog.status(request.path)).file_id
    given_up = {each.block: each.members for each in request.give_up}
    asked = (*given_up, *request.empty)
    named = await catalog.block_entries(asked)  # some may have ended meanwhile
    checks.check_recover_lease(request, [each for each in named if each and each.file == file])
    try:
        for block in request.empty:
            await node.learner.learn_nothing(block)
        await node.closer.take_over(request.path, node.clock_s(), given_up)
    except NotReadyError as error:
        reason = str(error)
    status = await catalog.status(request.path)
    entries = await catalog.stuck(file)
    shown = node.surveyor.stuck(entries, status.block_size)
    pairs = zip(entries, shown, strict=True)
    surveyed = [(entry, node.learner.survey(entry.record, each)) for entry, each in pairs]
    # What is finalized is learned without an operator, unless no storage has it.
    stuck = tuple(
        each for entry, each in surveyed if each.may_be_empty or not entry.record.finalized
    )
    if reason and not stuck:
        raise NotReadyError(f"{paths.shown(request.path)}: {reason}", path=request.path)
    return LeaseRecovery(status, stuck, reason)


async def get_file(node: NameNode, request: GetFile) -> FileView:
    """Show a file and a page of its blocks."""
    found = await node.catalog.file_page(request, node.page_blocks)
    last = found.last or (found.page.blocks[-1] if found.page.blocks else None)
    if last is not None:
        _hurry_recovery(node, last.entry)
    return node.views.file(found, request.host, with_keys=not request.only_shows)


def _hurry_recovery(node: NameNode, entry: BlockEntry) -> None:
    """A reader waits for the end of a block that may be under recovery."""
    if entry.record.state is BlockState.UNDER_RECOVERY:
        node.recoverer.take_up(entry.record.block)


# --- files being written, blocks -------------------------------------------------------------


async def add_block(node: NameNode, request: AddBlock) -> BlockView:
    """K1: place a new block."""
    entry = await node.catalog.already_added(request)
    if entry is None:
        view = await _place(node, request)
    else:
        view = node.views.block(entry, to_writer=True)
    if request.file_id == NO_FILE and not view.record.finalized:
        block, writer = view.record.block, view.record.writer
        node.block_leases.open(writer, block, node.clock_s())
    return view


async def reopen_block(node: NameNode, request: ReopenBlock) -> Reopened:
    """K4, K7: let a writer go on in the last block of its file."""
    found = await node.reopener.reopen(request, node.clock_s())
    if isinstance(found, str):
        return Reopened(None, found)
    short = "it was opened again, at those of its members that can go on"
    view = node.views.block(found, to_writer=True)
    return Reopened(msgspec.structs.replace(view, shortfall=short))


async def finalize_block(node: NameNode, request: FinalizeBlock) -> BlockView:
    """K6: FinalizeBlock(b, length)."""
    checks.check_finalize(request, node.config)
    entry = await node.finalizer.finalize_by_writer(request)
    node.block_leases.release(request.block)
    return node.views.block(entry, with_key=False)


async def seal_block(node: NameNode, request: BlockRequest) -> BlockView:
    """K11: FinalizeBlock(b), for the block's writer, or for any client once its lease is over."""
    entry = await node.catalog.get_block(request.block)
    if not entry.record.finalized:
        await _check_may_seal(node, entry, request.writer)
        entry = await node.recoverer.finalize(request.block)
    node.block_leases.release(request.block)
    return node.views.block(entry, with_key=False)


async def rebuild_block(node: NameNode, request: RebuildBlock) -> BlockView:
    """K3: let the block's writer go on with other members."""
    if node.warming_up:
        raise NotReadyError("this NameNode has just started, and does not know who lives")
    rebuilt = await node.rebuilder.rebuild(request, node.clock_s())
    return node.views.block(rebuilt, to_writer=True)


async def delete_block(node: NameNode, request: DeleteBlock) -> Decided[Deletion]:
    """Delete a block without a file, and tell its members to drop their replicas."""
    (entry,) = await node.catalog.block_entries((request.block,))
    deletion = await node.catalog.delete_block(request)
    node.block_leases.release(request.block)
    if deletion.value.existed and entry is not None:
        node.finalizer.delete_everywhere(entry)
    return deletion


async def get_block(node: NameNode, request: BlockRequest) -> BlockView:
    """K10: show a block; its writer may get a capability again that has ended."""
    entry = await node.catalog.get_block(request.block)
    _hurry_recovery(node, entry)
    to_writer = request.writer != NO_WRITER and request.writer == entry.record.writer
    return node.views.block(entry, host=request.host, to_writer=to_writer)


async def close_file(node: NameNode, request: CloseFile) -> FileStatus:
    """End the writing of a file, and of its last block."""
    _check_close(node, request)
    closed = await node.closer.close(request)
    return await node.catalog.file_status(request.file_id, closed)  # others may append by now


async def renew_leases(node: NameNode, request: RenewLeases) -> Renewed:
    """Renew leases. Only the leader knows enough writers to call one lost."""
    await node.catalog.view()  # raises if this NameNode no longer leads
    now_s = node.clock_s()
    without_file = node.leases.renew(request.writers, now_s, CALLER.get())
    without_block = set(node.block_leases.renew(request.writers, now_s))
    lost = tuple(writer for writer in without_file if writer in without_block)
    for each in request.open_blocks:
        if each.short:
            node.monitor.look_at(each.block)
    return Renewed(lost, await blocks_to_leave(node, request.open_blocks))


async def report_bad_replica(node: NameNode, request: BadReplica) -> Done:
    """Arrange for a damaged replica to be replaced."""
    await node.reports.damaged(request.block, request.storage, request.reason)
    return Done()


# --- DataNodes -------------------------------------------------------------------------------


async def register(node: NameNode, request: Register) -> Registered:
    """Register a DataNode, or raise an alarm if it must not be in this cluster."""
    try:
        checks.check_heartbeat(request, node.config.datanode_stale_after_s)
        await node.registrar.register(request)
        node.copies.give_up_lost()
    except InvalidRequestError as error:
        node.alarms.ring(f"refused {error}", address=request.address)
        raise
    told = node.tokens.told(0)
    return Registered(node.catalog.cluster_id, node.keys_for(request.node), told)


async def heartbeat(node: NameNode, request: Heartbeat) -> HeartbeatAnswer:
    """Note that a DataNode lives."""
    now_s = node.clock_s()
    cluster = node.catalog.cluster_id
    if not node.datanodes.heartbeat(request, now_s, cluster):
        return HeartbeatAnswer(True, False, *node.listed())
    report, keys = node.datanodes.must_report(request.node, now_s), node.keys_for(request.node)
    tokens = node.tokens.told(request.tokens_at)
    return HeartbeatAnswer(False, report, *node.listed(), keys, tokens)


async def block_report(node: NameNode, request: BlockReport) -> ReportAnswer:
    """Take in a storage's report of its replicas."""
    return await node.reports.take(request)


# --- helpers ---------------------------------------------------------------------------------


def _check_close(node: NameNode, request: CloseFile) -> None:
    checks.check_writer(request.writer)
    if request.last is not None:
        checks.check_finalize(request.last, node.config)


async def _place(node: NameNode, request: AddBlock) -> BlockView:
    """Choose members for a new block and make it."""
    config = node.config
    replication, block_size = request.replication, config.block_size
    if request.file_id != NO_FILE:
        inode = await node.catalog.open_file(request.file_id, request.writer)
        replication, block_size = inode.replication, inode.block_size
    block = await node.catalog.next_block()
    wish = Wish(
        replication=replication,
        min_replication=config.min_replication,
        block_size=block_size,
        seed=block,
        writer_host=request.host,
    )
    candidates = node.datanodes.candidates(node.clock_s(), request.excluded)
    members = _members(node, wish, candidates, request.after)
    entry = await node.catalog.add_block(request, block, members)
    node.datanodes.note_placed(block, entry.record.members, block_size)
    missing = shortfall(wish, candidates, entry.record.members)
    return msgspec.structs.replace(node.views.block(entry, to_writer=True), shortfall=missing)


async def _placed_first(node: NameNode, files: tuple[CreateFile, ...]) -> tuple[Placed | None, ...]:
    """Choose members for the first block of each file that asks for one; None for a file that does
    not, or if there are too few: AddBlock explains."""
    blocks = [await node.catalog.next_block() if each.first else NO_BLOCK for each in files]
    candidates = node.datanodes.candidates(node.clock_s())
    pairs = zip(files, blocks, strict=True)
    return tuple(
        None if each.first is None else _placed(each, each.first, block, candidates)
        for each, block in pairs
    )


def _placed(
    request: CreateFile, first: FirstBlock, block: BlockId, candidates: tuple[Candidate, ...]
) -> Placed | None:
    wish = Wish(
        replication=request.replication,
        min_replication=request.replication,
        block_size=_room_for_first(request),
        seed=block,
        writer_host=first.host,
    )
    try:
        return Placed(block, place(wish, candidates))
    except NoSpaceError:
        return None


def _members(
    node: NameNode, wish: Wish, candidates: tuple[Candidate, ...], after: Failed | None
) -> tuple[StorageId, ...]:
    """Place a block. A node that has just started does not settle for fewer members than asked."""
    if after is not None and not node.warming_up:
        return members_of_next(wish, candidates, after)
    if not node.warming_up:
        return place(wish, candidates)
    try:
        return place(replace(wish, min_replication=wish.replication), candidates)
    except NoSpaceError as error:
        raise NotReadyError(f"{error}; this NameNode has just started") from error


async def _check_may_seal(node: NameNode, entry: BlockEntry, writer: WriterId) -> None:
    """K11: refuse if another writer holds the file; this is for its progress, not for safety."""
    if entry.file == NO_FILE or entry.record.writer == writer:
        return
    holder = await node.catalog.holder(entry.file)
    if holder is not None and node.is_held(holder):
        raise LeaseError(
            f"block {entry.record.block}: is being written by {holder.writer}; take_over ends that",
            block=entry.record.block,
            writer=holder.writer,
        )
