"""The replicated state machine: the map of `kv.state`, to which entries of the log are applied."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass

from paxosblock.namenode.kv.codec import decode_transaction
from paxosblock.namenode.kv.interface import Committed, Conflict, Transaction
from paxosblock.namenode.kv.memory_table import MemoryTable
from paxosblock.namenode.kv.snapshot import NOTHING, Snapshot
from paxosblock.namenode.kv.state import StateMachine
from paxosblock.namenode.raft.entry import Entry, EntryKind

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

    def __init__(self, snapshot: Snapshot = NOTHING) -> None:
        """Start empty, or from a `snapshot`."""
        super().__init__(MemoryTable(snapshot))

    @property
    def _memory(self) -> MemoryTable:
        assert isinstance(self._table, MemoryTable), "a member keeps the whole map in memory"
        return self._table

    def apply_entry(
        self, index: int, entry: Entry, known: Transaction | None = None
    ) -> Generator[None, None, Committed | Conflict]:
        """Apply the entry at `index`, the one after those applied before, as `apply_in_slices`.

        `known` is its transaction, if it need not be decoded.
        """
        assert index == self.revision + 1, "the log is applied without gaps"
        if entry.kind is EntryKind.NOOP:
            return self.apply(index, _NOTHING)
        return (yield from self.apply_in_slices(index, known or decode_transaction(entry.payload)))

    def snapshot_after(self, term: int) -> MachineSnapshot:
        """Return the map as it is now; `term` is that of the entry applied last."""
        return MachineSnapshot(term, self._memory.snapshot())

    def adopt(self, other: ReplicatedMachine) -> None:
        """Change places with `other`, the later state."""
        assert other.revision > self.revision, "a member never goes back"
        self._table, other._table = other._table, self._table

    def dissolve(self) -> Iterator[None]:
        """Let go of the map, a little with each step; nobody uses this machine any more."""
        return self._memory.dissolve()
