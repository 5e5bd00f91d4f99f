"""D1-D8: what a DataNode answers, rule by rule."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from paxosblock.protocol.chunk_log import ChunkLog
from paxosblock.protocol.effects import (
    AdoptLog,
    AppendChunk,
    DropReplica,
    StoreMetadata,
    SyncChunks,
)
from paxosblock.protocol.invariants import InvariantError
from paxosblock.protocol.messages import (
    Create,
    Created,
    Delete,
    Deleted,
    Finalized,
    LastVote,
    Nack,
    Read,
    ReadReply,
    RecoveryVote,
    Reply,
    Short,
    Vote,
)
from paxosblock.protocol.register import Replica, answer, heals, restarted, wanted
from paxosblock.protocol.types import LEAP_MAX, Durability, Reason, Registers, ReplicaState
from tests.protocol.build import (
    ABC,
    BLOCK,
    DISK,
    MEMORY,
    A,
    C,
    D,
    chunk,
    chunks,
    finalize_of,
    finalized,
    gs,
    next_gs,
    recovery_write,
    replica,
    size,
    write_of,
)

CREATE = Create(BLOCK, 1, DISK)


def reason(reply: Reply) -> Reason:
    assert isinstance(reply, Nack)
    return reply.reason


def test_d1_create_makes_an_empty_replica_durably_before_created() -> None:
    step = answer(A, None, CREATE)
    assert step.replica == replica(0)
    assert step.effect == StoreMetadata()
    assert step.reply == Created(BLOCK, A)


def test_d1_a_repeated_create_is_answered_again_and_changes_nothing() -> None:
    assert answer(A, replica(1), CREATE) == answer(A, replica(1), CREATE)
    assert answer(A, replica(1), CREATE).replica == replica(1)
    assert answer(A, replica(1), CREATE).effect is None


def test_d1_create_is_refused_once_a_recovery_was_promised() -> None:
    assert reason(answer(A, replica(0, max_generation=gs(1)), CREATE).reply) is Reason.FENCED


def test_d2_the_next_chunk_is_appended_and_voted_for() -> None:
    step = answer(A, replica(1), write_of(1))
    assert step.replica == replica(2)
    assert step.effect == AppendChunk(chunk(1), sync=True)
    assert step.reply == Vote(BLOCK, gs(0), chunk(1).index, A, synced=True)


def test_d2_in_memory_mode_a_vote_is_synced_only_when_the_write_asks_for_it() -> None:
    held = replica(0, durability=MEMORY)
    assert answer(A, held, write_of(0)).effect == AppendChunk(chunk(0), sync=False)
    assert answer(A, held, write_of(0, sync=True)).effect == AppendChunk(chunk(0), sync=True)


def test_d2_a_repeated_chunk_is_voted_for_again() -> None:
    step = answer(A, replica(2), write_of(0))
    assert isinstance(step.reply, Vote)
    assert step.replica == replica(2)


def test_d2_a_repeated_sync_write_is_durable_before_the_vote() -> None:
    step = answer(A, replica(1, durability=MEMORY), write_of(0, sync=True))
    assert step.effect == SyncChunks()


def test_d2_another_value_for_the_same_chunk_is_refused_as_corrupt() -> None:
    step = answer(A, replica(1), write_of(0, crc=999))
    assert reason(step.reply) is Reason.CORRUPT
    assert step.replica == replica(1)


def test_d2_a_chunk_beyond_the_next_one_is_a_gap() -> None:
    assert reason(answer(A, replica(1), write_of(2)).reply) is Reason.GAP


@pytest.mark.parametrize(
    "held",
    [
        replica(1, max_generation=gs(1)),
        replica(1, max_generation=gs(1), accepted_generation=gs(1)),
        replica(1, weak=True),
        replica(1, restarted=True),
        finalized(1, 2),
    ],
    ids=["promised", "accepted", "weak", "rwr", "finalized"],
)
def test_d2_a_fenced_replica_takes_no_write(held: Replica) -> None:
    assert reason(answer(A, held, write_of(1)).reply) is Reason.FENCED


def test_d2_a_replica_that_only_promised_the_generation_takes_no_write_of_it() -> None:
    """Its log is not the one that the generation begins with: it may be longer, and of others."""
    held = replica(1, max_generation=gs(2))
    assert reason(answer(A, held, write_of(1, 2)).reply) is Reason.FENCED


def test_d2_without_a_replica_nothing_is_written() -> None:
    assert reason(answer(A, None, write_of(0)).reply) is Reason.NO_REPLICA


def test_d2_the_acknowledged_count_only_grows() -> None:
    held = replica(2, acknowledged_count=2)
    step = answer(A, held, write_of(2, acknowledged_count=1))
    assert step.replica is not None
    assert step.replica.acknowledged_count == 2


def test_d3_a_promise_is_durable_before_last_vote_and_fences_the_writer() -> None:
    step = answer(A, replica(1), next_gs(1))
    assert step.effect == StoreMetadata()
    assert isinstance(step.reply, LastVote)
    assert (step.reply.registers.accepted_generation, step.reply.length) == (0, 1)
    assert reason(answer(A, step.replica, write_of(1)).reply) is Reason.FENCED


def test_d3_last_vote_names_the_last_window_of_chunks() -> None:
    reply = answer(A, replica(3, window=2), next_gs(1)).reply
    assert isinstance(reply, LastVote)
    assert reply.tail == chunks(3)[1:]


def test_d3_a_lost_last_vote_is_said_again() -> None:
    held = replica(1, max_generation=gs(1))
    step = answer(A, held, next_gs(1))
    assert isinstance(step.reply, LastVote)
    assert (step.replica, step.effect) == (held, None)


def test_d3_an_old_generation_is_refused_with_the_promise() -> None:
    reply = answer(A, replica(1, max_generation=gs(3)), next_gs(2)).reply
    assert reason(reply) is Reason.FENCED
    assert isinstance(reply, Nack)
    assert reply.max_generation == 3


def test_d3_a_finalized_replica_calls_older_generations_stale() -> None:
    assert reason(answer(A, finalized(1, 4), next_gs(3)).reply) is Reason.STALE


def test_d3_a_member_that_was_never_created_promises_with_an_empty_log() -> None:
    step = answer(A, None, next_gs(1))
    assert step.replica == replica(0, max_generation=gs(1))
    assert isinstance(step.reply, LastVote)
    assert not step.reply.registers.weak
    assert reason(answer(A, step.replica, CREATE).reply) is Reason.FENCED


def test_d3_a_later_config_that_finds_nothing_says_it_was_lost() -> None:
    assert reason(answer(A, None, next_gs(3, base=2)).reply) is Reason.NO_REPLICA


def test_d4_a_member_keeps_its_log_and_accepts_the_generation() -> None:
    step = answer(A, replica(2, max_generation=gs(1)), recovery_write(2))
    assert step.effect == AdoptLog(keep=2, append=())
    assert step.reply == RecoveryVote(BLOCK, gs(1), 2, A)
    assert step.replica is not None
    assert (step.replica.registers.accepted_generation, step.replica.registers.base_length) == (
        1,
        2,
    )


def test_d4_what_is_beyond_the_chosen_log_is_cut() -> None:
    step = answer(A, replica(2), recovery_write(1))
    assert step.replica is not None
    assert step.replica.log == replica(1).log
    assert step.effect == AdoptLog(keep=1, append=())


def test_d4_a_member_without_the_promise_may_still_vote() -> None:
    """It missed NextGS; the generation is the only one that counts."""
    assert isinstance(answer(A, replica(1), recovery_write(1)).reply, RecoveryVote)


def test_d4_missing_chunks_are_wanted_and_then_accepted() -> None:
    held, request = replica(1), recovery_write(3)
    assert wanted(A, held, request) == range(1, 3)
    assert reason(answer(A, held, request).reply) is Reason.GAP
    step = answer(A, held, request, chunks(3)[1:])
    assert step.effect == AdoptLog(keep=1, append=chunks(3)[1:])
    assert isinstance(step.reply, RecoveryVote)


def test_i3_a_log_that_differs_from_the_decided_one_is_corrupt_and_never_merged() -> None:
    """D4, D5: whether the other chunks were supplied or are our own, and at another size."""
    supplied = answer(A, replica(1), recovery_write(2), (chunk(1, crc=999),))
    own = answer(A, replica(2), replace(recovery_write(2), tail=(chunk(0), chunk(1, crc=999))))
    longer = answer(A, replica(2), replace(recovery_write(2), size_bytes=size(2) + 1))
    assert [reason(s.reply) for s in (supplied, own, longer)] == [Reason.CORRUPT] * 3
    assert [s.replica for s in (supplied, own, longer)] == [replica(1), replica(2), replica(2)]


def test_d4_a_non_member_never_keeps_its_own_log() -> None:
    held = replica(2, max_generation=gs(1), accepted_generation=gs(1), epoch=gs(1))
    assert wanted(D, held, recovery_write(2, 2, members=ABC)) == range(2)


def test_d4_a_member_of_an_older_epoch_takes_a_full_copy() -> None:
    """Its log may end with chunks that the epoch's own recovery dropped."""
    request = recovery_write(2, 5, base=gs(3), epoch=gs(3))
    assert wanted(A, replica(2), request) == range(2)


