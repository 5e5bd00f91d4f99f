"""Places for blocks: what holds of every choice, and what is said when there is none."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paxosblock.base.rack import DEFAULT_RACK
from paxosblock.errors import NoSpaceError
from paxosblock.namenode.blocks.placement import (
    Blame,
    Candidate,
    Wish,
    place,
    shortfall,
)
from paxosblock.protocol.types import StorageId

BLOCK = 100


def candidate(
    storage: str,
    node: str = "",
    *,
    free_bytes: int = 1000,
    load: int = 0,
    live: bool = True,
    stale: bool = False,
    failed: bool = False,
    blame: Blame = Blame.NONE,
    rack: str = DEFAULT_RACK,
    host: str = "",
) -> Candidate:
    return Candidate(
        storage=StorageId(storage),
        node=node or f"n-{storage}",
        free_bytes=free_bytes,
        load=load,
        live=live,
        stale=stale,
        failed=failed,
        blame=blame,
        rack=rack,
        host=host,
    )


def wish(
    replication: int = 3, min_replication: int = 1, seed: int = 0, writer_host: str = ""
) -> Wish:
    return Wish(replication, min_replication, BLOCK, seed, writer_host)


def of_nodes(
    candidates: tuple[Candidate, ...],
    blames: tuple[tuple[str, Blame], ...],
    stale: frozenset[str],
    racks: dict[str, str],
) -> tuple[Candidate, ...]:
    """The candidates with what is the same for all storages of a node."""
    by_node = dict(blames)
    return tuple(
        msgspec.structs.replace(
            c,
            blame=by_node.get(c.node, Blame.NONE),
            stale=c.node in stale,
            rack=racks[c.node],
            host=f"host-of-{c.node}",
        )
        for c in candidates
    )


MOSTLY = st.sampled_from([True] * 5 + [False])
NAMES = ("n1", "n2", "n3", "n4", "n5")
NODES = st.sampled_from(NAMES)
CANDIDATES = st.builds(
    of_nodes,
    st.lists(
        st.builds(
            Candidate,
            storage=st.integers(0, 30).map(lambda n: StorageId(f"s{n}")),
            node=NODES,
            free_bytes=st.sampled_from([99, 100, 1000, 1000]),
            load=st.integers(0, 3),
            pending_bytes=st.sampled_from([0, 100]),
            live=MOSTLY,
            failed=MOSTLY.map(lambda well: not well),
        ),
        unique_by=lambda c: c.storage,
        max_size=12,
    ).map(tuple),
    st.lists(st.tuples(NODES, st.sampled_from(Blame)), max_size=4).map(tuple),
    st.frozensets(NODES, max_size=3),
    st.fixed_dictionaries({name: st.sampled_from(["/a", "/b", "/b", "/dc2/c"]) for name in NAMES}),
)
WISHES = st.builds(
    wish,
    st.integers(1, 5),
    st.integers(1, 2),
    st.integers(0, 100),
    st.sampled_from(["", "elsewhere", *(f"host-of-{name}" for name in NAMES)]),
)
KEPT = st.lists(
    st.tuples(NODES, st.sampled_from(["/a", "/b"])), max_size=3, unique_by=lambda each: each[0]
).map(lambda found: tuple(candidate(f"kept-{n}", n, rack=r) for n, r in found))


def usable(w: Wish, candidates: tuple[Candidate, ...]) -> list[Candidate]:
    """The candidates that a block may go to, said in other words than the code's."""
    return [
        c
        for c in candidates
        if c.live
        and not c.failed
        and c.free_bytes - c.pending_bytes >= w.block_size
        and c.blame is not Blame.FRESH
    ]


@given(WISHES, CANDIDATES)
def test_every_choice_is_on_distinct_usable_nodes_and_as_large_as_it_can_be(
    w: Wish, candidates: tuple[Candidate, ...]
) -> None:
    good = usable(w, candidates)
    nodes = {c.node for c in good}
    if len(nodes) < min(w.min_replication, w.replication):
        with pytest.raises(NoSpaceError):
            place(w, candidates)
        return
    by_id = {c.storage: c for c in good}
    chosen = [by_id[storage] for storage in place(w, candidates)]
    assert len({c.node for c in chosen}) == len(chosen) == min(w.replication, len(nodes))


