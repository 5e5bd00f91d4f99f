"""Where blocks go: what holds of every choice, and what is said when there is none."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paxosblock.errors import NoSpaceError
from paxosblock.namenode.blocks.placement import Blame, Candidate, Wish, place, shortfall
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
) -> Candidate:
    return Candidate(
        StorageId(storage), node or f"n-{storage}", free_bytes, load, 0, live, stale, failed, blame
    )


def wish(replication: int = 3, min_replication: int = 1, seed: int = 0) -> Wish:
    return Wish(replication, min_replication, BLOCK, seed)


def blamed(
    candidates: tuple[Candidate, ...], blames: tuple[tuple[str, Blame], ...]
) -> tuple[Candidate, ...]:
    """The candidates with the blame of their nodes."""
    by_node = dict(blames)
    return tuple(replace(c, blame=by_node.get(c.node, Blame.NONE)) for c in candidates)


MOSTLY = st.sampled_from([True] * 5 + [False])
NODES = st.sampled_from(["n1", "n2", "n3", "n4", "n5"])
CANDIDATES = st.builds(
    blamed,
    st.lists(
        st.builds(
            Candidate,
            storage=st.integers(0, 30).map(lambda n: StorageId(f"s{n}")),
            node=NODES,
            free_bytes=st.sampled_from([99, 100, 1000, 1000]),
            load=st.integers(0, 3),
            pending_bytes=st.sampled_from([0, 100]),
            live=MOSTLY,
            stale=st.booleans(),
            failed=MOSTLY.map(lambda well: not well),
        ),
        unique_by=lambda c: c.storage,
        max_size=12,
    ).map(tuple),
    st.lists(st.tuples(NODES, st.sampled_from(Blame)), max_size=4).map(tuple),
)
WISHES = st.builds(
    wish,
    st.integers(1, 5),
    st.integers(1, 2),
    st.integers(0, 100),
)


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
    good = usable(w, candidates)
    best: dict[str, tuple[bool, Blame, int]] = {}
    for c in good:
        worst_of_all = (True, Blame.FRESH, 99)
        best[c.node] = min(best.get(c.node, worst_of_all), (c.stale, c.blame, c.load))
    if len(best) < w.needed:
        return
    by_id = {c.storage: c for c in good}
    chosen = [by_id[storage] for storage in place(w, candidates)]
    taken = {c.node for c in chosen}
    worst = max((c.stale, c.blame, c.load) for c in chosen)
    assert all(best[node] >= worst for node in best if node not in taken)


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
