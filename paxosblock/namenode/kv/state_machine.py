"""The state machine: what an edit does to the map. Every member gets the same map.

It uses no clock and no randomness. A conflict is a result, not an exception, because each member
must come to the same end.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import chain, islice

from paxosblock.errors import UnavailableError
from paxosblock.namenode.kv.interface import (
    ABSENT,
    ABSENT_REVISION,
    COUNTERS,
    BeginCounter,
    Committed,
    Conflict,
    Edit,
    EndCounter,
    Expect,
    ExpectEmpty,
    Item,
    Moment,
    Versioned,
    counter_total,
    pack_counter,
)
from paxosblock.namenode.kv.past import HOLD, HOLDS, WINDOW, holds_of
from paxosblock.namenode.kv.table import SLICE_KEYS, Changes, CheckpointCopy, Flush, OnDamage, Table

EMPTY_KEYS = 20
"""Number of keys that one check for an empty range counts as."""


def is_long(edit: Edit) -> bool:
    """True if other tasks should have a turn while the edit is applied."""
    return len(edit.expect) + len(edit.puts) + len(edit.deletes) >= SLICE_KEYS


class UnopenedView:
    """The `View` of a store that is not open yet: it holds nothing."""

    revision = 0
    has_counters = False

    def get(self, key: bytes) -> Versioned:
        return ABSENT

    def scan(
        self, start: bytes, end: bytes, limit: int | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, Versioned]]:
        return iter(())

    def count(self, first: bytes) -> int:
        return 0

    def read_some(self, start: bytes, keys: int) -> bytes | None:
        return None

    def moment(self) -> Moment:
        raise UnavailableError("the store is not open yet")


class StateMachine:
    """The map after the log entries up to `revision`, kept in a table. It is its own `View`."""

    def __init__(self, table: Table) -> None:
        """Go on from what `table` holds."""
        self._go_on_from(table)

    def _go_on_from(self, table: Table) -> None:
        self._table = table
        self._holds = holds_of(table)
        self.get = table.get  # without a call between them: a small change reads ten keys
        self.has_counters = table.count(COUNTERS) > 0
        """An attribute, as each change looks at it: True if there is a counter."""

    def __repr__(self) -> str:
        return f"StateMachine(revision={self.revision}, keys={len(self)})"

    def __len__(self) -> int:
        return len(self._table)

    def __iter__(self) -> Iterator[Item]:
        """Yield all keys with their values, in order."""
        return self._table.scan(b"", b"")

    @property
    def revision(self) -> int:
        return self._table.revision

    @property
    def term(self) -> int:
        """Return the term of entry `revision`; 0 before the first one."""
        return self._table.term

    def scan(
        self, start: bytes, end: bytes, limit: int | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, Versioned]]:
        return islice(self._table.scan(start, end, reverse), limit)

    def count(self, first: bytes) -> int:
        return self._table.count(first)

    def read_some(self, start: bytes, keys: int) -> bytes | None:
        return self._table.read_some(start, keys)

    def moment(self) -> Moment:
        return self._table.moment()

    def watch(self, on_damage: OnDamage) -> None:
        """Let `on_damage` hear of damage of the table, and say what its readers get."""
        self._table.on_damage = on_damage

    def apply(self, index: int, edit: Edit, term: int = 0) -> Committed | Conflict:
        """Apply log entry `index` of `term`, which comes after all that were applied before.

        An entry whose preconditions do not hold changes nothing but `revision`.

        Raises:
            StorageError: the table can no longer be used.
        """
        assert index > self._table.revision, "a log entry is applied once and in order"
        get = self._table.get
        for precondition in edit.expect:
            if (
                isinstance(precondition, Expect)
                and get(precondition.key).revision == precondition.revision
            ):
                continue  # as nearly always, without the call below
            conflict = self._conflict(precondition)
            if conflict is not None:
                self._table.write(index, {}, term)
                return conflict
        changes: Changes = dict.fromkeys(edit.deletes, ABSENT)
        for key, value in edit.puts:
            changes[key] = Versioned(value, index)
        if self._holds.newest:
            images = self._holds.images(self._table, tuple(changes), index)
            changes.update(image for image in images if image is not None)
        if edit.counts:
            conflict = self._add_counted(index, edit, changes)
            if conflict is not None:
                self._table.write(index, {}, term)
                return conflict
        held = HOLDS in changes and self._changes_of_holds(changes)
        self._table.write(index, changes, term)
        if edit.counts:
            self.has_counters = self._table.count(COUNTERS) > 0
        if held:
            self._holds.changed(*held, window=self._table.count(WINDOW) > 0)
        return Committed(index)

    def apply_in_slices(
        self, index: int, edit: Edit, term: int = 0
    ) -> Generator[None, None, Committed | Conflict]:
        """Apply a log entry as `apply` does, and yield where other tasks may have a turn.

        Reads in those turns see the state before the entry, as a whole, and no other entry may be
        applied in them. A caller that stops before the end leaves the state as it was.
        """
        if not is_long(edit):
            return self.apply(index, edit, term)
        looked = 0
        for precondition in edit.expect:
            conflict = self._conflict(precondition)
            if conflict is not None:
                self._table.write(index, {}, term)
                return conflict
            looked += 1 if isinstance(precondition, Expect) else EMPTY_KEYS
            if looked >= SLICE_KEYS:
                looked = 0
                yield
        changes: Changes = {}
        put = ((key, Versioned(value, index)) for key, value in edit.puts)
        for number, (key, found) in enumerate(
            chain(((key, ABSENT) for key in edit.deletes), put), 1
        ):
            changes[key] = found
            if number % SLICE_KEYS == 0:
                yield
        if self._holds.newest:
            images = self._holds.images(self._table, tuple(changes), index)
            for number, image in enumerate(images, 1):
                if image is not None:
                    changes[image[0]] = image[1]
                if number % SLICE_KEYS == 0:
                    yield
        conflict = self._add_counted(index, edit, changes)
        if conflict is not None:
            self._table.write(index, {}, term)
            return conflict
        held = HOLDS in changes and self._changes_of_holds(changes)
        yield from self._table.write_in_slices(index, changes, term)
        self.has_counters = self._table.count(COUNTERS) > 0
        if held:
            self._holds.changed(*held, window=self._table.count(WINDOW) > 0)
        return Committed(index)

    def flush(self) -> Flush:
        """Return the flush that makes durable all that is applied by now."""
        return self._table.flush()

    def checkpoint(self) -> CheckpointCopy:
        """Return the copy, for another folder, of all that is applied by now."""
        return self._table.checkpoint()

    def close(self) -> int:
        """Release the table's files; blocks. Return the entry after which the durable table is; 0
        if that is not known."""
        return self._table.close()

    def _changes_of_holds(self, changes: Changes) -> tuple[list[Versioned], list[Versioned]]:
        """Return the holds that changes remove or replace, and those that they write."""
        keys = [key for key in changes if key.startswith(HOLD)]
        before = [found for key in keys if (found := self._table.get(key)).exists]
        return before, [changes[key] for key in keys if changes[key].exists]

    def _add_counted(self, index: int, edit: Edit, changes: Changes) -> Conflict | None:
        """Put the counters that an edit changes among its `changes`, or return what keeps it from
        that."""
        get = self._table.get
        for change in edit.counts:
            key = change.key
            if isinstance(change, BeginCounter):
                changes[key] = Versioned(pack_counter(0), index)
            elif isinstance(change, EndCounter):
                changes[key] = ABSENT
            elif (found := changes.get(key) or get(key)).exists:
                added = change.amount + sum(
                    factor * counter_total(get(other)) for other, factor in change.of
                )
                total = counter_total(found) + added
                if added > 0 and 0 <= change.most < total:
                    return Conflict(key, found.revision, found.revision)
                changes[key] = Versioned(pack_counter(total), index)
        return None

    def _conflict(self, precondition: Expect | ExpectEmpty) -> Conflict | None:
        if isinstance(precondition, Expect):  # nearly all are; `match` would take twice as long
            key, expected = precondition.key, precondition.revision
            found = self._table.get(key).revision
            return None if found == expected else Conflict(key, expected, found)
        for key, there in self._table.scan(precondition.start, precondition.end):
            return Conflict(key, ABSENT_REVISION, there.revision)
        return None
