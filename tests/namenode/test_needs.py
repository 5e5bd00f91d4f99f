"""The needs of a finalized block, for every state that a member may have."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as with_fields

from paxosblock.namenode.blocks.replication.needs import (
    NOWHERE,
    StoragePlace,
    StorageState,
    StorageView,
    assess,
    is_well,
    of_restored,
)
from paxosblock.protocol import finalize
from paxosblock.protocol.finalize import BlockRecord
from paxosblock.protocol.types import (
    BlockId,
    BlockState,
    Durability,
    Generation,
    StorageId,
    WriterId,
)

S1, S2, S3, S4 = (StorageId(f"s{number}") for number in (1, 2, 3, 4))
MEMBERS = (S1, S2, S3)


def decided(*members: StorageId, length: int = 2) -> BlockRecord:
    """A finalized block at these members."""
    record = finalize.add_block(BlockId(1), members, WriterId("ann"), 2, Durability.DISK)
    return with_fields(
        record,
        state=BlockState.FINALIZED,
        generation=Generation(1),
        finalized_generation=Generation(1),
        length=length,
        size_bytes=10 * length,
    )


BLOCK = decided(*MEMBERS)


def view(racks: int = 1, **changed: StoragePlace) -> StorageView:
    """Four storages on four nodes of one rack, in service but for those that are `changed`."""
    places = {storage: StoragePlace(f"dn-{storage}") for storage in (S1, S2, S3, S4)}
    return StorageView(places | {StorageId(name): place for name, place in changed.items()}, racks)


def of(state: StorageState, *, live: bool = False) -> StoragePlace:
    return StoragePlace("dn-s3", state, live)


def test_a_block_that_all_members_hold_needs_nothing() -> None:
    need = assess(BLOCK, 3, MEMBERS, view())
    assert (need.lacks, need.surplus, need.sound, need.missing) == (0, 0, MEMBERS, False)
    assert (need.lagging, need.gone, need.damaged, need.misplaced) == ((), (), (), ())


@pytest.mark.parametrize(
    ("state", "live", "lacks", "sound", "gone"),
    [
        (StorageState.IN_SERVICE, True, 0, MEMBERS, ()),
        (StorageState.AWAY, False, 0, (S1, S2), ()),
        (StorageState.AWAY, True, 0, MEMBERS, ()),
        (StorageState.MAINTENANCE, False, 0, (S1, S2), ()),
        (StorageState.LEAVING, True, 1, MEMBERS, (S3,)),
        (StorageState.LEAVING, False, 1, (S1, S2), (S3,)),
        (StorageState.LOST, False, 1, (S1, S2), (S3,)),
        (StorageState.LOST, True, 1, (S1, S2), (S3,)),
    ],
)
def test_what_a_holder_is_worth(
    state: StorageState,
    live: bool,
    lacks: int,
    sound: tuple[StorageId, ...],
    gone: tuple[StorageId, ...],
) -> None:
    need = assess(BLOCK, 3, MEMBERS, view(s3=of(state, live=live)))
    assert (need.lacks, need.sound, need.gone) == (lacks, sound, gone)


def test_a_member_in_service_that_did_not_report_the_version_lags_and_does_not_count() -> None:
    need = assess(BLOCK, 3, (S1, S2), view())
    assert (need.lacks, need.lagging, need.may_mend) == (1, (S3,), True)


@pytest.mark.parametrize("state", [StorageState.AWAY, StorageState.MAINTENANCE])
def test_a_member_that_may_hold_what_it_did_not_report_counts(state: StorageState) -> None:
    need = assess(BLOCK, 3, (S1, S2), view(s3=of(state)))
    assert (need.lacks, need.lagging, need.sound) == (0, (), (S1, S2))


def test_so_many_replicas_as_must_be_live_are_not_in_maintenance() -> None:
    away = StoragePlace("dn-s2", StorageState.MAINTENANCE, live=False)
    two_away = view(s2=away, s3=of(StorageState.MAINTENANCE))
    assert assess(BLOCK, 3, (S1,), two_away).lacks == 0
    assert assess(BLOCK, 3, (S1,), replace(two_away, min_live=2)).lacks == 1
    all_away = replace(two_away, places={**two_away.places, S1: away})
    assert assess(BLOCK, 3, (), all_away).lacks == 1
    assert assess(BLOCK, 1, (), replace(all_away, min_live=2)).lacks == 1


def test_a_copy_made_beside_a_maintenance_is_not_too_many_before_that_is_over() -> None:
    """Else it would be taken away, and made again, for as long as the maintenance lasts."""
    resting = view(s3=of(StorageState.MAINTENANCE, live=True))
    need = assess(decided(S1, S3), 1, (S1, S3), resting)
    assert (need.counted, need.lacks, need.surplus) == (2, 0, 0)
    assert assess(decided(S1, S3), 1, (S1, S3), view()).surplus == 1
    assert assess(decided(S1, S2, S3), 1, (S1, S2, S3), resting).surplus == 1


def test_a_damaged_replica_neither_counts_nor_is_read() -> None:
    need = assess(BLOCK, 3, MEMBERS, view(), damaged={S2})
    assert (need.lacks, need.sound, need.damaged) == (1, (S1, S3), (S2,))
    assert need.may_mend


def test_what_is_lost_is_not_mended_by_telling_members_again() -> None:
    assert not assess(BLOCK, 3, (S1,), view(s3=of(StorageState.LOST))).may_mend


def test_more_replicas_than_wanted_are_surplus() -> None:
    need = assess(decided(S1, S2, S3, S4), 3, (S1, S2, S3, S4), view())
    assert (need.lacks, need.surplus) == (0, 1)


def test_a_file_that_is_gone_asks_for_nothing() -> None:
    need = assess(BLOCK, 0, (), view(s1=NOWHERE, s2=NOWHERE, s3=NOWHERE))
    assert (need.lacks, need.missing) == (0, False)


LOST = of(StorageState.LOST)


@pytest.mark.parametrize(
    ("third", "holders", "missing"),
    [
        (LOST, (S1, S2, S3), True),
        (of(StorageState.AWAY), (S1, S2), False),
        (of(StorageState.MAINTENANCE), (S1, S2), False),
        (of(StorageState.LEAVING, live=True), (S1, S2, S3), False),
        (of(StorageState.LEAVING), (S1, S2, S3), True),
        (of(StorageState.IN_SERVICE, live=True), (S1, S2), True),
    ],
)
def test_a_block_is_missing_when_nobody_has_it_or_may_come_back_with_it(
    third: StoragePlace, holders: tuple[StorageId, ...], missing: bool
) -> None:
    need = assess(BLOCK, 3, holders, view(s1=LOST, s2=LOST, s3=third))
    assert need.missing == missing


def test_an_empty_block_is_never_missing() -> None:
    need = assess(decided(S1, length=0), 1, (), view(s1=LOST))
    assert (need.lacks, need.missing) == (1, False)


def test_a_block_of_a_backup_is_missing_when_nobody_may_have_it() -> None:
    restored = with_fields(decided(S1), restored=True)
    assert of_restored(assess(restored, 1, (), view(s1=LOST)), ()).missing
    assert not of_restored(assess(restored, 1, (), view(s1=LOST)), (S2,)).missing


def test_a_storage_that_nobody_heard_of_is_what_the_view_says() -> None:
    strange = decided(S1, StorageId("nobody-knows"))
    assert assess(strange, 2, (S1,), view()).lacks == 1
    away = replace(view(), unknown=of(StorageState.AWAY))
    assert assess(strange, 2, (S1,), away).lacks == 0


def test_two_replicas_on_one_node_are_misplaced() -> None:
    together = view(s2=StoragePlace("dn-s1"))
    assert assess(BLOCK, 3, MEMBERS, together).misplaced == (S1, S2)


PLACES = st.builds(
    StoragePlace,
    st.sampled_from(["a", "b", "c", "d"]),
    st.sampled_from(StorageState),
    st.just(True),
    st.sampled_from(["/a", "/b"]),
)
ALL = (S1, S2, S3, S4)


@given(
    st.lists(PLACES, min_size=4, max_size=4),
    st.sets(st.sampled_from(ALL)),
    st.sampled_from([ALL[:1], ALL[:2], ALL[:3], ALL]),
    st.integers(1, 4),
)
def test_what_is_well_at_first_sight_is_in_order(
    places: list[StoragePlace], some: set[StorageId], members: tuple[StorageId, ...], wanted: int
) -> None:
    serving = {place.rack for place in places if place.state is StorageState.IN_SERVICE}
    seen, block = StorageView(dict(zip(ALL, places, strict=True)), len(serving)), decided(*members)
    holders = some.intersection(members)
    if is_well(block, wanted, holders, seen):
        assert assess(block, wanted, holders, seen).in_order
    plain = {seen.place(each).state for each in members} <= {
        StorageState.IN_SERVICE,
        StorageState.AWAY,
    }
    in_order = assess(block, wanted, members, seen).in_order
    assert is_well(block, wanted, members, seen) == (in_order and plain)


def racks(*names: str) -> dict[str, StoragePlace]:
    """The places of s1, s2 ... in these racks."""
    return {
        f"s{number}": StoragePlace(f"dn-s{number}", rack=name)
        for number, name in enumerate(names, 1)
    }


def test_replicas_in_one_rack_are_misplaced_where_there_are_two() -> None:
    assert assess(BLOCK, 3, MEMBERS, view(2, **racks("/a", "/a", "/a"))).misplaced == MEMBERS
    assert assess(BLOCK, 3, MEMBERS, view(2, **racks("/a", "/a", "/b"))).misplaced == ()
    assert assess(BLOCK, 3, MEMBERS, view(1, **racks("/a", "/a", "/a"))).misplaced == ()


def test_one_replica_is_never_misplaced() -> None:
    assert assess(decided(S1), 1, (S1,), view(2, **racks("/a"))).misplaced == ()
    assert assess(BLOCK, 1, MEMBERS, view(2, **racks("/a", "/a", "/a"))).misplaced == ()
