"""Block reports: compared with what the catalog says that DataNodes should hold.

Only the leader judges. The other NameNodes note who holds what, for when one of them leads.

A page of a full report speaks for a range of block ids: the storage has lost the blocks of that
range, and of no other, that the page does not name. That was true when the page was written, so it
must not be applied after a later page. A storage sends one report after the other, and their
numbers show which of them it gave up (`_Turn`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from paxosblock.api.datanode import ReplicaSummary
from paxosblock.api.reports import (
    LAST_BLOCK,
    BlockRange,
    BlockReport,
    DeadReplica,
    ReportAnswer,
)
from paxosblock.errors import NotFoundError, NotReadyError
from paxosblock.host.logs import facts
from paxosblock.namenode.alarms import Alarms
from paxosblock.namenode.blocks.datanodes import DataNodes
from paxosblock.namenode.blocks.finalizer import Finalizer
from paxosblock.namenode.blocks.replicas import Judgement, Replicas, Verdict, judge, judge_dead
from paxosblock.namenode.catalog.catalog import Catalog
from paxosblock.namenode.catalog.records import BlockEntry
from paxosblock.protocol.types import BlockId, Generation, ReplicaState, StorageId

SLICE = 256
"""Replicas that are judged before other tasks get a turn."""
REPORTED_PER_S: Final = 10_000
"""Replicas that all full reports together may name in a second: an eighth of a processor."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Turn:
    """Reports of one storage are taken one at a time, each later than the one before."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    incarnation: str = ""
    number: int = 0

    def is_next(self, report: BlockReport) -> bool:
        """True if a report may have its turn, as no later one of the same process had it."""
        before = self.number if report.incarnation == self.incarnation else 0
        if report.number <= before:
            return False
        self.incarnation, self.number = report.incarnation, report.number
        return True


class Reports:
    """Judges reports and has the finalizer act on them."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        datanodes: DataNodes,
        replicas: Replicas,
        finalizer: Finalizer,
        alarms: Alarms,
        judges: Callable[[], bool],
        holds: Callable[[], bool],
        copied: Callable[[BlockId, StorageId, Generation], None],
        taken: Callable[[BlockReport], None],
    ) -> None:
        """Use these parts of the node.

        Args:
            judges: returns True if this NameNode leads.
            holds: returns True while safe mode lets nothing be taken away.
            copied: is called with finished copies that are not members yet.
            taken: is called with each report that was taken in.
        """
        self._catalog = catalog
        self._datanodes = datanodes
        self._replicas = replicas
        self._finalizer = finalizer
        self._alarms = alarms
        self._judges = judges
        self._holds = holds
        self._left_over: set[StorageId] = set()
        """Storages that reported leftovers while nothing was taken away."""
        self._copied = copied
        self._taken = taken
        self._turns: dict[StorageId, _Turn] = {}

    async def take(self, report: BlockReport) -> ReportAnswer:
        """Take in one report; return the block up to which its storage has reported all it holds.

        Raises:
            NotReadyError: the report comes from a process that has to register first.
        """
        self._check_sender(report)
        turn = self._turns.setdefault(report.storage, _Turn())
        async with turn.lock:
            self._check_sender(report)  # another process may have registered meanwhile
            if turn.is_next(report):
                await self._take(report)
        up_to, again_after_s = self._datanodes.reported(report.storage).up_to, 0.0
        if report.covers is not None and report.covers.last == LAST_BLOCK:
            storages = (each.storages for each in self._datanodes)
            again_after_s = sum(map(self._replicas.count, storages)) / REPORTED_PER_S
        return ReportAnswer(up_to, again_after_s)

    async def _take(self, report: BlockReport) -> None:
        # A NameNode that begins to lead meanwhile asks for a new full report, to which this page
        # adds nothing.
        reported = self._datanodes.reported(report.storage)
        judging = self._judges()
        take = self._take_slice if judging else self._note_slice
        replicas = report.replicas
        if judging and report.covers is None:  # a full report looks at what changed elsewhere, too
            replicas = tuple(each for each in replicas if not self._was_answered(each))
        for start in range(0, len(replicas), SLICE):
            await take(replicas[start : start + SLICE])
            await asyncio.sleep(0)
        for block in report.deleted:
            self._replicas.forget(block, report.storage)
        for start in range(0, len(report.dead), SLICE):
            await self._take_dead(report.storage, report.dead[start : start + SLICE], judging)
        if report.covers is not None:
            await self._take_missing(report, report.covers, judging)
            reported.add(report.covers)
        self._taken(report)
        _log.debug(
            "block report",
            extra=facts(
                storage=report.storage, covers=report.covers, replicas=len(report.replicas)
            ),
        )

    def resume(self) -> None:
        """Ask the storages that have leftovers again, after safe mode."""
        while self._left_over:
            self._datanodes.ask_for_report(self._left_over.pop())

    async def damaged(self, block: BlockId, storage: StorageId, why: str) -> None:
        """Note that bytes of a replica did not match their checksum.

        Raises:
            NotFoundError: there is no such block, or the storage is not a member of it.
        """
        if not self._judges():
            self._replicas.forget(block, storage)
            return
        record = (await self._catalog.get_block(block)).record
        if storage not in record.members:
            raise NotFoundError(f"block {block}: storage {storage} is no member", block=block)
        self._finalizer.copy_again(record, storage, why)

    def _check_sender(self, report: BlockReport) -> None:
        current = self._datanodes.is_current(report.node, report.incarnation)
        home = self._datanodes.home(report.storage)
        if not current or home is None or home.node != report.node:
            raise NotReadyError(
                f"DataNode {report.node} must register before it reports storage {report.storage}",
                node=report.node,
            )

    async def _take_slice(self, summaries: tuple[ReplicaSummary, ...]) -> None:
        entries = await self._catalog.block_entries(
            tuple(summary.state.block for summary in summaries)
        )
        for summary, entry in zip(summaries, entries, strict=True):
            self._take_one(summary, entry)

    def _was_answered(self, summary: ReplicaSummary) -> bool:
        """Take a replica that is just what its storage answered when it was told to finalize it:
        the record that it was told takes the place of the catalog's. False: it is another one."""
        record = self._finalizer.answered(summary.state.block, summary.storage)
        if record is None or judge(record, True, summary).verdict is not Verdict.HOLDS:
            return False
        self._take_holder(summary)
        return True

    async def _note_slice(self, summaries: tuple[ReplicaSummary, ...]) -> None:
        """Note the replicas that storages hold; the leader judges if they should."""
        for summary in summaries:
            if summary.state.registers.state is ReplicaState.FINALIZED:
                self._take_holder(summary)
            else:
                self._replicas.forget(summary.state.block, summary.storage)

    def _take_one(self, summary: ReplicaSummary, entry: BlockEntry | None) -> None:
        block, storage = summary.state.block, summary.storage
        record = entry.record if entry else None
        finding = judge(record, self._catalog.was_allocated(block), summary)
        if finding.verdict is not Verdict.HOLDS:
            self._replicas.forget(block, storage)
        match finding.verdict:
            case Verdict.FINE:
                pass
            case Verdict.HOLDS:
                self._take_holder(summary)
            case Verdict.COPIED:
                if self._take_holder(summary):
                    self._copied(block, storage, summary.state.registers.accepted_generation)
            case Verdict.KNOWN:
                self._take_known(summary)
            case Verdict.FINALIZE:
                assert record is not None, "only a member of a block is told to finalize it"
                self._take_known(summary)  # an earlier version may still be whole
                if self._finalizer.has_room:
                    self._finalizer.tell(record, storage)
            case Verdict.DELETE:
                self._delete(block, storage, finding)
            case Verdict.ALARM:
                self._replicas.note_unclear(block, storage)
                self._ring(finding, summary)
            case Verdict.DAMAGED:
                raise AssertionError("a dead replica has no summary")

    async def _take_dead(
        self, storage: StorageId, replicas: tuple[DeadReplica, ...], judging: bool
    ) -> None:
        """Have dead replicas replaced if they are members', and deleted if they are not."""
        for replica in replicas:
            self._replicas.forget(replica.block, storage)
        if not judging:
            return
        entries = await self._catalog.block_entries(tuple(each.block for each in replicas))
        for replica, entry in zip(replicas, entries, strict=True):
            block, record = replica.block, entry.record if entry else None
            ours = self._catalog.was_allocated(block)
            finding = judge_dead(record, ours, storage, replica.max_generation)
            match finding.verdict:
                case Verdict.DAMAGED:
                    assert record is not None, "a block that has members exists"
                    self._finalizer.copy_again(record, storage, replica.reason)
                case Verdict.FINALIZE:
                    assert record is not None, "a block that was copied exists"
                    self._finalizer.tell(record, storage)
                case Verdict.DELETE:
                    self._delete(block, storage, finding)
                case Verdict.ALARM:
                    promised = replica.max_generation
                    self._alarms.ring(finding.why, block=block, storage=storage, promised=promised)
                case _:
                    pass

    def _delete(self, block: BlockId, storage: StorageId, finding: Judgement) -> None:
        """D7 for a leftover; while nothing may be taken away, its storage is asked again later."""
        if self._holds():
            self._left_over.add(storage)
        else:
            self._finalizer.delete(block, storage, finding.up_to)

    def _take_known(self, summary: ReplicaSummary) -> None:
        """Note a replica that is not, or may not be, what was decided."""
        if summary.state.registers.state is ReplicaState.FINALIZED:
            self._take_holder(summary)
        else:
            self._replicas.note_unclear(summary.state.block, summary.storage)

    def _take_holder(self, summary: ReplicaSummary) -> bool:
        """Note a holder of a version; False: its bytes differ from those of the other holders."""
        state, crc = summary.state, summary.last.crc if summary.last else None
        sound = self._replicas.note(
            state.block, summary.storage, state.registers.accepted_generation, crc
        )
        if not sound:
            self._alarms.ring(
                "I7 equal generations and different bytes",
                block=state.block,
                storage=summary.storage,
            )
        return sound

    def _ring(self, finding: Judgement, summary: ReplicaSummary) -> None:
        self._alarms.ring(
            finding.why,
            block=summary.state.block,
            storage=summary.storage,
            promised=summary.state.registers.max_generation,
            accepted=summary.state.registers.accepted_generation,
            length=summary.state.length,
        )

    async def _take_missing(self, report: BlockReport, covers: BlockRange, judging: bool) -> None:
        """Note as lost the blocks of its range that a page does not name."""
        named = {summary.state.block for summary in report.replicas}
        left = covers
        while blocks := self._replicas.blocks_of(report.storage, left, SLICE):
            missing = tuple(block for block in blocks if block not in named)
            for block in missing:
                self._replicas.forget(block, report.storage)
            if judging and missing:
                await self._tell_again(missing, report.storage)
            left = BlockRange(blocks[-1], covers.last)
            await asyncio.sleep(0)

    async def _tell_again(self, missing: tuple[BlockId, ...], storage: StorageId) -> None:
        if not self._finalizer.has_room:
            return  # the walk over all blocks will tell them
        for entry in await self._catalog.block_entries(missing):
            if entry and entry.record.finalized and storage in entry.record.members:
                self._finalizer.tell(entry.record, storage)