def test_d4_a_replacement_starts_from_a_full_copy() -> None:
    request = recovery_write(2)
    assert wanted(D, None, request) == range(2)
    step = answer(D, None, request, chunks(2))
    assert isinstance(step.reply, RecoveryVote)
    assert step.replica is not None
    assert step.replica.registers.state is ReplicaState.RBW


def test_d4_a_lower_generation_than_promised_is_refused() -> None:
    held = replica(1, max_generation=gs(2))
    assert reason(answer(A, held, recovery_write(1, 1)).reply) is Reason.FENCED


def test_d4_a_repeated_recovery_write_is_voted_for_again_after_the_writer_went_on() -> None:
    held = replica(2, max_generation=gs(1), accepted_generation=gs(1), base_length=1)
    step = answer(A, held, recovery_write(1))
    assert step.reply == RecoveryVote(BLOCK, gs(1), 1, A)
    assert (step.replica, step.effect) == (held, None)


def test_d4_a_generation_never_accepts_two_logs() -> None:
    held = replica(1, max_generation=gs(1), accepted_generation=gs(1), base_length=1)
    assert reason(answer(A, held, recovery_write(0)).reply) is Reason.CORRUPT


def test_d4_an_accepted_log_ends_weakness_and_the_restart_fence() -> None:
    step = answer(A, replica(1, weak=True, restarted=True), recovery_write(1))
    assert step.replica is not None
    assert not step.replica.registers.weak
    assert not step.replica.restarted


