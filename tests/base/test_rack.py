"""Racks, and how far two machines are apart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paxosblock.base.rack import DEFAULT_RACK, FAR_AWAY, Location, distance, is_host, is_rack

PARTS = st.lists(st.sampled_from(["a", "b", "dc1", "r7"]), min_size=1, max_size=4)
LOCATIONS = st.builds(
    Location, st.sampled_from(["h1", "h2", "h3"]), PARTS.map(lambda parts: "/" + "/".join(parts))
)


@pytest.mark.parametrize("text", [DEFAULT_RACK, "/r1", "/dc1/r7", "/dc1/row-2/r_7", "/Büro/r1"])
def test_a_path_is_a_rack(text: str) -> None:
    assert is_rack(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/",
        "r7",
        "dc1/r7",
        "/dc1/",
        "//r7",
        "/dc1//r7",
        "/..",
        "/dc1/.",
        "/a b",
        "/a\n",
        7,
        None,
    ],
)
def test_anything_else_is_none(text: object) -> None:
    assert not is_rack(text)


def test_a_rack_is_not_endless() -> None:
    assert is_rack("/" + "x" * 254)
    assert not is_rack("/" + "x" * 255)


def test_a_machine_has_a_name_without_spaces() -> None:
    assert is_host("dn-1.example.org")
    assert not any(is_host(text) for text in ("", "a b", "a\n", "x" * 256, 7, None))


@pytest.mark.parametrize(
    ("here", "there", "apart"),
    [
        (Location("h", "/dc1/r1"), Location("h", "/dc1/r1"), 0),
        (Location("h", "/dc1/r1"), Location("g", "/dc1/r1"), 2),
        (Location("h", "/dc1/r1"), Location("g", "/dc1/r2"), 4),
        (Location("h", "/dc1/r1"), Location("g", "/dc2/r1"), 6),
        (Location("h", "/dc1/r1"), Location("g", "/r1"), 5),
    ],
)
def test_the_distance_counts_the_steps_to_what_both_share(
    here: Location, there: Location, apart: int
) -> None:
    assert distance(here, there) == distance(there, here) == apart


def test_no_two_racks_are_further_apart_than_far_away() -> None:
    deepest = [Location(name, f"/{name}" * 127) for name in ("a", "b")]
    assert all(is_rack(each.rack) for each in deepest)
    assert distance(*deepest) < FAR_AWAY


@given(LOCATIONS, LOCATIONS)
def test_a_machine_of_the_same_rack_is_nearer_than_any_other(
    here: Location, there: Location
) -> None:
    apart = distance(here, there)
    assert (apart == 0) == (here.host == there.host)
    if apart:
        assert (apart == 2) == (here.rack == there.rack)
