"""Followers and candidates: raftos' own, with the rules that it lacks.

raftos has the timers, the election's bookkeeping, the requests for votes, the voting rule, and the
refusal of old terms. This module adds pre-votes, repeats answers (V8), counts voters once and in
their term (V4, V5), stores what a leader sends (L1-L3), and acknowledges only durable entries.
"""

from __future__ import annotations

from collections.abc import Callable

from raftos.state import Candidate, Follower
from raftos.timer import Timer

from paxosblock.namenode.raft.contract import HardState, MemberLog, validate_term
from paxosblock.namenode.raft.entry import Entry, EntryKind
from paxosblock.namenode.raft.raft_messages import (
    AppendEntries,
    AppendEntriesResponse,
    Confirm,
    ConfirmResponse,
    InstallSnapshot,
    InstallSnapshotResponse,
    Outdated,
    PreVote,
    PreVoteResponse,
    ReadIndex,
    ReadIndexResponse,
    Received,
    Removed,
    RequestVote,
    RequestVoteResponse,
    Send,
    TimeoutNow,
)
from paxosblock.namenode.raft.reads import FollowerReads
from paxosblock.namenode.raft.state import RaftState


class _NotScheduled:
    """Stands for the timer's handle before the first start (T1)."""

    def cancel(self) -> None:
        """Do nothing, as nothing is scheduled."""


def prepare(timer: Timer, callback: Callable[[], None], interval_s: float | None = None) -> None:
    """Allow `stop` before `start`; replace the callback, and the interval if it is given."""
    timer.handler = _NotScheduled()
    timer.callback = callback
    timer.interval = interval_s or timer.interval


class AnyRole:
    """Ignores messages; a role overrides the methods for those that concern it."""

    state: RaftState
    storage: HardState
    log: MemberLog
    id: str

    def let_go(self, send: Send) -> None:
        """Send in the order that `send` says."""
        self.state.carry_out(send)

    @validate_term
    def on_receive_install_snapshot(self, asked: Received[InstallSnapshot]) -> None:
        """Ignore it, as only a follower takes a snapshot: a term has one leader, and raftos refuses
        messages of older terms."""

    def on_receive_pre_vote_response(self, found: Received[PreVoteResponse]) -> None:
        """Ignore it, as only a follower asks for pre-votes."""

    def on_receive_timeout_now(self, asked: Received[TimeoutNow]) -> None:
        """Ignore it, as only a follower is chosen to lead."""

    @validate_term
    def on_receive_confirm(self, asked: Received[Confirm]) -> None:
        """Ignore it, as only a follower can confirm its leader."""

    def on_receive_read_index_response(self, found: Received[ReadIndexResponse]) -> None:
        """Ignore it, as only a follower asks for a read index."""

    def on_receive_outdated(self, found: Received[Outdated]) -> None:
        """Do nothing more: the later term was taken over before any role saw the message."""

    def on_receive_removed(self, found: Received[Removed]) -> None:
        """Stop, if that list is later than the one that this member goes by, or is that one, which
        it did not know to be committed."""
        newest, index = self.state.server.lists.newest, found.message.list_index
        same = index == newest.index and self.id not in newest.roster.voters
        if self.state.may_stand and (same or index > newest.index):
            self.state.server.removed()

    def on_applied(self) -> None:
        """Do nothing when further entries are applied, or the role has changed."""


class Elector(AnyRole):
    """The common part of followers and candidates: answering pre-votes."""

    def election_interval(self) -> float:
        """Return a random time-out from the node's generator; raftos calls this for each start."""
        options = self.state.options
        return self.state.rng.uniform(options.election_min_s, options.election_max_s)

    def on_receive_pre_vote(self, asked: Received[PreVote]) -> None:
        """Answer whether the sender's election might succeed, which promises nothing."""
        granted = (
            not self.state.hears_leader()
            and asked.message.term >= self.storage.term
            and self._up_to_date(asked.message)
            and not self._asks_and_outranks(asked)
            and not self._stands_instead(asked.message)
        )
        self.state.answer_pre_vote(asked, granted)

    def _asks_and_outranks(self, asked: Received[PreVote]) -> bool:
        """False, as only a follower asks for pre-votes."""
        return False

    def _stands_instead(self, asked: PreVote) -> bool:
        """True if the sender's disk is full, and this member has room, and a log as long."""
        theirs = asked.last_log_term, asked.last_log_index
        alike = theirs == (self.log.last_log_term, self.log.last_log_index)
        return alike and asked.full and self.state.server.may_lead

    def _up_to_date(self, asked: PreVote) -> bool:
        theirs = asked.last_log_term, asked.last_log_index
        return theirs >= (self.log.last_log_term, self.log.last_log_index)

    def on_receive_install_snapshot_response(
        self, found: Received[InstallSnapshotResponse]
    ) -> None:
        """Ignore it, as only a leader sends snapshots."""

    def on_receive_confirm_response(self, found: Received[ConfirmResponse]) -> None:
        """Ignore it, as only a leader asks members to confirm it."""

    @validate_term
    def on_receive_read_index(self, asked: Received[ReadIndex]) -> None:
        """Answer that this member does not lead."""
        answer = ReadIndexResponse(self.storage.term, asked.message.number)
        self.let_go(Send(asked.sender, answer))

    def on_durable(self) -> None:
        """Do nothing when further entries of the log are durable."""


