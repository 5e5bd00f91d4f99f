"""The chunks into which the bytes of an application are cut."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from paxosblock.base.checksum import Buffer, crc32c
from paxosblock.net.wire import Flags, FrameKind, Header
from paxosblock.protocol.messages import Write


@dataclass(frozen=True, slots=True)
class Chunk:
    """The bytes of one chunk, never changed once made: a retry is byte-identical (I2).

    `sync` asks for a vote only when the chunk is on stable storage.
    """

    data: Buffer
    crc: int
    sync: bool = False

    @property
    def size_bytes(self) -> int:
        """Length of the chunk."""
        return len(self.data)


def chunk_of(data: Buffer, *, sync: bool = False) -> Chunk:
    """Return the chunk with these bytes; its checksum is computed here, once, for all replicas."""
    return Chunk(data, crc32c(data), sync)


def frame_header(message: Write) -> bytes:
    """Return the header of the frame that takes a Write and the bytes of its chunk to a member."""
    return Header(
        FrameKind.CHUNK,
        int(Flags.SYNC) if message.sync else 0,
        message.size_bytes,
        message.crc,
        message.block,
        message.generation,
        message.index,
        message.acknowledged_count,
    ).pack()


class ChunkBuffer:
    """Cuts a stream of writes into pieces of `chunk_size`, copying as little as it can.

    Whole chunks of immutable bytes are passed on by reference. Everything else is copied once, into
    a buffer that is given away when it is full.
    """

    def __init__(self, chunk_size: int) -> None:
        self._size = chunk_size
        self._partial = bytearray()

    def __len__(self) -> int:
        """Bytes that wait for more."""
        return len(self._partial)

    def cut(self, data: Buffer) -> Iterator[Buffer]:
        """Take all of `data`; yield every chunk that is full.

        Whatever was not reached when the iterator is dropped was not taken.
        """
        view = memoryview(data).cast("B")
        shared = isinstance(view.obj, bytes)
        at = 0
        while at < len(view):
            if shared and not self._partial and len(view) - at >= self._size:
                at += self._size
                yield view[at - self._size : at]
                continue
            taken = view[at : at + self._size - len(self._partial)]
            self._partial += taken
            at += len(taken)
            if len(self._partial) == self._size:
                yield self.take()

    def take(self) -> Buffer:
        """Return what waits, as a chunk of its own; the buffer is empty afterwards."""
        taken, self._partial = self._partial, bytearray()
        return taken
