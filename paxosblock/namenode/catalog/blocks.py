"""Changing blocks and the files they belong to. Each function decides one operation on a `Draft`.

`protocol.finalize` (the K rules) checks the guards; here its answer becomes the next record, or an
error that tells the client what to conclude.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import msgspec

from paxosblock.api.file_pages import GetFile
from paxosblock.api.namenode import (
    NO_BLOCK,
    NO_FILE,
    AddBlock,
    Appendable,
    AppendFile,
    CloseFile,
    FileStatus,
    FinalizeBlock,
)
from paxosblock.base import paths
from paxosblock.errors import (
    CorruptionError,
    FencedError,
    InvalidRequestError,
    NotFoundError,
    NotReadyError,
)
from paxosblock.namenode.catalog import (
    keys,
    namespace,
    permissions,
    protocol_errors,
    quotas,
    reserving,
    snapshots,
    tree,
    zones,
)
from paxosblock.namenode.catalog.draft import Draft, Reads, block_entry, inode_of
from paxosblock.namenode.catalog.kept_blocks import kept_file
from paxosblock.namenode.catalog.permissions import Action, Actor
from paxosblock.namenode.catalog.records import (
    RECOVERY_WRITER,
    BlockEntry,
    FileInode,
    Place,
    decode_place,
    encode,
)
from paxosblock.namenode.kv.interface import View
from paxosblock.namenode.kv.past import PastView
from paxosblock.protocol import finalize
from paxosblock.protocol.finalize import BlockRecord, Refused
from paxosblock.protocol.types import BlockId, StorageId, WriterId

Rule = Callable[[BlockRecord], BlockRecord | Refused]
"""One compare-and-set of `protocol.finalize`, all but the record filled in."""


@dataclass(frozen=True, slots=True)
class Closed:
    """A file that was closed, and what that did to its blocks.

    The `dropped` blocks, of length zero or made ahead, left the file. `given_up` is the last block
    if an APPEND was being set up in it (K9).
    """

    inode: FileInode
    dropped: tuple[BlockEntry, ...] = ()
    given_up: BlockEntry | None = None


def get(reads: Reads, block: BlockId) -> BlockEntry:
    """K10: read a block's entry.

    Raises:
        NotFoundError: there is no such block.
    """
    entry = block_entry(reads, block)
    if entry is None:
        raise NotFoundError(f"block {block}: no such block", block=block)
    return entry


def file_and_path(reads: Reads, number: int) -> tuple[FileInode, str]:
    """Return a file by its id, and its path.

    Raises:
        NotFoundError: it was deleted, or a directory above it was.
    """
    inode = inode_of(reads, number)
    path = None if inode is None else tree.path_of(reads, inode)
    if path is None or not isinstance(inode, FileInode):
        raise NotFoundError(f"file {number}: no such file; it may have been deleted", file=number)
    return inode, path


def written(reads: Reads, wanted: tuple[BlockId, ...]) -> Iterator[tuple[BlockEntry, FileInode]]:
    """Yield those of these blocks that are open, each with the file it belongs to."""
    for block in wanted:
        entry = block_entry(reads, block)
        if entry is None or entry.record.finalized or entry.file == NO_FILE:
            continue
        inode = inode_of(reads, entry.file)
        if isinstance(inode, FileInode):
            yield entry, inode


def path(reads: Reads, entry: BlockEntry) -> str:
    """Return the path of the file that a block belongs to; "" if it no longer has one."""
    inode = inode_of(reads, entry.file)
    return "" if inode is None else tree.path_of(reads, inode) or ""


@dataclass(frozen=True, slots=True)
class FilePage:
    """A file, some of its blocks, and its last one where that is not among them."""

    status: FileStatus
    page: tree.BlockPage
    last: tree.Located | None


def file_page(view: View, request: GetFile, limit: int, actor: Actor) -> FilePage:
    """Return a page of a file's blocks: those from a place on, or around a byte.

    Raises:
        NotFoundError: there is no such file.
        IsDirectoryError: the path names a directory.
        PermissionDeniedError: the actor may not read the file, or not come there.
        InvalidRequestError: it is encrypted, and the client cannot decrypt it.
    """
    reads = snapshots.at(view, request.path, actor)
    if request.file_id == NO_FILE or isinstance(reads, PastView):  # nothing is moved there
        inode, path = tree.find_inode(reads, request.path, actor, Action.READ), request.path
        if not isinstance(inode, FileInode):
            raise tree.is_directory(path)
    else:
        inode, path = file_and_path(reads, request.file_id)
        check_may_read(reads, inode, path, actor)
    if inode.zone and not (request.decrypts or request.only_shows):
        raise zones.of_earlier_client(path)
    start = request.place
    if request.offset is not None:
        start = tree.place_of_offset(reads, inode.number, request.offset)
    if isinstance(reads, PastView):
        page = tree.past_page(reads, inode, start, limit)
        last = None if page.next_place is None else tree.past_last(reads, inode)
        return FilePage(tree.status(reads, path, inode), page, last)
    page = tree.block_page(reads, inode.number, start, limit)
    last = None if page.next_place is None else tree.last_block(reads, inode.number)
    return FilePage(tree.status(reads, path, inode), page, last)


def check_may_read(reads: Reads, inode: FileInode, path: str, actor: Actor) -> None:
    """Demand that the file at a path may be read, as if it was asked for by its path.

    Raises:
        PermissionDeniedError: the actor may not read it, or not come there.
    """
    if not actor.superuser:
        tree.find(reads, path, actor)
        permissions.check(inode, Action.READ, paths.split(path), actor)


def check_may_write(reads: Reads, number: int, actor: Actor) -> None:
    """Demand that the actor may write a file by its id, if it is there.

    Raises:
        PermissionDeniedError: it is neither the actor's, nor does its mode let them write.
    """
    inode = inode_of(reads, number)
    if isinstance(inode, FileInode):
        permissions.check_writer(inode, paths.split(tree.path_of(reads, inode) or "/"), actor)


def open_file(reads: Reads, number: int, writer: WriterId) -> FileInode:
    """Return a file that `writer` may write.

    Raises:
        NotFoundError: the file was deleted.
        FencedError: the file is closed, or another writer took it over.
    """
    inode, path = file_and_path(reads, number)
    if not inode.open or inode.writer != writer:
        raise _not_held(inode, path, writer)
    return inode


def already_added(reads: Reads, request: AddBlock) -> BlockEntry | None:
    """Return the block that an earlier copy of this AddBlock made; None if this is the first.

    Raises:
        NotFoundError, FencedError: the writer does not hold the file.
        InvalidRequestError: `previous` is not the file's last block, or is not finalized yet.
    """
    inode = open_file(reads, request.file_id, request.writer)
    if request.ahead:
        return reserving.reserved(reads, inode)
    last = tuple(place.block for place in tree.last_places(reads, request.file_id, 2))
    if not last:
        _check_previous(request, NO_BLOCK)
        return None
    entry = get(reads, last[0])
    if last[0] == request.previous:
        if not entry.record.finalized:
            raise InvalidRequestError(
                f"block {request.previous}: finalize it before the next block of the file is added",
                block=request.previous,
            )
        return None
    _check_previous(request, last[1] if len(last) > 1 else NO_BLOCK)
    if entry.record.writer != request.writer or entry.record.finalized:
        raise InvalidRequestError(
            f"block {request.previous}: is not the last block of file {request.file_id} any more",
            block=request.previous,
        )
    return entry


def add(
    draft: Draft, request: AddBlock, block: BlockId, members: tuple[StorageId, ...]
) -> BlockEntry:
    """K1: append a new block to a file. A repeated request gets the block of the first."""
    if (present := already_added(draft, request)) is not None:
        return present
    inode = open_file(draft, request.file_id, request.writer)
    record = finalize.add_block(block, members, request.writer, request.window, inode.durability)
    if request.ahead:
        return reserving.reserve(draft, inode, record)
    before = quotas.charged(draft, inode)
    if reserving.drop(draft, inode):  # its replicas are deleted when they are reported
        inode = msgspec.structs.replace(inode, reserved=NO_BLOCK)
        draft.put_inode(inode)
    last = tree.last_block(draft, request.file_id)
    assert last is None or last.entry.record.finalized, "only the last block may be undecided"
    if last is not None:
        protocol_errors.check_learned(last.entry.record)  # the new block begins where it ends
        give_up_append(draft, last.entry)
    sequence = last.entry.sequence + 1 if last else 0
    entry = BlockEntry(record, request.file_id, sequence, zone=inode.zone)
    place = keys.place(request.file_id, entry.sequence)
    draft.get(place)
    draft.put(place, encode(Place(block, last.end if last else 0)))
    draft.add_block(entry)
    quotas.resized(draft, before, inode)
    return entry


def change(draft: Draft, block: BlockId, rule: Rule) -> BlockEntry | Refused:
    """Apply one of the K rules to a block's record. A rule that changes nothing commits nothing."""
    before = get(draft, block)
    after = rule(before.record)
    if isinstance(after, Refused):
        return after
    entry = replace(before, record=after)
    if after != before.record:
        draft.replace_block(before, entry)
        if entry.file == NO_FILE and after.finalized:
            draft.delete(keys.open_block(block))
    return entry


