"""The log of a replica: the name of every chunk it holds, 12 bytes a chunk.

A `ChunkLog` is a value: appending and truncating return a new one. Logs of the same history share
one buffer, and each sees its own length of it, so that appending a chunk costs the same whether it
is the first or the ten-thousandth.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Iterator
from typing import Final

from paxosblock.protocol.types import ChunkIndex, ChunkName

_ENTRY = struct.Struct("<QI")  # end of the chunk in bytes of user data, CRC32C
ENTRY_BYTES: Final = _ENTRY.size
"""Bytes that `ChunkLog.to_bytes` returns for each chunk."""


def read_entries(data: bytes) -> Iterator[tuple[int, int]]:
    """Iterate over entries made by `ChunkLog.entries`: each chunk's end and its CRC32C.

    Raises:
        ValueError: the data is not a whole number of entries; nothing else is checked.
    """
    if len(data) % ENTRY_BYTES:
        raise ValueError(f"{len(data)} bytes are no log of chunks")
    return _ENTRY.iter_unpack(data)


def entry(end: int, crc: int) -> bytes:
    """Return the entry that `read_entries` reads as (`end`, `crc`)."""
    return _ENTRY.pack(end, crc)


def acknowledged_before(index: int, window: int) -> int:
    """Return the fewest chunks a writer knows to be acknowledged when it sends chunk `index`.

    This is all that "the window" means (W2). In disk mode every member of the writer has that many
    chunks on stable storage.
    """
    return max(0, index + 1 - window)


class ChunkLog:
    """Immutable sequence of chunk names from chunk 0 on; compares and hashes by content."""

    __slots__ = ("_buffer", "_count", "size_bytes")

    def __init__(self, names: Iterable[ChunkName] = ()) -> None:
        self._buffer = bytearray()
        self._count = 0
        self.size_bytes = 0
        for name in names:
            if name.index != self._count:
                raise ValueError(f"chunk {name.index} does not follow chunk {self._count - 1}")
            self._add(name.size_bytes, name.crc)

    def _add(self, size_bytes: int, crc: int) -> None:
        self.size_bytes += size_bytes
        self._buffer += entry(self.size_bytes, crc)
        self._count += 1

    @classmethod
    def _view(cls, buffer: bytearray, count: int) -> ChunkLog:
        log = cls.__new__(cls)
        log._buffer = buffer
        log._count = count
        log.size_bytes = _ENTRY.unpack_from(buffer, (count - 1) * _ENTRY.size)[0] if count else 0
        return log

    @classmethod
    def from_bytes(cls, data: bytes) -> ChunkLog:
        """Return the log that `to_bytes` turned into `data`. Raises ValueError if there is none."""
        ends = [end for end, _ in read_entries(data)]
        if any(end < start for start, end in itertools.pairwise(ends)):
            raise ValueError("a chunk ends before it starts")
        return cls._view(bytearray(data), len(ends))

    def to_bytes(self) -> bytes:
        """12 bytes a chunk: its end in bytes of user data (u64), its CRC32C (u32)."""
        return self.entries(0, self._count)

    def entries(self, start: int, stop: int) -> bytes:
        """Return the bytes that `to_bytes` has for chunks `start` to `stop - 1`."""
        return bytes(self._buffer[start * ENTRY_BYTES : min(stop, self._count) * ENTRY_BYTES])

    def __len__(self) -> int:
        """Number of chunks."""
        return self._count

    def __getitem__(self, index: int) -> ChunkName:
        if not 0 <= index < self._count:
            raise IndexError(f"no chunk {index} in a log of {self._count}")
        end, crc = _ENTRY.unpack_from(self._buffer, index * _ENTRY.size)
        return ChunkName(ChunkIndex(index), end - self.start_of(index), crc)

    def __iter__(self) -> Iterator[ChunkName]:
        return (self[index] for index in range(self._count))

    def start_of(self, index: int) -> int:
        """Return the offset in user bytes at which chunk `index` starts; `len(self)` is allowed."""
        if index == 0:
            return 0
        end: int = _ENTRY.unpack_from(self._buffer, (index - 1) * _ENTRY.size)[0]
        return end

    def index_at(self, offset_bytes: int, added_bytes: int = 0) -> int:
        """Return the index of the chunk with byte `offset_bytes`, or `len(self)` past the end; of
        each chunk `added_bytes` do not count."""
        if offset_bytes >= self.size_bytes - self._count * added_bytes:
            return self._count
        low, high = 0, self._count
        first_bytes = self.start_of(1) - added_bytes
        if first_bytes > 0:  # chunks are mostly as long as the first one
            guess = min(offset_bytes // first_bytes, high - 1)
            begin = self.start_of(guess) - guess * added_bytes
            if begin <= offset_bytes < self.start_of(guess + 1) - (guess + 1) * added_bytes:
                return guess
        while low < high:
            middle = (low + high) // 2
            if self.start_of(middle + 1) - (middle + 1) * added_bytes <= offset_bytes:
                low = middle + 1
            else:
                high = middle
        return low

    def append(self, size_bytes: int, crc: int) -> ChunkLog:
        """Return this log with one more chunk."""
        buffer, own_bytes = self._buffer, self._count * _ENTRY.size
        log = ChunkLog.__new__(ChunkLog)
        log._buffer = buffer if len(buffer) == own_bytes else buffer[:own_bytes]
        log._count, log.size_bytes = self._count, self.size_bytes
        log._add(size_bytes, crc)
        return log

    def extend(self, names: Iterable[ChunkName]) -> ChunkLog:
        """Return this log with `names` added, which must follow its last chunk."""
        log = self
        for name in names:
            if name.index != len(log):
                raise ValueError(f"chunk {name.index} does not follow chunk {len(log) - 1}")
            log = log.append(name.size_bytes, name.crc)
        return log

    def truncate(self, count: int) -> ChunkLog:
        """Return the first `count` chunks."""
        if not 0 <= count <= self._count:
            raise ValueError(f"cannot truncate a log of {self._count} chunks to {count}")
        return self._view(self._buffer, count)

    def tail(self, window: int) -> tuple[ChunkName, ...]:
        """Return the names of the last `window` chunks, or of all when there are fewer."""
        return self.slice(acknowledged_before(self._count - 1, window), self._count)

    def slice(self, start: int, stop: int) -> tuple[ChunkName, ...]:
        """Return the names of chunks `start` to `stop - 1`."""
        return tuple(self[index] for index in range(start, stop))

    def starts_with(self, other: ChunkLog) -> bool:
        """True if `other` is a prefix of this log (the same chunks, not only the same length)."""
        if self._buffer is other._buffer:
            return other._count <= self._count
        size = other._count * _ENTRY.size
        return other._count <= self._count and self._buffer[:size] == other._buffer[:size]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ChunkLog):
            return NotImplemented
        return self._count == other._count and self.starts_with(other)

    def __hash__(self) -> int:
        return hash(self.to_bytes())

    def __repr__(self) -> str:
        shown = " ".join(f"{name.crc:08x}" for name in self.tail(4))
        return f"<log {self._count} chunks {self.size_bytes} bytes …{shown}>"
