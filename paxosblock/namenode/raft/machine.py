"""The replicated state machine: the map of `kv.state`, to which entries of the log are applied."""

from __future__ import annotations

from collections.abc import Generator

from paxosblock.namenode.kv.codec import decode_edit
from paxosblock.namenode.kv.interface import Committed, Conflict, Edit
from paxosblock.namenode.kv.state import StateMachine
from paxosblock.namenode.kv.table import Table
from paxosblock.namenode.raft.entry import Entry, EntryKind

_NOTHING = Edit()


class ReplicatedMachine(StateMachine):
    """The map of one member. It stays the same object, so that views of it stay valid."""

    def apply_entry(
        self, index: int, entry: Entry, known: Edit | None = None
    ) -> Generator[None, None, Committed | Conflict]:
        """Apply the entry at `index`, which must be the next one, as `apply_in_slices` does.

        `known` is its edit, if that need not be decoded.
        """
        assert index == self.revision + 1, "the log is applied without gaps"
        if entry.kind is EntryKind.NOOP:
            return self.apply(index, _NOTHING, entry.term)
        edit = known or decode_edit(entry.payload)
        return (yield from self.apply_in_slices(index, edit, entry.term))

    def adopt(self, table: Table) -> Table:
        """Go on from `table`, which is later; return the earlier table, which is now unused."""
        assert table.revision > self.revision, "a member never goes back"
        before = self._table
        table.on_damage = before.on_damage
        self._go_on_from(table)
        return before
