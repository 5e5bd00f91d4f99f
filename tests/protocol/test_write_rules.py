"""W1-W7: the writer of a block, rule by rule."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from paxosblock.protocol import write
from paxosblock.protocol.invariants import InvariantError
from paxosblock.protocol.messages import Created, Grant, Vote
from paxosblock.protocol.types import StorageId
from paxosblock.protocol.write import Writer, WriterState
from tests.protocol.build import ABC, BLOCK, DISK, A, B, C, D, chunk, gs


def opened(window: int = 1) -> Writer:
    writer = write.open_writer(BLOCK, ABC, window)
    for member in ABC:
        writer = write.on_created(writer, Created(BLOCK, member))
    return writer


def sent(writer: Writer, count: int = 1) -> Writer:
    for _ in range(count):
        name = chunk(writer.sent)
        writer, _ = write.send(writer, name.size_bytes, name.crc)
    return writer


def voted(
    writer: Writer, index: int, *members: StorageId, generation: int = 0, synced: bool = True
) -> Writer:
    for member in members:
        vote = Vote(BLOCK, gs(generation), chunk(index).index, member, synced)
        writer = write.on_vote(writer, vote)
    return writer


def test_w1_a_block_is_open_when_every_member_has_created_it() -> None:
    writer = write.open_writer(BLOCK, ABC, 1)
    for member in (A, B, B, D):
        writer = write.on_created(writer, Created(BLOCK, member))
    assert writer.state is WriterState.OPENING
    assert write.on_created(writer, Created(BLOCK, C)).state is WriterState.OPEN
    assert write.create_message(writer, DISK).window == 1


def test_w1_the_first_chunk_may_go_with_create_and_who_votes_for_it_has_created() -> None:
    name = chunk(0)
    before = write.open_writer(BLOCK, ABC, 4)
    writer, message = write.send_with_create(before, name.size_bytes, name.crc)
    assert (message.index, message.acknowledged_count, message.generation) == (0, 0, 0)
    assert not writer.can_send, "the others wait until all have created"
    writer = voted(writer, 0, A, B)
    assert (writer.state, writer.acknowledged) == (WriterState.OPENING, 0)
    writer = voted(writer, 0, C)
    assert (writer.state, writer.acknowledged, writer.can_close) == (WriterState.OPEN, 1, True)


def test_w1_only_the_first_chunk_goes_with_create() -> None:
    once, _ = write.send_with_create(write.open_writer(BLOCK, ABC, 4), 1, 1)
    for writer in (once, opened(), write.on_failure(once)):
        with pytest.raises(InvariantError, match="W1"):
            write.send_with_create(writer, 1, 1)


def test_w2_the_window_limits_what_is_on_its_way() -> None:
    writer = sent(opened(window=2), 2)
    assert not writer.can_send
    with pytest.raises(InvariantError, match="W2"):
        write.send(writer, 1, 1)
    assert voted(writer, 0, *ABC).can_send


def test_w2_a_write_carries_the_acknowledged_count() -> None:
    writer = voted(sent(opened()), 0, *ABC)
    _, message = write.send(writer, 2, 101)
    assert (message.index, message.acknowledged_count, message.generation) == (1, 1, 0)


def test_w3_a_chunk_is_acknowledged_by_all_members_and_not_by_a_majority() -> None:
    """The quorums of PROTOCOL.md 4 are those of writes that need all."""
    writer = voted(sent(opened()), 0, A, B)
    assert writer.acknowledged == 0
    assert voted(writer, 0, C).acknowledged == 1


def test_w3_hsync_counts_synced_votes_only() -> None:
    writer = voted(sent(opened()), 0, *ABC, synced=False)
    assert (writer.acknowledged, writer.acknowledged_synced) == (1, 0)
    assert voted(writer, 0, *ABC).acknowledged_synced == 1


def test_w3_a_vote_stands_for_all_chunks_below_it() -> None:
    writer = voted(sent(opened(window=2), 2), 1, *ABC)
    assert writer.acknowledged == 2
    assert voted(writer, 0, A) == writer


def test_w3_votes_of_strangers_and_of_other_generations_count_nothing() -> None:
    writer = sent(opened())
    assert voted(writer, 0, D) == writer
    assert voted(writer, 0, *ABC, generation=1) == writer


def test_i5_a_vote_for_a_chunk_never_sent_is_unsound_and_counts_nothing() -> None:
    writer = sent(opened())
    unsound = Vote(BLOCK, gs(0), chunk(1).index, A, True)
    assert not write.vote_is_sound(writer, unsound)
    assert write.on_vote(writer, unsound) == writer


def test_w4_a_failure_stops_sending_until_a_grant_comes() -> None:
    failed = write.on_failure(sent(opened()))
    assert failed.state is WriterState.REBUILDING
    assert not failed.can_send
    assert write.on_failure(failed) is failed


def test_w5_a_grant_moves_the_writer_to_new_members_and_resends_from_its_length() -> None:
    failed = write.on_failure(sent(voted(sent(opened()), 0, *ABC)))
    granted = write.on_grant(failed, Grant(BLOCK, gs(1), (A, B, D), 1))
    assert (granted.state, granted.generation) == (WriterState.OPEN, 1)
    assert (granted.members, granted.sent, granted.acknowledged) == ((A, B, D), 1, 1)
    again, message = write.send(granted, 2, 101)
    assert (message.generation, message.index) == (1, 1)
    assert voted(again, 1, *ABC).acknowledged == 1


def test_w5_an_old_grant_changes_nothing() -> None:
    failed = write.on_failure(opened())
    granted = write.on_grant(failed, Grant(BLOCK, gs(2), ABC, 0))
    assert write.on_grant(granted, Grant(BLOCK, gs(1), ABC, 0)) is granted


def test_w5_a_grant_that_loses_an_acknowledged_chunk_is_an_error_of_our_own() -> None:
    failed = write.on_failure(voted(sent(opened()), 0, *ABC))
    with pytest.raises(InvariantError, match="I5"):
        write.on_grant(failed, Grant(BLOCK, gs(1), ABC, 0))


def test_w5_an_appender_starts_where_its_grant_says() -> None:
    writer = write.granted_writer(Grant(BLOCK, gs(3), ABC, 2), 1)
    assert (writer.state, writer.generation) == (WriterState.OPEN, 3)
    assert (writer.sent, writer.acknowledged, writer.acknowledged_synced) == (2, 2, 2)


def test_w6_a_chunk_in_flight_forbids_to_close() -> None:
    """An R2 read may have returned that chunk, and closing would drop it."""
    assert not sent(opened()).can_close
    with pytest.raises(InvariantError, match="W6"):
        write.close(sent(opened()))
    closing = write.close(voted(sent(opened()), 0, *ABC))
    assert closing.state is WriterState.CLOSING
    assert write.on_finalized(closing, 1).state is WriterState.CLOSED


def test_w7_a_recovery_that_ended_the_block_tells_where_the_next_one_starts() -> None:
    sealed = write.on_finalized(write.on_failure(sent(opened())), 1)
    assert (sealed.state, sealed.acknowledged) == (WriterState.SEALED, 1)


def test_w7_a_block_of_another_writer_fences_this_one() -> None:
    assert write.on_finalized(opened(), 5, ours=False).state is WriterState.FENCED


def test_i5_a_recorded_length_below_the_acknowledged_is_an_error_of_our_own() -> None:
    with pytest.raises(InvariantError, match="I5"):
        write.on_finalized(voted(sent(opened()), 0, *ABC), 0)


class Wider(Writer, frozen=True):
    """A writer of a later version, with a field that no rule knows yet."""

    later: int = 0


def test_what_a_chunk_and_its_votes_are_not_about_survives_them() -> None:
    """A copy that names its fields one by one forgets those that it does not know."""
    start = opened(window=2)
    fields = {name: getattr(start, name) for name in start.__struct_fields__}
    wider: Writer = Wider(**fields, later=7)
    counted = {"voted": (1, 1, 1), "synced": (1, 1, 1), "sent": 2, "acknowledged": 1}
    assert voted(sent(wider, 2), 0, *ABC) == replace(wider, **counted)
