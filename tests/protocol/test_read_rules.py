"""R1, R2, R3, R-fin: what a reader may conclude, rule by rule."""

from __future__ import annotations

from typing import Any

import pytest

from paxosblock.protocol import read
from paxosblock.protocol.finalize import BlockRecord
from paxosblock.protocol.messages import ReadReply
from paxosblock.protocol.read import QuorumRead, ReadProgress, Version
from paxosblock.protocol.types import BlockState, ReplicaState
from tests.protocol.build import ABC, A, B, C, D, E, changed, gs, read_reply, record, size
from tests.protocol.client_moves import relaxed_length

FINALIZED = {"state": ReplicaState.FINALIZED, "finalized_generation": gs(2)}


def asked(reading: QuorumRead, *replies: ReadReply) -> QuorumRead:
    for reply in replies:
        reading = read.on_read_reply(reading, reply)
    return reading


def serves(record: BlockRecord, reply: ReadReply) -> bool:
    return read.holds(read.finalized_version(record), reply)


def done_record(**changes: Any) -> BlockRecord:
    facts = {
        "state": BlockState.FINALIZED,
        "generation": gs(2),
        "finalized_generation": gs(2),
        "length": 2,
        "size_bytes": size(2),
    }
    return record(**{**facts, **changes})


def test_r2_equal_answers_of_a_quorum_are_the_answer() -> None:
    reading = asked(read.quorum_read(record()), read_reply(A, 1), read_reply(C, 1))
    assert (reading.progress, reading.goal, reading.goal_bytes) == (ReadProgress.DONE, 1, size(1))


def test_r2_unequal_answers_wait_until_a_quorum_has_the_longest() -> None:
    reading = asked(read.quorum_read(record()), read_reply(A, 2), read_reply(B, 1))
    assert (reading.progress, reading.goal) == (ReadProgress.WAITING, 2)
    assert read.to_ask(reading) == (B, C)
    assert asked(reading, read_reply(B, 2)).progress is ReadProgress.DONE


def test_r2_does_not_chase_a_writer_that_goes_on() -> None:
    reading = asked(read.quorum_read(record()), read_reply(A, 2), read_reply(B, 1))
    later = asked(reading, read_reply(C, 9))
    assert (later.progress, later.goal) == (ReadProgress.DONE, 2)


@pytest.mark.parametrize(
    "changes",
    [
        {"max_generation": gs(1)},
        {"max_generation": gs(1), "accepted_generation": gs(1)},
        {"weak": True},
        {"state": ReplicaState.FINALIZED},
    ],
    ids=["promised", "recovered", "weak", "finalized"],
)
def test_r2_counts_only_replicas_in_the_writers_generation(changes: dict[str, Any]) -> None:
    bad = read_reply(A, 1, **changes)
    assert not read.is_good(bad, gs(0))
    reading = asked(read.quorum_read(record()), bad)
    assert (reading.answers, reading.bad) == ((), (A,))


def test_r2_goes_on_without_one_bad_member_and_starts_over_without_two() -> None:
    reading = asked(read.quorum_read(record()), read_reply(A, 1, weak=True))
    assert reading.progress is ReadProgress.WAITING
    assert read.to_ask(reading) == (B, C)
    assert asked(reading, read_reply(B, 1), read_reply(C, 1)).progress is ReadProgress.DONE
    assert asked(reading, read_reply(B, 1, weak=True)).progress is ReadProgress.STALE_RECORD


def test_k10_a_record_from_before_a_rebuild_does_not_do() -> None:
    """The old members have promised the new generation, so the record is read again."""
    promised = {"max_generation": gs(1), "accepted_generation": gs(1), "epoch": gs(1)}
    reading = asked(
        read.quorum_read(record()), read_reply(A, 2, **promised), read_reply(B, 2, **promised)
    )
    assert reading.progress is ReadProgress.STALE_RECORD
    fresh = record(generation=gs(1), writer_generation=gs(1), members=(A, B, D))
    again = asked(
        read.quorum_read(fresh), read_reply(A, 2, **promised), read_reply(B, 2, **promised)
    )
    assert (again.progress, again.goal) == (ReadProgress.DONE, 2)


def test_r2_an_answer_that_reached_the_goal_stays_when_its_member_moves_on() -> None:
    reading = asked(read.quorum_read(record()), read_reply(A, 2), read_reply(B, 1))
    moved = asked(reading, read_reply(C, 1, weak=True), read_reply(B, 2))
    assert (moved.progress, moved.goal) == (ReadProgress.DONE, 2)