def note_ended(draft: Draft, block: BlockId) -> None:
    """Note that a block that only a snapshot shows is ended, if it is one and is there."""
    entry = block_entry(draft, block)
    if entry is not None and entry.record.finalized and kept_file(draft, entry.file) is not None:
        draft.delete(keys.open_block(block))


def finalize_by_writer(draft: Draft, request: FinalizeBlock) -> BlockEntry:
    """K6: the writer's length is the block's length; a block that was made ahead may follow it.

    Raises:
        FencedError: a recovery decided another length, or the generation is not the writer's.
        NotFoundError, FencedError: a block should follow, and the writer does not hold the file.
        InvalidRequestError: the block that should follow was not made ahead for that.
    """

    def rule(record: BlockRecord) -> BlockRecord | Refused:
        return finalize.finalize_by_writer(
            record, request.writer, request.generation, request.length, request.size_bytes
        )

    done = change(draft, request.block, rule)
    if isinstance(done, Refused):
        raise protocol_errors.refusal(done)
    if request.following != NO_BLOCK:
        inode = open_file(draft, done.file, request.writer)
        reserving.attach(draft, inode, done, request.following)
    return done


def fence(draft: Draft, path: str, actor: Actor) -> FileInode:
    """Take a file from its writer for recovery; a closed file stays as it is.

    Raises:
        NotFoundError, IsDirectoryError: there is no such file.
        PermissionDeniedError: the actor may not write it.
    """
    inode = tree.find_inode(draft, path, actor, Action.WRITE)
    if not isinstance(inode, FileInode):
        raise tree.is_directory(path)
    return _fenced(draft, inode)


