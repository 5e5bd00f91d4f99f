"""Defects of raftos 0.2.6 in the log and in replication, by their number in AUDIT.md."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from paxosblock.errors import Outcome, OutcomeUnknownError, UnavailableError
from paxosblock.namenode.kv.codec import decode_edit, encode_edit
from paxosblock.namenode.kv.interface import Committed, Edit
from paxosblock.namenode.raft import machine
from paxosblock.namenode.raft.entry import Entry, EntryKind
from paxosblock.namenode.raft.machine import ReplicatedMachine
from paxosblock.namenode.raft.member_folder import Limits
from paxosblock.namenode.raft.raft_messages import (
    AppendEntries,
    AppendEntriesResponse,
    Confirm,
    InstallSnapshot,
    InstallSnapshotResponse,
    Outdated,
    PreVote,
    RequestVote,
)
from tests.memory_table import MemoryTable
from tests.raft.rig import ELECTION_S, OPTIONS, Rig, entry, rig, stream_after, stream_of


def terms(member: Rig) -> list[int | None]:
    log = member.node.log
    return [log.term_at(index) for index in range(1, log.last_log_index + 1)]


def test_l1_a_late_heartbeat_erases_nothing() -> None:
    with rig() as member:
        member.append([entry(1), entry(1), entry(1)], commit=3)
        answer = member.append([], previous=(0, 0))
        assert answer.success
        assert terms(member) == [1, 1, 1]


def test_l2_a_repeated_message_erases_nothing() -> None:
    with rig() as member:
        member.append([entry(1)])
        member.append([entry(1), entry(1)], previous=(1, 1))
        answer = member.append([entry(1)])
        assert answer.last_log_index == 1
        assert terms(member) == [1, 1, 1]


def test_l3_a_new_leader_that_sends_again_what_is_here_erases_nothing() -> None:
    with rig() as member:
        member.append([entry(1), entry(1), entry(1)], commit=3)
        member.append([entry(1)], term=2, previous=(0, 0))
        assert terms(member) == [1, 1, 1]


def test_an_entry_of_another_term_is_replaced_with_all_that_follow_it() -> None:
    with rig() as member:
        member.append([entry(1), entry(1), entry(1)])
        answer = member.append([entry(2)], term=2, previous=(1, 1), leader="n2:1")
        assert answer.last_log_index == 2
        assert terms(member) == [1, 2]
        member.crash()
        assert terms(member) == [1, 2]


def test_l4_entries_of_an_older_term_are_committed_by_the_first_of_this_one() -> None:
    with rig() as member:
        member.append([entry(1), entry(1)])
        member.become_candidate()
        member.vote("n1:1")
        member.acknowledge("n1:1", last_log_index=2)
        assert member.node.log.commit_index == 0
        member.acknowledge("n1:1", last_log_index=3)
        assert member.node.log.commit_index == 3
        assert member.store.view().get(b"k").revision == 2


def test_l5_concurrent_writes_are_answered_each_when_it_is_committed() -> None:
    with rig() as member:
        member.become_leader()
        writes = [member.commit(b"%d" % number) for number in range(3)]
        member.run()
        assert not any(write.done() for write in writes)
        member.acknowledge("n1:1", last_log_index=3)
        assert [write.done() for write in writes] == [True, True, False]
        member.acknowledge("n1:1")
        assert [write.result() for write in writes] == [Committed(2), Committed(3), Committed(4)]


def test_l6_a_leader_that_steps_down_leaves_nobody_waiting() -> None:
    with rig() as member:
        member.become_leader()
        write = member.commit()
        read = member.begin(member.store.barrier())
        member.append([], term=member.term + 1)
        assert isinstance(write.exception(), OutcomeUnknownError)
        assert isinstance(read.exception(), UnavailableError)


def test_l6_a_leader_without_a_majority_steps_down_by_itself() -> None:
    with rig() as member:
        member.become_leader()
        write = member.commit()
        member.run(0.45)
        assert isinstance(write.exception(), OutcomeUnknownError)
        assert not member.store.is_leader()
        assert member.store.leader() is None


def test_a_write_that_takes_too_long_has_an_unknown_outcome() -> None:
    with rig(options=replace(OPTIONS, commit_timeout_s=1.0)) as member:
        member.become_leader()
        write = member.commit()
        for _ in range(12):
            member.acknowledge(last_log_index=1)
            member.run(0.1)
        error = write.exception()
        assert isinstance(error, OutcomeUnknownError)
        assert error.outcome is Outcome.UNKNOWN
        late = "not committed within 1.0 s, and may be later: not stored by n1:1, n2:1"
        assert str(error) == late
        assert member.store.is_leader()


def test_l7_an_entry_is_applied_and_answered_when_the_majority_has_it() -> None:
    with rig() as member:
        member.become_leader()
        write = member.commit()
        member.run()
        member.clear()
        member.tell("n1:1", member_answer(member, 2))
        assert write.done()
        assert member.sent(AppendEntries) == []


def member_answer(member: Rig, last_log_index: int) -> AppendEntriesResponse:
    return AppendEntriesResponse(member.term, True, 1, 999, last_log_index)


def test_l8_an_answer_of_an_older_term_commits_nothing() -> None:
    with rig() as member:
        member.become_leader()
        old = member_answer(member, 2)
        member.append([], term=member.term + 1)
        member.run(ELECTION_S)
        member.support("n1:1")
        member.vote("n1:1")
        assert member.store.is_leader()
        member.commit().add_done_callback(asyncio.Task.exception)
        member.run()
        member.tell("n1:1", old)
        assert member.node.log.commit_index == 1


def test_l8_a_follower_that_has_a_newer_leader_does_not_acknowledge_the_older_one() -> None:
    with rig() as member:
        member.loop.disk_delay = lambda: 1.0
        for term, leader in ((1, "n1:1"), (2, "n2:1")):
            member.append_only([entry(term)], term=term, leader=leader)
        member.run(5.0)
        answers = member.sent(AppendEntriesResponse)
        assert [(each.term, each.last_log_index) for each in answers] == [(2, 1)]


def test_l9_answers_that_overtake_each_other_take_nothing_back() -> None:
    with rig() as member:
        member.become_leader()
        writes = [member.commit(b"%d" % number) for number in range(3)]
        member.run()
        member.tell("n1:1", member_answer(member, 4))
        member.tell("n1:1", member_answer(member, 2))
        assert all(write.done() for write in writes)
        assert member.node.log.match_index["n1:1"] == 4
        assert member.node.log.next_index["n1:1"] == 5


def test_l10_a_refusal_of_an_older_term_is_understood() -> None:
    with rig() as member:
        member.become_leader()
        member.tell("n1:1", Outdated(member.term))
        assert member.store.is_leader()
        member.tell("n1:1", Outdated(7))
        assert (member.store.is_leader(), member.term) == (False, 7)


def test_l11_a_follower_that_lacks_entries_says_from_where_and_stays_quiet() -> None:
    with rig() as member:
        member.append([entry(1)])
        member.run(0.39)
        answer = member.append([entry(3)], term=3, previous=(500, 2))
        assert (answer.success, answer.hint) == (False, 2)
        member.clear()
        member.run(0.39)
        assert member.sent(PreVote) == []


def test_l11_a_whole_term_that_conflicts_is_skipped_at_once() -> None:
    with rig() as member:
        member.append([entry(1), *(entry(2) for _ in range(50))], term=2)
        answer = member.append([], term=4, previous=(40, 3))
        assert (answer.success, answer.hint) == (False, 2)


def test_l11_the_leader_goes_on_where_the_follower_says() -> None:
    with rig() as member:
        member.append([entry(1) for _ in range(100)])
        member.become_candidate()
        member.vote("n1:1")
        asked = member.last(AppendEntries, "n1:1")
        member.clear()
        member.tell("n1:1", AppendEntriesResponse(member.term, False, 1, asked.sequence, hint=3))
        sent = member.last(AppendEntries, "n1:1")
        assert (sent.prev_log_index, len(sent.entries)) == (2, 99)


def test_l12_a_hint_beyond_the_log_stops_nothing() -> None:
    with rig() as member:
        member.become_leader()
        asked = member.last(AppendEntries, "n1:1")
        refusal = AppendEntriesResponse(1, False, 1, asked.sequence + 7, hint=1 << 40)
        member.tell("n1:1", refusal)
        member.clear()
        member.run(0.15)
        assert {peer for peer, _ in member.wire.sent} == set(member.peers)


def test_l13_a_read_waits_for_a_majority_that_still_follows() -> None:
    with rig(5) as member:
        member.become_leader()
        read = member.begin(member.store.barrier())
        member.run()
        asked = [peer for peer in member.peers if member.sent(Confirm, peer)]
        assert len(asked) == 2, "as few as are a majority"
        member.confirm(asked[0])
        member.confirm(asked[0])
        assert not read.done(), "one member counts once"
        member.confirm(asked[1], term=member.term - 1)
        assert not read.done(), "an answer of an older term does not count"
        member.confirm(asked[1])
        assert read.done()


def test_a_follower_commits_only_what_it_knows_to_be_the_leaders() -> None:
    """Entries beyond the message may be left from an older leader."""
    with rig() as member:
        member.append([entry(1), entry(1, b"of an older leader")])
        member.append([], term=2, previous=(1, 1), commit=2, leader="n2:1")
        assert member.node.log.commit_index == 1


def test_l13_a_round_that_was_asked_before_a_read_does_not_confirm_it() -> None:
    """Its answers may have waited while others elected a leader and wrote."""
    with rig() as member:
        member.become_leader()
        first = member.begin(member.store.barrier())
        member.run()
        second = member.begin(member.store.barrier())
        member.run()
        member.confirm()
        assert first.done()
        assert not second.done()
        member.confirm()
        assert second.done()


def test_reads_that_come_together_share_a_round() -> None:
    with rig() as member:
        member.become_leader()
        reads = [member.begin(member.store.barrier()) for _ in range(10)]
        member.run()
        assert len(member.sent(Confirm)) == 1
        member.confirm()
        member.confirm()
        assert all(each.done() for each in reads)
        assert len(member.sent(Confirm)) <= 2


def test_the_next_heartbeat_asks_everyone_when_those_that_were_asked_are_silent() -> None:
    with rig() as member:
        member.become_leader()
        read = member.begin(member.store.barrier())
        member.run()
        (silent,) = (peer for peer in member.peers if member.sent(Confirm, peer))
        (other,) = (peer for peer in member.peers if peer != silent)
        member.run(member.options.heartbeat_s)
        member.confirm(other)
        assert read.done()
        member.clear()
        member.begin(member.store.barrier())
        member.run()
        assert member.sent(Confirm, other), "who was heard last is asked first"
        assert not member.sent(Confirm, silent)


def test_l13_a_new_leader_reads_only_after_its_first_entry_is_committed() -> None:
    with rig() as member:
        member.append([entry(1)])
        member.become_candidate()
        member.vote("n1:1")
        read = member.begin(member.store.barrier())
        member.run()
        member.confirm()
        member.acknowledge("n1:1", last_log_index=1)
        member.confirm()
        assert not read.done()
        member.acknowledge("n1:1", last_log_index=2)
        member.run()
        member.confirm()
        assert read.done()
        assert member.store.view().get(b"k").exists


def test_l14_everybody_who_waits_for_the_lead_is_told() -> None:
    with rig() as member:
        waiting = [member.begin(member.store.wait_leadership()) for _ in range(3)]
        member.become_leader()
        assert all(each.done() for each in waiting)


def test_l15_nodes_in_one_process_have_leaders_of_their_own() -> None:
    with rig() as one, rig() as other:
        asyncio.set_event_loop(one.loop)
        one.append([])
        assert one.store.leader() == "n1:1"
        assert other.store.leader() is None
        asyncio.set_event_loop(None)


def test_l16_rounds_without_a_majority_are_forgotten() -> None:
    with rig() as member:
        member.become_leader()
        for _ in range(200):
            member.role.heartbeat()
        assert len(member.role.response_map) < 100


def test_l17_a_message_that_comes_first_is_answered() -> None:
    with rig() as member:
        assert member.append([]).success


@pytest.mark.parametrize("size", [3, 5])
def test_n1_a_long_log_is_sent_in_batches_and_the_window_is_bounded(size: int) -> None:
    options = replace(OPTIONS, append_bytes_max=10_000, append_window=2)
    with rig(size, options) as member:
        member.append([entry(1, bytes(3000)) for _ in range(100)])
        member.become_candidate()
        member.clear()
        member.vote("n1:1", *(["n2:1"] if size == 5 else []))
        first = member.last(AppendEntries, "n1:1")
        member.clear()
        member.tell("n1:1", AppendEntriesResponse(member.term, False, 1, first.sequence, hint=1))
        batches = [each for each in member.sent(AppendEntries, "n1:1") if each.entries]
        assert [len(each.entries) for each in batches] == [3, 3]
        assert [each.prev_log_index for each in batches] == [0, 3]


def test_n1_an_entry_longer_than_a_batch_is_sent_alone() -> None:
    with rig(options=replace(OPTIONS, append_bytes_max=100)) as member:
        member.become_leader()
        member.node.log.append(entry(1, bytes(5000)))
        member.commit().cancel()
        member.run()
        sent = [each for each in member.sent(AppendEntries, "n1:1") if each.entries]
        assert [len(each.entries) for each in sent[-2:]] == [1, 1]


def test_t1_a_role_can_be_ended_before_it_began() -> None:
    with rig() as member:
        member.become_candidate()
        for role in (member.role, type(member.role)(member.node.state)):
            role.stop()
        assert member.sent(RequestVote)


def test_s3_nothing_is_acknowledged_before_it_is_durable() -> None:
    with rig() as member:
        member.loop.disk_delay = lambda: 1.0
        member.append_only([entry(1)])
        assert member.sent(AppendEntriesResponse) == []
        assert member.append([], previous=(1, 1)).last_log_index == 0
        member.run(1.5)
        assert member.last(AppendEntriesResponse).last_log_index == 1


def test_s8_after_a_restart_nobody_reads_what_is_older_than_what_was_answered() -> None:
    with rig() as member:
        member.become_leader()
        write = member.commit()
        member.acknowledge("n1:1")
        assert write.done()
        member.crash()
        assert not member.store.view().get(b"k").exists
        early = member.begin(member.store.barrier())
        assert isinstance(early.exception(), UnavailableError)
        member.become_leader()
        read = member.begin(member.store.barrier())
        member.run()
        member.confirm()
        assert read.result().get(b"k").exists


def test_a_leader_counts_itself_only_when_its_own_disk_has_the_entry() -> None:
    with rig(options=OPTIONS) as member:
        member.become_leader()
        member.loop.disk_delay = lambda: 0.2
        write = member.commit()
        member.acknowledge("n1:1")
        assert not write.done()
        member.acknowledge("n2:1")
        assert write.done()


def test_no_entries_are_kept_for_a_member_that_went_away_before_it_had_the_snapshot() -> None:
    limits = Limits(flush_bytes=1, trailing_entries=0)
    options = replace(OPTIONS, limits=limits, away_after_s=2.0)
    with rig(options=options) as member:
        log = member.node.log

        def kept_while_n1_is_silent(beats: int) -> int:
            for _ in range(beats):
                member.commit()
                member.run(options.heartbeat_s)
                member.acknowledge("n2:1")
            return log.last_log_index - log.base_index

        member.become_candidate()
        member.vote("n2:1")
        assert kept_while_n1_is_silent(40) < 5
        assert not member.sent(InstallSnapshot), "it may have been away for years"
        member.acknowledge("n1:1", last_log_index=0)
        member.run()
        first = member.last(InstallSnapshot, "n1:1")
        assert kept_while_n1_is_silent(10) > 5, "it may be slow"
        assert kept_while_n1_is_silent(40) < 5, "it went away again"
        member.acknowledge("n1:1", last_log_index=0)
        member.run()
        assert member.last(InstallSnapshot, "n1:1").index > first.index


def test_a_snapshot_replaces_a_longer_log_that_does_not_match() -> None:
    """A deposed leader's; with its tail it would vote as if it lacked what the snapshot has."""
    with rig() as member:
        member.append([entry(1)] * 6)
        member.send_snapshot(3, stream_after(3, term=2), term=3)
        member.run()
        assert member.last(InstallSnapshotResponse).match == 3
        for term in (4, 5):
            answer = member.ask_for_vote("n2:1", term, last=(9, 1))
            assert answer is None or not answer.vote_granted
            assert (member.node.log.last_log_index, member.node.log.last_log_term) == (3, 2)
            member.crash()


