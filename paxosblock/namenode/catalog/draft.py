"""An edit while it is being decided: what was read for it becomes its preconditions."""

from __future__ import annotations

import enum
from bisect import bisect_left, insort
from collections.abc import Callable, Generator, Iterator
from heapq import merge
from itertools import chain, islice
from operator import is_, itemgetter
from typing import ParamSpec, Protocol, TypeVar

from paxosblock.namenode.catalog import keys
from paxosblock.namenode.catalog.counter_sums import CounterSums
from paxosblock.namenode.catalog.records import (
    BlockEntry,
    Inode,
    Put,
    encode,
    entry_in,
    inode_in,
)
from paxosblock.namenode.kv.interface import (
    ABSENT,
    Edit,
    Expect,
    ExpectEmpty,
    Versioned,
    View,
    counter_total,
)
from paxosblock.protocol.types import BlockId

P = ParamSpec("P")
T = TypeVar("T")

Slices = Generator[None, None, T]
"""A decision that yields wherever it may be interrupted; `Changes` explains when that is sound."""


def in_one(decide: Callable[P, T]) -> Callable[P, Slices[T]]:
    """Return a plain decision as one that is never interrupted."""

    def slices(*args: P.args, **kwargs: P.kwargs) -> Slices[T]:
        yield from ()
        return decide(*args, **kwargs)

    return slices


class _Unchanged(enum.Enum):
    """Stands for a value: no earlier part has changed the key."""

    UNCHANGED = enum.auto()


class Reads(Protocol):
    """The source that a decision reads: a `View`, or a `Draft` that remembers what was read."""

    def get(self, key: bytes) -> Versioned:
        """Return the value and revision of `key`."""

    def scan(
        self, start: bytes, end: bytes, limit: int | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, Versioned]]:
        """Yield the keys in [start, end) with their values."""


def block_entry(reads: Reads, block: BlockId) -> BlockEntry | None:
    """Return a block's entry; None if there is no such block."""
    found = reads.get(keys.block(block))
    return entry_in(found) if found.exists else None


def inode_of(reads: Reads, number: int) -> Inode | None:
    """Return a file or directory by its id; None if there is none."""
    found = reads.get(keys.inode(number))
    return inode_in(found) if found.exists else None


def are_still(get: Callable[[bytes], Versioned], read: dict[bytes, Versioned]) -> bool:
    """True if each key has the very value that was read before, so that no edit changed it."""
    return all(map(is_, map(get, read), read.values()))


