"""Ids of files and blocks. They are reserved in ranges, so that creating does not conflict.

A block id is the cluster's tag (20 bits) and a number (32 bits): 52 bits, so that JSON keeps it
exact. The tag is drawn when the cluster is made. The cluster's id keeps DataNodes of other clusters
out. A DataNode of another cluster from before there were such ids reports blocks with another tag:
they raise an alarm and are never deleted.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from paxosblock.errors import NotReadyError
from paxosblock.namenode.catalog import keys
from paxosblock.namenode.kv.interface import Committed, Edit, Expect, KeyValueStore, Versioned, View
from paxosblock.protocol.types import BlockId

RANGE = 1000
"""Ids reserved by one edit. Those that a process leaves over are never used."""
FILES_RANGE = 100_000
"""The same for files: all that make one wait for the edit, and 64 bits are enough."""
ATTEMPTS = 100
TAG_BITS = 20
NUMBER_BITS = 32
FILES_SKIPPED = 1 << NUMBER_BITS
"""Ids of files behind those that a backup knows: they have no fewer than 64 bits."""


def block_id(tag: int, number: int) -> BlockId:
    """Return the id of the cluster's block `number`."""
    return BlockId(tag << NUMBER_BITS | number)


def was_allocated(view: View, tag: int, block: BlockId) -> bool:
    """True if this cluster may have made `block`, whether it is deleted or not."""
    if block >> NUMBER_BITS != tag:
        return False
    found = view.get(keys.BLOCK_COUNTER)
    return found.exists and block & ((1 << NUMBER_BITS) - 1) < keys.unpack_number(found.value)


def skipped(catalog: Gets) -> dict[bytes, bytes]:
    """Return counters far ahead of those in `catalog`, an older state of a cluster's: no id that
    was given since is given again.

    A sixteenth of the numbers of blocks that are left is enough for months, and never uses up all.
    """
    files = _counted(catalog, keys.FILE_COUNTER) + FILES_SKIPPED
    blocks = _counted(catalog, keys.BLOCK_COUNTER)
    blocks += ((1 << NUMBER_BITS) - blocks) // 16
    numbers = {keys.FILE_COUNTER: files, keys.BLOCK_COUNTER: blocks}
    return {key: keys.pack_number(number) for key, number in numbers.items()}


def _counted(catalog: Gets, key: bytes) -> int:
    found = catalog.get(key)
    return keys.unpack_number(found.value) if found.exists else 1


class Gets(Protocol):
    """A view, or the table of one."""

    def get(self, key: bytes) -> Versioned:
        """Return the value of `key`."""


class IdPool:
    """Hands out numbers that no other process or run gets: `key` holds the next unreserved one."""

    def __init__(self, store: KeyValueStore, key: bytes, first: int, at_once: int = RANGE) -> None:
        """Start empty; nothing is reserved before the first `take`."""
        self._store = store
        self._key = key
        self._first = first
        self._at_once = at_once
        self._next = 0
        self._stop = 0
        self._refilling = asyncio.Lock()

    async def take(self, count: int = 1) -> range:
        """Return `count` fresh numbers in a row.

        Raises:
            NotReadyError: other NameNodes reserve all the time.
        """
        while self._stop - self._next < count:
            async with self._refilling:
                if self._stop - self._next < count:  # nobody else has refilled it meanwhile
                    reserved = max(count, self._at_once)
                    self._next = await self._reserve(reserved)
                    self._stop = self._next + reserved
        taken = range(self._next, self._next + count)
        self._next = taken.stop
        return taken

    async def _reserve(self, count: int) -> int:
        for _ in range(ATTEMPTS):
            found = (await self._store.barrier()).get(self._key)
            start = keys.unpack_number(found.value) if found.exists else self._first
            reserved = Edit(
                expect=(Expect(self._key, found.revision),),
                puts=((self._key, keys.pack_number(start + count)),),
            )
            if isinstance(await self._store.commit(reserved), Committed):
                return start
        raise NotReadyError("ids could not be reserved: other NameNodes are reserving too")
