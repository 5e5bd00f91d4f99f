"""Watchers of names while NameNodes are killed: all hear the same, and all of it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.api.namenode import FileStatus, Kind
from paxosblock.api.watching import ChangeKind, NameChange
from paxosblock.errors import InvalidRequestError
from tests.namenode.names_model import Known, Names, WatchedNames
from tests.services.conftest import QUICK, wait_other_leader

WATCHERS = 3
FILES = 20
TOP = "/watched"
END = f"{TOP}/end"


def known(status: FileStatus) -> Known:
    is_directory = status.kind is Kind.DIRECTORY
    return Known(status.file_id, is_directory, None if is_directory else status.size)


def names_of(fs: Client) -> Names:
    """The names at and below the top."""
    top = {TOP: known(fs.stat(TOP))}
    return top | {each.path: known(each) for each in fs.walk(TOP, one_state=True)}


def heard(url: str, after: int) -> list[NameChange]:
    """All changes behind a revision, up to the end."""
    changes: list[NameChange] = []
    with Client(url, QUICK) as fs:
        for change in fs.watch(TOP, after=after):
            changes.append(change)
            if change.path == END:
                break
    return changes


def work(fs: Client, name: str) -> None:
    """The life of a few names."""
    with fs.create(f"{TOP}/new/{name}") as out:
        out.write(name.encode())
    fs.rename(f"{TOP}/new/{name}", f"{TOP}/old/{name}")
    fs.mkdirs(f"/elsewhere/{name}")
    fs.rename(f"/elsewhere/{name}", f"{TOP}/came-{name}")
    with fs.append(f"{TOP}/old/{name}") as out:
        out.write(b"more")
    fs.delete(f"{TOP}/came-{name}", recursive=True)


def test_all_watchers_hear_each_change_once_while_leaders_are_killed(
    cluster: LocalCluster, fs: Client
) -> None:
    fs.mkdirs(f"{TOP}/old")
    begin = next(iter(fs.pages("/"))).revision
    before = names_of(fs)
    with ThreadPoolExecutor(WATCHERS) as pool:
        watching = [pool.submit(heard, cluster.url, begin) for _ in range(WATCHERS)]
        for number in range(FILES):
            work(fs, f"f{number}")
            if number in (FILES // 3, 2 * FILES // 3):
                victim = cluster.wait_leader()
                victim.kill()
                wait_other_leader(cluster, victim)
                victim.start()
        fs.mkdirs(END)
        first, *others = [each.result() for each in watching]
    assert others == [first] * len(others)
    names = WatchedNames(TOP, before, begin)
    names.take(first, lambda _, path: {path: _came(first, path)})
    assert names.names == names_of(fs)


def _came(changes: list[NameChange], path: str) -> Known:
    """The empty directory that came from elsewhere."""
    found = next(each for each in changes if (each.path, each.kind) == (path, ChangeKind.RENAMED))
    return Known(found.file_id, True, None)


def test_a_watcher_that_lists_first_goes_on_from_there(fs: Client) -> None:
    fs.mkdirs("/listed/a")
    watching = iter(fs.watch("/listed", listed=True))
    found = [next(watching) for _ in range(2)]
    assert [(each.kind, each.path) for each in found] == [
        (ChangeKind.LISTED, "/listed"),
        (ChangeKind.LISTED, "/listed/a"),
    ]
    fs.mkdirs("/listed/b")
    change = next(watching)
    assert (change.kind, change.path) == (ChangeKind.CREATED, "/listed/b")
    assert change.revision > found[0].revision


def test_who_asks_now_and_then_hears_what_a_watcher_hears(fs: Client) -> None:
    place = fs.changes("/asked")
    assert not place.changes
    heard: list[NameChange] = []
    for number in range(3):
        fs.mkdirs(f"/asked/{number}")
        place = fs.changes("/asked", place, wait_s=5)
        heard += place.changes
    assert [each.path for each in heard] == ["/asked", *(f"/asked/{each}" for each in range(3))]
    assert fs.changes("/asked", place).changes == ()
    assert fs.changes("/asked", heard[0].revision).changes == tuple(heard[2:])


def test_what_is_not_there_yet_can_be_watched(fs: Client) -> None:
    listed = fs.list_keys("/")
    fs.mkdirs("/later/on")
    change = next(iter(fs.watch("/later", after=listed.revision)))
    assert (change.kind, change.path) == (ChangeKind.CREATED, "/later")


def test_positions_that_cannot_be_are_refused(fs: Client) -> None:
    with pytest.raises(InvalidRequestError, match="in the future"):
        next(iter(fs.watch("/", after=1 << 40)))
    with pytest.raises(InvalidRequestError, match="as it is now"):
        fs.watch("/", after=1, listed=True)
