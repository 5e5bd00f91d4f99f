"""Mistakes that a developer might make in the engine, to see whether the tests would notice.

    python -m tests.raft.planted_faults [--seeds 60]

tells, for each mistake, the directed tests that fail and the first seed of the simulation that
does. `test_planted_faults.py` keeps one witness of each.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Callable, Collection, Mapping
from types import ModuleType
from typing import Any

import pytest
from msgspec.structs import replace
from raftos.state import Candidate, Follower, Leader

from paxosblock.base.checksum import crc32c
from paxosblock.journal import record_log, segment
from paxosblock.journal.durable_mark import DurableTo
from paxosblock.journal.record_log import RecordLog, RecordPosition
from paxosblock.namenode.kv.journal import Journal
from paxosblock.namenode.raft import leader
from paxosblock.namenode.raft.contract import HardState
from paxosblock.namenode.raft.leader import RaftLeader
from paxosblock.namenode.raft.log import RaftLog, _Removal
from paxosblock.namenode.raft.raft_messages import (
    AppendEntriesResponse,
    Message,
    ReadIndex,
    ReadIndexResponse,
    Received,
    RequestVoteResponse,
    Send,
)
from paxosblock.namenode.raft.raft_node import RaftNode
from paxosblock.namenode.raft.reads import FollowerReads, LeaderReads
from paxosblock.namenode.raft.roles import Elector, RaftCandidate, RaftFollower
from paxosblock.namenode.raft.roster import ListEntry, MemberLists, Roster, why_not_now
from paxosblock.namenode.raft.vote_file import ElectionVote, VoteFile
from tests.memory_table import MemoryReceiver, MemoryTable
from tests.raft import (
    test_audit_log,
    test_audit_votes,
    test_list_entries,
    test_reads,
    test_storage,
)
from tests.raft.simulation import simulate

Plant = Callable[[pytest.MonkeyPatch], None]


def changed(received: Received[Message], **fields: object) -> Received[Message]:
    """The same from the same sender, but for these fields."""
    return Received(received.sender, replace(received.message, **fields))


def votes_only_in_memory(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(VoteFile, "write", lambda self, vote: setattr(self, "vote", vote))


def followers_acknowledge_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    store = RaftFollower._store

    def hasty(self: Any, first: int, entries: list[Any]) -> None:
        store(self, first, entries)
        self.log.durable_index = self.log.last_log_index

    patch.setattr(RaftFollower, "_store", hasty)


def leaders_count_themselves_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    update = RaftLeader.update_commit_index

    def hasty(self: Any) -> None:
        self.log.durable_index = self.log.last_log_index
        update(self)

    patch.setattr(RaftLeader, "update_commit_index", hasty)


def entries_of_older_terms_are_counted(patch: pytest.MonkeyPatch) -> None:
    def update(self: Any) -> None:
        durable = sorted([*self.log.match_index.values(), self.log.durable_index])
        self.state.commit(durable[(len(durable) - 1) // 2])
        self._begin_round()

    patch.setattr(RaftLeader, "update_commit_index", update)


def half_is_a_majority(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RaftNode, "cluster_count", property(lambda self: len(self.roster.voters) - 1))

    def half(self: Roster, names: Collection[str]) -> bool:
        return 2 * sum(voter in names for voter in self.voters) >= len(self.voters)

    patch.setattr(Roster, "is_majority", half)


def reads_ask_nobody(patch: pytest.MonkeyPatch) -> None:
    """A lease by the leader's clock: it steps down when no majority answered for so long."""

    def read(self: Any) -> asyncio.Future[int]:
        answer: asyncio.Future[int] = self._leader.loop.create_future()
        answer.set_result(self._leader.log.commit_index)
        return answer

    patch.setattr(LeaderReads, "read", read)


def reads_do_not_wait_for_the_first_entry(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RaftLeader, "may_read", property(lambda self: True))


