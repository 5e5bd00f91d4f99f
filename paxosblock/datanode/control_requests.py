"""Control requests at a DataNode: promise, recovery, finalization, creation, deletion.

Each becomes one `Block.control`, which goes on even if its caller has gone. Chunks that a recovery
or finalization needs are fetched before it, and the request is checked again afterwards. What takes
but a record of a small replica is begun and ended without a task (`Block.begin`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Protocol

from paxosblock.api.datanode import Answer, Control, StorageAddress
from paxosblock.datanode.block import Block, RecordedRequest, SentChunk
from paxosblock.datanode.store.disk_format import FetchedChunks
from paxosblock.datanode.transfer import is_copy
from paxosblock.datanode.volumes.volume import Volume
from paxosblock.errors import NoSpaceError, PaxosBlockError
from paxosblock.host.logs import facts
from paxosblock.protocol.messages import (
    Finalize,
    Nack,
    RecoveryWrite,
    Reply,
)
from paxosblock.protocol.types import BlockId, Reason

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
        """Return a draft in `volume` with `chunks` of the log that `request` decides."""


class ControlRequests:
    """Takes the control steps of every block of a node."""

    def __init__(
        self,
        fetcher: Fetcher,
        on_end: Callable[[Block], None],
        reserved_bytes: int,
    ) -> None:
        """`on_end` is called when a block's last step under way has ended; `reserved_bytes` are
        kept free on each volume when new replicas ask for room."""
        self._fetcher = fetcher
        self._on_end = on_end
        self._reserved_bytes = reserved_bytes
        self._under_way: Counter[BlockId] = Counter()
        self._running: set[asyncio.Task[Answer]] = set()
        self._begun = 0
        """Steps of `begin` that have not ended."""
        self._idle = asyncio.Event()
        self._idle.set()

    def begin(
        self, block: Block, request: Control, sent: SentChunk | None = None
    ) -> asyncio.Future[Reply] | None:
        """Begin a step that is but a record of a small replica; None: it is for `take`.

        The future gets the reply, or a StorageError. The step goes on even if it is cancelled.
        """
        begun = None if block.copying.locked() else block.begin(request, self._reserved_bytes, sent)
        if begun is None:
            return None
        replied: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._under_way[block.id] += 1
        self._begun += 1
        self._idle.clear()
        durable = partial(self._end, block, begun, replied)
        block.volume.when_committed(begun.file, durable)
        return replied

    def _end(
        self,
        block: Block,
        begun: RecordedRequest,
        replied: asyncio.Future[Reply],
        error: PaxosBlockError | None,
    ) -> None:
        try:
            reply = block.end(begun, error)
        except Exception as failure:  # others wait for the same sync
            _log_failure(block, failure)
            if not replied.done():
                replied.set_exception(failure)
        else:
            if not replied.done():
                replied.set_result(reply)
        finally:
            self._begun -= 1
            if not self._begun:
                self._idle.set()
            self._over(block)

    async def take(
        self, block: Block, request: Control, peers: tuple[StorageAddress, ...]
    ) -> Answer:
        """Answer `request`; `peers` has the addresses of the holders that it names.

        Raises:
            NoSpaceError: the volume is full; nothing was changed.
            StorageError: the volume has failed.
        """
        # The step goes on in its thread after the caller has gone, so it must keep the lock.
        task = asyncio.create_task(self._take(block, request, peers))
        self._under_way[block.id] += 1
        self._running.add(task)
        task.add_done_callback(lambda done: self._taken(block, done))
        return await asyncio.shield(task)

    def _taken(self, block: Block, task: asyncio.Task[Answer]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            _log_failure(block, failure)
        self._over(block)

    def _over(self, block: Block) -> None:
        self._under_way[block.id] -= 1
        if not self._under_way[block.id]:
            del self._under_way[block.id]
            self._on_end(block)

    async def close(self) -> None:
        """Let the steps that are under way end."""
        while self._running or self._begun:
            if self._running:
                await asyncio.wait(self._running)
            await self._idle.wait()

    async def _take(
        self, block: Block, request: Control, peers: tuple[StorageAddress, ...]
    ) -> Answer:
        if not isinstance(request, RecoveryWrite | Finalize):
            return await block.control(request, None, self._reserved_bytes)
        # A request that is repeated while its chunks are fetched waits for them. A promise does not
        # wait: it is answered at once, and the request is checked again afterwards.
        async with block.copying:
            reply = await self._answer_with(block, request, block.missing(request), peers)
            if isinstance(request, Finalize) and _is_refused_log(reply) and not block.corrupt:
                reply = await self._replaced(block, request, peers) or reply
            return reply

    async def _answer_with(
        self,
        block: Block,
        request: RecoveryWrite | Finalize,
        missing: range,
        peers: tuple[StorageAddress, ...],
    ) -> Answer:
        async with self._fetched(block, request, missing, peers) as draft:
            return await block.control(request, draft, self._reserved_bytes)

    async def _replaced(
        self, block: Block, request: Finalize, peers: tuple[StorageAddress, ...]
    ) -> Answer | None:
        """D9 for a log that is not the decided one; None while no holder sends the decided one.

        The wrong log stays until all of the right one is here: an operator may have to look at it.
        """
        async with self._fetched(block, request, range(request.length), peers) as draft:
            return None if draft is None else await block.replace_log(request, draft)

    @asynccontextmanager
    async def _fetched(
        self,
        block: Block,
        request: RecoveryWrite | Finalize,
        chunks: range,
        peers: tuple[StorageAddress, ...],
    ) -> AsyncIterator[FetchedChunks | None]:
        """Yield a draft of `chunks`, discarded afterwards unless it was adopted; None if there are
        no chunks to fetch, or no holder has them: `answer` then says what is missing.

        Raises:
            NoSpaceError: there is no room for a copy; it may be made elsewhere.
        """
        draft: FetchedChunks | None = None
        if chunks:
            try:
                draft = await self._fetcher.fetch(block.volume, request, chunks, peers)
            except PaxosBlockError as error:
                if isinstance(error, NoSpaceError) and is_copy(request, chunks):
                    raise
                _log.warning(
                    "chunks not fetched", extra=facts(block=block.id, chunks=chunks, reason=error)
                )
        try:
            yield draft
        finally:
            if draft is not None and not block.volume.failed:
                await block.volume.run(draft.discard)


def _log_failure(block: Block, failure: BaseException) -> None:
    _log.info("not answered", extra=facts(block=block.id, reason=failure))


def _is_refused_log(reply: Answer) -> bool:
    return isinstance(reply, Nack) and reply.reason is Reason.CORRUPT
