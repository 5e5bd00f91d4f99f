"""A log in segments, which are appended to, synced, read and removed.

One sync covers every record that was appended until it began. Any thread may append a record, the
event loop's too: that is a `pwrite` under a mutex, which no thread holds while a file is synced,
made, read or closed, as the loop must not wait for a disk that hangs.
"""

from __future__ import annotations

import contextlib
import logging
import os
import struct
import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeVar

from paxosblock.base.checksum import Buffer, crc32c
from paxosblock.errors import CorruptionError, NoSpaceError, PaxosBlockError, StorageError
from paxosblock.host.disk import Disk, FileHandle, opened, publish_open
from paxosblock.host.kernel_syncs import KernelSyncs, SyncGuard
from paxosblock.host.logs import facts
from paxosblock.journal.durable_mark import DurableTo, Watermark, read_mark
from paxosblock.journal.segment import (
    CRC,
    FIRST_OWN_KIND,
    HEADER_BYTES,
    MARK,
    PREVIOUS,
    RECORD,
    RECORD_BYTES,
    SALT_BYTES,
    LogFormat,
    LogRecord,
    SegmentBounds,
    SegmentHeader,
    damaged,
    decode_header,
    read_records,
    record_size,
)

MARK_NAME: Final = "durable"
"""The file with the mark, beside the segments."""
_END: Final = struct.Struct("<Q")
_PREVIOUS_END: Final = HEADER_BYTES + RECORD_BYTES + _END.size

_log = logging.getLogger(__name__)

T = TypeVar("T")


class RecordPosition(NamedTuple):
    """The place of a record."""

    segment: int
    offset: int


class SegmentRemoved(Exception):
    """The record is no longer at this place."""


class SegmentNames(Protocol):
    """The names of the files of a log."""

    @property
    def folder(self) -> Path:
        """The folder that they are in."""

    def path(self, number: int) -> Path:
        """Return the path of a segment."""

    def draft(self, path: Path) -> Path:
        """Return the path that a file has until it is whole."""

    def numbers(self, names: list[str]) -> list[int]:
        """Return the numbers of the segments among the names of files, in order."""

    def following(self, last: int, highest: int) -> int:
        """Return the number of the segment after the `last` one and the `highest` key so far.

        It is that of the last one if there is no record of the owner in it.
        """


class LogSegment:
    """A file of the log. Once it is removed, it is closed as soon as no caller reads it."""

    __slots__ = ("end", "handle", "header", "readers", "same_boot", "synced")

    def __init__(self, handle: FileHandle, header: SegmentHeader, *, same_boot: bool) -> None:
        self.handle = handle
        self.header = header
        self.same_boot = same_boot
        """False if the machine crashed since it was written."""
        self.end = HEADER_BYTES
        self.synced = HEADER_BYTES
        """The first so many bytes are on stable storage."""
        self.readers = 0