def reads_take_an_earlier_round(patch: pytest.MonkeyPatch) -> None:
    """A round that was asked before a read came says nothing of what was written since."""
    end = LeaderReads._end_if_confirmed

    def generous(self: Any, asked: Any) -> None:
        waiting, self._waiting = self._waiting, []
        asked.reads.extend(waiting)
        end(self, asked)

    patch.setattr(LeaderReads, "_end_if_confirmed", generous)


def followers_ask_nobody(patch: pytest.MonkeyPatch) -> None:
    def read(self: Any) -> asyncio.Future[None]:
        answer: asyncio.Future[None] = self._loop.create_future()
        answer.set_result(None)
        return answer

    patch.setattr(FollowerReads, "read", read)


def followers_do_not_wait_until_it_is_applied(patch: pytest.MonkeyPatch) -> None:
    answered: Any = FollowerReads.answered

    def hasty(self: Any, said: ReadIndexResponse) -> None:
        answered(self, said if said.index is None else replace(said, index=0))

    patch.setattr(FollowerReads, "answered", hasty)


def questions_are_answered_to_those_that_come_later(patch: pytest.MonkeyPatch) -> None:
    answered: Any = FollowerReads.answered

    def generous(self: Any, data: Any) -> None:
        if self._asked is not None:
            waiting, self._waiting = self._waiting, []
            self._asked.reads.extend(waiting)
        answered(self, data)

    patch.setattr(FollowerReads, "answered", generous)


def leaders_answer_questions_without_a_majority(patch: pytest.MonkeyPatch) -> None:
    """Of five members, say: leader and follower may both have been left behind by three."""

    def tell(self: Any, asked: Received[ReadIndex]) -> None:
        if asked.message.term == self.storage.term and self.may_read:
            self._tell_index(asked, self.log.commit_index)

    patch.setattr(RaftLeader, "on_receive_read_index", tell)


def followers_commit_an_entry_of_another_term(patch: pytest.MonkeyPatch) -> None:
    def commit(self: Any) -> None:
        index, _ = self._committed
        if index <= self._log.last_log_index:
            self._state.commit(index)

    patch.setattr(FollowerReads, "commit_known", commit)


def checksums_are_not_checked(patch: pytest.MonkeyPatch) -> None:
    read = segment._head

    def careless(data: bytes, offset: int, salt: bytes) -> Any:
        head = read(data, offset, salt)
        start = offset + segment.RECORD_BYTES
        return head and head._replace(crc=crc32c(data[start : start + head.size]))

    patch.setattr(segment, "_head", careless)


def votes_go_to_older_logs(patch: pytest.MonkeyPatch) -> None:
    receive: Any = Follower.on_receive_request_vote

    def careless(self: Any, data: Any) -> None:
        receive(self, changed(data, last_log_term=1 << 60))

    patch.setattr(Follower, "on_receive_request_vote", careless)
    patch.setattr(Elector, "_up_to_date", lambda self, data: True)


def followers_cut_without_a_conflict(patch: pytest.MonkeyPatch) -> None:
    def store(self: Any, first: int, entries: list[Any]) -> None:
        if self.log.base_index < first <= self.log.last_log_index:
            self.log.cut_from(first)
        for entry in entries[max(0, self.log.base_index + 1 - first) :]:
            self.log.append(entry)

    patch.setattr(RaftFollower, "_store", store)


def votes_are_counted_instead_of_voters(patch: pytest.MonkeyPatch) -> None:
    def receive(self: Any, found: Received[RequestVoteResponse]) -> None:
        if found.message.term == self.storage.term:
            Candidate.on_receive_request_vote_response(self, found)

    patch.setattr(RaftCandidate, "on_receive_request_vote_response", receive)


def votes_of_older_terms_are_counted(patch: pytest.MonkeyPatch) -> None:
    receive: Any = RaftCandidate.on_receive_request_vote_response

    def careless(self: Any, data: Any) -> None:
        receive(self, changed(data, term=self.storage.term))

    patch.setattr(RaftCandidate, "on_receive_request_vote_response", careless)