def test_only_who_did_not_propose_an_entry_decodes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[bytes] = []

    def decode(payload: bytes) -> Edit:
        decoded.append(payload)
        return decode_edit(payload)

    monkeypatch.setattr(machine, "decode_edit", decode)
    with rig() as member:
        member.become_leader()
        write = member.commit()
        member.acknowledge("n1:1")
        assert write.done()
        assert decoded == []
        assert member.node.machine.get(b"k").exists
    with rig() as member:
        member.append([entry(1)], commit=1)
        assert len(decoded) == 1


def test_an_entry_that_is_being_applied_when_a_snapshot_comes_is_part_of_it() -> None:
    large = Edit(puts=tuple((b"%06d" % number, b"") for number in range(5000)))
    with rig() as member:
        member.append([Entry(1, EntryKind.EDIT, encode_edit(large))])
        node = member.node
        node.commit(1)
        assert node.machine.revision == 0, "it takes several turns"
        member.send_snapshot(9, stream_after(9))
        member.run()
        assert (node.machine.revision, len(node.machine), node.failure) == (9, 0, None)
        member.append([entry(1)], previous=(9, 1), commit=10)
        assert (node.machine.revision, len(node.machine)) == (10, 1)


def test_nothing_is_applied_while_another_members_table_is_installed() -> None:
    with rig() as member:
        member.may_stop = True
        node = member.node
        member.append([entry(1)] * 5)
        member.loop.disk_delay = lambda: 0.2
        member.send_snapshot(3, stream_after(3))
        while not node._installing:
            member.run(0.05)
        member.append([], previous=(5, 1), commit=5)
        assert node.machine.revision == 0
        member.run(0.5)
        assert (node.machine.revision, node.snapshot_index, node.failure) == (5, 3, None)


