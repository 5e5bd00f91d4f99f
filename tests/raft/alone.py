"""A group of one member: what a cluster's only NameNode runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from paxosblock.host.disk import Disk
from paxosblock.namenode.kv.codec import encode_edit
from paxosblock.namenode.kv.interface import Committed, Conflict, Edit
from paxosblock.namenode.kv.rocks_table import ROCKS
from paxosblock.namenode.kv.table import Flush, Tables
from paxosblock.namenode.raft.entry import Entry, EntryKind, encode_entry
from paxosblock.namenode.raft.member_folder import Limits, open_folder
from paxosblock.namenode.raft.options import Options
from paxosblock.namenode.raft.store import ReplicatedStore
from paxosblock.namenode.raft.vote_file import ElectionVote
from tests.memory_table import MEMORY

ADDRESS = "a:1"


def alone(
    folder: Path,
    disk: Disk | None = None,
    limits: Limits | None = None,
    tables: Tables | None = None,
) -> ReplicatedStore:
    """The store of the only member, not started. On a given disk all files are written through
    that."""
    return ReplicatedStore(
        folder,
        ADDRESS,
        [ADDRESS],
        options=Options(limits=limits or Limits()),
        disk=disk,
        tables=tables or (MEMORY if disk else ROCKS),
    )


@asynccontextmanager
async def opened(
    folder: Path,
    disk: Disk | None = None,
    limits: Limits | None = None,
    tables: Tables | None = None,
) -> AsyncIterator[ReplicatedStore]:
    """The same, which leads; it is closed at the end."""
    store = alone(folder, disk, limits, tables)
    try:
        await store.start()
        await store.wait_leadership()
        yield store
    finally:
        await store.close()


class LoneFolder:
    """The folder of a cluster's only NameNode, step by step: what its store does on the event loop.

    Entries are of term 1. `next_index` is that of the next one.
    """

    def __init__(
        self, disk: Disk, folder: Path, limits: Limits | None = None, tables: Tables = MEMORY
    ) -> None:
        """Open it, or make it."""
        self._limits = limits or Limits()
        self._opened = open_folder(disk, folder, self._limits.segment_bytes, tables, alone=True)
        if self._opened.votes.vote.term == 0:
            self._opened.votes.write(ElectionVote(1, ADDRESS))
        self.machine, self.journal = self._opened.machine, self._opened.journal
        self._unflushed_bytes = self._opened.tail.unflushed_bytes
        self.next_index = self.machine.revision + 1

    def append(self, *edits: Edit) -> None:
        """Make entries durable in one batch."""
        entries = [Entry(1, EntryKind.EDIT, encode_edit(edit)) for edit in edits]
        records = [encode_entry(index, each) for index, each in enumerate(entries, self.next_index)]
        self._unflushed_bytes += self.journal.append(records)
        self.next_index += len(records)

    def apply(self, edit: Edit) -> Committed | Conflict:
        """Apply the next entry, which is durable."""
        return self.machine.apply(self.machine.revision + 1, edit, 1)

    def commit(self, *edits: Edit) -> None:
        """Append and apply."""
        self.append(*edits)
        for edit in edits:
            self.apply(edit)

    @property
    def flush_due(self) -> bool:
        return self._unflushed_bytes >= self._limits.flush_bytes

    def begin_flush(self) -> Flush:
        self._unflushed_bytes = 0
        return self.machine.flush()

    def forget(self, revision: int) -> None:
        """Remove the records up to entry `revision`: from the start on there is one for each."""
        self.journal.remove_through(self.journal.next_index - (self.next_index - revision))

    def close(self) -> None:
        self._opened.close()
