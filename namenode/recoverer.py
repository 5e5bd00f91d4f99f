"""FinalizeBlock(b), K11: ends a block by running `protocol.recovery` against its members.

One recovery per block runs in this process; whoever asks meanwhile gets its result. A recovery
allocates a generation of its own (K2), takes the first sufficient quorum (P2), and lets the catalog
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
from paxosblock.protocol.quorum import Tally, recovery_quorum, tally
from paxosblock.protocol.recovery import Phase, Proposer
from paxosblock.protocol.types import BlockId, StorageId

RESEND_S = 0.2
"""Pause before a member that did not answer, or refused, is asked again (P1, P4)."""
PATIENCE_FIRST_S = 1.0
"""How long the first generation of a recovery may take: the holder of what it chose may hang."""
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
        deadline_s = _now_s() + self._timeout_s
        backoff_s, patience_s = BACKOFF_FIRST_S, PATIENCE_FIRST_S
        while True:
            entry = await self._catalog.allocate_seal(block)
            if isinstance(entry, Refused):  # K2 refuses finalized blocks only
                return await self._catalog.get_block(block)
            attempt = _Attempt(entry.record, self._acceptors, self._history, self._background)
            proposer = await attempt.run(min(deadline_s, _now_s() + patience_s))
            if proposer.phase is Phase.DECIDED:
                decided = await self._decide(proposer)
                if decided is not None:
                    return decided
            if _now_s() >= deadline_s:
                raise _no_quorum(proposer, self._timeout_s)
            await asyncio.sleep(self._jitter.uniform(0, backoff_s))
            backoff_s, patience_s = min(2 * backoff_s, BACKOFF_MAX_S), 2 * patience_s

    async def _decide(self, proposer: Proposer) -> BlockEntry | None:
        """K5; None when somebody else was faster."""
        choice = proposer.choice
        assert choice is not None, "what was decided was chosen"
        entry = await self._catalog.finalize_by_recovery(
            proposer.block, proposer.base, proposer.generation, choice.length, choice.size_bytes
        )
        if isinstance(entry, Refused):
            self._history.add(proposer.block, proposer.generation, "recovery was overtaken")
            return None
        record = entry.record
        self._history.add(
            record.block, record.finalized_generation, "recovered", detail=f"length {record.length}"
        )
        self._finalized(record)
        return entry


def _now_s() -> float:
    return asyncio.get_running_loop().time()


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
        self._refused: set[StorageId] = set()
        """Targets that could not accept what was chosen, when they were asked last."""

    async def run(self, deadline_s: float) -> Proposer:
        """Ask until the proposer is DECIDED or ABANDONED, cannot be decided, or time is up."""
        self._note("recovery starts", f"base {self.proposer.base}")
        asked = None
        try:
            async with asyncio.timeout_at(deadline_s):
                while self._may_decide():
                    if self.proposer.phase is not asked:
                        asked = self.proposer.phase
                        self._ask_all()
                    self._take(await self._inbox.get())
        except TimeoutError:
            self._note("recovery takes too long", f"still {self.proposer.phase.value}")
        finally:
            self._stop_asking()
        return self.proposer

    def _may_decide(self) -> bool:
        """Whether this generation can still succeed.

        What it chose may be out of reach: the only holder of a chunk voted and died. Then a fresh
        generation chooses again, among those who are left.
        """
        proposer = self.proposer
        if proposer.phase is not Phase.WRITING:
            return proposer.phase is Phase.PROMISING
        votes, refused = len(proposer.votes), len(self._refused)
        state = tally(votes, refused, len(proposer.targets), proposer.votes_needed)
        return state is not Tally.IMPOSSIBLE

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
                self._refused.discard(answer.storage)
            case Nack():
                self.proposer = recovery.on_nack(before, answer)
                if before.phase is Phase.WRITING:
                    self._refused.add(answer.storage)
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
