"""The replicated state machine: the map of `kv.state`, to which entries of the log are applied."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from paxosblock.namenode.kv.codec import decode_transaction
from paxosblock.namenode.kv.interface import Committed, Conflict, Transaction
from paxosblock.namenode.kv.state import NOTHING, Snapshot, StateMachine
from paxosblock.namenode.raft.entry import Entry, EntryKind
from paxosblock.units import KIB

LONG_BYTES = 16 * KIB
"""A transaction may be of many keys from this size on."""

_NOTHING = Transaction()


@dataclass(frozen=True, slots=True)
class MachineSnapshot:
    """The map after an entry of `term`."""

    term: int
    state: Snapshot

    @property
    def index(self) -> int:
        return self.state.revision


EMPTY = MachineSnapshot(0, NOTHING)


class ReplicatedMachine(StateMachine):
    """The map of one member. It stays the same object, so a `View` of it never goes stale."""

    def apply_entry(self, index: int, entry: Entry) -> Committed | Conflict:
        """Apply the entry at `index`, the one after those applied before."""
        assert index == self.revision + 1, "the log is applied without gaps"
        match entry.kind:
            case EntryKind.NOOP:
                return self.apply(index, _NOTHING)
            case EntryKind.TRANSACTION:
                return self.apply(index, decode_transaction(entry.payload))

    def entry_in_slices(
        self, index: int, entry: Entry
    ) -> Generator[None, None, Committed | Conflict]:
        """As `apply_entry`; of a long transaction a slice with each step (`apply_in_slices`)."""
        if entry.kind is EntryKind.TRANSACTION and len(entry.payload) >= LONG_BYTES:
            assert index == self.revision + 1, "the log is applied without gaps"
            return (yield from self.apply_in_slices(index, decode_transaction(entry.payload)))
        return self.apply_entry(index, entry)

    def snapshot_after(self, term: int) -> MachineSnapshot:
        """Return the map as it is now; `term` is that of the entry applied last."""
        return MachineSnapshot(term, self.snapshot())

    def adopt(self, other: ReplicatedMachine) -> None:
        """Change places with `other`, the later state."""
        assert other.revision > self.revision, "a member never goes back"
        self._revision, other._revision = other._revision, self._revision
        self._items, other._items = other._items, self._items