class Draft:
    """Reads of one decision and the changes it asks for, to become one `Edit`.

    Every key read with `get` must still have the same revision when the edit is applied;
    `peek` and `scan` are for what cannot change or does not matter. A draft shows its own changes,
    so that one decision can build on another; each of several is a *part*, which can be removed.
    It lives between two awaits, like the view it stands on, or until it is `overtaken`.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._read = view.get
        self._revision = view.revision
        self.has_counters = view.has_counters
        """True if what is made or removed may have to be counted for a quota."""
        self.sums: CounterSums | None = None
        """The changes of counters, once there is one."""
        self.work = 0
        """Number of keys read or changed, which measures how long the decision takes."""
        self._expect: dict[bytes, Versioned] = {}
        self._empty: list[ExpectEmpty] = []
        self._changes: dict[bytes, bytes | None] = {}  # None: the key is removed
        self._before: dict[bytes, bytes | _Unchanged | None] = {}
        """For each key that this part changes, the change made by earlier parts."""
        self._empty_before = 0
        self._records: dict[bytes, BlockEntry | Inode] = {}
        """Records of changes: what was put in this draft is read again without decoding."""
        self._sorted: list[bytes] | None = None  # the keys of `_changes`, once a range is read

    @property
    def applied(self) -> View:
        """The state that the draft stands on, without its changes; what is read there is no
        precondition."""
        return self._view

    def get(self, key: bytes) -> Versioned:
        """Return the value of `key`, and expect that no other change alters it before we commit."""
        self.work += 1
        if key in self._changes:
            return self._changed(key)
        found = self._expect.get(key)
        if found is None:
            found = self._expect[key] = self._read(key)
        return found

    def stands_on(self, read: dict[bytes, Versioned]) -> bool:
        """True if nothing of what was read before has changed, in this draft or below it; then all
        of it is a precondition, as after `get`."""
        self.work += len(read)
        # Of many parts each looks at what it reads, not at what all before have changed and read.
        if not self._changes.keys().isdisjoint(read) or not are_still(self._read, read):
            return False
        expect = self._expect
        for key, found in read.items():
            expect.setdefault(key, found)
        return True

    def peek(self, key: bytes) -> Versioned:
        """Return the value of `key` without making it a precondition."""
        return self._changed(key) if key in self._changes else self._view.get(key)

    def scan(
        self, start: bytes, end: bytes, limit: int | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, Versioned]]:
        """Yield keys and values without making them preconditions."""
        changed = self._changed_keys(start, end, reverse)
        if (first := next(changed, None)) is None:
            return self._view.scan(start, end, limit, reverse)
        put = (key for key in chain((first,), changed) if self._changes[key] is not None)
        kept = (
            (key, found)
            for key, found in self._view.scan(start, end, None, reverse)
            if key not in self._changes
        )
        ours = [(key, self._changed(key)) for key in islice(put, limit)]
        return islice(merge(kept, ours, key=itemgetter(0), reverse=reverse), limit)

    def expect_empty(self, span: keys.Range) -> None:
        """Require that no key lies in the range when the edit is applied, except those that
        this draft removes itself.
        """
        start, end = span
        for key in self._changed_keys(start, end):
            assert self._changes[key] is None, "a decision writes into a range it says is empty"
            self._empty.append(ExpectEmpty(start, key))
            start = key + b"\0"
        self._empty.append(ExpectEmpty(start, end))

    def put(self, key: bytes, value: bytes | None) -> None:
        """Write `key`; None removes it."""
        self.work += 1
        changes = self._changes
        if self._sorted is not None and key not in changes:
            insort(self._sorted, key)
        if key not in self._before:
            self._before[key] = changes.get(key, _Unchanged.UNCHANGED)
        changes[key] = value
        if self._records:
            self._records.pop(key, None)

    def put_inode(self, inode: Inode) -> None:
        """Write a file or directory."""
        self._put_record(keys.inode(inode.number), inode)

    def delete(self, key: bytes) -> None:
        """Remove `key`."""
        self.put(key, None)

    @property
    def counters(self) -> CounterSums:
        """The changes of counters."""
        if self.sums is None:
            self.sums = CounterSums(lambda key: counter_total(self._view.get(key)))
        return self.sums

    def move_deadline(self, subject: bytes, before_ms: int, after_ms: int) -> None:
        """Move the end of what the key `subject` holds to `after_ms`; 0 means never."""
        if before_ms:
            self.delete(keys.deadline(before_ms, subject))
        if after_ms:
            self.put(keys.deadline(after_ms, subject), b"")

    def add_block(self, entry: BlockEntry) -> None:
        """Write the record of a new block."""
        self.get(keys.block(entry.record.block))
        self._put_record(keys.block(entry.record.block), entry)

    def replace_block(self, before: BlockEntry, after: BlockEntry) -> None:
        """Write the next version of a block's record: the one place where records change (I8)."""
        after.record.check_follows(before.record)
        self._put_record(keys.block(after.record.block), after)

    @property
    def overtaken(self) -> bool:
        """True if any change was applied since the draft began, so that its reads may be old."""
        return self._view.revision != self._revision

    @property
    def changes(self) -> int:
        """Return how many keys this part writes or removes; if 0, there is nothing to commit."""
        return len(self._before)

    def begin_part(self) -> None:
        """Begin a part, which `undo_part` can remove."""
        self._before = {}
        self._empty_before = len(self._empty)
        if self.sums is not None:
            self.sums.begin_part()

    def undo_part(self) -> None:
        """Remove the changes of this part. What it has read stays a precondition."""
        for key, value in self._before.items():
            if isinstance(value, _Unchanged):
                del self._changes[key]
            else:
                self._changes[key] = value
        del self._empty[self._empty_before :]
        self._records.clear()  # earlier parts may have put others
        self._before, self._sorted = {}, None
        if self.sums is not None:
            self.sums.undo_part()

    def to_edit(self) -> Edit:
        """Return the edit that was decided."""
        changes = self._changes.items()
        expect = [Expect(key, found.revision) for key, found in self._expect.items()]
        return Edit(
            expect=(*expect, *self._empty),
            puts=tuple([(key, value) for key, value in changes if value is not None]),
            deletes=tuple([key for key, value in changes if value is None]),
            counts=() if self.sums is None else self.sums.changes(),
        )

    def _changed(self, key: bytes) -> Versioned:
        value = self._changes[key]
        if value is None:
            return ABSENT
        # Its future revision is not known; all that matters is that it differs from "absent".
        revision = self._view.revision + 1
        record = self._records.get(key)
        return Versioned(value, revision) if record is None else Put(value, revision, record)

    def _changed_keys(self, start: bytes, end: bytes, reverse: bool = False) -> Iterator[bytes]:
        if not self._changes:
            return iter(())
        ordered = self._sorted
        if ordered is None:
            ordered = self._sorted = sorted(self._changes)
        last = bisect_left(ordered, end) if end else len(ordered)
        changed = ordered[bisect_left(ordered, start) : last]
        return reversed(changed) if reverse else iter(changed)

    def _put_record(self, key: bytes, record: BlockEntry | Inode) -> None:
        self.put(key, encode(record))
        self._records[key] = record
