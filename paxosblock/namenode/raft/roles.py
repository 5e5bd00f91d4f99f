"""Followers and candidates: raftos' own, with the rules that it lacks.

raftos has the timers, the election's bookkeeping, the requests for votes, the voting rule, and the
refusal of old terms. This module adds pre-votes, repeats answers (V8), counts voters once and in
their term (V4, V5), stores what a leader sends (L1-L3), and acknowledges only durable entries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from raftos.state import Candidate, Follower
from raftos.timer import Timer

from paxosblock.namenode.raft.contract import validate_term
from paxosblock.namenode.raft.messages import (
    AppendEntries,
    Confirm,
    ConfirmResponse,
    InstallSnapshot,
    InstallSnapshotResponse,
    Message,
    PreVote,
    PreVoteResponse,
    ReadIndex,
    ReadIndexResponse,
    RequestVote,
    RequestVoteResponse,
    TimeoutNow,
)
from paxosblock.namenode.raft.reads import FollowerReads


class _NotScheduled:
    """Stands for the timer's handle before the first start (T1)."""

    def cancel(self) -> None:
        """Do nothing, as nothing is scheduled."""


def prepare(timer: Timer, interval: Any = None, callback: Any = None) -> None:
    """Allow `stop` before `start`; replace interval and callback if they are given."""
    timer.handler = _NotScheduled()
    timer.interval = interval or timer.interval
    timer.callback = callback or timer.callback


class AnyRole:
    """Ignores messages; a role overrides the methods for those that concern it."""

    @validate_term
    def on_receive_install_snapshot(self, data: InstallSnapshot) -> None:
        """Ignore it, as only a follower takes a snapshot: a term has one leader, and raftos refuses
        messages of older terms."""

    def on_receive_pre_vote_response(self, data: PreVoteResponse) -> None:
        """Ignore it, as only a follower asks for pre-votes."""

    def on_receive_timeout_now(self, data: TimeoutNow) -> None:
        """Ignore it, as only a follower is chosen to lead."""

    @validate_term
    def on_receive_confirm(self, data: Confirm) -> None:
        """Ignore it, as only a follower can confirm its leader."""

    def on_receive_read_index_response(self, data: ReadIndexResponse) -> None:
        """Ignore it, as only a follower asks for a read index."""

    def on_applied(self) -> None:
        """Do nothing when further entries are applied, or the role has changed."""


class Elector(AnyRole):
    """The common part of followers and candidates: answering pre-votes."""

    state: Any
    storage: Any
    log: Any

    def election_interval(self) -> float:
        """Return a random time-out from the node's generator; raftos calls this for each start."""
        options = self.state.options
        chosen: float = self.state.rng.uniform(options.election_min_s, options.election_max_s)
        return chosen

    def on_receive_pre_vote(self, data: PreVote) -> None:
        """Answer whether the sender's election might succeed, which promises nothing."""
        granted = (
            not self.state.hears_leader()
            and data["term"] >= self.storage.term
            and self._up_to_date(data)
            and not self._asks_and_outranks(data)
            and not self._stands_instead(data)
        )
        self.state.answer_pre_vote(data, granted)

    def _asks_and_outranks(self, data: PreVote) -> bool:
        """False, as only a follower asks for pre-votes."""
        return False

    def _stands_instead(self, data: PreVote) -> bool:
        """True if the sender's disk is full, and this member has room, and a log as long."""
        theirs = data["last_log_term"], data["last_log_index"]
        alike = theirs == (self.log.last_log_term, self.log.last_log_index)
        return alike and data.get("full", False) and bool(self.state.server.may_lead)

    def _up_to_date(self, data: PreVote) -> bool:
        theirs: tuple[int, int] = (data["last_log_term"], data["last_log_index"])
        return theirs >= (self.log.last_log_term, self.log.last_log_index)

    def on_receive_install_snapshot_response(self, data: InstallSnapshotResponse) -> None:
        """Ignore it, as only a leader sends snapshots."""

    def on_receive_confirm_response(self, data: ConfirmResponse) -> None:
        """Ignore it, as only a leader asks members to confirm it."""

    @validate_term
    def on_receive_read_index(self, data: ReadIndex) -> None:
        """Answer that this member does not lead."""
        answer = {"type": "read_index_response", "term": self.storage.term}
        self.state.post({**answer, "number": data["number"]}, data["sender"])

    def on_durable(self) -> None:
        """Do nothing when further entries of the log are durable."""


@dataclass(frozen=True, slots=True)
class _Acknowledgement:
    """An answer to send once the entries up to `index` are durable, if the term is the same."""

    index: int
    answer: Message
    sender: Any


