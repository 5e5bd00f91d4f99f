"""The log of a volume's small replicas: segments are appended to, synced and read (FORMAT.md 8).

One sync covers every record that any replica's step or vote has appended until then. Any thread may
append a record, the event loop's too: that is a `pwrite` under a mutex, which no thread holds while
a file is synced, made, read or closed, as the loop must not wait for a disk that hangs.
"""

from __future__ import annotations

import contextlib
import logging
import os
import struct
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final, TypeVar

from paxosblock.base.checksum import Buffer, crc32c
from paxosblock.base.units import MIB
from paxosblock.datanode.store.open_file import OpenFile
from paxosblock.datanode.store.small_index import Index, decode_index, make_index
from paxosblock.datanode.store.small_segment import (
    HEADER_BYTES,
    MARK,
    MARK_FORMAT,
    RECORD_BYTES,
    SALT_BYTES,
    Bounds,
    RecordKind,
    RecordPosition,
    SegmentHeader,
    SmallRecord,
    SmallSegment,
    decode_header,
    encode_record,
    is_of,
    read_records,
    record_size,
    segment_name,
    segment_numbers,
)
from paxosblock.errors import CorruptionError, NoSpaceError, PaxosBlockError, StorageError
from paxosblock.host.disk import Disk, FileHandle, publish, publish_open, read_file
from paxosblock.host.durable_mark import Watermark, read_mark
from paxosblock.host.kernel_syncs import KernelSyncs
from paxosblock.host.logs import facts
from paxosblock.protocol.types import BlockId

SEGMENT_BYTES: Final = 64 * MIB
"""A control step begins a new segment once the last one has so many bytes."""
NO_BLOCK: Final = BlockId(0)
NONE: Final = -1
"""The number of no segment."""
_END: Final = struct.Struct("<Q")
_PREVIOUS_END: Final = HEADER_BYTES + RECORD_BYTES + _END.size

_log = logging.getLogger(__name__)

T = TypeVar("T")


class SegmentRemoved(Exception):
    """The record is no longer at this place, but at a later one."""