def test_r2_counts_a_restarted_replica_that_has_all_its_votes() -> None:
    back = read_reply(A, 1, restarted=True)
    assert read.is_good(back, gs(0))
    assert asked(read.quorum_read(record()), back, read_reply(B, 1)).goal == 1
    assert not read.is_good(changed(back, weak=True), gs(0))


def test_r2_does_not_wait_for_a_restarted_replica_that_is_behind() -> None:
    """It takes no Write: A shows one chunk for ever, and B is at two."""
    behind = read_reply(A, 1, restarted=True)
    reading = asked(read.quorum_read(record()), behind, read_reply(B, 2))
    assert (reading.progress, reading.goal, read.to_ask(reading)) == (ReadProgress.WAITING, 2, (C,))
    assert asked(reading, read_reply(C, 2)).goal == 2
    assert asked(reading, read_reply(C, 1)).goal == 1
    assert asked(reading, read_reply(C, 2, weak=True)).progress is ReadProgress.STALE_RECORD


def test_r2_does_not_wait_for_others_to_reach_a_restarted_replica_that_is_ahead() -> None:
    """Its writer died before it wrote to B and C: no quorum has shown what A has."""
    ahead = read_reply(A, 2, restarted=True)
    reading = asked(read.quorum_read(record()), ahead, read_reply(B, 1))
    assert (reading.progress, reading.goal) == (ReadProgress.WAITING, 2)
    done = asked(reading, read_reply(C, 1))
    assert (done.progress, done.goal, done.goal_bytes) == (ReadProgress.DONE, 1, size(1))


def test_r2_waits_for_a_member_that_may_let_restarted_ones_count() -> None:
    """Four of 5 members cannot show three chunks, but with a fifth answer two will do."""
    five = record(members=(A, B, C, D, E))
    behind = [read_reply(name, at, restarted=True) for at, name in enumerate((A, B, C), start=1)]
    reading = asked(read.quorum_read(five), *behind, read_reply(D, 1, weak=True))
    assert (reading.progress, reading.goal) == (ReadProgress.WAITING, 3)
    assert read.to_ask(reading) == (E,)
    done = asked(reading, read_reply(E, 2))
    assert (done.progress, done.goal) == (ReadProgress.DONE, 2)


def test_r2_a_member_that_restarts_between_two_answers_is_not_asked_again() -> None:
    two = record(members=(A, B))
    reading = asked(read.quorum_read(two), read_reply(A, 2), read_reply(B, 1))
    assert (reading.progress, read.to_ask(reading)) == (ReadProgress.WAITING, (B,))
    back = asked(reading, read_reply(B, 1, restarted=True))
    assert back.progress is ReadProgress.STALE_RECORD


def test_r2_strangers_do_not_count() -> None:
    assert asked(read.quorum_read(record()), read_reply(D, 1)).answers == ()


def test_r1_needs_the_same_answer_of_all_and_never_returns_the_minimum() -> None:
    """The minimum may be less than an R2 read has returned before."""
    reading = asked(read.all_replica_read(record()), *(read_reply(m, 1) for m in (A, B)))
    unequal = asked(reading, read_reply(C, 0))
    assert (unequal.progress, unequal.goal) == (ReadProgress.WAITING, 1)
    assert asked(unequal, read_reply(C, 1)).progress is ReadProgress.DONE


def test_r3_returns_what_all_members_are_known_to_have_voted_for() -> None:
    reply = read_reply(A, 5, acknowledged_count=3)
    assert relaxed_length(record(), reply) == 3
    assert relaxed_length(record(), read_reply(A, 5, weak=True)) is None
    assert relaxed_length(record(), read_reply(D, 5)) is None
    assert relaxed_length(record(writer_generation=gs(1)), reply) is None


def test_r_fin_an_exact_replica_of_the_recorded_version_serves() -> None:
    exact = read_reply(A, 2, accepted_generation=gs(2), finalized_length=2, **FINALIZED)
    assert serves(done_record(), exact)


def test_r_fin_a_straggler_of_another_version_with_the_right_length_does_not_serve() -> None:
    """After a truncate and an append the same length may mean other chunks."""
    straggler = read_reply(A, 2, accepted_generation=gs(2), finalized_length=2, **FINALIZED)
    later = done_record(generation=gs(5), finalized_generation=gs(5), writer_generation=gs(4))
    assert not serves(later, straggler)


