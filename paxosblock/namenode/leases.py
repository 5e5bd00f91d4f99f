"""Leases, which show which writers are still there: soft state, so that safety never depends on it
(K11).

A writer that renews keeps its files. After the soft limit others may replace them; after the hard
limit the NameNode itself recovers and closes them. Files are kept in the catalog; a NameNode that
starts gives every writer it finds there a fresh lease. Time is an argument: seconds on any clock
that does not go back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from paxosblock.namenode.catalog.records import RECOVERY_WRITER, FileInode
from paxosblock.protocol.types import WriterId


@dataclass(slots=True)
class _Lease:
    renewed_s: float
    files: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Expired:
    """A file whose writer was silent for the hard limit, or was fenced already."""

    file: int
    writer: WriterId


class Leases:
    """The leases of one NameNode. `RECOVERY_WRITER` needs none: what it holds is always expired."""

    def __init__(self, soft_limit_s: float, hard_limit_s: float) -> None:
        """Start without any lease; both limits count from the last renewal."""
        assert soft_limit_s <= hard_limit_s
        self._soft_limit_s = soft_limit_s
        self._hard_limit_s = hard_limit_s
        self._leases: dict[WriterId, _Lease] = {}
        self._writers: dict[int, WriterId] = {}

    def __len__(self) -> int:
        return len(self._leases)

    def restore(self, inodes: Iterable[FileInode], now_s: float) -> None:
        """Give the writers of these open files fresh leases, and no other writer."""
        self._leases.clear()
        self._writers.clear()
        for inode in inodes:
            self.open(inode.writer, inode.number, now_s)

    def open(self, writer: WriterId, file: int, now_s: float) -> None:
        """Note that `writer` has begun to write `file`; its former writer no longer does."""
        self.release(file)
        lease = self._leases.setdefault(writer, _Lease(now_s))
        lease.renewed_s = now_s
        lease.files.add(file)
        self._writers[file] = writer

    def renew(self, writers: Iterable[WriterId], now_s: float) -> tuple[WriterId, ...]:
        """Renew, and return those writers that hold nothing (any more)."""
        lost = []
        for writer in writers:
            if (lease := self._leases.get(writer)) is None or writer == RECOVERY_WRITER:
                lost.append(writer)
            else:
                lease.renewed_s = now_s
        return tuple(lost)

    def release(self, file: int) -> None:
        """Note that `file` is no longer written. A writer's lease ends with its last file."""
        writer = self._writers.pop(file, None)
        if writer is not None:
            files = self._leases[writer].files
            files.discard(file)
            if not files:
                del self._leases[writer]

    def is_live(self, writer: WriterId, now_s: float) -> bool:
        """True if the writer has renewed within the soft limit."""
        lease = self._leases.get(writer)
        if lease is None or writer == RECOVERY_WRITER:
            return False
        return now_s - lease.renewed_s < self._soft_limit_s

    def expired(self, now_s: float) -> tuple[Expired, ...]:
        """Return the files to recover now: their writers were silent too long, or were fenced."""
        return tuple(
            Expired(file, writer)
            for writer, lease in self._leases.items()
            if writer == RECOVERY_WRITER or now_s - lease.renewed_s >= self._hard_limit_s
            for file in sorted(lease.files)
        )
