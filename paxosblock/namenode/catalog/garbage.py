"""Sweeping what was unlinked: a deleted tree goes away in small transactions, behind the scenes.

A `g` key stands for an inode that no entry names. Sweeping a directory turns its entries into
garbage of their own; sweeping a file removes its blocks. Each step is one transaction, so a
NameNode that stops in between goes on where it was.
"""

from __future__ import annotations

from dataclasses import dataclass

from paxosblock.namenode.catalog import keys, reserving, tree
from paxosblock.namenode.catalog.draft import Draft
from paxosblock.namenode.catalog.namespace import discard
from paxosblock.namenode.catalog.records import (
    BlockEntry,
    DirectoryInode,
    FileInode,
    decode_entry,
    decode_inode,
    decode_place,
)
from paxosblock.namenode.kv.interface import View

STEP_COUNT = 200
"""Entries or blocks that one transaction takes away."""


@dataclass(frozen=True, slots=True)
class Swept:
    """The blocks that a step removed; `done` says that nothing is left of the unlinked inode."""

    blocks: tuple[BlockEntry, ...] = ()
    done: bool = True


def pending(view: View, limit: int) -> tuple[int, ...]:
    """Return ids of inodes that are still to be swept."""
    return tuple(keys.number_of(key) for key, _ in view.scan(*keys.GARBAGE, limit))


def sweep(draft: Draft, number: int) -> Swept:
    """Remove one step's worth of what the unlinked inode `number` leaves behind."""
    found = draft.get(keys.garbage(number))
    if not found.exists:
        return Swept()
    inode = decode_inode(found.value)
    if isinstance(inode, DirectoryInode):
        return _sweep_directory(draft, number)
    return _sweep_file(draft, inode)


def _sweep_directory(draft: Draft, number: int) -> Swept:
    entries = list(draft.scan(*keys.entries(number), STEP_COUNT))
    for key, _ in entries:
        target = tree.child(draft, number, keys.entry_name(key))
        assert target is not None, "an entry that was scanned is there"
        found = draft.get(keys.inode(target.number))
        discard(draft, tree.load(found, keys.entry_name(key)))
        draft.delete(key)
    if not entries:
        draft.expect_empty(keys.entries(number))
        draft.delete(keys.garbage(number))
    return Swept(done=not entries)


def _sweep_file(draft: Draft, inode: FileInode) -> Swept:
    number = inode.number
    places = list(draft.scan(*keys.places(number), STEP_COUNT))
    blocks = [] if places else [*reserving.drop(draft, inode)]
    for key, found in places:
        block = keys.block(decode_place(found.value).block)
        blocks.append(decode_entry(draft.get(block).value))
        draft.delete(block)
        draft.delete(key)
    if not places:
        draft.expect_empty(keys.places(number))
        draft.delete(keys.garbage(number))
    return Swept(tuple(blocks), done=not places)
