"""The balancer moves replicas from full storages to empty ones, as long as an operator asks for it.

To move a replica, a copy of it becomes a member (K12), and then the source leaves (K13): no block
ever has fewer replicas than before. If a process dies in between (this one, the caller's, a
DataNode), the block has one replica too many, which is removed like any other. The balancer chooses
moves from the last reports of the DataNodes and the moves under way, and stores nothing durably.
`balance.py` decides which moves help.
"""

from __future__ import annotations

import asyncio
import math
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from paxosblock.api.care import BALANCE_KEPT_S, AdminState, BalanceStatus, Balancing
from paxosblock.api.care import Balance as BalanceRequest
from paxosblock.api.namenode import NO_BLOCK
from paxosblock.api.reports import LAST_BLOCK, BlockRange, BlockReport, StorageReport
from paxosblock.errors import ExistsError
from paxosblock.namenode.blocks.datanodes import DataNodeDescriptor, DataNodes, Liveness
from paxosblock.namenode.blocks.replicas import Replicas
from paxosblock.namenode.blocks.replication.balance import (
    BalancedStorage,
    Evenness,
    Move,
    Replicated,
)
from paxosblock.namenode.blocks.replication.copies import Copies, Copy
from paxosblock.namenode.blocks.replication.reducer import Reducer
from paxosblock.namenode.catalog.catalog import Catalog
from paxosblock.protocol.finalize import BlockRecord
from paxosblock.protocol.types import BlockId, StorageId

TURN_S: Final = 0.2
"""Pause between two turns; each follows the moves under way and looks for new ones."""
PAGE: Final = 256
"""Blocks of a storage to look at for one move in one turn."""
PAGES_AT_ONCE: Final = 4
"""Pages to look at in one turn, and so the most moves that begin in it."""
PASSES: Final = 2
"""Fruitless passes over all blocks of a storage before the balancer reports that it is stuck."""
REST_S: Final = 5.0
"""Pause between two such passes, in which members of a block may report it."""
LEAVES_WITHIN_S: Final = 60.0
"""Seconds after the copy in which a move's source leaves, or another member is removed."""
FAILED_MAX: Final = 16
"""Copies in a row that may fail before the balancer gives up."""
HEARTBEATS: Final = 3
"""Heartbeats for which a balancer waits for storages to tell their use since a move, before it says
that it is done."""


@dataclass(slots=True)
class _Moving:
    """A move until what both storages tell of their room shows it, and not for a time: a source
    drops its replica when it is told to, and tells of it, and each may take long."""

    move: Move
    copied_s: float = math.inf
    """The time at which the target was a member."""
    leaves_from_s: float = math.inf
    """The time since which the source could have left."""
    ended_s: float = math.inf
    """The time at which the source was none any more."""
    gone_s: float = math.inf
    """The time at which the source told that it has no replica any more."""

    @property
    def ended(self) -> bool:
        """True if the move is done, even if no report shows it yet."""
        return self.ended_s < math.inf


@dataclass(slots=True)
class _Run:
    """The work for one balancer, and its results."""

    balancer: str
    threshold: float
    bandwidth_bytes_per_s: int
    heard_s: float
    name: str = field(default_factory=lambda: uuid.uuid4().hex)
    phase: Balancing = Balancing.MOVING
    why: str = ""
    moved_blocks: int = 0
    moved_bytes: int = 0
    failed: int = 0
    failed_in_a_row: int = 0
    next_s: float = -math.inf
    """The time before which no further move begins, so that the bandwidth limit is kept."""


@dataclass(slots=True)
class _Search:
    """A search of a storage's blocks, which has reached `after`.

    It has reached the end `passes` times since the last move, and begins again after
    `rests_until_s`.
    """

    after: BlockId = NO_BLOCK
    passes: int = 0
    rests_until_s: float = -math.inf


