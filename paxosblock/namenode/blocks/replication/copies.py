"""Copies of finalized blocks to other DataNodes: their sources, targets and number, and K12.

A copy is a `Finalize` with holders to a storage that is not a member (D5), which fetches all chunks
by itself. Once the storage has reported Finalized it becomes a member (K12), whichever NameNode
hears of it: the one that asked for the copy, or a later leader, in a block report. A copy that can
no longer become a member is deleted below the current version (D7).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Final

from paxosblock.base.recent_rate import RecentRate
from paxosblock.errors import NoSpaceError, NotFoundError, PaxosBlockError
from paxosblock.namenode.background import Background
from paxosblock.namenode.blocks.acceptors import Acceptors
from paxosblock.namenode.blocks.datanodes import DataNodes
from paxosblock.namenode.blocks.finalizer import Finalizer
from paxosblock.namenode.blocks.history import History, describe
from paxosblock.namenode.blocks.placement import Candidate, Wish, place
from paxosblock.namenode.blocks.replicas import Replicas, leftovers_up_to
from paxosblock.namenode.blocks.replication.needs import Need, StorageState, StorageView
from paxosblock.namenode.catalog.catalog import Catalog
from paxosblock.protocol.finalize import BlockRecord, Refused, finalize_message, goes_on
from paxosblock.protocol.messages import Finalized
from paxosblock.protocol.types import NO_GENERATION, BlockId, Generation, StorageId

TIMEOUT_S: Final = 600.0
"""A copy that takes longer is given up here; if it ends after all, a report tells. A process that
is dead, or has another one in its place, is not waited for."""
REST_S: Final = 10.0
"""A target that failed gets no other copy for this long."""
TARGETS_LOOKED_AT: Final = 64
"""Storages among which a copy is placed: more would take longer and find no better place."""


@dataclass(frozen=True, slots=True)
class CopyLimits:
    """Copies that one DataNode may send, and get, at a time."""

    per_source: int
    per_target: int


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy; it counts for the first of `holders`."""

    record: BlockRecord
    holders: tuple[StorageId, ...]
    source: str
    target: StorageId
    target_node: str


@dataclass(frozen=True, slots=True)
class _UnderWay:
    """A copy that the process `incarnation` of the target's DataNode was asked for."""

    copy: Copy
    incarnation: str
    task: asyncio.Task[bool]


class Busy(Exception):
    """There are a source and a target, but they are busy."""


