"""Reads every replica of a volume once in a period: damage is found while other replicas are whole.

Damage that it finds has the same effect as damage that a reader finds: the replica is dead, the
NameNodes hear of it, and it is copied again (PROTOCOL.md, D9). A pass goes through the blocks in
order of their ids, in slices that take some milliseconds each, in a thread of the volume. While
clients use the volume it waits, unless the pass would then not end within its period; and it never
reads more than its share of bytes in a second. It reads from the disk itself, and leaves nothing in
the system's memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Final, Protocol

from paxosblock.api.namenode import NO_BLOCK
from paxosblock.api.reports import LAST_BLOCK
from paxosblock.base.units import KIB, MIB
from paxosblock.datanode.block import Block
from paxosblock.datanode.damage import is_damaged
from paxosblock.datanode.store.disk_format import Stored
from paxosblock.datanode.store.open_file import OpenFile
from paxosblock.datanode.volumes.cursor import NEVER, Cursor, read_cursor, write_cursor
from paxosblock.datanode.volumes.volume import QUIET_S, Volume
from paxosblock.errors import CorruptionError, NoSpaceError, StorageError
from paxosblock.host.disk import is_shortage
from paxosblock.host.logs import facts
from paxosblock.protocol.chunk_log import ChunkLog
from paxosblock.protocol.register import Replica
from paxosblock.protocol.types import BlockId, StorageId

SLICE_BYTES: Final = MIB
"""Bytes of user data read at a time, or one chunk if that is longer."""
SEEK_BYTES: Final = 256 * KIB
"""Finding a replica costs the disk as much as reading this many bytes: small blocks cost, too."""
SAVE_EVERY_S: Final = 60.0
"""Seconds after which the cursor is written again; a restart repeats at most this much."""
LOOK_AGAIN_S: Final = 60.0
"""Seconds after which to look at the clock again: it may have been set."""
LOOKED_AT_MAX: Final = 10_000
"""Blocks of other volumes to pass over before other tasks get a turn."""
_ATTEMPTS: Final = 5

_log = logging.getLogger(__name__)


class LocalReplicas(Protocol):
    """The replicas of this node (its acceptor)."""

    def behind(self, block: BlockId, storage: StorageId) -> Iterator[tuple[BlockId, Block | None]]:
        """Yield the greater ids than `block`, in order, until the next await; each with its block,
        if that is at `storage`."""


def _now_ms() -> int:
    return int(time.time() * 1000)


class Scrubber:
    """Scrubs one volume."""

    def __init__(
        self,
        volume: Volume,
        blocks: LocalReplicas,
        *,
        period_s: float,
        bytes_per_s: int,
        now_ms: Callable[[], int] = _now_ms,
    ) -> None:
        """Read every replica of `volume` within `period_s`, at most `bytes_per_s` in a second.

        `now_ms` is the wall clock, because a period outlives processes.
        """
        self._volume = volume
        self._blocks = blocks
        self._period_s = period_s
        self._bytes_per_s = bytes_per_s
        self._now_ms = now_ms
        self._cursor = NEVER
        self._may_read_s = 0.0
        self._saved_s = 0.0

    async def run(self) -> None:
        """Scrub for ever; return when the volume fails."""
        with contextlib.suppress(StorageError):  # the failed volume has logged why
            await self._begin()
            while True:
                await self._wait_due()
                await self._pass()

    async def _begin(self) -> None:
        volume = self._volume
        try:
            self._cursor = await volume.run_read_quietly(read_cursor, volume.disk, volume.folder)
        except StorageError:
            volume.check()
            volume.doubted = True
        volume.scrubbed.whole_ms = self._cursor.whole_ms
        await volume.all_read.wait()
        volume.check()
        self._saved_s = asyncio.get_running_loop().time()

    async def _wait_due(self) -> None:
        """Wait until it is time to begin a pass, or to go on with that of an earlier process."""
        cursor = self._cursor
        if not cursor.ended:
            return
        while cursor.begun_ms <= (now_ms := self._now_ms()):  # otherwise the clock was set back
            left_s = self._period_s - (now_ms - cursor.begun_ms) / 1000
            if left_s <= 0:
                break
            await asyncio.sleep(min(left_s, LOOK_AGAIN_S))
            self._volume.check()
        self._cursor = Cursor(NO_BLOCK, self._now_ms(), whole_ms=cursor.whole_ms)

    async def _pass(self) -> None:
        while (block := await self._next()) is not None:
            await self._scrub(block)
            self._cursor = replace(self._cursor, block=block.id)
            if asyncio.get_running_loop().time() - self._saved_s >= SAVE_EVERY_S:
                await self._save()
        now_ms = self._now_ms()
        self._cursor = replace(self._cursor, block=LAST_BLOCK, whole_ms=now_ms)
        await self._save()
        self._volume.scrubbed.whole_ms, self._volume.scrubbed.ends_ms = now_ms, 0
        took_s = (now_ms - self._cursor.begun_ms) / 1000
        about = facts(
            folder=self._volume.folder, bytes=self._cursor.read_bytes, seconds=round(took_s, 1)
        )
        if took_s > self._period_s:
            _log.warning(
                "a scrub took longer than scrub_period: raise scrub_bandwidth", extra=about
            )
        else:
            _log.info("scrub ended", extra=about)

    async def _next(self) -> Block | None:
        """Return the volume's block after the cursor; None after the last one."""
        after = self._cursor.block
        while True:
            looked_at = 0
            behind = self._blocks.behind(after, self._volume.storage)
            for each, block in islice(behind, LOOKED_AT_MAX):
                if block is not None:
                    return block
                after, looked_at = each, looked_at + 1
            if looked_at < LOOKED_AT_MAX:
                return None
            await asyncio.sleep(0)

    async def _save(self) -> None:
        volume = self._volume
        self._saved_s = asyncio.get_running_loop().time()
        with contextlib.suppress(NoSpaceError):  # a later call writes it again
            await volume.run(write_cursor, volume.disk, volume.folder, self._cursor)

    # -- one replica ----------------------------------------------------------------------------

    async def _scrub(self, block: Block) -> None:
        """Read a replica, again if it changed meanwhile; mark it as dead if it is damaged.

        Raises:
            StorageError: the volume has failed.
        """
        for _ in range(_ATTEMPTS):
            replica, files = block.replica, block.files
            if block.corrupt or replica is None or files is None:
                return  # it is dead already, or is being deleted
            try:
                if await self._read(block, replica, files):
                    return
            except (CorruptionError, StorageError) as error:
                if is_shortage(error):
                    await asyncio.sleep(1)
                elif await is_damaged(block, replica, files, error):
                    self._volume.scrubbed.damaged += 1
                    return

    async def _read(self, block: Block, replica: Replica, files: Stored) -> bool:
        """Compare all that is on stable storage of a replica with what was written.

        If the replica is being written, these are the synced chunks: only a control step still
        changes them, and with them the registers or the files. Return False if one did.

        Raises:
            CorruptionError, StorageError: it is damaged, unless it changed meanwhile.
        """
        volume, store, log = self._volume, self._volume.store, replica.log
        await self._turn(SEEK_BYTES)
        await volume.run_read_quietly(store.check_metadata, files, replica)
        if files.file is not None:
            if block.files is not files:
                return False
            with files.file.used():
                durable = log.truncate(min(block.synced, replica.length))
                return await self._read_chunks(block, files, files.file, durable)
        file = await volume.run_read_quietly(store.open, files)
        try:
            with file.used():
                return await self._read_chunks(block, files, file, log)
        finally:
            file.retire()

    async def _read_chunks(
        self, block: Block, files: Stored, file: OpenFile, log: ChunkLog
    ) -> bool:
        store, first = self._volume.store, 0
        while first < len(log):
            stop = max(first + 1, log.index_at(log.start_of(first) + SLICE_BYTES))
            chunks = range(first, min(stop, len(log)))
            size_bytes = store.size_of(log, chunks)
            await self._turn(size_bytes)
            if block.files is not files:
                return False
            await self._volume.run_read_quietly(store.read_stored, file, block.id, log, chunks)
            self._volume.scrubbed.read_bytes += size_bytes
            read_bytes = self._cursor.read_bytes + size_bytes
            self._cursor = replace(self._cursor, read_bytes=read_bytes)
            self._volume.scrubbed.ends_ms = self._ends_ms()
            first = chunks.stop
        return True

    # -- when -----------------------------------------------------------------------------------

    async def _turn(self, cost_bytes: int) -> None:
        """Wait until so many bytes may be read: for the rate, and while clients use the volume."""
        loop = asyncio.get_running_loop()
        pause_s = max(self._may_read_s - loop.time(), 0.0)
        while True:
            await asyncio.sleep(pause_s)
            if not self._volume.busy or self._is_late():
                break
            pause_s = QUIET_S
        self._may_read_s = max(self._may_read_s, loop.time()) + cost_bytes / self._bytes_per_s

    def _ends_ms(self) -> int:
        """Return when the pass ends at the pace that it had so far."""
        read_bytes, now_ms = self._cursor.read_bytes, self._now_ms()
        left = max(self._volume.used_bytes - read_bytes, 0) / read_bytes
        return now_ms + int(left * max(now_ms - self._cursor.begun_ms, 0))

    def _is_late(self) -> bool:
        """True if the pass would not end in its period at the pace it had so far."""
        gone = (self._now_ms() - self._cursor.begun_ms) / 1000 / self._period_s
        return self._cursor.read_bytes < gone * self._volume.used_bytes
