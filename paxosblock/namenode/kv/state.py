"""The state machine: what a transaction does to the map. Pure; every member gets the same map.

No clock, no randomness, no I/O. A transaction's failure is a result, not an exception,
because each member must come to the same end.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from paxosblock.namenode.kv.interface import (
    ABSENT_REVISION,
    Committed,
    Conflict,
    Expect,
    ExpectEmpty,
    Transaction,
    Versioned,
)
from paxosblock.namenode.kv.ordered_map import FrozenMap, Item, OrderedMap


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The map after log entry `revision`, in order of the keys; a `FrozenMap` is read once."""

    revision: int
    items: FrozenMap | Sequence[Item]


NOTHING = Snapshot(0, ())

SLICE_KEYS = 1000
"""Keys that are looked at or changed before others get a turn, while a long entry is applied."""

EMPTY_KEYS = 20
"""Keys that looking whether a range is empty counts as: a leaf of the map is sorted for it."""


class StateMachine:
    """The map after the log entries up to `revision`. It is its own `View`."""

    def __init__(self, snapshot: Snapshot = NOTHING) -> None:
        """Start empty, or from a `snapshot`."""
        self._revision = snapshot.revision
        self._items = OrderedMap(snapshot.items)

    def __repr__(self) -> str:
        return f"StateMachine(revision={self._revision}, keys={len(self._items)})"

    def __len__(self) -> int:
        return len(self._items)

    @property
    def revision(self) -> int:
        return self._revision

    def get(self, key: bytes) -> Versioned:
        return self._items.get(key)

    def scan(
        self, start: bytes, end: bytes, limit: int | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, Versioned]]:
        items = self._items
        return ((key, items.get(key)) for key in islice(items.keys(start, end, reverse), limit))

    def count(self, start: bytes, end: bytes) -> int:
        return self._items.count(start, end)

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
        for _ in self._changes(self._items, index, transaction):
            pass
        return Committed(index)

    def apply_in_slices(
        self, index: int, transaction: Transaction
    ) -> Generator[None, None, Committed | Conflict]:
        """Apply a log entry as `apply` does, and yield where others may have a turn.

        What is read meanwhile is the state before the entry, as a whole: the changes are made to a
        fork of the map, which takes its place at the end. No other entry is applied meanwhile. Who
        does not go on leaves the state as it was.
        """
        if len(transaction.expect) + len(transaction.puts) + len(transaction.deletes) < SLICE_KEYS:
            return self.apply(index, transaction)
        before, looked = self._revision, 0
        for precondition in transaction.expect:
            conflict = self._conflict(precondition)
            if conflict is not None:
                self._revision = index
                return conflict
            looked += 1 if isinstance(precondition, Expect) else EMPTY_KEYS
            if looked >= SLICE_KEYS:
                looked = 0
                yield
        changed = self._items.fork()
        for number, _ in enumerate(self._changes(changed, index, transaction), 1):
            if number % SLICE_KEYS == 0:
                yield
        assert self._revision == before < index, "entries are applied one after the other"
        self._items, self._revision = changed, index
        return Committed(index)

    def snapshot(self) -> Snapshot:
        """Return the map as it is now, which later entries do not change; quick (`freeze`)."""
        return Snapshot(self._revision, self._items.freeze())

    def dissolve(self) -> Iterator[None]:
        """Let go of the map, a little with each step; nobody uses this machine any more."""
        return self._items.dissolve()

    def _conflict(self, precondition: Expect | ExpectEmpty) -> Conflict | None:
        get = self._items.get
        if isinstance(precondition, Expect):  # nearly all are; `match` would take twice as long
            key, expected = precondition.key, precondition.revision
            found = get(key).revision
            return None if found == expected else Conflict(key, expected, found)
        for key in self._items.keys(precondition.start, precondition.end):
            return Conflict(key, ABSENT_REVISION, get(key).revision)
        return None

    def _changes(self, items: OrderedMap, index: int, transaction: Transaction) -> Iterator[None]:
        """Make the changes of a transaction to `items`, one with each step."""
        for key in transaction.deletes:
            items.remove(key)
            yield
        for key, value in transaction.puts:
            items.put(key, Versioned(value, index))
            yield
