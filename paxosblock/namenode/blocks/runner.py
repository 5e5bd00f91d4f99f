"""Steps 1 to 3 of any recovery: one proposer of `protocol.recovery` and its conversation.

SEAL, REBUILD and APPEND run alike; once a proposer is DECIDED, the code that allocated the
generation goes on with K5 or K7.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from paxosblock.base.units import MIB
from paxosblock.errors import PaxosBlockError
from paxosblock.namenode.background import Background
from paxosblock.namenode.blocks.acceptors import Acceptors, Answer
from paxosblock.namenode.blocks.history import NO_ANSWER, NOBODY, History, describe
from paxosblock.protocol import recovery
from paxosblock.protocol.invariants import InvariantError
from paxosblock.protocol.messages import LastVote, Nack, NextGS, RecoveryVote, RecoveryWrite
from paxosblock.protocol.quorum import Tally, tally
from paxosblock.protocol.recovery import Phase, Proposer, RecoveryKind
from paxosblock.protocol.types import NO_GENERATION, BlockId, StorageId

RESEND_S: Final = 0.2
"""Pause before a member that did not answer, or refused, is asked again (P1, P4)."""
STARTS: Final = {
    RecoveryKind.SEAL: "recovery starts",
    RecoveryKind.REBUILD: "rebuild starts",
    RecoveryKind.APPEND: "append starts",
    RecoveryKind.LEARN: "what became of it since a backup is asked",
}
"""The first line of each kind in the history of a block."""

SLOWEST_COPY_BYTES_PER_S: Final = 16 * MIB
"""A copy of a log that is slower than this is not waited for."""

Heard = LastVote | Nack | PaxosBlockError
"""A member's answer when it was asked for its last vote, or the error in place of one."""


def copy_s(size_bytes: int) -> float:
    """Return the seconds that a copy of this many bytes may take."""
    return size_bytes / SLOWEST_COPY_BYTES_PER_S


class Runner:
    """Runs proposers against the acceptors of their blocks."""

    def __init__(
        self,
        acceptors: Acceptors,
        history: History,
        background: Background,
        *,
        timeout_s: float,
        find: Callable[[BlockId], Awaitable[object]],
    ) -> None:
        """Ask through `acceptors`; each step is a line of `history`.

        A target that is not a member has longer than `timeout_s`, as it fetches the whole log.
        `find` raises NotFoundError for a block that the catalog does not have (any more).
        """
        self._acceptors = acceptors
        self._history = history
        self._background = background
        self._timeout_s = timeout_s
        self._find = find

    def attempt(self, proposer: Proposer) -> Attempt:
        """Return an attempt with this proposer's generation, to be run once."""
        return Attempt(
            proposer,
            self._acceptors,
            self._history,
            self._background,
            timeout_s=self._timeout_s,
            find=self._find,
        )


