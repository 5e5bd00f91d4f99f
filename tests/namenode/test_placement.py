"""Where blocks go: what holds of every choice, and what is said when there is none."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paxosblock.errors import NoSpaceError
from paxosblock.namenode.placement import Candidate, Wish, place
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
) -> Candidate:
    return Candidate(
        StorageId(storage), node or f"n-{storage}", free_bytes, load, 0, live, stale, failed
    )


def wish(
    replication: int = 3, min_replication: int = 1, excluded: tuple[str, ...] = (), seed: int = 0
) -> Wish:
    return Wish(
        replication, min_replication, BLOCK, tuple(StorageId(name) for name in excluded), seed
    )


MOSTLY = st.sampled_from([True] * 5 + [False])
CANDIDATES = st.lists(
    st.builds(
        Candidate,
        storage=st.integers(0, 30).map(lambda n: StorageId(f"s{n}")),
        node=st.sampled_from(["n1", "n2", "n3", "n4", "n5"]),
        free_bytes=st.sampled_from([99, 100, 1000, 1000]),
        load=st.integers(0, 3),
        pending_bytes=st.sampled_from([0, 100]),
        live=MOSTLY,
        stale=st.booleans(),
        failed=MOSTLY.map(lambda well: not well),
    ),
    unique_by=lambda c: c.storage,
    max_size=12,
).map(tuple)
WISHES = st.builds(
    wish,
    st.integers(1, 5),
    st.integers(1, 2),
    st.lists(st.integers(0, 30).map(lambda n: f"s{n}"), max_size=3).map(tuple),
    st.integers(0, 100),
)


def usable(w: Wish, candidates: tuple[Candidate, ...]) -> list[Candidate]:
    """The candidates that a block may go to, said in other words than the code's."""
    avoided = {c.node for c in candidates if c.storage in w.excluded}
    return [
        c
        for c in candidates
        if c.live
        and not c.failed
        and c.free_bytes - c.pending_bytes >= w.block_size
        and c.node not in avoided
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
    best: dict[str, tuple[bool, int]] = {}
    for c in good:
        best[c.node] = min(best.get(c.node, (True, 99)), (c.stale, c.load))
    if len(best) < w.needed:
        return
    by_id = {c.storage: c for c in good}
    chosen = [by_id[storage] for storage in place(w, candidates)]
    taken = {c.node for c in chosen}
    worst = max((c.stale, c.load) for c in chosen)
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


def test_fewer_than_wanted_are_taken_down_to_the_minimum() -> None:
    nodes = (candidate("s1"), candidate("s2", live=False))
    assert place(wish(3, 1), nodes) == ("s1",)


def test_the_error_says_how_many_were_found_and_what_was_wrong_with_the_others() -> None:
    nodes = (
        candidate("a"),
        candidate("b", live=False),
        candidate("c", failed=True),
        candidate("d", free_bytes=BLOCK - 1),
        candidate("e"),
        candidate("e2", node="n-e"),
    )
    with pytest.raises(NoSpaceError) as caught:
        place(wish(3, 2, excluded=("e",)), nodes)
    assert str(caught.value) == (
        "no place for a block of 100 bytes: found 1 of 3 replicas, 2 needed; "
        "storages not used: 1 dead, 2 excluded by the writer, 1 failed, 1 full"
    )


def test_a_file_that_wants_one_replica_gets_it_whatever_the_minimum_is() -> None:
    assert place(wish(1, 2), (candidate("s1"),)) == ("s1",)


def test_the_error_says_when_nobody_is_known() -> None:
    with pytest.raises(NoSpaceError, match="found 0 of 3 replicas, 1 needed; no other storage"):
        place(wish(), ())
