"""No order of starts, wrong flags, crashes and lost folders lets anybody lead without what a folder
still has: all of them are visited (admissions.py), with the decisions that are shipped."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from paxosblock.namenode.raft.folder_admission import (
    AdmissionRefused,
    Born,
    Elsewhere,
    FolderStatus,
    Lineage,
    Newborn,
    Waits,
    may_join,
    next_step,
)
from tests.raft.admissions import (
    ALONE,
    BORN,
    GROWN,
    MEMBERS,
    NEW,
    OF_FIVE,
    STALE,
    Bounds,
    Explorer,
    Rules,
)

FIVE = ("a", "b", "c", "d", "e")

EXPLORED = {
    "new": (NEW, Bounds(losses=1, terms=1)),
    "stale": (STALE, Bounds(losses=2, terms=0)),
    "grown": (GROWN, Bounds(losses=1, terms=1)),
    "catalogs are made beside it": (STALE, Bounds(losses=2, terms=0, made=2, backup=(1,))),
    "alone": (ALONE, Bounds(losses=1, terms=0, made=1)),
    "copied": (STALE, Bounds(losses=1, terms=0, copies=1)),
    "lists": (OF_FIVE, Bounds(losses=0, terms=1, flags=(True,), peers=(MEMBERS, FIVE))),
}


@pytest.mark.parametrize("name", EXPLORED)
def test_whoever_leads_has_all_that_any_folder_still_has(name: str) -> None:
    world, bounds = EXPLORED[name]
    found = Explorer(Rules(), bounds).explore(world)
    assert found.lost == []
    assert found.elected > 0
    assert found.refused > 0
    assert {"new": found.born, "grown": found.joined, "lists": found.joined}.get(name, 1) > 0


def test_an_older_copy_of_its_own_folder_is_what_nobody_notices() -> None:
    """So docs/operations.md forbids it, and no command of ours does it."""
    found = Explorer(Rules(), Bounds(losses=0, terms=1, saves=True)).explore(STALE, until_lost=True)
    assert found.lost


# --- planted faults: each loses an entry ----------------------------------------------------------


def born_with_whoever_is_there(
    address: str, own: Newborn, members: tuple[str, ...], heard: dict[str, FolderStatus]
) -> object:
    """A majority that hears nothing contrary is enough, and chooses a common name."""
    step = next_step(address, own, members, heard)
    return Born(BORN) if isinstance(step, Waits) else step


def takes_the_choice_that_it_hears(
    address: str, own: Newborn, members: tuple[str, ...], heard: dict[str, FolderStatus]
) -> object:
    """Though its token is not part of it, as the folder that was part of it is lost."""
    chosen = [said.chosen for said in heard.values() if said.chosen]
    if chosen and not own.chosen:
        return Newborn(own.token, chosen[0])
    return next_step(address, own, members, heard)


def takes_the_lineage_that_it_hears(
    address: str, own: Newborn, members: tuple[str, ...], heard: dict[str, FolderStatus]
) -> object:
    """As when an emptied folder only needs the secret."""
    known = [said.lineage for said in heard.values() if said.lineage]
    return Born(Lineage(known[0], born=True)) if known else next_step(address, own, members, heard)


def every_member_lets_in(
    lineage: Lineage, address: str, members: tuple[str, ...], **about: Any
) -> object:
    """As long as it has not heard of the caller, as before the first one alone did."""
    answer = may_join(lineage, address, members, **about)
    return None if isinstance(answer, Elsewhere) else answer


def tokens_do_not_count(
    lineage: Lineage, address: str, members: tuple[str, ...], **about: Any
) -> object:
    known = about["admissions"]
    tokens = {**known.tokens, **{peer: said.token for peer, said in about["asking"].items()}}
    about["admissions"] = replace(known, tokens=tokens)
    return may_join(lineage, address, members, **about)


def born_clusters_let_in(
    lineage: Lineage, address: str, members: tuple[str, ...], **about: Any
) -> object:
    return None if lineage.born else may_join(lineage, address, members, **about)


def others_need_not_ask(
    lineage: Lineage, address: str, members: tuple[str, ...], **about: Any
) -> object:
    """As before a restore and growing were explored beside members that have a log."""
    answer = may_join(lineage, address, members, **about)
    return None if isinstance(answer, Waits) else answer


def lists_are_not_compared(
    lineage: Lineage, address: str, members: tuple[str, ...], **about: Any
) -> object:
    asking = {peer: replace(said, members=members) for peer, said in about["asking"].items()}
    return may_join(lineage, address, members, **(about | {"asking": asking}))


FAULTS = {
    "born with whoever is there": ("stale", Rules(next_step=born_with_whoever_is_there)),
    "takes the choice that it hears": ("new", Rules(next_step=takes_the_choice_that_it_hears)),
    "takes the lineage that it hears": ("stale", Rules(next_step=takes_the_lineage_that_it_hears)),
    "every member lets in": ("grown", Rules(may_join=every_member_lets_in)),
    "tokens do not count": ("grown", Rules(may_join=tokens_do_not_count)),
    "born clusters let in": ("stale", Rules(may_join=born_clusters_let_in)),
    "let in before it is written down": ("grown", Rules(admits_durably=False)),
    "others need not ask": ("catalogs are made beside it", Rules(may_join=others_need_not_ask)),
    "restored without a word": ("catalogs are made beside it", Rules(restores_alone=True)),
    "copies are started": ("copied", Rules(knows_its_owner=False)),
    "lists are not compared": ("lists", Rules(may_join=lists_are_not_compared)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_loses_an_entry(fault: str) -> None:
    name, rules = FAULTS[fault]
    world, bounds = EXPLORED[name]
    assert Explorer(rules, bounds).explore(world, until_lost=True).lost


# --- each answer, one by one ----------------------------------------------------------------------

OWN = Newborn("t1")
OTHERS = {peer: FolderStatus(MEMBERS, token=f"t-{peer}") for peer in MEMBERS[1:]}


def test_a_newborn_waits_for_all() -> None:
    step = next_step("a", OWN, MEMBERS, {"b": OTHERS["b"]})
    assert step == Waits("waits for c: a new cluster begins when all have started")


def test_it_chooses_once_and_is_born_when_all_chose_the_same() -> None:
    chose = next_step("a", OWN, MEMBERS, OTHERS)
    assert isinstance(chose, Newborn)
    assert next_step("a", chose, MEMBERS, OTHERS) == Waits("waits until b, c has heard of all")
    agreed = {peer: replace(said, chosen=chose.chosen) for peer, said in OTHERS.items()}
    assert next_step("a", chose, MEMBERS, agreed) == Born(Lineage(chose.chosen, born=True))


def test_it_is_born_when_one_that_is_born_says_what_it_chose() -> None:
    chose = next_step("a", OWN, MEMBERS, OTHERS)
    assert isinstance(chose, Newborn)
    said = {"b": FolderStatus(MEMBERS, lineage=chose.chosen)}
    assert next_step("a", chose, MEMBERS, said) == Born(Lineage(chose.chosen, born=True))


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (FolderStatus(MEMBERS, lineage="line"), "this cluster exists already, says b"),
        (FolderStatus(("a", "b", "d"), token="t"), "b has other --peers: a,b,d"),
        (FolderStatus(MEMBERS, token="t", chosen="x"), "b began with another folder of one of"),
    ],
)
def test_what_is_contrary_ends_it_with_one_line(said: FolderStatus, words: str) -> None:
    step = next_step("a", OWN, MEMBERS, {**OTHERS, "b": said})
    assert isinstance(step, AdmissionRefused)
    assert words in step.why
