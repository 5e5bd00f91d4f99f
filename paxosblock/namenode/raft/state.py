"""raftos' `State` of one member: the switch of its roles, and all that a role knows of the member.

A role acts on messages and on timers, and what it lets go is a `Send`. What it needs of the member
beside that is in `Server`; the member needs of a role what is in `Role`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeVar

from raftos.state import Candidate, Follower, Leader, State

from paxosblock.errors import CorruptionError, NoSpaceError, StorageError
from paxosblock.namenode.raft.contract import HardState, MemberLog, NotNowError, message_of
from paxosblock.namenode.raft.entry import Entry
from paxosblock.namenode.raft.machine import ReplicatedMachine
from paxosblock.namenode.raft.options import Options
from paxosblock.namenode.raft.raft_messages import (
    AppendEntries,
    Confirm,
    InstallSnapshot,
    Message,
    PreVote,
    PreVoteResponse,
    Received,
    Removed,
    RequestVote,
    Send,
)
from paxosblock.namenode.raft.roster import MemberLists, Roster

T = TypeVar("T")

_OF_A_LEADER: Final = (AppendEntries, InstallSnapshot, Confirm)


class Taker(Protocol):
    """Takes the pieces of a leader's table."""

    def take(self, piece: Received[InstallSnapshot]) -> None:
        """Store the piece if it is the next one."""

    def give_up(self) -> None:
        """Discard the pieces that were stored."""


class Server(Protocol):
    """The member that a role acts for, as far as roles know it (`RaftNode`)."""

    name: str
    loop: asyncio.AbstractEventLoop
    options: Options
    rng: random.Random
    hard_state: HardState
    log: MemberLog
    machine: ReplicatedMachine
    full: NoSpaceError | None
    """Set while its disk is full."""
    refusal: NoSpaceError | None
    """The answer to changes while its disk is full and no other member takes over."""
    damage: CorruptionError | None
    """Set while its table is damaged."""
    failure: StorageError | None
    """Set once it has stopped because of its disk."""

    @property
    def lists(self) -> MemberLists:
        """Return the lists of members in the log."""

    @property
    def roster(self) -> Roster:
        """Return the newest of them."""

    def list_appended(self, index: int, entry: Entry) -> None:
        """Go by the list of an entry that was appended to the log."""

    def removed(self) -> None:
        """Stop for good, as this member was removed from the list."""

    @property
    def incoming(self) -> Taker:
        """Return what takes the pieces of a leader's table."""

    @property
    def may_lead(self) -> bool:
        """True if a leader may hand over to this member."""

    def carry_out(self, send: Send) -> None:
        """Send in the order that `send` says."""

    def commit(self, index: int) -> None:
        """Apply the entries up to `index`."""

    def refuse(self, what: str) -> None:
        """Count a message that no member of this cluster sends."""

    def guarded(self, action: Callable[[], None]) -> Callable[[], None]:
        """Wrap an action of a timer, so that its errors stop the member."""

    def in_thread(self, step: Callable[[], T], then: Callable[[T | None], None]) -> None:
        """Run `step` in a thread, then call `then` with its result, or None if the disk refused."""

    def role_changed(self) -> None:
        """Let those that wait for a role look again."""

    def elected(self) -> None:
        """Count a term that this member won."""


class Role(Protocol):
    """A role, as the member knows it."""

    def start(self) -> None:
        """Begin."""

    def stop(self) -> None:
        """End it, and all that waits for it."""

    def start_election(self) -> None:
        """Ask whether an election has a chance."""

    def on_durable(self) -> None:
        """Act on further entries of the log that are durable."""

    def on_applied(self) -> None:
        """Act on further entries that are applied, or a change of the member's condition."""


