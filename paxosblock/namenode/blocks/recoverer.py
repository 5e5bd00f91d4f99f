"""FinalizeBlock(b), K11: ends a block by running `protocol.recovery` against its members.

One recovery per block runs in this process; calls that come meanwhile get its result. A recovery
allocates a generation of its own (K2), takes the first sufficient quorum (P2), and lets the catalog
decide (K5). Whenever something goes wrong, it reads the record again: it adopts another's decision,
or tries again with a fresh generation until the time is up. Chunks travel only between DataNodes.

When the time of a call is up, the block stays under recovery, and no client may write or read its
end. So the leader goes on with it by itself (`turn`) as soon as enough members live, with longer
and longer pauses, and at once when a reader asks for it.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from paxosblock.base.durations import Durations
from paxosblock.errors import NotFoundError, NotReadyError, PaxosBlockError
from paxosblock.namenode.background import Background
from paxosblock.namenode.blocks.history import History
from paxosblock.namenode.blocks.runner import Attempt, Heard, Runner
from paxosblock.namenode.catalog import protocol_errors
from paxosblock.namenode.catalog.catalog import Catalog
from paxosblock.namenode.catalog.kept_votes import NO_QUORUM, Grounds
from paxosblock.namenode.catalog.records import BlockEntry
from paxosblock.protocol import recovery
from paxosblock.protocol.finalize import BlockRecord, Refused
from paxosblock.protocol.messages import LastVote, Nack
from paxosblock.protocol.quorum import recovery_quorum
from paxosblock.protocol.recovery import Phase, Proposer
from paxosblock.protocol.types import (
    NO_GENERATION,
    BlockId,
    BlockState,
    Generation,
    StorageId,
)

PATIENCE_FIRST_S = 1.0
"""Seconds that the first generation of a recovery may take, as the holder of its choice may hang.
"""
BACKOFF_FIRST_S = 0.02
BACKOFF_MAX_S = 1.0
TURN_S: Final = 0.5
"""Seconds between two looks at the blocks whose recovery gave up."""
PAUSE_FIRST_S: Final = 1.0
"""Seconds until a recovery that gave up is tried again, even if a reader asks; then twice as long,
and so on."""
PAUSE_MAX_S: Final = 60.0
RETRIES_AT_ONCE: Final = 32
LOOKED_AT: Final = 1000
"""Blocks that one turn looks at."""


class Recoverer:
    """Recovers blocks, for writers that give up and for leases that expired."""

    def __init__(
        self,
        catalog: Catalog,
        runner: Runner,
        history: History,
        background: Background,
        *,
        timeout_s: float,
        finalized: Callable[[BlockRecord], None],
        lives: Callable[[StorageId], bool],
        jitter: random.Random,
    ) -> None:
        """Call `finalized` with each record that a recovery here decided, so that its members learn
        it (P5).

        `timeout_s` bounds one call of `finalize`; `lives` returns True for a storage that answers.
        """
        self._catalog = catalog
        self._runner = runner
        self._history = history
        self._background = background
        self._timeout_s = timeout_s
        self._finalized = finalized
        self._lives = lives
        self._jitter = jitter
        self._running: dict[BlockId, _RecoveryRun] = {}
        self.times = Durations()
        """Of the recoveries that have ended their block."""
        self._stuck: dict[BlockId, _Stuck] = {}
        """The blocks under recovery that could not be ended, or not by the leader before."""

    @property
    def unended(self) -> int:
        """Return the number of blocks under recovery: those that are tried now, and those that wait
        for members or for their next try."""
        return len(self._running.keys() | self._stuck.keys())

    async def finalize(self, block: BlockId, given_up: tuple[StorageId, ...] = ()) -> BlockEntry:
        """End a block; return its entry with the decided length. Safe to repeat at any time.

        `given_up` are members, not all, that an operator says will not answer (P2): the others
        end the block alone, once all of them have answered. That holds for this call only.

        Raises:
            NotFoundError: there is no such block.
            NotReadyError: no quorum of its members answered in time; the message names those that
                did.
        """
        run = self._running.get(block)
        if run is None:
            run = self._running[block] = _RecoveryRun(_now_s() + self._timeout_s, given_up)
            work = self._recover(block, run)
            run.task = self._background.start(work, f"recovery of block {block}")
            run.task.add_done_callback(lambda _: self._running.pop(block, None))
        elif given_up:
            run.give_up(given_up, _now_s() + self._timeout_s)
        assert run.task is not None, "a run has a task from the start"
        return await asyncio.shield(run.task)

    def heard(self, block: BlockId) -> dict[StorageId, Heard]:
        """Return the last answers of members of a block that is not ended."""
        run = self._running.get(block)
        if (run is None or not run.heard) and (stuck := self._stuck.get(block)) is not None:
            return stuck.heard
        return {} if run is None else run.heard

    def trouble(self, block: BlockId) -> str:
        """Return why a block under recovery is not ended yet; "" if that is not known here."""
        if (stuck := self._stuck.get(block)) is not None:
            return f"for {_now_s() - stuck.since_s:.0f} s or longer; {stuck.why}"
        if (run := self._running.get(block)) is not None:
            return f"for {_now_s() - run.began_s:.0f} s"
        return ""

    def take_up(self, block: BlockId) -> None:
        """Go on with a block that is under recovery, which a reader needs or a leader left: soon,
        however long its last pause would be.
        """
        now_s = _now_s()
        if (stuck := self._stuck.get(block)) is not None:
            stuck.due_s = min(stuck.due_s, stuck.tried_s + PAUSE_FIRST_S)
        elif block not in self._running:
            self._stuck[block] = _Stuck(now_s, now_s)

    def clear(self) -> None:
        """Forget the blocks that could not be ended; the next leader takes them up."""
        self._stuck.clear()

    async def turn(self) -> None:
        """Try again to end the blocks that are due and have enough live members to be ended."""
        now_s = _now_s()
        due = [block for block, stuck in self._stuck.items() if stuck.due_s <= now_s]
        due = [block for block in due if block not in self._running][:LOOKED_AT]
        entries = await self._catalog.block_entries(tuple(due)) if due else ()
        for block, entry in zip(due, entries, strict=True):
            stuck = self._stuck.pop(block, None)
            recovers = entry is not None and entry.record.state is BlockState.UNDER_RECOVERY
            if stuck is None or entry is None or not recovers:
                continue  # it has ended
            self._stuck[block] = stuck  # the last one from now on: others have their turn
            live = sum(map(self._lives, entry.record.members))
            if live >= recovery_quorum(len(entry.record.members)):
                if len(self._running) >= RETRIES_AT_ONCE:
                    return
                self._background.start(self.finalize(block), f"another recovery of block {block}")
                await asyncio.sleep(0)  # it is running from now on

    async def _recover(self, block: BlockId, run: _RecoveryRun) -> BlockEntry:
        try:
            entry = await self._try_until(block, run)
        except NotReadyError as error:
            stuck = self._stuck.setdefault(block, _Stuck(run.began_s, run.began_s))
            stuck.failed(run.heard, f"the last try failed: {error}")
            raise
        except NotFoundError:
            self._stuck.pop(block, None)
            raise
        self._stuck.pop(block, None)
        self.times.note(_now_s() - run.began_s)
        return entry

    async def _try_until(self, block: BlockId, run: _RecoveryRun) -> BlockEntry:
        backoff_s, patience_s = BACKOFF_FIRST_S, PATIENCE_FIRST_S
        grounds: Grounds = ()
        while True:
            given_up = run.given_up
            entry = await self._catalog.allocate_seal(
                block, forced=bool(given_up), above=run.promised, grounds=grounds
            )
            if isinstance(entry, Refused):  # it is finalized, or it is not known what became of it
                protocol_errors.check_learned(entry.record)
                return await self._catalog.get_block(block)
            if grounds:
                self._history.decided(block, grounds)
                grounds = ()
            if run.given_up != given_up:
                continue  # a forced recovery came meanwhile, and this record does not show it
            attempt = self._runner.attempt(recovery.seal(entry.record, given_up))
            proposer = await run.run(attempt, patience_s)
            if proposer.phase is Phase.DECIDED:
                decided = await self._decide(proposer)
                if decided is not None:
                    return decided
            else:
                grounds = self._history.grounds(block, proposer.generation, NO_QUORUM, "")
            if _now_s() >= run.deadline_s:
                if grounds:
                    self._background.start(self._keep(block, grounds), f"votes of block {block}")
                raise _not_recovered(proposer, run.heard, self._timeout_s)
            await asyncio.sleep(self._jitter.uniform(0, backoff_s))
            backoff_s, patience_s = min(2 * backoff_s, BACKOFF_MAX_S), 2 * patience_s

    async def _keep(self, block: BlockId, grounds: Grounds) -> None:
        """Keep the votes of a recovery that gives up, in the background: no caller waits for it."""
        await self._catalog.keep_votes(block, grounds)
        self._history.decided(block, grounds)

    async def _decide(self, proposer: Proposer) -> BlockEntry | None:
        """K5; None if another change came first."""
        choice = proposer.choice
        assert choice is not None, "what was decided was chosen"
        block, generation = proposer.block, proposer.generation
        ends_in = Generation(generation + 1)
        grounds = self._history.grounds(block, ends_in, "recovered", f"length {choice.length}")
        entry = await self._catalog.finalize_by_recovery(
            block,
            proposer.base,
            generation,
            choice.length,
            choice.size_bytes,
            grounds=grounds,
        )
        if isinstance(entry, Refused):
            self._history.add(block, generation, "recovery was overtaken")
            return None
        self._history.decided(block, grounds)
        self._finalized(entry.record)
        return entry


def _now_s() -> float:
    return asyncio.get_running_loop().time()


@dataclass(slots=True)
class _RecoveryRun:
    """The attempts of one call of `finalize`, and of the calls that joined it."""

    deadline_s: float
    given_up: tuple[StorageId, ...] = ()
    task: asyncio.Task[BlockEntry] | None = None
    began_s: float = field(default_factory=_now_s)
    _attempt: Attempt | None = None
    _before: dict[StorageId, Heard] = field(default_factory=dict)

    @property
    def heard(self) -> dict[StorageId, Heard]:
        """Return the members' answers in the last attempt, which may be short, or before it."""
        return self._before | (self._attempt.heard if self._attempt else {})

    @property
    def promised(self) -> Generation:
        """As that of the last attempt."""
        return NO_GENERATION if self._attempt is None else self._attempt.promised

    async def run(self, attempt: Attempt, patience_s: float) -> Proposer:
        """Run one more attempt, as long as `patience_s` and the deadline allow."""
        self._before = self._attempt.heard if self._attempt else {}
        self._attempt = attempt
        return await attempt.run(min(self.deadline_s, _now_s() + patience_s))

    def give_up(self, members: tuple[StorageId, ...], deadline_s: float) -> None:
        """Stop waiting for these members from the next attempt on, which begins now."""
        self.given_up, self.deadline_s = members, deadline_s
        if self._attempt is not None:
            self._attempt.stop()


