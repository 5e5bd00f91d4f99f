"""Keys below a directory, in the order of their bytes, in pages, and in groups by a delimiter."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Any, cast

import pytest

from paxosblock.api.namenode import FileStatus, Kind, ListDirectory, MakeDirectories, Transact
from paxosblock.api.subtree import KeyListing, ListKeys
from paxosblock.api.transaction import MakeDirectory, SetPermission
from paxosblock.client.names.walk import walk
from paxosblock.errors import (
    InvalidRequestError,
    NotDirectoryError,
    NotFoundError,
    PaxosBlockError,
    PermissionDeniedError,
)
from paxosblock.namenode import checks, subtrees
from paxosblock.namenode.catalog import key_order
from paxosblock.namenode.catalog.draft import inode_of
from paxosblock.namenode.catalog.permissions import Actor
from paxosblock.namenode.catalog.records import DirectoryInode
from paxosblock.namenode.name_node import NameNode
from paxosblock.protocol.types import Durability
from tests.namenode.scene import NamedCatalog, closed_file, new_catalog
from tests.namenode.test_permissions import acting

NAMES = ["a", "a!", "a-b", "a.b", "a0", "ab", "b", "b\u00e4", "\U0001f600", "\uffff"]
DELIMITERS = ["", "/", "-", "b/", "a"]


class Asked:
    """A catalog as the call has it."""

    def __init__(self, catalog: NamedCatalog) -> None:
        self.catalog = catalog

    async def keys(self, path: str = "/b", **options: Any) -> KeyListing:
        request = ListKeys(path, **options)
        checks.check_list_keys(request)
        return await subtrees.list_keys(cast(NameNode, self), request)

    async def shown(self, **options: Any) -> list[str]:
        return [each.key for each in (await self.keys(**options)).keys]

    async def pages(self, limit: int, after: str, **options: Any) -> list[str]:
        found: list[str] = []
        while True:
            page = await self.keys(limit=limit, after=after, **options)
            assert len(page.keys) <= limit
            found += [each.key for each in page.keys]
            if not page.after:
                return found
            assert page.after == found[-1]
            after = page.after

    async def stat(self, path: str) -> FileStatus:
        return await self.catalog.status(path)

    async def ls(self, path: str) -> list[FileStatus]:
        return list((await self.catalog.list(ListDirectory(path))).entries)

    async def directory(self, path: str, *, implicit: bool = False) -> None:
        operations = (MakeDirectory(path, implicit),)
        await self.catalog.transact(Transact(operations, 3, 1 << 20, Durability.DISK))


@pytest.fixture
async def asked() -> Asked:
    catalog = await new_catalog()
    await catalog.make_directories(MakeDirectories("/b"))
    return Asked(catalog)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of two entries, and a turn for others after each step."""
    monkeypatch.setattr(key_order, "READ_AT_ONCE", 2)
    monkeypatch.setattr(subtrees, "KEYS_AT_ONCE", 1)


async def some_keys(asked: Asked, random: Random) -> set[str]:
    """Make files, directories that were asked for and others; return the keys."""
    for _ in range(random.randint(1, 30)):
        path = "/".join(["/b", *random.choices(NAMES, k=random.randint(1, 3))])
        with suppress(PaxosBlockError):  # something else is there, or on the way
            kind = random.choice(["file", "file", "marker", "implicit"])
            if kind == "file":
                await closed_file(asked.catalog, path)
            else:
                await asked.directory(path, implicit=kind == "implicit")
    view, keys = await asked.catalog.view(), set[str]()
    async for each in walk(asked, "/b"):
        key = each.path.removeprefix("/b/")
        if each.kind is Kind.FILE:
            keys.add(key)
        else:
            inode = inode_of(view, each.file_id)
            assert isinstance(inode, DirectoryInode)
            keys |= set() if inode.implicit else {key + "/"}
    return keys


def expected(keys: set[str], prefix: str, after: str, delimiter: str) -> list[str]:
    return list(grouped(sorted(keys, key=str.encode), prefix, after, delimiter))


