"""The past of the map: what entries replaced, kept as long as it is held.

A *hold* is a key under `HOLD`. It holds one revision: the map as it was after the entry that wrote
the hold, or after the one that its value names. The *window*, a key `WINDOW` of the same kind,
holds all revisions from its own on. When an entry with the index `e` replaces or removes a key of
one of the `KINDS`, whose revision is `b`, and a revision in [b, e) is held, the state machine also
writes a *before-image*: what the key held from `b` until `e`. Without a hold it writes none.
`PastView` shows the map at a held revision; keys of other kinds it shows as they are.

An edit that changes holds or the window also writes or removes `HOLDS`: that tells the state
machine to look for them, and is what a decision expects that must know all of them. Keys of the
`KINDS` have one length, or end in a text without a NUL byte, so before-images sort as their keys
do.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import groupby, islice
from operator import itemgetter
from typing import Final, Protocol

import msgspec

from paxosblock.namenode.kv.interface import ABSENT, Item, Versioned, prefix_range
from paxosblock.namenode.kv.table import Table

HOLDS: Final = b"H"
HOLD: Final = b"S"
WINDOW: Final = b"R"
IMAGE: Final = b"I"
KINDS: Final = frozenset(b"efity")

EVER: Final = 1 << 62
"""Greater than each revision."""

_INDEX = struct.Struct(">Q")
_BEHIND: Final = b"\x01"
"""Sorts behind each index, whose first byte is 0."""


class Readable(Protocol):
    """The part of a view that is read here."""

    def get(self, key: bytes) -> Versioned:
        """Return the value and revision of `key`."""

    def scan(
        self, start: bytes, end: bytes, limit: int | None = None, reverse: bool = False
    ) -> Iterator[Item]:
        """Yield the keys in [start, end) with their values."""


class KeptVersion(msgspec.Struct, frozen=True, gc=False):
    """A value that a key had after the entry `begin` and before the entry `end`; None: it still
    has it."""

    begin: int
    end: int | None
    value: bytes

    def at(self, revision: int) -> bool:
        """True if the key had this value at a revision."""
        return self.begin <= revision and (self.end is None or revision < self.end)


def hold_value(revision: int, rest: bytes) -> bytes:
    """Encode the value of a hold; revision 0: that of the entry that writes it."""
    return _INDEX.pack(revision) + rest


def held_revision(hold: Versioned) -> int:
    """Return the revision that a hold holds."""
    revision: int = _INDEX.unpack_from(hold.value)[0]
    return revision or hold.revision


def hold_rest(hold: Versioned) -> bytes:
    """Return the rest of the value of a hold."""
    return hold.value[_INDEX.size :]


def image_key(key: bytes, end: int) -> bytes:
    """Return the key of what `key` held until the entry `end`."""
    return IMAGE + key + _INDEX.pack(end)


def image_of(before: Versioned) -> bytes:
    """Encode what a key held."""
    return _INDEX.pack(before.revision) + before.value


def imaged_key(image: bytes) -> bytes:
    """Return the key that a before-image is of."""
    return image[len(IMAGE) : -_INDEX.size]


def image_version(image: bytes, found: Versioned) -> KeptVersion:
    """Return what a before-image keeps."""
    (end,) = _INDEX.unpack_from(image, len(image) - _INDEX.size)
    (begin,) = _INDEX.unpack_from(found.value)
    return KeptVersion(begin, end, found.value[_INDEX.size :])


def versions(reads: Readable, key: bytes) -> Iterator[KeptVersion]:
    """Yield the values of a key that are kept, the oldest first, and the one that it has now."""
    for image, found in reads.scan(IMAGE + key + _INDEX.pack(0), IMAGE + key + _BEHIND):
        yield image_version(image, found)
    live = reads.get(key)
    if live.exists:
        yield KeptVersion(live.revision, None, live.value)


class Holds:
    """The revisions that are held, as a state machine knows them between two entries."""

    def __init__(self, holds: Iterable[Versioned], *, window: bool = False) -> None:
        """Begin with those of the map; with a window all to come are held, too."""
        self._all = sorted(held_revision(hold) for hold in holds)
        self.newest = 0
        """The newest revision that is held; 0 if there is none, `EVER` with a window."""
        self._note_newest(window=window)

    def images(self, table: Table, keys: Iterable[bytes], index: int) -> Iterator[Item | None]:
        """Yield the before-images of keys that the entry `index` changes; None for a key without.

        All that is held is older than the entry: so the newest is in [b, e) if any is.
        """
        newest = self.newest
        for key in keys:
            if key[0] in KINDS and 0 < (before := table.get(key)).revision <= newest:
                yield image_key(key, index), Versioned(image_of(before), index)
            else:
                yield None

    def changed(
        self, before: Iterable[Versioned], after: Iterable[Versioned], *, window: bool
    ) -> None:
        """Note the holds that an entry removed or replaced, those that it wrote, and if there is a
        window since."""
        for hold in before:
            del self._all[bisect_left(self._all, held_revision(hold))]
        for hold in after:
            insort(self._all, held_revision(hold))
        self._note_newest(window=window)

    def _note_newest(self, *, window: bool) -> None:
        self.newest = EVER if window else (self._all[-1] if self._all else 0)


def holds_of(table: Table) -> Holds:
    """Return the holds of a table."""
    window = table.count(WINDOW) > 0
    if not table.count(HOLD):
        return Holds((), window=window)  # nothing is read, which may be damaged
    return Holds((hold for _, hold in table.scan(*prefix_range(HOLD))), window=window)


class PastView:
    """The map at a held revision. It is as good as the view that it reads."""

    def __init__(self, reads: Readable, revision: int) -> None:
        """Show what `reads` was after the entry `revision`."""
        self._reads = reads
        self.revision = revision

    def get(self, key: bytes) -> Versioned:
        """Return the value and revision of `key`; `ABSENT` when it was not there."""
        if key[0] not in KINDS:
            return self._reads.get(key)
        behind = image_key(key, self.revision + 1), IMAGE + key + _BEHIND
        for image, found in self._reads.scan(*behind, 1):
            return self._as_found(image_version(image, found))
        live = self._reads.get(key)
        return live if live.revision <= self.revision else ABSENT

    def scan(
        self, start: bytes, end: bytes, limit: int | None = None, reverse: bool = False
    ) -> Iterator[Item]:
        """Yield the keys in [start, end) that were there, with their values: all of one kind."""
        if start[0] not in KINDS:
            return self._reads.scan(start, end, limit, reverse)
        return islice(self._scan(start, end, reverse), limit)

    def _scan(self, start: bytes, end: bytes, reverse: bool) -> Iterator[Item]:
        live = (
            (key, KeptVersion(found.revision, None, found.value))
            for key, found in self._reads.scan(start, end, None, reverse)
        )
        kept = (
            (imaged_key(image), image_version(image, found))
            for image, found in self._reads.scan(
                IMAGE + start, IMAGE + end + _BEHIND, None, reverse
            )
            if start <= imaged_key(image) < end
        )
        both = merge(kept, live, key=itemgetter(0), reverse=reverse)
        for key, of_key in groupby(both, key=itemgetter(0)):
            for _, version in of_key:
                if version.at(self.revision):
                    yield key, self._as_found(version)

    def _as_found(self, version: KeptVersion) -> Versioned:
        if version.begin > self.revision:
            return ABSENT
        return Versioned(version.value, version.begin)
