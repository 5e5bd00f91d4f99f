"""Sharing out work among tasks; no Spark needed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from paxosblock.client.spark.jobs.spread import share_out


@given(st.lists(st.integers(0, 1000)), st.integers(1, 8))
def test_every_item_is_in_one_share(items: list[int], count: int) -> None:
    shares = share_out(items, lambda item: item, count)
    assert sorted(item for share, _ in shares for item in share) == sorted(items)
    assert len(shares) == min(count, len(items))
    assert all(share and weight == sum(share) for share, weight in shares)


@given(st.lists(st.integers(1, 1000), min_size=1), st.integers(1, 8))
def test_no_share_is_heavier_than_the_lightest_by_more_than_one_item(
    items: list[int], count: int
) -> None:
    weights = [weight for _, weight in share_out(items, lambda item: item, count)]
    assert max(weights) - min(weights) <= max(items)


def test_items_without_weight_go_round() -> None:
    shares = share_out([0] * 6, lambda item: item, 3)
    assert [len(share) for share, _ in shares] == [2, 2, 2]
