"""Joining files without copying a byte: their blocks go to another file. Decided on a `Draft`, in
slices.

A block's record names the file it belongs to, and the file's places name the block. Both change in
one edit, together with the files' lengths; so at any moment each block belongs to exactly one file,
and the sweep of any other cannot reach it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from paxosblock.api.transaction import BLOCKS_MOVED_MAX
from paxosblock.base import paths
from paxosblock.errors import InvalidRequestError
from paxosblock.namenode.catalog import keys, namespace, permissions, quotas, tree, zones
from paxosblock.namenode.catalog.draft import Draft, Slices, block_entry
from paxosblock.namenode.catalog.kept_blocks import Shown
from paxosblock.namenode.catalog.namespace import Context
from paxosblock.namenode.catalog.permissions import Action
from paxosblock.namenode.catalog.protocol_errors import check_learned
from paxosblock.namenode.catalog.records import FileInode, Place, decode_place, encode


def concat(
    draft: Draft,
    target: str,
    sources: Sequence[str],
    context: Context,
    limit: int = BLOCKS_MOVED_MAX,
) -> Slices[int]:
    """Move the blocks of `sources`, in order, to the end of `target`, and remove the sources.

    The files are closed, and all their inodes are written or removed here. So no writer can add a
    block to any of them meanwhile, as that takes an open file (`blocks.open_file`).

    Returns:
        How many blocks were moved.

    Raises:
        InvalidRequestError: no source, a file twice, more than `limit` blocks, or files of
            different encryption zones.
        NotFoundError, IsDirectoryError, LeaseError: as `tree.find_closed`, of any of the files.
        NotReadyError: what became of a block since a backup is not known yet.
        PermissionDeniedError: the actor may not write the target, read a source, or take a source
            out of its directory.
    """
    _check_distinct(target, sources)
    into, shown = tree.find_closed(draft, target, context.actor, Action.WRITE), Shown(draft)
    start = end = tree.next_sequence(draft, into.number)
    length = into.length
    for path in sources:
        source = tree.find_closed(draft, path, context.actor, Action.READ)
        permissions.check_entry(draft, source, paths.split(path), context.actor)
        zones.check_goes(draft, source, path, into.zone)
        into_end = msgspec.structs.replace(into, length=length)
        end = yield from _move_blocks(draft, source, into_end, range(end, start + limit), shown)
        length += source.length
        namespace.unlink(draft, source, context)
        namespace.delete_inode(draft, source)
    joined = msgspec.structs.replace(into, length=length, modified_ms=context.now_ms)
    draft.put_inode(joined)
    if draft.has_counters:
        quotas.resized(draft, quotas.space(draft, into), joined)
    return end - start


def _move_blocks(
    draft: Draft, source: FileInode, into: FileInode, room: range, shown: Shown
) -> Slices[int]:
    """Put the blocks of `source` after the bytes of `into`, at the first of these places.

    Returns:
        The place after the last of them.
    """
    places = list(draft.scan(*keys.places(source.number), len(room) + 1))
    if len(places) > len(room):
        raise InvalidRequestError(
            f"one transaction moves at most {BLOCKS_MOVED_MAX} blocks; concat fewer files at once"
        )
    size_bytes = 0
    for sequence, (key, found) in enumerate(places, room.start):
        block = decode_place(found.value).block
        entry = block_entry(draft, block)
        assert entry is not None, "a place names a block"
        assert entry.file == source.number, "and the block names the file"
        assert entry.record.finalized, "the blocks of a closed file are finalized"
        check_learned(entry.record)
        place = keys.place(into.number, sequence)
        assert not draft.get(place).exists, "the place behind the last block is free"
        shown.leaves(block, key)
        draft.delete(key)
        draft.put(place, encode(Place(block, into.length + size_bytes)))
        draft.replace_block(entry, replace(entry, file=into.number, sequence=sequence))
        size_bytes += entry.user_bytes
        yield
    assert size_bytes == source.length, "a closed file is as long as its blocks"
    return room.start + len(places)


def _check_distinct(target: str, sources: Sequence[str]) -> None:
    if not sources:
        raise InvalidRequestError(f"{paths.shown(target)}: concat needs at least one source")
    if len({target, *sources}) <= len(sources):
        raise InvalidRequestError(f"{paths.shown(target)}: concat names a file twice", path=target)
