"""The files of one store as a whole: lock, newest snapshot, journal after it. Blocking.

folder/lock                     locked while a process has the store open
folder/snapshot-<revision>      the map after that entry
folder/journal-<first index>    entries from that one on
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from paxosblock.disk import Disk, FileHandle
from paxosblock.errors import CorruptionError
from paxosblock.namenode.kv.codec import decode_transaction
from paxosblock.namenode.kv.files import remove_drafts
from paxosblock.namenode.kv.journal import Journal, replay
from paxosblock.namenode.kv.segment import ALONE_BYTES
from paxosblock.namenode.kv.snapshot import Pace, load_snapshot, remove_older, write_snapshot
from paxosblock.namenode.kv.state import Snapshot, StateMachine
from paxosblock.units import MIB


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes to which files may grow, in bytes.

    A snapshot is due when the journal has grown by `snapshot_bytes` since the last one, or by its
    size if that is more: so snapshots never cost more writing than the journal does. What a start
    finds in the journal counts, so that processes that live shortly do not let it grow for ever.
    """

    segment_bytes: int = 16 * MIB
    snapshot_bytes: int = 64 * MIB


class StoreFolder:
    """An opened folder. `append`, `forget` and `close` belong to one thread at a time.

    `write_snapshot` may run beside them in another.
    """

    def __init__(self, disk: Disk, folder: Path, limits: Limits, lock: FileHandle) -> None:
        """Load the folder, whose `lock` is held; `open_store` is the way in."""
        self._disk = disk
        self._folder = folder
        self._limits = limits
        self._lock = lock
        snapshot, self._snapshot_bytes = load_snapshot(disk, folder)
        self._journal_bytes = 0  # what earlier processes wrote counts, too
        self.machine = self._replayed(snapshot)
        self._journal = Journal(disk, folder, self.machine.revision + 1, limits.segment_bytes)
        # What a crash may have left between a snapshot and the removal of what it replaces.
        remove_drafts(disk, folder)
        self.forget(snapshot.revision)

    def __repr__(self) -> str:
        return f"StoreFolder({str(self._folder)!r}, {self._journal!r})"

    @property
    def next_index(self) -> int:
        """Index of the entry that will be appended next."""
        return self._journal.next_index

    @property
    def snapshot_due(self) -> bool:
        return self._journal_bytes >= max(self._limits.snapshot_bytes, self._snapshot_bytes)

    def append(self, entries: Sequence[bytes]) -> None:
        """Append the entries; they are durable when it returns.

        Raises:
            NoSpaceError: nothing was appended; try again when `has_room`.
            StorageError: after it, only `close`.
        """
        self._journal_bytes += self._journal.append(entries)

    @property
    def has_room(self) -> bool:
        """True if it is worth while to append again after a NoSpaceError. Blocks."""
        return self._journal.has_room

    def begin_snapshot(self) -> None:
        """Count the journal's growth from now on toward the next snapshot."""
        self._journal_bytes = 0

    def write_snapshot(self, snapshot: Snapshot, pace: Pace) -> None:
        """Write the snapshot durably. A StorageError leaves everything as it was."""
        self._snapshot_bytes = write_snapshot(self._disk, self._folder, snapshot, pace)

    def forget(self, revision: int) -> None:
        """Remove what the snapshot of `revision`, which is durable, makes superfluous."""
        remove_older(self._disk, self._folder, revision)
        self._journal.remove_through(revision)

    def close(self) -> None:
        """Close the files and release the folder."""
        self._journal.close()
        self._disk.close(self._lock)

    def _replayed(self, snapshot: Snapshot) -> StateMachine:
        machine = StateMachine(snapshot)
        for index, payload in replay(self._disk, self._folder, snapshot.revision):
            try:
                machine.apply(index, decode_transaction(payload))
            except CorruptionError as error:
                raise CorruptionError(f"{self._folder}: entry {index}: {error}") from error
            self._journal_bytes += ALONE_BYTES + len(payload)
        return machine


@contextmanager
def opening(disk: Disk, folder: Path, when_damaged: str) -> Iterator[FileHandle]:
    """Lock the folder, or create it; it is released again only if what is done inside fails.

    A report of damage ends with `when_damaged`, what the operator should do.

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


def open_store(disk: Disk, folder: Path, limits: Limits) -> StoreFolder:
    """Lock and load the folder, or create it; `machine` of the result is what it held.

    Raises:
        ConfigError: the folder is in use, or of another version.
        CorruptionError: a file is damaged where it had been durable.
        StorageError: the disk refuses.
    """
    with opening(disk, folder, "restore the folder from a copy") as lock:
        return StoreFolder(disk, folder, limits, lock)
