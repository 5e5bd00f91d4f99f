"""The state machine: what a transaction does to the map. Pure; every member gets the same map.

No clock, no randomness, no I/O. What goes wrong in a transaction is a result, not an exception,
because each member must come to the same end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from sortedcontainers import SortedDict

from paxosblock.namenode.kv.interface import (
    ABSENT,
    ABSENT_REVISION,
    Committed,
    Conflict,
    Expect,
    ExpectEmpty,
    Transaction,
    Versioned,
)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The map after log entry `revision`; `values[i]` belongs to `keys[i]`, in no given order."""

    revision: int
    keys: list[bytes]
    values: list[Versioned]


class StateMachine:
    """The map after the log entries up to `revision`. It is its own `View`."""

    def __init__(self, snapshot: Snapshot | None = None) -> None:
        """Start empty, or from a `snapshot`."""
        start = snapshot or Snapshot(0, [], [])
        self._revision = start.revision
        self._items: SortedDict = SortedDict(zip(start.keys, start.values, strict=True))

    def __repr__(self) -> str:
        return f"StateMachine(revision={self._revision}, keys={len(self._items)})"

    def __len__(self) -> int:
        return len(self._items)

    @property
    def revision(self) -> int:
        return self._revision

    def get(self, key: bytes) -> Versioned:
        found: Versioned = self._items.get(key, ABSENT)
        return found

    def scan(
        self, start: bytes, end: bytes, limit: int | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, Versioned]]:
        items = self._items
        return ((key, items[key]) for key in islice(self._keys(start, end, reverse), limit))

    def apply(self, index: int, transaction: Transaction) -> Committed | Conflict:
        """Apply log entry `index`, which is later than any applied before.

        An entry whose preconditions do not hold changes nothing but `revision`.
        """
        assert index > self._revision, "a log entry is applied once and in order"
        self._revision = index
        for precondition in transaction.expect:
            conflict = self._conflict(precondition)
            if conflict is not None:
                return conflict
        self._change(index, transaction)
        return Committed(index)

    def snapshot(self) -> Snapshot:
        """Return a shallow copy, which later entries do not change; about 10 ns per key."""
        # dict's own views: SortedDict's, and its copy(), would cost ten times as much on the
        # event loop. The values are immutable, so nothing deeper needs copying.
        items = self._items
        return Snapshot(self._revision, list(dict.keys(items)), list(dict.values(items)))

    def _keys(self, start: bytes, end: bytes, reverse: bool = False) -> Iterator[bytes]:
        keys: Iterator[bytes] = self._items.irange(start, end or None, (True, False), reverse)
        return keys

    def _conflict(self, precondition: Expect | ExpectEmpty) -> Conflict | None:
        match precondition:
            case Expect(key, expected):
                found = self.get(key).revision
                return None if found == expected else Conflict(key, expected, found)
            case ExpectEmpty(start, end):
                for key in self._keys(start, end):
                    return Conflict(key, ABSENT_REVISION, self.get(key).revision)
                return None

    def _change(self, index: int, transaction: Transaction) -> None:
        items = self._items
        for start, end in transaction.delete_ranges:
            for key in list(self._keys(start, end)):
                del items[key]
        for key in transaction.deletes:
            items.pop(key, None)
        for key, value in transaction.puts:
            items[key] = Versioned(value, index)
