"""Gets the chunks that a recovery or a finalization needs from a DataNode that has them (D4, D5).

Memory is bounded: one piece (`max_read_bytes` of the holder) at a time, checked, then written to a
draft in `tmp/`. When a holder fails, the next one goes on where it stopped.

If a finalization asks for a whole replica, that is a copy: no client waits for a copy, but a writer
or reader may wait for anything else. So copies have lanes of their own, keep to a pace, and leave
the reserve of the volume to the others. A copy that no holder finishes, as the block is at a later
version by now, is kept for a while: the copy of that version goes on from it.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from paxosblock.api.datanode import (
    STREAM_CALLS,
    STREAM_REPLIES,
    Chunks,
    FetchChunks,
    StorageAddress,
)
from paxosblock.api.limits import MAX_CHUNK_BYTES
from paxosblock.base.units import MIB
from paxosblock.datanode.store.disk_format import FetchedChunks
from paxosblock.datanode.volumes.throttle import Throttle
from paxosblock.datanode.volumes.volume import Volume
from paxosblock.errors import NoSpaceError, PaxosBlockError, ProtocolError, UnavailableError
from paxosblock.host.logs import facts
from paxosblock.net.port.access import OPEN, Access
from paxosblock.net.port.upgrade import split_address
from paxosblock.net.streams.stream_calls import CallChannel, open_channel
from paxosblock.net.wire import HEADER_BYTES, Header, MessageTable
from paxosblock.protocol.messages import Finalize, RecoveryWrite
from paxosblock.protocol.types import NO_GENERATION, BlockId, ChunkName, Generation

TIMEOUT_S: Final = 10.0
"""Seconds that a holder may take to send one piece."""
COPY_TIMEOUT_S: Final = 60.0
"""The same for a piece of a copy, which may wait for others at the holder's pace."""
MAX_TRANSFERS: Final = 4
"""Blocks that are fetched at a time by one DataNode to be recovered or repaired."""
MAX_COPIES: Final = 8
"""Blocks that are copied to one DataNode at a time."""
KEPT_S: Final = 120.0
"""Seconds in which a copy that no holder finished may be gone on with."""
MAX_KEPT: Final = 8
"""Unfinished copies that are kept at a time: each takes room on a disk, and an open file."""
MAX_PIECE_BYTES: Final = 64 * MIB
"""Most bytes of user data that a holder may put into one piece, and most bytes of headers."""

_CALLS = MessageTable(STREAM_CALLS)
_REPLIES = MessageTable(STREAM_REPLIES)
_log = logging.getLogger(__name__)