def fence_writer(draft: Draft, number: int, writer: WriterId) -> FileInode | None:
    """Take a file from `writer`, whose lease is over; None if `writer` no longer holds it."""
    inode = inode_of(draft, number)
    if not isinstance(inode, FileInode) or not inode.open or inode.writer != writer:
        return None
    return _fenced(draft, inode)


def close(draft: Draft, wanted: CloseFile, now_ms: int) -> Closed:
    """Close a file whose last block is decided, or is decided by `wanted.last` (K6).

    A last block of length zero leaves the file if it is the writer's. If the file has no block,
    `wanted.last` may be about the block that was made ahead with the file. All earlier blocks are
    decided: a block is only added after a finalized one (K1), and a finalized block stays so. A
    repeated close by the same writer finds the file closed and succeeds again.

    Raises:
        NotFoundError: the file was deleted.
        FencedError: another writer took the file over, or a recovery decided another length.
        InvalidRequestError: a block is not finalized, or `wanted.last` is not about the last one.
        CorruptionError: it would have another size than its writer says.
    """
    number, writer, ends = wanted.file_id, wanted.writer, wanted.last
    inode, path = file_and_path(draft, number)
    if not inode.open and inode.writer == writer:
        return Closed(inode)
    if not inode.open or inode.writer != writer:
        raise _not_held(inode, path, writer)
    before = quotas.charged(draft, inode)
    if ends is not None:
        inode = reserving.attach_first(draft, inode, ends.block)
    ended = None if ends is None else finalize_by_writer(draft, ends)
    if ended is not None and ended.file != number:
        what = f"block {ended.record.block} is not one of its blocks"
        raise InvalidRequestError(f"{paths.shown(path)}: {what}", path=path)
    last = _last_decided(draft, number, path)
    if ended is not None and (last is None or last.entry.record.block != ended.record.block):
        what = f"block {ended.record.block} is not its last one"
        raise InvalidRequestError(f"{paths.shown(path)}: {what}", path=path)
    # A block that is added meanwhile must not end up in a closed file.
    draft.expect_empty(keys.places(number, last.entry.sequence + 1 if last else 0))
    length = last.end if last else 0
    assert length >= inode.length, "an append never makes a file shorter"
    if wanted.size not in (None, length):
        what = f"would have {length} bytes, but its writer says {wanted.size}"
        raise CorruptionError(f"{paths.shown(path)}: {what}", path=path)
    leaves = last is not None and leaves_at_close(last.entry, inode)
    dropped: tuple[BlockEntry, ...] = (last.entry,) if last and leaves else ()
    given_up = give_up_append(draft, last.entry) if last and not dropped else None
    for entry in dropped:
        drop(draft, entry)
    dropped += reserving.drop(draft, inode)
    closed = msgspec.structs.replace(
        inode, open=False, modified_ms=now_ms, length=length, reserved=NO_BLOCK
    )
    draft.put_inode(closed)
    draft.delete(keys.open_file(number))
    quotas.resized(draft, before, closed, free=True)
    return Closed(closed, dropped, given_up)