def test_r_fin_who_opened_a_block_before_a_member_left_reads_on_from_those_who_stay() -> None:
    """K13: they are told a later generation of the same chunks."""
    later = {"finalized_generation": gs(3), "accepted_generation": gs(3), "max_generation": gs(3)}
    stays = read_reply(A, 2, state=FINALIZED["state"], finalized_length=2, **later)
    assert serves(done_record(), stays)
    cut = read_reply(A, 1, state=FINALIZED["state"], finalized_length=1, **later)
    assert not serves(done_record(), cut)
    assert not serves(done_record(), changed(stays, epoch=gs(1)))
    assert not serves(done_record(), changed(stays, state=ReplicaState.RBW))


def test_r_fin_a_replica_that_an_append_reopened_still_serves_the_finalized_part() -> None:
    reopened = read_reply(
        A,
        2,
        max_generation=gs(3),
        accepted_generation=gs(3),
        epoch=gs(3),
        finalized_generation=gs(2),
        finalized_length=2,
    )
    assert serves(done_record(), reopened)


def test_r_fin_before_anybody_was_told_a_strong_member_with_enough_chunks_serves() -> None:
    assert serves(done_record(), read_reply(A, 3))
    assert not serves(done_record(), read_reply(A, 1))
    assert not serves(done_record(), read_reply(A, 3, weak=True))


def test_r_fin_who_opened_a_block_before_it_was_cut_is_told() -> None:
    """The length alone does not tell: an APPEND may have written other chunks since."""
    opened = read.finalized_version(done_record())
    cut = done_record(generation=gs(3), finalized_generation=gs(3), cut_generation=gs(3), length=1)
    assert read.version_now(opened, cut) is None
    grown = done_record(
        generation=gs(5),
        finalized_generation=gs(5),
        writer_generation=gs(4),
        cut_generation=gs(3),
    )
    assert read.version_now(opened, grown) is None
    assert read.version_now(read.finalized_version(cut), grown) == Version(gs(4), gs(5), 2)
    was_open = read.unfinalized_version(read.quorum_read(record()))
    assert read.version_now(was_open, grown) is None
    open_again = read.unfinalized_version(read.quorum_read(record(writer_generation=gs(4))))
    assert read.version_now(open_again, grown) == Version(gs(4), gs(5), 2)


def test_r_fin_who_opened_a_block_before_it_was_appended_to_and_rebuilt_finds_its_chunks() -> None:
    """The new member never had the version that the append extends, and the others forgot it."""
    opened = read.finalized_version(done_record())
    rebuilt = record(
        generation=gs(4), writer_generation=gs(4), finalized_generation=gs(2), length=2,
        base_length=3,
    )  # fmt: skip
    version = read.version_now(opened, rebuilt)
    assert version is not None
    now = read_reply(A, 3, max_generation=gs(4), accepted_generation=gs(4), epoch=gs(4))
    assert read.holds(version, now)
    assert not read.holds(opened, now)


def test_r_fin_who_opened_a_block_before_another_epoch_finds_its_chunks_there() -> None:
    opened = read.finalized_version(done_record())
    appending = record(
        generation=gs(3), writer_generation=gs(3), finalized_generation=gs(2), length=2
    )
    assert read.version_now(opened, appending) == Version(gs(3), gs(-1), 2)
    was_open = Version(gs(0), gs(-1), 2)
    rebuilt = record(generation=gs(1), writer_generation=gs(1), base_length=2)
    assert read.version_now(was_open, rebuilt) == Version(gs(1), gs(-1), 2)
    assert read.version_now(was_open, done_record()) == opened


def test_bytes_of_an_unfinalized_version_come_from_strong_replicas_of_its_epoch() -> None:
    reading = asked(read.quorum_read(record()), *(read_reply(m, 1) for m in ABC[:2]))
    version = read.unfinalized_version(reading)
    assert version == Version(gs(0), gs(-1), 1)
    assert read.holds(version, read_reply(C, 1))
    assert not read.holds(version, read_reply(C, 0))
    assert not read.holds(version, read_reply(C, 1, weak=True))
    assert not read.holds(version, read_reply(C, 1, epoch=gs(1)))