class Transfer:
    """The `Fetcher` of a DataNode."""

    def __init__(
        self, *, pace: Throttle | None = None, reserved_bytes: int = 0, access: Access = OPEN
    ) -> None:
        """Connections are opened for each transfer: recoveries are rare.

        `pace` is that of copies to this node; they keep `reserved_bytes` of each volume free.
        `access` has the secret that holders and this node prove to each other.
        """
        self._pace = pace or Throttle()
        self._reserved_bytes = reserved_bytes
        self.copied_bytes = 0
        """Bytes of whole replicas that came from other DataNodes."""
        self._access = access
        self._repairs = asyncio.Semaphore(MAX_TRANSFERS)
        self._copies = asyncio.Semaphore(MAX_COPIES)
        self._kept: dict[BlockId, _Unfinished] = {}
        """The unfinished copies, the one that was kept last at the end."""
        self._discarding: set[asyncio.Future[None]] = set()

    async def fetch(
        self,
        volume: Volume,
        request: RecoveryWrite | Finalize,
        chunks: range,
        peers: tuple[StorageAddress, ...],
    ) -> FetchedChunks:
        """Return a draft in `volume` with `chunks` of the log that `request` decides.

        Raises:
            UnavailableError: no holder has sent all of them.
            NoSpaceError, StorageError: the volume cannot take them.
        """
        if isinstance(request, Finalize) and is_copy(request, chunks):
            return await self._copy(volume, request, peers)
        async with self._repairs:
            draft = await volume.run(volume.store.draft, request.block, chunks.start)
            task = _Task(volume, draft, request, chunks.stop, _generations(request), copy=False)
            try:
                await self._fill(task, peers)
            except BaseException:
                await _discard(volume, draft)
                raise
            return draft

    async def _copy(
        self, volume: Volume, request: Finalize, peers: tuple[StorageAddress, ...]
    ) -> FetchedChunks:
        async with self._copies:
            begun = await self._taken_up(volume, request)
            generations = _generations(request)
            if begun is None:
                await self._check_room(volume, request.size_bytes)
                draft = await volume.run(volume.store.draft, request.block, 0)
            else:
                # A holder that has not heard of the present version has the one before it.
                draft, generations = begun.draft, (*generations, begun.generation)
            try:
                task = _Task(volume, draft, request, request.length, generations, copy=True)
                await self._fill(task, peers)
            except UnavailableError:
                await self._keep(_Unfinished(volume, draft, request.finalized_generation))
                raise
            except BaseException:
                await _discard(volume, draft)
                raise
            return draft

    async def _taken_up(self, volume: Volume, request: Finalize) -> _Unfinished | None:
        """Return the unfinished copy that is the beginning of what is asked for, if any (D5)."""
        kept = self._kept.pop(request.block, None)
        if kept is None:
            return None
        if kept.volume is volume and kept.is_beginning_of(request):
            return kept
        await _discard(kept.volume, kept.draft)
        return None

    async def _keep(self, unfinished: _Unfinished) -> None:
        """Keep what was fetched for `KEPT_S`, in place of the oldest if there are too many."""
        draft = unfinished.draft
        if not draft.names or unfinished.volume.failed:
            await _discard(unfinished.volume, draft)
            return
        # One step of a block is under way at a time, so no other step keeps anything of it.
        self._kept[draft.block] = unfinished
        asyncio.get_running_loop().call_later(KEPT_S, self._forget_later, unfinished)
        if len(self._kept) > MAX_KEPT:
            oldest = self._kept.pop(next(iter(self._kept)))
            await _discard(oldest.volume, oldest.draft)

    def _forget_later(self, unfinished: _Unfinished) -> None:
        if self._kept.get(unfinished.draft.block) is unfinished:
            del self._kept[unfinished.draft.block]
            task = asyncio.ensure_future(_discard(unfinished.volume, unfinished.draft))
            self._discarding.add(task)
            task.add_done_callback(self._discarding.discard)

    async def close(self) -> None:
        """Forget the unfinished copies; nothing is fetched any more."""
        kept, self._kept = tuple(self._kept.values()), {}
        for each in kept:
            await _discard(each.volume, each.draft)
        await asyncio.gather(*self._discarding)

    async def _fill(self, task: _Task, peers: tuple[StorageAddress, ...]) -> None:
        draft = task.draft
        for holder in peers:
            if holder.storage == task.volume.storage or holder.storage not in task.request.holders:
                continue
            try:
                await self._fill_from(holder, task)
            except NoSpaceError:
                raise
            except PaxosBlockError as error:
                task.volume.check()
                _log.warning(
                    "a holder did not send all chunks",
                    extra=facts(block=draft.block, holder=holder.address, reason=error),
                )
            if draft.stop == task.stop:
                return
        raise UnavailableError(
            f"no holder of block {draft.block} sent chunks {draft.stop} to {task.stop - 1}",
            block=draft.block,
        )

    async def _fill_from(self, holder: StorageAddress, task: _Task) -> None:
        host, port = split_address(holder.address)
        volume, draft, request = task.volume, task.draft, task.request
        channel = await open_channel(
            host, port, _CALLS, _REPLIES, timeout_s=TIMEOUT_S, access=self._access
        )
        try:
            while draft.stop < task.stop:
                call = FetchChunks(
                    draft.block,
                    holder.storage,
                    task.generations,
                    draft.stop,
                    task.stop,
                    task.copy,
                    holder.capability,
                )
                names, records = await _fetch_piece(channel, call)
                append = partial(draft.append, names, records)
                if isinstance(request, RecoveryWrite):
                    append = partial(volume.store.with_spare, append)
                if task.copy:
                    await self._check_room(volume, len(records))
                await volume.run(append)
                if task.copy:
                    self.copied_bytes += len(records)
                    await self._pace.take(len(records))
        finally:
            channel.connection.close()

    async def _check_room(self, volume: Volume, needed_bytes: int) -> None:
        await volume.run(volume.check_room, self._reserved_bytes, needed_bytes)


