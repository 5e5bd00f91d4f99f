"""The replacement policies of seed 004, row by row; r, n and "hflushed/appended" are its words."""

from __future__ import annotations

import pytest

from paxosblock.base.replacement import Policy, Replacement

DISABLE, NEVER, DEFAULT, ALWAYS = Replacement


@pytest.mark.parametrize("replacement", [DISABLE, NEVER])
@pytest.mark.parametrize("r", range(1, 6))
@pytest.mark.parametrize("flushed", [False, True])
def test_never_and_disable_add_nobody_and_go_on_with_one(
    replacement: Replacement, r: int, flushed: bool
) -> None:
    policy = Policy(replacement)
    assert [policy.missing(r, n, flushed=flushed) for n in range(1, r + 1)] == [0] * r
    assert policy.needed(r, before=r) == 1


@pytest.mark.parametrize(
    ("r", "n", "flushed", "added"),
    [
        # "only if r >= 3"
        (1, 1, True, 0),
        (2, 1, True, 0),
        (2, 1, False, 0),
        # "floor(r/2) >= n"
        (3, 1, False, 1),
        (4, 2, False, 1),
        (4, 1, False, 2),
        (5, 2, False, 1),
        (5, 3, False, 0),
        (3, 2, False, 0),
        # "r > n and the block is hflushed/appended"
        (3, 2, True, 1),
        (3, 1, True, 2),
        (4, 3, True, 1),
        (3, 3, True, 0),
    ],
)
def test_default_adds_only_where_the_seed_says_so(
    r: int, n: int, flushed: bool, added: int
) -> None:
    assert Policy(DEFAULT).missing(r, n, flushed=flushed) == added


@pytest.mark.parametrize(("r", "n", "added"), [(1, 1, 0), (2, 1, 1), (3, 2, 1), (3, 1, 2)])
def test_always_adds_as_many_as_are_missing(r: int, n: int, added: int) -> None:
    assert Policy(ALWAYS).missing(r, n, flushed=False) == added


@pytest.mark.parametrize(
    ("replacement", "r", "needed"),
    [(ALWAYS, 3, 3), (ALWAYS, 2, 2), (DEFAULT, 3, 2), (DEFAULT, 4, 3), (DEFAULT, 2, 1)],
)
def test_without_best_effort_always_fails_short_of_one_and_default_when_half_is_left(
    replacement: Replacement, r: int, needed: int
) -> None:
    assert Policy(replacement).needed(r, before=r) == needed


def test_always_replaces_those_that_failed_and_not_those_that_never_were() -> None:
    assert Policy(ALWAYS).needed(3, before=2) == 2


@pytest.mark.parametrize("replacement", Replacement)
def test_with_best_effort_one_member_will_do(replacement: Replacement) -> None:
    assert Policy(replacement, best_effort=True).needed(3, before=3) == 1