def test_d4_an_append_reopens_a_finalized_replica_and_remembers_its_version() -> None:
    request = recovery_write(1, 3, epoch=gs(3), tail=(), finalized_generation=gs(2))
    step = answer(A, finalized(1, 2), request)
    assert step.replica is not None
    assert step.replica.registers.state is ReplicaState.RBW
    assert (
        step.replica.registers.finalized_generation,
        step.replica.registers.finalized_length,
    ) == (2, 1)


def test_d5_the_decided_length_is_adopted_and_the_rest_cut() -> None:
    step = answer(A, replica(2), finalize_of(1, 2))
    assert step.replica == finalized(1, 2)
    assert step.effect == AdoptLog(keep=1, append=())
    assert step.reply == Finalized(BLOCK, gs(2), A, 1)


def test_d5_a_short_replica_is_fenced_and_says_so() -> None:
    step = answer(A, replica(1), finalize_of(2, 2))
    assert step.reply == Short(BLOCK, gs(2), A, 1)
    assert step.effect == StoreMetadata()
    assert step.replica == replica(1, max_generation=gs(2))


@pytest.mark.parametrize(("above", "promised"), [(LEAP_MAX, True), (LEAP_MAX + 1, False)])
def test_d5_a_short_replica_promises_nothing_beyond_the_reach_of_k2(
    above: int, promised: bool
) -> None:
    step = answer(A, replica(1), finalize_of(2, above))
    assert step.reply == Short(BLOCK, gs(above), A, 1)
    assert step.replica == (replica(1, max_generation=gs(above)) if promised else replica(1))


def test_d5_a_member_that_was_away_comes_back_in_one_step() -> None:
    step = answer(A, replica(2), finalize_of(1, 3 * LEAP_MAX))
    assert step.reply == Finalized(BLOCK, gs(3 * LEAP_MAX), A, 1)


def test_d5_a_short_replica_becomes_whole_with_what_a_holder_supplies() -> None:
    held = replica(1, max_generation=gs(2))
    assert wanted(A, held, finalize_of(2, 2)) == range(1, 2)
    assert answer(A, held, finalize_of(2, 2), chunks(2)[1:]).replica == finalized(2, 2)