def test_pieces_of_a_table_are_taken_once_in_order_and_of_the_latest_transfer() -> None:
    machine = ReplicatedMachine(MemoryTable())
    machine.apply(3, Edit(puts=((b"k", bytes(40)),)), 1)
    data = stream_of(machine)
    with rig() as member:
        member.append([])

        def offset_after(number: int, offset: int, end: int) -> int | None:
            member.clear()
            member.send_snapshot(3, data, number=number, begin=offset, end=end)
            answers = member.sent(InstallSnapshotResponse)
            assert {answer.number for answer in answers} <= {number}
            return answers[0].stored if answers else None

        assert offset_after(2, 9, 20) == 0, "it has nothing yet"
        assert offset_after(2, 0, 9) == 9
        assert offset_after(2, 0, 9) == 9, "repeated"
        assert offset_after(2, 20, 30) == 9, "one was lost"
        assert offset_after(1, 9, 20) is None, "a transfer that was given up"
        assert offset_after(2, 9, 20) == 20
        assert offset_after(3, 20, 30) == 0, "another one, whose bytes may be others"
        assert offset_after(3, 0, len(data)) == len(data)
        assert member.node.machine.revision == 3


def test_a_follower_far_behind_gets_the_snapshot_in_pieces() -> None:
    with rig(options=replace(OPTIONS, snapshot_chunk_bytes=100)) as member:
        member.become_leader()
        write = member.commit(b"k")
        member.run()
        member.acknowledge("n2:1")
        assert write.done()
        node = member.node
        node.log.compact(2, 3)
        node.log.next_index["n1:1"] = 1
        node.log.match_index["n1:1"] = 0
        member.clear()
        received, number = b"", 0
        member.run(0.15)
        while len(received) < member.last(InstallSnapshot).size:
            piece = member.last(InstallSnapshot)
            assert (piece.offset, piece.index) == (len(received), 2)
            assert len(piece.data) <= 100
            received += piece.data
            number = piece.number
            member.tell("n1:1", InstallSnapshotResponse(1, number, len(received)))
        assert received == stream_of(node.machine)
        member.tell("n1:1", InstallSnapshotResponse(1, number, len(received), match=2))
        assert node.log.match_index["n1:1"] == 2
