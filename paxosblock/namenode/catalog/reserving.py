"""The block after the one that is being written, made ahead so that its writer need not wait.

It has a record (K1), and its writer has made the replicas (W1), but it has no place in its file:
no reader finds it, and no sum counts it. It gets its place in the change that ends the block before
it, or, if it is the first of its file, in the change that ends it and closes the file (K6). Until
then it is removed when another block is added instead, when the file is closed, and when the file
is deleted. Like an embedder's block that is not ended, it has a key `u`.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from paxosblock.api.namenode import NO_BLOCK
from paxosblock.errors import InvalidRequestError
from paxosblock.namenode.catalog import keys, quotas, tree
from paxosblock.namenode.catalog.draft import Draft, Reads
from paxosblock.namenode.catalog.records import (
    BlockEntry,
    FileInode,
    Place,
    decode_place,
    encode,
    entry_in,
)
from paxosblock.protocol.finalize import BlockRecord
from paxosblock.protocol.types import BlockId


def reserved(reads: Reads, inode: FileInode) -> BlockEntry | None:
    """Return the block that was made ahead for a file; None when there is none."""
    if inode.reserved == NO_BLOCK:
        return None
    return entry_in(reads.get(keys.block(inode.reserved)))


def reserve(draft: Draft, inode: FileInode, record: BlockRecord) -> BlockEntry:
    """Make a block ahead for a file that has none, or was made with its name a moment ago."""
    assert inode.open, "a block is made ahead only for the writer of a file"
    entry = BlockEntry(record, inode.number, zone=inode.zone)
    draft.add_block(entry)
    draft.put(keys.open_block(record.block), b"")
    if inode.reserved != record.block:
        assert inode.reserved == NO_BLOCK, "at most one block is made ahead"
        before = quotas.charged(draft, inode)
        inode = msgspec.structs.replace(inode, reserved=record.block)
        draft.put_inode(inode)
        quotas.resized(draft, before, inode)
    return entry


def without(draft: Draft, inode: FileInode) -> FileInode:
    """Return a file that the same change makes as one that gets no block ahead."""
    before = quotas.space(draft, inode)
    inode = msgspec.structs.replace(inode, reserved=NO_BLOCK)
    draft.put_inode(inode)
    quotas.resized(draft, before, inode)
    return inode


def attach(draft: Draft, inode: FileInode, last: BlockEntry, block: BlockId) -> None:
    """Give `block`, which was made ahead, the place after `last`, which the same change ends.

    Repeating this changes nothing.

    Raises:
        InvalidRequestError: `block` was not made ahead for this file, or `last` is not its last.
    """
    found = draft.get(keys.place(inode.number, last.sequence + 1))
    if found.exists and decode_place(found.value).block == block:
        return
    entry, before = reserved(draft, inode), tree.last_block(draft, inode.number)
    is_last = before is not None and before.entry.record.block == last.record.block != block
    if entry is None or entry.record.block != block or before is None or not is_last:
        raise InvalidRequestError(
            f"block {block}: was not made ahead to follow block {last.record.block}", block=block
        )
    assert last.record.finalized, "only the last block may be undecided"
    placed = replace(entry, sequence=last.sequence + 1)
    room = quotas.charged(draft, inode)
    draft.replace_block(entry, placed)
    inode = _give_place(draft, inode, placed, before.end)
    draft.put_inode(inode)
    quotas.resized(draft, room, inode, free=True)


def attach_first(draft: Draft, inode: FileInode, block: BlockId) -> FileInode:
    """Make `block` the first of its file if it was made ahead with the file; return the inode,
    which the caller writes.

    The caller ends the block in the same change; nothing in it was acknowledged before that.
    """
    if inode.reserved != block or tree.last_block(draft, inode.number) is not None:
        return inode
    entry = reserved(draft, inode)
    assert entry is not None, "it is named by the inode"
    assert not entry.sequence, "it was made for the first place"
    return _give_place(draft, inode, entry, offset=0)


def _give_place(draft: Draft, inode: FileInode, entry: BlockEntry, offset: int) -> FileInode:
    """Give the block that was made ahead its place in the file; return the inode to be written."""
    block, place = entry.record.block, keys.place(inode.number, entry.sequence)
    draft.get(place)
    draft.put(place, encode(Place(block, offset)))
    draft.delete(keys.open_block(block))
    return msgspec.structs.replace(inode, reserved=NO_BLOCK)


def drop(draft: Draft, inode: FileInode) -> tuple[BlockEntry, ...]:
    """Remove the block that was made ahead, if any, from the catalog; return it.

    The caller changes the inode.
    """
    entry = reserved(draft, inode)
    if entry is None:
        return ()
    draft.delete(keys.block(entry.record.block))
    draft.delete(keys.open_block(entry.record.block))
    return (entry,)
