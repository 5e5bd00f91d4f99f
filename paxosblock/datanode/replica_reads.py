"""Bytes and states of replicas, for readers and for other DataNodes.

Every record is compared with the log and its checksum before it is sent. A mismatch is an error,
the replica is dead from then on, and the NameNode hears of it. DataNodes get records; readers get
user data with the log's names, to check it again. A reader of a small part of a chunk gets no more
than that: the DataNode has checked the whole chunk, now or not long ago, and checks the part
against the checksums it took then (`CheckedPieces`).
"""

from __future__ import annotations

import asyncio
from array import array
from collections import OrderedDict
from typing import Final, NamedTuple

from paxosblock.api.datanode import BorrowReplica, Chunks, FetchChunks, ReadBytes, Run, Watch
from paxosblock.api.limits import MAX_CHUNK_BYTES
from paxosblock.base.checksum import Buffer, crc32c
from paxosblock.base.chunk_cipher import user_bytes
from paxosblock.base.units import KIB, MIB
from paxosblock.datanode.acceptor import Acceptor
from paxosblock.datanode.block import Block
from paxosblock.datanode.damage import is_damaged
from paxosblock.datanode.store.disk_format import Records, Stored
from paxosblock.datanode.store.open_file import OpenFile
from paxosblock.datanode.volumes.throttle import Throttle
from paxosblock.errors import CorruptionError, NotReadyError, StorageError
from paxosblock.net.streams.buffers import BufferPool
from paxosblock.net.streams.stream_calls import Bulk
from paxosblock.net.wire import HEADER_BYTES, FrameKind, Header
from paxosblock.protocol.chunk_log import ENTRY_BYTES, ChunkLog, entry, read_entries
from paxosblock.protocol.messages import Nack, ReadReply
from paxosblock.protocol.read import holds, is_good
from paxosblock.protocol.register import Replica, nack
from paxosblock.protocol.types import (
    NO_GENERATION,
    BlockId,
    ChunkIndex,
    ChunkName,
    Generation,
    Reason,
)

MAX_LOADS: Final = 16
"""Replies with chunks that are read from the disks at a time; bounds their memory."""
MAX_INLINE_BYTES: Final = 4 * MIB + 256 * KIB
"""At most this much, as our client asks for, is read on the event loop if it is in memory."""
MAX_INLINE_CHUNKS: Final = 4096
MAX_CHUNKS: Final = 16 * 1024
"""Chunks in one reply: bounds the memory of their names and headers beside their bytes."""
MAX_PIECES: Final = 64
"""User data in more pieces than this is put side by side before it is sent."""
MAX_OPEN_FILES: Final = 64
"""Finalized replicas whose files stay open for the next reader."""
MAX_BUFFERS: Final = 8
PIECE_BYTES: Final = 16 * KIB
WORTH_BYTES: Final = 4 * PIECE_BYTES
"""A chunk that is shorter is read whole."""
MOST_PIECES: Final = 512 * 1024
"""So many are remembered: those of 8 GiB of chunks take some megabytes."""
_ATTEMPTS: Final = 5


class Around(NamedTuple):
    """Whole pieces, where in the chunk they are, and the checksum of each."""

    span: range
    sums: array[int]

    def are_good(self, data: memoryview) -> bool:
        """True if `data`, the bytes in the span, are what they were."""
        starts = range(0, len(self.span), PIECE_BYTES)
        return all(
            crc32c(data[at : at + PIECE_BYTES]) == crc
            for at, crc in zip(starts, self.sums, strict=True)
        )


