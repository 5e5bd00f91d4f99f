"""Making a file shorter: K8 for the block that is cut; the blocks after it become garbage.

A block is only cut between two chunks, and only its holders know where chunks begin. A decision
that needs to know raises `BoundaryUnknownError`, and is made again with a holder's answer.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from paxosblock.api.transaction import BLOCKS_MOVED_MAX, Truncate
from paxosblock.base import paths
from paxosblock.base.chunk_cipher import user_bytes
from paxosblock.errors import InvalidRequestError
from paxosblock.namenode.catalog import keys, quotas, tree
from paxosblock.namenode.catalog.boundaries import BoundaryUnknownError, Cut
from paxosblock.namenode.catalog.draft import Draft, Slices, block_entry
from paxosblock.namenode.catalog.kept_blocks import Shown
from paxosblock.namenode.catalog.namespace import Context
from paxosblock.namenode.catalog.permissions import Action
from paxosblock.namenode.catalog.protocol_errors import check_learned
from paxosblock.namenode.catalog.records import (
    BlockEntry,
    FileInode,
    Place,
    decode_place,
    encode,
)
from paxosblock.namenode.kv.interface import Versioned
from paxosblock.protocol import finalize
from paxosblock.protocol.finalize import Refused


def truncate(
    draft: Draft, operation: Truncate, context: Context, limit: int = BLOCKS_MOVED_MAX
) -> Slices[int]:
    """Cut a closed file to its first `operation.length` bytes; return how many blocks are touched.

    The file is closed and its inode is written here, so no writer can add a block to it meanwhile.

    Raises:
        BoundaryUnknownError: a block is cut, and no holder has said yet where its chunks begin.
        InvalidRequestError: the file is shorter; or more than `limit` blocks come after the cut
            (`cut_first` in the details is the shortest length that one transaction reaches); or the
            cut is inside a chunk, or a block that a snapshot shows, which begins at byte
            `boundary` of the file `file`.
        NotFoundError, IsDirectoryError, LeaseError: as `tree.find_closed`.
        PermissionDeniedError: the actor may not write the file.
        NotReadyError: what became of a block since a backup is not known yet.
    """
    path, length, shown = operation.path, operation.size, Shown(draft)
    inode = tree.find_closed(draft, path, context.actor, Action.WRITE)
    if not 0 <= length <= inode.length:
        raise InvalidRequestError(
            f"{paths.shown(path)}: has {inode.length} bytes and cannot be truncated to {length}",
            path=path,
        )
    if length == inode.length:
        return 0
    places = _places_behind(draft, inode, operation, limit)
    garbage, begins = None, 0
    for key, found in places:
        place = decode_place(found.value)
        entry = block_entry(draft, place.block)
        assert entry is not None, "a place names a block"
        assert entry.record.finalized, "the blocks of a closed file are finalized"
        check_learned(entry.record)
        if place.offset < length:
            _check_hidden(shown, entry, length, (path, place.offset))
            _cut(draft, entry, length - place.offset, (path, place.offset), context)
        elif not entry.record.length:
            shown.leaves(place.block, key)
            # A fenced writer may still be about to make the replicas of this block (W1); those that
            # are there refuse that writer.
            draft.put(key, encode(Place(place.block, length)))
        else:
            if garbage is None:
                garbage, begins = _garbage(draft, inode, context), place.offset
            shown.leaves(place.block, key)
            draft.delete(key)
            place = Place(place.block, place.offset - begins)
            draft.put(keys.place(garbage.number, entry.sequence), encode(place))
            draft.replace_block(entry, replace(entry, file=garbage.number))
        yield
    _shorten(draft, inode, length, context)
    return len(places)


def _shorten(draft: Draft, inode: FileInode, length: int, context: Context) -> None:
    shorter = msgspec.structs.replace(
        inode,
        length=length,
        modified_ms=context.now_ms,
        truncations=inode.truncations + 1,
    )
    draft.put_inode(shorter)
    if draft.has_counters:
        quotas.resized(draft, quotas.space(draft, inode), shorter)


def _places_behind(
    draft: Draft, inode: FileInode, operation: Truncate, limit: int
) -> list[tuple[bytes, Versioned]]:
    """Return the places of the block that holds the byte where a file is cut, and of those after
    it.
    """
    start = tree.place_of_offset(draft, inode.number, operation.size)
    places = list(draft.scan(*keys.places(inode.number, start), limit + 1))
    if len(places) > limit:
        offset = tree.last_places(draft, inode.number, limit)[-1].offset
        raise InvalidRequestError(
            f"{paths.shown(operation.path)}: one transaction cuts at most {limit} blocks: truncate "
            f"it to {offset} bytes first",
            path=operation.path,
            cut_first=offset,
        )
    return places


def _check_hidden(shown: Shown, entry: BlockEntry, length: int, where: tuple[str, int]) -> None:
    """Demand that no snapshot shows a block that is cut, which begins at `where`: a path and an
    offset. What is to stay of one that is shown becomes a new block, as what is to stay of a chunk.
    """
    if shown.by(entry.record.block) is not None:
        path, begins = where
        raise InvalidRequestError(
            f"{paths.shown(path)}: byte {length} is inside block {entry.record.block}, which a "
            f"snapshot shows: truncate it where that begins, to {begins} bytes, and append what is "
            "to stay of the block",
            path=path,
            file=entry.file,
            length=length,
            boundary=begins,
        )


def _cut(
    draft: Draft, entry: BlockEntry, kept: int, where: tuple[str, int], context: Context
) -> None:
    """K8: keep the first `kept` bytes of a block that begins at `where`: a path and an offset."""
    record, (path, offset) = entry.record, where
    cut = Cut(record.block, record.finalized_generation, kept, entry.added_bytes)
    boundary = context.boundaries.get(cut)
    if boundary is None:
        raise BoundaryUnknownError(record, cut)
    begins = offset + user_bytes(boundary.size_bytes, boundary.length, entry.added_bytes)
    if begins != offset + kept:
        raise InvalidRequestError(
            f"{paths.shown(path)}: byte {offset + kept} is inside a chunk, which begins at byte "
            f"{begins}: truncate it there, and append what is to stay of the chunk",
            path=path,
            file=entry.file,
            length=offset + kept,
            boundary=begins,
        )
    shorter = finalize.truncate(record, boundary.length, boundary.size_bytes)
    assert not isinstance(shorter, Refused), "it is finalized, and the boundary is inside it"
    draft.replace_block(entry, replace(entry, record=shorter))


def _garbage(draft: Draft, inode: FileInode, context: Context) -> FileInode:
    """Return an unlinked file for the blocks after the cut, which the sweep will delete."""
    garbage = msgspec.structs.replace(inode, number=next(context.numbers))
    draft.put(keys.garbage(garbage.number), encode(garbage))
    return garbage
