"""P1-P7: a recovery generation, rule by rule."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from paxosblock.protocol import finalize, recovery, register
from paxosblock.protocol.finalize import allocate_rebuild, allocate_seal
from paxosblock.protocol.invariants import InvariantError
from paxosblock.protocol.messages import LastVote, Nack, NextGS, RecoveryVote, RecoveryWrite
from paxosblock.protocol.quorum import Tally, read_quorum, recovery_quorum, tally
from paxosblock.protocol.recovery import Phase, Proposer, RecoveryKind, on_last_vote, on_nack
from paxosblock.protocol.types import NO_GENERATION, BlockState, Reason, StorageId
from tests.protocol.build import (
    ABC,
    BLOCK,
    WRITER,
    A,
    B,
    C,
    D,
    applied,
    chunks,
    gs,
    last_vote,
    record,
    size,
)


def sealing(given_up: tuple[StorageId, ...] = (), **changes: object) -> Proposer:
    allocated = applied(allocate_seal(record(**changes), forced=bool(given_up)))
    return recovery.seal(allocated, given_up)


def after(proposer: Proposer, *replies: LastVote) -> Proposer:
    for reply in replies:
        proposer = on_last_vote(proposer, reply)
    return proposer


def vote(storage: StorageId, length: int, generation: int = 1) -> RecoveryVote:
    return RecoveryVote(BLOCK, gs(generation), length, storage)


def test_p1_a_seal_asks_all_members_until_they_answer() -> None:
    proposer = sealing()
    assert [to for to, _ in recovery.requests(proposer)] == list(ABC)
    assert all(isinstance(message, NextGS) for _, message in recovery.requests(proposer))
    assert [to for to, _ in recovery.requests(after(proposer, last_vote(B, 0)))] == [A, C]


def test_p2_a_quorum_of_answers_chooses_the_longest_log_of_the_highest_generation() -> None:
    proposer = after(sealing(), last_vote(A, 0), last_vote(B, 1))
    assert proposer.phase is Phase.WRITING
    assert proposer.choice is not None
    assert (proposer.choice.length, proposer.choice.holders) == (1, (B,))


def test_p2_a_later_generation_beats_a_longer_log() -> None:
    """The length is decided too, not only the chunks."""
    recovered = last_vote(B, 0, accepted_generation=gs(1), generation=2)
    proposer = replace(sealing(), generation=gs(2))
    proposer = after(proposer, last_vote(A, 1, generation=2), recovered)
    assert proposer.choice is not None
    assert (proposer.choice.accepted_generation, proposer.choice.length) == (1, 0)


def test_p2_chooses_once_whatever_comes_late() -> None:
    proposer = after(sealing(), last_vote(A, 0), last_vote(B, 0))
    assert on_last_vote(proposer, last_vote(C, 1)) is proposer


def test_p2_one_member_counts_once_and_strangers_never() -> None:
    proposer = after(sealing(), last_vote(A, 0), last_vote(A, 0), last_vote(D, 0))
    assert proposer.phase is Phase.PROMISING
    other = after(sealing(), last_vote(A, 0), last_vote(B, 0, generation=9))
    assert other.phase is Phase.PROMISING


def test_p2_a_quorum_of_weak_answers_waits_for_a_strong_one() -> None:
    """Absence on a machine that lost votes proves nothing."""
    proposer = after(sealing(), last_vote(A, 0, weak=True), last_vote(B, 0, weak=True))
    assert proposer.phase is Phase.PROMISING
    assert after(proposer, last_vote(C, 1)).phase is Phase.WRITING


def test_p2_when_everybody_is_weak_the_longest_log_is_the_best_there_is() -> None:
    weak = tuple(last_vote(name, at, weak=True) for at, name in enumerate(ABC))
    proposer = after(sealing(), *weak)
    assert proposer.choice is not None
    assert proposer.choice.length == 2


def test_p2_an_operator_may_give_a_member_up_and_have_weak_answers_chosen_from() -> None:
    proposer = after(sealing((C,)), last_vote(A, 0, weak=True))
    assert proposer.phase is Phase.PROMISING
    proposer = after(proposer, last_vote(B, 1, weak=True))
    assert proposer.phase is Phase.WRITING
    assert proposer.choice is not None
    assert (proposer.choice.length, proposer.votes_needed) == (1, 2)


def test_p2_who_is_not_given_up_is_waited_for() -> None:
    """The operator was shown who is silent; another one that is slow may have the longest log."""
    proposer = after(sealing((C,)), last_vote(A, 0, weak=True))
    assert after(proposer, last_vote(C, 1, weak=True)).phase is Phase.PROMISING


def test_p2_one_member_ends_the_block_when_the_others_are_given_up() -> None:
    proposer = after(sealing((B, C)), last_vote(A, 1))
    assert (proposer.phase, proposer.votes_needed) == (Phase.WRITING, 1)
    assert [target for target, _ in recovery.requests(proposer)] == [A]
    vote = RecoveryVote(BLOCK, gs(1), 1, A)
    assert recovery.on_recovery_vote(proposer, vote).phase is Phase.DECIDED


@pytest.mark.parametrize("generation", [0, 2])
def test_p4_a_vote_of_another_generation_is_none(generation: int) -> None:
    proposer = after(sealing((B, C)), last_vote(A, 1))
    vote = RecoveryVote(BLOCK, gs(generation), 1, A)
    assert recovery.on_recovery_vote(proposer, vote) == proposer


def test_p2_who_gives_members_up_keeps_one_and_says_so_in_the_record() -> None:
    with pytest.raises(InvariantError, match="not every member"):
        sealing(ABC)
    with pytest.raises(InvariantError, match="says so in the record"):
        recovery.seal(applied(allocate_seal(record())), (C,))


def test_p2_weak_answers_suffice_once_a_later_generation_decided() -> None:
    proposer = replace(sealing(), generation=gs(2))
    weak = {"weak": True, "generation": 2}
    accepted = last_vote(B, 1, accepted_generation=gs(1), **weak)
    assert after(proposer, last_vote(A, 0, **weak), accepted).phase is Phase.WRITING


def test_p3_a_seal_keeps_the_epoch_and_a_rebuild_starts_one() -> None:
    rebuilding = recovery.rebuild(applied(allocate_rebuild(record(), WRITER, gs(0))), (A, B, D))
    assert (sealing().epoch, rebuilding.epoch) == (0, 1)
    assert rebuilding.members == ABC
    assert rebuilding.votes_needed == 3


def test_p3_an_append_needs_no_promises_and_names_the_version_it_extends() -> None:
    done = record(
        state=BlockState.FINALIZED,
        generation=gs(3),
        finalized_generation=gs(2),
        length=2,
        size_bytes=size(2),
    )
    proposer = recovery.append(done, (A, B, D))
    assert (proposer.kind, proposer.phase) == (RecoveryKind.APPEND, Phase.WRITING)
    request = recovery.recovery_write(proposer)
    assert (request.finalized_generation, request.length, request.epoch) == (2, 2, 3)


def test_p4_a_seal_is_decided_by_a_quorum_of_votes_for_its_length() -> None:
    proposer = after(sealing(), last_vote(A, 1), last_vote(B, 1))
    proposer = recovery.on_recovery_vote(proposer, vote(A, 0))
    proposer = recovery.on_recovery_vote(proposer, vote(A, 1))
    proposer = recovery.on_recovery_vote(proposer, vote(A, 1))
    assert proposer.phase is Phase.WRITING
    assert [to for to, _ in recovery.requests(proposer)] == [B, C]
    assert recovery.on_recovery_vote(proposer, vote(C, 1)).phase is Phase.DECIDED


def test_p4_a_rebuild_needs_the_vote_of_every_target() -> None:
    proposer = recovery.rebuild(applied(allocate_rebuild(record(), WRITER, gs(0))), (A, B, D))
    proposer = after(proposer, last_vote(A, 0), last_vote(C, 0))
    for name in (A, B):
        proposer = recovery.on_recovery_vote(proposer, vote(name, 0))
    assert proposer.phase is Phase.WRITING
    assert recovery.on_recovery_vote(proposer, vote(D, 0)).phase is Phase.DECIDED


def test_p4_the_same_proposal_goes_to_all_targets() -> None:
    proposer = after(sealing(), last_vote(A, 1), last_vote(B, 0))
    messages = [message for _, message in recovery.requests(proposer)]
    assert all(message == messages[0] for message in messages)
    assert isinstance(messages[0], RecoveryWrite)
    assert messages[0].tail == chunks(1)


def test_p7_a_higher_promise_stops_the_proposer() -> None:
    nack = Nack(BLOCK, gs(1), A, Reason.FENCED, gs(2), gs(0), 0)
    stopped = on_nack(sealing(), nack)
    assert stopped.phase is Phase.ABANDONED
    assert recovery.requests(stopped) == ()


def test_p7_any_other_refusal_is_only_remembered() -> None:
    nack = Nack(BLOCK, gs(1), A, Reason.GAP, gs(1), gs(0), 0)
    waiting = on_nack(on_nack(sealing(), nack), nack)
    assert (waiting.phase, waiting.refusals) == (Phase.PROMISING, (nack,))


def test_i4_a_choice_shorter_than_what_was_acknowledged_is_an_error_of_our_own() -> None:
    with pytest.raises(InvariantError, match="I4"):
        after(sealing(), last_vote(A, 0, acknowledged_count=1), last_vote(B, 0))


def test_i4_a_strong_member_more_than_a_window_behind_is_an_error_of_our_own() -> None:
    with pytest.raises(InvariantError, match="I4"):
        after(sealing(), last_vote(A, 0), last_vote(B, 2))


@pytest.mark.parametrize(("members", "q2", "qr"), [(1, 1, 1), (2, 2, 1), (3, 2, 2), (4, 3, 2)])
def test_a_recovery_meets_every_quorum_read(members: int, q2: int, qr: int) -> None:
    assert (read_quorum(members), recovery_quorum(members)) == (q2, qr)
    assert q2 + qr > members


@pytest.mark.parametrize(
    ("yes", "no", "result"),
    [(2, 1, Tally.REACHED), (1, 1, Tally.POSSIBLE), (1, 2, Tally.IMPOSSIBLE)],
)
def test_a_count_is_reached_possible_or_impossible(yes: int, no: int, result: Tally) -> None:
    assert tally(yes, no, 3, 2) is result


# --- LEARN (K14) ------------------------------------------------------------------------------


def learner() -> Proposer:
    restored = finalize.bring_back(record())
    allocated = applied(finalize.allocate_learning(restored, NO_GENERATION))
    return recovery.learn(allocated, (A, B, C, D))


def told(proposer: Proposer, storage: StorageId, accepted: int, length: int) -> LastVote:
    vote = last_vote(storage, length, proposer.generation, accepted_generation=gs(accepted))
    return replace(vote, generation=proposer.generation)


def nothing(proposer: Proposer, storage: StorageId, reason: Reason = Reason.NO_REPLICA) -> Nack:
    none = NO_GENERATION
    return Nack(BLOCK, proposer.generation, storage, reason, none, none, 0)


def test_a_learn_waits_for_each_that_was_asked_and_hears_who_has_nothing() -> None:
    proposer = learner()
    for at, answered in enumerate((A, B)):
        proposer = recovery.on_last_vote(proposer, told(proposer, answered, 3, 1 + at))
    proposer = recovery.on_nack(proposer, nothing(proposer, C))
    assert proposer.phase is Phase.PROMISING
    proposer = recovery.on_nack(proposer, nothing(proposer, D, Reason.CORRUPT))
    assert proposer.phase is Phase.WRITING
    assert proposer.choice is not None
    assert (proposer.choice.length, proposer.choice.accepted_generation) == (2, 3)


def test_a_learn_writes_only_to_those_that_accepted_the_highest_generation() -> None:
    proposer = learner()
    for storage, accepted, length in ((A, 0, 3), (B, 5, 1), (C, 5, 2), (D, 2, 4)):
        proposer = recovery.on_last_vote(proposer, told(proposer, storage, accepted, length))
    sent = recovery.requests(proposer)
    assert [target for target, _ in sent] == [B, C]
    message = sent[0][1]
    assert isinstance(message, RecoveryWrite)
    assert (message.base, message.epoch, message.members) == (5, proposer.generation, (B, C))
    assert message.holders == (C,)
    assert proposer.votes_needed == 2


def test_a_question_of_a_learn_makes_no_replica() -> None:
    asked = recovery.requests(learner())[0][1]
    assert isinstance(asked, NextGS)
    reply = register.answer(A, None, asked).reply
    assert isinstance(reply, Nack)
    assert reply.reason is Reason.NO_REPLICA


def test_a_learn_that_meets_a_higher_promise_gives_way() -> None:
    proposer = learner()
    fenced = replace(
        nothing(proposer, A, Reason.FENCED), max_generation=gs(proposer.generation + 1)
    )
    assert recovery.on_nack(proposer, fenced).phase is Phase.ABANDONED
