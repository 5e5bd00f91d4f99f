"""The chunk records of a block file: where they are, and which of them still hold (FORMAT.md 4).

A record is the chunk's frame as it came from the wire. Where the record of chunk c starts follows
from the log alone: 48 bytes of header for each chunk below it, and their user data.
"""

from __future__ import annotations

import enum
import functools
from dataclasses import dataclass
from typing import Final

from paxosblock.base.checksum import Buffer, crc32c
from paxosblock.base.even_run import EvenRun
from paxosblock.base.units import MIB
from paxosblock.datanode.store.disk_format import Records
from paxosblock.datanode.store.meta import Metadata
from paxosblock.errors import CorruptionError, ProtocolError
from paxosblock.host.disk import Disk, FileHandle
from paxosblock.net.wire import HEADER_BYTES, MAGIC, FrameKind, Header, record_start
from paxosblock.protocol.chunk_log import ENTRY_BYTES, ChunkLog, acknowledged_before, read_entries
from paxosblock.protocol.types import BlockId, ChunkName, Durability

PIECE_BYTES: Final = 4 * MIB
_ANY_HEADER: Final = crc32c(Header(FrameKind.CHUNK).pack())
"""The CRC32C of every header: it ends with the one of the bytes before."""


def checked(block: BlockId, log: ChunkLog, chunks: range, whole: Buffer) -> Records:
    """Check that `whole` is what this node wrote as the records of `chunks` of `log`.

    At most one checksum and no object for each record: there may be very many. A header ends with
    the checksum of its bytes, so that of a whole header is always the same one, and that of a
    record follows from its chunk's (`_header_mark`).

    Raises:
        CorruptionError: it is not; nothing of it may be served.
    """
    view, begin = memoryview(whole), log.start_of(chunks.start)
    even = EvenRun.of(log.entries(chunks.start, chunks.stop), begin)
    others, size, length, mark = list[memoryview](), -1, 0, 0
    if even.chunks:
        size, length, mark = (
            even.size_bytes,
            HEADER_BYTES + even.size_bytes,
            _header_mark(even.size_bytes),
        )
        if not even.is_good(view, HEADER_BYTES, mark):  # a step for each tells which one is not
            even = even._replace(chunks=0)
    begin, position = begin + even.chunks * size, even.chunks * length
    rest = read_entries(even.names[even.chunks * ENTRY_BYTES :])
    for index, (end, crc) in enumerate(rest, chunks.start + even.chunks):
        if end - begin != size:  # most chunks are as long as the one before
            size = end - begin
            length, mark = HEADER_BYTES + size, _header_mark(size)
        record = view[position : position + length]
        if crc32c(record) ^ mark != crc:
            raise _damaged(block, index)
        others.append(record[HEADER_BYTES:])
        begin, position = end, position + length
    if position != len(view):
        raise _damaged(block, chunks.stop - 1)
    return Records(whole, even, others)


@functools.lru_cache(4096)
def _header_mark(size_bytes: int) -> int:
    """Return what any header in front of this many bytes does to their CRC32C."""
    zeros = bytes(size_bytes)
    return crc32c(zeros, _ANY_HEADER) ^ crc32c(zeros)


def _damaged(block: BlockId, index: int) -> CorruptionError:
    what = f"chunk {index} of block {block} does not match its checksum on disk"
    return CorruptionError(what, block=block, index=index)


def check_records(block: BlockId, names: tuple[ChunkName, ...], records: Buffer) -> None:
    """Check that `records`, which another node sent, are exactly those of the chunks `names`.

    Raises:
        CorruptionError: they are not; nothing of them may be served.
    """
    position = 0
    view = memoryview(records)
    for name in names:
        end = position + HEADER_BYTES + name.size_bytes
        if not _is_record(block, name, view[position:end]):
            raise _damaged(block, name.index)
        position = end


def _is_record(block: BlockId, name: ChunkName, record: memoryview) -> bool:
    try:
        header = Header.unpack(record)
    except ProtocolError:
        return False
    return (
        header.kind is FrameKind.CHUNK
        and header.block == block
        and (header.index, header.payload_length, header.payload_crc)
        == (name.index, name.size_bytes, name.crc)
        and len(record) == HEADER_BYTES + name.size_bytes
        and crc32c(record[HEADER_BYTES:]) == name.crc
    )


class _Fault(enum.Enum):
    """The reason why the log ends where it ends."""

    END = "end"
    """The file ends there too."""
    CUT = "cut"
    """The file ends inside the record."""
    OTHER = "other"
    """A whole record, but of another chunk or generation: left over from before a recovery."""
    BAD = "bad"
    """Bytes that were never written like this."""


