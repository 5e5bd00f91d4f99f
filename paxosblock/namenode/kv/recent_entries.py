"""The entries that were applied last, and the values of the map before the first of them.

The change feed makes out what each of them changed (`catalog/name_changes.py`) once it is asked.
Until then an entry costs an append to a list: what is kept is its payload, which is in memory
anyway.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from paxosblock.base.units import MIB
from paxosblock.namenode.kv.interface import Values
from paxosblock.namenode.kv.table import Table

PART_BYTES: Final = 8 * MIB
"""Bytes of entries in each of the two parts: the older one goes when the younger one is full."""
BESIDE_BYTES: Final = 64
"""Bytes that an entry takes beside its payload."""
NO_CHANGE: Final = b""
"""In the place of a payload: the entry changed nothing."""


@dataclass(slots=True)
class _Stretch:
    """Entries in order; `before` has the values before the first of them."""

    before: Values
    payloads: list[bytes] = field(default_factory=list)


class RecentEntries:
    """The last entries of one table; see `Recent`."""

    def __init__(self, table: Table) -> None:
        """Begin with none, after those that the table has."""
        self.begin(table)

    def begin(self, table: Table) -> None:
        """Forget all, and go on with those that come after what `table` has."""
        self._table = table
        self._older: _Stretch | None = None
        self._begin_part()

    def _begin_part(self) -> None:
        self._younger = _Stretch(self._table.values())
        self.payloads = self._younger.payloads
        """Those of the younger part, to which one is added for each entry that is applied."""
        self.room_bytes = PART_BYTES
        """Room that is left in the younger part."""

    def note(self, payload: bytes) -> None:
        """Keep the entry that was just applied; `NO_CHANGE` if it changed nothing."""
        self.payloads.append(payload)
        self.room_bytes -= len(payload) + BESIDE_BYTES
        if self.room_bytes < 0:
            self.turn()

    def turn(self) -> None:
        """Drop the older part, and begin another one. Its values go with the last one that reads
        them."""
        self._older = self._younger
        self._begin_part()

    @property
    def oldest(self) -> int:
        return (self._older or self._younger).before.revision

    @property
    def latest(self) -> int:
        return self._younger.before.revision + len(self.payloads)

    def before(self, index: int) -> Values:
        if self._older is not None and index < self._younger.before.revision:
            return self._older.before
        return self._younger.before

    def payload(self, index: int) -> bytes:
        part = self._younger
        if self._older is not None and index <= part.before.revision:
            part = self._older
        return part.payloads[index - part.before.revision - 1]

    def values(self) -> Values:
        return self._table.values()