@dataclass(slots=True)
class _Stuck:
    """A block under recovery to try again at `due_s`."""

    since_s: float
    due_s: float
    tried_s: float = -math.inf
    pause_s: float = PAUSE_FIRST_S
    why: str = "this NameNode has not tried to end it yet"
    heard: dict[StorageId, Heard] = field(default_factory=dict)

    def failed(self, heard: dict[StorageId, Heard], why: str) -> None:
        """Another try has failed just now."""
        self.heard, self.why = heard, why
        self.tried_s = _now_s()
        self.due_s = self.tried_s + self.pause_s
        self.pause_s = min(2 * self.pause_s, PAUSE_MAX_S)


def _not_recovered(
    proposer: Proposer, heard: dict[StorageId, Heard], timeout_s: float
) -> NotReadyError:
    """Return an error that tells the operator which members answered, and which refused and why."""
    votes = tuple(each for each in heard.values() if isinstance(each, LastVote))
    refused = ", ".join(
        f"{member} {each.reason.value}" for member, each in heard.items() if isinstance(each, Nack)
    )
    silent = ", ".join(
        member
        for member in proposer.members
        if isinstance(heard.get(member), PaxosBlockError | None)
    )
    weak = "; all of them weak" if votes and all(vote.registers.weak for vote in votes) else ""
    return NotReadyError(
        f"block {proposer.block}: not recovered in {timeout_s:g} s: promises from {len(votes)} and "
        f"votes from {len(proposer.votes)} of {len(proposer.members)} members, "
        f"{recovery_quorum(len(proposer.members))} needed{weak}"
        + (f"; unreachable: {silent}" if silent else "")
        + (f"; refused: {refused}" if refused else ""),
        block=proposer.block,
    )
