"""The engine with a single member: files, a state machine, and no other member to agree with.

A commit is encoded, queued, written to the journal (with all that queued up during the last sync),
applied in order, and answered. Disk work runs beside the event loop, all else on it: a batch is
applied, and edits are decided, while the next batch is being written.
"""

from __future__ import annotations

import asyncio
import logging
import types
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from paxosblock.base.units import MIB
from paxosblock.errors import (
    CorruptionError,
    NoSpaceError,
    Outcome,
    OutcomeUnknownError,
    PaxosBlockError,
    StorageError,
    UnavailableError,
)
from paxosblock.host.disk import Disk, OsDisk, blamed, is_shortage
from paxosblock.namenode.kv.append_file import Appending
from paxosblock.namenode.kv.codec import LONG_BYTES, prepare
from paxosblock.namenode.kv.folder import FolderLimits, StoreFolder, open_store
from paxosblock.namenode.kv.interface import Committed, Conflict, Edit, View
from paxosblock.namenode.kv.rocks_table import open_rocks
from paxosblock.namenode.kv.state_machine import StateMachine, UnopenedView
from paxosblock.namenode.kv.table import Checkpoint, OpenTable

BATCH_BYTES = 4 * MIB
"""A batch takes no further edit once it has this many bytes."""

ENTRIES_AT_ONCE = 256
"""Entries that are applied before other tasks get a turn."""

ROOM_POLL_S = 0.5
"""Time between two looks for room while the disk is full."""

T = TypeVar("T")

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)  # not frozen, which would double the time to make it
class _PendingEdit:
    payload: bytes
    edit: Edit
    answer: asyncio.Future[Committed | Conflict]


@dataclass(frozen=True, slots=True)
class _Batch:
    """Entries from index `first` on that are on their way to the journal."""

    first: int
    pending: list[_PendingEdit]
    written: asyncio.Future[int]


