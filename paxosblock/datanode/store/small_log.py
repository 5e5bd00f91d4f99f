"""The log of a volume's small replicas: losses, indexes, and what votes sync (FORMAT.md 8)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from paxosblock.datanode.store.disk_format import SHIPPED, SmallLimits
from paxosblock.datanode.store.open_file import OpenFile
from paxosblock.datanode.store.small_index import Index, decode_index, make_index
from paxosblock.datanode.store.small_records import (
    FORMAT,
    SmallNames,
    SmallRecord,
    small_records,
)
from paxosblock.errors import CorruptionError, NoSpaceError, PaxosBlockError, StorageError
from paxosblock.host.disk import Disk, FileHandle, publish, read_file
from paxosblock.host.kernel_syncs import KernelSyncs
from paxosblock.journal.record_log import RecordLog
from paxosblock.protocol.types import BlockId

NO_BLOCK: Final = BlockId(0)
NONE: Final = -1
"""The number of no segment."""


class SmallLog(OpenFile):
    """The log. To votes, which wait for a sync, it is the open file of every replica in it."""

    __slots__ = ("_known_through", "_names", "limits", "lost_through", "records", "why_lost")

    def __init__(self, disk: Disk, folder: Path, boot: str, limits: SmallLimits = SHIPPED) -> None:
        """Call `open` and `last_records` first. All methods but `retire` block."""
        super().__init__(disk, FileHandle(-1))
        self.limits = limits
        self._names = SmallNames(folder)
        self.records = RecordLog(disk, self._names, FORMAT, boot, self._lose)
        self._known_through = NONE
        self.lost_through = NONE
        """The last segment that a start found to have lost records, which was not known before."""
        self.why_lost = ""

    # -- the start ------------------------------------------------------------------------------

    def open(self, known_through: int = NONE) -> list[int]:
        """As `RecordLog.open`. It is known, and need not be told again, that segments up to
        `known_through` lost records.

        Raises:
            ConfigError: another version wrote a segment.
            CorruptionError: records are lost, and their blocks are not known.
            StorageError: as the disk says.
        """
        self._known_through = known_through
        whole, durable, last = self.records.open(), self.records.durable, self.records.last
        if durable is not None and durable.segment > last:
            self._known_through = min(known_through, last - 1)  # what is missing came after
        return whole

    def _lose(self, number: int, _: int, why: str) -> None:
        """Note that records of a segment are lost.

        All that was ever answered is about blocks that the mark knows of: a record that it has not
        come to is of a block that an earlier one is about, or was never answered. But the mark may
        be one of before the segment.

        Raises:
            CorruptionError: it is not known which blocks they were about.
        """
        durable = self.records.durable
        if number <= self._known_through:
            return
        if durable is None or number > durable.segment:
            raise CorruptionError(f"{why}: it is not known what its replicas have promised")
        self.lost_through, self.why_lost = max(number, self.lost_through), self.why_lost or why

    def last_records(self) -> Iterator[SmallRecord]:
        """Yield the records of the last segment; all of them are durable. Raises as `open`."""
        return small_records(self.records.last_records())

    # -- writing --------------------------------------------------------------------------------

    @property
    def has_segment(self) -> bool:
        """True if a control step need not begin a segment before it appends."""
        taking = self.records.taking
        return taking is not None and taking.end < self.limits.segment_bytes

    def begin_segment(self) -> None:
        """Make sure that the last segment belongs to this process and has room for a record.

        Raises:
            NoSpaceError: the disk has no room for a new segment.
            StorageError: as the disk says.
        """
        self.records.begin_segment(self.limits.segment_bytes)

    def _bring(self, step: Callable[[], None]) -> None:
        """Sync the log, for `sync` and for `write_out`."""
        self.records.sync()

    def begin_sync(
        self, kernel: KernelSyncs, done: Callable[[PaxosBlockError | None], None]
    ) -> bool:
        """As `OpenFile.begin_sync`, for every record that was appended until now."""
        return self.records.begin_sync(kernel, done)

    def retire(self) -> None:
        """Do nothing: it is not the file of a single replica."""

    # -- segments -------------------------------------------------------------------------------

    def records_of(
        self, number: int, lost: Callable[[int], None] | None = None
    ) -> Iterator[SmallRecord]:
        """Yield the records of a segment that takes no more records. As `read_records`.

        Raises:
            CorruptionError: it is damaged.
            StorageError: as the disk says.
        """
        return small_records(self.records.records_of(number, lost))

    def index_of(self, number: int) -> Index | None:
        """Return the index of a segment that takes no more records, if it is there and sound."""
        try:
            data = read_file(self._disk, self._index_path(number))
        except StorageError:  # a missing or unreadable index is made again
            return None
        return decode_index(data, *self.records.identity(number))

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
            return make_index(number, small_records(self.records.records_left(number)))

    def keep_index(self, number: int) -> Index:
        """Make the index of such a segment, and write it unless there is no room.

        Raises:
            CorruptionError: the segment is damaged.
            StorageError: as the disk says.
        """
        path, index = self._index_path(number), make_index(number, self.records_of(number))
        with contextlib.suppress(NoSpaceError):  # the next start makes it again
            encoded = index.encode(*self.records.identity(number))
            publish(self._disk, self._names.draft(path), path, [encoded])
        return index

    def remove(self, number: int) -> None:
        """Remove the oldest segment, durably: nothing in it counts any more."""
        with contextlib.suppress(StorageError):  # it may have no index
            self._disk.remove(self._index_path(number))
        self.records.remove(number)

    def _index_path(self, number: int) -> Path:
        path = self._names.path(number)
        return path.with_name(f"{path.name}.index")