def followers_forget_their_vote(patch: pytest.MonkeyPatch) -> None:
    update = HardState.update

    def forgetful(self: Any, kwargs: Mapping[str, Any]) -> None:
        if kwargs == {"voted_for": None}:
            self._votes.vote = ElectionVote(self._votes.vote.term, None)
        else:
            update(self, kwargs)

    patch.setattr(HardState, "update", forgetful)


def followers_claim_their_whole_log(patch: pytest.MonkeyPatch) -> None:
    carry_out = RaftNode.carry_out

    def boast(self: Any, send: Send) -> None:
        message = send.message
        if isinstance(message, AppendEntriesResponse) and message.success:
            message = replace(message, last_log_index=self.log.last_log_index)
        carry_out(self, Send(send.peer, message, send.after))

    patch.setattr(RaftNode, "carry_out", boast)


def answers_of_older_terms_are_counted(patch: pytest.MonkeyPatch) -> None:
    receive: Any = RaftLeader.on_receive_append_entries_response

    def careless(self: Any, data: Any) -> None:
        receive(self, changed(data, term=self.storage.term))

    patch.setattr(RaftLeader, "on_receive_append_entries_response", careless)


def compaction_forgets_too_much(patch: pytest.MonkeyPatch) -> None:
    remove = Journal.remove_through
    patch.setattr(Journal, "remove_through", lambda self, index: remove(self, 1 << 60))


def a_snapshot_keeps_a_tail_that_does_not_match(patch: pytest.MonkeyPatch) -> None:
    reset = RaftLog.reset

    def lenient(self: RaftLog, index: int, term: int) -> None:
        if index < self.last_log_index:
            self._tail.drop_through(index)
            self._tail.base_term = term
        else:
            reset(self, index, term)

    patch.setattr(RaftLog, "reset", lenient)


def snapshots_are_adopted_before_they_are_durable(patch: pytest.MonkeyPatch) -> None:
    def install(self: MemoryReceiver) -> MemoryTable:
        return MemoryTable(self._snapshot, self._place)

    patch.setattr(MemoryReceiver, "install", install)


def entries_are_applied_while_a_table_is_installed(patch: pytest.MonkeyPatch) -> None:
    """The one that a start would find is then not the later one."""
    apply = RaftNode._apply

    def hasty(self: Any) -> None:
        self._installing = False
        apply(self)

    patch.setattr(RaftNode, "_apply", hasty)


def followers_do_not_compare_terms(patch: pytest.MonkeyPatch) -> None:
    hint = RaftFollower._hint

    def lenient(self: Any, previous: int, term: int) -> int | None:
        return None if previous <= self.log.last_log_index else hint(self, previous, term)

    patch.setattr(RaftFollower, "_hint", lenient)


def followers_commit_what_the_leader_did_not_send(patch: pytest.MonkeyPatch) -> None:
    """Entries beyond the message may be an older leader's."""
    receive: Any = RaftFollower.on_receive_append_entries

    def hasty(self: Any, data: Any) -> None:
        receive(self, data)
        self.state.commit(min(data.message.commit_index, self.log.last_log_index))

    patch.setattr(RaftFollower, "on_receive_append_entries", hasty)


def records_go_before_what_voids_them_is_durable(patch: pytest.MonkeyPatch) -> None:
    def remove(self: RaftLog, position: int) -> None:
        self._removal = _Removal(position, 0)
        self._arrived.set()

    patch.setattr(RaftLog, "_remove_through", remove)


def the_mark_is_not_asked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(record_log, "read_mark", lambda *_: None)


def the_mark_is_ahead_of_the_sync(patch: pytest.MonkeyPatch) -> None:
    append = RecordLog.append

    def hasty(self: Any, kind: int, key: int, payload: bytes = b"") -> RecordPosition:
        at = append(self, kind, key, payload)
        self._mark.move(DurableTo(self.last, self.taking.end, self.highest))
        return at

    patch.setattr(RecordLog, "append", hasty)


def lists_count_once_they_are_committed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RaftNode, "roster", property(lambda self: self.lists.committed.roster))


