"""The calls about all that is below a path: one answer of one moment, in parts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from random import Random
from typing import cast

import pytest

from paxosblock.api.namenode import (
    DeletePath,
    FileStatus,
    Kind,
    ListDirectory,
    MakeDirectories,
    RenamePath,
)
from paxosblock.api.subtree import (
    ContentSummary,
    ListSubtree,
    SubtreeListing,
    SubtreeSums,
    Summed,
    SumSubtree,
    Unread,
)
from paxosblock.client.names.below import (
    AskListing,
    below,
    below_at_once,
    content_summaries,
    content_summary,
)
from paxosblock.client.names.walk import walk
from paxosblock.errors import (
    InvalidRequestError,
    NotFoundError,
    NotReadyError,
    PermissionDeniedError,
)
from paxosblock.namenode import checks, moments, subtrees
from paxosblock.namenode.catalog import subtree_walk
from paxosblock.namenode.catalog.permissions import Actor
from paxosblock.namenode.moments import Moments
from paxosblock.namenode.name_node import NameNode
from tests.namenode.memory_store import MemoryStore
from tests.namenode.scene import NamedCatalog, closed_file, file_with_blocks, new_catalog
from tests.namenode.test_permissions import acting, change
from tests.waiting import wait_until_async


@dataclass
class Names:
    """A catalog as a NameNode has it, and as a client asks it."""

    store: MemoryStore
    catalog: NamedCatalog
    moments: Moments

    @property
    def node(self) -> NameNode:
        return cast(NameNode, self)  # the calls need no more of it

    async def stat(self, path: str) -> FileStatus:
        return await self.catalog.status(path)

    async def ls(self, path: str) -> list[FileStatus]:
        return list((await self.catalog.list(ListDirectory(path))).entries)

    async def sums(self, request: SumSubtree) -> SubtreeSums:
        checks.check_subtree(request)
        return await subtrees.sum_subtree(self.node, request)

    async def listing(self, request: ListSubtree) -> SubtreeListing:
        checks.check_subtree(request)
        return await subtrees.list_subtree(self.node, request)

    async def find(self, path: str) -> list[FileStatus]:
        return [entry async for entry in below(self.listing, path, unread=never, later=never)]

    async def write(self, path: str, *lengths: int, closed: bool = True) -> None:
        make = closed_file if closed else file_with_blocks
        await make(self.catalog, path, *lengths)


def never(_: object) -> None:
    raise AssertionError("this does not happen here")


@pytest.fixture
async def names() -> AsyncIterator[Names]:
    store = MemoryStore()
    names = Names(store, await new_catalog(store), Moments())
    yield names
    names.moments.clear()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of two names."""
    monkeypatch.setattr(subtree_walk, "SLICE", 2)
    monkeypatch.setattr(subtrees, "SLICES_OF_SUMS", 1)
    monkeypatch.setattr(subtrees, "SLICES_OF_LISTING", 1)


async def some_tree(names: Names, rng: Random) -> list[str]:
    """Make directories and files with blocks; return the paths of the directories."""
    directories = ["/"]
    for number in range(rng.randrange(25)):
        above = rng.choice(directories).rstrip("/")
        path = f"{above}/{rng.choice('abxyz')}{number}"
        if rng.random() < 0.4:
            await names.catalog.make_directories(MakeDirectories(path))
            directories.append(path)
        else:
            lengths = [rng.randrange(1, 5) for _ in range(rng.randrange(3))]
            await names.write(path, *lengths, closed=rng.random() < 0.7)
    return directories


async def summed(names: Names, path: str) -> ContentSummary:
    """The sum by a walk of its own."""
    top = await names.stat(path)
    below = [entry async for entry in walk(names, path)] if top.kind is Kind.DIRECTORY else []
    found = [top, *below]
    files = [entry for entry in found if entry.kind is Kind.FILE]
    return ContentSummary(
        len(files),
        len(found) - len(files),
        sum(entry.size for entry in files),
        sum(entry.size * entry.replication for entry in files),
    )


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.usefixtures("small")
async def test_sums_and_listings_are_those_of_a_walk(names: Names, seed: int) -> None:
    rng = Random(seed)
    for path in await some_tree(names, rng):
        assert await content_summary(names.sums, path) == await summed(names, path)
        entries = await names.ls(path)
        wanted = [Summed(entry, await summed(names, entry.path)) for entry in entries]
        assert await content_summaries(names.sums, path) == wanted
        found = [entry async for entry in walk(names, path)]
        assert await names.find(path) == [await names.stat(path), *found]
    for entry in [each async for each in walk(names, "/")]:
        if entry.kind is Kind.FILE:
            assert await content_summary(names.sums, entry.path) == await summed(names, entry.path)
            assert [each.status for each in await content_summaries(names.sums, entry.path)] == [
                entry
            ]
            assert await names.find(entry.path) == [entry]


async def rearranged(names: Names) -> None:
    """Move what was not seen yet to where the walk has been, and the other way round."""
    await names.catalog.rename(RenamePath("/d/z", "/d/a0"))
    await names.catalog.rename(RenamePath("/d/a", "/d/zz"))
    await names.catalog.delete(DeletePath("/d/m", recursive=True))
    await names.write("/d/new", 1)


