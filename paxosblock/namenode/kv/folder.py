"""The files of one store: its lock, its table, and the journal after that. All calls block.

folder/lock                     locked while a process has the store open
folder/db                       the map, as the last flush left it (rocks_table.py)
folder/journal-<first index>    entries from that index on
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from paxosblock.base.units import MIB
from paxosblock.errors import CorruptionError
from paxosblock.host.disk import Disk, FileHandle
from paxosblock.namenode.kv.codec import decode_edit
from paxosblock.namenode.kv.files import remove_drafts
from paxosblock.namenode.kv.journal import ALONE_BYTES, Journal, replay
from paxosblock.namenode.kv.rocks_table import open_rocks
from paxosblock.namenode.kv.state_machine import StateMachine
from paxosblock.namenode.kv.table import Flush, OpenTable


@dataclass(frozen=True, slots=True)
class FolderLimits:
    """Sizes to which files may grow, in bytes.

    A flush is due when the journal has grown by `flush_bytes` since the last one. Entries that a
    start finds in the journal count, so that short-lived processes do not let it grow for ever.
    """

    segment_bytes: int = 16 * MIB
    flush_bytes: int = 64 * MIB


class StoreFolder:
    """An open folder. Its journal, `forget` and `close` belong to one thread at a time."""

    def __init__(
        self,
        disk: Disk,
        folder: Path,
        limits: FolderLimits,
        lock: FileHandle,
        open_table: OpenTable,
    ) -> None:
        """Load the folder, whose `lock` is held; `open_store` calls this."""
        self._disk = disk
        self._folder = folder
        self._limits = limits
        self._lock = lock
        self.machine = StateMachine(open_table(disk, folder))
        self._journal_bytes = 0  # entries that earlier processes wrote count, too
        try:
            flushed = self.machine.revision
            self._replay()
            self.journal = Journal(disk, folder, self.machine.revision + 1, limits.segment_bytes)
            # A crash may have come between a flush and the removal of what it replaces.
            remove_drafts(disk, folder)
            self.forget(flushed)
        except BaseException:
            self.machine.close()
            raise

    def __repr__(self) -> str:
        return f"StoreFolder({str(self._folder)!r}, {self.journal!r})"

    @property
    def flush_due(self) -> bool:
        return self._journal_bytes >= self._limits.flush_bytes

    def count_bytes(self, written: int) -> None:
        """Count `written` bytes of the journal toward the next flush; call it on the event loop."""
        self._journal_bytes += written

    @property
    def has_room(self) -> bool:
        """True if an append may succeed again after a NoSpaceError. Blocks."""
        return self.journal.has_room

    def begin_flush(self) -> Flush:
        """Return the flush that makes durable all that is applied; from now on the journal's growth
        counts toward the next one."""
        self._journal_bytes = 0
        return self.machine.flush()

    def forget(self, revision: int) -> None:
        """Remove the journal's segments up to entry `revision`, which a flush has made durable."""
        self.journal.remove_through(revision)

    def close(self) -> None:
        """Close the files and release the folder."""
        self.journal.close()
        self.machine.close()
        self._disk.close(self._lock)

    def _replay(self) -> None:
        for index, payload in replay(self._disk, self._folder, self.machine.revision):
            try:
                self.machine.apply(index, decode_edit(payload))
            except CorruptionError as error:
                raise CorruptionError(f"{self._folder}: entry {index}: {error}") from error
            self._journal_bytes += ALONE_BYTES + len(payload)


@contextmanager
def opening(disk: Disk, folder: Path, when_damaged: str) -> Iterator[FileHandle]:
    """Lock the folder, which is created if need be; release it again only if the body fails.

    A report of damage ends with `when_damaged`, which tells the operator what to do.

    Raises:
        ConfigError: the folder is in use.
    """
    disk.make_folder(folder)
    lock = disk.lock(folder / "lock")
    try:
        yield lock
    except BaseException as error:
        disk.close(lock)
        if isinstance(error, CorruptionError):
            raise error.reworded(f"{error}; {when_damaged}") from error
        raise


def open_store(
    disk: Disk, folder: Path, limits: FolderLimits, open_table: OpenTable = open_rocks
) -> StoreFolder:
    """Lock and load the folder, or create it; `machine` of the result has what it held.

    `open_table` opens the table; with `open_memory` its files are written through `disk`, too.

    Raises:
        ConfigError: the folder is in use, or of another version.
        CorruptionError: a file is damaged where it had been durable.
        StorageError: the disk refuses.
    """
    with opening(disk, folder, "restore the folder from a copy") as lock:
        return StoreFolder(disk, folder, limits, lock, open_table)