class RaftFollower(Elector, Follower):
    """raftos' follower."""

    def __init__(self, state: RaftState) -> None:
        Follower.__init__(self, state)
        prepare(self.election_timer, state.guarded(self.start_election))
        self._round = 0
        self._supporters: set[str] | None = None
        self.reads = FollowerReads(state)

    def stop(self) -> None:
        """End the role and the reads that wait."""
        Follower.stop(self)
        self.reads.stop()

    # -- elections ------------------------------------------------------------------------------

    def start_election(self) -> None:
        """Ask whether an election has a chance; the timer asks again if no majority says so.

        A member that is in no list yet does not stand, and one whose table is damaged does not
        either, as it could show nothing. One whose disk is
        full does, and says so: its reads are better than none, and members with room come first.
        """
        server = self.state.server
        self.state.set_leader(None)
        if server.damage is not None or not self.state.may_stand:
            return
        self._round = self.state.next_round()
        self._supporters = {self.id}
        log, full = self.log, server.full is not None
        last = log.last_log_index, log.last_log_term
        index = server.lists.newest.index
        self.state.tell_all(PreVote(self.storage.term, self._round, *last, full, index))
        self._stand_if_supported()

    def on_receive_pre_vote_response(self, found: Received[PreVoteResponse]) -> None:
        """Stand for election once a majority would vote for this member."""
        said, supporters = found.message, self._supporters
        if supporters is None or said.round != self._round:
            return
        if said.vote_granted and said.term <= self.storage.term:
            supporters.add(found.sender)
            self._stand_if_supported()

    def _asks_and_outranks(self, asked: Received[PreVote]) -> bool:
        """True if this member asks for pre-votes and the sender is to wait for it.

        Two members that miss the leader at once would support each other, then split the votes, and
        the cluster would wait for another time-out. So the one with the shorter log, then without
        room, then with the lower address, waits for the other.
        """
        server, said = self.state.server, asked.message
        if self._supporters is None or server.damage is not None:
            return False
        mine = self.log.last_log_term, self.log.last_log_index, server.full is None, self.id
        theirs = said.last_log_term, said.last_log_index, not said.full, asked.sender
        return mine > theirs

    def on_receive_timeout_now(self, asked: Received[TimeoutNow]) -> None:
        """Stand at once, as the leader hands over, without asking whether it still lives."""
        may = self.state.server.may_lead and self.state.may_stand
        if asked.message.term == self.storage.term and may:
            Follower.start_election(self)

    def _stand_if_supported(self) -> None:
        if self.state.server.damage is not None:
            return
        if self._supporters is not None and self.state.roster.is_majority(self._supporters):
            self._supporters = None
            Follower.start_election(self)

    @validate_term
    def on_receive_request_vote(self, asked: Received[RequestVote]) -> None:
        """Vote as raftos does; repeat an answer that may have been lost (V8)."""
        candidate, before = asked.message.candidate_id, self.storage.voted_for
        if candidate != asked.sender:
            self.state.refuse(f"a request to vote for {candidate} that it did not send itself")
        elif before is None:
            Follower.on_receive_request_vote(self, asked)
            if self.storage.voted_for == candidate:
                # Pre-votes that are on their way must not make it stand against this candidate.
                self._supporters = None
                self.election_timer.reset()
        else:
            answer = RequestVoteResponse(self.storage.term, before == candidate)
            self.let_go(Send(asked.sender, answer))

    # -- the log --------------------------------------------------------------------------------

    @validate_term
    def on_receive_append_entries(self, asked: Received[AppendEntries]) -> None:
        """Store the entries if they continue what is here, and acknowledge what is durable."""
        said = asked.message
        self._hear_leader(said)
        hint = self._hint(said.prev_log_index, said.prev_log_term)
        if hint is not None:
            self._answer(asked, success=False, hint=hint)
            return
        self._store(said.prev_log_index + 1, said.entries)
        last = said.prev_log_index + len(said.entries)
        # Entries behind `last` may be left from an older term, and not be those that are committed.
        self.state.commit(min(said.commit_index, last))
        self.reads.commit_known()
        # What is acknowledged is durable: entries that came are, by the time the answer leaves;
        # an empty message is answered at once, with what is durable now.
        known = last if said.entries else min(last, self.log.durable_index)
        self._answer(asked, success=True, last=known)

    def _answer(
        self, asked: Received[AppendEntries], *, success: bool, last: int = 0, hint: int = 0
    ) -> None:
        """Answer once the entries up to `last` are durable. Tell the leader, too, that the disk is
        full, as changes would else only seem to take long, and that the table is damaged, to get
        another."""
        server, said = self.state.server, asked.message
        full = server.full is not None
        damaged = server.machine.revision if server.damage is not None else None
        answer = AppendEntriesResponse(
            self.storage.term,
            success,
            said.request_id,
            said.sequence,
            last,
            hint,
            full,
            damaged,
        )
        self.let_go(Send(asked.sender, answer, after=last))

    def _hint(self, previous: int, term: int) -> int | None:
        """Return where the leader should continue; None if `previous` is the same entry here.

        Entries up to the base are in the table, so they are committed and the same everywhere.
        """
        if previous < self.log.base_index or self.log.term_at(previous) == term:
            return None
        if previous > self.log.last_log_index:
            hint = self.log.last_log_index + 1
        else:
            hint = self.log.first_index_of_term(previous)
        return max(hint, self.log.base_index + 1)

    def _store(self, first: int, entries: list[Entry]) -> None:
        """Append the entries that are missing; cut only at one with another term (L1-L3)."""
        for index, entry in enumerate(entries, first):
            here = self.log.term_at(index)
            # An old message may end here: cutting the rest could drop acknowledged entries (L2).
            if index <= self.log.base_index or here == entry.term:
                continue
            if here is not None:
                assert index > self.log.commit_index, "a committed entry is never replaced"
                self.log.cut_from(index)
                self.state.server.lists.cut_from(index)
            appended = self.log.append(entry)
            assert appended == index, "entries are stored without gaps"
            if entry.kind is EntryKind.MEMBERS:
                self.state.server.list_appended(index, entry)

    @validate_term
    def on_receive_confirm(self, asked: Received[Confirm]) -> None:
        """Confirm that this member was still in the leader's term when it was asked."""
        answer = ConfirmResponse(self.storage.term, asked.message.number)
        self.let_go(Send(asked.sender, answer))

    def on_receive_read_index_response(self, found: Received[ReadIndexResponse]) -> None:
        """Release the reads that waited for this answer, if the term is still the same."""
        if found.message.term == self.storage.term:
            self.reads.answered(found.message)

    def on_applied(self) -> None:
        """Release the reads that waited for entries that are applied now."""
        self.reads.release_applied()

    def _hear_leader(self, said: AppendEntries | InstallSnapshot) -> None:
        self.state.heard_leader()
        self._supporters = None
        self.state.set_leader(said.leader_id)
        self.election_timer.reset()

    # -- snapshots ------------------------------------------------------------------------------

    @validate_term
    def on_receive_install_snapshot(self, asked: Received[InstallSnapshot]) -> None:
        """Store the piece; once all have come, this member goes on from the snapshot."""
        self._hear_leader(asked.message)
        server, index = self.state.server, asked.message.index
        wanted = server.damage is not None and index > server.machine.revision
        if wanted or index > self.log.commit_index:
            server.incoming.take(asked)
        else:
            server.incoming.give_up()
            self.snapshot_installed(asked)

    def snapshot_installed(self, asked: Received[InstallSnapshot]) -> None:
        """Tell the leader how far a snapshot is durable; all its entries are committed here."""
        match = min(asked.message.index, self.log.durable_index)
        self.answer_snapshot(asked, asked.message.size, match)

    def answer_snapshot(
        self, asked: Received[InstallSnapshot], stored: int, match: int | None = None
    ) -> None:
        """Tell the leader how far its snapshot has come, unless the term is another by now."""
        said = asked.message
        if said.term == self.storage.term:
            answer = InstallSnapshotResponse(said.term, said.number, stored, match)
            self.let_go(Send(asked.sender, answer))


class RaftCandidate(Elector, Candidate):
    """raftos' candidate."""

    def __init__(self, state: RaftState) -> None:
        Candidate.__init__(self, state)
        prepare(self.election_timer, state.guarded(self.start_election))
        self._voters: set[str] = set()

    def start(self) -> None:
        """Ask for votes; the own one counts only if this member is in the list."""
        Candidate.start(self)
        self.vote_count = int(self.id in self.state.roster.voters)

    @validate_term
    def on_receive_request_vote_response(self, found: Received[RequestVoteResponse]) -> None:
        """Let raftos count a vote, once per voter (V4), only in this term (V5), and only of a
        member that is in the list."""
        said, voters = found.message, self.state.roster.voters
        in_this_term = said.term == self.storage.term and found.sender in voters
        if in_this_term and said.vote_granted and found.sender not in self._voters:
            self._voters.add(found.sender)
            Candidate.on_receive_request_vote_response(self, found)

    def start_election(self) -> None:
        """Ask at once whether another election has a chance, as no majority came (L19)."""
        self.state.to_follower()
        self.state.state.start_election()
