"""Ids of files and blocks. They are reserved in ranges, so that creating does not conflict.

A block id is the cluster's tag (20 bits) and a number (32 bits): 52 bits, so that JSON keeps it
exact. The tag is drawn when the cluster is made, and again whenever a backup is brought back, so
that no block that was made since the backup has the id of another. The cluster's id keeps DataNodes
of other clusters out. A DataNode of another cluster from before there were such ids reports blocks
with another tag: they raise an alarm and are never deleted.
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import replace
from typing import Protocol

from paxosblock.errors import NotReadyError
from paxosblock.namenode.catalog import keys
from paxosblock.namenode.catalog.records import ClusterRecord, decode_cluster, encode
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
"""Ids of files behind those that a backup knows, at least: they have no fewer than 64 bits."""
FILES_PLACES = 1 << 12
"""The places at which they may go on after that; JSON keeps what is below 2^53 exact."""


def block_id(tag: int, number: int) -> BlockId:
    """Return the id of the cluster's block `number`."""
    return BlockId(tag << NUMBER_BITS | number)


def was_allocated(view: View, cluster: ClusterRecord, block: BlockId) -> bool:
    """True if this cluster may have made `block`, whether it is deleted or not."""
    if block >> NUMBER_BITS != cluster.block_tag:
        return block >> NUMBER_BITS in cluster.earlier_tags
    found = view.get(keys.BLOCK_COUNTER)
    return found.exists and block & ((1 << NUMBER_BITS) - 1) < keys.unpack_number(found.value)


def skipped(catalog: Gets) -> dict[bytes, bytes]:
    """Return what `catalog`, an older state of a cluster's, is to have so that no id that was given
    since is given again, whichever state is brought back how often.

    Blocks get another tag. Ids of files go on far ahead, at a place drawn at random.
    """
    counted = catalog.get(keys.FILE_COUNTER)
    files = keys.unpack_number(counted.value) if counted.exists else 1
    files += FILES_SKIPPED * (1 + secrets.randbelow(FILES_PLACES))
    found = {keys.FILE_COUNTER: keys.pack_number(files)}
    if not (known := catalog.get(keys.CLUSTER)).exists:
        return found  # no leader has begun to make files
    cluster = decode_cluster(known.value)
    earlier = (*cluster.earlier_tags, cluster.block_tag)
    cluster = replace(cluster, block_tag=_new_tag(earlier), earlier_tags=earlier)
    return found | {keys.CLUSTER: encode(cluster)}


def _new_tag(earlier: tuple[int, ...]) -> int:
    while (tag := secrets.randbelow((1 << TAG_BITS) - 1) + 1) in earlier:
        pass
    return tag


class Gets(Protocol):
    """A view, or the table of one."""

    def get(self, key: bytes, /) -> Versioned:
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
                if self._stop - self._next < count:  # no other caller has refilled it meanwhile
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
