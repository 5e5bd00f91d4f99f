"""A key-value store in memory: the real state machine, without a journal."""

from __future__ import annotations

import asyncio

from paxosblock.errors import OutcomeUnknownError, PaxosBlockError, StorageError
from paxosblock.namenode.catalog import keys
from paxosblock.namenode.catalog.tree import unpack_target
from paxosblock.namenode.kv.codec import encode_edit
from paxosblock.namenode.kv.interface import Committed, Conflict, Edit, Recent, View
from paxosblock.namenode.raft.entry import Entry, EntryKind
from paxosblock.namenode.raft.machine import ReplicatedMachine
from tests.memory_table import MemoryTable

TURNS = 3
"""Of a commit: with one alone, whatever is asked for meanwhile would be decided after it."""


def apply_edit(machine: ReplicatedMachine, edit: Edit) -> Committed | Conflict:
    """Apply an edit as the next entry, in one step."""
    entry = Entry(0, EntryKind.EDIT, encode_edit(edit))
    outcome = machine.apply_entry(machine.revision + 1, entry, edit)
    if isinstance(outcome, Committed | Conflict):
        return outcome
    while True:
        try:
            next(outcome)
        except StopIteration as end:
            applied: Committed | Conflict = end.value
            return applied


def entries_go_with_inodes(view: View, edit: Edit) -> bool:
    """True if an edit that changes the entry of a directory changes its inode, too.

    What was decided for a user expects the inodes on the way alone (`trails.py`).
    """
    after = dict.fromkeys(edit.deletes, b"") | dict(edit.puts)
    targets = (unpack_target(view.get(key).value) for key in after if _is_entry(view, key))
    return all(keys.inode(each.number) in after for each in targets if each.is_directory)


def _is_entry(view: View, key: bytes) -> bool:
    return key.startswith(keys.ENTRIES[0]) and view.get(key).exists


class MemoryStore:
    """A `KeyValueStore` whose log is its state machine; several nodes may share one.

    `yielding` gives other tasks turns inside each commit, so that operations interleave.
    `failing` makes the next commits end with an unknown outcome: before or after they applied.
    """

    def __init__(self, *, yielding: bool = False) -> None:
        self.machine = ReplicatedMachine(MemoryTable())
        self.applied = asyncio.Event()
        self.payloads: list[bytes] = []
        """Those of all entries."""
        self.yielding = yielding
        self.conflicts = 0
        self.commits = 0
        self.fail_before = False
        self.fail_after = False

    async def start(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close."""

    async def commit(self, edit: Edit) -> Committed | Conflict:
        before, self.fail_before = self.fail_before, False
        after, self.fail_after = self.fail_after, False
        for _ in range(TURNS if self.yielding else 0):
            await asyncio.sleep(0)
        if before:
            raise OutcomeUnknownError("the store failed before the edit")
        self.payloads.append(encode_edit(edit))
        whole = entries_go_with_inodes(self.machine, edit)
        outcome = apply_edit(self.machine, edit)
        assert whole or isinstance(outcome, Conflict), "an entry changed without its inode"
        self.applied.set()
        self.applied.clear()
        self.conflicts += isinstance(outcome, Conflict)
        self.commits += 1
        if after:
            raise OutcomeUnknownError("the store failed after the edit")
        return outcome

    async def barrier(self) -> View:
        if self.yielding:
            await asyncio.sleep(0)
        return self.machine

    async def read_barrier(self) -> View:
        return await self.barrier()

    def view(self) -> View:
        return self.machine

    @property
    def recent(self) -> Recent:
        return self.machine.recent

    async def wait_entry(self, index: int) -> None:
        while self.machine.revision < index:
            await self.applied.wait()

    def is_leader(self) -> bool:
        return True

    def leader(self) -> str | None:
        return "memory"

    async def wait_leadership(self) -> None:
        """It always leads."""

    async def wait_deposed(self) -> None:
        """Never."""
        await asyncio.get_running_loop().create_future()

    def failure(self) -> StorageError | None:
        return None

    async def wait_failure(self) -> StorageError:
        await asyncio.get_running_loop().create_future()
        raise AssertionError("it never fails")

    def impaired(self) -> PaxosBlockError | None:
        return None