class CheckedPieces:
    """Checksums of pieces of the chunks that were read last in part.

    A chunk has one checksum, so reading a few bytes of it means reading all. But once it was read
    and found good, checksums of its pieces can check these from then on. They belong to the name of
    the chunk, not to a file: any file with a chunk of that name has the same bytes.
    """

    def __init__(self) -> None:
        self._sums: OrderedDict[tuple[BlockId, ChunkName], array[int]] = OrderedDict()
        self._count = 0

    def remember(self, block: BlockId, name: ChunkName, data: Buffer) -> None:
        """Remember the pieces of `data`, the user data of a chunk that was just checked."""
        key = block, name
        if name.size_bytes < WORTH_BYTES or key in self._sums:
            return
        view = memoryview(data)
        assert len(view) == name.size_bytes, "all of the chunk"
        starts = range(0, len(view), PIECE_BYTES)
        self._sums[key] = array("I", [crc32c(view[at : at + PIECE_BYTES]) for at in starts])
        self._count += len(starts)
        while self._count > MOST_PIECES:
            self._count -= len(self._sums.popitem(last=False)[1])

    def around(self, block: BlockId, name: ChunkName, wanted: range) -> Around | None:
        """Return the pieces that cover the bytes `wanted`; None if they are not known, or make up
        most of the chunk, or these are not bytes of it.
        """
        key = block, name
        sums = self._sums.get(key)
        is_part = 0 < 2 * len(wanted) <= name.size_bytes and wanted.stop <= name.size_bytes
        if sums is None or not is_part:
            return None
        self._sums.move_to_end(key)
        first, stop = wanted.start // PIECE_BYTES, (wanted.stop - 1) // PIECE_BYTES + 1
        span = range(first * PIECE_BYTES, min(stop * PIECE_BYTES, name.size_bytes))
        return Around(span, sums[first:stop])


