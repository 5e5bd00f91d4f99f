"""Opening the last block of a file again for its writer: K4 and K7, each decided on a `Draft`.

Both expect that the writer holds the file. So no writer may write a block of a file that is closed
or was taken over. A caller that gives up sees to K9 (`blocks.give_up_append`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from paxosblock.api.namenode import NO_BLOCK, Appendable, AppendFile, ReopenBlock
from paxosblock.errors import InvalidRequestError
from paxosblock.namenode.catalog import blocks, protocol_errors, quotas, tree
from paxosblock.namenode.catalog.draft import Draft, Reads, block_entry
from paxosblock.namenode.catalog.namespace import Context
from paxosblock.namenode.catalog.records import BlockEntry, FileInode
from paxosblock.protocol import finalize
from paxosblock.protocol.finalize import BlockRecord, Refused
from paxosblock.protocol.recovery import Proposer
from paxosblock.protocol.types import NO_GENERATION


@dataclass(frozen=True, slots=True)
class Opened:
    """A file that was opened to append to it; `begun` is its last block if K4 was done with it."""

    file: Appendable
    begun: BlockRecord | None


def append(
    draft: Draft,
    request: AppendFile,
    context: Context,
    may: Callable[[BlockRecord, FileInode], bool],
) -> Opened:
    """Open a file and, in the same change, do K4 for its last block if nothing in the records
    speaks against that and the block `may` be opened. Raises as `blocks.append`."""
    opened = blocks.append(draft, request, context.actor)
    is_copy = not draft.changes  # of a request that was answered, or is just being
    if is_copy or not request.window or opened.last == NO_BLOCK:
        return Opened(opened, None)
    record = blocks.get(draft, opened.last).record
    inode = blocks.open_file(draft, opened.status.file_id, request.writer)
    least = ReopenBlock(
        inode.number, request.writer, opened.last, request.window, 1, request.chunks
    )
    if left_alone(record, inode, least) or not may(record, inode):
        return Opened(opened, None)
    begun = blocks.change(draft, record.block, finalize.allocate_append)
    assert isinstance(begun, BlockEntry), "K4 is asked for finalized blocks only"
    return Opened(opened, begun.record)


def requested(reads: Reads, request: ReopenBlock) -> tuple[BlockEntry, FileInode]:
    """Return the block that a writer asks for, and its file.

    Raises:
        NotFoundError, FencedError: the writer does not hold the file.
        InvalidRequestError: the block is not the last one of the file.
        NotReadyError: what became of it since a backup is not known yet.
    """
    inode = blocks.open_file(reads, request.file_id, request.writer)
    entry = block_entry(reads, request.block)
    if entry is None or not entry.record.reopening:  # K9 comes before a block that follows it (K1)
        last = tree.last_block(reads, request.file_id)
        entry = None if last is None else last.entry
    if entry is None or (entry.file, entry.record.block) != (request.file_id, request.block):
        raise InvalidRequestError(
            f"block {request.block}: is not the last block of file {request.file_id}",
            block=request.block,
        )
    protocol_errors.check_learned(entry.record)
    return entry, inode


def left_alone(record: BlockRecord, file: FileInode, request: ReopenBlock) -> str:
    """Return the reason in the records for a new block instead; "" if there is none."""
    if not record.length:
        return "it is empty"
    if record.durability is not file.durability:
        return f"its durability is {record.durability.value}"
    if record.window != request.window:
        return f"its window is {record.window} chunks"
    if record.length >= request.chunks:
        return f"it has {record.length} chunks"
    if record.size_bytes + request.size_bytes > file.block_size:
        return f"it has {record.size_bytes} of {file.block_size} bytes"
    ended_by_writer = record.finalized_generation == record.writer_generation + 1
    if file.zone and not (ended_by_writer and record.cut_generation == NO_GENERATION):
        # A chunk that was dropped may still be at a DataNode. No other may be encrypted for its
        # place in this block, or the reader could not tell which is the later one.
        return "it is encrypted, and was cut or recovered"
    return ""


def allocate(draft: Draft, request: ReopenBlock, seen: BlockRecord) -> BlockEntry | None:
    """K4 if the block is still as it was `seen`; None otherwise. Raises as `requested`."""
    entry, _ = requested(draft, request)
    if entry.record != seen:
        return None
    allocated = blocks.change(draft, request.block, finalize.allocate_append)
    assert isinstance(allocated, BlockEntry), "K4 is asked for finalized blocks only"
    return allocated


def install(draft: Draft, request: ReopenBlock, decided: Proposer) -> BlockEntry | Refused:
    """K7: the targets become the members, and the writer goes on. Raises as `requested`.

    From now on closing the file waits for this block, too.
    """
    _, inode = requested(draft, request)

    def rule(record: BlockRecord) -> BlockRecord | Refused:
        return finalize.install_append(
            record, decided.base, decided.generation, decided.targets, request.writer
        )

    installed = blocks.change(draft, request.block, rule)
    if isinstance(installed, BlockEntry):
        before = quotas.charged(draft, inode)
        inode = msgspec.structs.replace(inode, appended_from=installed.sequence)
        draft.put_inode(inode)
        quotas.resized(draft, before, inode)
    return installed
