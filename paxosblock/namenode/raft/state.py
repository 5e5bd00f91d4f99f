"""The roles of one member: raftos' `State` between our roles and the node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftos.state import Candidate, Follower, Leader, State

from paxosblock.namenode.raft.contract import NotNowError
from paxosblock.namenode.raft.leader import RaftLeader
from paxosblock.namenode.raft.messages import FIELDS, Message, PreVote
from paxosblock.namenode.raft.roles import RaftCandidate, RaftFollower

if TYPE_CHECKING:
    from paxosblock.namenode.raft.node import RaftNode

_ROLES = {Follower: RaftFollower, Candidate: RaftCandidate, Leader: RaftLeader}
_OF_A_LEADER = ("append_entries", "install_snapshot", "confirm")
_WITHOUT_A_TERM = ("pre_vote",)
"""Messages whose term is no reason to follow, as nobody has elected their sender."""


class RaftState(State):
    """Switches roles and dispatches messages, as raftos' `State` does.

    Every node has a subclass of its own, because raftos keeps leader and futures on the class
    (L15).
    """

    def __init__(self, node: RaftNode) -> None:
        """Set what raftos' constructor would, with our storage."""
        self.server = node
        self.id = self._get_id(node.host, node.port)
        type(self).loop = node.loop
        self.storage, self.log, self.state_machine = node.hard_state, node.log, node.machine
        self.options, self.rng, self.guarded = node.options, node.rng, node.guarded
        self.post, self.commit, self.refuse = node.post, node.commit, node.refuse
        self.incoming, self.in_thread = node.incoming, node.in_thread
        self._members = frozenset(self.cluster)
        self._heard_at = float("-inf")
        self._rounds = 0
        self.state = RaftFollower(self)

    # -- dispatch -------------------------------------------------------------------------------

    def request_handler(self, data: Message) -> None:
        """Drop messages that no member sends; change the role *before* raftos dispatches (L18)."""
        sender = self.get_sender_id(data["sender"])
        if sender not in self._members or data["type"] not in FIELDS:
            self.refuse(f"a message from {sender}, which is no other member")
            return
        kind, term = data["type"], data["term"]
        if term > self.storage.term and kind not in _WITHOUT_A_TERM:
            self.storage.update({"term": term})
            self._follow()
        elif term == self.storage.term and kind in _OF_A_LEADER:
            self._yield_to_leader(sender)
        super().request_handler(data)

    def _follow(self) -> None:
        if isinstance(self.state, RaftFollower):
            self.set_leader(None)
        else:
            self.to_follower()

    def _yield_to_leader(self, sender: str) -> None:
        assert not isinstance(self.state, RaftLeader), f"{sender} leads in the same term"
        if isinstance(self.state, RaftCandidate):
            self.to_follower()

    def _change_state(self, new_state: type) -> None:
        super()._change_state(_ROLES[new_state])
        self.server.role_changed()

    def to_candidate(self) -> None:
        """Stand for election, unless the disk has no room for the vote.

        A member alone is elected by its own vote, which nobody answers (V7).
        """
        try:
            super().to_candidate()
        except NotNowError:
            self.to_follower()
            return
        if self.is_majority(1):
            self.to_leader()

    def to_leader(self) -> None:
        self.server.counters.elections_won += 1
        super().to_leader()

    # -- for the roles --------------------------------------------------------------------------

    def heard_leader(self) -> None:
        """Remember the time; this member supports no election soon after it."""
        self._heard_at = self.loop.time()

    def hears_leader(self) -> bool:
        """True if a leader was heard within the shortest election time-out."""
        heard: float = self.loop.time() - self._heard_at
        return heard < self.options.election_min_s

    def next_round(self) -> int:
        """Number a round of pre-votes, so that late answers to an older one do not count."""
        self._rounds += 1
        return self._rounds

    def answer_pre_vote(self, data: PreVote, granted: bool) -> None:
        answer = {"type": "pre_vote_response", "term": self.storage.term}
        self.post({**answer, "round": data["round"], "vote_granted": granted}, data["sender"])
