"""Gets the chunks that a recovery or a finalization needs from a DataNode that has them (D4, D5).

Memory is bounded: one piece (`max_read_bytes` of the holder) at a time, checked, then written to a
draft in `tmp/`. When a holder fails, the next one goes on where it stopped.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any, Final

from paxosblock.api.datanode import (
    STREAM_CALLS,
    STREAM_REPLIES,
    Chunks,
    FetchChunks,
    StorageAddress,
)
from paxosblock.datanode.store import FetchedChunks
from paxosblock.datanode.volume import Volume
from paxosblock.errors import PaxosBlockError, ProtocolError, UnavailableError
from paxosblock.logs import facts
from paxosblock.net.calls import CallChannel, open_channel
from paxosblock.net.control import split_address
from paxosblock.net.wire import HEADER_BYTES, MAX_CHUNK_BYTES, Header, MessageTable
from paxosblock.protocol.messages import Finalize, RecoveryWrite
from paxosblock.protocol.types import ChunkName, Generation
from paxosblock.units import MIB

TIMEOUT_S: Final = 10.0
"""Seconds that a holder may take to send one piece."""
MAX_TRANSFERS: Final = 4
"""Blocks that are fetched at a time by one DataNode."""
MAX_PIECE_BYTES: Final = 64 * MIB
"""Most bytes of user data that a holder may put into one piece, and most bytes of headers."""

_CALLS = MessageTable(STREAM_CALLS)
_REPLIES = MessageTable(STREAM_REPLIES)
_log = logging.getLogger(__name__)


class Transfer:
    """The `Fetcher` of a DataNode."""

    def __init__(self) -> None:
        """Connections are opened for each transfer: recoveries are rare."""
        self._running = asyncio.Semaphore(MAX_TRANSFERS)

    async def fetch(
        self,
        volume: Volume,
        request: RecoveryWrite | Finalize,
        chunks: range,
        peers: tuple[StorageAddress, ...],
    ) -> FetchedChunks:
        """A draft in `volume` with `chunks` of the log that `request` decides.

        Raises:
            UnavailableError: no holder has sent all of them.
            NoSpaceError, StorageError: the volume cannot take them.
        """
        async with self._running:
            draft = await volume.run(volume.store.draft, request.block, chunks.start)
            try:
                await self._fill(volume, draft, request, chunks.stop, peers)
            except BaseException:
                if not volume.failed:
                    await asyncio.shield(volume.run(draft.discard))
                raise
            return draft

    async def _fill(
        self,
        volume: Volume,
        draft: FetchedChunks,
        request: RecoveryWrite | Finalize,
        stop: int,
        peers: tuple[StorageAddress, ...],
    ) -> None:
        for holder in peers:
            if holder.storage == volume.storage or holder.storage not in request.holders:
                continue
            try:
                await self._fill_from(holder, volume, draft, request, stop)
            except PaxosBlockError as error:
                volume.check()
                _log.warning(
                    "a holder did not send all chunks",
                    extra=facts(block=draft.block, holder=holder.address, reason=error),
                )
            if draft.stop == stop:
                return
        raise UnavailableError(
            f"no holder of block {draft.block} sent chunks {draft.stop} to {stop - 1}",
            block=draft.block,
        )

    async def _fill_from(
        self,
        holder: StorageAddress,
        volume: Volume,
        draft: FetchedChunks,
        request: RecoveryWrite | Finalize,
        stop: int,
    ) -> None:
        host, port = split_address(holder.address)
        channel = await open_channel(host, port, _CALLS, _REPLIES, timeout_s=TIMEOUT_S)
        try:
            while draft.stop < stop:
                call = FetchChunks(
                    draft.block, holder.storage, _generations(request), draft.stop, stop
                )
                names, records = await _fetch_piece(channel, call)
                append = partial(draft.append, names, records)
                if isinstance(request, RecoveryWrite):
                    append = partial(volume.store.with_spare, append)
                await volume.run(append)
        finally:
            channel.connection.close()


def _generations(request: RecoveryWrite | Finalize) -> tuple[Generation, ...]:
    """The accepted generations in which a holder has the log that was chosen, or decided."""
    if isinstance(request, RecoveryWrite):
        return request.chosen_generation, request.generation
    return (request.finalized_generation,)


async def _fetch_piece(
    channel: CallChannel, call: FetchChunks
) -> tuple[tuple[ChunkName, ...], bytearray]:
    piece = _Piece(call)
    reply = await channel.call(call, block=call.block, timeout_s=TIMEOUT_S, sink=piece)
    if not isinstance(reply, Chunks):
        raise UnavailableError(f"the holder refuses: {reply}", block=call.block)
    if not piece.names:
        raise ProtocolError(f"the holder answered {call} with no chunk")
    return tuple(piece.names), piece.records


class _Piece:
    """A `ChunkSink` that puts the records side by side as they will be on disk."""

    def __init__(self, call: FetchChunks) -> None:
        self._call = call
        self._end = 0
        self.names: list[ChunkName] = []
        self.records = bytearray()

    def reply_received(self, reply: Any, count: int) -> None:
        """Make room for exactly what was announced."""
        if isinstance(reply, Chunks):
            asked = self._call.stop - self._call.start
            headers_bytes = count * HEADER_BYTES
            if count > asked or not 0 <= reply.size_bytes <= MAX_PIECE_BYTES >= headers_bytes:
                raise ProtocolError(
                    f"a holder announces {count} chunks with {reply.size_bytes} bytes in one piece"
                )
            self.records = bytearray(reply.size_bytes + headers_bytes)

    def payload_buffer(self, header: Header) -> memoryview | None:
        """The payload's place, after its header's."""
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