class SmallLog(OpenFile):
    """The log. To votes, which wait for a sync, it is the open file of every replica in it."""

    __slots__ = (
        "_boot",
        "_durable",
        "_folder",
        "_known_through",
        "_last",
        "_mark",
        "_marked",
        "_mutex",
        "_ours",
        "_removed",
        "_rolling",
        "_segments",
        "highest",
        "lost_through",
        "why_lost",
    )

    def __init__(self, disk: Disk, folder: Path, boot: str) -> None:
        """Call `open` and `last_records` first. All methods but `append` and `retire` block."""
        super().__init__(disk, FileHandle(-1))
        self._folder = folder
        self._boot = boot
        self._mutex = threading.Lock()
        self._rolling = threading.Lock()
        self._segments: dict[int, SmallSegment] = {}
        self._removed: list[SmallSegment] = []
        """Segments that are no more there, and still open."""
        self._last = 0
        """The number of the last segment; 0: there is none."""
        self._ours = 0
        """The same once this process has begun one, else 0: a segment of an earlier process is
        never appended to."""
        self._marked = RecordPosition(0, 0)
        self._mark: Watermark | None = None
        self._durable: RecordPosition | None = None
        """All before it was durable once, as the mark said that an earlier process left."""
        self._known_through = NONE
        self.highest = NO_BLOCK
        """The greatest id of a block that a record was about."""
        self.lost_through = NONE
        """The last segment that a start found to have lost records, which was not known before."""
        self.why_lost = ""

    # -- the start ------------------------------------------------------------------------------

    def open(self, known_through: int = NONE) -> list[int]:
        """Open every segment; return the numbers of those that take no more records, in order.

        It is known, and need not be told again, that segments up to `known_through` lost records.

        Raises:
            ConfigError: a later version wrote a segment.
            CorruptionError: records are lost, and their blocks are not known.
            StorageError: as the disk says.
        """
        self._known_through = known_through
        mark = read_mark(self._disk, self._folder / MARK, MARK_FORMAT)
        if mark is not None:
            self._durable, self.highest = RecordPosition(mark[0], mark[1]), BlockId(mark[2])
        numbers = segment_numbers(self._disk.names(self._folder))
        for number in numbers:
            self._open(number)
        for number, following in pairwise(numbers):
            if following != number + 1:
                self._lose(following - 1, f"{self._path(number + 1)} is missing")
        if len(numbers) > 1 and self._end_before(numbers[-1], last=True) is None:
            # It was only begun: the next segment takes its place.
            self._disk.close(self._segments.pop(numbers.pop()).handle)
            self._last = numbers[-1]
        for number, following in pairwise(numbers):
            segment, end = self._segments[number], self._end_before(following)
            segment.end = segment.synced = end or self._disk.size(segment.handle)
        return numbers[:-1]

    def _lose(self, number: int, why: str) -> None:
        """Note that records of a segment are lost.

        All that was ever answered is about blocks that the mark knows of: a record that it has not
        come to is of a block that an earlier one is about, or was never answered. But an earlier
        version, which has no mark, may have written a segment behind it.

        Raises:
            CorruptionError: it is not known which blocks they were about.
        """
        if number <= self._known_through:
            return
        if self._durable is None or number > self._durable.segment:
            raise CorruptionError(f"{why}: it is not known what its replicas have promised")
        self.lost_through, self.why_lost = max(number, self.lost_through), self.why_lost or why

    def _loser(self, number: int) -> Callable[[int], None]:
        def lose(offset: int) -> None:
            self._lose(number, f"{self._path(number)} is damaged at offset {offset}")

        return lose

    def _open(self, number: int) -> None:
        path = self._path(number)
        handle = self._disk.open(path)
        data = self._disk.read(handle, HEADER_BYTES + RECORD_BYTES, 0)
        try:
            header = decode_header(str(path), data)
        except CorruptionError:  # no record can be found, nor be taken for one
            header = SegmentHeader(os.urandom(SALT_BYTES), "")
        if not header.boot:
            _log.error("the head of a segment is damaged", extra=facts(path=path))
        same_boot = is_of(header, self._boot)
        segment = SmallSegment(handle, header.salt, HEADER_BYTES, same_boot=same_boot)
        self._segments[number] = segment
        self._last = number

    def _end_before(self, number: int, *, last: bool = False) -> int | None:
        """Return where the segment before this one ended; 0 if that cannot be read. None if this
        one, the `last`, does not say, because nothing was appended to it."""
        segment, name, lost = self._segments[number], str(self._path(number)), list[int]()
        end = None if last else _PREVIOUS_END
        data = self._disk.read(segment.handle, end or self._disk.size(segment.handle), 0)
        bounds = self._bounds(number, end)
        first = next(read_records(name, data, bounds, lost.append), None)
        if first is None and last and not lost:
            return None
        if lost or first is None or first.payload is None or first.kind is not RecordKind.PREVIOUS:
            self._loser(number)(HEADER_BYTES)
            return 0
        said: int = _END.unpack(first.payload)[0]
        return said

    def _bounds(self, number: int, end: int | None) -> Bounds:
        segment, durable = self._segments[number], 0
        if self._durable is not None and self._durable.segment == number:
            durable = self._durable.offset
        return Bounds(segment.salt, end, segment.same_boot, durable)

    def last_records(self) -> Iterator[tuple[int, SmallRecord]]:
        """Yield every record of the last segment, with its number; all of them are durable.

        Raises:
            CorruptionError: records are lost, and their blocks are not known.
            StorageError: as the disk says.
        """
        number, segment = self._last, self._segments.get(self._last)
        if segment is not None:
            self._disk.sync(segment.handle)  # its process may have died before it synced
            data = self._disk.read(segment.handle, self._disk.size(segment.handle), 0)
            name, bounds = str(self._path(number)), self._bounds(number, None)
            for record in read_records(name, data, bounds, self._loser(number)):
                segment.end = record.end
                yield number, record
            segment.synced = segment.end
        if self._durable is not None and self._durable.segment > number:
            self._known_through = min(self._known_through, number - 1)  # it came after
            self._lose(number, f"{self._path(self._durable.segment)} is missing or cut short")

    # -- writing --------------------------------------------------------------------------------

    def begin_segment(self) -> None:
        """Make sure that the last segment belongs to this process and has room for a record.

        Raises:
            NoSpaceError: the disk has no room for a new segment.
            StorageError: as the disk says.
        """
        with self._rolling:
            if self.has_segment:
                return
            last = self._segments.get(self._last)
            if self._mark is None:
                path, end = self._folder / MARK, 0 if last is None else last.synced
                draft = path.with_name(f"{MARK}.new")
                at = (self._last, end, self.highest)
                self._mark = Watermark(self._disk, draft, path, MARK_FORMAT, *at)
            number, salt = self._last + 1, os.urandom(SALT_BYTES)
            path = self._path(number)
            header = SegmentHeader(salt, self._boot).encode()
            draft = path.with_name(f"{path.name}.new")
            segment = SmallSegment(
                publish_open(self._disk, draft, path, [header]), salt, HEADER_BYTES
            )
            # Votes may come while the disk syncs, but not often: each has its replica's only chunk,
            # and besides them only `tidy` appends to a full segment, a bounded part.
            while not self._follow(last, number, segment):
                self.sync()

    def _follow(self, last: SmallSegment | None, number: int, segment: SmallSegment) -> bool:
        """Let `segment` take the records from now on; False: not all of `last` is durable yet."""
        with self._mutex:
            if last is not None:
                if last.synced < last.end:
                    return False
                self._write(segment, RecordKind.PREVIOUS, NO_BLOCK, _END.pack(last.end))
            self._segments[number] = segment
            self._last = self._ours = number
            return True

    def append(self, kind: RecordKind, block: BlockId, payload: Buffer = b"") -> RecordPosition:
        """Hand a record to the operating system; does not sync.

        Raises:
            NoSpaceError: nothing was appended.
            StorageError: as the disk says.
        """
        with self._mutex:
            assert self._ours, "a control step has begun a segment"
            segment = self._segments[self._last]
            at = RecordPosition(self._last, self._write(segment, kind, block, payload))
            self.highest = max(self.highest, block)
            return at

    def _write(
        self, segment: SmallSegment, kind: RecordKind, block: BlockId, payload: Buffer
    ) -> int:
        offset = segment.end
        record = encode_record(segment.salt, kind, block, payload, segment.synced)
        try:
            self._disk.write(segment.handle, record, offset)
        except NoSpaceError:
            self._disk.truncate(segment.handle, offset)
            raise
        segment.end += len(record)
        return offset

    def sync(self) -> None:
        """Bring every record that was appended until now to stable storage.

        A caller that waits here while another one syncs mostly finds its record synced, too.

        Raises:
            StorageError: this sync or an earlier one failed.
        """
        with self._mutex:
            number = self._last
            wanted = self._segments[number].end if number else 0
        with self._syncing:
            if self._failure is not None:
                raise self._failure
            with self._mutex:
                segment = self._segments.get(number)
                if segment is None or segment.synced >= wanted:
                    return
                wanted = segment.end
            try:  # the segments before were synced when this one was begun
                self._disk.sync(segment.handle)
            except PaxosBlockError as error:
                self._failure = error
                raise
            self._note_synced(number, segment, wanted)

    def _note_synced(self, number: int, segment: SmallSegment, end: int) -> None:
        """Note that a segment is durable so far. One sync is under way at a time."""
        with self._mutex:
            segment.synced = max(segment.synced, end)
            if self._mark is not None:  # or the log is closed
                self._mark.move(number, segment.synced, self.highest)

    def _bring(self, step: Callable[[FileHandle], None]) -> None:
        """As `sync`, for `write_out` too."""
        self.sync()

    def begin_sync(
        self, kernel: KernelSyncs, done: Callable[[PaxosBlockError | None], None]
    ) -> bool:
        """As `OpenFile.begin_sync`, for every record that was appended until now."""
        with self._mutex:
            number, segment = self._last, self._segments[self._last]
            wanted = segment.end

        def note() -> None:
            self._note_synced(number, segment, wanted)

        return self._begin_sync_of(segment.handle, kernel, note, done)

    def mark(self) -> None:
        """If all is durable and no record says so yet, append one that does; do not sync it."""
        with self._mutex, contextlib.suppress(NoSpaceError):
            if not self._ours:
                return
            segment = self._segments[self._last]
            if segment.synced == segment.end and self._marked != (self._last, segment.end):
                self._write(segment, RecordKind.MARK, NO_BLOCK, b"")
                self._marked = RecordPosition(self._last, segment.end)

    def retire(self) -> None:
        """Do nothing: it is not the file of a single replica."""

    def close(self) -> None:
        """Close every segment; the log may not be used any more."""
        with self._mutex:
            mark, self._mark = self._mark, None
        if mark is not None:
            mark.keep()
            mark.close()
        for segment in (*self._segments.values(), *self._removed):
            self._disk.close(segment.handle)
        self._segments.clear()
        self._removed.clear()

    # -- reading --------------------------------------------------------------------------------

    def read(
        self, at: RecordPosition, size_bytes: int, how: Callable[[FileHandle, int, int], T]
    ) -> T:
        """Read `size_bytes` of the payload of the record at `at` by `how`, a method of the disk.

        Raises:
            SegmentRemoved: the records of its segment were copied to later ones.
            StorageError: as the disk says.
        """
        with self._mutex:
            segment = self._segments.get(at.segment)
            if segment is None:
                raise SegmentRemoved
            segment.readers += 1
        try:
            return how(segment.handle, size_bytes, at.offset + RECORD_BYTES)
        finally:
            with self._mutex:
                segment.readers -= 1

    def payload(self, at: RecordPosition, how: Callable[[FileHandle, int, int], bytes]) -> bytes:
        """Return the payload of the record at `at`. Raises as `read`, and CorruptionError."""
        header = RecordPosition(at.segment, at.offset - RECORD_BYTES)
        with self._mutex:
            segment = self._segments.get(at.segment)
            salt = b"" if segment is None else segment.salt
        size_bytes, crc = record_size(self.read(header, RECORD_BYTES, how), salt)
        payload = self.read(at, size_bytes, how)
        if crc32c(payload) != crc:
            where = f"{self._path(at.segment)} is damaged at offset {at.offset}"
            raise CorruptionError(where)
        return payload

    # -- segments -------------------------------------------------------------------------------

    @property
    def has_segment(self) -> bool:
        """True if a control step need not begin a segment before it appends."""
        last = self._segments.get(self._last)
        return last is not None and self._ours == self._last and last.end < SEGMENT_BYTES

    @property
    def last(self) -> int:
        """The number of the last segment; 0: there is none."""
        return self._last

    @property
    def size_bytes(self) -> int:
        """The length of all segments together."""
        with self._mutex:
            return sum(segment.end for segment in self._segments.values())

    @property
    def whole(self) -> list[int]:
        """The numbers of the segments that take no more records, the oldest one first."""
        with self._mutex:
            return sorted(number for number in self._segments if number < self._last)

    def records_of(
        self, number: int, lost: Callable[[int], None] | None = None
    ) -> Iterator[SmallRecord]:
        """Yield the records of a segment that takes no more records. As `read_records`.

        Raises:
            CorruptionError: it is damaged.
            StorageError: as the disk says.
        """
        segment, name = self._segments[number], str(self._path(number))
        data = self._disk.read(segment.handle, segment.end, 0)
        yield from read_records(name, data, Bounds(segment.salt, segment.end), lost)

    def index_of(self, number: int) -> Index | None:
        """Return the index of a segment that takes no more records, if it is there and sound."""
        segment = self._segments[number]
        try:
            data = read_file(self._disk, self._index_path(number))
        except StorageError:  # a missing or unreadable index is made again
            return None
        return decode_index(data, segment.salt, segment.end)

    def made_index(self, number: int) -> Index:
        """As `keep_index` while a start reads the log: the index of a segment that lost records is
        made of those that are left, and not written.

        Raises:
            CorruptionError: records are lost, and their blocks are not known.
            StorageError: as the disk says.
        """
        try:
            return self.keep_index(number)
        except CorruptionError:
            return make_index(number, self.records_of(number, self._loser(number)))

    def keep_index(self, number: int) -> Index:
        """Make the index of such a segment, and write it unless there is no room.

        Raises:
            CorruptionError: the segment is damaged.
            StorageError: as the disk says.
        """
        segment, path = self._segments[number], self._index_path(number)
        index = make_index(number, self.records_of(number))
        with contextlib.suppress(NoSpaceError):  # the next start makes it again
            draft = path.with_name(f"{path.name}.new")
            publish(self._disk, draft, path, [index.encode(segment.salt, segment.end)])
        return index

    def remove(self, number: int) -> None:
        """Remove the oldest segment, durably: nothing in it counts any more."""
        with contextlib.suppress(StorageError):  # it may have no index
            self._disk.remove(self._index_path(number))
        self._disk.remove(self._path(number))
        self._disk.sync_folder(self._folder)
        with self._mutex:
            self._removed.append(self._segments.pop(number))

    def close_removed(self) -> None:
        """Close the segments that were removed and that no caller reads any more.

        The system gives their room free only then, and that takes its time.
        """
        with self._mutex:
            idle = [segment for segment in self._removed if not segment.readers]
            self._removed = [segment for segment in self._removed if segment.readers]
        for segment in idle:
            self._disk.close(segment.handle)

    def _path(self, number: int) -> Path:
        return self._folder / segment_name(number)

    def _index_path(self, number: int) -> Path:
        return self._folder / f"{segment_name(number)}.index"
