"""Step 4 seen from the NameNode: the length is in the catalog (K6); now the members learn it (P5).

The finalizer tells every member until it reports Finalized. A member that lacks chunks fetches them
from those that have reported already. A member that stays away is left alone after a while: its
next block report, or the walk over all blocks (`replication/monitor.py`), starts again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from paxosblock.api.namenode import FinalizeBlock
from paxosblock.errors import PaxosBlockError
from paxosblock.namenode.alarms import Alarms
from paxosblock.namenode.background import Background
from paxosblock.namenode.blocks.acceptors import Acceptors, Answer
from paxosblock.namenode.blocks.datanodes import DataNodes
from paxosblock.namenode.blocks.history import History, describe
from paxosblock.namenode.blocks.queues import QueuedQuestion, Queues
from paxosblock.namenode.blocks.replicas import Replicas
from paxosblock.namenode.catalog.catalog import Catalog
from paxosblock.namenode.catalog.records import BlockEntry
from paxosblock.protocol.finalize import BlockRecord, finalize_message
from paxosblock.protocol.messages import Delete, Finalize, Finalized, Nack
from paxosblock.protocol.types import BlockId, Durability, Generation, Reason, StorageId

UNDER_WAY_MAX = 4096
"""Beyond this many questions, work that can wait is left to a block report or the next walk."""
LATER_S: Final = 0.1
"""Seconds in which a file that just got a line may get the next one."""


class Finalizer:
    """Tells members what was decided, and tells storages that hold leftovers to drop them."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        acceptors: Acceptors,
        datanodes: DataNodes,
        replicas: Replicas,
        history: History,
        alarms: Alarms,
        background: Background,
        told: Callable[[BlockId], None],
    ) -> None:
        """Use these parts of the node.

        `told` is called with a block whose members have all been told what was decided, and with
        one whose member did not answer: it may lack replicas.
        """
        self._catalog = catalog
        self._datanodes = datanodes
        self._replicas = replicas
        self._history = history
        self._alarms = alarms
        self._told = told
        self._queues = Queues(background, acceptors)
        self._spreading: dict[tuple[BlockId, StorageId], Generation] = {}
        self._answered: dict[tuple[BlockId, StorageId], BlockRecord] = {}
        """The records of members that said that they finalized, and have not reported that yet."""

    @property
    def has_room(self) -> bool:
        """True if there is room for work that can wait."""
        return len(self._queues) < UNDER_WAY_MAX

    async def finalize_by_writer(self, request: FinalizeBlock) -> BlockEntry:
        """K6, followed by P5. Raises as `blocks.finalize_by_writer`."""
        entry = await self._catalog.finalize_by_writer(request)
        self.spread(entry.record)
        return entry

    def spread(self, record: BlockRecord, needed: int = 0) -> None:
        """P5: bring every member that has not reported yet to the decided version.

        If the block had been opened again, a writer may append to it line by line. Then only as
        many members as are `needed` are told at once, and the others `LATER_S` later, unless it is
        open again by then (`withhold`): each would move its replica to and fro. But what votes did
        not sync, a finalization does, and that does not wait.
        """
        self._datanodes.note_ended(record.block, record.members, record.size_bytes)
        holders, queued = self._replicas.holders(record), 0
        waits = needed and record.base_length and record.durability is Durability.DISK
        for member in record.members:
            if member not in holders:
                self.tell(record, member, LATER_S if waits and queued >= needed else 0.0)
                queued += 1

    def withhold(self, record: BlockRecord) -> None:
        """Tell no further member of this version: an APPEND is being set up, and K7 or K9, which
        ends it, tells the members."""
        for member in record.members:
            self._stop_telling(record.block, member)

    def tell(self, record: BlockRecord, member: StorageId, pause_s: float = 0.0) -> None:
        """P5 for one member after `pause_s` seconds, unless that is under way."""
        if record.reopening or record.restored:
            return  # see `withhold`; what a backup knew may not be what is decided now (K14)
        key, generation = (record.block, member), record.finalized_generation
        if self._spreading.get(key) == generation:
            return
        self._spreading[key] = generation
        self._answered.pop(key, None)
        question = QueuedQuestion(
            partial(self._finalization, record, member),
            partial(self._heard, record, member),
            partial(self._end_telling, record, member),
        )
        self._queues.add(member, question, pause_s)

    def delete(self, block: BlockId, storage: StorageId, up_to: Generation) -> None:
        """D7: drop a replica. If that fails, the next block report finds it again."""
        if self.has_room:
            message = Delete(block, up_to)
            heard = partial(self._deleted, message, storage)
            self._queues.add(storage, QueuedQuestion(lambda: message, heard))

    def delete_everywhere(self, entry: BlockEntry, *, sent: bool = True) -> None:
        """Have the members of a block that left the catalog drop their replicas, unless nothing of
        the block was `sent` to them. (If that is wrong, a block report finds it out.)
        """
        record = entry.record
        self._datanodes.note_ended(record.block, record.members, 0)
        self._replicas.forget_block(record.block)
        for member in record.members:
            self._stop_telling(record.block, member)
            if sent:
                self.delete(record.block, member, record.generation)

    def dismiss(self, block: BlockId, storage: StorageId, up_to: Generation, *, live: bool) -> None:
        """Stop P5 for `storage`, which left the block (K13), and send D7 if it is `live`.

        If it is not, its report is judged when it is back.
        """
        self._stop_telling(block, storage)
        self._replicas.forget(block, storage)
        if live:
            self.delete(block, storage, up_to)

    def copy_again(self, record: BlockRecord, storage: StorageId, why: str) -> None:
        """Have the replica at `storage`, which was called damaged, replaced if it is (D9).

        A DataNode that found damage on its disk takes Finalize as the order to make a full copy,
        and drops its replica once it holds a checked copy. A DataNode that found none goes on
        serving its replica: the caller has bad memory or a bad line. No member is ever told to
        delete anything.
        """
        if storage not in self._replicas.damaged(record):  # each block report says it again
            self._alarms.ring(f"damaged replica: {why}", block=record.block, storage=storage)
        self._replicas.note_damaged(record.block, storage)
        if record.finalized:
            self.tell(record, storage)

    def begin(self) -> None:
        """Begin to lead: other NameNodes may have decided more since this one led."""
        self._answered.clear()

    def answered(self, block: BlockId, storage: StorageId) -> BlockRecord | None:
        """Return the record that a member said it finalized, once: a report of just that says
        nothing new. None: it said no such thing, or was told another one since."""
        return self._answered.pop((block, storage), None)

    def _finalization(self, record: BlockRecord, member: StorageId) -> Finalize | None:
        """Return what to ask, if the question still stands."""
        if self._spreading.get((record.block, member)) != record.finalized_generation:
            return None  # a later version is being told, or the block was deleted
        holders = self._replicas.holders(record)
        return None if member in holders else finalize_message(record, holders)

    def _heard(
        self, record: BlockRecord, member: StorageId, answer: Answer | PaxosBlockError
    ) -> bool:
        """Take an answer to a Finalize; True if there is nothing more to ask."""
        if isinstance(answer, PaxosBlockError):
            self._note(record, "not finalized yet", str(answer), member)
            if self._replicas.holders(record):
                self._told(record.block)
            return False
        self._note(record, *describe(answer), member, logged=isinstance(answer, Finalized))
        match answer:
            case Finalized():
                self._replicas.note(record.block, member, record.finalized_generation)
                if len(self._answered) == UNDER_WAY_MAX:  # of storages that never reported them
                    self._answered.clear()
                self._answered[record.block, member] = record
                return True
            case Nack() if answer.max_generation > record.finalized_generation:
                return True  # a later version of the block is being made
            case Nack(reason=Reason.CORRUPT):
                # Its DataNode replaces it by a full copy (D9), as soon as a holder sends one.
                why = "damaged replica: does not match the decided log"
                self._alarms.ring(why, block=record.block, storage=member)
                self._replicas.note_damaged(record.block, member)
                return False
            case _:
                return False  # it lacks chunks: ask again once a member holds all of them

    def _deleted(self, asked: Delete, storage: StorageId, answer: Answer | PaxosBlockError) -> bool:
        """Take an answer to a Delete."""
        if isinstance(answer, PaxosBlockError):
            event, detail = "not deleted", str(answer)
        else:
            event, detail = describe(answer)
        self._history.add(asked.block, asked.up_to_generation, event, storage, detail)
        return True

    def _stop_telling(self, block: BlockId, storage: StorageId) -> None:
        """Ask no more what waits to be asked, and take no report for what was answered."""
        self._spreading.pop((block, storage), None)
        self._answered.pop((block, storage), None)

    def _end_telling(self, record: BlockRecord, member: StorageId) -> None:
        block = record.block
        if self._spreading.get((block, member)) != record.finalized_generation:
            return  # a later version is being told, or the block was deleted
        del self._spreading[block, member]
        if not any((block, other) in self._spreading for other in record.members):
            self._told(block)

    def _note(
        self,
        record: BlockRecord,
        event: str,
        detail: str,
        member: StorageId,
        *,
        logged: bool = False,
    ) -> None:
        generation = record.finalized_generation
        self._history.add(record.block, generation, event, member, detail, logged=logged)