@given(WISHES, CANDIDATES)
def test_no_node_is_passed_over_for_a_worse_one(w: Wish, candidates: tuple[Candidate, ...]) -> None:
    def faults(c: Candidate) -> tuple[bool, Blame]:
        return c.stale, c.blame

    good = usable(w, candidates)
    if len({c.node for c in good}) < w.needed:
        return
    by_id = {c.storage: c for c in good}
    chosen = [by_id[storage] for storage in place(w, candidates)]
    others = [c for c in good if c.node not in {c.node for c in chosen}]
    assert max(map(faults, chosen)) <= min(map(faults, others), default=(True, Blame.FRESH))
    alike = replace(w, writer_host="")
    in_one_rack = tuple(msgspec.structs.replace(c, rack=DEFAULT_RACK) for c in candidates)
    chosen = [by_id[storage] for storage in place(alike, in_one_rack)]
    taken = {c.node for c in chosen}
    worst = max((*faults(c), c.load) for c in chosen)
    assert all((*faults(c), c.load) >= worst for c in good if c.node not in taken)


@given(WISHES, CANDIDATES)
def test_a_block_is_in_two_racks_whenever_two_racks_have_room(
    w: Wish, candidates: tuple[Candidate, ...]
) -> None:
    well = [c for c in usable(w, candidates) if not c.stale and c.blame is Blame.NONE]
    if len({c.rack for c in well}) < 2:
        return
    by_id = {c.storage: c for c in candidates}
    chosen = {by_id[storage].rack for storage in place(replace(w, min_replication=1), candidates)}
    assert len(chosen) >= min(w.replication, 2)


@given(WISHES, CANDIDATES, KEPT)
def test_copies_go_beside_the_members_that_stay_and_to_another_rack_than_their_only_one(
    w: Wish, candidates: tuple[Candidate, ...], kept: tuple[Candidate, ...]
) -> None:
    w, nodes = replace(w, min_replication=1), {member.node for member in kept}
    good = [c for c in usable(w, candidates) if c.node not in nodes]
    if not good:
        with pytest.raises(NoSpaceError):
            place(w, candidates, kept)
        return
    by_id = {c.storage: c for c in good}
    chosen = [by_id[storage] for storage in place(w, candidates, kept)]
    assert len({c.node for c in chosen}) == len(chosen)
    racks = {member.rack for member in kept}
    well = {c.rack for c in good if not c.stale and c.blame is Blame.NONE}
    if len(racks) == 1 and well - racks:
        assert chosen[0].rack not in racks


@given(WISHES, CANDIDATES)
def test_the_first_replica_is_at_home_with_the_writer_if_nothing_speaks_against_that(
    w: Wish, candidates: tuple[Candidate, ...]
) -> None:
    home = {
        c.storage
        for c in usable(w, candidates)
        if c.host == w.writer_host and not c.stale and c.blame is Blame.NONE
    }
    if home:
        assert place(replace(w, min_replication=1), candidates)[0] in home


@given(WISHES, CANDIDATES, st.randoms())
def test_the_order_in_which_nodes_are_known_changes_nothing(
    w: Wish, candidates: tuple[Candidate, ...], random: Random
) -> None:
    shuffled = list(candidates)
    random.shuffle(shuffled)
    try:
        expected = place(w, candidates)
    except NoSpaceError:
        with pytest.raises(NoSpaceError):
            place(w, tuple(shuffled))
        return
    assert place(w, tuple(shuffled)) == expected


def test_equal_nodes_share_the_blocks_evenly() -> None:
    nodes = tuple(candidate(f"s{n}") for n in range(6))
    counts = Counter(storage for seed in range(600) for storage in place(wish(seed=seed), nodes))
    assert all(240 < count < 360 for count in counts.values())


def test_stale_nodes_come_last_and_busy_ones_after_idle_ones() -> None:
    nodes = (
        candidate("stale", stale=True),
        candidate("busy", load=5),
        candidate("idle", load=1),
    )
    assert place(wish(), nodes) == ("idle", "busy", "stale")