class Reader:
    """Answers the calls of a data stream that read."""

    def __init__(
        self, acceptor: Acceptor, *, max_read_bytes: int, copies: Throttle | None = None
    ) -> None:
        """`max_read_bytes` of user data go into one reply, or one chunk if that is longer.

        `copies` is the pace at which other nodes copy replicas from here.
        """
        self._acceptor = acceptor
        self._max_read_bytes = min(max_read_bytes, MAX_CHUNK_BYTES)
        self._copies = copies or Throttle()
        self.copied_bytes = 0
        """Bytes of replicas that other DataNodes have copied from here."""
        self._loads = asyncio.Semaphore(MAX_LOADS)
        self._buffers = BufferPool(MAX_BUFFERS)
        self._open: OrderedDict[BlockId, Block] = OrderedDict()
        self._pieces = CheckedPieces()

    async def watch(self, request: Watch) -> ReadReply | Nack:
        """Return the replica's state when it changes, or after `wait_ms` (see `Watch`).

        Raises:
            StorageError: the volume has failed.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + request.wait_ms / 1000
        while True:
            reply = await self._acceptor.read(request.read, request.storage)
            if isinstance(reply, Nack):
                return reply
            news = reply.length > request.known_length or not is_good(reply, request.generation)
            block = self._acceptor.find(request.read.block, request.storage)
            if news or block is None or loop.time() >= deadline:
                return reply
            # The state may have changed while `read` waited for the disk.
            if block.replica is not None and block.replica.length == reply.length:
                await _changed_before(block, deadline)

    async def read_bytes(self, request: ReadBytes) -> Nack | Bulk:
        """Return the chunks of a version that cover a range of user bytes.

        Raises:
            CorruptionError: they are damaged here; another replica has them.
            StorageError: the volume has failed.
        """
        part = self.known_part(request)
        if part is not None:
            return part
        await self._acceptor.ready(request.block)
        for _ in range(_ATTEMPTS):
            block = self._acceptor.find(request.block, request.storage)
            state = block.state() if block is not None else None
            if block is None or state is None:
                return refusal(block, request, NO_GENERATION)
            if not holds(request.version, state):
                return block.nack(request.version.epoch, Reason.STALE)
            block.volume.serve()
            replica = block.replica
            assert replica is not None
            log = replica.log.truncate(request.version.length)
            added = request.added_bytes
            size_bytes = user_bytes(log.size_bytes, len(log), added)
            if request.offset >= size_bytes or request.size_bytes <= 0:
                return Bulk(Run(len(log), log.size_bytes, b""), 0, ())
            first = log.index_at(request.offset, added)
            end = min(request.offset + request.size_bytes, size_bytes)
            stop = log.index_at(end - 1, added) + 1
            wanted = range(request.offset, end) if request.exact else None
            loaded = await self._load(block, replica, log, first, stop)
            if loaded is not None:
                run = _run(block.id, log, *loaded, wanted)
                if wanted is not None and stop - first == 1:
                    data = memoryview(loaded[1].whole)[HEADER_BYTES:]
                    self._pieces.remember(block.id, log[first], data)
                return run
        raise NotReadyError(f"block {request.block} is being recovered", block=request.block)

    def known_part(self, request: ReadBytes) -> Bulk | None:
        """As `read_bytes`, at once, for a part of a chunk whose pieces are known.

        None: they are not, or the system does not have them in memory, or there is anything wrong
        with them or with the request. It is up to `read_bytes` to find that out.
        """
        if self._acceptor.is_unread(request.block):
            return None
        block = self._acceptor.find(request.block, request.storage)
        if block is None or block.replica is None:
            return None
        if not request.exact or request.offset < 0 or request.size_bytes > MAX_INLINE_BYTES:
            return None
        log, files = block.replica.log, block.files
        file = None if files is None else files.file or block.opened(files)
        index = log.index_at(request.offset)
        if file is None or index >= min(request.version.length, len(log)):
            return None
        name, start = log[index], request.offset - log.start_of(index)
        part = range(start, start + request.size_bytes)
        pieces = self._pieces.around(block.id, name, part)
        state = None if pieces is None else block.state()
        if pieces is None or state is None or not holds(request.version, state):
            return None
        block.volume.serve()
        into = memoryview(bytearray(len(pieces.span)))
        is_read = block.volume.store.read_part(file, log, index, pieces.span.start, into)
        if not is_read or not pieces.are_good(into):
            return None
        data = into[part.start - pieces.span.start : part.stop - pieces.span.start]
        names = entry(request.offset + len(part), crc32c(data))
        return _framed(block.id, Run(index, request.offset, names), [data])

    async def fetch_chunks(self, request: FetchChunks) -> Nack | Bulk:
        """Return chunks for a DataNode that completes a recovery. Raises as `read_bytes`."""
        await self._acceptor.ready(request.block)
        for _ in range(_ATTEMPTS):
            block = self._acceptor.find(request.block, request.storage)
            wanted = max(request.generations, default=NO_GENERATION)
            if block is None or block.replica is None or block.corrupt:
                return refusal(block, request, wanted)
            replica = block.replica
            if replica.registers.accepted_generation not in request.generations:
                return block.nack(wanted, Reason.STALE)
            if not 0 <= request.start < request.stop <= replica.length:
                return block.nack(wanted, Reason.GAP)
            stop = self._paced_stop(request, replica.log) if request.copy else request.stop
            loaded = await self._load(block, replica, replica.log, request.start, stop)
            if loaded is not None:
                if request.copy:
                    size_bytes = len(loaded[1].whole)
                    await self._copies.take(size_bytes)
                    self.copied_bytes += size_bytes
                return _records(replica.log, *loaded)
        raise NotReadyError(f"block {request.block} is being recovered", block=request.block)

    def _paced_stop(self, request: FetchChunks, log: ChunkLog) -> int:
        """Return where a piece ends that takes no more than a second at the pace of copies."""
        end = min(log.start_of(request.start) + self._copies.bytes_per_s, log.size_bytes)
        return max(request.start + 1, min(request.stop, log.index_at(int(end))))

    async def _load(
        self, block: Block, replica: Replica, log: ChunkLog, first: int, stop: int
    ) -> tuple[range, Records] | None:
        """Return chunks [first, stop) or a shorter run of them, and their records; None if the
        replica changed meanwhile.

        A recovery may cut or move the file while it is read, which is no corruption.
        """
        limit = log.index_at(log.start_of(first) + self._max_read_bytes)
        stop = max(first + 1, min(stop, limit, first + MAX_CHUNKS))
        files = block.files
        if files is None:  # the replica is being deleted at this moment
            await block.settled()
            return None
        try:
            async with self._loads:
                if block.files is not files:  # closed, or moved, while this waited for its turn
                    return None
                records = await self._read(block, files, log, range(first, stop))
        except (CorruptionError, StorageError) as error:
            if await is_damaged(block, replica, files, error):
                raise
            return None
        return None if records is None else (range(first, stop), records)

    async def _read(
        self, block: Block, files: Stored, log: ChunkLog, chunks: range
    ) -> Records | None:
        """Return the records of the chunks; None if the replica changed meanwhile."""
        volume, store = block.volume, block.volume.store
        file = files.file or await self._opened(block, files)
        if file is None:
            return None
        size_bytes = store.size_of(log, chunks)
        with file.used():
            into = self._buffers.take(size_bytes)
            # A thread costs more than copying bytes that are in memory already.
            if size_bytes <= MAX_INLINE_BYTES and len(chunks) <= MAX_INLINE_CHUNKS:
                volume.check()
                volume.touch()
                records = store.read_cached(file, block.id, log, chunks, into)
                if records is not None:
                    return records
            return await volume.run_read(store.read, file, block.id, log, chunks, into)

    async def _opened(self, block: Block, files: Stored) -> OpenFile | None:
        """Return the file of a replica that takes no writes; None if the replica changed."""
        if block.opened(files) is None:
            file = await block.volume.run_read(block.volume.store.open, files)
            if block.open_for_readers(files, file):
                self._open[block.id] = block
        opened = block.opened(files)
        if opened is not None:
            self._open.move_to_end(block.id)
            if len(self._open) > MAX_OPEN_FILES:
                self._open.popitem(last=False)[1].close_for_readers()
        return opened


def refusal(
    block: Block | None,
    request: ReadBytes | FetchChunks | BorrowReplica,
    generation: Generation,
) -> Nack:
    """Return the answer to a request for a replica that is not here, or dead."""
    if block is not None and block.corrupt:
        return block.nack(generation, Reason.CORRUPT)
    return nack(request.storage, request.block, generation)


def _run(
    block: BlockId, log: ChunkLog, chunks: range, records: Records, wanted: range | None
) -> Bulk:
    """Return the answer to a reader: the user data of all chunks, or the bytes in `wanted`."""
    start, names, parts = log.start_of(chunks.start), records.even.names, records.take_payloads()
    if len(parts) > MAX_PIECES:
        parts[:] = [b"".join(parts)]
    if wanted is not None and len(parts) == len(chunks):
        ends = [end for end, _ in read_entries(names)]
        end = min(wanted.stop, ends[-1])
        parts[-1] = parts[-1][: end - log.start_of(chunks.stop - 1)]
        parts[0] = parts[0][wanted.start - start :]
        start, ends[-1] = wanted.start, end
        first, last = entry(ends[0], crc32c(parts[0])), entry(end, crc32c(parts[-1]))
        names = first if len(parts) == 1 else first + names[ENTRY_BYTES:-ENTRY_BYTES] + last
    return _framed(block, Run(chunks.start, start, names), parts)


def _framed(block: BlockId, run: Run, parts: list[Buffer]) -> Bulk:
    """Return the reply, and one frame with all the bytes."""
    index, size_bytes = ChunkIndex(run.first), sum(map(len, parts))
    header = Header(FrameKind.RUN, payload_length=size_bytes, block=block, index=index)
    return Bulk(run, 1, (header.pack(), *parts))


def _records(log: ChunkLog, chunks: range, records: Records) -> Bulk:
    """Return the answer to a DataNode: all records."""
    start = log.start_of(chunks.start)
    size_bytes = log.start_of(chunks.stop) - start
    reply = Chunks(chunks.start, start, len(chunks), size_bytes)
    return Bulk(reply, len(chunks), (records.whole,))


async def _changed_before(block: Block, deadline: float) -> None:
    try:
        async with asyncio.timeout_at(deadline):
            await block.wait_changed()
    except TimeoutError:
        pass