class SingleMemberStore:
    """A durable `KeyValueStore` in one folder, for a cluster with one NameNode."""

    def __init__(
        self,
        folder: Path,
        *,
        address: str = "local",
        disk: Disk | None = None,
        limits: FolderLimits | None = None,
        open_table: OpenTable = open_rocks,
    ) -> None:
        """Name the folder; nothing happens before `start`.

        Args:
            folder: holds the files, or will.
            address: is what `leader` returns.
            disk: writes the files.
            limits: bound their sizes.
            open_table: opens the map.
        """
        self._folder = folder
        self._address = address
        self._disk = disk or OsDisk()
        self._limits = limits or FolderLimits()
        self._open_table = open_table
        self._machine: StateMachine | UnopenedView = UnopenedView()
        self._queue: list[_PendingEdit] = []
        self._arrived = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kv-journal")
        self._writing: asyncio.Task[None] | None = None
        self._flushing: asyncio.Task[None] | None = None
        self._closing = False
        self._failure: StorageError | None = None
        self._failed = asyncio.Event()
        self._full: NoSpaceError | None = None
        self._damage: CorruptionError | None = None

    def __repr__(self) -> str:
        state = "failed" if self._failure else "open" if self._open else "closed"
        return f"SingleMemberStore({str(self._folder)!r}, {state}, {self._machine!r})"

    async def start(self) -> None:
        assert self._writing is None, "a store is started once"
        loop = asyncio.get_running_loop()
        opening = loop.run_in_executor(
            self._thread, open_store, self._disk, self._folder, self._limits, self._open_table
        )
        try:
            folder = await opening
        except NoSpaceError as error:
            raise NoSpaceError(f"{self._folder}: {error}") from error
        except StorageError as error:
            raise self._translated(error) from error
        self._machine = folder.machine
        folder.machine.watch(self._damaged)
        self._writing = asyncio.create_task(self._write(folder))

    async def close(self) -> None:
        self._closing = True
        self._arrived.set()
        if self._writing is not None:
            await self._writing
        self._thread.shutdown()

    async def commit(self, edit: Edit) -> Committed | Conflict:
        payload = prepare(edit)
        if len(payload) > LONG_BYTES:
            await asyncio.sleep(0)
        self._check()
        if self._full is not None:
            raise NoSpaceError(self._full.message, **self._full.details)
        answer: asyncio.Future[Committed | Conflict] = asyncio.get_running_loop().create_future()
        self._queue.append(_PendingEdit(payload, edit, answer))
        self._arrived.set()
        return await answer

    async def barrier(self) -> View:
        # A commit is answered after it was applied here, and no other process can commit.
        self._check()
        return self._machine

    async def read_barrier(self) -> View:
        self._check()
        return self._machine

    def view(self) -> View:
        return self._machine

    def is_leader(self) -> bool:
        return self._open and self._failure is None

    def leader(self) -> str | None:
        return self._address if self.is_leader() else None

    async def wait_leadership(self) -> None:
        self._check()

    async def wait_deposed(self) -> None:
        """Wait for ever, as no other member can lead."""
        await asyncio.get_running_loop().create_future()

    def failure(self) -> StorageError | None:
        return self._failure

    def impaired(self) -> PaxosBlockError | None:
        return self._full or self._damage

    async def wait_failure(self) -> StorageError:
        await self._failed.wait()
        assert self._failure is not None, "it is set before the event"
        return self._failure

    async def checkpoint(self) -> Checkpoint:
        """Return a copy of what is applied here.

        Raises:
            NoSpaceError, StorageError: the disk refuses.
            UnavailableError: the store is not open.
        """
        self._check()
        assert isinstance(self._machine, StateMachine), "the store is open"
        return await asyncio.to_thread(self._machine.checkpoint().make)

    @property
    def _open(self) -> bool:
        return self._writing is not None and not self._closing

    def _check(self) -> None:
        if self._failure is not None:
            raise StorageError(self._failure.message).with_outcome(Outcome.NEVER)
        if not self._open:
            raise UnavailableError(f"the store {self._folder} is not open")

    async def _write(self, folder: StoreFolder) -> None:
        """Move the queue through the journal into the state machine until the store closes."""
        loop = asyncio.get_running_loop()
        appending = Appending(folder.journal, self._thread, self._disk.kernel_syncs())
        writing: _Batch | None = None
        try:
            while self._failure is None and (writing or await self._something_queued()):
                writing = await self._finish(folder, appending, writing or self._begin(appending))
                await self._wait_room(folder)
            if self._flushing is not None:
                await self._flushing
        finally:
            await appending.close()
            await loop.run_in_executor(self._thread, folder.close)

    def _begin(self, appending: Appending) -> _Batch:
        """Begin to write what is queued; nothing else is being written."""
        batch, first = self._take(), appending.next_index
        return _Batch(first, batch, appending.begin([pending.payload for pending in batch]))

    async def _finish(
        self, folder: StoreFolder, appending: Appending, batch: _Batch
    ) -> _Batch | None:
        """Apply a batch once it is durable; return the next one if it is being written already."""
        following: _Batch | None = None
        try:
            folder.count_bytes(await batch.written)
            if self._queue:
                following = self._begin(appending)
            await self._apply(folder, batch)
            self._flush_if_due(folder)
        except NoSpaceError as error:
            self._refuse_changes(batch.pending, error)
        except Exception as error:  # our own mistake must not leave callers waiting, either
            self._fail(batch.pending + (following.pending if following else []), error)
            if following is not None:
                await asyncio.gather(following.written, return_exceptions=True)
        return following

    async def _something_queued(self) -> bool:
        while not self._queue and not self._closing:
            self._arrived.clear()
            await self._arrived.wait()
        return bool(self._queue)

    def _take(self) -> list[_PendingEdit]:
        size = count = 0
        for pending in self._queue:
            count += 1
            size += len(pending.payload)
            if size >= BATCH_BYTES:
                break
        batch, self._queue = self._queue[:count], self._queue[count:]
        return batch

    async def _apply(self, folder: StoreFolder, batch: _Batch) -> None:
        for index, pending in enumerate(batch.pending, batch.first):
            result = await _in_turns(folder.machine.apply_in_slices(index, pending.edit))
            if not pending.answer.done():  # the caller was cancelled; the entry is in the log
                pending.answer.set_result(result)
            if index % ENTRIES_AT_ONCE == 0:
                await asyncio.sleep(0)

    def _fail(self, batch: list[_PendingEdit], error: Exception) -> None:
        """Stop for good. Any part of `batch` may be on disk, and nothing of the queue."""
        self._failure = self._translated(error)
        self._failed.set()
        if not isinstance(error, StorageError):
            _log.error("the store stops", exc_info=error)
        unknown = f"{self._failure}; whether the edit took effect shows after a restart"
        for pending in batch:
            _refuse(pending, OutcomeUnknownError(unknown))
        for pending in self._queue:
            _refuse(pending, StorageError(self._failure.message).with_outcome(Outcome.NEVER))
        self._queue.clear()

    def _damaged(self, damage: CorruptionError) -> CorruptionError:
        """Remember it for the report: no other member has what was there, so all else is served."""
        self._damage = self._damage or damage
        return damage

    def _refuse_changes(self, batch: list[_PendingEdit], error: NoSpaceError) -> None:
        """Refuse changes, but go on reading: the disk is full, and the journal has no `batch`."""
        self._full = disk_full(self._address, self._folder, error)
        _log.error("refuses changes: %s", self._full)
        for pending in (*batch, *self._queue):
            _refuse(pending, NoSpaceError(self._full.message, **self._full.details))
        self._queue.clear()

    async def _wait_room(self, folder: StoreFolder) -> None:
        """Return once there is room, or the store closes."""
        loop = asyncio.get_running_loop()
        while self._full is not None and not self._closing:
            self._arrived.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(ROOM_POLL_S):
                    await self._arrived.wait()
            try:
                has_room = await loop.run_in_executor(self._thread, lambda: folder.has_room)
            except StorageError as error:
                self._fail([], error)
                return
            if has_room:
                _log.info("takes changes again: %s has room", self._folder)
                self._full = None

    def _flush_if_due(self, folder: StoreFolder) -> None:
        running = self._flushing is not None and not self._flushing.done()
        if folder.flush_due and not running:
            self._flushing = asyncio.create_task(self._flush(folder))

    async def _flush(self, folder: StoreFolder) -> None:
        """Make durable what is applied; then drop the journal up to there, and no further."""
        try:
            flush = folder.begin_flush()
            await asyncio.to_thread(flush.write)
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._thread, folder.forget, flush.revision)
        except (CorruptionError, NoSpaceError, StorageError) as error:
            # The journal still has everything, and the next flush may succeed.
            _log.warning("could not flush the map: %s", self._translated(error))

    def _translated(self, error: Exception) -> StorageError:
        return StorageError(blamed(self._folder, error))


@types.coroutine
def _in_turns(slices: Generator[None, None, T]) -> Generator[None, None, T]:
    """Run to the end; asyncio lets other tasks run at each `yield`, as for `sleep(0)`."""
    return (yield from slices)


def disk_full(address: str, folder: Path, error: NoSpaceError) -> NoSpaceError:
    """Return `error` in the words for a client that asks the NameNode at `address` for a change."""
    what = (
        "NameNode {} has too many open" if is_shortage(error) else "the disk of NameNode {} is full"
    )
    return NoSpaceError(
        f"{what.format(address)}: {folder}: {error}; nothing can be changed until"
        " it has room, reading goes on",
        address=address,
        folder=str(folder),
    )


def _refuse(pending: _PendingEdit, error: PaxosBlockError) -> None:
    if not pending.answer.done():
        pending.answer.set_exception(error)