def test_the_writers_machine_comes_first_then_another_rack_and_the_third_beside_the_second() -> (
    None
):
    nodes = (
        candidate("a1", rack="/a", host="here", load=9),
        candidate("a2", rack="/a"),
        candidate("b1", rack="/b", load=5),
        candidate("b2", rack="/b", load=7),
        candidate("c1", rack="/c", load=6),
    )
    assert place(wish(5, writer_host="here"), nodes) == ("a1", "b1", "b2", "a2", "c1")
    assert place(wish(3), nodes) == ("a2", "b1", "b2")
    assert place(wish(3, writer_host="elsewhere"), nodes) == ("a2", "b1", "b2")


def test_a_rack_whose_nodes_are_silent_or_failed_the_writer_is_not_worth_a_failure() -> None:
    nodes = (
        candidate("a1", rack="/a"),
        candidate("a2", rack="/a", load=1),
        candidate("b1", rack="/b", stale=True),
        candidate("c1", rack="/c", blame=Blame.PAST),
    )
    assert place(wish(2), nodes) == ("a1", "a2")
    assert place(wish(3), nodes) == ("a1", "a2", "c1")


def test_of_idle_nodes_one_with_twice_the_room_comes_first() -> None:
    nodes = (
        candidate("roomy", free_bytes=40 * BLOCK),
        candidate("tight", free_bytes=15 * BLOCK),
        candidate("busy", free_bytes=90 * BLOCK, load=1),
    )
    assert {place(wish(seed=seed), nodes) for seed in range(20)} == {("roomy", "tight", "busy")}


def test_a_node_that_failed_the_writer_is_taken_where_others_are_missing() -> None:
    nodes = (
        candidate("past", blame=Blame.PAST),
        candidate("busy", load=5),
        candidate("fresh", blame=Blame.FRESH),
        candidate("idle"),
    )
    assert place(wish(2), nodes) == ("idle", "busy")
    assert place(wish(3), nodes) == ("idle", "busy", "past")
    assert place(wish(4), nodes) == ("idle", "busy", "past")


def test_a_node_that_failed_the_writer_and_is_heard_of_comes_before_one_that_is_silent() -> None:
    nodes = (candidate("silent", stale=True), candidate("past", blame=Blame.PAST))
    assert place(wish(1), nodes) == ("past",)


def test_why_a_block_is_short_is_told_by_the_names_of_the_nodes() -> None:
    nodes = (
        candidate("a"),
        candidate("b", live=False),
        candidate("c", failed=True),
        candidate("c2", node="n-c", free_bytes=BLOCK - 1),
        candidate("d", blame=Blame.FRESH),
    )
    chosen = place(wish(), nodes)
    assert shortfall(wish(), nodes, chosen) == (
        "DataNodes not used: n-b (dead), n-c (failed, full), n-d (failed this writer)"
    )
    assert shortfall(wish(), (*nodes, candidate("e", failed=True)), chosen).endswith(" and 1 more")
    assert shortfall(wish(), nodes[:1], chosen) == "too few DataNodes"
    assert shortfall(wish(1), nodes, chosen) == ""


def test_fewer_than_wanted_are_taken_down_to_the_minimum() -> None:
    nodes = (candidate("s1"), candidate("s2", live=False))
    assert place(wish(3, 1), nodes) == ("s1",)


def test_the_error_says_how_many_were_found_and_what_was_wrong_with_the_others() -> None:
    nodes = (
        candidate("a"),
        candidate("b", live=False),
        candidate("c", failed=True),
        candidate("d", free_bytes=BLOCK - 1),
        candidate("e", blame=Blame.FRESH),
        candidate("e2", node="n-e", blame=Blame.FRESH),
    )
    with pytest.raises(NoSpaceError) as caught:
        place(wish(3, 2), nodes)
    assert str(caught.value) == (
        "no place for a block of 100 bytes: found 1 of 3 replicas, 2 needed; "
        "storages not used: 1 dead, 1 failed, 2 failed this writer, 1 full"
    )


def test_a_file_that_wants_one_replica_gets_it_whatever_the_minimum_is() -> None:
    assert place(wish(1, 2), (candidate("s1"),)) == ("s1",)


def test_the_error_says_when_nobody_is_known() -> None:
    with pytest.raises(NoSpaceError, match="found 0 of 3 replicas, 1 needed; no other storage"):
        place(wish(), ())
