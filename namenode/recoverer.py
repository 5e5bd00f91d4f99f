"""FinalizeBlock(b), K11: ends a block by running `protocol.recovery` against its members.

One recovery per block runs in this process; whoever asks meanwhile gets its result. A recovery
allocates a generation of its own (K2), takes the first sufficient quorum (B7), and lets the catalog
decide (K5). Whatever goes wrong, the record is read again: decided by somebody else, it is adopted;
otherwise a fresh generation tries again until the time is up. Chunks travel between DataNodes
only.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from paxosblock.errors import NotReadyError, PaxosBlockError
from paxosblock.namenode.acceptors import Acceptors, Answer
from paxosblock.namenode.background import Background
from paxosblock.namenode.catalog import Catalog
from paxosblock.namenode.history import NOBODY, History, describe
from paxosblock.namenode.records import BlockEntry
from paxosblock.protocol import recovery
from paxosblock.protocol.finalize import BlockRecord, Refused
from paxosblock.protocol.messages import LastVote, Nack, NextGS, RecoveryVote, RecoveryWrite
from paxosblock.protocol.quorum import recovery_quorum
from paxosblock.protocol.recovery import Phase, Proposer
from paxosblock.protocol.types import BlockId, StorageId

RESEND_S = 0.2
"""Pause before a member that did not answer, or refused, is asked again (P1, P4)."""
BACKOFF_FIRST_S = 0.02
BACKOFF_MAX_S = 1.0


class Recoverer:
    """Recovers blocks, for writers that give up and for leases that expired."""

    def __init__(
        self,
        catalog: Catalog,
        acceptors: Acceptors,
        history: History,
        background: Background,
        *,
        timeout_s: float,
        finalized: Callable[[BlockRecord], None],
        jitter: random.Random,
    ) -> None:
        """`finalized` is told each record that a recovery here decided: its members learn it (P5).

        `timeout_s` bounds one call of `finalize`.
        """
        self._catalog = catalog
        self._acceptors = acceptors
        self._history = history
        self._background = background
        self._timeout_s = timeout_s
        self._finalized = finalized
        self._jitter = jitter
        self._running: dict[BlockId, asyncio.Task[BlockEntry]] = {}

    @property
    def running(self) -> int:
        """How many recoveries are under way."""
        return len(self._running)

    async def finalize(self, block: BlockId) -> BlockEntry:
        """End a block; return its entry with the decided length. Safe to repeat at any time.

        Raises:
            NotFoundError: there is no such block.
            NotReadyError: no quorum of its members answered in time; the message says who did.
        """
        task = self._running.get(block)
        if task is None:
            task = self._background.start(self._recover(block), f"recovery of block {block}")
            self._running[block] = task
            task.add_done_callback(lambda _: self._running.pop(block, None))
        return await asyncio.shield(task)

    async def _recover(self, block: BlockId) -> BlockEntry:
        deadline_s = asyncio.get_running_loop().time() + self._timeout_s
        backoff_s = BACKOFF_FIRST_S
        while True:
            entry = await self._catalog.allocate_seal(block)
            if isinstance(entry, Refused):  # K2 refuses finalized blocks only
                return await self._catalog.get_block(block)
            decided = await self._attempt(entry.record, deadline_s)
            if decided is not None:
                return decided
            await asyncio.sleep(self._jitter.uniform(0, backoff_s))
            backoff_s = min(2 * backoff_s, BACKOFF_MAX_S)

    async def _attempt(self, record: BlockRecord, deadline_s: float) -> BlockEntry | None:
        """Run one proposer; None when somebody else has a higher generation."""
        attempt = _Attempt(record, self._acceptors, self._history, self._background)
        try:
            async with asyncio.timeout_at(deadline_s):
                proposer = await attempt.run()
        except TimeoutError:
            raise _no_quorum(attempt.proposer, self._timeout_s) from None
        if proposer.phase is not Phase.DECIDED or proposer.choice is None:
            self._history.add(record.block, record.generation, "recovery gives way")
            return None
        entry = await self._catalog.finalize_by_recovery(
            record.block,
            proposer.base,
            proposer.generation,
            proposer.choice.length,
            proposer.choice.size_bytes,
        )
        if isinstance(entry, Refused):
            self._history.add(record.block, record.generation, "recovery was overtaken")
            return None
        done = entry.record
        self._history.add(
            done.block, done.finalized_generation, "recovered", detail=f"length {done.length}"
        )
        self._finalized(done)
        return entry


class _Attempt:
    """One proposer and its conversation with the members."""

    def __init__(
        self,
        record: BlockRecord,
        acceptors: Acceptors,
        history: History,
        background: Background,
    ) -> None:
        self.proposer = recovery.seal(record)
        self._acceptors = acceptors
        self._history = history
        self._background = background
        self._inbox: asyncio.Queue[Answer] = asyncio.Queue()
        self._asking: list[asyncio.Task[None]] = []

    async def run(self) -> Proposer:
        """Ask until the proposer is done: DECIDED or ABANDONED."""
        self._note("recovery starts", f"base {self.proposer.base}")
        asked = None
        try:
            while self.proposer.phase in (Phase.PROMISING, Phase.WRITING):
                if self.proposer.phase is not asked:
                    asked = self.proposer.phase
                    self._ask_all()
                self._take(await self._inbox.get())
        finally:
            self._stop_asking()
        return self.proposer

    def _ask_all(self) -> None:
        self._stop_asking()
        for storage, question in recovery.requests(self.proposer):
            name = f"{type(question).__name__} to {storage}"
            self._asking.append(self._background.start(self._keep_asking(storage, question), name))

    def _stop_asking(self) -> None:
        for task in self._asking:
            task.cancel()
        self._asking.clear()

    async def _keep_asking(self, storage: StorageId, question: NextGS | RecoveryWrite) -> None:
        """Ask one member until it grants what is asked; nobody else waits for it."""
        while True:
            try:
                answer = await self._acceptors.ask(storage, question)
            except PaxosBlockError as error:
                self._note("no answer", str(error), storage)
            else:
                self._inbox.put_nowait(answer)
                if not isinstance(answer, Nack):
                    return
            await asyncio.sleep(RESEND_S)

    def _take(self, answer: Answer) -> None:
        before = self.proposer
        match answer:
            case LastVote():
                self.proposer = recovery.on_last_vote(before, answer)
            case RecoveryVote():
                self.proposer = recovery.on_recovery_vote(before, answer)
            case Nack():
                self.proposer = recovery.on_nack(before, answer)
        event, detail = describe(answer)
        self._note(event, detail, answer.storage)
        if before.choice is None and (choice := self.proposer.choice) is not None:
            self._note(
                "chose",
                f"length {choice.length}, accepted in {choice.accepted_generation}",
            )

    def _note(self, event: str, detail: str, storage: StorageId = NOBODY) -> None:
        self._history.add(self.proposer.block, self.proposer.generation, event, storage, detail)


def _no_quorum(proposer: Proposer, timeout_s: float) -> NotReadyError:
    """Who answered, who refused and why: what an operator needs to know."""
    heard = tuple(reply.storage for reply in proposer.replies)
    refused = ", ".join(f"{nack.storage} {nack.reason.value}" for nack in proposer.refusals)
    silent = ", ".join(
        member
        for member in proposer.members
        if member not in heard and member not in (nack.storage for nack in proposer.refusals)
    )
    weak = "; all of them weak" if heard and all(reply.weak for reply in proposer.replies) else ""
    return NotReadyError(
        f"block {proposer.block}: not recovered in {timeout_s:g} s: promises from {len(heard)} and "
        f"votes from {len(proposer.votes)} of {len(proposer.members)} members, "
        f"{recovery_quorum(len(proposer.members))} needed{weak}"
        + (f"; silent: {silent}" if silent else "")
        + (f"; refused: {refused}" if refused else ""),
        block=proposer.block,
    )