class Attempt:
    """One proposer and its conversation with the members."""

    def __init__(
        self,
        proposer: Proposer,
        acceptors: Acceptors,
        history: History,
        background: Background,
        *,
        timeout_s: float,
        find: Callable[[BlockId], Awaitable[object]],
    ) -> None:
        """Make an attempt; `Runner.attempt` calls this."""
        self.proposer = proposer
        self.heard: dict[StorageId, Heard] = {}
        self.refused: set[StorageId] = set()
        """Targets that did not accept the choice when they were last asked. In a SEAL a silent
        target is not among them, as a quorum may do without it.
        """
        self.promised = NO_GENERATION
        """The highest promise that a member named when it refused; no proposer need have it."""
        self._stopped = False
        self._asked: Phase | None = None
        """The phase whose questions were asked last."""
        self._acceptors = acceptors
        self._history = history
        self._background = background
        self._timeout_s = timeout_s
        self._find = find
        self._inbox: asyncio.Queue[Answer | None] = asyncio.Queue()
        self._asking: list[asyncio.Task[None]] = []

    def begin(self) -> None:
        """Ask what comes first; `run`, which comes next, need not do it."""
        self._note(STARTS[self.proposer.kind], f"base {self.proposer.base}")
        self._ask_all()

    async def run(self, deadline_s: float) -> Proposer:
        """Ask until the proposer is DECIDED or ABANDONED, cannot be decided, or time is up.

        Raises:
            NotFoundError: the block was deleted meanwhile.
        """
        if self._asked is None:
            self.begin()
        try:
            async with asyncio.timeout_at(deadline_s):
                while self._may_decide():
                    if self.proposer.phase is not self._asked:
                        self._ask_all()
                    self._take(await self._inbox.get())
        except TimeoutError:
            self._note("recovery takes too long", f"still {self.proposer.phase.value}")
        except InvariantError:
            # The members of a block that was deleted drop what they had voted for (P7, D7).
            await self._find(self.proposer.block)
            raise
        finally:
            self._stop_asking()
        return self.proposer

    def stop(self) -> None:
        """Give this generation up."""
        self._stopped = True
        self._inbox.put_nowait(None)

    def _may_decide(self) -> bool:
        """True if this generation can still succeed.

        Its choice may be out of reach: the only holder of a chunk voted and died. Then a fresh
        generation chooses again, among the members that are left.
        """
        proposer = self.proposer
        if self._stopped or proposer.phase is not Phase.WRITING:
            return not self._stopped and proposer.phase is Phase.PROMISING
        votes, refused = len(proposer.votes), len(self.refused)
        state = tally(votes, refused, len(proposer.targets), proposer.votes_needed)
        return state is not Tally.IMPOSSIBLE

    def _ask_all(self) -> None:
        self._stop_asking()
        self._asked = self.proposer.phase
        for storage, question in recovery.requests(self.proposer):
            name = f"{type(question).__name__} to {storage}"
            self._asking.append(self._background.begin(self._keep_asking(storage, question), name))

    def _stop_asking(self) -> None:
        for task in self._asking:
            task.cancel()
        self._asking.clear()

    async def _keep_asking(self, storage: StorageId, question: NextGS | RecoveryWrite) -> None:
        """Ask one member until it grants the request; no call waits for it."""
        asked = question
        while True:
            try:
                answer = await self._acceptors.ask(
                    storage, asked, timeout_s=self._time_of(storage, asked)
                )
            except PaxosBlockError as error:
                self._note(NO_ANSWER, str(error), storage)
                self._silent(storage, question, error)
            else:
                assert isinstance(answer, LastVote | RecoveryVote | Nack), "it answers this"
                step = recovery.step_towards(question, answer)
                if step is not None or asked is not question:
                    asked = step or question
                    continue
                self._inbox.put_nowait(answer)
                if not isinstance(answer, Nack):
                    return
            await asyncio.sleep(RESEND_S)

    def _time_of(self, storage: StorageId, question: NextGS | RecoveryWrite) -> float | None:
        if isinstance(question, NextGS) or storage in self.proposer.members:
            return None
        return self._timeout_s + copy_s(question.size_bytes)

    def _silent(
        self, storage: StorageId, question: NextGS | RecoveryWrite, error: PaxosBlockError
    ) -> None:
        if isinstance(question, NextGS):
            self.heard[storage] = error
        elif self.proposer.kind is not RecoveryKind.SEAL:
            self.refused.add(storage)  # P4 takes ALL, so without this target it is over
            self._inbox.put_nowait(None)

    def _take(self, answer: Answer | None) -> None:
        if answer is None:
            return
        before = self.proposer
        self._hear(before, answer)
        if before.choice is None and (choice := self.proposer.choice) is not None:
            without = f", without {', '.join(self.proposer.given_up)}"
            self._note(
                "chose",
                f"length {choice.length}, accepted in {choice.accepted_generation}"
                + (without if self.proposer.given_up else ""),
            )

    def _hear(self, before: Proposer, answer: Answer) -> None:
        match answer:
            case LastVote():
                self.proposer = recovery.on_last_vote(before, answer)
                self.heard[answer.storage] = answer
            case RecoveryVote():
                self.proposer = recovery.on_recovery_vote(before, answer)
                self.refused.discard(answer.storage)
            case Nack():
                self.proposer = recovery.on_nack(before, answer)
                self.promised = max(self.promised, answer.max_generation)
                if before.phase is Phase.WRITING:
                    self.refused.add(answer.storage)
                else:
                    self.heard[answer.storage] = answer
        event, detail = describe(answer)
        self._note(event, detail, answer.storage, logged=not isinstance(answer, Nack))

    def _note(
        self, event: str, detail: str, storage: StorageId = NOBODY, *, logged: bool = False
    ) -> None:
        block, generation = self.proposer.block, self.proposer.generation
        self._history.add(block, generation, event, storage, detail, logged=logged)
