"""Finds out what became of blocks since the backup that brought their records back (K14).

All storages that have a replica of a block are asked for a promise under a generation above all
that were ever given; what the highest of them accepted is the block's from then on, in an epoch of
its own. So records and replicas agree again, whatever happened since the backup.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from paxosblock.api.lease_call import AskedMember, MemberAnswer, StuckBlock
from paxosblock.errors import NotFoundError, NotReadyError
from paxosblock.namenode.alarms import Alarms
from paxosblock.namenode.blocks.datanodes import DataNodes
from paxosblock.namenode.blocks.finalizer import Finalizer
from paxosblock.namenode.blocks.history import History
from paxosblock.namenode.blocks.replicas import Replicas
from paxosblock.namenode.blocks.runner import Attempt, Runner
from paxosblock.namenode.catalog import learning
from paxosblock.namenode.catalog.catalog import Catalog
from paxosblock.namenode.catalog.draft import block_entry, in_one
from paxosblock.namenode.catalog.records import BlockEntry
from paxosblock.protocol import finalize, recovery
from paxosblock.protocol.finalize import BlockRecord, Refused, Why
from paxosblock.protocol.messages import Nack
from paxosblock.protocol.recovery import Phase, Proposer
from paxosblock.protocol.types import NO_GENERATION, BlockId, Generation, StorageId

PAGE: Final = 1000
"""Blocks that are looked at before other tasks get a turn."""
AT_ONCE: Final = 64
"""Blocks that DataNodes are asked about at a time."""
NO_BLOCK = BlockId(-1)

_log = logging.getLogger(__name__)


class Learner:
    """Learns all blocks of a catalog that was brought back, on the leader only."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        runner: Runner,
        datanodes: DataNodes,
        replicas: Replicas,
        finalizer: Finalizer,
        history: History,
        alarms: Alarms,
        waits: Callable[[], bool],
        patient: Callable[[], bool],
        timeout_s: float,
        clock_s: Callable[[], float],
    ) -> None:
        """Use these parts of the node.

        Args:
            waits: returns True while too few blocks were reported to begin.
            patient: returns True until an operator leaves safe mode. Meanwhile a block waits for
                all members that the backup names.
            timeout_s: bounds one attempt.
        """
        self._catalog = catalog
        self._runner = runner
        self._datanodes = datanodes
        self._replicas = replicas
        self._finalizer = finalizer
        self._history = history
        self._alarms = alarms
        self._waits = waits
        self._patient = patient
        self._timeout_s = timeout_s
        self._clock_s = clock_s
        self._heard: dict[BlockId, Generation] = {}
        """The highest promise that storages told when they refused."""
        self._misfits: dict[BlockId, frozenset[StorageId]] = {}
        """Blocks that no longer fit into their files, with the storages that were asked."""
        self.left = 0
        """Restored blocks that are still to be learned, for people; 0 while this NameNode does not
        lead."""

    async def turn(self) -> None:
        """Learn the blocks that can be learned now, if a backup was brought back."""
        if not learning.is_restored(await self._catalog.view()):
            return
        self.left = self.left or await self._count()
        if self._waits() or not self._all_reported():
            return
        left, after = 0, NO_BLOCK
        while True:
            view = await self._catalog.view()
            some, last = learning.page(view, after, PAGE)
            for start in range(0, len(some), AT_ONCE):
                batch = some[start : start + AT_ONCE]
                done = await asyncio.gather(*map(self._learn, batch))
                left += done.count(False)
                self.left = max(left, self.left - done.count(True))
            if last == after:
                break
            after = last
            await asyncio.sleep(0)
        self.left = left
        if not left:
            await self._catalog.decide(type(None), in_one(learning.forget), None)
            _log.info("all blocks of the backup were learned")

    def clear(self) -> None:
        """Forget what is known, as another NameNode leads."""
        self.left = 0

    async def _count(self) -> int:
        """Return the number of restored blocks."""
        found, after = 0, NO_BLOCK
        while True:
            some, last = learning.page(await self._catalog.view(), after, PAGE)
            if last == after:
                return found
            found, after = found + len(some), last
            await asyncio.sleep(0)

    def _all_reported(self) -> bool:
        """True if every live DataNode has told all that it holds."""
        now_s = self._clock_s()
        return all(
            self._datanodes.has_reported(storage)
            for node in self._datanodes
            if self._datanodes.dead_for_s(node, now_s) < 0
            for storage, report in node.storages.items()
            if not report.failed
        )

    def _witnesses(self, record: BlockRecord) -> tuple[StorageId, ...]:
        """Return the storages to ask; none if no storage is known to have a replica, or while a
        storage is waited for."""
        now_s, known = self._clock_s(), self._replicas.known(record.block)
        storages = sorted(known.union(record.members))
        here = tuple(each for each in storages if self._datanodes.is_reachable(each, now_s))
        if not known.intersection(here) or self._misfits.get(record.block) == frozenset(here):
            return ()
        return () if self._patient() and len(here) < len(storages) else here

    async def _learn(self, record: BlockRecord) -> bool:
        """Learn one block; False if it must be tried again."""
        witnesses = self._witnesses(record)
        if not witnesses:
            return await self._leave_out(record)
        return await self._ask(record.block, recovery.learn, witnesses)

    async def _leave_out(self, record: BlockRecord) -> bool:
        """Take a block out of its file if no byte of that can be in it; False if it stays."""
        if self._patient() or self._replicas.known(record.block):
            return False
        view = await self._catalog.view()
        entry = block_entry(view, record.block)
        if entry is not None and not learning.holds_nothing(view, entry):
            return False  # as in each turn, so nothing is decided for that
        left = await self._catalog.decide(bool, in_one(learning.leave_out), record.block)
        return left.value

    async def _ask(
        self,
        block: BlockId,
        propose: Callable[[BlockRecord, tuple[StorageId, ...]], Proposer],
        witnesses: tuple[StorageId, ...],
    ) -> bool:
        """Run one LEARN; False if it must be tried again."""
        try:
            heard = self._heard.pop(block, NO_GENERATION)
            rule = partial(finalize.allocate_learning, heard=heard)
            entry = await self._catalog.change_block(block, rule)
            if isinstance(entry, Refused):
                return True
            attempt = self._runner.attempt(propose(entry.record, witnesses))
            proposer = await attempt.run(asyncio.get_running_loop().time() + self._timeout_s)
            if proposer.phase is Phase.DECIDED:
                return await self._decide(proposer, witnesses)
        except NotFoundError:
            return True  # its file was deleted
        self._note_refusals(attempt)
        return False

    # -- blocks that no storage has ---------------------------------------------------------------

    async def learn_nothing(self, block: BlockId) -> None:
        """End a block of a backup that no storage has, on an operator's word.

        Raises:
            NotReadyError: a storage has something, it cannot be told yet, or no member answers.
        """
        record = (await self._catalog.get_block(block)).record
        if not record.restored:
            return
        if unsure := self._unsure(record):
            raise NotReadyError(f"block {block}: {unsure}", block=block)
        if not await self._ask(block, recovery.learn_nothing, self._have_nothing(record)):
            raise NotReadyError(f"block {block}: not all members that live answered", block=block)

    def survey(self, record: BlockRecord, stuck: StuckBlock) -> StuckBlock:
        """Return what is known of a block that cannot be ended, for an operator."""
        if not record.restored:
            return stuck
        now_s, here = self._clock_s(), self._have_nothing(record)
        members = tuple(
            AskedMember(self._datanodes.member(storage, now_s), MemberAnswer.NOTHING)
            if storage in here
            else AskedMember(
                self._datanodes.member(storage, now_s), MemberAnswer.UNREACHABLE, "it is not heard"
            )
            for storage in record.members
        )
        live = {
            node.node for node in self._datanodes if self._datanodes.dead_for_s(node, now_s) < 0
        }
        return msgspec.structs.replace(
            stuck,
            members=members,
            restored=True,
            unsure=self._unsure(record),
            unheard=tuple(name for name in self._catalog.known_nodes() if name not in live),
        )

    def _unsure(self, record: BlockRecord) -> str:
        """Return why it cannot be said that no storage has anything; "" if that may be said."""
        if not record.may_be_empty:
            return "what was decided of it before the backup is waited for"
        if self._patient():
            return "DataNodes are waited for until an operator leaves safe mode"
        if self._waits() or not self._all_reported():
            return "not all DataNodes that live have told what they hold"
        if self._replicas.known(record.block):
            return "a storage has a replica of it, and the NameNode asks for that"
        return "" if self._have_nothing(record) else "no member of it is heard"

    def _have_nothing(self, record: BlockRecord) -> tuple[StorageId, ...]:
        """Return the members that are heard, have reported, and named no replica."""
        now_s, known = self._clock_s(), self._replicas.known(record.block)
        here = (each for each in record.members if each not in known)
        lives, told = self._datanodes.lives, self._datanodes.has_reported
        return tuple(each for each in here if lives(each, now_s) and told(each))

    async def _decide(self, proposer: Proposer, witnesses: tuple[StorageId, ...]) -> bool:
        choice = proposer.choice
        assert choice is not None, "what was decided was chosen"
        detail = f"length {choice.length}, accepted in {choice.accepted_generation}"
        ends_in = Generation(proposer.generation + 1)
        grounds = self._history.grounds(proposer.block, ends_in, "learned", detail)
        decide = in_one(partial(learning.learn, grounds=grounds))
        learned = (await self._catalog.decide(learning.Learned, decide, proposer)).value.outcome
        if isinstance(learned, BlockEntry):
            self._history.decided(proposer.block, grounds)
            self._finalizer.spread(learned.record)
            return True
        if learned.why is Why.BAD_LENGTH:
            self._misfits[proposer.block] = frozenset(witnesses)
            why = f"restored block: its replicas have {choice.size_bytes} bytes, and its file has "
            why += f"room for {learned.record.size_bytes}: it was cut since the backup"
            self._alarms.ring(why, block=proposer.block)
        return False

    def _note_refusals(self, attempt: Attempt) -> None:
        nacks = [each for each in attempt.heard.values() if isinstance(each, Nack)]
        nacks += attempt.proposer.refusals
        highest = max((each.max_generation for each in nacks), default=NO_GENERATION)
        if highest > attempt.proposer.generation:
            self._heard[attempt.proposer.block] = highest
