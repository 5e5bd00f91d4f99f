"""The replicated state machine: the map of `kv.state`, to which entries of the log are applied."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from paxosblock.namenode.kv.codec import decode_edit
from paxosblock.namenode.kv.interface import Committed, Conflict, Edit
from paxosblock.namenode.kv.state_machine import StateMachine, is_long
from paxosblock.namenode.kv.table import SLICE_KEYS, Table
from paxosblock.namenode.raft.entry import Entry, EntryKind
from paxosblock.namenode.raft.roster import ListEntry, decode_list

Slices = Generator[None, None, Committed | Conflict]
"""Applies an entry, step by step."""

LIST_KEY: Final = b"\0"
"""The key of the members' list in the map, so that each flush, checkpoint and copy has it with the
entries before it. The keys of the catalog begin with letters."""

_NOTHING = Edit()


class ReplicatedMachine(StateMachine):
    """The map of one member. It stays the same object, so that views of it stay valid."""

    def apply_entry(
        self, index: int, entry: Entry, known: Edit | None = None
    ) -> Committed | Conflict | Slices:
        """Apply the entry at `index`, which must be the next one; if it is long, return the slices
        in which `apply_in_slices` does it.

        `known` is its edit, if that need not be decoded.
        """
        if entry.kind is EntryKind.NOOP:
            return self.apply(index, _NOTHING, entry.term)
        if entry.kind is EntryKind.MEMBERS:
            return self.apply(index, _edit_of(entry), entry.term)
        edit = known or decode_edit(entry.payload)
        if len(entry.payload) >= SLICE_KEYS and is_long(edit):  # a key takes more than a byte
            return self.apply_in_slices(index, edit, entry.term)
        return self.apply(index, edit, entry.term)

    def apply_whole(self, index: int, entry: Entry) -> None:
        """Apply the entry at `index` in one step, however long it is, before anything is served."""
        self.apply(index, _edit_of(entry), entry.term)

    @property
    def members(self) -> ListEntry | None:
        """Return the list of members in the map; None if it never changed.

        Raises:
            CorruptionError: it is none.
        """
        found = self._table.get(LIST_KEY)
        return ListEntry(found.revision, decode_list(found.value)) if found.exists else None

    def adopt(self, table: Table) -> Table:
        """Go on from `table`, which is later; return the earlier table, which is now unused."""
        assert table.revision > self.revision, "a member never goes back"
        before = self._table
        table.on_damage = before.on_damage
        self._go_on_from(table)
        return before


def _edit_of(entry: Entry) -> Edit:
    match entry.kind:
        case EntryKind.NOOP:
            return _NOTHING
        case EntryKind.EDIT:
            return decode_edit(entry.payload)
        case EntryKind.MEMBERS:
            return Edit(puts=((LIST_KEY, entry.payload),))