class RaftState(State):
    """Switches roles and dispatches messages, as raftos' `State` does.

    Every node has a subclass of its own, because raftos keeps leader and futures on the class
    (L15).
    """

    state: Role
    storage: HardState
    log: MemberLog
    state_machine: ReplicatedMachine
    loop: asyncio.AbstractEventLoop
    id: str

    def __init__(self, server: Server, roles: Mapping[object, Callable[[RaftState], Role]]) -> None:
        """Set what raftos' constructor would, with our storage; `roles` maps its roles to ours."""
        self.server: Server = server
        self.id = server.name
        type(self).loop = server.loop
        self.storage, self.log, self.state_machine = server.hard_state, server.log, server.machine
        self.options, self.rng, self.guarded = server.options, server.rng, server.guarded
        self.commit, self.refuse, self.carry_out = server.commit, server.refuse, server.carry_out
        self._roles = roles
        self._heard_at = float("-inf")
        self._rounds = 0
        self._sent: asyncio.Future[None] = server.loop.create_future()
        self._sent.set_result(None)
        self.state = roles[Follower](self)

    @property
    def roster(self) -> Roster:
        """Return the members."""
        return self.server.roster

    @property
    def cluster(self) -> tuple[str, ...]:
        """Return the other members."""
        return self.roster.others(self.id)

    # -- dispatch -------------------------------------------------------------------------------

    def receive(self, sender: str, message: Message) -> None:
        """Act on a message; change the role *before* raftos dispatches it (L18).

        The sender need not be in the list here: the transport knows members by their lineage, and a
        leader may have been added by an entry that this member has still to get. But a member that
        the list lacks may not have been told that it was removed, and ends no leader's term.
        """
        stands = isinstance(message, RequestVote) and sender not in self.roster.voters
        if stands and (self._is_a(Leader) or self.hears_leader()):
            self.refuse(f"a request to vote for {sender}, which the list lacks")
            return
        # No member has elected the sender of a pre-vote, so its term is no reason to follow.
        if message.term > self.storage.term and not isinstance(message, PreVote):
            self.storage.update({"term": message.term})
            self._follow()
        elif message.term == self.storage.term and isinstance(message, _OF_A_LEADER):
            self._yield_to_leader(sender)
        self.request_handler(Received(sender, message))

    def _follow(self) -> None:
        if self._is_a(Follower):
            self.set_leader(None)
        else:
            self.to_follower()

    def _yield_to_leader(self, sender: str) -> None:
        assert not self._is_a(Leader), f"{sender} leads in the same term"
        if self._is_a(Candidate):
            self.to_follower()

    def _is_a(self, role: type) -> bool:
        return isinstance(self.state, role)

    def get_sender_id(self, sender: str) -> str:
        """Return the name of a sender, which raftos joins of host and port."""
        return sender

    def send(self, data: Mapping[str, object], destination: str) -> asyncio.Future[None]:
        """Send what raftos' roles write, at once; they expect a future."""
        self.carry_out(Send(destination, message_of(data)))
        return self._sent

    def broadcast(self, data: Mapping[str, object]) -> None:
        """Send what raftos' candidates write to all others."""
        self.tell_all(message_of(data))

    def tell_all(self, message: Message) -> None:
        """Send a message to all other members."""
        for peer in self.cluster:
            self.carry_out(Send(peer, message))

    # -- roles ----------------------------------------------------------------------------------

    def _change_state(self, new_state: Callable[..., object]) -> None:
        super()._change_state(self._roles[new_state])
        self.server.role_changed()

    def to_candidate(self) -> None:
        """Stand for election, unless the disk has no room for the vote.

        A member alone is elected by its own vote, which no other member answers (V7).
        """
        try:
            super().to_candidate()
        except NotNowError:
            self.to_follower()
            return
        if self.roster.is_majority((self.id,)):
            self.to_leader()

    def to_leader(self) -> None:
        self.server.elected()
        super().to_leader()

    # -- for the roles --------------------------------------------------------------------------

    def heard_leader(self) -> None:
        """Remember the time; this member supports no election soon after it."""
        self._heard_at = self.loop.time()

    def hears_leader(self) -> bool:
        """True if a leader was heard within the shortest election time-out."""
        return self.loop.time() - self._heard_at < self.options.election_min_s

    def next_round(self) -> int:
        """Number a round of pre-votes, so that late answers to an older one do not count."""
        self._rounds += 1
        return self._rounds

    @property
    def may_stand(self) -> bool:
        """True if this member is in the list, or its removal is not committed as far as it knows:
        it may be the only one that has the log of a majority. One that is yet to be added only
        listens."""
        lists = self.server.lists
        return self.id in (*lists.newest.roster.voters, *lists.committed.roster.voters)

    def answer_pre_vote(self, asked: Received[PreVote], granted: bool) -> None:
        """Tell the sender whether it has this member's support; or that it was removed."""
        committed = self.server.lists.committed
        later = committed.index >= asked.message.list_index
        if later and asked.sender not in committed.roster.voters:
            self.carry_out(Send(asked.sender, Removed(self.storage.term, committed.index)))
            return
        answer = PreVoteResponse(self.storage.term, asked.message.round, granted)
        self.carry_out(Send(asked.sender, answer))

    def known_leader(self) -> str | None:
        """Return the member believed to lead."""
        found: str | None = self.get_leader()
        return found