def give_up_append(draft: Draft, entry: BlockEntry) -> BlockEntry | None:
    """K9: give up the APPEND that is being set up in a block; return its entry, None without one.

    Only the last block of an open file can have such an APPEND, and any leader ends it: it is given
    up when the file is closed or gets another block.
    """
    if not entry.record.reopening:
        return None
    done = change(draft, entry.record.block, finalize.give_up_append)
    assert isinstance(done, BlockEntry), "K9 is refused by no finalized record"
    return done


def leaves_at_close(entry: BlockEntry, inode: FileInode) -> bool:
    """True for a block of length zero that was added by the writer who holds the file.

    A fenced writer may still be about to make the replicas of its last block (W1). Replicas that
    are there refuse that writer; deleted ones would be made again and take its chunks.
    """
    record = entry.record
    return record.finalized and not record.length and record.writer == inode.writer


def drop_empty(
    draft: Draft, number: int, writer: WriterId, wanted: tuple[BlockId, ...]
) -> tuple[BlockEntry, ...]:
    """Remove from an open file those of the `wanted` blocks that its close would remove.

    The last block stays, so that a late copy of the request that added it finds it.

    Returns:
        The blocks that left.

    Raises:
        NotFoundError, FencedError: `writer` does not hold the file.
    """
    inode = open_file(draft, number, writer)
    last = tree.last_block(draft, number)
    found = [entry for each in wanted if (entry := block_entry(draft, each)) is not None]
    assert all(entry.file == number for entry in found), "they are blocks of this file"
    dropped = tuple(
        entry
        for entry in found
        if leaves_at_close(entry, inode) and last is not None and entry != last.entry
    )
    for entry in dropped:
        drop(draft, entry)
    return dropped


def drop(draft: Draft, entry: BlockEntry) -> None:
    """Take a block out of its file. The file is as long as before: the block has no bytes, or the
    caller sees to the length."""
    draft.delete(keys.place(entry.file, entry.sequence))
    draft.delete(keys.block(entry.record.block))


