"""Reads that a follower answers: after which entry it may look, and when it gives up."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from paxosblock.errors import UnavailableError
from paxosblock.namenode.kv.interface import View
from paxosblock.namenode.raft.member_folder import Limits
from paxosblock.namenode.raft.raft_messages import (
    Confirm,
    PreVoteResponse,
    ReadIndex,
    ReadIndexResponse,
)
from tests.raft.rig import OPTIONS, Rig, entry, rig


def following(member: Rig, committed: int = 0) -> None:
    """Let n1:1 lead, with one entry in the log."""
    member.append([entry(1)], commit=committed)


def begin(member: Rig) -> asyncio.Task[View]:
    read = member.begin(member.store.read_barrier())
    member.run()
    return read


def test_a_follower_asks_its_leader_before_it_shows_anything() -> None:
    with rig() as member:
        following(member, committed=1)
        read = begin(member)
        assert not read.done()
        member.answer_question("n1:1", 1, 1)
        assert read.result().get(b"k").exists


def test_a_follower_waits_until_it_has_what_was_committed() -> None:
    with rig() as member:
        following(member, committed=1)
        read = begin(member)
        member.answer_question("n1:1", 2, 1)
        assert not read.done()
        member.append_only([entry(1, b"later")], previous=(1, 1), commit=1)
        assert read.result().get(b"k").value == b"later"


def test_a_follower_commits_what_its_leader_says_if_it_is_the_same_entry() -> None:
    """Else it would wait for the next heartbeat to tell it."""
    with rig() as member:
        following(member)
        read = begin(member)
        member.answer_question("n1:1", 1, 1)
        assert read.result().get(b"k").exists


def test_a_follower_does_not_commit_an_entry_of_another_term() -> None:
    with rig() as member:
        following(member)
        member.append([], term=2, leader="n2:1")
        read = begin(member)
        member.answer_question("n2:1", 1, 2)
        assert not read.done()
        assert member.node.log.commit_index == 0


def test_a_read_that_comes_while_a_question_is_under_way_waits_for_the_next_one() -> None:
    """The answer may have been on its way already."""
    with rig() as member:
        following(member, committed=1)
        first = begin(member)
        second = begin(member)
        assert len(member.sent(ReadIndex)) == 1
        member.answer_question("n1:1", 1, 1)
        assert first.done()
        assert not second.done()
        member.answer_question("n1:1", 1, 1)
        assert second.done()


def test_an_answer_to_another_process_or_of_another_term_does_not_count() -> None:
    with rig() as member:
        following(member, committed=1)
        read = begin(member)
        number = member.last(ReadIndex).number
        member.answer_question("n1:1", 1, 1, number=number - 1)
        member.answer_question("n1:1", 1, 1, term=0)
        assert not read.done()
        member.answer_question("n1:1", 1, 1)
        assert read.done()


def test_a_lost_question_is_asked_again_and_a_silent_leader_is_given_up() -> None:
    with rig() as member:
        following(member, committed=1)
        read = begin(member)
        for _ in range(3):
            member.run(member.options.heartbeat_s)
            member.append_only([], previous=(1, 1), commit=1)
            assert member.sent(ReadIndex) == []
            member.run(member.options.heartbeat_s * 0.5)
            member.clear()
            if read.done():
                break
        member.run(member.options.election_min_s)
        with pytest.raises(UnavailableError, match="does not answer"):
            read.result()


def test_a_follower_that_is_behind_for_long_says_so() -> None:
    with rig() as member:
        following(member, committed=1)
        read = begin(member)
        member.answer_question("n1:1", 9, 1)
        for _ in range(5):
            member.append_only([], previous=(1, 1), commit=1)
            member.run(member.options.heartbeat_s)
        with pytest.raises(UnavailableError, match="behind"):
            read.result()


def test_nobody_waits_in_a_member_that_knows_no_leader_or_stands_for_election() -> None:
    with rig() as member:
        nobody = begin(member)
        with pytest.raises(UnavailableError, match="no leader"):
            nobody.result()
        following(member, committed=1)
        read = begin(member)
        member.become_candidate()
        with pytest.raises(UnavailableError):
            read.result()


def test_a_member_that_does_not_lead_refuses_at_once() -> None:
    with rig() as member, rig() as other:
        asyncio.set_event_loop(other.loop)
        other.append([], leader="n2:1")
        other.clear()
        other.tell("n1:1", ReadIndex(term=1, number=7))
        refusal = other.last(ReadIndexResponse, "n1:1")
        assert refusal.index is None
        asyncio.set_event_loop(member.loop)
        following(member, committed=1)
        read = begin(member)
        number = member.last(ReadIndex).number
        member.tell("n1:1", ReadIndexResponse(term=1, number=number))
        with pytest.raises(UnavailableError, match="does not lead"):
            read.result()
        asyncio.set_event_loop(None)


def test_of_three_members_the_leader_answers_at_once() -> None:
    """With the one that asks it is a majority."""
    with rig() as member:
        member.become_leader()
        member.clear()
        member.tell("n1:1", ReadIndex(term=member.term, number=7))
        answer = member.last(ReadIndexResponse, "n1:1")
        assert (answer.number, answer.index, answer.index_term) == (7, 1, member.term)
        assert not member.sent(Confirm)


def test_of_five_members_the_leader_asks_others_first() -> None:
    with rig(5) as member:
        member.become_leader()
        member.clear()
        member.tell("n1:1", ReadIndex(term=member.term, number=7))
        assert not member.sent(ReadIndexResponse)
        member.confirm()
        assert member.last(ReadIndexResponse, "n1:1").index == 1


def test_a_follower_is_told_a_later_entry_if_that_of_its_read_was_dropped_meanwhile() -> None:
    options = replace(OPTIONS, limits=Limits(flush_bytes=1, trailing_entries=0))
    with rig(5, options) as member:
        member.become_leader()
        member.clear()
        member.tell("n1:1", ReadIndex(term=member.term, number=7))
        member.commit()
        member.acknowledge()
        member.run(0.1)
        assert member.node.log.base_index == 2, "a flush covers both entries"
        member.confirm()
        answer = member.last(ReadIndexResponse, "n1:1")
        assert (answer.index, answer.index_term) == (2, member.term)


def test_a_new_leader_answers_followers_only_after_its_first_entry_is_committed() -> None:
    with rig() as member:
        member.append([entry(1)])
        member.become_candidate()
        member.vote("n1:1")
        member.tell("n1:1", ReadIndex(term=member.term, number=7))
        assert not member.sent(ReadIndexResponse)
        member.acknowledge("n1:1", last_log_index=2)
        member.run()
        member.confirm()
        assert member.last(ReadIndexResponse, "n1:1").index == 2


def test_a_question_of_an_older_term_is_refused() -> None:
    with rig() as member:
        member.become_leader()
        member.clear()
        member.tell("n1:1", ReadIndex(term=member.term - 1, number=7))
        member.run()
        assert all(each.index is None for each in member.sent(ReadIndexResponse))


def test_followers_that_ask_a_leader_which_steps_down_get_no_answer_of_it() -> None:
    with rig(5) as member:
        member.become_leader()
        member.tell("n1:1", ReadIndex(term=member.term, number=7))
        member.tell("n2:1", PreVoteResponse(term=member.term + 1, round=1, vote_granted=False))
        member.confirm()
        assert not member.store.is_leader()
        assert not any(each.index is not None for each in member.sent(ReadIndexResponse))