@dataclass(frozen=True, slots=True)
class Scan:
    """The log in the block file of an rbw replica; `corrupt` says why it is dead, or is ""."""

    log: ChunkLog
    corrupt: str = ""


def scan(disk: Disk, file: FileHandle, metadata: Metadata, *, same_boot: bool) -> Scan:
    """Read the whole file and return the chunks that the replica holds.

    Chunks below `base_length` must all be good: they were on stable storage. Those above count if
    they are contiguous, good, and of the accepted generation (PROTOCOL.md 5, Restart).
    """
    scanner = _Scanner(disk, file, metadata)
    fault = scanner.run()
    log = scanner.log
    base_length = metadata.registers.base_length
    if len(log) < base_length:
        lost = f"chunk {len(log)} of {base_length} that were on stable storage is {fault}"
        return Scan(log, lost)
    if log.start_of(base_length) != metadata.base_bytes:
        return Scan(log, "the chunks that were on stable storage have another length")
    if fault is _Fault.BAD and (same_boot or scanner.was_voted_for()):
        return Scan(log, f"chunk {len(log)}, which this replica voted for, is damaged")
    return Scan(log)


class _Scanner:
    """Reads a block file in pieces, from its beginning."""

    def __init__(self, disk: Disk, file: FileHandle, metadata: Metadata) -> None:
        self._disk = disk
        self._file = file
        self._metadata = metadata
        self._size = disk.size(file)
        self._piece = b""
        self._piece_start = 0
        self.log = ChunkLog()

    def run(self) -> _Fault:
        """Extend `log` until a record does not count, and return why not."""
        while True:
            position = record_start(self.log, len(self.log))
            header = self._header(position)
            if isinstance(header, _Fault):
                return header
            record = self._bytes(position, header.frame_length)
            if len(record) < header.frame_length:
                return _Fault.CUT
            if crc32c(record[HEADER_BYTES:]) != header.payload_crc:
                return _Fault.BAD
            self.log = self.log.append(header.payload_length, header.payload_crc)

    def was_voted_for(self) -> bool:
        """True if the chunk after `log` was voted for durably, so that it cannot be a torn write.

        In disk mode a writer sends a chunk a window further on only when this one is on all disks.
        """
        metadata = self._metadata
        if metadata.registers.durability is Durability.MEMORY:
            return False
        window = metadata.registers.window
        return acknowledged_before(self._last_index(), window) > len(self.log)

    def _header(self, position: int) -> Header | _Fault:
        if position == self._size:
            return _Fault.END
        if position + HEADER_BYTES > self._size:
            return _Fault.CUT
        try:
            header = Header.unpack(self._bytes(position, HEADER_BYTES))
        except ProtocolError:
            return _Fault.BAD
        return header if self._counts(header) else _Fault.OTHER

    def _counts(self, header: Header) -> bool:
        metadata, index = self._metadata, len(self.log)
        registers = metadata.registers
        in_base = index < registers.base_length
        return (
            (header.kind, header.block, header.index) == (FrameKind.CHUNK, metadata.block, index)
            and (in_base or header.generation == registers.accepted_generation)
        )  # fmt: skip

    def _bytes(self, position: int, size: int) -> memoryview:
        """Return `size` bytes from `position` on, fewer only at the end of the file."""
        start = position - self._piece_start
        if start < 0 or start + size > len(self._piece):
            self._piece = self._disk.read(self._file, max(size, PIECE_BYTES), position)
            self._piece_start, start = position, 0
        return memoryview(self._piece)[start : start + size]

    def _last_index(self) -> int:
        """Return the highest chunk of the accepted generation that has a header further on."""
        last = -1
        position = record_start(self.log, len(self.log)) + 1
        while position < self._size:
            piece = bytes(self._bytes(position, PIECE_BYTES))
            at = piece.find(MAGIC)
            while at >= 0:
                last = max(last, self._index_of_header(position + at))
                at = piece.find(MAGIC, at + 1)
            position += max(len(piece) - len(MAGIC) + 1, 1)
        return last

    def _index_of_header(self, position: int) -> int:
        try:
            header = Header.unpack(self._bytes(position, HEADER_BYTES))
        except ProtocolError:
            return -1
        ours = (FrameKind.CHUNK, self._metadata.block, self._metadata.registers.accepted_generation)
        return header.index if (header.kind, header.block, header.generation) == ours else -1
