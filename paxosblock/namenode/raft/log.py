"""The replicated log of one member: entries in memory, records in the journal.

The journal (`kv.journal`) numbers its *records*; the log numbers its *entries*. They differ once a
tail was cut, so every entry in memory knows its record's position. Appending puts records in a
queue that `flush` empties, with one sync for all that queued up meanwhile. The entries up to
`durable_index`, as they are now, have reached the disk; this member may acknowledge no later entry.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from time import perf_counter
from typing import ParamSpec, TypeVar

from paxosblock.base.durations import BOUNDS_S, Durations
from paxosblock.base.units import MIB
from paxosblock.errors import CorruptionError, NoSpaceError
from paxosblock.host.disk import Disk
from paxosblock.host.kernel_syncs import KernelSyncs
from paxosblock.namenode.kv.files import numbers
from paxosblock.namenode.kv.journal import Appending, Journal
from paxosblock.namenode.raft.entry import (
    RECORD_BYTES,
    Entry,
    EntryKind,
    Record,
    decode_record,
    encode_base,
    encode_entry,
    place_of,
)

P = ParamSpec("P")
T = TypeVar("T")

_KIND = "journal"

ROOM_POLL_S = 0.5
"""Time between two looks for room while the disk is full."""

FLUSH_BYTES = 4 * MIB
"""A sync takes no further record once it has this many bytes."""


@dataclass(slots=True)
class Tail:
    """The entries after `base_index`; the record of `entries[i]` is at `positions[i]`.

    `base_position` is that of the latest record that was dropped. `unflushed_bytes` counts the
    records that the start found beyond the table, whether their entries are here or applied.
    """

    base_index: int
    base_term: int
    entries: list[Entry] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    base_position: int = 0
    unflushed_bytes: int = 0

    @property
    def last_index(self) -> int:
        return self.base_index + len(self.entries)

    @property
    def last_position(self) -> int:
        """Return the position of the record of the last entry."""
        return self.positions[-1] if self.positions else self.base_position

    def term_at(self, index: int) -> int | None:
        """Return the term of the entry; None if it is not known here."""
        if index == self.base_index:
            return self.base_term
        if self.base_index < index <= self.last_index:
            return self.entries[index - self.base_index - 1].term
        return None

    def cut_from(self, index: int) -> None:
        """Drop the entries from `index` on."""
        assert index > self.base_index
        del self.entries[index - self.base_index - 1 :]
        del self.positions[index - self.base_index - 1 :]

    def drop_through(self, index: int) -> None:
        """Drop the entries up to `index`, which becomes the base."""
        if (count := index - self.base_index) > 0:
            # The base's term is needed to check the entries after it.
            self.base_index, self.base_term = index, self.entries[count - 1].term
            self.base_position = self.positions[count - 1]
            del self.entries[:count]
            del self.positions[:count]

    def reset(self, index: int, term: int) -> None:
        """Drop all entries; the log begins after the entry at `index`."""
        self.base_index, self.base_term = index, term
        self.entries.clear()
        self.positions.clear()


@dataclass(frozen=True, slots=True)
class _Removal:
    """Records up to position `through` may be removed once the record at `after` is durable.

    A record that voids entries (a cut, a base) may still wait for the disk. If others were removed
    first, a reader would find a gap, or take void entries for those that follow the snapshot.
    """

    through: int
    after: int


class RaftLog:
    """The log of one member. `flush` runs in a task; the rest neither blocks nor waits."""

    def __init__(
        self,
        tail: Tail,
        journal: Journal,
        executor: Executor,
        kernel: KernelSyncs | None = None,
        lend: Callable[[int], bool] = lambda size_bytes: False,
        *,
        alone: bool = False,
    ) -> None:
        """Take what `load_tail` found; all of it is durable.

        Args:
            tail: the entries.
            journal: where further ones go.
            executor: its only thread does what blocks.
            kernel: syncs, if there is one; otherwise that thread does.
            lend: frees so many bytes on a full disk, if it can; blocks.
            alone: no other member has any entry of this log, or will.
        """
        self._tail = tail
        self._journal = journal
        self._executor = executor
        self._lend = lend
        self._alone = alone
        self._full = False
        self._began_at = 0
        """The position of the record that began the latest term here."""
        self._appending = Appending(journal, executor, kernel)
        self._queue: list[bytes] = []
        self._arrived = asyncio.Event()
        self.sync_times = Durations()
        """From the beginning of each write of a batch until it was on stable storage."""
        self._next_position = journal.next_index
        self._durable_position = journal.next_index - 1
        self.durable_index = tail.last_index
        """The last entry up to which all are on stable storage as they are in memory."""
        self._removal: _Removal | None = None
        self.bytes_written = tail.unflushed_bytes
        """Bytes of records since the table that the start found; records that it found in the
        journal count, whichever process wrote them."""

    def __repr__(self) -> str:
        return f"RaftLog({self.base_index}..{self.durable_index}..{self.last_log_index})"

    @property
    def base_index(self) -> int:
        """Return the index of the entry before the first one that is still here."""
        return self._tail.base_index

    @property
    def last_log_index(self) -> int:
        return self._tail.last_index

    def term_at(self, index: int) -> int | None:
        """Return the term of the entry; None if it is compacted or not there yet."""
        return self._tail.term_at(index)

    def first_index_of_term(self, index: int) -> int:
        """Return the first entry here that has the term of the entry at `index`."""
        term = self.term_at(index)
        while index > self.base_index + 1 and self.term_at(index - 1) == term:
            index -= 1
        return index

    def entry(self, index: int) -> Entry:
        """Return the entry at `index`, which is here."""
        return self._tail.entries[index - self.base_index - 1]

    def slice(self, first: int, count_max: int, bytes_max: int) -> list[Entry]:
        """Return entries from `first` on within the limits, but at least one if there is any."""
        begin = first - self.base_index - 1
        chosen = self._tail.entries[begin : begin + count_max]
        size = 0
        for count, entry in enumerate(chosen):
            size += len(entry.payload)
            if size > bytes_max and count:
                return chosen[:count]
        return chosen

    def first_of_last(self, index: int, count_max: int, bytes_max: int) -> int:
        """Return the first of the last entries up to `index`, as many as the limits allow; the one
        after it if they allow none."""
        first, size = index + 1, 0
        lowest = max(self.base_index, index - count_max) + 1
        while first > lowest:
            size += len(self.entry(first - 1).payload)
            if size > bytes_max:
                break
            first -= 1
        return first

    def append(self, entry: Entry) -> int:
        """Append the entry; return its index."""
        tail, position = self._tail, self._next_position
        tail.entries.append(entry)
        tail.positions.append(position)
        if entry.kind is EntryKind.NOOP:
            self._began_at = position
        index = tail.base_index + len(tail.entries)
        if not self._queue:
            self._arrived.set()
        self._queue.append(encode_entry(index, entry))
        self._next_position = position + 1
        return index

    def cut_from(self, index: int) -> None:
        """Drop the entries from `index` on. That is durable with the next entry at `index`: until
        then a restart brings them back, uncommitted as they were."""
        self._tail.cut_from(index)
        self.durable_index = min(self.durable_index, index - 1)

    def reset(self, index: int, term: int) -> None:
        """Begin after the entry at `index`, as a durable table has replaced all entries.

        `flush` removes them from the disk.
        """
        through = self._durable_position
        self._tail.reset(index, term)
        if not self._queue:
            self._arrived.set()
        self._queue.append(encode_base(index, term))
        self._next_position += 1
        self.durable_index = index
        self._remove_through(through)

    def compact(self, index: int, keep_from: int) -> None:
        """Drop entries that the durable table of `index` covers, except from `keep_from` on.

        `flush` removes all that the table covers from the disk.
        """
        covered, positions = index - self.base_index, self._tail.positions
        if covered < 0:  # forgotten before, by a member that is alone: each entry has one record
            through = self._tail.base_position + covered
        else:
            through = positions[covered] - 1 if covered < len(positions) else self._durable_position
        self._tail.drop_through(max(self.base_index, min(keep_from - 1, index)))
        self.durable_index = max(self.durable_index, self.base_index)
        self._remove_through(min(through, self._durable_position))

    def forget(self, index: int) -> None:
        """Drop from memory the entries up to `index`, which are applied: a member that is alone
        sends them to no other. Their records stay on the disk until a flush covers them."""
        self._tail.drop_through(index)

    async def flush(
        self, on_durable: Callable[[], None], on_full: Callable[[NoSpaceError | None], None]
    ) -> None:
        """Write what is queued, for ever; call `on_durable` after each sync, while the next batch
        is being written. Remove records that are no longer needed.

        `on_full` is called with the error when the disk has no room, and with None once there is
        room and the records that waited for it are durable.

        Raises:
            StorageError: the disk refuses. Queued records may or may not be durable; a sync is
                never tried again.
        """
        begin, tail, times = self._appending.begin, self._tail, self.sync_times
        batch, written, begun_s = list[bytes](), None, 0.0
        try:
            while True:
                if not batch:
                    if self._full:
                        await self._room_or_records(on_full)
                    await self._arrived.wait()
                    batch = self._take()
                    begun_s = perf_counter()
                    written = begin(batch) if batch else None
                if written is not None:
                    try:
                        await written
                    except NoSpaceError as error:
                        if self._alone and not self._begins_term:
                            self._take_back()
                            on_full(error)
                            batch, written = [], None
                            continue
                        batch = await self._write_with_room(batch, error, on_full)
                    if self._full:
                        await self._look_for_room(on_full)
                    took_s = perf_counter() - begun_s
                    times.counts[bisect_left(BOUNDS_S, took_s)] += 1
                    times.sum_s += took_s
                    self._durable_position += len(batch)
                    durable = bisect_right(tail.positions, self._durable_position)
                    self.durable_index = tail.base_index + durable
                    # The next batch is on its way while this one is applied, which takes time.
                    removes = self._removal is not None  # which comes first, lest it waits for long
                    batch = self._take() if self._queue and not removes else []
                    begun_s = perf_counter()
                    written = begin(batch) if batch else None
                    on_durable()
                if self._removal is not None:
                    await self._remove_superfluous()
        finally:
            if written is not None:
                written.cancel()  # no caller waits for it, nor for an error of the disk

    def _take_back(self) -> None:
        """Drop the entries that are not durable, as the disk has no room: no other member has heard
        of them, so it is certain that they never count."""
        self._full = True
        self._tail.cut_from(self.durable_index + 1)
        self._queue.clear()
        self._next_position = self._durable_position + 1
        if self._removal is not None:  # which may be what makes room
            self._removal = _Removal(self._removal.through, self._durable_position)

    async def _room_or_records(self, on_full: Callable[[NoSpaceError | None], None]) -> None:
        """Return once there are records, or a full disk has room again."""
        while self._full and not self._arrived.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(ROOM_POLL_S):
                    await self._arrived.wait()
            await self._look_for_room(on_full)

    async def _write_with_room(
        self,
        batch: list[bytes],
        error: NoSpaceError | None,
        on_full: Callable[[NoSpaceError | None], None],
    ) -> list[bytes]:
        """Write again, once the disk has room, a batch for which it had none; return what was
        written with it.

        Records that begin a term get room that is kept for them, with all that is before them:
        until a majority has them, no client can read.
        """
        while error is not None:
            self._full = True
            on_full(error)
            if not (self._begins_term and await self._run(self._lend, sum(map(len, batch)))):
                await self._wait_room()
                if self._begins_term:
                    batch = batch + self._take()
            try:
                await self._appending.begin(batch)
                error = None
            except NoSpaceError as again:
                error = again
        return batch

    @property
    def _begins_term(self) -> bool:
        """True while the first record of the latest term is not durable."""
        return self._began_at > self._durable_position

    async def _look_for_room(self, on_full: Callable[[NoSpaceError | None], None]) -> None:
        if await self._run(lambda: self._journal.has_room):
            self._full = False
            on_full(None)

    async def _wait_room(self) -> None:
        """Look now and then; removing records that a flush has made superfluous may suffice. Return
        at the first look if a term begins, too."""
        while True:
            await asyncio.sleep(ROOM_POLL_S)
            await self._remove_superfluous()
            if self._begins_term or await self._run(lambda: self._journal.has_room):
                return

    async def _remove_superfluous(self) -> None:
        removal = self._removal
        if removal is not None and removal.after <= self._durable_position:
            self._removal = None
            await self._run(self._journal.remove_through, removal.through)

    def _run(self, step: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(self._executor, lambda: step(*args, **kwargs))

    async def settled(self) -> None:
        """Wait for the batch that is being written, after `flush` has ended; it is the last one.

        Records that are still queued are lost, but this member has acknowledged none of them.
        """
        await self._appending.close()

    def _remove_through(self, position: int) -> None:
        self._removal = _Removal(position, self._next_position - 1)
        self._arrived.set()

    def _take(self) -> list[bytes]:
        batch, self._queue = self._queue, []
        size = sum(map(len, batch))
        if size > FLUSH_BYTES:
            sizes = enumerate(accumulate(map(len, batch)), 1)
            count, size = next(found for found in sizes if found[1] >= FLUSH_BYTES)
            batch, self._queue = batch[:count], batch[count:]
        self.bytes_written += size
        if not self._queue:
            self._arrived.clear()
        return batch


def has_journal(disk: Disk, folder: Path) -> bool:
    """True if the folder has any segment; blocks."""
    return bool(numbers(disk.names(folder), _KIND))


def load_tail(
    disk: Disk, folder: Path, index: int, term: int, segment_bytes: int
) -> tuple[Tail, Journal]:
    """Read the journal beside the table of entry `index` of `term`; blocks.

    Raises:
        CorruptionError: a segment is damaged or missing.
        StorageError: the disk refuses.
    """
    journal, tail = Journal(disk, folder, segment_bytes), Tail(index, term)

    def has_entry_of_table(first: memoryview) -> bool:
        """True if the record of the table's entry is this one or follows it: the records before it
        are void, or in the table."""
        place = place_of(first)
        return place is not None and place[0] <= index

    try:
        for position, data in journal.replay(has_entry_of_table):
            found = place_of(data)
            if found is not None and found[0] <= min(index, tail.last_index + 1):
                tail.reset(*found)  # the table has it, and what came after it is void
            else:
                _replay_record(folder, tail, position, decode_record(data))
        journal.begin()
        _join(folder, tail, journal, index, term)
    except BaseException:
        journal.log.close()
        raise
    if not tail.positions:
        tail.base_position = journal.next_index - 1
    tail.unflushed_bytes = sum(RECORD_BYTES + len(entry.payload) for entry in tail.entries)
    return tail, journal


def _replay_record(folder: Path, tail: Tail, position: int, record: Record) -> None:
    if record.entry is None:
        tail.reset(record.index, record.term)
        return
    is_next = record.index == tail.base_index + 1
    if (not tail.entries and not is_next) or record.index <= tail.base_index:
        # The entries before it were compacted, or void when this record was written.
        tail.reset(record.index - 1, 0)
    if record.index > tail.last_index + 1:
        missing = f"entries {tail.last_index + 1} to {record.index - 1} are missing"
        raise CorruptionError(f"{folder}: {missing} in the replicated log")
    tail.cut_from(record.index)
    tail.entries.append(record.entry)
    tail.positions.append(position)


def _join(folder: Path, tail: Tail, journal: Journal, index: int, term: int) -> None:
    """Make `tail` continue the table; if its entries do not, record a new base."""
    if tail.base_index > index:
        raise CorruptionError(f"{folder}: entries {index + 1} to {tail.base_index} are missing")
    if tail.base_index < index and tail.term_at(index) == term:
        tail.drop_through(index)
    if (tail.base_index, tail.base_term) != (index, term):
        if tail.base_index == index and tail.base_term == 0:
            tail.base_term = term
            return
        tail.reset(index, term)
        journal.append([encode_base(index, term)])
