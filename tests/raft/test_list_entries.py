"""One member, whose list of members changes by entries of its log."""

from __future__ import annotations

from pathlib import Path

import pytest

from paxosblock.errors import InvalidRequestError, UnavailableError
from paxosblock.namenode.kv.interface import Edit
from paxosblock.namenode.raft.entry import Entry, EntryKind
from paxosblock.namenode.raft.leader import LEARNS_FOR_S
from paxosblock.namenode.raft.machine import LIST_KEY, ReplicatedMachine
from paxosblock.namenode.raft.member_folder import write_members
from paxosblock.namenode.raft.raft_messages import (
    AppendEntries,
    PreVote,
    Removed,
    RequestVote,
    RequestVoteResponse,
)
from paxosblock.namenode.raft.roster import Roster, encode_list
from tests.memory_table import MemoryTable
from tests.raft.rig import ELECTION_S, Rig, entry, rig, stream_of

THREE = Roster(("n0:1", "n1:1", "n2:1"))
FOUR = THREE.with_one("n3:1/t")


def list_entry(term: int, roster: Roster) -> Entry:
    return Entry(term, EntryKind.MEMBERS, encode_list(roster))


def change(member: Rig, wanted: Roster) -> int:
    """Let the leader append a list; return the index of its entry."""
    member.role.change_list(wanted).add_done_callback(lambda done: done.exception())
    member.run()
    return member.node.log.last_log_index


def test_a_list_counts_as_soon_as_it_is_appended() -> None:
    with rig() as member:
        member.become_leader()
        index = change(member, FOUR)
        assert member.node.roster == FOUR
        member.acknowledge("n1:1")
        assert member.node.log.commit_index < index, "two of four are no majority"
        member.acknowledge("n2:1")
        assert member.node.log.commit_index == index
        assert member.node.machine.members is not None
        assert member.node.machine.members.roster == FOUR


def test_a_removed_member_is_counted_no_more() -> None:
    with rig(4) as member:
        member.become_leader()
        roster = member.node.roster
        index = change(member, roster.without("n3:1"))
        member.acknowledge("n3:1")
        assert member.node.log.commit_index < index, "it was removed"
        member.acknowledge("n1:1")
        assert member.node.log.commit_index == index


def test_no_list_is_changed_before_an_entry_of_the_term_is_committed() -> None:
    with rig() as member:
        member.become_candidate()
        member.vote("n1:1")
        with pytest.raises(UnavailableError, match="has only begun"):
            member.role.change_list(FOUR)
        member.acknowledge()
        change(member, FOUR)


def test_one_change_is_under_way_at_a_time() -> None:
    with rig() as member:
        member.become_leader()
        change(member, FOUR)
        with pytest.raises(UnavailableError, match="another change of the list is under way"):
            member.role.change_list(FOUR.with_one("n4:1/t"))


def test_a_leader_does_not_remove_itself() -> None:
    with rig() as member:
        member.become_leader()
        with pytest.raises(UnavailableError, match="does not remove itself"):
            member.role.change_list(THREE.without("n0:1"))


def test_what_a_learner_has_counts_nowhere() -> None:
    with rig() as member:
        member.become_leader()
        assert member.role.teach("n3:1/t") is None
        assert member.role.teach("n4:1/t") is None
        before = member.node.log.commit_index
        member.commit()
        member.run(0.15)
        member.acknowledge("n3:1/t", "n4:1/t")
        assert member.role.teach("n3:1/t") == 0
        assert member.node.log.commit_index == before
        member.acknowledge("n1:1")
        assert member.node.log.commit_index == before + 1


def test_one_that_learns_gets_nothing_more_when_that_is_not_asked_for_again() -> None:
    with rig() as member:
        member.become_leader()
        member.role.teach("n3:1/t")
        for _ in range(int(LEARNS_FOR_S / 0.2)):
            member.acknowledge("n1:1", "n2:1")
            member.run(0.25)
        member.clear()
        member.run(0.25)
        assert member.sent(AppendEntries, "n1:1")
        assert member.sent(AppendEntries, "n3:1/t") == []


def test_too_few_that_answer_would_be_left() -> None:
    with rig() as member:
        member.become_leader()
        for _ in range(60):  # n2 is silent
            member.run(0.1)
            member.acknowledge("n1:1")
        with pytest.raises(InvalidRequestError, match=r"nothing was changed: too few .*: n2:1"):
            member.wait(member.store.change_list(THREE.without("n1:1")))
        assert member.node.roster == THREE


