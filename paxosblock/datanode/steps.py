"""Control requests at a DataNode: promise, recovery, finalization, creation, deletion.

Each takes one blocking step in a thread of its volume, with no `await` between the check of a
generation and its being durable (PROTOCOL.md 5). While it is under way the block's writer is
fenced. Chunks that a recovery or finalization needs are fetched before, and the request is checked
again after.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol

from paxosblock.api.datanode import Answer, Control, StorageAddress
from paxosblock.datanode.block import Block
from paxosblock.datanode.store import FetchedChunks
from paxosblock.datanode.volume import Volume
from paxosblock.datanode.wording import brief
from paxosblock.errors import PaxosBlockError
from paxosblock.logs import facts
from paxosblock.protocol import register
from paxosblock.protocol.effects import AdoptLog, DropReplica, StoreMetadata
from paxosblock.protocol.messages import (
    Create,
    Delete,
    Deleted,
    Finalize,
    Nack,
    RecoveryWrite,
    Vote,
)
from paxosblock.protocol.register import Step, generation_of, heals
from paxosblock.protocol.types import BlockId, Reason, StorageId

_log = logging.getLogger(__name__)


class Fetcher(Protocol):
    """Gets chunks from other DataNodes."""

    async def fetch(
        self,
        volume: Volume,
        request: RecoveryWrite | Finalize,
        chunks: range,
        peers: tuple[StorageAddress, ...],
    ) -> FetchedChunks:
        """A draft in `volume` with `chunks` of the log that `request` decides."""


class Listener(Protocol):
    """Who is told about replicas (the reporter). Called on the event loop."""

    def replica_changed(self, block: BlockId, storage: StorageId) -> None:
        """A replica was made, finalized, deleted, or changed by a recovery."""

    def replica_corrupt(self, block: BlockId, storage: StorageId, reason: str) -> None:
        """A replica is dead."""


class ControlSteps:
    """Takes the control steps of every block of a node."""

    def __init__(
        self,
        fetcher: Fetcher,
        listener: Listener,
        on_end: Callable[[Block], None],
        mark_corrupt: Callable[[Block, str], None],
        reserved_bytes: int,
    ) -> None:
        """`on_end` is called after each step, `mark_corrupt` when a replica turns out to be dead;
        `reserved_bytes` are kept free on each volume when new replicas ask for room."""
        self._fetcher = fetcher
        self._listener = listener
        self._on_end = on_end
        self._mark_corrupt = mark_corrupt
        self._reserved_bytes = reserved_bytes
        self._running: set[asyncio.Task[Answer]] = set()

    async def take(
        self, block: Block, request: Control, peers: tuple[StorageAddress, ...]
    ) -> Answer:
        """Answer `request`; `peers` tells where the holders it names are reached.

        Raises:
            NoSpaceError: the volume is full; nothing was changed.
            StorageError: the volume has failed.
        """
        # The step goes on in its thread when the asker has gone, so the lock must stay with it.
        task = asyncio.create_task(self._take(block, request, peers))
        block.users += 1
        self._running.add(task)
        task.add_done_callback(lambda done: self._taken(block, done))
        return await asyncio.shield(task)

    def _taken(self, block: Block, task: asyncio.Task[Answer]) -> None:
        block.users -= 1
        self._running.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.info("not answered", extra=facts(block=block.id, reason=task.exception()))
        self._on_end(block)

    async def close(self) -> None:
        """Let the steps that are under way come to their end."""
        while self._running:
            await asyncio.wait(self._running)

    async def _take(
        self, block: Block, request: Control, peers: tuple[StorageAddress, ...]
    ) -> Answer:
        if not isinstance(request, RecoveryWrite | Finalize):
            async with block.lock:
                return await self._answer(block, request, None)
        # A request that is repeated while its chunks are fetched waits for them. A promise does
        # not wait: it goes in between, and the request is checked again.
        async with block.copying:
            reply = await self._answer_with(block, request, self._missing(block, request), peers)
            if isinstance(request, Finalize) and _is_refused_log(reply) and not block.corrupt:
                reply = await self._replaced(block, request, peers) or reply
            return reply

    @staticmethod
    def _missing(block: Block, request: RecoveryWrite | Finalize) -> range:
        """The chunks that the replica lacks."""
        if block.refusal(request, generation_of(request)) is not None:
            return range(0)
        return register.wanted(block.volume.storage, block.registers(request), request)

    async def _answer_with(
        self,
        block: Block,
        request: RecoveryWrite | Finalize,
        missing: range,
        peers: tuple[StorageAddress, ...],
    ) -> Answer:
        async with self._fetched(block, request, missing, peers) as draft, block.lock:
            return await self._answer(block, request, draft)

    async def _replaced(
        self, block: Block, request: Finalize, peers: tuple[StorageAddress, ...]
    ) -> Answer | None:
        """D9 for a log that is not the one that was decided; None while no holder sends that.

        Until all of the right one is here, the wrong one stays: somebody has to look at it.
        """
        async with self._fetched(block, request, range(request.length), peers) as draft, block.lock:
            if draft is None or not heals(block.replica, request):
                return None
            self._mark_corrupt(block, "its log is not the one that was decided")
            return await self._answer(block, request, draft)

    @asynccontextmanager
    async def _fetched(
        self,
        block: Block,
        request: RecoveryWrite | Finalize,
        chunks: range,
        peers: tuple[StorageAddress, ...],
    ) -> AsyncIterator[FetchedChunks | None]:
        """A draft of `chunks`, gone afterwards if it was not adopted; None when there are none, or
        when no holder has them: `answer` then says what is missing."""
        draft: FetchedChunks | None = None
        if chunks:
            try:
                draft = await self._fetcher.fetch(block.volume, request, chunks, peers)
            except PaxosBlockError as error:
                _log.warning(
                    "chunks not fetched", extra=facts(block=block.id, chunks=chunks, reason=error)
                )
        try:
            yield draft
        finally:
            if draft is not None and not block.volume.failed:
                await block.volume.run(draft.discard)

    async def _answer(self, block: Block, request: Control, draft: FetchedChunks | None) -> Answer:
        """One control step; the caller holds the block's lock."""
        if block.corrupt and isinstance(request, Delete):
            return await self._bury(block, request)
        refused = block.refusal(request, generation_of(request))
        if refused is not None:
            return refused
        before, old_files = block.replica, block.files
        step = self._consult(block, request, draft)
        if step.effect is not None or block.unsynced:
            block.stepping = True
            try:
                step = await block.volume.run(self._perform, block, request, draft)
            finally:
                block.stepping = False
                old = old_files.file if old_files is not None else None
                new = block.files.file if block.files is not None else None
                if old is not None and old is not new:
                    old.retire()
                block.changed()
        _log.info(
            "answered",
            extra=facts(
                block=block.id,
                request=brief(request),
                reply=brief(step.reply),
                before=brief(before),
                after=brief(block.replica),
            ),
        )
        if step.effect is not None:
            self._listener.replica_changed(block.id, block.volume.storage)
        assert not isinstance(step.reply, Vote), "only a Write is voted for"
        return step.reply

    @staticmethod
    def _consult(block: Block, request: Control, draft: FetchedChunks | None) -> Step:
        supplied = () if draft is None else draft.names
        registers = block.registers(request)
        return register.answer(block.volume.storage, registers, request, supplied)

    def _perform(self, block: Block, request: Control, draft: FetchedChunks | None) -> Step:
        """Check, make durable, adopt: one blocking function in a thread of the volume."""
        step = self._consult(block, request, draft)
        before, after = block.replica, step.replica
        if after is not None:
            if before is None or block.corrupt:
                after.check(request)
            else:
                after.check_follows(before, request)
        if isinstance(request, Create) and step.effect is not None:
            block.volume.check_room(self._reserved_bytes)
        if block.unsynced and not isinstance(step.effect, AdoptLog | DropReplica):
            assert block.files is not None
            block.volume.store.sync(block.files)
            block.synced = before.length if before is not None else 0
        if step.effect is not None:
            self._make_durable(block, step, draft)
        return step

    @staticmethod
    def _make_durable(block: Block, step: Step, draft: FetchedChunks | None) -> None:
        store, after, files, synced = block.volume.store, step.replica, block.files, block.synced
        match step.effect:
            case StoreMetadata() if after is not None:
                assert not block.corrupt, "a dead replica promises nothing"
                if files is None:
                    files = store.create(after)
                else:
                    store.store_metadata(files, after)
            case AdoptLog() as effect if after is not None:
                files, synced = store.adopt(files, after, effect, draft), after.length
                if block.corrupt:
                    store.purge(block.id, kept=files)
            case DropReplica() if files is not None and block.replica is not None:
                store.drop(files, block.replica)
                files, synced = None, 0
            case other:
                raise AssertionError(f"{other} is no effect of a control request")
        block.adopt(files, after, synced)

    async def _bury(self, block: Block, request: Delete) -> Answer:
        """D7 for a dead replica: whatever it promised is void, for it is no member any more."""
        replica = block.replica
        if replica is not None and replica.registers.max_generation > request.up_to_generation:
            return block.nack(request.up_to_generation, Reason.FENCED)
        await block.volume.run(block.volume.store.purge, block.id)
        if block.files is not None and block.files.file is not None:
            block.files.file.retire()
        block.adopt(None, None, 0)
        block.changed()
        self._listener.replica_changed(block.id, block.volume.storage)
        return Deleted(block.id, block.volume.storage)


def _is_refused_log(reply: Answer) -> bool:
    return isinstance(reply, Nack) and reply.reason is Reason.CORRUPT
