"""A directory of several pages is listed as it was at one time."""

from __future__ import annotations

import msgspec
import pytest

from paxosblock.api.namenode import FileStatus, Kind, ListDirectory, Listing
from paxosblock.base.paths import is_path
from paxosblock.client.names.walk import TRIES, pages
from paxosblock.errors import ProtocolError
from paxosblock.protocol.types import Durability


def page(*names: str, more: bool, changed: int, directory: int = 1) -> Listing:
    return Listing(tuple(map(entry, names)), more, directory=directory, changed=changed)


def entry(name: str) -> FileStatus:
    facts = (1, 0, 0, 0, Durability.DISK, False, 0, 0, "", "", 0o755)
    return FileStatus(f"/d/{name}", Kind.DIRECTORY, *facts)


class Directory:
    """Gives its answers in turn, the last one again and again, and notes what was asked."""

    def __init__(self, *answers: Listing) -> None:
        self.answers = [*answers]
        self.asked: list[str] = []

    async def ask(self, request: ListDirectory) -> Listing:
        self.asked.append(request.after)
        return self.answers.pop(0)

    async def listed(self, after: str = "") -> list[Listing]:
        return [each async for each in pages(self.ask, "/d", after)]


async def test_pages_of_one_state_are_asked_for_once() -> None:
    both = page("a", "b", more=True, changed=5), page("c", more=False, changed=5)
    directory = Directory(*both)
    assert await directory.listed() == [*both]
    assert directory.asked == ["", "b"]


@pytest.mark.parametrize("after", ["", "0"])
@pytest.mark.parametrize("stamp", [{"changed": 6}, {"changed": 5, "directory": 2}])
async def test_a_page_of_another_state_begins_the_listing_again(
    stamp: dict[str, int], after: str
) -> None:
    whole = page("b", more=False, changed=6)
    directory = Directory(page("a", more=True, changed=5), page("c", more=True, **stamp), whole)
    assert await directory.listed(after) == [whole]
    assert directory.asked == [after, "a", after]


async def test_a_directory_that_changes_all_the_time_is_listed_in_the_end() -> None:
    answers = [page("ab"[at % 2], more=at % 2 == 0, changed=at) for at in range(2 * TRIES)]
    directory = Directory(*answers)
    assert await directory.listed() == answers[-2:]
    assert not directory.answers


async def test_pages_that_need_not_be_of_one_state_come_as_they_are() -> None:
    answers = [page(f"{at}", more=at < 2, changed=at) for at in range(3)]
    directory = Directory(*answers)
    async for each in pages(directory.ask, "/d", one_state=False):
        assert each is answers[len(directory.asked) - 1], "before the next one is asked for"
    assert directory.asked == ["", "0", "1"]


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
