"""The balancer's plans: they end, they help, and no block is worse off for them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paxosblock.namenode.blocks.replication.balance import (
    PAIRS_PER_STORAGE,
    BalancedStorage,
    Evenness,
    Move,
    Replicated,
)
from paxosblock.protocol.types import BlockId, StorageId

BLOCK = 100


def volume(
    storage: str, used: int, total: int = 1000, rack: str = "/r", node: str = ""
) -> BalancedStorage:
    return BalancedStorage(StorageId(storage), node or f"n-{storage}", rack, used, total - used)


def balance(*volumes: BalancedStorage, threshold: float = 0.1) -> Evenness:
    return Evenness(volumes, threshold)


def block(number: int, *members: str, size: int = BLOCK) -> Replicated:
    return Replicated(BlockId(number), size, tuple(StorageId(each) for each in members))


def plan(
    start: Evenness, blocks: list[Replicated]
) -> tuple[Evenness, list[Replicated], list[Move]]:
    """All moves one after the other, as the service makes them: the first that helps."""
    now, done = start, list[Move]()
    while (move := _next_move(now, blocks)) is not None:
        now = now.after([move])
        blocks = [_moved(each, move) if each.block == move.block else each for each in blocks]
        done.append(move)
        assert len(done) < 10_000, "no end"
    return now, blocks, done


def _next_move(now: Evenness, blocks: list[Replicated]) -> Move | None:
    for source, targets in now.pairs():
        for each in blocks:
            if source.storage in each.members and (move := now.choose(each, source, targets)):
                return move
    return None


def _moved(each: Replicated, move: Move) -> Replicated:
    assert move.target not in each.members
    members = tuple(move.target if at == move.source else at for at in each.members)
    return replace(each, members=members)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Evenness, list[Replicated]]:
    """Up to eight volumes of unequal sizes on up to five nodes, and blocks on them."""
    count = draw(st.integers(2, 8))
    nodes = [draw(st.sampled_from("abcde")) for _ in range(count)]
    racks = {node: draw(st.sampled_from(["/r1", "/r2", "/r3"])) for node in set(nodes)}
    names = [StorageId(f"s{number}") for number in range(count)]
    node_of = dict(zip(names, nodes, strict=True))
    blocks, used = list[Replicated](), dict.fromkeys(names, 0)
    for number in range(draw(st.integers(0, 25))):
        size = draw(st.integers(0, 60))
        members = list[StorageId]()
        for name in draw(st.permutations(names))[: draw(st.integers(1, 3))]:
            if node_of[name] not in {node_of[each] for each in members}:
                members.append(name)
                used[name] += size
        blocks.append(Replicated(BlockId(number + 1), size, tuple(members)))
    volumes = [
        BalancedStorage(
            name, node_of[name], racks[node_of[name]], used[name], draw(st.integers(0, 800))
        )
        for name in names
    ]
    return Evenness(volumes, draw(st.sampled_from([0.01, 0.1, 0.3]))), blocks


def unevenness(of: Evenness) -> float:
    """Return what every move must lower: the squares of the distances from the mean, by room."""
    return sum(v.total_bytes * (v.use - of.mean) ** 2 for v in of.volumes.values())


@given(clusters())
def test_plans_end_and_every_move_makes_the_cluster_more_even(
    cluster: tuple[Evenness, list[Replicated]],
) -> None:
    start, blocks = cluster
    now, _, moves = plan(start, blocks)
    for number in range(len(moves)):
        before, after = start.after(moves[:number]), start.after(moves[: number + 1])
        assert unevenness(after) < unevenness(before)
    assert now.mean == pytest.approx(start.mean)
    assert now.furthest <= start.furthest + 1e-9


@given(clusters())
def test_no_block_is_worse_off_for_a_move(cluster: tuple[Evenness, list[Replicated]]) -> None:
    start, blocks = cluster
    _, after, _ = plan(start, blocks)
    volumes = start.volumes
    for one, other in zip(blocks, after, strict=True):
        assert len(other.members) == len(set(other.members)) == len(one.members)
        if any(each not in volumes for each in one.members):
            assert other == one
            continue
        assert len({volumes[each].node for each in other.members}) == len(other.members)
        racks = [len({volumes[each].rack for each in some.members}) for some in (one, other)]
        assert racks[1] >= min(2, racks[0])


@given(clusters())
def test_no_volume_takes_more_than_it_has_room_for_and_the_same_is_planned_again(
    cluster: tuple[Evenness, list[Replicated]],
) -> None:
    start, blocks = cluster
    _, _, moves = plan(start, blocks)
    free = {name: each.free_bytes for name, each in start.volumes.items()}
    for move in moves:
        assert move.size_bytes <= free[move.target]
        free[move.target] -= move.size_bytes
        free[move.source] += move.size_bytes
    assert plan(start, blocks)[2] == moves


@given(clusters())
def test_a_cluster_that_is_balanced_is_left_alone(
    cluster: tuple[Evenness, list[Replicated]],
) -> None:
    start, blocks = cluster
    if start.balanced:
        assert plan(start, blocks)[2] == []
        assert start.left_bytes == 0


def test_an_empty_volume_gets_its_share_and_not_more() -> None:
    start = balance(volume("a", 600), volume("b", 600), volume("c", 600), volume("new", 0))
    blocks = [block(n, "a", "b", "c", size=20) for n in range(1, 31)]
    assert (start.mean, start.balanced, start.left_bytes) == (0.45, False, 350)
    now, after, moves = plan(start, blocks)
    assert now.balanced
    assert sum(move.size_bytes for move in moves) == 360  # as little as will do
    assert all(len(each.members) == 3 for each in after)
    assert {move.target for move in moves} == {"new"}


def test_a_block_goes_neither_to_the_node_of_another_replica_nor_out_of_its_second_rack() -> None:
    start = balance(
        volume("full", 900, rack="/r1"),
        volume("other", 500, rack="/r2"),
        volume("near", 100, rack="/r2", node="n-other"),
        volume("alike", 110, rack="/r2"),
        volume("best", 120, rack="/r1"),
    )
    source, targets = next(start.pairs())
    assert (source.storage, [each.storage for each in targets]) == (
        "full",
        ["near", "alike", "best"],
    )
    move = start.choose(block(1, "full", "other"), source, targets)
    assert move == Move(BlockId(1), BLOCK, source.storage, StorageId("best"))
    assert start.choose(block(1, "full", "other"), source, targets[:2]) is None


def test_what_would_only_turn_full_and_empty_around_is_not_moved() -> None:
    start = balance(volume("full", 700), volume("empty", 300))
    source, targets = next(start.pairs())
    assert start.choose(block(1, "full", size=400), source, targets) is None
    assert start.choose(block(1, "full", size=399), source, targets) is not None
    assert start.choose(block(1, "full", size=0), source, targets) is None
    assert start.choose(block(1, "full", "not known"), source, targets) is None


def test_a_pair_moves_one_block_at_a_time_and_a_volume_takes_part_in_a_few_pairs() -> None:
    start = balance(volume("new", 0), *(volume(f"s{n}", 900) for n in range(6)))
    sources = [source.storage for source, _ in start.pairs()]
    assert len(sources) == 6
    busy = [(sources[0], StorageId("new"))]
    assert [source.storage for source, _ in start.pairs(busy)] == sources[1:]
    busy = [(each, StorageId("new")) for each in sources[:PAIRS_PER_STORAGE]]
    assert list(start.pairs(busy)) == []


def test_below_the_mean_is_filled_from_over_full_and_under_full_from_above_the_mean() -> None:
    over = balance(volume("over", 800), volume("b", 500), volume("c", 560))
    ((source, targets),) = over.pairs()
    assert (source.storage, [each.storage for each in targets]) == ("over", ["b", "c"])
    under = balance(volume("under", 200), volume("b", 500), volume("c", 440))
    ((one, _), (other, targets)) = under.pairs()
    assert (one.storage, other.storage, targets[0].storage) == ("b", "c", "under")


def test_a_volume_without_any_room_is_left_out() -> None:
    empty = BalancedStorage(StorageId("x"), "n", "/r", 0, 0)
    assert balance(empty, volume("a", 10)).volumes.keys() == {"a"}
    assert balance(empty).balanced
    assert balance().furthest == 0
