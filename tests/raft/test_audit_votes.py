"""Defects of raftos 0.2.6 in elections, by their number in AUDIT.md: ours does it right."""

from __future__ import annotations

from typing import get_args

import msgspec
import pytest

from paxosblock.namenode.raft.raft_messages import (
    AnyMessage,
    AppendEntries,
    AppendEntriesResponse,
    Confirm,
    ConfirmResponse,
    InstallSnapshot,
    InstallSnapshotResponse,
    Message,
    Outdated,
    PreVote,
    PreVoteResponse,
    ReadIndex,
    ReadIndexResponse,
    Removed,
    RequestVote,
    RequestVoteResponse,
    TimeoutNow,
)
from tests.raft.rig import ELECTION_S, entry, rig


def test_v1_a_vote_survives_a_restart() -> None:
    with rig() as member:
        answer = member.ask_for_vote("n1:1", term=5)
        assert answer is not None
        assert answer.vote_granted
        member.crash()
        answer = member.ask_for_vote("n2:1", term=5)
        assert answer is not None
        assert not answer.vote_granted
        assert member.term == 5


def test_v2_a_candidate_whose_time_runs_out_keeps_its_own_vote() -> None:
    with rig() as member:
        member.become_candidate()
        term = member.term
        member.run(ELECTION_S)
        answer = member.ask_for_vote("n2:1", term=term)
        assert answer is not None
        assert not answer.vote_granted
        assert member.node.hard_state.voted_for == "n0:1"


def test_v3_the_first_request_of_a_newer_term_is_answered_with_a_vote() -> None:
    with rig() as member:
        member.ask_for_vote("n1:1", term=5)
        answer = member.ask_for_vote("n2:1", term=6)
        assert answer == RequestVoteResponse(6, True)


def test_v4_a_voter_that_says_it_twice_is_one_voter() -> None:
    with rig(5) as member:
        member.become_candidate()
        member.vote("n1:1", "n1:1", "n1:1")
        assert not member.store.is_leader()
        member.vote("n2:1")
        assert member.store.is_leader()


def test_v5_a_vote_of_an_older_term_elects_nobody() -> None:
    with rig() as member:
        member.become_candidate()
        member.run(ELECTION_S)
        member.support("n1:1")
        assert member.term == 2
        member.vote("n1:1", term=1)
        assert not member.store.is_leader()
        member.vote("n1:1", term=2)
        assert member.store.is_leader()


@pytest.mark.parametrize(("size", "majority"), [(2, 2), (3, 2), (4, 3), (5, 3)])
def test_v6_a_majority_is_more_than_half_of_all(size: int, majority: int) -> None:
    with rig(size) as member:
        member.run(ELECTION_S)
        member.support(*member.peers)
        for votes, peer in enumerate(member.peers, start=1):
            assert member.store.is_leader() is (votes >= majority)
            member.vote(peer)
        assert member.store.is_leader()


def test_v7_a_member_alone_leads_at_once_and_commits() -> None:
    with rig(1) as member:
        member.run()
        assert member.store.is_leader()
        assert member.commit().done() is False
        member.run()
        assert member.store.view().get(b"k").exists
        member.run(60.0)
        assert member.term == 1


def test_v8_a_repeated_request_is_answered_again_and_voting_resets_the_timer() -> None:
    with rig() as member:
        member.run(ELECTION_S - 0.2)
        first = member.ask_for_vote("n1:1", term=5)
        assert member.ask_for_vote("n1:1", term=5) == first
        member.clear()
        member.run(0.35)
        assert member.sent(PreVote) == []


def test_l18_a_leader_that_hears_of_a_newer_term_votes_in_it() -> None:
    with rig() as member:
        member.become_leader()
        last = member.node.log.last_log_index, member.term
        answer = member.ask_for_vote("n2:1", term=member.term + 3, last=last)
        assert answer == RequestVoteResponse(4, True)
        assert not member.store.is_leader()


def test_l19_a_candidate_tries_again_after_one_time_out() -> None:
    with rig() as member:
        member.become_candidate()
        member.clear()
        member.run(ELECTION_S)
        assert len(member.sent(PreVote)) == len(member.peers)


EVERY_MESSAGE: tuple[Message, ...] = (
    RequestVote(0, "n1:1", 0, 0),
    RequestVoteResponse(0, True),
    AppendEntries(0, "n1:1", 0, 0, 0, [], 1, 1),
    AppendEntriesResponse(0, True, 1, 1, last_log_index=0, hint=1),
    PreVote(0, 1, 0, 0),
    PreVoteResponse(0, 1, True),
    InstallSnapshot(0, "n1:1", 1, 0, 0, 0, b""),
    InstallSnapshotResponse(0, 1),
    TimeoutNow(0),
    Confirm(0, 1),
    ConfirmResponse(0, 1),
    ReadIndex(0, 1),
    ReadIndexResponse(0, 1, 0, 0),
    Outdated(0),
    Removed(0, 0),
)
OF_A_LEADER = (AppendEntries, InstallSnapshot, Confirm)