def lists_change_before_an_entry_of_the_term(patch: pytest.MonkeyPatch) -> None:
    def hasty(*lists: Any, **known: Any) -> str | None:
        return why_not_now(*lists, **known | {"first_of_term": 0})

    patch.setattr(leader, "why_not_now", hasty)


def two_lists_are_under_way(patch: pytest.MonkeyPatch) -> None:
    def hasty(lists: MemberLists, wanted: Roster, **known: Any) -> str | None:
        return why_not_now(MemberLists(ListEntry(0, lists.newest.roster)), wanted, **known)

    patch.setattr(leader, "why_not_now", hasty)


def whoever_learns_is_counted(patch: pytest.MonkeyPatch) -> None:
    follow = RaftLeader._follow_list

    def generous(self: Any) -> None:
        follow(self)
        self._counted = tuple(self._peers)

    patch.setattr(RaftLeader, "_follow_list", generous)


def votes_of_all_are_counted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        RaftCandidate,
        "on_receive_request_vote_response",
        Candidate.on_receive_request_vote_response,
    )


def lists_that_are_cut_stay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemberLists, "cut_from", lambda self, index: None)


def a_leader_leaves_its_callers_waiting(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RaftLeader, "stop", Leader.stop)


FAULTS: tuple[Plant, ...] = (
    votes_only_in_memory,
    followers_acknowledge_before_the_sync,
    leaders_count_themselves_before_the_sync,
    entries_of_older_terms_are_counted,
    half_is_a_majority,
    reads_ask_nobody,
    reads_do_not_wait_for_the_first_entry,
    reads_take_an_earlier_round,
    followers_ask_nobody,
    followers_do_not_wait_until_it_is_applied,
    questions_are_answered_to_those_that_come_later,
    leaders_answer_questions_without_a_majority,
    followers_commit_an_entry_of_another_term,
    checksums_are_not_checked,
    votes_go_to_older_logs,
    followers_cut_without_a_conflict,
    votes_are_counted_instead_of_voters,
    votes_of_older_terms_are_counted,
    followers_forget_their_vote,
    followers_claim_their_whole_log,
    answers_of_older_terms_are_counted,
    compaction_forgets_too_much,
    a_snapshot_keeps_a_tail_that_does_not_match,
    snapshots_are_adopted_before_they_are_durable,
    entries_are_applied_while_a_table_is_installed,
    followers_do_not_compare_terms,
    followers_commit_what_the_leader_did_not_send,
    records_go_before_what_voids_them_is_durable,
    the_mark_is_not_asked,
    the_mark_is_ahead_of_the_sync,
    a_leader_leaves_its_callers_waiting,
    lists_count_once_they_are_committed,
    lists_change_before_an_entry_of_the_term,
    two_lists_are_under_way,
    whoever_learns_is_counted,
    votes_of_all_are_counted,
    lists_that_are_cut_stay,
)

DIRECTED: tuple[ModuleType, ...] = (
    test_audit_votes,
    test_audit_log,
    test_reads,
    test_storage,
    test_list_entries,
)


def directed_tests() -> list[Callable[[], None]]:
    """Those that need no argument and no loop."""
    return [
        test
        for module in DIRECTED
        for name, test in vars(module).items()
        if name.startswith("test_")
        and not asyncio.iscoroutinefunction(test)
        and test.__code__.co_argcount == 0
    ]


def fails(test: Callable[[], None]) -> bool:
    """True if the test notices; whatever it raises, it does."""
    try:
        test()
    except (Exception, pytest.fail.Exception):
        return True
    return False


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=60)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    for plant in FAULTS:
        if options.only not in plant.__name__:
            continue
        with pytest.MonkeyPatch.context() as patch:
            plant(patch)
            tests = [test.__name__ for test in directed_tests() if fails(test)]
            seeds = range(options.seeds)
            seed = next((seed for seed in seeds if simulate(seed).violations), None)
        sys.stdout.write(f"{plant.__name__}: seed {seed}; {len(tests)} tests: {tests[:3]}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