def test_d5_a_finalization_older_than_the_promise_is_stale() -> None:
    """A later generation may be opening the block again: its votes would be lost."""
    held = replica(1, max_generation=gs(3))
    assert reason(answer(A, held, finalize_of(1, 2)).reply) is Reason.STALE


def test_d5_a_replica_of_an_older_epoch_is_stale_until_it_is_copied_whole() -> None:
    request = finalize_of(2, 6, epoch=gs(4))
    assert reason(answer(A, replica(2), request).reply) is Reason.STALE
    assert isinstance(answer(A, replica(2), request, chunks(2)).reply, Finalized)


def test_d5_a_repeated_finalize_is_answered_again() -> None:
    step = answer(A, finalized(1, 2), finalize_of(1, 2))
    assert isinstance(step.reply, Finalized)
    assert step.effect is None


def test_d5_a_generation_that_accepted_another_log_does_not_finalize_this_one() -> None:
    """A finalized generation comes from the decision alone (K5, K6): this one is a forgery."""
    recovered = replica(2, accepted_generation=gs(1), max_generation=gs(1), base_length=2)
    for held in (recovered, finalized(2, 1)):
        step = answer(A, held, finalize_of(1, 1))
        assert reason(step.reply) is Reason.CORRUPT
        assert step.replica is held


def test_d5_a_new_copy_of_a_finalized_block_is_made_from_nothing() -> None:
    """K12."""
    assert reason(answer(D, None, finalize_of(2, 3)).reply) is Reason.NO_REPLICA
    assert answer(D, None, finalize_of(2, 3), chunks(2)).replica == finalized(2, 3)


def test_d5_a_size_that_does_not_fit_the_chunks_is_corrupt() -> None:
    step = answer(A, replica(1), finalize_of(1, 2, size_bytes=size(1) + 1))
    assert reason(step.reply) is Reason.CORRUPT


@pytest.mark.parametrize("weak", [False, True])
def test_d6_a_read_tells_the_registers_and_whether_votes_may_be_lost(weak: bool) -> None:
    reply = answer(A, replica(2, restarted=True, weak=weak), Read(BLOCK)).reply
    assert isinstance(reply, ReadReply)
    assert (reply.length, reply.size_bytes) == (2, size(2))
    assert (reply.registers.weak, reply.restarted) == (weak, True)


def test_d6_a_synced_read_makes_durable_what_it_tells() -> None:
    """A power cut may take what was only handed to the system, and a reader has seen it."""
    memory = replica(2, durability=MEMORY)
    assert answer(A, memory, Read(BLOCK, sync=True)).effect == SyncChunks()
    assert answer(A, memory, Read(BLOCK)).effect is None
    assert answer(A, replica(2), Read(BLOCK, sync=True)).effect is None


def test_d7_delete_drops_a_replica_up_to_a_generation() -> None:
    step = answer(A, replica(1), Delete(BLOCK, gs(0)))
    assert (step.replica, step.effect, step.reply) == (None, DropReplica(), Deleted(BLOCK, A))
    promised = replica(1, max_generation=gs(1))
    assert reason(answer(A, promised, Delete(BLOCK, gs(0))).reply) is Reason.FENCED


def test_d8_a_restarted_process_keeps_its_votes_and_takes_no_writes() -> None:
    loaded = restarted(replica(1, durability=MEMORY, acknowledged_count=1), same_boot=True)
    assert (loaded.restarted, loaded.registers.weak, loaded.acknowledged_count) == (True, False, 0)


def test_d8_a_machine_crash_makes_only_memory_replicas_weak() -> None:
    assert restarted(replica(1, durability=MEMORY), same_boot=False).registers.weak
    assert not restarted(replica(1), same_boot=False).registers.weak
    assert not restarted(finalized(1, 2), same_boot=False).registers.weak


def test_d8_a_second_restart_does_not_make_a_weak_replica_strong() -> None:
    """Votes that the first crash lost do not come back with the second start."""
    once = restarted(replica(1, durability=MEMORY), same_boot=False)
    assert restarted(once, same_boot=True).registers.weak


def test_d9_a_full_copy_heals_a_dead_replica_that_promised_nothing_later() -> None:
    dead = replica(1, max_generation=gs(2), accepted_generation=gs(1))
    assert heals(dead, finalize_of(1, 2))
    assert not heals(dead, finalize_of(1, 1))
    assert heals(dead, recovery_write(1, generation=gs(2)))
    assert not heals(dead.having(accepted_generation=gs(2)), recovery_write(1, generation=gs(2)))
    assert not heals(dead, Read(BLOCK))