def grouped(keys: list[str], prefix: str, after: str, delimiter: str) -> Iterator[str]:
    last = ""
    for key in keys:
        if not key.startswith(prefix) or key.encode() <= after.encode():
            continue
        first, found, _ = key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "")
        if not found:
            yield key
        elif (group := prefix + first + found) != last:
            last = group
            if not after.startswith(group):
                yield group


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("seed", range(25))
async def test_each_page_of_each_size_has_the_keys_in_the_order_of_their_bytes(
    asked: Asked, seed: int
) -> None:
    random = Random(seed)
    keys = await some_keys(asked, random)
    places = ["", *keys, *(key[: random.randint(0, len(key))] for key in keys), "zz", "a/"]
    for _ in range(40):
        prefix, after = random.choice(["", random.choice(places)]), random.choice(places)
        delimiter = random.choice(DELIMITERS)
        wanted = expected(keys, prefix, after, delimiter)
        limit = random.choice([1, 2, 3, 1000])
        options = {"prefix": prefix, "after": after, "delimiter": delimiter}
        assert await asked.pages(limit, **options) == wanted, (options, limit)


async def test_a_directory_stands_at_its_slash(asked: Asked) -> None:
    for key in ("a/x", "a+", "a-b/c", "a.b", "a0"):
        await closed_file(asked.catalog, f"/b/{key}")
    assert await asked.shown() == ["a+", "a-b/c", "a.b", "a/x", "a0"]
    assert await asked.shown(after="a.b") == ["a/x", "a0"]


async def test_a_key_has_the_status_of_its_file_and_a_group_none(asked: Asked) -> None:
    await closed_file(asked.catalog, "/b/d/one", 3)
    await asked.directory("/b/wanted")
    (one, wanted) = (await asked.keys()).keys
    assert (one.key, one.status) == ("d/one", await asked.catalog.status("/b/d/one"))
    assert (wanted.key, wanted.status) == ("wanted/", await asked.catalog.status("/b/wanted"))
    (group, _) = (await asked.keys(delimiter="/")).keys
    assert (group.key, group.status) == ("d/", None)


async def test_directories_in_which_there_is_no_key_are_no_group(asked: Asked) -> None:
    await asked.directory("/b/none/of/all", implicit=True)
    assert await asked.shown() == []
    assert await asked.shown(delimiter="/") == []


async def test_it_is_not_looked_for_long_whether_there_is_a_key(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_order, "PROBED_MAX", 3)
    await asked.directory("/b/three/times/below", implicit=True)
    await asked.directory("/b/four/times/below/it", implicit=True)
    assert await asked.shown(delimiter="/") == ["four/"]


async def test_a_directory_that_the_caller_may_not_read_is_refused_or_a_group(asked: Asked) -> None:
    await closed_file(asked.catalog, "/b/private/file")
    private = (SetPermission("/b/private", 0o700),)
    await asked.catalog.transact(Transact(private, 3, 1 << 20, Durability.DISK))
    with acting(Actor("ann")):
        assert await asked.shown(delimiter="/") == ["private/"]
        with pytest.raises(PermissionDeniedError, match='inode="/b/private"'):
            await asked.shown()


async def test_a_prefix_that_leads_through_no_directory_has_no_keys(asked: Asked) -> None:
    await closed_file(asked.catalog, "/b/file")
    for prefix in ("file/", "none/", "../", "/", "file//x", "f" * 300 + "/"):
        assert await asked.shown(prefix=prefix) == []
    assert await asked.shown(after="f" * 100_000) == ["file"]


async def test_what_makes_no_sense_is_refused(asked: Asked) -> None:
    await closed_file(asked.catalog, "/b/file")
    with pytest.raises(NotFoundError):
        await asked.keys("/none")
    with pytest.raises(NotDirectoryError):
        await asked.keys("/b/file")
    with pytest.raises(InvalidRequestError, match="a page has at least one key"):
        await asked.keys(limit=0)
