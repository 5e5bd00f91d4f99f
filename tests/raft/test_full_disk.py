"""A member whose disk is full: it promises nothing that it cannot keep, and stops for nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from paxosblock.errors import NoSpaceError, Outcome, OutcomeUnknownError, UnavailableError
from paxosblock.namenode.kv.interface import Committed
from paxosblock.namenode.raft.entry import Entry, EntryKind
from paxosblock.namenode.raft.log import ROOM_POLL_S
from paxosblock.namenode.raft.raft_messages import (
    AppendEntriesResponse,
    InstallSnapshotResponse,
    PreVote,
    PreVoteResponse,
    RequestVote,
    TimeoutNow,
)
from paxosblock.namenode.raft.store import GIVE_WAY_S
from paxosblock.namenode.raft.vote_file import FOR_VOTES_BYTES, SPARE_BYTES, STEP_BYTES
from tests.raft.rig import ELECTION_S, Rig, entry, put, rig, stream_after


def fill_leader(member: Rig) -> None:
    """Be elected; then a change finds no room here, and is committed by the others."""
    member.become_leader()
    member.disk.full = True
    write = member.commit(b"k")
    member.run()
    member.acknowledge()
    assert isinstance(write.result(), Committed)


def test_a_full_leader_commits_with_the_others_and_lets_one_of_them_lead() -> None:
    with rig() as member:
        fill_leader(member)
        assert member.store.impaired() is not None
        with pytest.raises(UnavailableError, match="another member is to lead"):
            member.wait(member.store.commit(put(b"later")))
        member.run(0.2)
        assert member.last(TimeoutNow).term == member.term
        # It cannot store the new term, but without a majority it does not lead.
        assert member.ask_for_vote("n1:1", member.term + 1, last=(9, 1)) is None
        member.run(1.0)
        assert not member.store.is_leader()
        assert member.store.failure() is None
        member.clear()
        member.tell("n1:1", TimeoutNow(term=member.term))
        assert not member.sent(RequestVote), "nobody hands over to a full member"
        member.run(3 * ELECTION_S)
        assert member.last(PreVote).full


def test_a_full_leader_that_nobody_replaces_refuses_changes_and_goes_on_with_room() -> None:
    with rig() as member:
        fill_leader(member)
        for _ in range(int(3 * GIVE_WAY_S / 0.1)):  # others answer, and do not stand
            member.run(0.1)
            member.acknowledge()
        assert member.store.is_leader()
        with pytest.raises(NoSpaceError, match="/member: No space left on device") as caught:
            member.wait(member.store.commit(put(b"refused")))
        assert caught.value.details["address"] == "n0:1"
        read = member.begin(member.store.barrier())
        member.run()
        member.confirm()
        assert read.result().get(b"k").exists
        member.disk.full = False
        for _ in range(int(3 * GIVE_WAY_S / 0.1)):
            member.run(0.1)
            member.acknowledge()
        assert member.store.impaired() is None
        write = member.commit(b"after")
        member.run()
        member.acknowledge()
        assert isinstance(write.result(), Committed)
        assert not member.node.machine.get(b"refused").exists


def test_a_member_alone_with_a_full_disk_has_nobody_to_give_way_to() -> None:
    with rig(1) as member:
        member.run()
        member.disk.full = True
        at_once = [member.commit(b"at once"), member.commit(b"behind")]
        member.run()
        for refused in at_once:
            with pytest.raises(NoSpaceError, match="n0:1 is full") as error:
                refused.result()
            assert error.value.outcome is Outcome.NEVER, "no other member has heard of it"
        with pytest.raises(NoSpaceError, match="is full"):
            member.wait(member.store.commit(put(b"refused")))
        member.wait(member.store.barrier())
        member.disk.full = False
        member.run(2 * ROOM_POLL_S)
        member.wait(member.store.commit(put(b"after")))
        member.crash()
        member.run()
        assert [key for key, _ in member.store.view().scan(b"", b"")] == [b"after"]


def test_a_full_follower_confirms_nothing_before_it_has_it_on_disk() -> None:
    with rig() as member:
        member.append([entry(1)])
        member.disk.full = True
        member.append_only([entry(1), entry(1)], previous=(1, 1))
        member.run(3 * ROOM_POLL_S)
        answers = member.sent(AppendEntriesResponse)
        assert all(answer.last_log_index <= 1 for answer in answers)
        assert member.append([], previous=(3, 1)).last_log_index == 1
        member.disk.full = False
        member.run(2 * ROOM_POLL_S)
        assert member.last(AppendEntriesResponse).last_log_index == 3
        member.crash()
        assert member.node.log.last_log_index == 3


def test_a_vote_without_room_is_not_given_and_not_half_given() -> None:
    with rig() as member:
        member.append([])
        member.disk.full = True
        assert member.ask_for_vote("n1:1", 5) is None
        assert member.term == 1
        member.crash()
        assert member.term == 1
        member.disk.full = False
        answer = member.ask_for_vote("n2:1", 5)
        assert answer is not None
        assert answer.vote_granted


def test_a_candidate_without_room_for_its_own_vote_stands_later() -> None:
    with rig() as member:
        member.disk.full = True
        member.become_candidate()
        assert not member.sent(RequestVote)
        assert member.term == 0
        member.disk.full = False
        member.clear()
        member.become_candidate()
        assert member.last(RequestVote).term == 1


def test_a_follower_without_room_for_the_leader_s_snapshot_takes_it_later() -> None:
    stream = stream_after(3)
    with rig() as member:
        member.append([])
        member.disk.full = True
        member.send_snapshot(3, stream)
        member.run(2 * ROOM_POLL_S)
        assert member.store.failure() is None
        assert not member.sent(InstallSnapshotResponse)
        member.disk.full = False
        member.send_snapshot(3, stream)
        member.run(2 * ROOM_POLL_S)
        assert member.last(InstallSnapshotResponse).match == 3


SPARE = Path("/member/spare")
LONG = entry(1, bytes(2 * STEP_BYTES))
"""Longer than what a vote without room sets free."""


def fill(member: Rig) -> None:
    """Another program takes whatever room there is."""
    member.disk.capacity_bytes = member.disk.used_bytes()


def test_a_member_whose_disk_is_full_has_room_for_votes() -> None:
    with rig() as member:
        fill(member)
        member.append_only([LONG])
        member.run()
        assert member.store.impaired() is not None
        for term in range(2, 100):
            answer = member.ask_for_vote("n1:1", term, last=(9, 9))
            assert answer is not None
            assert answer.vote_granted
        member.crash()
        assert member.term == 99
        refused = member.ask_for_vote("n2:1", 99, last=(9, 9))
        assert refused is not None
        assert not refused.vote_granted


def test_room_for_votes_lasts_while_others_are_faster_to_take_what_is_freed() -> None:
    with rig() as member:
        member.append([])
        fill(member)
        term = 1
        while member.ask_for_vote("n1:1", term + 1) is not None:
            term += 1
            fill(member)
        assert term == 1 + SPARE_BYTES // STEP_BYTES
        assert member.term == term, "the vote without room was not half given"
        assert member.store.failure() is None
        member.disk.capacity_bytes = None
        member.append_only([entry(term)], term=term)
        assert member.ask_for_vote("n1:1", term + 1, last=(9, 9)) is not None


def test_a_member_takes_the_room_for_votes_again_when_there_is_some() -> None:
    with rig() as member:
        fill(member)
        member.append_only([LONG])
        member.run()
        room_left = member.disk.files()[SPARE]
        assert len(room_left) < SPARE_BYTES
        member.disk.capacity_bytes = None
        member.run(2 * ROOM_POLL_S)
        assert len(member.disk.files()[SPARE]) == SPARE_BYTES


def test_a_member_starts_on_a_full_disk_with_the_room_it_kept() -> None:
    with rig() as member:
        member.append([entry(1)])
        fill(member)
        member.crash()
        assert member.node.log.last_log_index == 1
        answer = member.ask_for_vote("n1:1", 2, last=(9, 9))
        assert answer is not None
        assert answer.vote_granted


def test_a_full_leader_that_hears_of_a_later_term_follows_at_once() -> None:
    with rig() as member:
        member.become_leader()
        fill(member)
        member.commit(b"k")
        member.run()
        assert member.store.impaired() is not None
        assert member.ask_for_vote("n1:1", member.term + 1, last=(9, 9)) is not None
        assert not member.store.is_leader()


def fill_follower(member: Rig) -> None:
    """Follow a leader whose last change finds no room here."""
    member.append([entry(1)], commit=1)
    fill(member)
    member.append_only([LONG], previous=(1, 1), commit=1)
    member.run()
    assert member.store.impaired() is not None
    assert member.node.log.durable_index == 1


def test_full_members_elect_one_of_them_for_reads_with_the_room_that_is_kept() -> None:
    with rig() as member:
        fill_follower(member)
        member.run(2 * ELECTION_S)
        assert member.last(PreVote).full
        member.support("n1:1")
        member.vote("n1:1")
        assert member.store.is_leader()
        member.run(2 * ROOM_POLL_S / 4)  # its heartbeats are answered meanwhile
        member.acknowledge(full=True)
        member.run(ROOM_POLL_S / 2)
        member.acknowledge(full=True)
        assert member.node.log.durable_index == member.node.log.last_log_index
        assert member.node.machine.revision == member.node.log.last_log_index
        assert member.store.impaired() is not None, "there is no room for more"
        read = member.begin(member.store.barrier())
        member.run()
        member.confirm()
        assert read.result().get(b"k").exists
        with pytest.raises(NoSpaceError, match="n0:1, n1:1, n2:1 are full"):
            member.wait(member.store.commit(put(b"refused")))
        member.crash()
        assert member.term > 1
        assert member.node.log.last_log_index == 3


def test_nobody_hands_over_to_a_full_member_although_it_has_room_for_its_vote() -> None:
    with rig() as member:
        fill_follower(member)
        member.tell("n1:1", TimeoutNow(term=member.term))
        assert not member.sent(RequestVote)
        assert not member.store.is_leader()


def test_a_full_follower_has_room_for_the_first_entry_of_a_term_and_votes_after_it() -> None:
    with rig() as member:
        fill_follower(member)
        assert member.ask_for_vote("n1:1", 2, last=(9, 9)) is not None
        member.append_only([Entry(2, EntryKind.NOOP, b"")], term=2, previous=(1, 1))
        member.run(2 * ROOM_POLL_S)
        assert member.last(AppendEntriesResponse).last_log_index == 2
        assert member.last(AppendEntriesResponse).full
        member.append_only([entry(2, bytes(SPARE_BYTES))], term=2, previous=(2, 2))
        member.run(2 * ROOM_POLL_S)
        assert member.node.log.durable_index == 2, "that room is for nothing else"
        for term in range(3, 100):
            answer = member.ask_for_vote("n1:1", term, last=(9, 9))
            assert answer is not None
            assert answer.vote_granted
        member.disk.capacity_bytes = None
        member.run(2 * ROOM_POLL_S)
        assert member.store.impaired() is None
        assert len(member.disk.files()[SPARE]) == SPARE_BYTES


def test_what_a_term_begins_with_leaves_the_room_that_votes_need() -> None:
    with rig() as member:
        member.append([])
        fill(member)
        noop = Entry(1, EntryKind.NOOP, b"")
        long = entry(1, bytes(SPARE_BYTES - FOR_VOTES_BYTES))
        member.append_only([long, noop])
        member.run(4 * ROOM_POLL_S)
        assert member.node.log.durable_index == 0
        assert len(member.disk.files()[SPARE]) == SPARE_BYTES
        assert member.ask_for_vote("n1:1", 2, last=(9, 9)) is not None


def test_a_member_with_room_stands_instead_of_a_full_one_with_the_same_log() -> None:
    with rig() as member:
        member.append([entry(1)])
        member.run(0.45)  # the leader is silent
        for index, full, granted in ((1, True, False), (1, False, True), (2, True, True)):
            member.clear()
            member.tell("n1:1", PreVote(1, 1, index, 1, full=full))
            assert member.last(PreVoteResponse).vote_granted is granted
        member.run(ELECTION_S)  # it asks by now
        member.tell("n2:1", PreVote(1, 1, 1, 1, full=True))
        assert not member.last(PreVoteResponse, "n2:1").vote_granted


def test_a_follower_tells_its_leader_while_its_disk_is_full() -> None:
    with rig() as member:
        assert not member.append([entry(1)]).full
        member.disk.full = True
        member.append_only([entry(1)], previous=(1, 1))
        member.run()
        assert member.append([], previous=(2, 1)).full
        assert member.append([], previous=(9, 1)).full, "a refusal tells it, too"
        member.disk.full = False
        member.append_only([entry(1)], previous=(2, 1))
        member.run(2 * ROOM_POLL_S)
        for answer in member.sent(AppendEntriesResponse):
            assert not answer.full or answer.last_log_index < 3
        assert not member.last(AppendEntriesResponse).full


def test_a_leader_without_a_majority_with_room_refuses_at_once_and_names_who_is_full() -> None:
    with rig() as member:
        member.become_leader()
        waiting = member.commit(b"waits")
        member.run()
        known = member.node.log.last_log_index - 1
        member.acknowledge("n1:1", full=True, last_log_index=known)
        member.run(0.2)
        assert not waiting.done(), "one member may be full"
        member.acknowledge("n2:1", full=True, last_log_index=known)
        member.run(0.2)
        with pytest.raises(OutcomeUnknownError, match=r"n1:1, n2:1 are full.*may still be made"):
            waiting.result()
        with pytest.raises(NoSpaceError, match="n1:1, n2:1 are full"):
            member.wait(member.store.commit(put(b"refused")))
        read = member.begin(member.store.barrier())
        member.run()
        member.confirm()
        assert read.result() is not None
        member.acknowledge("n2:1")
        member.acknowledge("n1:1", full=True, last_log_index=known)
        write = member.commit(b"after")
        member.run()
        member.acknowledge("n2:1")
        assert isinstance(write.result(), Committed)
        machine = member.node.machine
        assert machine.get(b"waits").exists
        assert not machine.get(b"refused").exists


def test_a_full_leader_asks_those_first_that_have_room() -> None:
    with rig() as member:
        member.become_leader()
        member.acknowledge("n1:1", full=True)
        member.disk.full = True
        write = member.commit(b"k")
        member.run()
        member.acknowledge("n2:1")
        member.acknowledge("n1:1", full=True)
        assert isinstance(write.result(), Committed)
        member.run(0.3)
        assert member.sent(TimeoutNow, "n2:1")
        assert not member.sent(TimeoutNow, "n1:1")