class RaftFollower(Elector, Follower):
    """raftos' follower."""

    def __init__(self, state: Any) -> None:
        Follower.__init__(self, state)
        prepare(self.election_timer, callback=state.guarded(self.start_election))
        self._round = 0
        self._supporters: set[str] | None = None
        self._acknowledgements: list[_Acknowledgement] = []
        self.reads = FollowerReads(state)

    def stop(self) -> None:
        """End the role and the reads that wait."""
        Follower.stop(self)
        self.reads.stop()

    # -- elections ------------------------------------------------------------------------------

    def start_election(self) -> None:
        """Ask whether an election has a chance; the timer asks again if no majority says so.

        A member whose table is damaged does not stand, as it could show nothing. One whose disk is
        full does, and says so: its reads are better than none, and members with room come first.
        """
        server = self.state.server
        self.state.set_leader(None)
        if server.damage is not None:
            return
        full = {"full": True} if server.full is not None else {}
        self._round = self.state.next_round()
        self._supporters = {self.id}
        self.state.broadcast(
            {
                "type": "pre_vote",
                "term": self.storage.term,
                "round": self._round,
                "last_log_index": self.log.last_log_index,
                "last_log_term": self.log.last_log_term,
            }
            | full
        )
        self._stand_if_supported()

    def on_receive_pre_vote_response(self, data: PreVoteResponse) -> None:
        """Stand for election once a majority would vote for this member."""
        asked = self._supporters is not None and data["round"] == self._round
        if asked and data["vote_granted"] and data["term"] <= self.storage.term:
            assert self._supporters is not None, "just checked"
            self._supporters.add(self.state.get_sender_id(data["sender"]))
            self._stand_if_supported()

    def _asks_and_outranks(self, data: PreVote) -> bool:
        """True if this member asks for pre-votes and the sender is to wait for it.

        Two members that miss the leader at once would support each other, then split the votes, and
        the cluster would wait for another time-out. So the one with the shorter log, then without
        room, then with the lower address, waits for the other.
        """
        if self._supporters is None or self.state.server.damage is not None:
            return False
        room = self.state.server.full is None
        mine = self.log.last_log_term, self.log.last_log_index, room, self.id
        sender = self.state.get_sender_id(data["sender"])
        has_room = not data.get("full", False)
        theirs = data["last_log_term"], data["last_log_index"], has_room, sender
        return mine > theirs

    def on_receive_timeout_now(self, data: TimeoutNow) -> None:
        """Stand at once, as the leader hands over, without asking whether it still lives."""
        if data["term"] == self.storage.term and self.state.server.may_lead:
            Follower.start_election(self)

    def _stand_if_supported(self) -> None:
        if self.state.server.damage is not None:
            return
        if self._supporters is not None and self.state.is_majority(len(self._supporters)):
            self._supporters = None
            Follower.start_election(self)

    @validate_term
    def on_receive_request_vote(self, data: RequestVote) -> None:
        """Vote as raftos does; repeat an answer that may have been lost (V8)."""
        candidate = data["candidate_id"]
        if candidate != self.state.get_sender_id(data["sender"]):
            self.state.refuse(f"a request to vote for {candidate} that it did not send itself")
        elif self.storage.voted_for is None:
            Follower.on_receive_request_vote(self, data)
            if self.storage.voted_for == candidate:
                self._supporters = None
                self.election_timer.reset()
        else:
            granted = self.storage.voted_for == candidate
            answer = {"type": "request_vote_response", "term": self.storage.term}
            self.state.post({**answer, "vote_granted": granted}, data["sender"])

    # -- the log --------------------------------------------------------------------------------

    @validate_term
    def on_receive_append_entries(self, data: AppendEntries) -> None:
        """Store the entries if they continue what is here, and acknowledge what is durable."""
        self._hear_leader(data)
        previous, entries = data["prev_log_index"], data["entries"]
        hint = self._hint(previous, data["prev_log_term"])
        if hint is not None:
            self._post_answer({**self._answer(data, False), "hint": hint}, data["sender"])
            return
        self._store(previous + 1, entries)
        last = previous + len(entries)
        self.state.commit(min(data["commit_index"], last))
        self.reads.commit_known()
        if entries and last > self.log.durable_index:
            pending = _Acknowledgement(last, self._answer(data, True), data["sender"])
            self._acknowledgements.append(pending)
        else:
            durable = min(last, self.log.durable_index)
            answer = {**self._answer(data, True), "last_log_index": durable}
            self._post_answer(answer, data["sender"])

    def on_durable(self) -> None:
        """Send the acknowledgements that waited for the disk."""
        durable, waiting = self.log.durable_index, self._acknowledgements
        self._acknowledgements = [each for each in waiting if each.index > durable]
        for each in waiting:
            # A newer leader may have replaced the entries, and the older one's do not count (L8).
            if each.index <= durable and each.answer["term"] == self.storage.term:
                self._post_answer({**each.answer, "last_log_index": each.index}, each.sender)

    def _post_answer(self, answer: Message, leader: Any) -> None:
        """Send `answer`, and what the leader must know of this member: that its disk is full, as
        changes would else only seem to take long, or that its table is damaged, to get another."""
        server = self.state.server
        full = {"full": True} if server.full is not None else {}
        damaged = {"damaged": server.machine.revision} if server.damage is not None else {}
        self.state.post(answer | full | damaged, leader)

    def _answer(self, data: AppendEntries, success: bool) -> Message:
        return {
            "type": "append_entries_response",
            "term": self.storage.term,
            "success": success,
            "request_id": data["request_id"],
            "sequence": data["sequence"],
        }

    def _hint(self, previous: int, term: int) -> int | None:
        """Return where the leader should continue; None if `previous` is the same entry here.

        Entries up to the base are in the table, so they are committed and the same everywhere.
        """
        if previous < self.log.base_index or self.log.term_at(previous) == term:
            return None
        if previous > self.log.last_log_index:
            hint: int = self.log.last_log_index + 1
        else:
            hint = self.log.first_index_of_term(previous)
        lowest: int = self.log.base_index + 1
        return max(hint, lowest)

    def _store(self, first: int, entries: list[Any]) -> None:
        """Append the entries that are missing; cut only at one with another term (L1-L3)."""
        for index, entry in enumerate(entries, first):
            here = self.log.term_at(index)
            if index <= self.log.base_index or here == entry.term:
                continue
            if here is not None:
                assert index > self.log.commit_index, "a committed entry is never replaced"
                self.log.cut_from(index)
            appended = self.log.append(entry)
            assert appended == index, "entries are stored without gaps"

    @validate_term
    def on_receive_confirm(self, data: Confirm) -> None:
        """Confirm that this member was still in the leader's term when it was asked."""
        answer = {"type": "confirm_response", "term": self.storage.term}
        self.state.post({**answer, "number": data["number"]}, data["sender"])

    def on_receive_read_index_response(self, data: ReadIndexResponse) -> None:
        """Release the reads that waited for this answer, if the term is still the same."""
        if data["term"] == self.storage.term:
            self.reads.answered(data)

    def on_applied(self) -> None:
        """Release the reads that waited for entries that are applied now."""
        self.reads.look()

    def _hear_leader(self, data: AppendEntries | InstallSnapshot) -> None:
        self.state.heard_leader()
        self._supporters = None
        self.state.set_leader(data["leader_id"])
        self.election_timer.reset()

    # -- snapshots ------------------------------------------------------------------------------

    @validate_term
    def on_receive_install_snapshot(self, data: InstallSnapshot) -> None:
        """Store the piece; once all have come, this member goes on from the snapshot."""
        self._hear_leader(data)
        server = self.state.server
        wanted = server.damage is not None and data["index"] > server.machine.revision
        if wanted or data["index"] > self.log.commit_index:
            self.state.incoming.take(data)
        else:
            self.state.incoming.give_up()
            self.snapshot_installed(data)

    def snapshot_installed(self, data: InstallSnapshot) -> None:
        """Tell the leader how far a snapshot, all of which is committed here, is durable."""
        self.answer_snapshot(data, {"match": min(data["index"], self.log.durable_index)})

    def answer_snapshot(self, data: InstallSnapshot, progress: Message) -> None:
        """Tell the leader how far its snapshot has come, unless the term is another by now."""
        if data["term"] == self.storage.term:
            answer = {
                "type": "install_snapshot_response",
                "term": data["term"],
                "number": data["number"],
                "request_id": data["request_id"],
            }
            self.state.post(answer | progress, data["sender"])


class RaftCandidate(Elector, Candidate):
    """raftos' candidate."""

    def __init__(self, state: Any) -> None:
        Candidate.__init__(self, state)
        prepare(self.election_timer, callback=state.guarded(self._try_again))
        self._voters: set[str] = set()

    @validate_term
    def on_receive_request_vote_response(self, data: RequestVoteResponse) -> None:
        """Let raftos count a vote, once per voter (V4) and only in this term (V5)."""
        voter = self.state.get_sender_id(data["sender"])
        in_this_term = data["term"] == self.storage.term
        if in_this_term and data.get("vote_granted") and voter not in self._voters:
            self._voters.add(voter)
            Candidate.on_receive_request_vote_response(self, data)

    def _try_again(self) -> None:
        """Ask at once whether another election has a chance, as no majority came (L19)."""
        self.state.to_follower()
        self.state.state.start_election()