class Copies:
    """The copies that are under way."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        datanodes: DataNodes,
        replicas: Replicas,
        finalizer: Finalizer,
        acceptors: Acceptors,
        history: History,
        background: Background,
        limits: CopyLimits,
        ended: Callable[[BlockId], None],
        clock_s: Callable[[], float],
    ) -> None:
        """Use these parts of the node.

        `ended` is called when a copy of a block has ended, whatever the result.
        """
        self._catalog = catalog
        self._datanodes = datanodes
        self._replicas = replicas
        self._finalizer = finalizer
        self._acceptors = acceptors
        self._history = history
        self._background = background
        self._limits = limits
        self._clock_s = clock_s
        self._ended = ended
        self.outcomes: Counter[str] = Counter({"made": 0, "failed": 0})
        self.rate = RecentRate(clock_s)
        self._under_way: dict[BlockId, _UnderWay] = {}
        self._at_source: Counter[str] = Counter()
        self._at_target: Counter[str] = Counter()
        self._resting: dict[StorageId, float] = {}
        self._view = StorageView({})
        self._known: dict[StorageId, Candidate] = {}
        self._targets: list[Candidate] = []

    def __len__(self) -> int:
        """Return the number of copies under way."""
        return len(self._under_way)

    def __contains__(self, block: BlockId) -> bool:
        return block in self._under_way

    def under_way(self, most: int) -> list[Copy]:
        """Return some of the copies under way."""
        return [each.copy for each in islice(self._under_way.values(), most)]

    def target(self, block: BlockId) -> StorageId | None:
        """Return the storage at which a block is being copied, if any (HDFS: temporary)."""
        found = self._under_way.get(block)
        return None if found is None else found.copy.target

    @property
    def has_room(self) -> bool:
        """True if there may be room for another one."""
        return len(self._under_way) < self._limits.per_target * len(self._targets)

    def use_view(self, view: StorageView, now_s: float) -> None:
        """Go by this view from now on; give up copies that nothing can be heard of any more."""
        self._view = view
        known = self._datanodes.candidates(now_s)
        self._known = {candidate.storage: candidate for candidate in known}
        for storage in [each for each, until_s in self._resting.items() if now_s >= until_s]:
            del self._resting[storage]
        self._targets = [
            candidate
            for candidate in known
            if view.place(candidate.storage).state is StorageState.IN_SERVICE
            and not candidate.stale
            and candidate.storage not in self._resting
        ]
        for each in self._under_way.values():
            if not view.place(each.copy.target).live:
                each.task.cancel()
        self.give_up_lost()

    def give_up_lost(self) -> None:
        """Give up copies to storages that are in another process by now than when it was asked.

        That one answers no more, and where no reset of the connection arrives (its machine lost
        power, or was cut off meanwhile) nothing else tells of its end.
        """
        for each in self._under_way.values():
            if self._incarnation(each.copy.target) != each.incarnation:
                each.task.cancel()

    @property
    def targets(self) -> frozenset[StorageId]:
        """Return the storages that may get copies."""
        return frozenset(candidate.storage for candidate in self._targets)

    def plan(self, record: BlockRecord, need: Need) -> Copy | None:
        """Choose the source and target of one more replica; None if there are none.

        Raises:
            Busy: all of them have enough to do for now.
        """
        holders = self._replicas.holders(record)
        sources = sorted((each for each in need.sound if each in holders), key=self._load)
        if record.length and not sources:
            return None
        source = self._view.place(sources[0]).node if sources else ""
        if source and self._at_source[source] >= self._limits.per_source:
            raise Busy
        target = self._place(record, need)
        if target is None:
            return None
        return Copy(record, tuple(sources), source, target.storage, target.node)

    def start(self, copy: Copy) -> None:
        """Make a copy."""
        block = copy.record.block
        assert block not in self._under_way, "one copy of a block at a time"
        self._at_source[copy.source] += 1
        self._at_target[copy.target_node] += 1
        self._datanodes.note_placed(block, (copy.target,), copy.record.size_bytes)
        name = f"copy of block {block} to {copy.target}"
        task = self._background.start(self._make(copy), name)
        self._under_way[block] = _UnderWay(copy, self._incarnation(copy.target), task)
        # Not in the task, which may be given up before its first step.
        task.add_done_callback(partial(self._end, copy))

    def clear(self) -> None:
        """Forget everything; the tasks have ended with the term."""
        self._under_way.clear()
        self._at_source.clear()
        self._at_target.clear()
        self._resting.clear()
        self._targets = []

    async def adopt(self, block: BlockId, storage: StorageId, generation: Generation) -> None:
        """K12: a storage that reported Finalized of this version becomes a member.

        If it no longer can, it is told to drop its replica, which is not wanted below the current
        version (D7).
        """
        current = await self._join(block, storage, generation)
        if current is not None:
            self._finalizer.delete(block, storage, leftovers_up_to(current))

    async def _join(
        self, block: BlockId, storage: StorageId, generation: Generation
    ) -> BlockRecord | None:
        """K12, or delete the copy of a block that is gone; None if there is nothing more to do.

        If the version is over, return the record as it is now.
        """
        try:
            done = await self._catalog.add_replica(block, storage, generation)
        except NotFoundError:
            self._finalizer.delete(block, storage, generation)
            return None
        if not isinstance(done, Refused):
            self._replicas.note(block, storage, generation)
            return None
        return None if storage in done.record.members else done.record

    def _incarnation(self, storage: StorageId) -> str:
        """Return the process in which a storage is; "" while unknown."""
        home = self._datanodes.home(storage)
        return "" if home is None else home.incarnation

    # -- sources and targets --------------------------------------------------------------------

    def _load(self, storage: StorageId) -> tuple[bool, int, int]:
        """Return the reasons against a holder as a source."""
        home = self._known.get(storage)
        if home is None:
            return True, 0, 0
        return home.stale, self._at_source[home.node], home.load

    def _place(self, record: BlockRecord, need: Need) -> Candidate | None:
        members = [(each, self._known[each]) for each in record.members if each in self._known]
        # A node whose volume failed has other volumes, and is taken again.
        nodes = {candidate.node for _, candidate in members if not candidate.failed}
        kept = tuple(candidate for each, candidate in members if each not in need.gone)
        helpful = [
            each
            for each in self._targets
            if each.node not in nodes and (need.lacks or _helps(each, kept))
        ]
        idle = [each for each in helpful if self._at_target[each.node] < self._limits.per_target]
        start = record.block % max(1, len(idle))
        some = tuple(islice(chain(idle[start:], idle[:start]), TARGETS_LOOKED_AT))
        size_bytes = max(1, record.size_bytes)
        wish = Wish(replication=1, min_replication=1, block_size=size_bytes, seed=record.block)
        try:
            (chosen,) = place(wish, some, kept)
        except NoSpaceError:
            if len(idle) < len(helpful):
                raise Busy from None
            return None
        return self._known[chosen]

    # -- one copy -------------------------------------------------------------------------------

    async def _make(self, copy: Copy) -> bool:
        """Make a copy; True if its target became a member."""
        record = copy.record
        beginning = record.finalized_generation
        try:
            while True:
                if await self._is_copied(copy, record, beginning):
                    generation = record.finalized_generation
                    current = await self._join(record.block, copy.target, generation)
                    if current is None:
                        return True
                else:
                    # The holders are at a later version, and the target has a part of this one.
                    current = (await self._catalog.get_block(record.block)).record
                    if current.finalized_generation == record.finalized_generation:
                        return False
                if not goes_on(record, current):
                    self._finalizer.delete(record.block, copy.target, leftovers_up_to(current))
                    return False
                if current.cut_generation > beginning:
                    beginning = current.finalized_generation
                record = current
        except PaxosBlockError as error:
            self._note(copy, "not copied", str(error))
            return False

    async def _is_copied(self, copy: Copy, record: BlockRecord, beginning: Generation) -> bool:
        """Ask the target to finalize a version, and to fetch what it lacks: it keeps what it has of
        earlier ones of the same epoch, and of those from `beginning` on."""
        if beginning >= record.writer_generation:
            beginning = NO_GENERATION  # all of it is of this epoch
        question = finalize_message(record, copy.holders, beginning)
        answer = await self._acceptors.ask(copy.target, question, timeout_s=TIMEOUT_S)
        event, detail = describe(answer)
        self._note(copy, event, detail)
        return isinstance(answer, Finalized)

    def _end(self, copy: Copy, task: asyncio.Task[bool]) -> None:
        made = not task.cancelled() and task.exception() is None and task.result()
        del self._under_way[copy.record.block]
        self._at_source[copy.source] -= 1
        self._at_target[copy.target_node] -= 1
        self.outcomes["made" if made else "failed"] += 1
        if made:
            self.rate.note(copy.record.size_bytes)
        else:
            self._resting[copy.target] = self._clock_s() + REST_S
            self._targets = [each for each in self._targets if each.storage != copy.target]
        self._ended(copy.record.block)

    def _note(self, copy: Copy, event: str, detail: str) -> None:
        generation = copy.record.finalized_generation
        self._history.add(copy.record.block, generation, event, copy.target, detail)


def _helps(candidate: Candidate, kept: tuple[Candidate, ...]) -> bool:
    """True if a replica at the candidate, in place of another one, spreads the block better."""
    if len({each.node for each in kept}) < len(kept):
        return True
    return candidate.rack not in {each.rack for each in kept}
