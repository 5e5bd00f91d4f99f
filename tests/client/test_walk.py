"""A directory of several pages is listed as it was at one time."""

from __future__ import annotations

import msgspec
import pytest

from paxosblock.api.namenode import FileStatus, Kind, ListDirectory, Listing
from paxosblock.base.path import is_path
from paxosblock.client.names.walk import TRIES, DirectoryPages
from paxosblock.errors import ProtocolError
from paxosblock.protocol.types import Durability


def page(*names: str, more: bool, changed: int, directory: int = 1) -> Listing:
    return Listing(tuple(map(entry, names)), more, directory=directory, changed=changed)


def entry(name: str) -> FileStatus:
    facts = (1, 0, 0, 0, Durability.DISK, False, 0, 0, "", "", 0o755)
    return FileStatus(f"/d/{name}", Kind.DIRECTORY, *facts)


def test_pages_of_one_state_are_asked_for_once() -> None:
    listing = DirectoryPages("/d")
    assert listing.request == ListDirectory("/d", "")
    listing.receive(first := page("a", "b", more=True, changed=5))
    assert listing.request == ListDirectory("/d", "b")
    listing.receive(second := page("c", more=False, changed=5))
    assert listing.request is None
    assert listing.pages == [first, second]


@pytest.mark.parametrize("stamp", [{"changed": 6}, {"changed": 5, "directory": 2}])
def test_a_page_of_another_state_begins_the_listing_anew(stamp: dict[str, int]) -> None:
    listing = DirectoryPages("/d")
    listing.receive(page("a", more=True, changed=5))
    listing.receive(page("c", more=True, **stamp))
    assert listing.request == ListDirectory("/d", "")
    assert listing.pages == []
    listing.receive(whole := page("b", more=False, changed=6))
    assert listing.request is None
    assert listing.pages == [whole]


def test_a_directory_that_changes_all_the_time_is_listed_in_the_end() -> None:
    listing, answers = DirectoryPages("/d"), 0
    while (request := listing.request) is not None:
        answers += 1
        name = "b" if request.after else "a"
        listing.receive(page(name, more=not request.after, changed=answers))
    assert answers == 2 * TRIES
    assert [each.changed for each in listing.pages] == [answers - 1, answers]


def test_whoever_does_not_ask_for_one_state_gets_each_page_as_it_comes() -> None:
    listing = DirectoryPages("/d", tries=1)
    for number, more in enumerate((True, True, False)):
        listing.receive(page(f"{number}", more=more, changed=number))
    assert listing.request is None
    assert len(listing.pages) == 3


@pytest.mark.parametrize("path", ["/", "/a", "/a/b", "/a/.b", "/a./b.", "/a/...", "/.staging/x"])
def test_a_path_is_absolute(path: str) -> None:
    assert is_path(path)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "a",
        "../a",
        "/a/",
        "//",
        "//a",
        "/a//b",
        "/.",
        "/..",
        "/a/..",
        "/a/./b",
        "/../a",
        "/a\0b",
    ],
)
def test_a_name_that_leads_elsewhere_makes_no_path(path: str) -> None:
    assert not is_path(path)


def test_the_status_of_what_is_no_path_is_not_decoded() -> None:
    said = msgspec.msgpack.encode(msgspec.structs.asdict(entry("a")) | {"path": "/d/../../a"})
    with pytest.raises(msgspec.ValidationError, match=r"'/d/\.\./\.\./a' is no path"):
        msgspec.msgpack.decode(said, type=FileStatus)


@pytest.mark.parametrize(("path", "names"), [("/d", ("a", "b")), ("/d/a", ("a",))])
def test_a_page_is_of_the_directory_or_file_that_was_listed(
    path: str, names: tuple[str, ...]
) -> None:
    listing = page(*names, more=False, changed=1)
    assert listing.of(path) is listing


@pytest.mark.parametrize("path", ["/", "/d2", "/d/a/b", "/e"])
def test_a_page_of_another_directory_is_refused(path: str) -> None:
    with pytest.raises(ProtocolError, match=f"'/d/a' is not in '{path}'"):
        page("a", more=False, changed=1).of(path)
