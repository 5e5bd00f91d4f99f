"""Linearizable reads: rounds between the members, each for all reads that wait.

A leader asks others whether they are still in its term. A follower asks the leader after which
entry it may look; the question shows that it was in the leader's term after the reads had come.
Reads that come during a round share the next one. No clock decides anything here: an answer may be
late or come twice, since an entry that was far enough once stays far enough.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from paxosblock.errors import PaxosBlockError, UnavailableError
from paxosblock.namenode.raft.contract import MemberLog
from paxosblock.namenode.raft.raft_messages import ReadIndex, ReadIndexResponse, Send
from paxosblock.namenode.raft.state import RaftState

T = TypeVar("T")

NUMBER_BITS: Final = 48
"""Questions are numbered from a random number on, so that no answer to an earlier process counts.
"""


class Asks(Protocol):
    """The part of a leader that its reads need."""

    state: RaftState
    log: MemberLog
    loop: asyncio.AbstractEventLoop
    id: str

    @property
    def leads(self) -> bool:
        """True until the leader's role has ended."""

    @property
    def may_read(self) -> bool:
        """True once the leader knows all that older leaders committed."""

    def ask_to_confirm(self, number: int, confirmed: Collection[str], every: bool) -> None:
        """Ask members that have not `confirmed` yet: as few as make a majority, or `every` one."""


@dataclass(frozen=True, slots=True)
class _Round:
    """Reads that may see the state after entry `index` once a majority has confirmed the round."""

    number: int
    index: int
    reads: list[asyncio.Future[int]]
    confirmed: set[str]


class LeaderReads:
    """The reads that wait in a leader."""

    def __init__(self, leader: Asks) -> None:
        """Begin without a read."""
        self._leader = leader
        self._waiting: list[asyncio.Future[int]] = []
        self._round: _Round | None = None
        self._number = 0
        self._begins = False

    def read(self) -> asyncio.Future[int]:
        """Return a future of the entry after which a linearizable read may look."""
        answer: asyncio.Future[int] = self._leader.loop.create_future()
        self._waiting.append(answer)
        self.begin_soon()
        return answer

    def begin_soon(self) -> None:
        """Begin a round with the reads of this turn of the loop, unless one is under way."""
        if self._waiting and self._round is None and not self._begins:
            self._begins = True
            self._leader.loop.call_soon(self._leader.state.guarded(self._begin))

    def confirmed(self, number: int, peer: str) -> None:
        """Count a member; once a majority has confirmed, the reads of the round may look."""
        asked = self._round
        if asked is not None and number == asked.number:
            asked.confirmed.add(peer)
            self._end_if_confirmed(asked)

    def ask_again(self) -> None:
        """Ask every member, as one of the few that were asked may be gone, or a message lost."""
        if self._round is not None:
            self._leader.ask_to_confirm(self._round.number, self._round.confirmed, every=True)

    def stop(self) -> None:
        """Refuse the reads that wait."""
        reads = self._waiting + (self._round.reads if self._round else [])
        self._waiting, self._round = [], None
        refuse(reads, UnavailableError("this member does not lead any more"))

    def _begin(self) -> None:
        self._begins = False
        leader = self._leader
        if leader.leads and self._waiting and self._round is None and leader.may_read:
            # Later reads wait for the next round: a member may have confirmed this one, then voted
            # for another leader, which has answered a write by the time they come.
            reads, self._waiting = self._waiting, []
            self._number += 1
            self._round = _Round(self._number, leader.log.commit_index, reads, set())
            leader.ask_to_confirm(self._number, set(), every=False)
            self._end_if_confirmed(self._round)  # a member alone is a majority

    def _end_if_confirmed(self, asked: _Round) -> None:
        if self._leader.state.roster.is_majority({self._leader.id, *asked.confirmed}):
            self._round = None
            for read in asked.reads:
                if not read.done():
                    read.set_result(asked.index)
            self.begin_soon()


@dataclass(slots=True)
class _Question:
    """Reads that wait for the leader's answer, then until entry `index` is applied here."""

    number: int
    reads: list[asyncio.Future[None]]
    asked_s: float
    index: int | None = None


