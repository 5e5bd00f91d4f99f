"""The journal: a log of opaque entries in checksummed segments, each append synced.

It knows nothing of edits. Its methods block and belong to one thread at a time.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from paxosblock.base.units import KIB, MIB
from paxosblock.errors import CorruptionError, NoSpaceError, StorageError
from paxosblock.host.disk import Disk, FileHandle, cut_file, opened, read_file
from paxosblock.host.kernel_syncs import KernelSyncs
from paxosblock.namenode.kv.files import numbered, numbers, publish_open
from paxosblock.namenode.kv.journal_watermark import JournalWatermark, read_mark
from paxosblock.namenode.kv.segment import (
    HEADER_BYTES,
    SALT_BYTES,
    Segment,
    check_header,
    encode_batch,
    encode_header,
    read_segment,
)

_KIND = "journal"

LOOP_BYTES = 256 * KIB
"""Longest batch that the event loop writes: the system takes some milliseconds for each MiB, where
memory that holds new data is dear."""

ROOM_BYTES = 8 * MIB
"""Free room that the store waits for after a full disk: enough for the longest edit."""

_log = logging.getLogger(__name__)


def replay(disk: Disk, folder: Path, after: int) -> Iterator[tuple[int, memoryview]]:
    """Yield (index, payload) of every entry later than `after`, in order; cut off a torn tail.

    When this ends, all entries that it yielded are durable. A process may have died between write
    and sync, and no reader may see an entry that is not durable yet.

    Raises:
        CorruptionError: a segment is damaged, or one is missing.
    """
    firsts = numbers(disk.names(folder), _KIND)
    earlier = [first for first in firsts if first <= after + 1]
    needed = max(after, read_mark(disk, folder))
    if not earlier and (firsts or needed > 0):
        raise CorruptionError(f"{folder}: the journal's entries from {after + 1} on are missing")
    chain = firsts[len(earlier) - 1 :] if earlier else []
    for first, following in pairwise([*chain, None]):
        assert first is not None, "None only ends the chain"
        segment = _read(disk, folder, first, following, needed if needed > after else 0)
        skipped = max(0, after + 1 - first)
        yield from enumerate(segment.entries[skipped:], first + skipped)


def check_formats(disk: Disk, folder: Path) -> None:
    """Check the beginning of every file of the journal, and change nothing.

    Raises:
        ConfigError: another version wrote a file.
        CorruptionError: the beginning of a file is damaged.
    """
    read_mark(disk, folder)
    for first in numbers(disk.names(folder), _KIND):
        path = numbered(folder, _KIND, first)
        with opened(disk, path) as file:
            check_header(str(path), disk.read(file, HEADER_BYTES, 0))


def _read(disk: Disk, folder: Path, first: int, following: int | None, needed: int) -> Segment:
    path = numbered(folder, _KIND, first)
    data = read_file(disk, path)
    segment = read_segment(str(path), data)
    torn_bytes = len(data) - segment.size_bytes
    if segment.first_index != first:
        raise CorruptionError(f"{path}: begins with entry {segment.first_index}, not {first}")
    if following is None:
        _check_reaches(path, segment, needed)
        if torn_bytes:
            _log.warning("%s: cut off a torn tail of %d bytes", path, torn_bytes)
        cut_file(disk, path, segment.size_bytes)
    elif torn_bytes or segment.next_index != following:
        # The next segment was begun only when this one was complete and durable.
        lost = f"entries {segment.next_index} to {following - 1} are missing"
        whole = segment.next_index == following
        raise CorruptionError(
            f"{path}: damaged at offset {segment.size_bytes}: "
            + (f"{torn_bytes} bytes after its last entry fail their checksum" if whole else lost),
            file=str(path),
            offset=segment.size_bytes,
        )
    return segment


def _check_reaches(path: Path, segment: Segment, needed: int) -> None:
    """Raise CorruptionError if the journal, with its tail still on, lacks entry `needed`."""
    last = segment.next_index - 1
    if last < needed:
        raise CorruptionError(
            f"{path}: cut short at offset {segment.size_bytes}: {needed - last} entries that had "
            f"been durable, {last + 1} to {needed}, are missing",
            file=str(path),
            offset=segment.size_bytes,
        )


class Journal:
    """Appends entries. A new segment begins at every start and after `segment_bytes`."""

    def __init__(self, disk: Disk, folder: Path, next_index: int, segment_bytes: int) -> None:
        """Begin a segment after the entries that `replay` found."""
        self._disk = disk
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._next_index = next_index
        self._failed = False
        self._firsts = [first for first in self._on_disk() if first < next_index]
        self._file = self._begin()
        self._mark = JournalWatermark(disk, folder, next_index - 1)

    def __repr__(self) -> str:
        return f"Journal(next_index={self._next_index}, segments={self._firsts})"

    @property
    def next_index(self) -> int:
        return self._next_index

    def append(self, entries: Sequence[bytes]) -> int:
        """Append the entries as one batch; return how many bytes it took, once it is durable.

        Raises:
            NoSpaceError: nothing was appended; try again when there is room.
            StorageError: nothing can be appended any more, because the kernel may have dropped the
                pages that it could not write, and a second sync would succeed without them.
        """
        assert not self._failed, "a sync that failed is never retried"
        try:
            if self._size >= self._segment_bytes:
                self._roll()
            size = self._write(entries)
        except NoSpaceError:
            raise
        except BaseException:
            self._failed = True
            raise
        self._count(len(entries))
        return size

    def begin_append(
        self, entries: Sequence[bytes], kernel: KernelSyncs, done: Callable[[int | Exception], None]
    ) -> bool:
        """Append as `append` does, but on the event loop, while the kernel waits for the sync.

        `done` is called with what `append` would return or raise. Until then only `remove_through`
        may be called.

        Returns:
            False if `append` must do it, and `done` is not called. `append` writes the same bytes
            at the same place, in case they were written.

        Raises:
            StorageError: as `append`.
        """
        assert not self._failed, "a sync that failed is never retried"
        if self._size >= self._segment_bytes or sum(map(len, entries)) > LOOP_BYTES:
            return False
        batch = encode_batch(self._salt, self._size, self._next_index, entries)
        try:
            self._disk.write(self._file, batch, self._size)
        except NoSpaceError:
            return False
        except BaseException:
            self._failed = True
            raise

        def synced(error: OSError | None) -> None:
            if error is not None:
                self._failed = True
                done(StorageError.of("cannot sync", error))
                return
            self._size += len(batch)
            self._count(len(entries))
            done(len(batch))

        return kernel.begin(self._file, synced)

    def _count(self, entries: int) -> None:
        """Count this many more durable entries."""
        self._next_index += entries
        self._mark.move(self._next_index - 1)

    @property
    def has_room(self) -> bool:
        """True if an append may succeed again after a NoSpaceError. Blocks."""
        return self._disk.room(self._folder).free_bytes >= ROOM_BYTES

    def remove_through(self, index: int) -> None:
        """Remove the segments that hold no entry later than `index`, except the open one.

        Each is removed durably before the next one: a power cut that brought an older one back
        would leave a gap, which looks like lost entries.
        """
        while len(self._firsts) > 1 and self._firsts[1] <= index + 1:
            self._disk.remove(numbered(self._folder, _KIND, self._firsts.pop(0)))
            self._disk.sync_folder(self._folder)

    def close(self) -> None:
        """Close the files, after marks that all entries are durable."""
        if not self._failed:
            # This may fail: the mark only helps to recognise damage to the last batch.
            with suppress(NoSpaceError, StorageError):
                self._write(())
            self._mark.keep()
        self._disk.close(self._file)
        self._mark.close()

    def _write(self, entries: Sequence[bytes]) -> int:
        # Batches are written and synced one at a time, so all that lies before this one is durable.
        batch = encode_batch(self._salt, self._size, self._next_index, entries)
        try:
            self._disk.write(self._file, batch, self._size)
        except NoSpaceError:
            # No answer told of this batch, so the next one takes its place.
            self._disk.truncate(self._file, self._size)
            self._disk.sync(self._file)
            raise
        self._disk.sync(self._file)
        self._size += len(batch)
        return len(batch)

    def _roll(self) -> None:
        full = self._file
        self._file = self._begin()
        self._mark.keep()
        self._disk.close(full)

    def _begin(self) -> FileHandle:
        salt = os.urandom(SALT_BYTES)
        header = encode_header(self._next_index, salt)
        # This replaces a segment without entries, which has the same name.
        file = publish_open(self._disk, numbered(self._folder, _KIND, self._next_index), [header])
        self._firsts.append(self._next_index)
        self._salt, self._size = salt, HEADER_BYTES
        return file

    def _on_disk(self) -> list[int]:
        return numbers(self._disk.names(self._folder), _KIND)
