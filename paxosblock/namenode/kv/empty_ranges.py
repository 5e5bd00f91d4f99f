"""Ranges without keys that scans have found, so that later scans need not look at them again.

A removed key stays in the way of an iterator until it is compacted, and an iterator costs as much
as ten values.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from paxosblock.namenode.kv.interface import prefix_range

OWNER_BYTES: Final = 9
"""Length of the prefix that the keys of one owner share: in the catalog a letter and a number, as
in the keys of a directory's entries or of a file's places."""

EMPTY_MAX: Final = 4096
"""Number of owners whose empty ranges are remembered."""


class EmptyRanges:
    """The known gaps between the keys of a table."""

    def __init__(self) -> None:
        """Know of none."""
        self._first: dict[int, tuple[bytes, bytes]] = {}
        """A range for each first byte: a caller that takes the first keys again and again, as the
        sweeper does, would pass all removed keys each time."""
        self._empty: dict[bytes, tuple[bytes, bytes]] = {}
        """A range for each owner, which ends with its keys: a change looks at it when it is decided
        and again when it is applied."""
        self.last: dict[int, bytes] = {}
        """For each first byte, once that is known, a key that no other is greater than: a new owner
        has a number greater than all before it, and no keys yet."""

    def behind(self, start: bytes) -> bytes:
        """Return the first place from `start` on where a key may be."""
        first, end = self._first.get(start[0], (b"", b""))
        return end if first <= start < end else start

    def is_empty(self, start: bytes, end: bytes) -> bool:
        """True if no key is in [start, end), as far as is known."""
        known = self._empty.get(start[:OWNER_BYTES])
        if known is not None and known[0] <= start and known[1] == end:
            return True
        last = self.last.get(start[0])
        if last is None or start <= last or not start < end <= _behind(start[0]):
            return False
        self.note_empty(start, end)  # others may have greater keys soon
        return True

    def _raise(self, key: bytes) -> None:
        last = self.last.get(key[0])
        if last is not None and last < key:
            self.last[key[0]] = key

    def is_behind(self, key: bytes) -> bool:
        """True if no key like `key`, nor a greater one with its first byte, is there."""
        last = self.last.get(key[0])
        return last is not None and last < key

    def note(self, start: bytes, end: bytes) -> None:
        """Remember that a scan found no key from `start` up to `end`; `b""`: to the last key."""
        byte = start[0]
        if end[:1] != start[:1]:  # a gap is that of one first byte
            if byte == 255:
                return
            end = _behind(byte)
        first, behind = self._first.get(byte, (b"", b""))
        self._first[byte] = (first if first <= start < behind else start, end)

    def note_empty(self, start: bytes, end: bytes) -> None:
        """Remember that a scan found no key in [start, end), if that ends with an owner's keys."""
        owner = start[:OWNER_BYTES]
        if len(owner) == OWNER_BYTES and end == prefix_range(owner)[1]:
            if len(self._empty) >= EMPTY_MAX:
                self._empty.clear()
            self._empty[owner] = start, end

    def fill(self, key: bytes) -> None:
        """Take the place of `key`, which is added, out of the gaps."""
        self._empty.pop(key[:OWNER_BYTES], None)
        self._raise(key)
        first, end = self._first.get(key[0], (b"", b""))
        if first <= key < end:
            self._first[key[0]] = (first, key)

    def fill_some(self, greatest: Iterable[bytes]) -> None:
        """Forget all gaps, as many keys are added, but those behind the last keys: `greatest` has
        the last key of each first byte."""
        self._first.clear()
        self._empty.clear()
        for key in greatest:
            self._raise(key)


def _behind(byte: int) -> bytes:
    """Return the end of the keys that begin with a byte, which is not 255."""
    return bytes((byte + 1,))