class FollowerReads:
    """The reads that wait in a follower."""

    def __init__(self, state: RaftState) -> None:
        """Begin without a read."""
        self._state, self._log, self._loop = state, state.log, state.loop
        self._waiting: list[asyncio.Future[None]] = []
        self._asked: _Question | None = None
        self._answered: list[_Question] = []
        self._number = state.rng.getrandbits(NUMBER_BITS)
        self._committed = 0, 0
        """Index and term of a committed entry, which this member may not have yet."""
        self._timer: asyncio.TimerHandle | None = None

    def read(self) -> asyncio.Future[None]:
        """Return a future that is done when a linearizable read may look.

        Raises:
            UnavailableError: no leader is known. The future gets this error if for an election
                time-out the leader is silent, or this member is too far behind.
        """
        if self._state.known_leader() is None:
            raise UnavailableError("no leader is known")
        answer: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(answer)
        if len(self._waiting) == 1 and self._asked is None:
            self._loop.call_soon(self._state.guarded(self._ask_next))
        return answer

    def answered(self, said: ReadIndexResponse) -> None:
        """Take the leader's answer."""
        asked = self._asked
        if asked is None or said.number != asked.number:
            return
        self._asked = None
        if said.index is None:
            refuse(asked.reads, UnavailableError("the member that was asked does not lead"))
        else:
            asked.index = said.index
            self._answered.append(asked)
            self._committed = said.index, said.index_term
            self.commit_known()
            self.release_applied()
        self._ask_next()

    def commit_known(self) -> None:
        """Commit up to the entry that the leader said to be committed, once it is here.

        It has the same term as the leader's entry, so all entries before it are the same, too.
        """
        index, term = self._committed
        if index > self._log.commit_index and self._log.term_at(index) == term:
            self._state.commit(index)

    def release_applied(self) -> None:
        """Release the reads whose entry is applied."""
        applied = self._state.state_machine.revision
        while self._answered and (index := self._answered[0].index) is not None:
            if index > applied:
                break
            for read in self._answered.pop(0).reads:
                if not read.done():
                    read.set_result(None)

    def stop(self) -> None:
        """Refuse the reads that wait, as this member no longer follows that leader."""
        self._refuse(UnavailableError("this member does not follow that leader any more"))
        if self._timer is not None:
            self._timer.cancel()

    def _ask_next(self) -> None:
        if self._waiting and self._asked is None:
            reads, self._waiting = self._waiting, []
            self._number += 1
            self._asked = _Question(self._number, reads, self._loop.time())
            self._ask(self._asked)
            if self._timer is None:
                self._watch()

    def _ask(self, asked: _Question) -> None:
        leader = self._state.known_leader()
        if leader is not None:
            question = ReadIndex(self._state.storage.term, asked.number)
            self._state.carry_out(Send(leader, question))

    def _watch(self) -> None:
        interval_s = self._state.options.heartbeat_s
        self._timer = self._loop.call_later(interval_s, self._state.guarded(self._look_at_time))

    def _look_at_time(self) -> None:
        """Ask the present leader again; refuse the reads if they take too long."""
        self._timer = None
        first = self._answered[0] if self._answered else self._asked
        if first is None:
            return
        if self._loop.time() - first.asked_s >= self._state.options.election_min_s:
            behind = first.index is not None
            why = "this member is behind" if behind else "the leader does not answer"
            self._refuse(UnavailableError(f"{self._state.id}: {why}"))
            return
        if self._asked is not None:
            self._ask(self._asked)
        self._watch()

    def _refuse(self, error: PaxosBlockError) -> None:
        under_way = [*self._answered, *([self._asked] if self._asked is not None else [])]
        reads = [read for each in under_way for read in each.reads] + self._waiting
        self._answered, self._asked, self._waiting = [], None, []
        refuse(reads, error)


def refuse(answers: Sequence[asyncio.Future[T]], error: PaxosBlockError) -> None:
    """Give the error to the answers that are still awaited."""
    for answer in answers:
        if not answer.done():
            answer.set_exception(error)
