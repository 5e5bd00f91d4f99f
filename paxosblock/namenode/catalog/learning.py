"""Changes by which a record that a backup brought back becomes one of now (PROTOCOL.md K14)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec

from paxosblock.api.namenode import NO_FILE
from paxosblock.namenode.catalog import blocks, kept_votes, keys, quotas, tree
from paxosblock.namenode.catalog.draft import Draft, Reads, block_entry, inode_of
from paxosblock.namenode.catalog.kept_votes import Grounds
from paxosblock.namenode.catalog.namespace import Context
from paxosblock.namenode.catalog.records import BlockEntry, FileInode, decode_entry
from paxosblock.protocol import finalize
from paxosblock.protocol.finalize import BlockRecord, Refused, Why
from paxosblock.protocol.recovery import Proposer
from paxosblock.protocol.types import BlockId


def page(reads: Reads, after: BlockId, limit: int) -> tuple[tuple[BlockRecord, ...], BlockId]:
    """Return the restored ones of the next blocks, and the last block that was looked at.

    A block that was made ahead is left out: it has no place in its file, and goes when that is
    closed.
    """
    restored, last = [], after
    for _, found in reads.scan(keys.block(BlockId(after + 1)), keys.BLOCKS[1], limit):
        entry = decode_entry(found.value)
        last = entry.record.block
        if entry.record.restored and not _is_ahead(reads, entry):
            restored.append(entry.record)
    return tuple(restored), last


def _is_ahead(reads: Reads, entry: BlockEntry) -> bool:
    return entry.file != NO_FILE and reads.get(keys.open_block(entry.record.block)).exists


@dataclass(frozen=True, slots=True)
class Learned:
    """The block as it was learned, or why it was not."""

    outcome: BlockEntry | Refused


def learn(draft: Draft, decided: Proposer, _: Context, grounds: Grounds = ()) -> Learned:
    """K14: the log that all targets accepted is the block's.

    A closed file is as long as its last block then says. A block with others behind it keeps its
    length, as these begin where it ends: else it stays as it is, and no reader gets wrong bytes.

    Raises:
        NotFoundError: the block is gone.
    """
    before, choice = blocks.get(draft, decided.block), decided.choice
    assert choice is not None, "what was decided was chosen"
    record = finalize.learn(
        before.record,
        decided.generation,
        decided.targets,
        length=choice.length,
        size_bytes=choice.size_bytes,
        epoch=choice.epoch,
    )
    if isinstance(record, Refused):
        return Learned(record)
    entry = replace(before, record=record)
    if before.file == NO_FILE:
        draft.delete(keys.open_block(record.block))
    elif not _fits(draft, entry):
        return Learned(Refused(Why.BAD_LENGTH, before.record))
    draft.replace_block(before, entry)
    kept_votes.keep_with_change(draft, record.block, grounds)
    return Learned(entry)


def _fits(draft: Draft, entry: BlockEntry) -> bool:
    """True if the file has room for the block as it is now; a closed file gets its length."""
    last, inode = tree.last_block(draft, entry.file), inode_of(draft, entry.file)
    if last is None or not isinstance(inode, FileInode):
        return True  # the file is being swept
    if last.entry.record.block != entry.record.block:
        found = blocks.get(draft, entry.record.block)
        return found.record.finalized and found.user_bytes == entry.user_bytes
    draft.expect_empty(keys.places(entry.file, last.entry.sequence + 1))
    length = last.offset + entry.user_bytes
    if not inode.open and inode.length != length:
        cut = length < inode.length
        truncations = inode.truncations + cut
        learned = msgspec.structs.replace(inode, length=length, truncations=truncations)
        draft.put_inode(learned)
        if draft.has_counters and tree.path_of(draft, inode) is not None:
            quotas.resized(draft, quotas.space(draft, inode), learned, free=True)
    return True


def holds_nothing(reads: Reads, entry: BlockEntry) -> bool:
    """True for a block that the backup had empty, with others behind it: as these begin where it
    begins, it can hold nothing of its file (see `learn`)."""
    record = entry.record
    if entry.file == NO_FILE or not record.restored or not record.finalized or record.length:
        return False
    last = tree.last_block(reads, entry.file)
    return last is not None and last.entry.record.block != record.block


def leave_out(draft: Draft, block: BlockId, _: Context) -> bool:
    """Take a block that no storage has out of its file, if it `holds_nothing`. As a rule it left
    the file when that was closed after the backup.

    Returns:
        False if the block stays, and waits for a storage that has it.
    """
    entry = block_entry(draft, block)
    if entry is None:
        return True
    if not holds_nothing(draft, entry):
        return False
    blocks.drop(draft, entry)
    return True


def is_restored(reads: Reads) -> bool:
    """True if a backup was brought back, and not all of its blocks were learned yet."""
    return reads.get(keys.RESTORED).exists


def forget(draft: Draft, _: None, __: Context) -> None:
    """Note that all blocks of the backup were learned."""
    draft.delete(keys.RESTORED)