@pytest.mark.parametrize("role", ["follower", "candidate", "leader"])
@pytest.mark.parametrize("newer", [0, 1])
@pytest.mark.parametrize("message", EVERY_MESSAGE, ids=lambda message: message.type)
def test_l21_every_role_takes_every_message_of_any_term(
    message: Message, newer: int, role: str
) -> None:
    with rig() as member:
        member.append([])
        if role == "candidate":
            member.become_candidate()
        elif role == "leader":
            member.become_leader()
        assert member.store.status().role == role
        for term in (0, member.term + newer):
            member.tell("n1:1", msgspec.structs.replace(message, term=term))
        member.run(3.0)
        # A second leader in one term cannot be: then it is better to stop than to go on.
        member.may_stop = role == "leader" and newer == 0 and isinstance(message, OF_A_LEADER)
        assert (member.store.failure() is not None) is member.may_stop


def test_l21_every_message_is_tried() -> None:
    assert {type(message) for message in EVERY_MESSAGE} == set(get_args(AnyMessage))


def test_l22_a_stranger_neither_votes_nor_commits_nor_is_voted_for() -> None:
    with rig() as member:
        member.become_candidate()
        member.vote("stranger:1")
        assert not member.store.is_leader()
        member.vote("n1:1")
        pending = member.commit()
        member.acknowledge("n1:1", last_log_index=0)
        sent = member.last(AppendEntries, "n1:1")
        member.tell("stranger:1", AppendEntriesResponse(1, True, 1, sent.sequence, 2))
        assert not pending.done()
        assert member.ask_for_vote("stranger:1", term=9) is None
        assert member.term == 1
        assert member.node.counters.strangers_refused == 1, "it asked for a vote"
        pending.cancel()


def test_l22_a_member_cannot_ask_for_a_vote_in_the_name_of_another() -> None:
    with rig() as member:
        member.tell("n1:1", RequestVote(1, "n2:1", 0, 0))
        assert member.sent(RequestVoteResponse) == []
        assert member.node.hard_state.voted_for is None


def test_a_candidate_with_an_older_log_gets_no_vote() -> None:
    with rig() as member:
        member.append([entry(1), entry(2)], term=2)
        for last in ((9, 1), (1, 2)):
            answer = member.ask_for_vote("n2:1", term=member.term + 1, last=last)
            assert answer is not None
            assert not answer.vote_granted
        answer = member.ask_for_vote("n2:1", term=member.term + 1, last=(2, 2))
        assert answer is not None
        assert answer.vote_granted


def test_a_member_that_was_cut_off_disturbs_nobody_when_it_comes_back() -> None:
    with rig() as member:
        member.run(30.0)
        assert member.term == 0
        assert len(member.sent(PreVote)) > 50
        assert member.sent(RequestVote) == []


def test_while_a_leader_is_heard_no_election_is_supported() -> None:
    with rig() as member:
        member.append([])
        asked = PreVote(1, 1, last_log_index=9, last_log_term=1)
        member.tell("n2:1", asked)
        assert not member.last(PreVoteResponse).vote_granted
        member.run(0.41)
        member.tell("n2:1", asked)
        assert member.last(PreVoteResponse).vote_granted


def test_of_two_that_ask_at_once_one_supports_the_other() -> None:
    with rig() as member:
        member.append([entry(1)])
        member.run(ELECTION_S)
        member.tell("n1:1", PreVote(1, 1, last_log_index=1, last_log_term=1))
        assert member.last(PreVoteResponse).vote_granted
        member.append([entry(1), entry(1)])
        member.run(ELECTION_S)
        member.tell("n1:1", PreVote(1, 1, last_log_index=1, last_log_term=2))
        assert member.last(PreVoteResponse).vote_granted


def test_the_one_with_the_higher_address_does_not_support_the_other_while_it_asks() -> None:
    with rig(own="n9:1") as member:
        asked = PreVote(0, 1, last_log_index=0, last_log_term=0)
        member.tell("n1:1", asked)
        assert member.last(PreVoteResponse).vote_granted
        member.run(ELECTION_S)
        member.tell("n1:1", asked)
        assert not member.last(PreVoteResponse).vote_granted


def test_support_of_an_earlier_round_does_not_count() -> None:
    with rig(5) as member:
        member.run(ELECTION_S)
        member.support("n1:1")
        late = PreVoteResponse(0, member.last(PreVote).round, True)
        member.run(ELECTION_S)
        member.tell("n2:1", late)
        member.tell("n3:1", late)
        assert member.sent(RequestVote) == []


def test_the_one_who_is_handed_the_lead_stands_at_once() -> None:
    with rig() as member:
        member.append([])
        member.tell("n1:1", TimeoutNow(term=1))
        assert member.term == 2
        assert len(member.sent(RequestVote)) == 2