@dataclass(frozen=True, slots=True)
class _Task:
    """A fetch of chunks for `request` up to `stop` into `draft`, from holders that have accepted a
    log in one of `generations`."""

    volume: Volume
    draft: FetchedChunks
    request: RecoveryWrite | Finalize
    stop: int
    generations: tuple[Generation, ...]
    copy: bool


@dataclass(frozen=True, slots=True)
class _Unfinished:
    """The first chunks of a block in its version `generation`."""

    volume: Volume
    draft: FetchedChunks
    generation: Generation

    def is_beginning_of(self, request: Finalize) -> bool:
        """D5: True if these are the first chunks of the version asked for, too."""
        decided = self.generation <= request.finalized_generation
        same_epoch = self.generation >= request.epoch
        goes_on = NO_GENERATION < request.beginning <= self.generation
        return decided and (same_epoch or goes_on) and self.draft.stop <= request.length


async def _discard(volume: Volume, draft: FetchedChunks) -> None:
    if not volume.failed:
        await asyncio.shield(volume.run(draft.discard))


def is_copy(request: RecoveryWrite | Finalize, chunks: range) -> bool:
    """True if the request copies a finalized block as a whole; no client waits for that."""
    return isinstance(request, Finalize) and chunks.start == 0


def _generations(request: RecoveryWrite | Finalize) -> tuple[Generation, ...]:
    """Return the accepted generations in which a holder has the log that was chosen, or decided."""
    if isinstance(request, RecoveryWrite):
        return request.chosen_generation, request.generation
    return (request.finalized_generation,)


async def _fetch_piece(
    channel: CallChannel, call: FetchChunks
) -> tuple[tuple[ChunkName, ...], bytearray]:
    piece = _RecordSink(call)
    timeout_s = COPY_TIMEOUT_S if call.copy else TIMEOUT_S
    reply = await channel.call(call, block=call.block, timeout_s=timeout_s, sink=piece)
    if not isinstance(reply, Chunks):
        raise UnavailableError(f"the holder refuses: {reply}", block=call.block)
    if not piece.names:
        raise ProtocolError(f"the holder answered with no chunk of block {call.block}")
    return tuple(piece.names), piece.records


class _RecordSink:
    """A `ChunkSink` that puts the records side by side as they will be on disk."""

    def __init__(self, call: FetchChunks) -> None:
        self._call = call
        self._end = 0
        self.names: list[ChunkName] = []
        self.records = bytearray()

    def reply_received(self, reply: Any, count: int) -> None:
        """Make room for exactly the announced bytes."""
        if isinstance(reply, Chunks):
            asked = self._call.stop - self._call.start
            headers_bytes = count * HEADER_BYTES
            if count > asked or not 0 <= reply.size_bytes <= MAX_PIECE_BYTES >= headers_bytes:
                raise ProtocolError(
                    f"a holder announces {count} chunks with {reply.size_bytes} bytes in one piece"
                )
            self.records = bytearray(reply.size_bytes + headers_bytes)

    def payload_buffer(self, header: Header) -> memoryview | None:
        """Return the payload's place, after its header's."""
        begin = self._end + HEADER_BYTES
        end = begin + header.payload_length
        if end > len(self.records) or header.payload_length > MAX_CHUNK_BYTES:
            raise ProtocolError("a holder sends more than it announced")
        return memoryview(self.records)[begin:end]

    def chunk_received(self, header: Header, payload: memoryview) -> None:
        """Put the header before its payload. `FetchedChunks.append` checks both."""
        begin = self._end + HEADER_BYTES
        self.records[self._end : begin] = header.pack()
        self._end = begin + header.payload_length
        self.names.append(ChunkName(header.index, header.payload_length, header.payload_crc))
