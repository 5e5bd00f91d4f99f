"""The replication monitor: finds blocks that lack replicas, and has them copied. Leader only.

When a storage is lost, asked to leave, or back, the monitor looks at the blocks that it reported. A
slow walk over all blocks finds everything else (a member that says it has nothing, a file that asks
for more), and reminds members that should hold a decided block and have not reported it. Blocks
that need anything are remembered and looked at again and again, so that the monitor notices
whatever mends them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from paxosblock.api.namenode import NO_BLOCK
from paxosblock.api.reports import ALL_BLOCKS, LAST_BLOCK, BlockRange
from paxosblock.api.status import ReplicationStatus
from paxosblock.errors import PaxosBlockError
from paxosblock.namenode.alarms import Alarms
from paxosblock.namenode.background import Background
from paxosblock.namenode.blocks.datanodes import DataNodes
from paxosblock.namenode.blocks.finalizer import Finalizer
from paxosblock.namenode.blocks.replicas import Replicas
from paxosblock.namenode.blocks.replication.copies import Busy, Copies
from paxosblock.namenode.blocks.replication.need_assessor import NeedAssessor
from paxosblock.namenode.blocks.replication.needs import (
    Need,
    StoragePlace,
    StorageState,
    StorageView,
    is_well,
)
from paxosblock.namenode.blocks.replication.waiting import Waiting
from paxosblock.namenode.catalog.catalog import Catalog
from paxosblock.namenode.catalog.members import Demand
from paxosblock.namenode.catalog.records import BlockEntry
from paxosblock.protocol.finalize import BlockRecord
from paxosblock.protocol.types import BlockId, Generation, StorageId

SLICE: Final = 128
"""Blocks that are looked at before other tasks get a turn: about a millisecond."""
LOOKED_AT_AGAIN: Final = 256
"""Blocks that need something and are looked at again with each view."""
TRIED_MAX: Final = 64
"""Once so many blocks have found all sources or targets busy, the others wait for the next turn."""
PLANNED: Final = 16
"""Copies planned before other tasks get a turn: with a thousand DataNodes some milliseconds."""
ADOPTED_AT_ONCE: Final = 64
"""Copies that become members at a time."""
WALKED_PER_S: Final = 1000
"""Blocks that the walk over all of them looks at in a second: a million cost less than a second of
processor time in each minute."""
WALKED_PER_S_AT_FIRST: Final = 15_000
"""The same for the first walk of a term, before which no need is known."""
NEWEST: Final = 30_000
"""Blocks with which the first walk of a term begins, two seconds of it: those that were made last,
which the leader before had the least time to look at."""
UNHEARD_MAX: Final = 16_384
"""Blocks that the walk notes because a member has not reported them. At the first start of a
NameNode no member has reported any; that is too many to look at with each report."""
WALK_PAUSE_S: Final = 30.0
MISSING: Final = "missing block: no replica is left that can be read"
TOLD_WITHIN_S: Final = 10.0
"""Seconds in which a member that lives tells that it has a version that was just decided."""
MISSING_NAMED: Final = 20
"""Missing blocks that an alarm names; beyond that it gives their number."""
ELSEWHERE: Final = 1 << 16
"""The rank of a block that should only be in another place, after all that lack replicas."""


@dataclass(slots=True)
class _Trouble:
    """A block that has needed something since `since_s` in its version `generation`, and the counts
    that include it."""

    since_s: float
    generation: Generation
    missing: bool = False
    corrupt: bool = False
    named: bool = False
    """An alarm was raised because it is missing."""


class Monitor:
    """Keeps count of blocks that need something, and begins copies."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        datanodes: DataNodes,
        replicas: Replicas,
        finalizer: Finalizer,
        copies: Copies,
        alarms: Alarms,
        background: Background,
        holds: Callable[[], bool],
        assessor: NeedAssessor,
        looked: Callable[[BlockEntry, Need, StorageView], object],
        interval_s: float,
        clock_s: Callable[[], float],
    ) -> None:
        """Use these parts of the node.

        `holds` is True while nothing may be copied. `looked` is called with every block that is not
        simply in order. A new view is made after `interval_s`.
        """
        self._catalog = catalog
        self._datanodes = datanodes
        self._replicas = replicas
        self._finalizer = finalizer
        self._copies = copies
        self._alarms = alarms
        self._background = background
        self._holds = holds
        self._assessor = assessor
        self._interval_s = interval_s
        self._clock_s = clock_s
        self._looked = looked
        self._wake = asyncio.Event()
        self._view = StorageView({})
        self._looked_s = float("-inf")
        self._seen: dict[StorageId, StoragePlace] = {}
        self._unknown = self._view.unknown
        self._targets: frozenset[StorageId] = frozenset()
        self._waiting = Waiting()
        self._troubles: dict[BlockId, _Trouble] = {}
        """Blocks that need something, in the order in which they were looked at."""
        self._missing = self._corrupt = self._named = 0
        self._short: dict[BlockId, None] = {}
        """Blocks that are being written with fewer members than they ask for."""
        self._unheard: dict[BlockId, None] = {}
        """Blocks that a member has not reported, which may be back and hold them. If it is lost, or
        reports others only, nothing that it reported leads to them."""
        self._news: dict[BlockId, None] = {}
        self._finished: dict[tuple[BlockId, StorageId], Generation] = {}
        self._walked_once = False
        self._held = True
        self._walk_now = asyncio.Event()

    def start(self) -> None:
        """Begin a term."""
        self.clear()
        self._renew_view()
        self._background.repeat("replication", self._turn_and_wait, 0)
        self._background.repeat("walk over all blocks", self._walk_and_wait, 0)

    def clear(self) -> None:
        """Forget everything, as the term is over or a new one begins."""
        for block, trouble in self._troubles.items():
            if trouble.named:
                self._alarms.end(MISSING, block=block)
        self._copies.clear()
        self._waiting.clear()
        self._troubles.clear()
        self._missing = self._corrupt = self._named = 0
        self._short.clear()
        self._unheard.clear()
        self._news.clear()
        self._finished.clear()
        self._seen = {}
        self._looked_s = float("-inf")
        self._walked_once, self._held = False, True
        self._walk_now.clear()

    @property
    def status(self) -> ReplicationStatus:
        """Return the numbers of blocks that need something."""
        return ReplicationStatus(
            waiting=len(self._waiting),
            under_way=len(self._copies),
            missing=self._missing,
            corrupt=self._corrupt,
            short=len(self._short),
        )

    @property
    def troubled(self) -> tuple[BlockId, ...]:
        """Return the blocks that need something, in no order."""
        return (*self._troubles, *self._short)

    def is_worst(self, block: BlockId) -> bool:
        """True if no replica of a block can be read, or one is damaged."""
        trouble = self._troubles.get(block)
        return trouble is not None and (trouble.missing or trouble.corrupt)

    @property
    def is_behind(self) -> bool:
        """True if blocks wait for a copy that could be made as soon as others are."""
        return bool(self._waiting.first(1))

    @property
    def view(self) -> StorageView:
        """Return the state of all storages at the last look."""
        return self._view

    def need(self, demand: Demand, view: StorageView) -> Need:
        """Return what a finalized block needs, for people. It is not called missing while members
        that live may still tell that they have this version."""
        need = self._assessor.need(demand, view)
        trouble = self._troubles.get(demand.entry.record.block)
        if need.missing and need.lagging and not (trouble and trouble.missing):
            return replace(need, elsewhere=need.elsewhere or need.lagging)
        return need

    def look_at(self, block: BlockId) -> None:
        """Look at a block soon, as something happened to it."""
        self._news[block] = None
        self._wake.set()

    def look_if_short(self, block: BlockId) -> None:
        """Look at a block soon whose members were told what was decided, if it lacks any.

        Most lack none: a busy cluster decides thousands of blocks in a second, and none of these
        waits for a turn. Nothing else tells of the others before the walk comes to them.
        """
        (demand,) = self._catalog.demands((block,))
        if demand is None or not demand.entry.record.finalized:
            return
        record = demand.entry.record
        heard = len(self._replicas.holders(record))
        if heard < len(record.members):
            self._unheard[block] = None
        if heard < max(len(record.members), demand.wanted):
            self.look_at(block)

    def take_finished(self, block: BlockId, storage: StorageId, generation: Generation) -> None:
        """Let a storage that is not a member, and reported the decided version, become one (K12).

        This holds even if the block has enough members; one of them then leaves (K13): a Delete of
        the current version might arrive after another NameNode made this storage a member (D7).
        """
        self._finished[block, storage] = generation
        self._wake.set()

    # -- turns ----------------------------------------------------------------------------------

    async def _turn_and_wait(self) -> None:
        self._wake.clear()
        await self.turn()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._interval_s):
                await self._wake.wait()

    async def turn(self) -> None:
        """Take in what happened, and begin as many copies as there is room for."""
        await self._adopt_finished()
        if self._clock_s() - self._looked_s >= self._interval_s:
            await self._look_at_changes()
        news, self._news = tuple(self._news), {}
        await self._look_at_all(news)
        if not self._holds():
            if self._held:  # what was found before was found from a part of the reports
                self._held = False
                self._walk_now.set()
            await self._begin_copies()

    async def _look_at_changes(self) -> None:
        """Make a new view; look at the blocks of storages whose state has changed."""
        self._looked_s = self._clock_s()
        view = self._renew_view()
        changed = [each for each, place in view.places.items() if self._matters(each, place)]
        told = any(self._has_told(each, place) for each, place in view.places.items())
        given_up = self._unknown != view.unknown
        self._seen, self._unknown = dict(view.places), view.unknown
        if self._copies.targets == self._targets:
            self._waiting.unpark(LOOKED_AT_AGAIN)
        else:
            self._targets = self._copies.targets
            self._waiting.unpark()
        for storage in changed:
            await self._look_at_storage(storage)
        if changed or told or given_up:
            await self._look_at_all(tuple(self._unheard))
        await self._look_at_all(tuple(islice(self._troubles, LOOKED_AT_AGAIN)))
        await self._look_at_all(tuple(islice(self._short, LOOKED_AT_AGAIN)))

    def _renew_view(self) -> StorageView:
        now_s = self._clock_s()
        self._view = self._assessor.view()
        self._copies.use_view(self._view, now_s)
        return self._view

    def _matters(self, storage: StorageId, place: StoragePlace) -> bool:
        """True if blocks of a storage may need something else than before.

        A storage that has reported what it holds is no reason: each report is judged by itself.
        """
        before = self._seen.get(storage)
        return (_worth(before) if before else _COUNTS) != _worth(place)

    def _has_told(self, storage: StorageId, place: StoragePlace) -> bool:
        """True if a storage has come to be in service, as it has reported all that it holds. What
        it does not hold is in no report of a storage that this NameNode never heard of before."""
        if place.state is not StorageState.IN_SERVICE:
            return False
        before = self._seen.get(storage)
        return before is None or before.state is not StorageState.IN_SERVICE

    async def _look_at_storage(self, storage: StorageId) -> None:
        left = ALL_BLOCKS
        while blocks := self._replicas.blocks_of(storage, left, SLICE):
            await self._look_at_all(blocks)
            left = BlockRange(blocks[-1], LAST_BLOCK)

    async def _look_at_all(self, blocks: tuple[BlockId, ...]) -> None:
        for start in range(0, len(blocks), SLICE):
            some = blocks[start : start + SLICE]
            for block, demand in zip(some, self._catalog.demands(some), strict=True):
                self._assess(block, demand)
            await asyncio.sleep(0)

    # -- one block ------------------------------------------------------------------------------

    def _assess(self, block: BlockId, demand: Demand | None) -> Need | None:
        """Find out what a block needs, and remember it; None if nothing, or if not decided."""
        self._short.pop(block, None)
        if block in self._unheard and (demand is None or self._is_heard(demand.entry.record)):
            del self._unheard[block]
        if demand is None or not demand.wanted or not _is_settled(demand.entry.record):
            self._forget(block)
            if demand is not None and self._is_short(demand):
                self._short[block] = None
            return None
        record = demand.entry.record
        whole, damaged = self._replicas.whole(record), self._replicas.damaged(record)
        if len(whole) < len(record.members) and len(self._unheard) < UNHEARD_MAX:
            self._unheard[block] = None
        if not damaged and is_well(record, demand.wanted, whole, self._view):
            self._forget(block)
            return None
        need = self._assessor.need(demand, self._view)
        if any(each not in self._view.places and self._datanodes.home(each) for each in need.gone):
            # Its DataNode registered since the view was made.
            need = self._assessor.need(demand, self._renew_view())
        if need.in_order:
            self._forget(block)
            return None
        self._remember(record, need)
        self._looked(demand.entry, need, self._view)
        return need

    def _is_heard(self, record: BlockRecord) -> bool:
        """True if all members reported the block, or it is not decided any more."""
        return not record.finalized or len(self._replicas.whole(record)) == len(record.members)

    def _is_short(self, demand: Demand) -> bool:
        """True if a block that is being written has too few members that may come back."""
        places = map(self._view.place, demand.entry.record.members)
        return sum(place.state is not StorageState.LOST for place in places) < demand.wanted

    def _forget(self, block: BlockId) -> None:
        trouble = self._troubles.pop(block, None)
        if trouble is not None:
            self._count(block, trouble, missing=False, corrupt=False)
            self._waiting.drop(block)

    def _remember(self, record: BlockRecord, need: Need) -> None:
        now_s, block, generation = self._clock_s(), record.block, record.finalized_generation
        trouble = self._troubles.pop(block, None) or _Trouble(now_s, generation)
        if trouble.generation != generation:  # no member was asked for this version before
            trouble.since_s, trouble.generation = now_s, generation
        self._troubles[block] = trouble
        # Members in service are being told what was decided (P5, D9): most need only a moment.
        asked_s, patience_s = now_s - trouble.since_s, self._assessor.replicate_after_s
        waits = need.may_mend and asked_s < patience_s
        # A member that has not told yet that it has this version may well have it, whichever
        # others are lost.
        may_tell = need.lagging and asked_s < max(patience_s, TOLD_WITHIN_S)
        missing = need.missing and not may_tell
        self._count(block, trouble, missing=missing, corrupt=bool(need.damaged))
        if block in self._copies or need.missing or (need.lacks and waits):
            self._waiting.drop(block)
        elif need.lacks:
            self._waiting.put(block, len(need.sound))
        elif need.misplaced and not need.surplus:
            self._waiting.put(block, ELSEWHERE)
        else:
            self._waiting.drop(block)

    def _count(self, block: BlockId, trouble: _Trouble, *, missing: bool, corrupt: bool) -> None:
        self._missing += missing - trouble.missing
        self._corrupt += corrupt - trouble.corrupt
        trouble.missing, trouble.corrupt = missing, corrupt
        if not self._missing:
            self._named = 0
        if trouble.named and not missing:
            trouble.named = False
            self._alarms.end(MISSING, block=block)
        # In safe mode the block may be missing only because no storage has reported it yet.
        if missing and not trouble.named and self._named < MISSING_NAMED and not self._holds():
            trouble.named = True
            self._named += 1
            self._alarms.ring(MISSING, block=block)

    # -- copies ---------------------------------------------------------------------------------

    async def _adopt_finished(self) -> None:
        while some := tuple(islice(self._finished.items(), ADOPTED_AT_ONCE)):
            for key, _ in some:
                del self._finished[key]
            await asyncio.gather(*(self._adopt(*key, generation) for key, generation in some))

    async def _adopt(self, block: BlockId, storage: StorageId, generation: Generation) -> None:
        try:
            await self._copies.adopt(block, storage, generation)
        except PaxosBlockError:
            self._finished.setdefault((block, storage), generation)
            raise
        self._news[block] = None

    async def _begin_copies(self) -> None:
        tried = 0
        waiting = iter(self._waiting.first(LOOKED_AT_AGAIN * 4))
        while (
            self._copies.has_room
            and tried < TRIED_MAX
            and (some := tuple(islice(waiting, PLANNED)))
        ):
            for block, demand in zip(some, self._catalog.demands(some), strict=True):
                need = self._assess(block, demand)
                if need is not None and demand is not None and block in self._waiting:
                    tried += not self._begin_copy(demand.entry, need)
            await asyncio.sleep(0)

    def _begin_copy(self, entry: BlockEntry, need: Need) -> bool:
        """Copy a block if there is a source and a target; False if others must be done first."""
        block = entry.record.block
        try:
            copy = self._copies.plan(entry.record, need)
        except Busy:
            return False
        if copy is None:
            self._waiting.park(block)
        else:
            self._waiting.drop(block)
            self._copies.start(copy)
        return True

    # -- the walk over all blocks -----------------------------------------------------------------

    async def _walk_and_wait(self) -> None:
        await self.walk()
        with suppress(TimeoutError):
            async with asyncio.timeout(WALK_PAUSE_S):
                await self._walk_now.wait()

    async def walk(self) -> None:
        """Look at every block once, slowly; first at the newest ones, in a term's first walk.

        A walk that began before enough was reported gives way to another one when enough is.
        """
        self._walk_now.clear()
        enough_is_known = not self._holds()
        self._renew_view()
        newest = NO_BLOCK if self._walked_once else self._catalog.newest(NEWEST)
        if newest != NO_BLOCK and not await self._walk_from(newest):
            return
        if await self._walk_from(NO_BLOCK):
            self._walked_once |= enough_is_known

    async def _walk_from(self, after: BlockId) -> bool:
        """Look at all blocks behind `after`; False if that is to begin again."""
        per_s = WALKED_PER_S if self._walked_once else WALKED_PER_S_AT_FIRST
        while page := self._catalog.demand_page(after, SLICE):
            for demand in page:
                need = self._assess(demand.entry.record.block, demand)
                if need is not None:
                    self._tell_again(demand.entry, (*need.lagging, *need.damaged))
            after = page[-1].entry.record.block
            await asyncio.sleep(len(page) / per_s)
            if self._walk_now.is_set():
                return False
        return True

    def _tell_again(self, entry: BlockEntry, members: Iterable[StorageId]) -> None:
        for member in members:
            if self._finalizer.has_room:
                self._finalizer.tell(entry.record, member)


_COUNTS: Final = 2


def _worth(place: StoragePlace) -> int:
    """Return 0 if the replicas of a storage do not count, 1 if they do for a while, 2 if always."""
    if place.state in {StorageState.LOST, StorageState.LEAVING}:
        return 0
    return 1 if place.state is StorageState.MAINTENANCE else _COUNTS


def _is_settled(record: BlockRecord) -> bool:
    """True if the block is decided, and no writer is about to open it again (K4)."""
    return record.finalized and not record.reopening
