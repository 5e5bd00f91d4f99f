"""Blocks that stay because the past shows them, and what goes once that part of it has ended.

A snapshot shows a block if, at the revision that it holds, a place of a file named the block, and
the way up from that file, by the parents as they were then, leads to its directory. A block comes
to other files (concat, truncate) and its file to other directories; so what was, and not what is,
decides. Two things lead from a block to all places that ever named it, as far as they are still
held: its record names the place at which it is, and an `F` key each place that it left. Such a key
is written by the edit in which the block leaves, and goes with the before-image of the place.

Every decision that may take away a block, or cut it, or move it, asks here, and so expects that no
snapshot is made or ended before it is applied. What is asked for is in the state that the draft
stands on: the draft's own changes come after all revisions that are held.

The window of history shows all that was below the root at a revision that it holds. What is
unlinked waits for the entry behind which the window no longer shows it (`X`): a directory as it is,
with all that is below it, so that it can be linked again.

An unlinked file whose blocks are shown is a *kept file*: it keeps its places, and waits for each
snapshot that it was found to be shown by (`W`). When one of these ends, the file becomes garbage
again, and the sweep looks at it once more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from paxosblock.api.namenode import NO_BLOCK
from paxosblock.namenode.catalog import keys
from paxosblock.namenode.catalog.draft import Draft, Reads, block_entry
from paxosblock.namenode.catalog.records import (
    ROOT_ID,
    FileInode,
    KeptFile,
    Snapshot,
    decode_inode,
    decode_kept,
    decode_place,
    decode_snapshot,
    encode,
)
from paxosblock.namenode.kv import past
from paxosblock.namenode.kv.interface import Versioned
from paxosblock.protocol.types import BlockId

STEP_FILES: Final = 100
"""Kept files that one step after the end of a snapshot gives back to the sweep."""
STEP_IMAGES: Final = 300
"""Before-images that one such step looks at."""
OF_WINDOW: Final = 0
"""The number by which the window is noted among the snapshots that ended: its past has."""
ROOM_LOOKS: Final = 100
"""So many blocks are asked about for one answer."""
WORK_OF_LOOK: Final = 10
"""Keys that a look for who shows a block reads, more or less."""


class HeldRevision(msgspec.Struct, frozen=True, gc=False):
    """A snapshot: it shows what was below `directory` at `revision`."""

    revision: int
    directory: int
    number: int


class HeldUntil(msgspec.Struct, frozen=True, gc=False):
    """The window of history: it shows something while it begins before `entry`."""

    entry: int


def window(reads: Reads) -> int | None:
    """Return the first revision that the window of history holds; None: there is no window."""
    found = reads.get(keys.HISTORY)
    return past.held_revision(found) if found.exists else None


def snapshots(reads: Reads) -> Iterator[tuple[bytes, HeldRevision, Snapshot]]:
    """Yield the key of each snapshot, what it holds, and its record."""
    for key, found in reads.scan(*keys.SNAPSHOTS):
        record = decode_snapshot(past.hold_rest(found))
        yield (
            key,
            HeldRevision(past.held_revision(found), keys.number_of(key), record.number),
            record,
        )


class Shown:
    """Tells one decision what is shown by a snapshot. Without any it costs one read."""

    def __init__(self, draft: Draft) -> None:
        """Expect that the snapshots stay as they are until the decision is applied."""
        self._draft = draft
        self.any_kept = draft.get(keys.SNAPSHOT_COUNT).exists
        """False if there is no snapshot, and nothing left of one that ended."""
        self._window = window(draft.applied) if self.any_kept else None
        found = snapshots(draft.applied) if self.any_kept else ()
        self._held = sorted((held for _, held, _ in found), key=lambda held: -held.revision)
        self._newest = self._held[0].revision if self._held else 0
        if self._window is not None:
            self._newest = past.EVER

    def by(self, block: BlockId, besides: int = 0) -> HeldRevision | HeldUntil | None:
        """Return what shows a block, a snapshot or the window; None if nothing does `besides` the
        snapshot of that number."""
        if not self._newest:
            return None
        self._draft.work += WORK_OF_LOOK
        reads = self._draft.applied
        until = 0
        for key in _places(reads, block):
            for version in past.versions(reads, key):
                if decode_place(version.value).block != block:
                    continue
                held = [
                    each
                    for each in self._held
                    if each.number != besides and version.at(each.revision)
                ]
                found = _showing(reads, keys.number_of(key), held)
                if found is not None:
                    return found
                until = max(until, self._until(keys.number_of(key), version))
        return HeldUntil(until) if until else None

    def until(self, number: int) -> int:
        """Return the entry up to which the window shows a file or directory; 0: it does not."""
        return self._until(number, past.KeptVersion(0, None, b""))

    def _until(self, number: int, version: past.KeptVersion) -> int:
        """The same, of what was in this file or directory while something had this version."""
        if self._window is None:
            return 0
        self._draft.work += WORK_OF_LOOK
        return _shown_until(self._draft.applied, number, version, self._window)

    def leaves(self, block: BlockId, place: bytes) -> None:
        """Note that the decision takes a block, which stays, away from the place of this key."""
        if not self._newest:
            return
        found = self._draft.applied.get(place)
        is_held = found.exists and found.revision <= self._newest
        if is_held and decode_place(found.value).block == block:  # so it gets a before-image
            self._draft.put(keys.former_place(block, place), b"")


def forget(draft: Draft, block: BlockId) -> None:
    """Forget what is known of a block beside its record, which the draft removes."""
    for key, _ in list(draft.scan(*keys.former_places(block))):
        draft.delete(key)
    if draft.peek(keys.open_block(block)).exists:  # it was kept, and is not ended
        draft.delete(keys.open_block(block))


def kept_file(reads: Reads, number: int) -> KeptFile | None:
    """Return a kept file; None if there is none of this id."""
    found = reads.get(keys.kept_file(number))
    return decode_kept(found.value) if found.exists else None


def put_kept(draft: Draft, inode: FileInode, swept_to: int) -> None:
    """Write a kept file."""
    draft.put(keys.kept_file(inode.number), encode(KeptFile(inode, swept_to)))


def clear_step(draft: Draft) -> bool:
    """Do a step's worth of what is to do after a snapshot has ended; False if there is nothing."""
    key, found = next(draft.scan(*keys.ENDED_SNAPSHOTS, 1), (b"", None))
    if found is None:
        return False
    draft.get(key)
    number = keys.number_of(key)
    gave = _give_back(draft, number) if number else _give_back_old(draft)
    if not gave:
        _drop_images(draft, key, found.value)
    return True