def test_d9_only_a_decision_heals_a_replica_whose_promise_nobody_knows() -> None:
    assert heals(None, finalize_of(1, 2))
    assert not heals(None, recovery_write(1, generation=gs(9)))


def test_d9_beside_k4_the_decision_comes_after_the_epoch_of_the_log() -> None:
    """It may have voted in that epoch; a late Finalize of before would make it forget."""
    assert heals(None, finalize_of(1, 4), gs(3))
    assert not heals(None, finalize_of(1, 2), gs(3))


def test_d9_a_dead_replica_is_deleted_up_to_what_it_promised_or_its_epoch() -> None:
    dead = replica(1, max_generation=gs(2), accepted_generation=gs(1))
    assert heals(dead, Delete(BLOCK, gs(2)))
    assert not heals(dead, Delete(BLOCK, gs(1)))
    assert heals(None, Delete(BLOCK, gs(3)), gs(3))
    assert not heals(None, Delete(BLOCK, gs(2)), gs(3))


def test_i1_a_promise_that_falls_is_an_error_of_our_own() -> None:
    before, after, request = replica(0, max_generation=gs(1)), replica(0), Read(BLOCK)
    with pytest.raises(InvariantError) as caught:
        after.check_follows(before, request)
    error = caught.value
    assert (error.number, error.rule) == ("I1", "I1 MaxGS never falls")
    assert (error.state, error.led_by) == (after, (before, request))
    assert str(error) == f"{error.rule}; state: {after!r}; after: {before!r}; after: {request!r}"


def test_i2_a_register_that_changes_is_an_error_of_our_own() -> None:
    with pytest.raises(InvariantError, match="I2"):
        replica(1).check_follows(replica(2))
    replace(replica(2), acknowledged_count=1).check_follows(replica(1))


def test_strangers_answer_nothing() -> None:
    assert reason(answer(C, None, Read(BLOCK)).reply) is Reason.NO_REPLICA


def test_d4_a_length_that_nobody_could_have_takes_no_memory() -> None:
    """The length is a peer's word: it is compared, and nothing of that size is made."""
    absurd = replace(recovery_write(2), length=1 << 60)
    assert reason(answer(A, replica(2), absurd, chunks(2)).reply) is Reason.GAP
    assert isinstance(
        answer(A, replica(2), replace(finalize_of(2, 5), length=1 << 60)).reply, Short
    )


class Wider(Replica, frozen=True):
    """A replica of a later version, with a field that no rule knows yet."""

    later: int = 0


class WiderRegisters(Registers, frozen=True):
    """The same for its registers."""

    later: int = 0


@given(st.data())
def test_what_a_step_is_not_about_survives_it(draw: st.DataObject) -> None:
    """A copy that names its fields one by one forgets those that it does not know."""
    registers = WiderRegisters(
        gs(2),
        gs(2),
        epoch=gs(draw.draw(st.integers(0, 2))),
        base_length=draw.draw(st.integers(0, 2)),
        state=ReplicaState.RBW,
        window=draw.draw(st.integers(1, 9)),
        durability=draw.draw(st.sampled_from(Durability)),
        finalized_generation=gs(draw.draw(st.integers(-1, 1))),
        finalized_length=draw.draw(st.integers(0, 2)),
        later=draw.draw(st.integers(1, 9)),
    )
    count = draw.draw(st.integers(0, 9))
    before = Wider(BLOCK, registers, ChunkLog(chunks(2)), False, count, later=7)
    index = draw.draw(st.integers(0, 2))
    voted = answer(A, before, write_of(index, 2, acknowledged_count=1)).replica
    assert isinstance(voted, Wider)
    log = ChunkLog(chunks(3 if index == 2 else 2))
    assert voted == replace(before, log=log, acknowledged_count=max(count, 1))
    assert answer(A, before, next_gs(5)).replica == before.having(max_generation=gs(5))
    short = finalize_of(3, 5, epoch=gs(2))
    assert answer(A, before, short).replica == before.having(max_generation=gs(5))
    assert answer(A, before, Read(BLOCK)).replica == before
    weak = registers.durability is Durability.MEMORY
    again = replace(before, restarted=True, acknowledged_count=0).having(weak=weak)
    assert restarted(before, same_boot=False) == again