def test_votes_of_those_that_the_list_lacks_elect_nobody() -> None:
    with rig() as member:
        member.become_candidate()
        member.vote("n3:1/t")
        assert not member.store.is_leader()
        member.vote("n1:1")
        assert member.store.is_leader()


def test_a_list_that_is_cut_counts_no_more() -> None:
    with rig() as member:
        member.append([entry(1), list_entry(1, FOUR)], term=1)
        assert member.node.roster == FOUR
        member.append([entry(2)], term=2, previous=(1, 1), leader="n2:1")
        assert member.node.roster == THREE


def test_a_list_survives_a_restart_and_comes_with_a_table() -> None:
    with rig() as member:
        member.append([list_entry(1, FOUR)], term=1)
        member.crash()
        assert member.node.roster == FOUR
        machine = ReplicatedMachine(MemoryTable())
        for index in range(1, 6):
            machine.apply(index, Edit(), 1)
        five = FOUR.with_one("n4:1/t")
        machine.apply_whole(6, list_entry(1, five))
        stream = stream_of(machine)
        member.send_snapshot(6, stream, term=1)
        member.run(0.2)
        assert member.node.roster == five
        assert member.store.view().get(LIST_KEY).exists
        member.crash()
        assert member.node.roster == five


def test_one_that_no_list_has_stands_for_no_election() -> None:
    with rig() as member:
        write_members(member.disk, Path("/member"), ("n1:1", "n2:1"))
        member.crash()
        member.append([entry(1)], term=1)
        member.clear()
        member.run(4 * ELECTION_S)
        assert member.sent(PreVote) == []


def test_one_whose_removal_is_not_committed_may_be_elected_by_the_others() -> None:
    """It may be the only one left that has the log of a majority."""
    with rig(4) as member:
        left = member.node.roster.without("n0:1")
        member.append([entry(1), list_entry(1, left)], term=1)
        member.run(ELECTION_S)
        member.support("n1:1", "n2:1")
        member.vote("n1:1")
        assert not member.store.is_leader(), "its own vote does not count"
        member.vote("n2:1")
        assert member.store.is_leader()
        member.acknowledge("n1:1")
        assert member.node.log.commit_index == 0, "what it has itself does not count"
        member.acknowledge("n2:1")
        assert member.node.left.is_set()


def test_one_that_the_list_lacks_ends_no_term_while_a_leader_is_heard() -> None:
    with rig() as member:
        member.append([entry(1)], term=1)
        assert member.ask_for_vote("n9:1", term=7, last=(9, 6)) is None
        assert member.term == 1
        member.run(2 * ELECTION_S)
        assert member.ask_for_vote("n9:1", term=7, last=(9, 6)) == RequestVoteResponse(7, True)


def test_a_leader_is_deposed_by_none_that_its_list_lacks() -> None:
    with rig() as member:
        member.become_leader()
        term = member.term
        member.tell("n9:1", RequestVote(term + 5, "n9:1", 9, 9))
        assert member.store.is_leader()
        assert member.term == term


def test_a_member_stops_once_its_removal_is_committed() -> None:
    with rig() as member:
        entries = [entry(1), list_entry(1, Roster(("n1:1", "n2:1")))]
        member.append(entries, term=1)
        assert not member.node.left.is_set()
        member.append([], term=1, previous=(2, 1), commit=2)
        member.wait(member.store.wait_removed())
        assert member.node.role is None


def test_one_that_was_away_is_told_that_it_was_removed() -> None:
    with rig() as member:
        member.append([list_entry(1, THREE.without("n2:1"))], term=1, commit=1)
        member.tell("n2:1", PreVote(1, 1, 0, 0, False, 0))
        assert member.last(Removed, "n2:1") == Removed(1, 1)
    with rig() as other:
        other.tell("n1:1", Removed(1, 1))
        assert other.node.left.is_set()


def test_one_that_is_in_a_later_list_is_not_told_so() -> None:
    with rig() as member:
        member.append([list_entry(1, THREE.without("n2:1"))], term=1, commit=1)
        member.clear()
        member.tell("n3:1/t", PreVote(1, 1, 2, 1, False, 2))
        assert member.sent(Removed) == []
    with rig() as other:
        other.append([entry(1), list_entry(1, FOUR)], term=1)
        other.tell("n1:1", Removed(1, 1))
        assert not other.node.left.is_set()
