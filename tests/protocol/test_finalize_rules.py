"""K1-K14: every compare-and-set on a block's record, rule by rule."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from paxosblock.protocol import finalize
from paxosblock.protocol.finalize import BlockRecord, Refused, Why
from paxosblock.protocol.invariants import InvariantError
from paxosblock.protocol.types import NO_GENERATION, BlockState, StorageId, WriterId
from tests.protocol.build import ABC, WRITER, A, B, C, D, applied, gs, record, size

OTHER = WriterId("w2")
UC, UR, FINALIZED = BlockState.UNDER_CONSTRUCTION, BlockState.UNDER_RECOVERY, BlockState.FINALIZED


def recovering(generation: int = 1) -> BlockRecord:
    return record(state=UR, generation=gs(generation))


def done(length: int = 2, fgs: int = 2) -> BlockRecord:
    return record(
        state=FINALIZED,
        generation=gs(fgs),
        finalized_generation=gs(fgs),
        length=length,
        size_bytes=size(length),
    )


def why(outcome: BlockRecord | Refused) -> Why:
    assert isinstance(outcome, Refused)
    return outcome.why


def test_k1_a_new_block_belongs_to_its_writer_in_generation_0() -> None:
    assert (record().state, record().generation, record().writer) == (UC, 0, WRITER)


def test_k2_a_seal_gets_a_fresh_generation_and_marks_the_record() -> None:
    first = applied(finalize.allocate_seal(record()))
    second = applied(finalize.allocate_seal(first))
    assert (first.state, first.generation, second.generation) == (UR, 1, 2)


def test_k2_a_finalized_block_is_not_sealed_again() -> None:
    """K11: FinalizeBlock(b) answers the recorded length."""
    assert why(finalize.allocate_seal(done())) is Why.FINALIZED


def test_k3_only_the_writer_of_the_current_generation_may_rebuild() -> None:
    assert applied(finalize.allocate_rebuild(record(), WRITER, gs(0))).generation == 1
    assert why(finalize.allocate_rebuild(record(), OTHER, gs(0))) is Why.NOT_WRITER
    assert why(finalize.allocate_rebuild(record(), WRITER, gs(5))) is Why.NOT_WRITER
    assert why(finalize.allocate_rebuild(recovering(), WRITER, gs(0))) is Why.NEWER
    assert why(finalize.allocate_rebuild(done(), WRITER, gs(0))) is Why.FINALIZED


def test_k4_an_append_leaves_the_block_finalized_until_it_is_installed() -> None:
    allocated = applied(finalize.allocate_append(done()))
    assert (allocated.state, allocated.generation, allocated.length) == (FINALIZED, 3, 2)
    assert why(finalize.allocate_append(record())) is Why.NOT_FINALIZED


def test_k5_the_latest_seal_decides_the_length_under_a_fresh_generation() -> None:
    ended = applied(finalize.finalize_by_recovery(recovering(), gs(0), gs(1), 1, size(1)))
    assert (ended.state, ended.length, ended.size_bytes) == (FINALIZED, 1, size(1))
    assert ended.finalized_generation == ended.generation == 2


def test_k5_an_overtaken_seal_gives_way() -> None:
    """The later one may have chosen another length, and its RecoveryWrite cuts what is beyond."""
    assert why(finalize.finalize_by_recovery(recovering(2), gs(0), gs(1), 1, 1)) is Why.NEWER


def test_k5_a_seal_of_another_config_is_refused() -> None:
    """It could plant its log in a node that both configs share."""
    moved = replace(recovering(2), writer_generation=gs(1))
    assert why(finalize.finalize_by_recovery(moved, gs(0), gs(2), 1, 1)) is Why.NEWER


def test_k5_the_loser_adopts_the_recorded_length() -> None:
    refused = finalize.finalize_by_recovery(done(), gs(0), gs(1), 1, 1)
    assert isinstance(refused, Refused)
    assert (refused.why, refused.record.length) == (Why.FINALIZED, 2)


def test_k6_the_writer_closes_also_while_a_recovery_is_under_way() -> None:
    """All members hold exactly these chunks: each recovery would propose the same length."""
    ended = applied(finalize.finalize_by_writer(recovering(3), WRITER, gs(0), 2, size(2)))
    assert (ended.state, ended.finalized_generation, ended.length) == (FINALIZED, 4, 2)


def test_k6_a_repeated_close_succeeds_again_and_changes_nothing() -> None:
    assert finalize.finalize_by_writer(done(), WRITER, gs(0), 2, size(2)) == done()


def test_k6_a_close_with_another_length_learns_the_recorded_one() -> None:
    assert why(finalize.finalize_by_writer(done(), WRITER, gs(0), 1, size(1))) is Why.FINALIZED


def test_k6_a_writer_of_another_generation_does_not_close() -> None:
    assert why(finalize.finalize_by_writer(record(), OTHER, gs(0), 0, 0)) is Why.NOT_WRITER
    assert why(finalize.finalize_by_writer(record(), WRITER, gs(1), 0, 0)) is Why.NOT_WRITER


def test_k7_a_rebuild_installs_its_members_and_starts_an_epoch() -> None:
    allocated = record(generation=gs(1))
    moved = applied(finalize.install_rebuild(allocated, gs(0), gs(1), (A, B, D), 1))
    assert (moved.writer_generation, moved.members, moved.base_length) == (1, (A, B, D), 1)


def test_k7_a_rebuild_that_was_overtaken_or_sealed_is_refused() -> None:
    """A seal of the old config could plant its log in a node that both configs share."""
    overtaken = record(generation=gs(2))
    sealed = replace(recovering(1))
    assert why(finalize.install_rebuild(overtaken, gs(0), gs(1), ABC, 1)) is Why.NEWER
    assert why(finalize.install_rebuild(sealed, gs(0), gs(1), ABC, 1)) is Why.NEWER
    assert why(finalize.install_rebuild(done(), gs(0), gs(1), ABC, 1)) is Why.FINALIZED


def test_k7_an_append_opens_the_block_for_its_writer_at_the_recorded_length() -> None:
    allocated = applied(finalize.allocate_append(done()))
    opened = applied(finalize.install_append(allocated, gs(0), gs(3), ABC, OTHER))
    assert (opened.state, opened.writer, opened.base_length) == (UC, OTHER, 2)
    assert opened.writer_generation == 3


def test_k7_an_append_is_refused_after_a_truncate() -> None:
    cut = applied(finalize.truncate(applied(finalize.allocate_append(done())), 1, size(1)))
    assert why(finalize.install_append(cut, gs(0), gs(3), ABC, OTHER)) is Why.NEWER
    assert why(finalize.install_append(record(), gs(0), gs(3), ABC, OTHER)) is Why.NOT_FINALIZED


def test_k7_an_operators_force_ends_with_the_epoch() -> None:
    allocated = applied(finalize.allocate_append(replace(done(), forced=True)))
    assert not applied(finalize.install_append(allocated, gs(0), gs(3), ABC, OTHER)).forced


def test_k6_a_writer_does_not_end_a_block_whose_members_an_operator_gave_up() -> None:
    forced = applied(finalize.allocate_seal(record(), forced=True))
    again = applied(finalize.allocate_seal(forced))
    for each in (forced, again):
        assert why(finalize.finalize_by_writer(each, WRITER, gs(0), 2, size(2))) is Why.NEWER
    assert not applied(finalize.allocate_seal(record())).forced


def test_k8_a_truncate_decides_a_shorter_version() -> None:
    cut = applied(finalize.truncate(done(), 1, size(1)))
    assert (cut.length, cut.size_bytes, cut.finalized_generation) == (1, size(1), 3)
    assert why(finalize.truncate(done(), 3, size(3))) is Why.BAD_LENGTH
    assert why(finalize.truncate(record(), 0, 0)) is Why.NOT_FINALIZED


def test_k8_a_record_remembers_its_last_cut_for_those_who_knew_more_of_it() -> None:
    assert done().cut_generation == gs(-1)
    cut = applied(finalize.truncate(done(), 1, size(1)))
    assert cut.cut_generation == cut.finalized_generation == 3
    again = applied(finalize.truncate(cut, 1, size(1)))
    assert (again.cut_generation, again.finalized_generation) == (3, 4)
    opened = applied(
        finalize.install_append(applied(finalize.allocate_append(again)), gs(0), gs(5), ABC, OTHER)
    )
    assert opened.cut_generation == 3
    with pytest.raises(InvariantError, match="I8 L changes only by K8"):
        replace(cut, cut_generation=gs(-1)).check_follows(done())
    with pytest.raises(InvariantError, match="I8 the last cut is remembered"):
        replace(again, cut_generation=gs(-1)).check_follows(cut)


def test_k9_a_given_up_append_is_ended_by_finalizing_the_same_length_again() -> None:
    again = applied(finalize.truncate(applied(finalize.allocate_append(done())), 2, size(2)))
    assert (again.length, again.finalized_generation) == (2, 4)


def test_k11_whoever_asks_for_the_end_of_a_finalized_block_is_told_its_length() -> None:
    refused = finalize.allocate_seal(done(length=2))
    assert isinstance(refused, Refused)
    assert (refused.record, refused.record.length) == (done(length=2), 2)


def test_k11_of_two_recoveries_the_loser_finds_what_the_winner_recorded() -> None:
    """K5: two recoveries of one block answer with one length, whatever each of them chose."""
    first = applied(finalize.allocate_seal(record()))
    both = applied(finalize.allocate_seal(first))
    ended = applied(finalize.finalize_by_recovery(both, gs(0), both.generation, 1, size(1)))
    lost = finalize.finalize_by_recovery(ended, gs(0), first.generation, 2, size(2))
    assert isinstance(lost, Refused)
    assert (lost.why, lost.record) == (Why.FINALIZED, ended)


def test_k11_a_recovery_gives_way_to_a_higher_generation() -> None:
    first = applied(finalize.allocate_seal(record()))
    both = applied(finalize.allocate_seal(first))
    lost = finalize.finalize_by_recovery(both, gs(0), first.generation, 1, size(1))
    assert isinstance(lost, Refused)
    assert (lost.why, lost.record) == (Why.NEWER, both)


def test_k12_a_reported_copy_becomes_a_member() -> None:
    assert applied(finalize.add_replica(done(), D, gs(2))).members == (*ABC, D)
    assert finalize.add_replica(done(), A, gs(2)) == done()
    assert why(finalize.add_replica(done(), D, gs(1))) is Why.NEWER
    assert why(finalize.add_replica(record(), D, gs(1))) is Why.NOT_FINALIZED


def test_k13_a_member_leaves_under_a_fresh_finalized_generation() -> None:
    left = applied(finalize.remove_replica(done(), C, gs(2), (A, B), 2))
    left.check_follows(done())
    assert left.members == (A, B)
    assert left.finalized_generation == left.generation == 3
    assert (left.state, left.length, left.size_bytes) == (FINALIZED, 2, size(2))
    assert left.writer_generation == done().writer_generation


def test_k13_nobody_leaves_unless_as_many_others_as_are_wanted_have_reported() -> None:
    """The guard counts reports, not members: of B no node knows whether it holds the block."""
    for whole, wanted in (((A,), 2), ((A, A), 2), ((), 1), ((A, B), 3)):
        refused = finalize.remove_replica(done(), C, gs(2), whole, wanted)
        assert why(refused) is Why.TOO_FEW
    assert applied(finalize.remove_replica(done(), C, gs(2), (A,), 1)).members == (A, B)


def test_k13_of_two_members_that_leave_at_once_only_one_does() -> None:
    """The reports that the second one counts are of the version before."""
    four = applied(finalize.add_replica(done(), D, gs(2)))
    left = applied(finalize.remove_replica(four, C, gs(2), (A, B, D), 3))
    assert why(finalize.remove_replica(left, D, gs(2), (A, B), 2)) is Why.NEWER


def test_k13_a_block_that_is_not_finalized_loses_no_member() -> None:
    assert why(finalize.remove_replica(record(), C, gs(0), (A, B), 2)) is Why.NOT_FINALIZED
    assert why(finalize.remove_replica(recovering(), C, gs(1), (A, B), 2)) is Why.NOT_FINALIZED


def test_k13_who_is_no_member_has_left_already() -> None:
    assert finalize.remove_replica(done(), D, gs(2), (A, B), 2) == done()


def test_k13_ends_an_append_that_is_being_set_up() -> None:
    """Its config may have been chosen from members that have left."""
    allocated = applied(finalize.allocate_append(done()))
    left = applied(finalize.remove_replica(allocated, C, gs(2), (A, B), 2))
    assert left.finalized_generation == 4
    assert why(finalize.install_append(left, gs(0), gs(3), ABC, OTHER)) is Why.NEWER


@pytest.mark.parametrize(
    ("whole", "wanted"), [((A, C), 2), ((A, D), 2), ((A, B), 0)], ids=["itself", "stranger", "none"]
)
def test_k13_is_told_of_other_members_only(whole: tuple[StorageId, ...], wanted: int) -> None:
    with pytest.raises(InvariantError, match="K13"):
        finalize.remove_replica(done(), C, gs(2), whole, wanted)


def test_p5_finalize_carries_the_decided_version() -> None:
    message = finalize.finalize_message(done(), (A,))
    assert (message.finalized_generation, message.length, message.holders) == (2, 2, (A,))
    with pytest.raises(InvariantError, match="P5"):
        finalize.finalize_message(record())


def test_p6_a_grant_tells_the_installed_config_whatever_was_allocated_since() -> None:
    installed = applied(finalize.install_rebuild(record(generation=gs(1)), gs(0), gs(1), (A, D), 1))
    grant = finalize.grant(installed)
    assert (grant.generation, grant.members, grant.length) == (1, (A, D), 1)
    assert finalize.grant(applied(finalize.allocate_seal(installed))) == grant


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (record(generation=gs(2)), record(generation=gs(1))),
        (record(), record(members=(A, B, D))),
        (done(2), replace(done(2), length=1)),
        (record(), record(writer_generation=gs(1))),
        (done(2), replace(done(2), members=(A, B))),
        (replace(done(2), generation=gs(3)), replace(done(2), generation=gs(3), members=(A, B))),
    ],
    ids=[
        "gs falls",
        "members without epoch",
        "length without fgs",
        "wgs above gs",
        "a member leaves without fgs",
        "a member leaves with gs only",
    ],
)
def test_i8_a_record_that_goes_backwards_is_an_error_of_our_own(
    before: BlockRecord, after: BlockRecord
) -> None:
    with pytest.raises(InvariantError, match="I8"):
        after.check_follows(before)


# --- K14 --------------------------------------------------------------------------------------


RESTORED = finalize.bring_back(
    record(
        state=BlockState.FINALIZED,
        generation=gs(1),
        finalized_generation=gs(1),
        length=2,
        size_bytes=size(2),
    )
)


def learned(epoch: int = 0, length: int = 2, **changes: Any) -> BlockRecord:
    allocated = applied(finalize.allocate_learning(RESTORED, NO_GENERATION))
    found = replace(allocated, **changes)
    outcome = finalize.learn(
        found,
        allocated.generation,
        (A, B),
        length=length,
        size_bytes=size(length),
        epoch=gs(epoch),
    )
    after = applied(outcome)
    after.check_follows(found)
    return after


def test_k14_nothing_is_allocated_or_decided_by_a_restored_record() -> None:
    under_way = finalize.bring_back(record())
    outcomes = [
        finalize.allocate_seal(under_way),
        finalize.allocate_rebuild(under_way, WRITER, gs(0)),
        finalize.allocate_append(RESTORED),
        finalize.finalize_by_recovery(under_way, gs(0), under_way.generation, 1, 1),
        finalize.finalize_by_writer(under_way, WRITER, gs(0), 1, 1),
        finalize.install_rebuild(under_way, gs(0), under_way.generation, (A, B), 1),
        finalize.install_append(RESTORED, gs(0), RESTORED.generation, (A, B), WRITER),
        finalize.truncate(RESTORED, 1, 1),
        finalize.add_replica(RESTORED, D, gs(1)),
        finalize.remove_replica(RESTORED, A, gs(1), (B, C), 2),
    ]
    assert [each.why for each in outcomes if isinstance(each, Refused)] == [Why.RESTORED] * 10


def test_k14_generations_go_on_above_all_that_were_given_since_the_backup() -> None:
    allocated = applied(finalize.allocate_learning(RESTORED, NO_GENERATION))
    assert allocated.generation == 1 + finalize.SKIPPED + 1
    heard = gs(allocated.generation + 5)
    higher = applied(finalize.allocate_learning(allocated, heard))
    assert higher.generation == heard + finalize.SKIPPED + 1
    refused = finalize.allocate_learning(record(), NO_GENERATION)
    assert isinstance(refused, Refused)


def test_k14_the_block_begins_an_epoch_with_those_that_accepted_the_log() -> None:
    after = learned()
    assert after.members == (A, B)
    assert (after.finalized, after.restored, after.length) == (True, False, 2)
    assert after.writer_generation == after.finalized_generation - 1 == after.generation - 1


@pytest.mark.parametrize(
    ("epoch", "length", "looks_again"), [(0, 2, False), (0, 1, True), (5, 2, True), (5, 3, True)]
)
def test_k14_readers_look_again_unless_it_is_the_log_that_the_record_knew(
    epoch: int, length: int, looks_again: bool
) -> None:
    after = learned(epoch, length)
    assert (after.cut_generation == after.finalized_generation) is looks_again


def test_k14_a_later_generation_wins() -> None:
    first = applied(finalize.allocate_learning(RESTORED, NO_GENERATION))
    second = applied(finalize.allocate_learning(first, NO_GENERATION))
    outcome = finalize.learn(
        second, first.generation, (A, B), length=2, size_bytes=size(2), epoch=gs(0)
    )
    assert isinstance(outcome, Refused)