class RecordLog:
    """The log of one folder."""

    __slots__ = (
        "_boot",
        "_disk",
        "_form",
        "_lost",
        "_mark",
        "_marked",
        "_mutex",
        "_names",
        "_removed",
        "_rolling",
        "_segments",
        "durable",
        "guard",
        "highest",
        "last",
        "taking",
        "torn_bytes",
    )

    def __init__(
        self,
        disk: Disk,
        names: SegmentNames,
        form: LogFormat,
        boot: str | None,
        lost: Callable[[int, int, str], None],
    ) -> None:
        """Call `open` and `last_records` first. All methods but `append` block.

        Args:
            disk: where it is.
            names: of its files.
            form: of its bytes.
            boot: of the machine. None: the owner answers nothing of a record before it is synced,
                and what came after the mark may be torn whether the machine crashed or not.
            lost: is told of a segment, an offset, and what is damaged or missing there, when
                records that were durable cannot be read; it raises an error unless the owner goes
                on without them.
        """
        self._disk = disk
        self._names = names
        self._form = form
        self._boot = boot
        self._lost = lost
        self.guard = SyncGuard()
        """Of all segments; its `failure` says why nothing more can be made durable."""
        self._mutex = threading.RLock()
        self._rolling = threading.Lock()
        self._segments: dict[int, LogSegment] = {}
        self._removed: list[LogSegment] = []
        """Segments that are no more there, and still open."""
        self.last = 0
        """The number of the last segment; 0: there is none."""
        self.taking: LogSegment | None = None
        """The same once this process has begun it; a segment of an earlier process takes none."""
        self._marked = RecordPosition(0, 0)
        self._mark: Watermark | None = None
        self.durable: DurableTo | None = None
        """All before it was durable once, as the mark said that an earlier process left."""
        self.highest = 0
        """The greatest key of a record."""
        self.torn_bytes = 0
        """Bytes at the end of the last segment that are no record: the next one goes without them.
        """

    # -- the start ------------------------------------------------------------------------------

    def open(self) -> list[int]:
        """Open every segment; return the numbers of those that take no more records, in order.

        Raises:
            ConfigError: another version wrote a file.
            StorageError: as the disk says; and as the owner's `lost`.
        """
        mark = read_mark(self._disk, self._names.folder / MARK_NAME, self._form)
        if mark is not None:
            self.highest = mark.highest
            self.durable = mark
        numbers = self._names.numbers(self._disk.names(self._names.folder))
        for number in numbers:
            self._open(number)
        if len(numbers) > 1 and self._end_before(*numbers[-2:], last=True) is None:
            # It was only begun: the next segment takes its place.
            self._disk.close(self._segments.pop(numbers.pop()).handle)
        for number, following in pairwise(numbers):
            segment, end = self._segments[number], self._end_before(number, following)
            segment.end = segment.synced = end or self._disk.size(segment.handle)
        self.last = numbers[-1] if numbers else 0
        return numbers[:-1]

    def _open(self, number: int) -> None:
        path = self._names.path(number)
        handle = self._disk.open(path)
        unreadable = SegmentHeader(number, os.urandom(SALT_BYTES), None, None)
        try:
            header = read_header(self._disk, handle, path, self._form)
        except CorruptionError:  # no record can be found, nor be taken for one
            header = unreadable
        if header.number not in (0, number):
            self._lost(number, 0, f"{path} is another segment, under a wrong name")
            header = unreadable
        if header.boot is None:
            _log.error("the head of a segment is damaged", extra=facts(path=path))
        # In a boot that is not known less is taken for torn by a crash.
        same_boot = self._boot is not None and header.boot in (None, self._boot)
        self._segments[number] = LogSegment(handle, header, same_boot=same_boot)

    def _end_before(self, before: int, number: int, *, last: bool = False) -> int | None:
        """Return where the segment `before` this one ended; 0 if that cannot be read. None if this
        one, the `last`, does not say, because nothing was appended to it."""
        segment, name = self._segments[number], str(self._names.path(number))
        lost, end = list[int](), None if last else _PREVIOUS_END
        data = self._disk.read(segment.handle, end or self._disk.size(segment.handle), 0)
        first = next(read_records(name, data, self._bounds(number, end), lost.append), None)
        said = segment.header.previous
        if said is None and first is not None and first.kind == PREVIOUS:
            said = first.key
        if said is not None and said != before:
            self._lost(said, 0, f"{self._names.path(said)} is missing")
        if first is None and last and not lost:
            return None
        if lost or first is None or first.payload is None or first.kind != PREVIOUS:
            self._lose(number)(HEADER_BYTES)
            return 0
        ended: int = _END.unpack(first.payload)[0]
        return ended

    def _lose(self, number: int) -> Callable[[int], None]:
        def lose(offset: int) -> None:
            self._lost(number, offset, str(damaged(str(self._names.path(number)), offset)))

        return lose

    def _bounds(self, number: int, end: int | None) -> SegmentBounds:
        segment, durable = self._segments[number], 0
        if self.durable is not None and self.durable.segment == number:
            durable = self.durable.offset
        later = self._form.checked_when_read
        return SegmentBounds(segment.header.salt, end, segment.same_boot, durable, later)

    def last_records(self) -> Iterator[LogRecord]:
        """Yield every record of the last segment; all of them are durable.

        Raises:
            StorageError: as the disk says; and as the owner's `lost`.
        """
        number, segment = self.last, self._segments.get(self.last)
        if segment is not None:
            self._disk.sync(segment.handle)  # its process may have died before it synced
            data = self._disk.read(segment.handle, self._disk.size(segment.handle), 0)
            name, bounds = str(self._names.path(number)), self._bounds(number, None)
            for record in read_records(name, data, bounds, self._lose(number)):
                segment.end = record.end
                yield record
            segment.synced = segment.end
            self.torn_bytes = max(0, len(data) - segment.end)
        if self.durable is not None and self.durable.segment > number:
            missing = self._names.path(self.durable.segment)
            self._lost(number, 0, f"{missing} is missing or cut short")

    # -- writing --------------------------------------------------------------------------------

    def begin_segment(self, full_bytes: int) -> None:
        """Make sure that the last segment belongs to this process, and is not so long.

        Raises:
            NoSpaceError: the disk has no room for a new segment.
            StorageError: as the disk says.
        """
        with self._rolling:
            number = self._names.following(self.last, self.highest)
            if self.taking is not None and (self.taking.end < full_bytes or number == self.last):
                return
            if number == self.last:  # an earlier process began it, and only marks are in it
                self._disk.close(self._segments.pop(number).handle)
                self.last = max(self._segments, default=0)
            last, path = self._segments.get(self.last), self._names.path(number)
            if self._mark is None:
                at = DurableTo(self.last, 0 if last is None else last.synced, self.highest)
                file, magic = self._names.folder / MARK_NAME, self._form.mark_magic
                self._mark = Watermark(self._disk, file, self._names.draft(file), magic, at)
            else:
                self._mark.keep()
            header = SegmentHeader(number, os.urandom(SALT_BYTES), self.last, self._boot)
            encoded = header.encode(self._form.magic)
            handle = publish_open(self._disk, self._names.draft(path), path, [encoded])
            segment = LogSegment(handle, header, same_boot=True)
            # Others may append while the disk syncs, but not for ever: who appends often begins a
            # segment once the last one is full.
            while not self._follow(last, number, segment):
                self.sync()

    def _follow(self, last: LogSegment | None, number: int, segment: LogSegment) -> bool:
        """Let `segment` take the records from now on; False: not all of `last` is durable yet."""
        with self._mutex:
            if last is not None and last.synced < last.end:
                return False
            before = self.last, self.taking
            self.last, self.taking, self._segments[number] = number, segment, segment
            try:
                if last is not None:
                    self.append(PREVIOUS, before[0], _END.pack(last.end))
            except NoSpaceError:
                self.last, self.taking = before
                del self._segments[number]
                raise
            return True

    def append(self, kind: int, key: int, payload: Buffer = b"") -> RecordPosition:
        """Hand a record to the operating system; does not sync.

        Raises:
            NoSpaceError: nothing was appended.
            StorageError: as the disk says; nothing more can be made durable.
        """
        with self._mutex:
            segment = self.taking
            assert segment is not None, "a segment was begun"
            offset, size = segment.end, len(payload)
            head = (segment.header.salt, kind, size, key, segment.synced, crc32c(payload))
            packed = RECORD.pack(*head)
            record = b"".join((packed, CRC.pack(crc32c(packed)), payload))
            try:
                self._disk.write(segment.handle, record, offset)
            except (NoSpaceError, StorageError) as error:
                self._refused(segment, error)
                raise
            segment.end = offset + len(record)
            if key > self.highest and kind >= FIRST_OWN_KIND:
                self.highest = key
            return RecordPosition(self.last, offset)

    def _refused(self, segment: LogSegment, error: PaxosBlockError) -> None:
        """Cut off what a write for which there was no room has left; after any other error nothing
        more can be made durable."""
        if isinstance(error, NoSpaceError):
            try:
                self._disk.truncate(segment.handle, segment.end)
            except StorageError as failure:
                self.guard.failure = failure
                raise
        else:
            self.guard.failure = error

    def sync(self) -> None:
        """Bring every record that was appended until now to stable storage.

        A caller that waits here while another one syncs mostly finds its record synced, too.

        Raises:
            StorageError: this sync or an earlier one failed.
        """
        with self._mutex:
            number = self.last
            wanted = self._segments[number].end if number else 0

        def step() -> None:
            with self._mutex:
                segment = self._segments.get(number)
                if segment is None or segment.synced >= wanted:
                    return
                to = DurableTo(number, segment.end, self.highest)
            # The segments before were synced when this one was begun.
            self._disk.sync(segment.handle)
            self._note_synced(segment, to)

        self.guard.run(step)

    def _note_synced(self, segment: LogSegment, to: DurableTo) -> None:
        """Note that a segment is durable so far. One sync is under way at a time."""
        with self._mutex:
            segment.synced = max(segment.synced, to.offset)
            if self._mark is not None and to > self._mark.at:  # or the log is closed
                self._mark.move(to)

    def begin_sync(
        self, kernel: KernelSyncs, done: Callable[[PaxosBlockError | None], None]
    ) -> bool:
        """As `sync` by the kernel; the event loop calls `done` with what `sync` would raise.

        Return False if `sync` has to do it, without calling `done`.
        """
        with self._mutex:
            segment = self.taking
            assert segment is not None, "something was appended"
            to = DurableTo(self.last, segment.end, self.highest)
        note = partial(self._note_synced, segment, to)
        return self.guard.begin(segment.handle, kernel, note, done)

    def mark(self) -> None:
        """If all is durable and no record says so yet, append one that does; do not sync it."""
        with self._mutex, contextlib.suppress(NoSpaceError):
            segment = self.taking
            if segment is None or self._marked == (self.last, segment.end):
                return
            if segment.synced == segment.end:
                self.append(MARK, 0)
                self._marked = RecordPosition(self.last, segment.end)

    def close(self) -> None:
        """Close every segment; the log may not be used any more."""
        with self._mutex:  # a thread may still be about to close those that it removed
            mark, self._mark = self._mark, None
            segments = [*self._segments.values(), *self._removed]
            self._segments.clear()
            self._removed.clear()
        if mark is not None:
            if self.guard.failure is None:
                mark.keep()
            mark.close()
        for segment in segments:
            self._disk.close(segment.handle)

    # -- reading --------------------------------------------------------------------------------

    def read(
        self, at: RecordPosition, size_bytes: int, how: Callable[[FileHandle, int, int], T]
    ) -> T:
        """Read `size_bytes` of the payload of the record at `at` by `how`, a method of the disk.

        Raises:
            SegmentRemoved: its segment was removed.
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
            salt = b"" if segment is None else segment.header.salt
        size_bytes, crc = record_size(self.read(header, RECORD_BYTES, how), salt)
        payload = self.read(at, size_bytes, how)
        if crc32c(payload) != crc:
            raise damaged(str(self._names.path(at.segment)), at.offset)
        return payload

    # -- segments -------------------------------------------------------------------------------

    @property
    def size_bytes(self) -> int:
        """The length of all segments together."""
        with self._mutex:
            return sum(segment.end for segment in self._segments.values())

    @property
    def whole(self) -> list[int]:
        """The numbers of the segments that take no more records, the oldest one first."""
        with self._mutex:
            return sorted(number for number in self._segments if number < self.last)

    def path(self, number: int) -> Path:
        """Return the path of a segment."""
        return self._names.path(number)

    def identity(self, number: int) -> tuple[bytes, int]:
        """Return salt and end of a segment that takes no more records: no other one has both."""
        segment = self._segments[number]
        return segment.header.salt, segment.end

    def records_of(
        self, number: int, lost: Callable[[int], None] | None = None
    ) -> Iterator[LogRecord]:
        """Yield the records of a segment that takes no more records. As `read_records`.

        Raises:
            CorruptionError: it is damaged.
            StorageError: as the disk says.
        """
        segment = self._segments[number]
        data = self._disk.read(segment.handle, segment.end, 0)
        bounds = self._bounds(number, segment.end)
        yield from read_records(str(self._names.path(number)), data, bounds, lost)

    def records_left(self, number: int) -> Iterator[LogRecord]:
        """As `records_of`; the owner's `lost` is told of those that cannot be read."""
        return self.records_of(number, self._lose(number))

    def remove(self, number: int) -> None:
        """Remove the oldest segment, durably: nothing in it counts any more.

        A power cut that brought it back without the next one would leave a gap, which looks like
        lost records.
        """
        self._disk.remove(self._names.path(number))
        self._disk.sync_folder(self._names.folder)
        with self._mutex:
            segment = self._segments.pop(number, None)
            if segment is not None:  # or the log is closed
                self._removed.append(segment)

    def close_removed(self) -> None:
        """Close the segments that were removed and that no caller reads any more.

        The system gives their room free only then, and that takes its time.
        """
        with self._mutex:
            idle = [segment for segment in self._removed if not segment.readers]
            self._removed = [segment for segment in self._removed if segment.readers]
        for segment in idle:
            self._disk.close(segment.handle)


def read_header(disk: Disk, file: FileHandle, path: Path, form: LogFormat) -> SegmentHeader:
    """Return the header of a segment. Raises as `decode_header`."""
    return decode_header(str(path), disk.read(file, HEADER_BYTES + RECORD_BYTES, 0), form)


def check_log(disk: Disk, names: SegmentNames, form: LogFormat) -> None:
    """Check the beginning of every file of a log, and change nothing.

    Raises:
        ConfigError: another version wrote a file.
        CorruptionError: the beginning of a file is damaged.
        StorageError: as the disk says.
    """
    read_mark(disk, names.folder / MARK_NAME, form)
    for number in names.numbers(disk.names(names.folder)):
        path = names.path(number)
        with opened(disk, path) as file:
            read_header(disk, file, path, form)
