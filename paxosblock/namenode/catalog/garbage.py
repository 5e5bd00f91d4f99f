"""Sweeping what was unlinked: a deleted tree goes away in small edits, behind the scenes.

A `g` key stands for an inode that no entry names, and below which something was when it was
unlinked. Sweeping a directory unlinks its entries; sweeping a file removes its blocks, all but
those that a snapshot shows (`kept_blocks.py`). Each step is one edit for several inodes, so a
NameNode that stops in between goes on where it was.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from paxosblock.namenode.catalog import kept_blocks, keys, reserving, tree
from paxosblock.namenode.catalog.draft import Draft, Reads
from paxosblock.namenode.catalog.kept_blocks import HeldRevision, HeldUntil, Shown
from paxosblock.namenode.catalog.namespace import discard
from paxosblock.namenode.catalog.records import (
    BlockEntry,
    DirectoryInode,
    FileInode,
    KeptFile,
    decode_entry,
    decode_inode,
    decode_place,
    encode,
)
from paxosblock.protocol import finalize
from paxosblock.protocol.finalize import BlockRecord

STEP_INODES = 100
"""Unlinked inodes that one step looks at."""
STEP_COUNT = 200
"""Entries or blocks of an inode that one step takes away."""
STEP_WORK = 1000
"""Keys that a step has read or changed when it leaves the other inodes to the next one."""


@dataclass(frozen=True, slots=True)
class Swept:
    """The blocks that a step has removed, and those that it has kept although they are not ended:
    no writer will end them."""

    removed: tuple[BlockEntry, ...]
    unended: tuple[BlockEntry, ...] = ()


def pending(reads: Reads, limit: int = STEP_INODES) -> tuple[int, ...]:
    """Return ids of inodes that are still to be swept."""
    return tuple(keys.number_of(key) for key, _ in reads.scan(*keys.GARBAGE, limit))


def sweep(draft: Draft) -> Swept | None:
    """Remove one step's worth of what unlinked inodes and ended snapshots leave behind, and return
    the blocks of it; None if nothing is left.
    """
    before, removed, unended = draft.work, list[BlockEntry](), list[BlockEntry]()
    shown = Shown(draft)
    numbers = pending(draft)
    cleared = shown.any_kept and kept_blocks.clear_step(draft)
    if not (numbers or cleared):
        return None
    for number in numbers:
        if draft.work - before >= STEP_WORK:
            break
        inode = decode_inode(draft.get(keys.garbage(number)).value)
        if isinstance(inode, DirectoryInode):
            if until := shown.until(number):
                draft.delete(keys.garbage(number))
                draft.put(keys.waiting_until(until, number), encode(inode))
            else:
                _sweep_directory(draft, number)
        else:
            swept = _sweep_file(draft, inode, shown)
            removed += swept.removed
            unended += swept.unended
    return Swept(tuple(removed), tuple(unended))


def _sweep_directory(draft: Draft, number: int) -> None:
    entries = list(draft.scan(*keys.entries(number), STEP_COUNT))
    for key, _ in entries:
        target = tree.child(draft, number, keys.name_in(key))
        assert target is not None, "an entry that was scanned is there"
        found = draft.get(keys.inode(target.number))
        discard(draft, tree.load(found, keys.name_in(key)))
        draft.delete(key)
    if not entries:
        draft.expect_empty(keys.entries(number))
        draft.delete(keys.garbage(number))


def _sweep_file(draft: Draft, inode: FileInode, shown: Shown) -> Swept:
    number = inode.number
    kept = kept_blocks.kept_file(draft, number) if shown.any_kept else None
    start = kept.swept_to if kept else 0
    places = list(draft.scan(*keys.places(number, start), STEP_COUNT))
    if not places:
        _end_file(draft, number, kept)
        return Swept(reserving.drop(draft, inode))
    removed, unended, before = list[BlockEntry](), list[BlockEntry](), draft.work
    stays = kept is not None
    for key, found in places:
        block = decode_place(found.value).block
        entry = decode_entry(draft.get(keys.block(block)).value)
        start = keys.place_sequence(key) + 1
        by = shown.by(block)
        if by is None:
            removed.append(entry)
            draft.delete(keys.block(block))
            draft.delete(key)
            if shown.any_kept:
                kept_blocks.forget(draft, block)
        else:
            stays = True
            draft.put(_waiting(by, number), b"")
            if entry.record.reopening:  # K9, as no writer comes for it any more
                record = finalize.give_up_append(entry.record)
                assert isinstance(record, BlockRecord), "K9 is refused by no finalized record"
                draft.replace_block(entry, replace(entry, record=record))
            elif not entry.record.finalized:
                draft.put(keys.open_block(block), b"")
                unended.append(entry)
        if draft.work - before >= STEP_WORK:
            break
    if stays:
        kept_blocks.put_kept(draft, inode, start)
    return Swept(tuple(removed), tuple(unended))


def _waiting(by: HeldRevision | HeldUntil, number: int) -> bytes:
    """Return the key that lets an unlinked file wait for the end of what shows it."""
    if isinstance(by, HeldUntil):
        return keys.waiting_until(by.entry, number)
    return keys.waiting(by.number, number)


def _end_file(draft: Draft, number: int, kept: KeptFile | None) -> None:
    """Let a file go all of whose places were looked at; if any is left, it stays as a kept one."""
    draft.expect_empty(keys.places(number, kept.swept_to if kept else 0))
    draft.delete(keys.garbage(number))
    if kept is not None and next(draft.scan(*keys.places(number), 1), None) is None:
        draft.delete(keys.kept_file(number))