def _give_back(draft: Draft, snapshot: int) -> bool:
    """Let the sweep look again at files that waited for a snapshot; False if none is left."""
    found = [key for key, _ in draft.scan(*keys.waiting_for(snapshot), STEP_FILES)]
    for key in found:
        draft.delete(key)
        kept = kept_file(draft, keys.waiting_file(key))
        if kept is not None:
            _look_again(draft, kept)
    return bool(found)


def _give_back_old(draft: Draft) -> bool:
    """Let the sweep look at what the window no longer shows; False if nothing is left."""
    horizon = window(draft)
    span = keys.waiting_to(past.EVER if horizon is None else horizon)
    found = list(draft.scan(*span, STEP_FILES))
    for key, inode in found:
        draft.delete(key)
        number = keys.waiting_file(key)
        if inode.value:
            draft.put(keys.garbage(number), inode.value)
            continue
        kept = kept_file(draft, number)
        if kept is not None:
            _look_again(draft, kept)
    return bool(found)


def _look_again(draft: Draft, kept: KeptFile) -> None:
    """Let the sweep look at all places of a kept file."""
    put_kept(draft, kept.inode, swept_to=0)
    garbage = keys.garbage(kept.inode.number)
    if not draft.get(garbage).exists:
        # The block that was made ahead went when all places had been looked at.
        inode = msgspec.structs.replace(kept.inode, reserved=NO_BLOCK)
        draft.put(garbage, encode(inode))


def _drop_images(draft: Draft, ended: bytes, after: bytes) -> None:
    """Drop before-images that nothing holds any more, behind the image `after`.

    A snapshot that is made before this is applied holds a later revision than all of them.
    """
    start, end = keys.IMAGES
    held = sorted(each.revision for _, each, _ in snapshots(draft.applied))
    horizon = window(draft)
    begins = past.EVER if horizon is None else horizon
    page = list(draft.scan(max(start, after), end, STEP_IMAGES))
    draft.work += len(page)
    for image, found in page:
        version = past.image_version(image, found)
        assert version.end is not None, "an image is of what was replaced"
        if version.end <= begins and not any(version.at(revision) for revision in held):
            draft.delete(image)
            key = past.imaged_key(image)
            if keys.is_place(key):
                _forget_place(draft, decode_place(version.value).block, key)
    if page:
        draft.put(ended, page[-1][0] + b"\0")
    elif ended == keys.ended_snapshot(OF_WINDOW) and horizon is not None:
        draft.delete(ended)  # the window goes on
    elif next(draft.scan(*keys.GARBAGE, 1), None) is None:  # so all that was given back is swept
        draft.delete(ended)
        change_count(draft, -1)


