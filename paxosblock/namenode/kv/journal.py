"""The journal: a log of opaque entries, each append synced (`paxosblock/journal`).

    segment  journal-<index of its first entry>
    record   kind 2: entries; the key is the index of the last one of them
             payload = (length u32, payload) of each entry; indexes count up

It knows nothing of edits. Its methods block and belong to one thread at a time; `Appending` lets
the event loop append, while the kernel waits for the disk if it can (`kernel_syncs.py`). A thread
that waits costs two changes of threads for each batch, and takes the interpreter's lock after each
system call: on two cores that is more than all else that a small change takes. If the kernel
cannot, and for rare work such as a new segment, the thread does it that does all other work that
blocks.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from paxosblock.base.checksum import crc32c
from paxosblock.base.formats import FROM_A_COPY
from paxosblock.base.units import KIB, MIB
from paxosblock.errors import CorruptionError, NoSpaceError, StorageError
from paxosblock.host.disk import Disk
from paxosblock.host.kernel_syncs import KernelSyncs
from paxosblock.journal.record_log import RecordLog, check_log
from paxosblock.journal.segment import FIRST_OWN_KIND, RECORD_BYTES, LogFormat, LogRecord
from paxosblock.namenode.kv.files import draft_of, numbered, numbers

ENTRIES: Final = FIRST_OWN_KIND
_LENGTH: Final = struct.Struct("<I")
_KIND: Final = "journal"

ROOM_BYTES: Final = 8 * MIB
"""Free room that the store waits for after a full disk: enough for the longest edit."""
LOOP_BYTES: Final = 256 * KIB
"""Longest batch that the event loop writes: the system takes some milliseconds for each MiB, where
memory that holds new data is dear."""

_log = logging.getLogger(__name__)


def _is_earlier(data: bytes) -> bool:
    """True for the segments of the formats 1 and 2."""
    return data.startswith(b"PBKJRNL") and data[24:28] == struct.pack(">I", crc32c(data[:24]))


FORMAT: Final = LogFormat(b"PBKJRNL3", b"PBKMARK2", FROM_A_COPY, _is_earlier)


@dataclass(frozen=True, slots=True)
class JournalNames:
    """The names of the files in a folder."""

    folder: Path

    def path(self, number: int) -> Path:
        return numbered(self.folder, _KIND, number)

    def draft(self, path: Path) -> Path:
        return draft_of(path)

    def numbers(self, names: list[str]) -> list[int]:
        return numbers(names, _KIND)

    def following(self, last: int, highest: int) -> int:
        return highest + 1


def _entries(record: LogRecord, path: Path, first: int) -> list[memoryview]:
    """Return the entries of a record; `first` is the index of the first one.

    Raises:
        CorruptionError: it is damaged, or has others.
    """
    if record.kind < ENTRIES:
        return []
    body, entries, position = record.payload, list[memoryview](), 0
    sound = body is not None and record.kind == ENTRIES
    while sound and body is not None and position < len(body):
        start = position + _LENGTH.size
        sound = start <= len(body)
        if sound:
            position = start + _LENGTH.unpack_from(body, position)[0]
            sound = position <= len(body)
            entries.append(body[start:position])
    if not sound or record.key != first + len(entries) - 1:
        why = "fails its checksum" if body is None else f"does not follow entry {first - 1}"
        told = f"{path} is damaged at offset {record.offset}: the record there {why}"
        raise CorruptionError(told, file=str(path), offset=record.offset)
    return entries


def check_formats(disk: Disk, folder: Path) -> None:
    """Check the beginning of every file of the journal, and change nothing.

    Raises:
        ConfigError: another version wrote a file.
        CorruptionError: the beginning of a file is damaged.
    """
    check_log(disk, JournalNames(folder), FORMAT)


class Journal:
    """Appends entries. A new segment begins at every start and after `segment_bytes`."""

    def __init__(self, disk: Disk, folder: Path, segment_bytes: int) -> None:
        """Name the files. First `replay` goes to its end, then comes `begin`."""
        self._disk = disk
        self._folder = folder
        self.segment_bytes = segment_bytes
        self.next_index = 1
        """The index of the first entry that is not durable."""
        self._start: int | None = None
        """The segment from which on the entries are read, once that is known."""
        self._losses: list[tuple[int, int, str]] = []
        """Segment, offset and text of each loss that was met before it was known what is read."""
        self.log = RecordLog(disk, JournalNames(folder), FORMAT, None, self._lost)

    def replay(
        self, begins_late_enough: Callable[[memoryview], bool] = lambda entry: False
    ) -> Iterator[tuple[int, memoryview]]:
        """Yield (index, payload) of every entry, in order, without a torn tail.

        When this ends, all entries that it yielded are durable. A process may have died between
        write and sync, and no reader may see an entry that is not durable yet.

        Args:
            begins_late_enough: gets the first entry of a segment, the last one first, and says that
                no entry before it is needed; then those are not read, and damage to them is none.

        Raises:
            ConfigError: another version wrote a file.
            CorruptionError: a segment is damaged, or one is missing.
        """
        names = JournalNames(self._folder)
        check_log(self._disk, names, FORMAT)
        log = self.log
        segments = [*log.open(), log.last]  # but one that was only begun
        if not log.last and log.highest > 0:
            told = f"{self._folder}: the journal's entries from 1 on are missing"
            raise CorruptionError(told)
        start = self._first_needed(segments, begins_late_enough)
        self.next_index = max(1, start)
        self._start = start
        for loss in self._losses:
            self._lost(*loss)
        for number in segments[segments.index(start) :]:
            if number > self.next_index:
                missing = f"entries {self.next_index} to {number - 1} are missing"
                self._lost(number, 0, missing)
            for record in self._records(number):
                for payload in _entries(record, names.path(number), self.next_index):
                    yield self.next_index, payload
                    self.next_index += 1
        if log.torn_bytes:
            last = names.path(log.last)
            _log.warning("%s: left out a torn tail of %d bytes", last, log.torn_bytes)

    def _first_needed(
        self, segments: list[int], begins_late_enough: Callable[[memoryview], bool]
    ) -> int:
        """Return the last segment that begins late enough; the first one if none does.

        It is read here as it is afterwards: a first record that is left out there, as the power
        went while it was written, must not make earlier ones needless.
        """
        for number in reversed(segments[1:]):
            first = next((each for each in self._records(number) if each.kind >= ENTRIES), None)
            payload = None if first is None else first.payload
            if payload is not None and begins_late_enough(payload[_LENGTH.size :]):
                return number
        return segments[0]

    def _records(self, number: int) -> Iterator[LogRecord]:
        log = self.log
        return log.last_records() if number == log.last else log.records_left(number)

    def _lost(self, number: int, offset: int, why: str) -> None:
        start, durable = self._start, self.log.durable
        if start is None:
            self._losses.append((number, offset, why))
        elif number >= start:
            known = "" if durable is None else f" to {durable.highest}"
            what = f"entries {self.next_index}{known}, which had been durable, cannot be read"
            path = str(self.log.path(number))
            raise CorruptionError(f"{why}: {what}", file=path, offset=offset)

    def begin(self) -> None:
        """Begin a segment after the entries that `replay` found.

        Raises:
            NoSpaceError: the disk has no room.
            StorageError: as the disk says.
        """
        self.log.highest = self.next_index - 1
        self.log.begin_segment(self.segment_bytes)

    def __repr__(self) -> str:
        segments = [*self.log.whole, self.log.last]
        return f"Journal(next_index={self.next_index}, segments={segments})"

    def append(self, entries: Sequence[bytes]) -> int:
        """Append the entries as one record; return how many bytes it took, once it is durable.

        Raises:
            NoSpaceError: nothing was appended; try again when there is room.
            StorageError: nothing can be appended any more, because the kernel may have dropped the
                pages that it could not write, and a second sync would succeed without them.
        """
        self.log.begin_segment(self.segment_bytes)
        return self.finish(len(entries), self.write(entries))

    def write(self, entries: Sequence[bytes]) -> int:
        """As `append`, but not durable, and always to the segment that is open; until `finish` only
        `remove_through` may be called."""
        assert self.log.guard.failure is None, "a sync that failed is never retried"
        payload = b"".join([part for each in entries for part in (_LENGTH.pack(len(each)), each)])
        self.log.append(ENTRIES, self.next_index + len(entries) - 1, payload)
        return RECORD_BYTES + len(payload)

    def finish(self, count: int, size_bytes: int) -> int:
        """Make so many entries durable, which were written; return their `size_bytes`."""
        self.log.sync()
        self.next_index += count
        return size_bytes

    @property
    def has_room(self) -> bool:
        """True if an append may succeed again after a NoSpaceError. Blocks."""
        return self._disk.room(self._folder).free_bytes >= ROOM_BYTES

    def remove_all(self) -> None:
        """Remove all entries, as they are durable elsewhere, too. Raises as `append`."""
        self.log.begin_segment(0)
        self.remove_through(self.next_index - 1)

    def remove_through(self, index: int) -> None:
        """Remove the segments that hold no entry later than `index`, except the open one.

        Each is removed durably before the next one: a power cut that brought an older one back
        would leave a gap, which looks like lost entries.
        """
        for number, following in pairwise([*self.log.whole, self.log.last]):
            if following > index + 1:
                break
            self.log.remove(number)
        self.log.close_removed()

    def close(self) -> None:
        """Close the files, after marks that all entries are durable."""
        if self.log.guard.failure is None:
            # This may fail: the record only helps to recognise damage to the last one.
            with suppress(NoSpaceError, StorageError):
                self.log.mark()
                self.log.sync()
        self.log.close()


class Appending:
    """Appends to one journal, one batch after the other."""

    def __init__(self, journal: Journal, executor: Executor, kernel: KernelSyncs | None) -> None:
        """Let the `kernel` sync, which is closed with this object; without it sync in the only
        thread of `executor`, which does all other blocking work on the journal."""
        self._journal = journal
        self._executor = executor
        self._kernel = kernel
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def next_index(self) -> int:
        """Return the index of the next entry; no entry is being appended."""
        return self._journal.next_index

    def begin(self, entries: Sequence[bytes]) -> asyncio.Future[int]:
        """Append as `Journal.append`; the future gets what that returns or raises."""
        loop, journal, kernel = asyncio.get_running_loop(), self._journal, self._kernel
        taking = journal.log.taking
        assert taking is not None, "a journal has begun a segment"
        if (
            kernel is None
            or taking.end >= journal.segment_bytes
            or sum(map(len, entries)) > LOOP_BYTES
        ):
            return loop.run_in_executor(self._executor, journal.append, entries)
        appended: asyncio.Future[int] = loop.create_future()
        size_bytes = 0

        def done(error: Exception | None) -> None:
            self._idle.set()
            if error is None:
                journal.next_index += len(entries)
            if appended.done():  # the task that waited was cancelled
                return
            if error is None:
                appended.set_result(size_bytes)
            else:
                appended.set_exception(error)

        try:
            size_bytes = journal.write(entries)
        except NoSpaceError:  # the thread says so, or finds room
            return loop.run_in_executor(self._executor, journal.append, entries)
        except Exception as error:  # the future reports it, as it does all others
            done(error)
            return appended
        if journal.log.begin_sync(kernel, done):
            self._idle.clear()
            return appended
        count = len(entries)
        return loop.run_in_executor(self._executor, journal.finish, count, size_bytes)

    async def close(self) -> None:
        """Wait for an append that is under way, and release the kernel's part."""
        await self._idle.wait()
        if self._kernel is not None:
            self._kernel.close()