def append(draft: Draft, request: AppendFile, actor: Actor) -> Appendable:
    """Open a closed file again for `request.writer`; the caller starts its lease.

    The file keeps its bytes, and the writer's come after them. A repeated request finds the file
    that the first one opened.

    Raises:
        NotFoundError, IsDirectoryError: there is no such file.
        LeaseError: another writer is writing it.
        NotReadyError: it is being closed after its writer was fenced.
        FencedError: the writer held the file before, and the file was closed since.
        SafeModeError: an operator entered safe mode.
        NotReadyError: what became of its last block since a backup is not known yet.
        PermissionDeniedError: the actor may not write the file.
    """
    inode = tree.find_inode(draft, request.path, actor, Action.WRITE)
    if not isinstance(inode, FileInode):
        raise tree.is_directory(request.path)
    span = keys.places(inode.number)
    if inode.zone and not request.encrypts:
        raise zones.of_earlier_client(request.path)
    if inode.open:
        _check_opened_by(inode, request)
        span = keys.place(inode.number, 0), keys.place(inode.number, inode.appended_from)
    last, following = NO_BLOCK, 0
    for key, found in draft.scan(*span, 1, reverse=True):
        last, following = decode_place(found.value).block, keys.place_sequence(key) + 1
    if inode.open:
        return Appendable(tree.status(draft, request.path, inode), last)
    opened = _reopened(draft, inode, request, following, last)
    return Appendable(tree.file_status(request.path, opened, inode.length), last)


def unfinished(reads: Reads, number: int) -> tuple[BlockEntry, ...]:
    """Return the blocks of a file whose length is not decided yet: its last one, or none (K1)."""
    last = tree.last_block(reads, number)
    return () if last is None or last.entry.record.finalized else (last.entry,)


def stuck(reads: Reads, number: int) -> tuple[BlockEntry, ...]:
    """Return the block that an operator may have to end: the `unfinished` one, or an empty last one
    of a backup."""
    last = tree.last_block(reads, number)
    if last is None or (last.entry.record.finalized and not last.entry.record.may_be_empty):
        return ()
    return (last.entry,)


def _check_opened_by(inode: FileInode, request: AppendFile) -> None:
    """Raise the error for a request to append to an open file, unless the file's writer sent it:
    that is a copy of the request that opened the file."""
    if inode.writer == RECOVERY_WRITER:
        raise NotReadyError(f"{paths.shown(request.path)}: is being recovered", path=request.path)
    if inode.writer != request.writer:
        raise tree.being_written(request.path, inode)


def _reopened(
    draft: Draft, inode: FileInode, request: AppendFile, appended_from: int, last: BlockId
) -> FileInode:
    namespace.check_names_may_change(draft)
    if last != NO_BLOCK:
        protocol_errors.check_learned(get(draft, last).record)
    if inode.writer == request.writer:  # a late copy of the request
        raise _not_held(inode, request.path, request.writer)
    opened = msgspec.structs.replace(
        inode, open=True, writer=request.writer, appended_from=appended_from
    )
    draft.put_inode(opened)
    draft.put(keys.open_file(opened.number), b"")
    return opened


def _fenced(draft: Draft, inode: FileInode) -> FileInode:
    if not inode.open or inode.writer == RECOVERY_WRITER:
        return inode
    fenced = msgspec.structs.replace(inode, writer=RECOVERY_WRITER)
    draft.put_inode(fenced)
    return fenced


def _not_held(inode: FileInode, path: str, writer: WriterId) -> FencedError:
    if not inode.open:
        return FencedError(f"{paths.shown(path)}: was closed by {inode.writer}", path=path)
    who = "recovery" if inode.writer == RECOVERY_WRITER else inode.writer
    return FencedError(
        f"{paths.shown(path)}: {writer} was fenced, {who} holds the file now", path=path
    )


def _last_decided(draft: Draft, number: int, path: str) -> tree.Located | None:
    """Return the last block of a file; raise InvalidRequestError unless it is decided."""
    last = tree.last_block(draft, number)
    if last is not None and not last.entry.record.finalized:
        block, state = last.entry.record.block, last.entry.record.state.value.replace("_", " ")
        raise InvalidRequestError(
            f"{paths.shown(path)}: block {block} is not finalized ({state})",
            path=path,
            block=block,
        )
    return last


def _check_previous(request: AddBlock, expected: BlockId) -> None:
    if request.previous != expected:
        raise InvalidRequestError(
            f"block {request.previous}: is not the last block of file {request.file_id}",
            block=request.previous,
        )
