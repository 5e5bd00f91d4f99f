"""Leases, which show which writers are still there: soft state, so that safety never depends on it
(K11).

A writer that renews keeps its files. After the soft limit others may replace them; after the hard
limit the NameNode itself recovers and closes them. Files are kept in the catalog; a NameNode that
starts gives every writer it finds there a fresh lease. Time is an argument: seconds on any clock
that does not go back.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field

from paxosblock.namenode.catalog.records import RECOVERY_WRITER, FileInode
from paxosblock.net.port.caller import Caller
from paxosblock.protocol.types import WriterId


@dataclass(slots=True)
class Lease:
    """The lease of one writer; `caller` last called for it, None if it has not since a start."""

    began_s: float
    renewed_s: float
    files: set[int] = field(default_factory=set)
    caller: Caller | None = None


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
        self._leases: dict[WriterId, Lease] = {}
        self._writers: dict[int, WriterId] = {}

    def __len__(self) -> int:
        return len(self._leases)

    def restore(self, inodes: Iterable[FileInode], now_s: float) -> None:
        """Give the writers of these open files fresh leases, and no other writer."""
        self._leases.clear()
        self._writers.clear()
        for inode in inodes:
            self.open(inode.writer, inode.number, now_s)

    def open(self, writer: WriterId, file: int, now_s: float, caller: Caller | None = None) -> None:
        """Note that `writer` has begun to write `file`; its former writer no longer does."""
        self.release(file)
        lease = self._leases.setdefault(writer, Lease(now_s, now_s))
        lease.renewed_s = now_s
        lease.caller = caller or lease.caller
        lease.files.add(file)
        self._writers[file] = writer

    def renew(
        self, writers: Iterable[WriterId], now_s: float, caller: Caller | None = None
    ) -> tuple[WriterId, ...]:
        """Renew, and return those writers that hold nothing (any more)."""
        lost = []
        for writer in writers:
            if (lease := self._leases.get(writer)) is None or writer == RECOVERY_WRITER:
                lost.append(writer)
            else:
                lease.renewed_s = now_s
                lease.caller = caller or lease.caller
        return tuple(lost)

    def page(self, after: WriterId, limit: int) -> list[tuple[WriterId, Lease]]:
        """Return the first leases of writers behind `after`, in the order of their names."""
        writers = heapq.nsmallest(limit, (each for each in self._leases if each > after))
        return [(writer, self._leases[writer]) for writer in writers]

    @property
    def soft_limit_s(self) -> float:
        """Seconds of silence after which others may take over a writer's files."""
        return self._soft_limit_s

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
