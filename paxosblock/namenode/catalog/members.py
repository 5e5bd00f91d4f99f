"""The members of a finalized block: how they leave it, and how many replicas it asks for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from paxosblock.api.namenode import NO_FILE
from paxosblock.errors import NotFoundError
from paxosblock.namenode.catalog import blocks, kept_blocks
from paxosblock.namenode.catalog.draft import Draft, Reads, block_entry, inode_of
from paxosblock.namenode.catalog.records import BlockEntry, FileInode
from paxosblock.protocol import finalize
from paxosblock.protocol.finalize import BlockRecord, Refused
from paxosblock.protocol.types import BlockId, Generation, StorageId


def remove_replica(
    draft: Draft,
    block: BlockId,
    storage: StorageId,
    finalized_generation: Generation,
    whole: tuple[StorageId, ...],
) -> BlockEntry | Refused:
    """K13: a member leaves, provided that as many of `whole` stay as the block asks for now.

    Raises:
        NotFoundError: the block is gone, or its file is, so that the block will be, too.
    """
    wanted = wanted_replication(draft, blocks.get(draft, block))
    rule = partial(
        finalize.remove_replica,
        storage=storage,
        finalized_generation=finalized_generation,
        whole=whole,
        wanted=wanted,
    )
    return blocks.change(draft, block, rule)


def wanted_replication(reads: Reads, entry: BlockEntry) -> int:
    """Return how many replicas a block asks for: its file says it, or the request that added it.

    Raises:
        NotFoundError: its file was deleted.
    """
    if entry.file == NO_FILE:
        return max(1, entry.replication)
    inode = owner_of(reads, entry.file)
    if inode is None:
        raise NotFoundError(f"file {entry.file}: no such file; it was deleted", file=entry.file)
    return inode.replication


def owner_of(reads: Reads, number: int) -> FileInode | None:
    """Return the file that a block belongs to, which may be one that only snapshots show; None if
    it is gone."""
    inode = inode_of(reads, number)
    if inode is None:
        kept = kept_blocks.kept_file(reads, number)
        return None if kept is None else kept.inode
    return inode if isinstance(inode, FileInode) else None


@dataclass(frozen=True, slots=True)
class Demand:
    """A block, and how many replicas it asks for: 0 if its file is gone, as it will be, too."""

    entry: BlockEntry
    wanted: int


def demands(reads: Reads, entries: Iterable[BlockEntry]) -> Iterator[Demand]:
    """Yield the demands of blocks; each file is read once."""
    known: dict[int, int] = {}
    for entry in entries:
        wanted = known.get(entry.file)
        if wanted is None:
            try:
                wanted = wanted_replication(reads, entry)
            except NotFoundError:
                wanted = 0
            if entry.file != NO_FILE:
                known[entry.file] = wanted
        yield Demand(entry, wanted)


def movable(reads: Reads, wanted: Iterable[BlockId]) -> Iterator[BlockRecord]:
    """Yield the records of those of the `wanted` blocks whose replicas may move.

    These are finalized blocks of closed files that have exactly as many members as they ask for,
    and no APPEND prepared (K4).
    """
    for block in wanted:
        entry = block_entry(reads, block)
        if entry is None or entry.file == NO_FILE:
            continue
        record = entry.record
        if not record.finalized or record.generation != record.finalized_generation:
            continue
        inode = owner_of(reads, entry.file)
        if inode is None or inode.open:
            continue
        if len(record.members) == inode.replication:
            yield record
