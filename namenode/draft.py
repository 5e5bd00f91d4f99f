"""A transaction while it is being decided: what was read for it becomes its preconditions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from paxosblock.namenode import keys
from paxosblock.namenode.kv.interface import (
    Expect,
    ExpectEmpty,
    Transaction,
    Versioned,
    View,
)
from paxosblock.namenode.records import BlockEntry, Inode, decode_entry, encode
from paxosblock.protocol.types import BlockId


class Reads(Protocol):
    """Where a decision reads from: a `View`, or a `Draft` that remembers what it was told."""

    def get(self, key: bytes) -> Versioned:
        """Return the value and revision of `key`."""

    def scan(
        self, start: bytes, end: bytes, limit: int | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, Versioned]]:
        """Yield the keys in [start, end) with their values."""


class Draft:
    """Reads of one decision and the changes it asks for, to become one `Transaction`.

    Every key read with `get` must still have the same revision when the transaction is applied;
    `peek` and `scan` are for what cannot change or does not matter. A draft does not show its own
    changes. It lives between two awaits, like the view it stands on.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._expect: dict[bytes, Expect] = {}
        self._empty: list[ExpectEmpty] = []
        self._puts: dict[bytes, bytes] = {}
        self._deletes: list[bytes] = []
        self._delete_ranges: list[keys.Range] = []

    def get(self, key: bytes) -> Versioned:
        """Return the value of `key`, and expect that nobody changes it before we commit."""
        found = self._view.get(key)
        self._expect[key] = Expect(key, found.revision)
        return found

    def peek(self, key: bytes) -> Versioned:
        """Return the value of `key` without making it a precondition."""
        return self._view.get(key)

    def scan(
        self, start: bytes, end: bytes, limit: int | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, Versioned]]:
        """Yield keys and values without making them preconditions."""
        return self._view.scan(start, end, limit, reverse)

    def expect_empty(self, span: keys.Range) -> None:
        """Require that no key lies in the range when the transaction is applied."""
        self._empty.append(ExpectEmpty(*span))

    def put(self, key: bytes, value: bytes) -> None:
        """Write `key`."""
        self._puts[key] = value

    def put_inode(self, inode: Inode) -> None:
        """Write a file or directory."""
        self._puts[keys.inode(inode.number)] = encode(inode)

    def delete(self, key: bytes) -> None:
        """Remove `key`."""
        self._deletes.append(key)

    def delete_range(self, span: keys.Range) -> None:
        """Remove every key in the range."""
        self._delete_ranges.append(span)

    def add_block(self, entry: BlockEntry) -> None:
        """Write the record of a new block."""
        self.get(keys.block(entry.record.block))
        self._puts[keys.block(entry.record.block)] = encode(entry)

    def replace_block(self, before: BlockEntry, after: BlockEntry) -> None:
        """Write the next version of a block's record: the one place where records change (I8)."""
        after.record.check_follows(before.record)
        self._puts[keys.block(after.record.block)] = encode(after)

    def block(self, block: BlockId) -> BlockEntry | None:
        """Return a block's entry as a precondition; None when there is no such block."""
        found = self.get(keys.block(block))
        return decode_entry(found.value) if found.exists else None

    @property
    def changes(self) -> bool:
        """Whether there is anything to commit."""
        return bool(self._puts or self._deletes or self._delete_ranges)

    def transaction(self) -> Transaction:
        """Return what was decided."""
        return Transaction(
            expect=(*self._expect.values(), *self._empty),
            puts=tuple(self._puts.items()),
            deletes=tuple(self._deletes),
            delete_ranges=tuple(self._delete_ranges),
        )
