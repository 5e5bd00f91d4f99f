"""Sweeping what was unlinked: a deleted tree goes away in small edits, behind the scenes.

A `g` key stands for an inode that no entry names, and below which something was when it was
unlinked. Sweeping a directory unlinks its entries; sweeping a file removes its blocks. Each step is
one edit for several inodes, so a NameNode that stops in between goes on where it was.
"""

from __future__ import annotations

from paxosblock.namenode.catalog import keys, reserving, tree
from paxosblock.namenode.catalog.draft import Draft, Reads
from paxosblock.namenode.catalog.namespace import discard
from paxosblock.namenode.catalog.records import (
    BlockEntry,
    DirectoryInode,
    FileInode,
    decode_entry,
    decode_inode,
    decode_place,
)

STEP_INODES = 100
"""Unlinked inodes that one step looks at."""
STEP_COUNT = 200
"""Entries or blocks of an inode that one step takes away."""
STEP_WORK = 1000
"""Keys that a step has read or changed when it leaves the other inodes to the next one."""


def pending(reads: Reads, limit: int = STEP_INODES) -> tuple[int, ...]:
    """Return ids of inodes that are still to be swept."""
    return tuple(keys.number_of(key) for key, _ in reads.scan(*keys.GARBAGE, limit))


def sweep(draft: Draft) -> tuple[BlockEntry, ...] | None:
    """Remove one step's worth of what unlinked inodes leave behind, and return the blocks of it;
    None if nothing is left.
    """
    before, blocks = draft.work, list[BlockEntry]()
    if not (numbers := pending(draft)):
        return None
    for number in numbers:
        inode = decode_inode(draft.get(keys.garbage(number)).value)
        if isinstance(inode, DirectoryInode):
            _sweep_directory(draft, number)
        else:
            blocks += _sweep_file(draft, inode)
        if draft.work - before >= STEP_WORK:
            break
    return tuple(blocks)


def _sweep_directory(draft: Draft, number: int) -> None:
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


def _sweep_file(draft: Draft, inode: FileInode) -> list[BlockEntry]:
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
    return blocks
