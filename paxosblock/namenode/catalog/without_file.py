"""Blocks that an embedder made, and that belong to no file. Each function decides one operation."""

from __future__ import annotations

from paxosblock.api.namenode import NO_FILE, AddBlock, Deletion
from paxosblock.errors import InvalidRequestError
from paxosblock.namenode.catalog import keys, namespace
from paxosblock.namenode.catalog.draft import Draft, block_entry
from paxosblock.namenode.catalog.records import BlockEntry
from paxosblock.protocol import finalize
from paxosblock.protocol.types import BlockId, StorageId


def add(
    draft: Draft, request: AddBlock, block: BlockId, members: tuple[StorageId, ...]
) -> BlockEntry:
    """K1 for an embedder: a block that belongs to no file."""
    record = finalize.add_block(block, members, request.writer, request.window, request.durability)
    entry = BlockEntry(record, replication=request.replication)
    draft.add_block(entry)
    draft.put(keys.open_block(block), b"")
    return entry


def delete(draft: Draft, block: BlockId) -> Deletion:
    """Take an embedder's block out of the catalog, whether it is ended or not.

    Raises:
        SafeModeError: an operator entered safe mode.
        InvalidRequestError: it belongs to a file.
    """
    entry = block_entry(draft, block)
    if entry is None:
        return Deletion(existed=False)
    namespace.check_names_may_change(draft)
    if entry.file != NO_FILE:
        raise InvalidRequestError(
            f"block {block}: belongs to a file and is deleted with it", block=block
        )
    draft.delete(keys.block(block))
    draft.delete(keys.open_block(block))
    return Deletion(existed=True)
