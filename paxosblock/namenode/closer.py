"""Ends the writing of files: for their writers, for `take_over`, and when a lease is over.

A file held by `RECOVERY_WRITER` is about to be closed. If anything stops that (too few members
answer, the NameNode restarts), the file stays in that state, and the housekeeper tries again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from paxosblock.api.namenode import CloseFile
from paxosblock.errors import NotReadyError
from paxosblock.host.logs import facts, log_event
from paxosblock.namenode.background import Background
from paxosblock.namenode.blocks.finalizer import Finalizer
from paxosblock.namenode.blocks.recoverer import Recoverer
from paxosblock.namenode.blocks.replicas import Replicas
from paxosblock.namenode.catalog.blocks import Closed, leaves_at_close
from paxosblock.namenode.catalog.catalog import Catalog
from paxosblock.namenode.catalog.draft import block_entry
from paxosblock.namenode.catalog.records import RECOVERY_WRITER, FileInode
from paxosblock.namenode.leases import Expired, Leases
from paxosblock.protocol.finalize import BlockRecord
from paxosblock.protocol.types import BlockId, StorageId

NOBODY: Mapping[BlockId, tuple[StorageId, ...]] = MappingProxyType({})
"""No member is given up."""

_log = logging.getLogger(__name__)


class Closer:
    """Closes files once their blocks are complete."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        leases: Leases,
        recoverer: Recoverer,
        finalizer: Finalizer,
        replicas: Replicas,
        background: Background,
        min_replication: int,
        wait_s: float,
    ) -> None:
        """Let a close wait at most `wait_s` for members to report their replicas."""
        self._catalog = catalog
        self._leases = leases
        self._recoverer = recoverer
        self._finalizer = finalizer
        self._replicas = replicas
        self._background = background
        self._min_replication = min_replication
        self._wait_s = wait_s
        self._recovering: dict[int, asyncio.Task[FileInode]] = {}

    async def close(self, wanted: CloseFile) -> FileInode:
        """Close a file for its writer; `wanted.last` ends its last block with it, in one change. No
        member has heard of the block `wanted.unsent`.

        Repeating it is harmless.

        Raises:
            NotFoundError, FencedError, InvalidRequestError: as `blocks.close`.
            NotReadyError: a block is not complete yet, so close the file again. The file is closed
                already if that block was ended here; otherwise it stays open.
        """
        await self.prepare(wanted)
        closed = await self._catalog.close_file(wanted)
        await self.finish(((wanted, closed),))
        return closed.inode

    async def prepare(self, wanted: CloseFile) -> None:
        """Do what must be done before a change that closes a file.

        Raises:
            NotReadyError: a block before the last one is not complete yet; the file stays open.
        """
        holder, last = await self._catalog.holder(wanted.file_id), wanted.last
        # A file whose only block was made with it gets that when it is closed: none is there yet.
        whole = last is not None and holder is not None and last.block == holder.reserved
        if holder is not None and holder.writer == wanted.writer and not whole:
            await self._settle(holder)

    async def finish(self, closes: Iterable[tuple[CloseFile, Closed | None]]) -> None:
        """Do what must be done after a change that closed files; None: an earlier copy of the
        request made it.

        Raises:
            NotReadyError: a block that was ended with them is not complete yet; they are closed.
        """
        ended: list[BlockRecord] = []
        for wanted, closed in closes:
            if closed is not None:
                self._note_closed(wanted, closed)
            if wanted.last is not None:
                entry = block_entry(self._catalog.applied, wanted.last.block)
                if entry is not None:  # it may be gone by now
                    ended.append(entry.record)
        await self._wait_complete(ended)

    def _note_closed(self, wanted: CloseFile, closed: Closed) -> None:
        number, writer = wanted.file_id, wanted.writer
        self._leases.release(number)
        for entry in closed.dropped:
            self._finalizer.delete_everywhere(entry, sent=entry.record.block != wanted.unsent)
        if closed.given_up is not None:
            self._finalizer.spread(closed.given_up.record)
        about = facts(file=number, writer=writer, length_bytes=closed.inode.length)
        level = logging.INFO if writer == RECOVERY_WRITER else logging.DEBUG
        log_event(_log, "file closed", about, level)

    async def take_over(
        self, path: str, now_s: float, given_up: Mapping[BlockId, tuple[StorageId, ...]] = NOBODY
    ) -> FileInode:
        """Fence the writer of a file, finalize its blocks, close it. A closed file stays as it is.

        `given_up` are members of its blocks that an operator says will not answer (P2).

        Raises:
            NotFoundError, IsDirectoryError: there is no such file.
            NotReadyError: its last block cannot be recovered yet. The writer is fenced anyway, and
                the NameNode goes on trying.
        """
        before = await self._catalog.fence(path)
        if not before.open:
            return before
        self._leases.open(RECOVERY_WRITER, before.number, now_s)
        for block, members in given_up.items():
            await self._recoverer.finalize(block, members)
        return await self.recover(before.number)

    async def expire(self, expired: Expired, now_s: float) -> None:
        """Recover a file whose writer is gone."""
        fenced = await self._catalog.fence_writer(expired.file, expired.writer)
        if fenced is None:  # closed or deleted meanwhile
            self._leases.release(expired.file)
            return
        self._leases.open(RECOVERY_WRITER, expired.file, now_s)
        await self.recover(expired.file)

    async def recover(self, number: int) -> FileInode:
        """Finalize all blocks of a fenced file and close it; join a recovery that is under way."""
        task = self._recovering.get(number)
        if task is None:
            task = self._background.start(self._recover(number), f"recovery of file {number}")
            self._recovering[number] = task
            task.add_done_callback(lambda _: self._recovering.pop(number, None))
        return await asyncio.shield(task)

    async def _recover(self, number: int) -> FileInode:
        _log.info("file is being recovered", extra=facts(file=number))
        for entry in await self._catalog.unfinished(number):
            await self._recoverer.finalize(entry.record.block)
        return await self.close(CloseFile(number, RECOVERY_WRITER))

    async def _settle(self, file: FileInode) -> None:
        """Wait until enough members have reported the blocks that were added, and remove those that
        leave the file at its close.

        Blocks that were there when the file was opened again were complete at its last close.
        """
        async for page in self._catalog.block_pages(file.number, file.appended_from):
            await self._wait_complete([entry.record for entry in page])
            empty = tuple(entry.record.block for entry in page if leaves_at_close(entry, file))
            if empty:
                for entry in await self._catalog.drop_empty(file.number, file.writer, empty):
                    self._finalizer.delete_everywhere(entry)

    async def _wait_complete(self, records: Iterable[BlockRecord]) -> None:
        """Wait until enough members have reported the blocks. All are told before the first is
        waited for: a DataNode then hears of many by one call, and syncs once for all."""
        needed, replicas = self._min_replication, self._replicas
        kept = (each for each in records if each.finalized and each.length)
        short = [each for each in kept if not replicas.is_complete(each, needed)]
        for record in short:
            self._finalizer.spread(record, needed)
        try:
            async with asyncio.timeout(self._wait_s):
                for record in short:
                    await replicas.wait_complete(record, needed)
        except TimeoutError:
            late = [each for each in short if not replicas.is_complete(each, needed)]
            if not late:  # the last one was reported as the time was over
                return
            record, holders = late[0], len(replicas.whole(late[0]))
            raise NotReadyError(
                f"block {record.block}: {holders} of {len(record.members)} members have reported "
                f"it finalized, {needed} needed to close the file",
                block=record.block,
            ) from None
