"""Every order of changes of the list of members, and mistakes in the rule that it must find."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from paxosblock.namenode.raft.roster import (
    ListEntry,
    MemberLists,
    Roster,
    why_not_now,
)
from tests.raft.member_lists import Bounds, Explorer, Rules, World, in_term_1

FOUR = ("a", "b", "c", "d")


@pytest.mark.parametrize(
    ("bounds", "states"),
    [
        pytest.param(Bounds(terms=2), 6403, id="three to four to three"),
        pytest.param(Bounds(terms=3, changes=1), 10_927, id="three leaders"),
        pytest.param(Bounds(terms=2, losses=1), 25_965, id="a folder is lost"),
    ],
)
def test_no_order_of_changes_elects_two_leaders_or_loses_an_entry(
    bounds: Bounds, states: int
) -> None:
    found = Explorer(bounds).explore()
    assert found.violations == []
    assert found.states == states
    assert found.elected
    assert found.changed


def _committed_list_counts(lists: MemberLists, names: Collection[str]) -> bool:
    return lists.committed.roster.is_majority(names)


def _whoever_counts(lists: MemberLists, names: Collection[str]) -> bool:
    return 2 * len(names) > len(lists.newest.roster.voters)


def _removed_ones_count(lists: MemberLists, names: Collection[str]) -> bool:
    voters = {*lists.newest.roster.voters, *lists.committed.roster.voters}
    return 2 * len(voters & {*names}) > len(lists.newest.roster.voters)


def _before_its_first_entry(lists: MemberLists, wanted: Roster, **known: object) -> str | None:
    return why_not_now(lists, wanted, **{**known, "first_of_term": 0})  # type: ignore[arg-type]  # of one


def _two_at_once(lists: MemberLists, wanted: Roster, **known: object) -> str | None:
    only = MemberLists(ListEntry(0, lists.newest.roster))
    return why_not_now(only, wanted, **known)  # type: ignore[arg-type]  # of one


_TWO_SPARE = Bounds(spare=("d", "e"), terms=2, changes=3)
_OF_FOUR = Bounds(first=FOUR, spare=("e",), terms=3)


@pytest.mark.parametrize(
    ("rules", "bounds", "first"),
    [
        pytest.param(
            Rules(is_majority=_committed_list_counts),
            _TWO_SPARE,
            in_term_1(_TWO_SPARE, ((1, None), (1, FOUR)), ("b", "d"), 2),
            id="a list counts once it is committed",
        ),
        pytest.param(
            Rules(why_not_now=_before_its_first_entry),
            _OF_FOUR,
            in_term_1(_OF_FOUR, ((1, None), (1, (*FOUR, "e"))), ("e",), 0),
            id="a leader changes the list before an entry of its term is committed",
        ),
        pytest.param(
            Rules(why_not_now=_two_at_once),
            Bounds(spare=("d", "e"), terms=2),
            None,
            id="two changes are under way",
        ),
        pytest.param(
            Rules(is_majority=_whoever_counts),
            Bounds(terms=2, changes=1),
            None,
            id="a member that is in no list is counted",
        ),
        pytest.param(
            Rules(is_majority=_removed_ones_count),
            Bounds(first=FOUR, spare=(), terms=2, changes=2),
            None,
            id="a removed member is counted",
        ),
        pytest.param(
            Rules(keeps_names=True),
            Bounds(spare=(), terms=2, changes=0, losses=1),
            None,
            id="an emptied folder keeps its name",
        ),
    ],
)
def test_a_planted_fault_is_found(rules: Rules, bounds: Bounds, first: World | None) -> None:
    assert Explorer(bounds, rules).explore(first, until_violated=True).violations
