"""The state machine: what a transaction does to the map. Pure; every member gets the same map.

No clock, no randomness, no I/O. What goes wrong in a transaction is a result, not an exception,
because each member must come to the same end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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

    def _change(self, index: int, transaction: Transaction) -> None:
        items = self._items
        for key in transaction.deletes:
            items.remove(key)
        for key, value in transaction.puts:
            items.put(key, Versioned(value, index))