async def a_tree(names: Names) -> None:
    for name in ("a", "b", "m/c", "m/d", "m/e", "y", "z"):
        await names.write(f"/d/{name}", 1)


@pytest.mark.usefixtures("small")
async def test_all_parts_are_of_the_moment_of_the_first(names: Names) -> None:
    await a_tree(names)
    before, entries = await summed(names, "/d"), await names.find("/d")
    parts = 0

    async def sums(request: SumSubtree) -> SubtreeSums:
        nonlocal parts
        parts += 1
        if parts == 2:
            await rearranged(names)
        return await names.sums(request)

    assert await content_summary(sums, "/d") == before
    assert parts > 2
    assert await content_summary(names.sums, "/d") == await summed(names, "/d") != before
    assert await names.find("/d") != entries


@pytest.mark.usefixtures("small")
async def test_a_listing_whose_moment_is_gone_goes_on_behind_what_it_showed(names: Names) -> None:
    await a_tree(names)
    later: list[str] = []
    seen = [
        entry.path
        async for entry in below(forgetful(names, 3), "/d", unread=never, later=later.append)
    ]
    assert seen == [
        f"/d{name}" for name in ("", "/a", "/b", "/m", "/m/c", "/m/d", "/m/e", "/y", "/z")
    ]
    assert later == ["/d/m/d"]


def forgetful(names: Names, part: int) -> AskListing:
    """Forget the moment before this part is asked for."""
    parts = 0

    async def listing(request: ListSubtree) -> SubtreeListing:
        nonlocal parts
        parts += 1
        if parts == part:
            names.moments.clear()
        return await names.listing(request)

    return listing


@pytest.mark.usefixtures("small")
async def test_a_sum_whose_moment_is_gone_begins_again(names: Names) -> None:
    await a_tree(names)
    parts = 0

    async def sums(request: SumSubtree) -> SubtreeSums:
        nonlocal parts
        parts += 1
        if parts == 3:
            names.moments.clear()
            await rearranged(names)
        return await names.sums(request)

    assert await content_summary(sums, "/d") == await summed(names, "/d")


@pytest.mark.usefixtures("small")
async def test_a_moment_ends_with_the_last_part_or_when_it_is_not_asked_for(
    names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    await a_tree(names)
    held = names.moments._held
    await content_summary(names.sums, "/d")
    assert not held
    monkeypatch.setattr(moments, "KEPT_S", 0.0)
    first = await names.sums(SumSubtree("/d"))
    assert first.moment in held
    await wait_until_async(lambda: not held, what="the moment to be forgotten")
    gone = await names.sums(SumSubtree("/d", False, first.moment, first.after))
    assert gone == SubtreeSums(gone=True)


USER = Actor("cy")


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("mode", [0o700, 0o704, 0o701])
async def test_every_directory_below_must_be_readable_to_sum_it_up(names: Names, mode: int) -> None:
    await a_tree(names)
    with acting(USER):
        assert (await content_summary(names.sums, "/d")).files == 7
    await change(names.store, "/d/m", "ann", "dev", mode)
    with acting(USER):
        with pytest.raises(PermissionDeniedError, match=r'READ_EXECUTE, inode="/d/m"'):
            await content_summary(names.sums, "/d")
        with pytest.raises(PermissionDeniedError, match=r'READ_EXECUTE, inode="/d/m"'):
            await content_summaries(names.sums, "/d")
        unread: list[Unread] = []
        found = below(names.listing, "/d", unread=unread.append, later=never)
        seen = [entry.path async for entry in found]
        assert seen == [f"/d{name}" for name in ("", "/a", "/b", "/m", "/y", "/z")]
        assert [each.path for each in unread] == ["/d/m"]
        assert "access=READ_EXECUTE" in unread[0].reason
        with pytest.raises(PermissionDeniedError, match="READ_EXECUTE"):
            _ = [entry async for entry in below_at_once(names.listing, "/d")]
    await change(names.store, "/d", "ann", "dev", 0o700)
    with acting(USER), pytest.raises(PermissionDeniedError, match='inode="/d"'):
        await content_summary(names.sums, "/d/a")


@pytest.mark.usefixtures("small")
async def test_more_callers_than_there_are_moments_wait(
    names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    await a_tree(names)
    monkeypatch.setattr(moments, "MOMENTS_MAX", 1)
    first = await names.sums(SumSubtree("/d"))
    with pytest.raises(NotReadyError, match="1 callers"):
        await names.sums(SumSubtree("/d"))
    names.moments.drop(first.moment)
    assert await content_summary(names.sums, "/d")


async def test_nothing_and_a_place_elsewhere_are_refused(names: Names) -> None:
    await a_tree(names)
    for path in ("/none", "/d/a/b"):
        with pytest.raises((NotFoundError, NotADirectoryError)):
            await content_summary(names.sums, path)
        with pytest.raises((NotFoundError, NotADirectoryError)):
            await names.find(path)
    with pytest.raises(InvalidRequestError, match="cannot go on"):
        await names.sums(SumSubtree("/d", False, "x", "/e"))