class Balancer:
    """Moves replicas for one balancer at a time, on the leader only, and never in safe mode."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        datanodes: DataNodes,
        replicas: Replicas,
        copies: Copies,
        reducer: Reducer,
        holds: Callable[[], bool],
        is_behind: Callable[[], bool],
        bandwidth_bytes_per_s: int,
        heartbeat_s: float,
        clock_s: Callable[[], float],
    ) -> None:
        """Use these parts of the node. Move nothing while `holds()`, and begin no move while
        `is_behind()`: then replicas that are lacking have to wait.

        `bandwidth_bytes_per_s` is the limit of those that name none.
        """
        self._catalog = catalog
        self._datanodes = datanodes
        self._replicas = replicas
        self._copies = copies
        self._reducer = reducer
        self._holds = holds
        self._is_behind = is_behind
        self._bandwidth_bytes_per_s = bandwidth_bytes_per_s
        self._heartbeat_s = heartbeat_s
        self._clock_s = clock_s
        self._run: _Run | None = None
        self._balance = Evenness((), 1.0)
        self._moving: dict[BlockId, _Moving] = {}
        self._searches: dict[StorageId, _Search] = {}
        self._wanted = asyncio.Event()

    def clear(self) -> None:
        """Forget everything: the term is over, or a new one begins."""
        self._run = None
        for block in self._moving:
            self._reducer.prefer(block, None)
        self._moving.clear()
        self._searches.clear()
        self._wanted.clear()

    def ask(self, request: BalanceRequest) -> BalanceStatus:
        """Begin to balance or go on with it, or end it with `stop`; return its state.

        Raises:
            ExistsError: another balancer asked a moment ago.
        """
        now_s = self._clock_s()
        run = self._current(now_s)
        if run is not None and run.balancer != request.balancer:
            ago_s = now_s - run.heard_s
            raise ExistsError(f"another balancer is at work, it was heard of {ago_s:.1f} s ago")
        if run is None:
            bandwidth = request.bandwidth_bytes_per_s or self._bandwidth_bytes_per_s
            run = self._run = _Run(request.balancer, request.threshold, bandwidth, now_s)
            self._searches.clear()
            self._balance = self._evenness(run, now_s)
            self._wanted.set()
        run.heard_s = now_s
        status = self._status(run)
        if request.stop:
            self._run = None
        return status

    @property
    def status(self) -> BalanceStatus | None:
        """Return the state of the balancing that is asked for; None if none is."""
        run = self._current(self._clock_s())
        return None if run is None else self._status(run)

    def note_report(self, report: BlockReport) -> None:
        """Learn from a block report that sources of moves have dropped their replicas."""
        if not self._moving:
            return
        named = {each.state.block for each in report.replicas} | {
            each.block for each in report.dead
        }
        covers, deleted = report.covers, set(report.deleted)
        for block, moving in self._moving.items():
            if moving.move.source != report.storage:
                continue
            left_out = covers is not None and covers.after < block <= covers.last
            if block in deleted or (left_out and block not in named):
                moving.gone_s = min(moving.gone_s, self._clock_s())

    async def turn(self) -> None:
        """Follow the moves under way, and begin others; wait while there is nothing to do."""
        if self._run is None and not self._moving:
            self._wanted.clear()
            await self._wanted.wait()
        now_s = self._clock_s()
        await self._follow(now_s)
        run = self._run = self._current(now_s)
        if run is None:
            return
        self._balance = self._evenness(run, now_s)
        run.phase, run.why = await self._go_on(run, now_s)

    # -- the choice of moves --------------------------------------------------------------------

    def _current(self, now_s: float) -> _Run | None:
        run = self._run
        return None if run is None or now_s - run.heard_s > BALANCE_KEPT_S else run

    def _evenness(self, run: _Run, now_s: float) -> Evenness:
        """Return the state of the storages once all moves under way are done."""
        more = Counter[StorageId]()
        for each in self._moving.values():
            more[each.move.target] += 0 if self._is_seen_at_target(each) else each.move.size_bytes
            more[each.move.source] -= 0 if self._is_seen_at_source(each) else each.move.size_bytes
        volumes = (
            BalancedStorage(
                report.storage,
                node.node,
                node.location.rack,
                report.used_bytes - report.deleted_bytes,
                report.free_bytes + report.deleted_bytes,
            ).with_more(more[report.storage])
            for node, report in self._usable(now_s)
            if self._datanodes.has_reported(report.storage)
        )
        return Evenness(volumes, run.threshold)

    def _is_seen_at_target(self, moving: _Moving) -> bool:
        return self._has_told(moving.move.target, moving.copied_s)

    def _is_seen_at_source(self, moving: _Moving) -> bool:
        return self._has_told(moving.move.source, max(moving.gone_s, moving.ended_s))

    def _has_told(self, storage: StorageId, since_s: float) -> bool:
        """True if a storage has certainly told its use since then, or is not known any more."""
        home = self._datanodes.home(storage)
        return home is None or home.heard_s > since_s + self._heartbeat_s

    def _usable(self, now_s: float) -> Iterator[tuple[DataNodeDescriptor, StorageReport]]:
        """Yield the storages among which replicas may be moved, once they have reported."""
        for node in self._datanodes:
            live = self._datanodes.liveness(node, now_s) is Liveness.LIVE
            if live and self._datanodes.admin.state(node.node, now_s) is AdminState.IN_SERVICE:
                yield from (
                    (node, report) for report in node.storages.values() if not report.failed
                )

    def _unreported(self, now_s: float) -> StorageId | None:
        """Return a storage that has yet to report to this leader; None once all have."""
        reports = (report.storage for _, report in self._usable(now_s))
        return next((each for each in reports if not self._datanodes.has_reported(each)), None)

    async def _go_on(self, run: _Run, now_s: float) -> tuple[Balancing, str]:
        """Begin the moves that are needed and have room; return the phase and its reason."""
        if self._holds():
            return Balancing.HELD_UP, "safe mode is on"
        if self._is_behind():
            return Balancing.HELD_UP, "replicas that are lacking are made first"
        if run.failed_in_a_row >= FAILED_MAX:
            return Balancing.STUCK, f"the last {FAILED_MAX} copies failed"
        for _ in range(PAGES_AT_ONCE):
            due = run.next_s <= now_s + TURN_S
            if self._balance.balanced or not due or not self._look_for_one(run, now_s):
                break
            await asyncio.sleep(0)  # others have their turn
        if any(self._is_awaited(each, now_s) for each in self._moving.values()):
            return Balancing.MOVING, ""
        if silent := self._unreported(now_s):  # this one may be too full, or too empty
            return Balancing.HELD_UP, f"storage {silent} has not reported its replicas yet"
        if self._balance.balanced:
            return Balancing.BALANCED, ""
        if all(self._search(source).passes >= PASSES for source, _ in self._balance.pairs()):
            return Balancing.STUCK, "no block may be moved that would change it"
        return Balancing.MOVING, ""

    def _is_awaited(self, moving: _Moving, now_s: float) -> bool:
        """True if nothing is said before the end of this move, and what it brought, is known."""
        return now_s < moving.ended_s + HEARTBEATS * self._heartbeat_s or not moving.ended

    def _look_for_one(self, run: _Run, now_s: float) -> bool:
        """Look at some blocks of the fullest storage that may give one, and begin the first move
        that helps. Return False if there is no such storage for now."""
        busy = {each.move.pair for each in self._moving.values() if not each.ended}
        for source, targets in self._balance.pairs(busy):
            search = self._search(source)
            if now_s >= search.rests_until_s:
                self._look_at_page(run, source, targets, search, now_s)
                return True
        return False

    def _look_at_page(
        self,
        run: _Run,
        source: BalancedStorage,
        targets: tuple[BalancedStorage, ...],
        search: _Search,
        now_s: float,
    ) -> None:
        usable = tuple(each for each in targets if each.storage in self._copies.targets)
        if not usable:  # they failed a moment ago, or have only just become known
            search.rests_until_s = now_s + REST_S
            return
        covers = BlockRange(search.after, LAST_BLOCK)
        blocks = self._replicas.blocks_of(source.storage, covers, PAGE)
        for record in self._catalog.movable(blocks):
            if not self._is_free(record):
                continue
            block = Replicated(record.block, record.size_bytes, record.members)
            if (move := self._balance.choose(block, source, usable)) is not None:
                search.after = record.block
                self._begin(run, record, move, now_s)
                return
        search.after = blocks[-1] if blocks else NO_BLOCK
        if len(blocks) < PAGE:
            search.after, search.passes = NO_BLOCK, search.passes + 1
            search.rests_until_s = now_s + REST_S

    def _search(self, source: BalancedStorage) -> _Search:
        return self._searches.setdefault(source.storage, _Search())

    def _is_free(self, record: BlockRecord) -> bool:
        """True if all members hold the block's present version, and nothing moves or copies it."""
        block = record.block
        whole = len(self._replicas.holders(record)) == len(record.members)
        return whole and block not in self._moving and block not in self._copies

    def _is_lost(self, storage: StorageId, now_s: float) -> bool:
        home = self._datanodes.home(storage)
        return home is None or self._datanodes.liveness(home, now_s) is Liveness.DEAD

    # -- a move ---------------------------------------------------------------------------------

    def _begin(self, run: _Run, record: BlockRecord, move: Move, now_s: float) -> None:
        volumes = self._balance.volumes
        target = volumes[move.target]
        holders = sorted(record.members, key=lambda each: volumes[each].rack != target.rack)
        self._moving[move.block] = _Moving(move)
        self._balance = self._balance.after((move,))
        self._reducer.prefer(move.block, move.source)
        source = volumes[holders[0]].node
        self._copies.start(Copy(record, tuple(holders), source, move.target, target.node))
        for search in self._searches.values():
            search.passes = 0
        pause_s = move.size_bytes / run.bandwidth_bytes_per_s
        run.next_s = max(run.next_s, now_s) + pause_s

    async def _follow(self, now_s: float) -> None:
        """Follow the moves that were begun to their end."""
        for block, moving in tuple(self._moving.items()):
            seen = self._is_seen_at_source(moving) and self._is_seen_at_target(moving)
            if seen or (moving.ended and self._is_lost(moving.move.source, now_s)):
                del self._moving[block]
        under_way = tuple(block for block, moving in self._moving.items() if not moving.ended)
        if not under_way:
            return
        found = await self._catalog.block_entries(under_way)
        for block, entry in zip(under_way, found, strict=True):
            members = None if entry is None else entry.record.members
            self._judge(self._moving[block], members, now_s)

    def _judge(self, moving: _Moving, members: tuple[StorageId, ...] | None, now_s: float) -> None:
        move = moving.move
        if members is not None and move.target in members:
            moving.copied_s = min(moving.copied_s, now_s)
        if members is None:  # the block was deleted
            self._reducer.prefer(move.block, None)
            del self._moving[move.block]
        elif move.source not in members:
            self._end(moving, now_s, moved=move.target in members)
        elif move.block in self._copies:
            return
        elif move.target not in members:
            self._end(moving, now_s, moved=False)
        elif self._holds():
            moving.leaves_from_s = math.inf
        else:
            moving.leaves_from_s = min(moving.leaves_from_s, now_s)
            if now_s - moving.leaves_from_s >= LEAVES_WITHIN_S:
                self._end(moving, now_s, moved=False)

    def _end(self, moving: _Moving, now_s: float, *, moved: bool) -> None:
        self._reducer.prefer(moving.move.block, None)
        moving.ended_s = now_s
        run = self._run
        if not moved:
            del self._moving[moving.move.block]
        if run is None:
            return
        if moved:
            run.moved_blocks += 1
            run.moved_bytes += moving.move.size_bytes
            run.failed_in_a_row = 0
        else:
            run.failed += 1
            run.failed_in_a_row += 1

    def _status(self, run: _Run) -> BalanceStatus:
        balance = self._balance
        return BalanceStatus(
            run=run.name,
            phase=run.phase,
            moved_blocks=run.moved_blocks,
            moved_bytes=run.moved_bytes,
            under_way=sum(not each.ended for each in self._moving.values()),
            failed=run.failed,
            storages=len(balance.volumes),
            mean=balance.mean,
            furthest=balance.furthest,
            left_bytes=balance.left_bytes,
            why=run.why,
        )
