"""The replicated state machine: the map of `kv.state`, to which entries of the log are applied."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from paxosblock.namenode.kv.codec import decode_edit
from paxosblock.namenode.kv.interface import Committed, Conflict, Edit
from paxosblock.namenode.kv.recent_entries import BESIDE_BYTES, NO_CHANGE, RecentEntries
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

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self.recent = RecentEntries(table)

    def apply_entry(
        self, index: int, entry: Entry, known: Edit | None = None
    ) -> Committed | Conflict | Slices:
        """Apply the entry at `index`, which must be the next one; if it is long, return the slices
        in which `apply_in_slices` does it.

        `known` is its edit, if that need not be decoded.
        """
        if entry.kind is not EntryKind.EDIT:
            self.apply_whole(index, entry)
            return Committed(index)
        payload = entry.payload
        edit = known or decode_edit(payload)
        if len(payload) >= SLICE_KEYS and is_long(edit):  # a key takes more than a byte
            return self._apply_long(index, entry, edit)
        result = self.apply(index, edit, entry.term)
        recent = self.recent  # as `note`, without the call: each change goes through here
        recent.payloads.append(payload if type(result) is Committed else NO_CHANGE)
        recent.room_bytes -= len(payload) + BESIDE_BYTES
        if recent.room_bytes < 0:
            recent.turn()
        return result

    def _apply_long(self, index: int, entry: Entry, edit: Edit) -> Slices:
        result = yield from self.apply_in_slices(index, edit, entry.term)
        self._note(entry, result)
        return result

    def apply_whole(self, index: int, entry: Entry) -> None:
        """Apply the entry at `index` in one step, however long it is, before anything is served."""
        self._note(entry, self.apply(index, _edit_of(entry), entry.term))

    def _note(self, entry: Entry, result: Committed | Conflict) -> None:
        changed = entry.kind is EntryKind.EDIT and isinstance(result, Committed)
        self.recent.note(entry.payload if changed else NO_CHANGE)

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
        self.recent.begin(table)
        return before


def _edit_of(entry: Entry) -> Edit:
    match entry.kind:
        case EntryKind.NOOP:
            return _NOTHING
        case EntryKind.EDIT:
            return decode_edit(entry.payload)
        case EntryKind.MEMBERS:
            return Edit(puts=((LIST_KEY, entry.payload),))