def _forget_place(draft: Draft, block: BlockId, place: bytes) -> None:
    """Forget that a block was at a place, unless another before-image has it."""
    others = past.versions(draft, place)
    if not any(each.end and decode_place(each.value).block == block for each in others):
        draft.delete(keys.former_place(block, place))


def change_count(draft: Draft, by: int) -> None:
    """Count one snapshot more or less; a decision that asks what is shown expects the count."""
    if after := count(draft) + by:
        draft.put(keys.SNAPSHOT_COUNT, keys.pack_number(after))
    else:
        draft.delete(keys.SNAPSHOT_COUNT)


def count(reads: Reads) -> int:
    """Return how many snapshots there are, those that are being ended included."""
    found = reads.get(keys.SNAPSHOT_COUNT)
    return keys.unpack_number(found.value) if found.exists else 0


def replica_bytes(reads: Reads, places: Iterable[tuple[bytes, Versioned]]) -> int:
    """Return what the replicas of the finalized blocks at these places take, in bytes."""
    found = (block_entry(reads, decode_place(place.value).block) for _, place in places)
    return sum(
        entry.record.size_bytes * len(entry.record.members)
        for entry in found
        if entry is not None and entry.record.finalized
    )


def only_kept_by(
    draft: Draft, snapshot: int, file: int, place: int
) -> tuple[int, tuple[int, int] | None]:
    """Sum up, for some of what waits for the end of a snapshot, the bytes of replicas of blocks
    that nothing else shows; return the block from which to go on, too, None after the last."""
    shown, size_bytes, looks = Shown(draft), 0, 0
    reads = draft.applied
    _, end = keys.waiting_for(snapshot)
    for key, _ in reads.scan(keys.waiting(snapshot, file), end):
        number = keys.waiting_file(key)
        for found in reads.scan(*keys.places(number, place if number == file else 0)):
            if looks == ROOM_LOOKS:
                return size_bytes, (number, keys.place_sequence(found[0]))
            looks += 1
            block = decode_place(found[1].value).block
            if shown.by(block) is not None and shown.by(block, besides=snapshot) is None:
                size_bytes += replica_bytes(reads, (found,))
    return size_bytes, None


def _places(reads: Reads, block: BlockId) -> Iterator[bytes]:
    """Yield the keys of all places that name a block, or named it at a revision that is held."""
    entry = block_entry(reads, block)
    if entry is not None:
        yield keys.place(entry.file, entry.sequence)
    for key, _ in reads.scan(*keys.former_places(block)):
        yield keys.place_in(key)


def _shown_until(reads: Reads, number: int, version: past.KeptVersion, horizon: int) -> int:
    """Return the entry up to which a file or directory was below the root while something had this
    version; 0 if no revision from `horizon` on shows that."""
    left = [(number, version.begin, past.EVER if version.end is None else version.end)]
    until = 0
    while left:
        number, begin, end = left.pop()
        if number == ROOT_ID:
            until = max(until, end)
            continue
        for above in past.versions(reads, keys.inode(number)):
            first, last = max(begin, above.begin), end if above.end is None else min(end, above.end)
            if first < last and last > horizon:
                left.append((decode_inode(above.value).parent, first, last))
    return until


def _showing(reads: Reads, number: int, held: Sequence[HeldRevision]) -> HeldRevision | None:
    """Return one of the snapshots that has a file or directory below its directory."""
    left = [(number, held)]
    while left:
        number, wanted = left.pop()
        if number == ROOT_ID:
            above = [each for each in wanted if each.directory == ROOT_ID]
            if above:
                return above[0]
            continue
        for version in past.versions(reads, keys.inode(number)):
            inside = [each for each in wanted if version.at(each.revision)]
            for each in inside:
                if each.directory == number:
                    return each
            if inside:
                left.append((decode_inode(version.value).parent, inside))
    return None
