"""Files, blocks and generations: the typed operations of the NameNode on its key-value store.

Plain functions in the modules of this folder decide the operations: each reads and changes a
`Draft`, and never awaits (a long one yields in places where it may be interrupted). The draft is
committed as one edit that expects what was read. If another change came first, the operation is
decided again. Operations that only read use a linearizable view.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import TypeVar

import msgspec

from paxosblock.api.capability import BlockKey
from paxosblock.api.encryption import EncryptionZone
from paxosblock.api.file_pages import PAGE_BLOCKS, GetFile
from paxosblock.api.methods import Once
from paxosblock.api.namenode import (
    NO_BLOCK,
    NO_FILE,
    AddBlock,
    Appendable,
    AppendFile,
    CloseFile,
    DeleteBlock,
    Deletion,
    FileStatus,
    FinalizeBlock,
    ReopenBlock,
)
from paxosblock.api.quota import CheckedQuota, QuotaUsage
from paxosblock.api.reports import Timeline
from paxosblock.api.status import PastStatus
from paxosblock.api.user_tokens import TokenNote
from paxosblock.base import paths
from paxosblock.errors import NotReadyError
from paxosblock.namenode.catalog import (
    block_keys,
    blocks,
    deadlines,
    garbage,
    history_window,
    kept_blocks,
    kept_votes,
    keys,
    members,
    namespace,
    node_records,
    processes,
    quotas,
    reopening,
    snapshots,
    timelines,
    token_records,
    tree,
    without_file,
    zones,
)
from paxosblock.namenode.catalog.blocks import Closed, FilePage
from paxosblock.namenode.catalog.boundaries import Boundaries
from paxosblock.namenode.catalog.changes import (
    ATTEMPTS,
    Changes,
    Decided,
    answered,
    decide_once,
)
from paxosblock.namenode.catalog.deadlines import Ended
from paxosblock.namenode.catalog.draft import Draft, Slices, block_entry, in_one, inode_of
from paxosblock.namenode.catalog.ids import FILES_RANGE, IdPool, block_id, was_allocated
from paxosblock.namenode.catalog.kept_votes import Grounds
from paxosblock.namenode.catalog.member_batches import MemberBatches
from paxosblock.namenode.catalog.members import Demand
from paxosblock.namenode.catalog.namespace import Context
from paxosblock.namenode.catalog.permissions import ACTOR, ITSELF, Actor
from paxosblock.namenode.catalog.processes import Entering
from paxosblock.namenode.catalog.quotas import UncountedError
from paxosblock.namenode.catalog.records import (
    RECOVERY_WRITER,
    ROOT_ID,
    BlockEntry,
    BlockKeys,
    ClusterRecord,
    FileInode,
    NodeRecord,
    ProcessRecord,
    Zone,
    decode_cluster,
    decode_entry,
    decode_kept_votes,
    encode,
)
from paxosblock.namenode.catalog.recounting import Recounting
from paxosblock.namenode.kv.interface import KeyValueStore, Versioned, View
from paxosblock.protocol import finalize
from paxosblock.protocol.finalize import BlockRecord, Refused
from paxosblock.protocol.recovery import Proposer
from paxosblock.protocol.types import NO_GENERATION, BlockId, Generation, StorageId, WriterId

SLICE_KEYS = 1000  # keys of a long range that are looked at before others get a turn

T = TypeVar("T")
Request = TypeVar("Request")


@dataclass(frozen=True, slots=True)
class CatalogCounts:
    """The numbers of things that a catalog holds."""

    files: int
    blocks: int
    open_files: int
    past: PastStatus


def wall_clock_ms() -> int:
    """Return milliseconds since the epoch, for the times that people see."""
    return time.time_ns() // 1_000_000


def nobody_holds(_file: FileInode) -> bool:
    """Return that no lease is live."""
    return False


class Catalog:
    """The NameNode's persistent state. Methods raise what the functions they run document."""

    def __init__(
        self,
        store: KeyValueStore,
        is_held: Callable[[FileInode], bool] = nobody_holds,
        clock_ms: Callable[[], int] = wall_clock_ms,
        *,
        superuser: str = "",
        supergroup: str = "",
    ) -> None:
        """Use a started `store`; call `start` before anything else.

        `is_held` returns True if the writer of an open file still renews its lease. The root of a
        new cluster is of `superuser` and `supergroup`.
        """
        self._of_root = superuser, supergroup
        self._store = store
        self._is_held = is_held
        self._clock_ms = clock_ms
        self._files = IdPool(store, keys.FILE_COUNTER, ROOT_ID + 1, FILES_RANGE)
        self._blocks = IdPool(store, keys.BLOCK_COUNTER, 1)
        self._cluster = ClusterRecord(0, 0)
        self._changes = Changes(store)
        self._together = MemberBatches(self._changes)
        self._recounting = Recounting(store, self._files)

    async def start(self, new_tag: int, new_id: str) -> None:
        """Learn which cluster this is; an empty store becomes a new one under `new_tag`.

        A new cluster, and one from before there were ids, gets the id `new_id`.
        """

        def decide(draft: Draft) -> ClusterRecord:
            found = draft.get(keys.CLUSTER)
            if found.exists and (known := decode_cluster(found.value)).id:
                return known
            if found.exists:
                cluster = replace(decode_cluster(found.value), id=new_id)
            else:
                cluster = ClusterRecord(new_tag, self._clock_ms(), new_id)
                draft.put_inode(namespace.root(cluster.created_ms, *self._of_root))
            draft.put(keys.CLUSTER, encode(cluster))
            return cluster

        self._cluster = await self._change(decide)

    @property
    def cluster_id(self) -> str:
        """The cluster's id, which never changes; "" while this NameNode does not know it."""
        if not self._cluster.id:
            found = self._store.view().get(keys.CLUSTER)
            return decode_cluster(found.value).id if found.exists else ""
        return self._cluster.id

    # --- namespace -------------------------------------------------------------------------------

    def view(self, *, anywhere: bool = False) -> Awaitable[View]:
        """Return what was committed before, linearizable; it is valid until the next await.

        Raises:
            UnavailableError: this NameNode does not lead; `anywhere`: nor does the leader answer.
        """
        return self._store.read_barrier() if anywhere else self._store.barrier()

    async def status(self, path: str) -> FileStatus:
        """Return what `path` names."""
        return snapshots.stat(await self._store.barrier(), path, ACTOR.get())

    async def file_page(self, request: GetFile, limit: int = PAGE_BLOCKS) -> FilePage:
        """Return a file, a page of its blocks and its last block, from one view."""
        return blocks.file_page(await self._store.barrier(), request, limit, ACTOR.get())

    # --- files being written ---------------------------------------------------------------------

    async def append(self, request: AppendFile) -> Appendable:
        """Open a closed file again for `request.writer`."""
        actor = ACTOR.get()  # a decision may be made in the context of another call
        return await self._change(lambda draft: blocks.append(draft, request, actor))

    async def open_file(self, number: int, writer: WriterId) -> FileInode:
        """Return a file that `writer` holds."""
        return blocks.open_file(await self._store.barrier(), number, writer)

    async def holder(self, number: int) -> FileInode | None:
        """Return a file with the writer that holds it; None when it is closed or was deleted."""
        inode = inode_of(await self._store.barrier(), number)
        return inode if isinstance(inode, FileInode) and inode.open else None

    async def file_status(self, number: int, closed: FileInode | None = None) -> FileStatus:
        """Return what `stat` shows of a file by its id, or showed when it was `closed`."""
        view = await self._store.barrier()
        inode, path = blocks.file_and_path(view, number)
        return tree.status(view, path, closed or inode)

    async def unfinished(self, number: int) -> tuple[BlockEntry, ...]:
        """Return the blocks of a file whose length is not decided yet: its last one, or none."""
        return blocks.unfinished(await self._store.barrier(), number)

    async def stuck(self, number: int) -> tuple[BlockEntry, ...]:
        """Return the block of a file that an operator may have to end: its last one, or none."""
        return blocks.stuck(await self._store.barrier(), number)

    async def block_pages(
        self, number: int, start: int = 0, limit: int = PAGE_BLOCKS
    ) -> AsyncIterator[tuple[BlockEntry, ...]]:
        """Yield pages of the blocks of a file from place `start` on; others get a turn in between.

        Each page has a view of its own: all blocks but the last one are finalized for good.
        """
        following: int | None = start
        while following is not None:
            page = tree.block_page(await self._store.barrier(), number, following, limit)
            yield tuple(located.entry for located in page.blocks)
            following = page.next_place
            await asyncio.sleep(0)

    async def drop_empty(
        self, number: int, writer: WriterId, wanted: tuple[BlockId, ...]
    ) -> tuple[BlockEntry, ...]:
        """Take blocks of length zero out of a file that `writer` is about to close."""
        return await self._change(lambda draft: blocks.drop_empty(draft, number, writer, wanted))

    async def fence(self, path: str) -> FileInode:
        """Take a file from its writer, so that recovery can close it."""
        actor = ACTOR.get()
        return await self._change(lambda draft: blocks.fence(draft, path, actor))

    async def fence_writer(self, number: int, writer: WriterId) -> FileInode | None:
        """Take a file from a writer whose lease is over; None if the writer no longer holds it."""
        return await self._change(lambda draft: blocks.fence_writer(draft, number, writer))

    async def close_file(self, wanted: CloseFile) -> Closed:
        """Close a file whose last block is decided, or is decided by `wanted.last` (K6)."""
        now_ms = self._clock_ms()
        return await self._change(lambda draft: blocks.close(draft, wanted, now_ms))

    async def open_files(self) -> tuple[FileInode, ...]:
        """Return all files that are being written, for the leases of a NameNode that starts."""
        files: list[FileInode] = []
        async for view, page in self._slices(keys.OPEN_FILES):
            inodes = (inode_of(view, keys.number_of(key)) for key, _ in page)
            files += (inode for inode in inodes if isinstance(inode, FileInode))
        return tuple(files)

    # --- blocks: the rules K1 to K13 --------------------------------------------------------------

    async def already_added(self, request: AddBlock) -> BlockEntry | None:
        """Return the block that an earlier copy of this request made."""
        if request.file_id != NO_FILE:
            return blocks.already_added(await self._store.barrier(), request)
        if request.once is None:
            return None
        return answered(await self._store.barrier(), request.once, BlockEntry)

    async def next_block(self) -> BlockId:
        """Return an id for a new block, which was never used before."""
        return block_id(self._cluster.block_tag, (await self._blocks.take())[0])

    async def add_block(
        self, request: AddBlock, block: BlockId, members: tuple[StorageId, ...]
    ) -> BlockEntry:
        """K1: add a block at `members`, at the end of its file if it has one."""
        decide = without_file.add if request.file_id == NO_FILE else blocks.add
        here = in_one(lambda draft, request, _: decide(draft, request, block, members))
        return (await self.decide(BlockEntry, here, request, once=request.once)).value

    async def delete_block(self, request: DeleteBlock) -> Decided[Deletion]:
        """Take a block without a file out of the catalog."""
        here = in_one(lambda draft, request, _: without_file.delete(draft, request.block))
        return await self.decide(Deletion, here, request, once=request.once)

    async def open_blocks(self) -> tuple[BlockRecord, ...]:
        """Return the blocks without files that are not ended, for the leases of a new leader; those
        that only a snapshot shows have no writer of their own."""
        records: list[BlockRecord] = []
        async for view, page in self._slices(keys.OPEN_BLOCKS):
            for key, _ in page:
                entry = blocks.get(view, BlockId(keys.number_of(key)))
                if entry.file == NO_FILE:
                    records.append(entry.record)
                elif kept_blocks.kept_file(view, entry.file) is not None:
                    records.append(msgspec.structs.replace(entry.record, writer=RECOVERY_WRITER))
        return tuple(records)

    async def note_ended(self, block: BlockId) -> None:
        """Note that a block that only a snapshot shows is ended, if it is one and is there."""
        await self._change(lambda draft: blocks.note_ended(draft, block))

    async def allocate_append(self, request: ReopenBlock, seen: BlockRecord) -> BlockEntry | None:
        """K4: allocate a generation for an APPEND, if the block is still as it was `seen`."""
        return await self._change(lambda draft: reopening.allocate(draft, request, seen))

    async def install_append(
        self, request: ReopenBlock, decided: Proposer, grounds: Grounds = ()
    ) -> BlockEntry | Refused:
        """K7: the writer goes on in the block that it asked for."""
        install = partial(reopening.install, request=request, decided=decided)
        return await self._change_with(request.block, install, grounds)

    async def allocate_seal(
        self,
        block: BlockId,
        *,
        forced: bool = False,
        above: Generation = NO_GENERATION,
        grounds: Grounds = (),
    ) -> BlockEntry | Refused:
        """K2: allocate a generation for a recovery; the options are those of the rule, `grounds`
        are of its last try."""
        change = partial(finalize.allocate_seal, forced=forced, above=above)
        return await self.change_block(block, change, grounds)

    async def keep_votes(self, block: BlockId, grounds: Grounds) -> None:
        """Keep the steps of a recovery that gave up, if the block is still there."""

        def keep(draft: Draft) -> None:
            blocks.get(draft, block)
            kept_votes.keep(draft, block, grounds)

        await self._change(keep)

    async def finalize_by_recovery(
        self,
        block: BlockId,
        base: Generation,
        generation: Generation,
        length: int,
        size: int,
        *,
        grounds: Grounds = (),
    ) -> BlockEntry | Refused:
        """K5: the recovery of `generation` has its quorum for `length` chunks, `size` bytes."""
        return await self.change_block(
            block,
            lambda record: finalize.finalize_by_recovery(record, base, generation, length, size),
            grounds,
        )

    async def finalize_by_writer(self, request: FinalizeBlock) -> BlockEntry:
        """K6: the writer's length is the block's."""
        return await self._change(lambda draft: blocks.finalize_by_writer(draft, request))

    async def add_replica(
        self, block: BlockId, storage: StorageId, finalized_generation: Generation
    ) -> BlockEntry | Refused:
        """K12: `storage`, which reported Finalized of that generation, becomes a member."""
        rule = partial(
            finalize.add_replica, storage=storage, finalized_generation=finalized_generation
        )
        return await self._together.make(lambda draft: blocks.change(draft, block, rule))

    async def remove_replica(
        self,
        block: BlockId,
        storage: StorageId,
        finalized_generation: Generation,
        whole: tuple[StorageId, ...],
    ) -> BlockEntry | Refused:
        """K13: `storage` leaves; `whole` are the other members that reported that generation."""
        return await self._together.make(
            lambda draft: members.remove_replica(draft, block, storage, finalized_generation, whole)
        )

    def movable(self, wanted: Iterable[BlockId]) -> Iterator[BlockRecord]:
        """Yield the records of `wanted` blocks whose replicas may move, as applied here."""
        return members.movable(self._store.view(), wanted)

    async def get_block(self, block: BlockId) -> BlockEntry:
        """K10: return the block's record as it is now."""
        return blocks.get(await self._store.barrier(), block)

    async def block_entries(self, wanted: tuple[BlockId, ...]) -> tuple[BlockEntry | None, ...]:
        """Return the entries of several blocks from one view; None for those that are gone."""
        view = await self._store.barrier()
        return tuple(block_entry(view, block) for block in wanted)

    async def written(
        self, wanted: tuple[BlockId, ...]
    ) -> tuple[tuple[BlockEntry, FileInode], ...]:
        """Return those of these blocks that are open, each with the file it belongs to."""
        view = await self._store.barrier()
        return tuple(blocks.written(view, wanted))

    def demands(self, wanted: tuple[BlockId, ...]) -> tuple[Demand | None, ...]:
        """Return the demands of blocks as applied here; None for a block that is gone.

        They may be old; an edit that builds on them is judged again when it is applied.
        """
        view = self._store.view()
        entries = tuple(block_entry(view, block) for block in wanted)
        demands = members.demands(view, (entry for entry in entries if entry is not None))
        return tuple(None if entry is None else next(demands) for entry in entries)

    def newest(self, count: int) -> BlockId:
        """Return the id behind which are the last `count` ids of blocks that were reserved;
        NO_BLOCK if there are no more. Blocks from before a restore have ids of their own."""
        found = self._store.view().get(keys.BLOCK_COUNTER)
        reserved = keys.unpack_number(found.value) if found.exists else 0
        if reserved <= count:
            return NO_BLOCK
        return block_id(self._cluster.block_tag, reserved - count)

    def demand_page(self, after: BlockId, limit: int) -> tuple[Demand, ...]:
        """Return the demands of the blocks after `after`, in the order of their ids."""
        view = self._store.view()
        start, end = keys.block(BlockId(after + 1)), keys.BLOCKS[1]
        entries = (decode_entry(found.value) for _, found in view.scan(start, end, limit))
        return tuple(members.demands(view, entries))

    async def block_path(self, entry: BlockEntry) -> str:
        """Return the path of the file a block belongs to; "" if it no longer has one."""
        return (await self.block_paths((entry,)))[0]

    async def block_paths(self, entries: tuple[BlockEntry, ...]) -> tuple[str, ...]:
        """Return the path of each block's file from one view; "" where it no longer has one."""
        view = await self._store.barrier()
        return tuple(blocks.path(view, entry) for entry in entries)

    def was_allocated(self, block: BlockId) -> bool:
        """True if `block` is, or was, one of this cluster's."""
        return was_allocated(self._store.view(), self._cluster, block)

    # --- timelines of storages -------------------------------------------------------------------

    async def enter_timelines(self, node: str, entered: Sequence[Timeline]) -> None:
        """Record the timelines that the storages of DataNode `node` are in (`timelines.enter`).

        Raises:
            UnavailableError: this NameNode does not lead, and does not know them yet.
        """
        if not timelines.are_known(self._store.view(), entered):
            await self._change(lambda draft: timelines.enter(draft, node, entered))

    # --- processes of DataNodes ------------------------------------------------------------------

    def process_of(self, node: str) -> ProcessRecord | None:
        """Return the process on record for a DataNode, as applied here."""
        return processes.find(self._store.view(), node)

    def known_nodes(self) -> tuple[str, ...]:
        """Return the names of all DataNodes that a leader ever took in, as applied here."""
        return processes.nodes(self._store.view())

    async def enter_process(self, entering: Entering) -> None:
        """Record the process that answers for a DataNode. Raises as `processes.enter`."""
        await self._change(lambda draft: processes.enter(draft, entering))

    async def enter_processes(self, each_entering: Sequence[Entering]) -> None:
        """Record processes, but those in whose place another one was recorded meanwhile."""
        await self._change(lambda draft: processes.enter_where_possible(draft, each_entering))

    # --- keys of capabilities --------------------------------------------------------------------

    def block_keys(self) -> BlockKeys:
        """Return the keys that capabilities are signed with, as applied here."""
        return block_keys.find(self._store.view())

    async def roll_block_keys(self, interval_s: float) -> BlockKeys:
        """Return the keys, after making another one if the last was made `interval_s` ago."""
        found, interval_ms = block_keys.find(await self._store.barrier()), round(interval_s * 1000)
        if not block_keys.are_due(found, self._clock_ms(), interval_ms):
            return found
        now_ms = self._clock_ms()
        return await self._change(lambda draft: block_keys.roll(draft, now_ms, interval_ms))

    # --- tokens of users -------------------------------------------------------------------------

    @property
    def applied(self) -> View:
        """The state as applied here, valid until the next await."""
        return self._store.view()

    async def issue_token(self, note: TokenNote) -> tuple[TokenNote, BlockKey]:
        """Remember a token; return it with the key that signs it (`token_records.issue`)."""
        return await self._change(lambda draft: token_records.issue(draft, note))

    async def revoke_token(self, serial: int, user: str | None) -> TokenNote:
        """Let no node believe a token any more (`token_records.revoke`)."""
        now_s = self._clock_ms() // 1000
        return await self._change(lambda draft: token_records.revoke(draft, serial, now_s, user))

    # --- encryption zones ------------------------------------------------------------------------

    def zone(self, number: int) -> Zone:
        """Return the record of an encryption zone, as applied here."""
        return zones.find(self._store.view(), number)

    async def zones(self) -> tuple[EncryptionZone, ...]:
        """Return the encryption zones whose directories are there."""
        return zones.shown(await self._store.barrier())

    # --- quotas ----------------------------------------------------------------------------------

    async def quotas(self, path: str, actor: Actor) -> tuple[QuotaUsage, ...]:
        """Return the limits of the directory at a path, or of all for "", and their use."""
        view = await self._store.barrier()
        total = quotas.totals_in(view)
        if path:
            inode = tree.find_inode(view, path, actor)
            return (quotas.usage(total, path, inode),)
        found = ((tree.path_of(view, each), each) for each in quotas.counting(view))
        shown = (quotas.usage(total, path, each) for path, each in found if path is not None)
        return tuple(sorted((each for each in shown if each.limited), key=lambda each: each.path))

    async def check_quotas(self, path: str, *, repair: bool) -> tuple[CheckedQuota, ...]:
        """Count again what is below each directory with a quota, at or below a path; `repair` adds
        what its counters lack."""
        view = await self._store.barrier()
        tree.find(view, path, ITSELF)
        wanted = [
            (where, each.number)
            for each in quotas.counting(view)
            if (where := tree.path_of(view, each)) is not None and paths.is_below(where, path)
        ]
        checked: list[CheckedQuota] = []
        for where, number in sorted(wanted):
            if (counted := await self._recounting.count(number)) is None:
                continue
            repaired = repair and not counted.is_exact
            if repaired:
                await self._change(partial(quotas.complete, number=number, counted=counted))
            checked.append(counted.checked(where, repaired=repaired))
        return tuple(checked)

    # --- safe mode -------------------------------------------------------------------------------

    async def enter_safe_mode(self) -> None:
        """Refuse changes of names from now on, whichever NameNode leads."""
        now_ms = self._clock_ms()
        await self._change(lambda draft: namespace.enter_safe_mode(draft, now_ms))

    async def leave_safe_mode(self) -> None:
        """Accept changes of names again."""
        await self._change(namespace.leave_safe_mode)

    @property
    def in_safe_mode(self) -> bool:
        """True if an operator entered safe mode and did not leave it, as applied here."""
        return self._store.view().get(keys.SAFE_MODE).exists

    # --- housekeeping ----------------------------------------------------------------------------

    @property
    def has_garbage(self) -> bool:
        """True if something was unlinked that is still to be swept, or a snapshot has ended, as
        applied here."""
        count = self._store.view().count
        return count(keys.GARBAGE[0]) > 0 or count(keys.ENDED_SNAPSHOTS[0]) > 0

    async def sweep(self) -> garbage.Swept | None:
        """Remove a step's worth of what was unlinked (`garbage.sweep`); None: nothing is left."""
        return await self._change(garbage.sweep)

    async def keep_history(self, window_ms: int) -> bool:
        """Do what is due for the window of history; True if something was. It is seen by what is
        applied here, so that without a window no other NameNode is asked, and nothing written."""
        view, now_ms = self._store.view(), self._clock_ms()
        if not history_window.is_due(view, window_ms, now_ms, view.revision):
            return False
        await self._change(partial(history_window.keep, window_ms=window_ms, now_ms=now_ms))
        return True

    async def due(self, after: bytes = b"", limit: int = 100) -> tuple[bytes, ...]:
        """Return the deadlines that are over and come after the key `after`, oldest first."""
        return deadlines.due(await self._store.barrier(), after, self._clock_ms(), limit)

    async def end(self, deadline: bytes) -> Ended:
        """End the subject of a deadline, unless it is a directory with a live writer below it."""
        return (await self.decide(Ended, in_one(deadlines.end), deadline)).value

    async def node_records(self) -> tuple[tuple[str, NodeRecord], ...]:
        """Return the records of the DataNodes that are to leave, by their names."""
        return tuple(node_records.records(await self._store.barrier()))

    async def forget_votes(self, kept_s: float, *, if_too_many: bool = False) -> None:
        """Forget the votes of decisions that are `kept_s` old, and the oldest of too many; or do
        nothing unless there are too many."""
        count = self._store.view().count(keys.KEPT_VOTES[0])
        if not count or (if_too_many and count <= kept_votes.OF_ALL):
            return
        times_ms: dict[bytes, int] = {}
        async for _, page in self._slices(keys.KEPT_VOTES):
            times_ms |= {key: decode_kept_votes(found.value).time_ms for key, found in page}
        old = kept_votes.old_ones(times_ms, self._clock_ms() - round(kept_s * 1000))
        for start in range(0, len(old), SLICE_KEYS // 2):
            some = old[start : start + SLICE_KEYS // 2]
            await self._change(partial(kept_votes.forget, some=some))

    def now_ms(self) -> int:
        """Return the time by which deadlines end, in milliseconds since the epoch."""
        return self._clock_ms()

    async def counts(self) -> CatalogCounts:
        """Count what the catalog holds; this walks over all names, so it is for people only."""
        files = 0
        async for _, page in self._slices(keys.ENTRIES):
            files += sum(1 for _, found in page if tree.names_file(found.value))
        view = await self._store.barrier()
        return CatalogCounts(
            files=files,
            blocks=view.count(keys.BLOCKS[0]),
            open_files=view.count(keys.OPEN_FILES[0]),
            past=await self._past_status(),
        )

    async def _past_status(self) -> PastStatus:
        """Count what the past keeps: all blocks that only they show are those of kept files."""
        if not (count := kept_blocks.count(await self._store.barrier())):
            return PastStatus()
        kept_bytes = 0
        async for _, page in self._slices(keys.KEPT_FILES):
            for key, _ in page:
                async for view, places in self._slices(keys.places(keys.number_of(key))):
                    kept_bytes += kept_blocks.replica_bytes(view, places)
        view = await self._store.barrier()
        since_s = history_window.since_s(view)
        snapshots = count - 1 if since_s else count
        return PastStatus(snapshots, view.count(keys.IMAGES[0]), kept_bytes, since_s)

    async def finalized_blocks(self) -> int:
        """Return how many blocks are finalized.

        They are all blocks but those without files that are not ended, and the last block of an
        open file if its length is undecided; so only open files are visited.
        """
        undecided = 0
        async for view, page in self._slices(keys.OPEN_FILES):
            numbers = (keys.number_of(key) for key, _ in page)
            undecided += sum(len(blocks.unfinished(view, number)) for number in numbers)
        view = await self._store.barrier()
        return max(0, view.count(keys.BLOCKS[0]) - view.count(keys.OPEN_BLOCKS[0]) - undecided)

    async def _slices(
        self, span: keys.Range
    ) -> AsyncIterator[tuple[View, tuple[tuple[bytes, Versioned], ...]]]:
        """Yield a range in pieces, each with its view; other tasks get a turn in between."""
        start, end = span
        while True:
            view = await self._store.barrier()
            page = tuple(view.scan(start, end, SLICE_KEYS))
            yield view, page
            if len(page) < SLICE_KEYS:
                return
            start = page[-1][0] + b"\0"
            await asyncio.sleep(0)

    # --- how an operation runs -------------------------------------------------------------------

    async def change_block(
        self,
        block: BlockId,
        rule: Callable[[BlockRecord], BlockRecord | Refused],
        grounds: Grounds = (),
    ) -> BlockEntry | Refused:
        """Apply one of the K rules of `protocol.finalize` to a block's record, and keep the steps
        that led to it, if it has any."""
        change = partial(blocks.change, block=block, rule=rule)
        return await self._change_with(block, change, grounds)

    async def _change_with(
        self,
        block: BlockId,
        change: Callable[[Draft], BlockEntry | Refused],
        grounds: Grounds,
    ) -> BlockEntry | Refused:
        """Decide about a block, and keep the steps that led to it; those of a decision that changes
        nothing, as it was taken before, are not kept."""

        def decide(draft: Draft) -> BlockEntry | Refused:
            changed = change(draft)
            kept_votes.keep_with_change(draft, block, grounds)
            return changed

        return await self._change(decide)

    async def decide(
        self,
        kind: type[T],
        decision: Callable[[Draft, Request, Context], Slices[T]],
        request: Request,
        ids: int = 0,
        *,
        once: Once | None = None,
        boundaries: Boundaries = MappingProxyType({}),
    ) -> Decided[T]:
        """Run a decision that makes at most `ids` files and directories, and returns a `kind`.

        With `once`, a request that was done before gets its first answer again. `boundaries` say
        where blocks may be cut.
        """
        numbers = await self._files.take(ids) if ids else range(0)
        now_ms, actor = self._clock_ms(), ACTOR.get()

        def decide(draft: Draft) -> Slices[Decided[T]]:
            context = Context(iter(numbers), now_ms, self._is_held, boundaries, actor)
            return decide_once(draft, once, kind, now_ms, decision(draft, request, context))

        for _ in range(ATTEMPTS):
            try:
                return await self._changes.make(decide)
            except UncountedError as unknown:
                await self._recounting.begin(unknown.directory, self._change)
        raise NotReadyError("directories that were counted for a quota changed each time")

    async def _change(self, decide: Callable[[Draft], T]) -> T:
        """Decide in one turn, and commit what was decided."""
        return await self._changes.make(in_one(decide))
