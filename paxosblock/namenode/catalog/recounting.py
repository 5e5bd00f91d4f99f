"""Counting what is below a directory while others go on changing it.

A directory that gets counters counts each change from then on. What was there is counted at a
*moment* (`kv/interface.py`) after that, in slices; with it come the counters as they were at that
moment, and the difference of both is what they lack. It is added to them, and from then on they
have it all. If a NameNode ends in between, the next call that needs the counters counts again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar
from weakref import WeakValueDictionary

from msgspec import UNSET

from paxosblock.namenode.catalog import quotas, tree
from paxosblock.namenode.catalog.draft import Draft, Reads, inode_of
from paxosblock.namenode.catalog.ids import IdPool
from paxosblock.namenode.catalog.quotas import Counted
from paxosblock.namenode.catalog.records import DirectoryInode, FileInode
from paxosblock.namenode.catalog.subtree_walk import SLICE, walk
from paxosblock.namenode.kv.interface import KeyValueStore

T = TypeVar("T")


class Commit(Protocol):
    """Commits a decision, and returns its result."""

    async def __call__(self, decide: Callable[[Draft], T], /) -> T:
        """Decide on a draft, and commit it."""


class Recounting:
    """Counts directories of one catalog."""

    def __init__(self, store: KeyValueStore, numbers: IdPool) -> None:
        """Number new counters with those of a pool."""
        self._store = store
        self._numbers = numbers
        self._under_way: WeakValueDictionary[int, asyncio.Lock] = WeakValueDictionary()

    async def begin(self, number: int, change: Commit) -> None:
        """Give a directory counters that have all, unless it has such or is not there; `change`
        commits a decision."""
        lock = self._under_way.setdefault(number, asyncio.Lock())
        async with lock:  # a copy of the request need not count beside the first one
            counter = (await self._numbers.take())[0]
            quota = await change(lambda draft: quotas.begin(draft, number, counter))
            if quota is not None and not quota.counted:
                await self.mend(number, change)

    async def mend(self, number: int, change: Commit) -> None:
        """Let the counters of a directory have what is there, if it is and has some."""
        if (counted := await self.count(number)) is not None:
            await change(lambda draft: quotas.complete(draft, number, counted))

    async def count(self, number: int) -> Counted | None:
        """Count what is at and below a directory, and read its counters of that moment; None if it
        is not there any more, or has none."""
        moment = (await self._store.barrier()).moment()
        try:
            inode = inode_of(moment, number)
            path = None if inode is None else tree.path_of(moment, inode)
            if path is None or not isinstance(inode, DirectoryInode) or inode.quota is UNSET:
                return None
            names = space = 0
            for names, step in enumerate(walk(moment, path), 1):
                if not step.target.is_directory:
                    space += quotas.space(moment, _file(moment, step.target.number))
                if names % SLICE == 0:
                    await asyncio.sleep(0)
            totals = quotas.totals(quotas.totals_in(moment), inode)
            return Counted(inode.quota, names, space, *totals)
        finally:
            moment.release()


def _file(reads: Reads, number: int) -> FileInode:
    inode = inode_of(reads, number)
    assert isinstance(inode, FileInode), "an entry holds the kind of what it names"
    return inode
