"""The one frame layout: of the data stream, and of a chunk's record in a DataNode's block file.

A DataNode writes a received chunk frame to disk as it is, and sends it to other DataNodes as it is;
readers get many chunks in one frame (RUN). A frame is a header of 48 bytes, little-endian, and its
payload::

    offset  size  field
         0     4  magic            b"PXB1"
         4     1  kind             FrameKind
         5     1  flags            Flags
         6     2  reserved         0
         8     4  payload length   bytes
        12     4  payload crc      CRC32C of the payload; 0 on a RUN, whose chunks have their own
        16     8  block
        24     8  generation
        32     4  index            of the chunk
        36     4  acknowledged     chunks that every member has voted for, as the writer knows it;
                                   on a BEAT: bytes that came from the peer so far, modulo 2**32
        40     4  request          pairs a CALL with its REPLY or ERROR; on a BEAT of a DataNode:
                                   milliseconds for which a disk of its has stood still
        44     4  header crc       CRC32C of bytes 0 to 43

Nothing here does I/O. The header's checksum is checked when a header is unpacked; the payload's
only by `verify_payload`, so that its bytes are read where they are needed anyway.
"""

from __future__ import annotations

import enum
import functools
import operator
import struct
from dataclasses import dataclass, field
from typing import Any, Final, Self

import msgspec

from paxosblock.api.limits import MAX_CHUNK_BYTES
from paxosblock.base.checksum import Buffer, crc32c
from paxosblock.base.encoding import MALFORMED, encode, msgpack_decoder
from paxosblock.base.units import MIB
from paxosblock.errors import CorruptionError, PaxosBlockError, ProtocolError, from_wire
from paxosblock.protocol.chunk_log import ChunkLog
from paxosblock.protocol.types import FIRST_GENERATION, BlockId, ChunkIndex, Generation

MAGIC: Final = b"PXB1"
HEADER_BYTES: Final = 48
MAX_MESSAGE_BYTES: Final = MIB
"""Most bytes in the payload of any other frame."""


_BODY = struct.Struct("<4sBBHIIQQIII")
_HEADER = struct.Struct("<4sBBHIIQQIIII")
_HEADER_CRC = struct.Struct("<I")
_BODY_BYTES: Final = _BODY.size
assert _HEADER.size == HEADER_BYTES


class FrameKind(enum.IntEnum):
    """The meaning of a frame."""

    CHUNK = 1
    """A `Write` from a client, or a chunk read back."""
    VOTE = 2
    NACK = 3
    """Its payload is the msgpack of a `Nack`."""
    CALL = 4
    """Its payload is a request of the stream's `MessageTable`."""
    REPLY = 5
    """Its payload is an answer of the stream's `MessageTable`; `index` frames with bytes follow it,
    CHUNK or RUN."""
    ERROR = 6
    """Its payload is `encode_error` of a `PaxosBlockError`."""
    BEAT = 7
    """From a client: send a BEAT every `index` milliseconds from now on, or (0) none any more. From
    a DataNode: it lives, and owes `index` votes and answers. `beats.py` says what follows."""
    RUN = 8
    """The user bytes of successive chunks, side by side, from chunk `index` on, as the `Run` in the
    REPLY before it names them. Its payload crc is 0: each chunk is checked by its own name."""


class Flags(enum.IntFlag):
    """The bits of a header's `flags`."""

    SYNC = 1
    """On a CHUNK: vote once it is on stable storage. On a VOTE: it is on stable storage."""


_NO_BLOCK: Final = BlockId(0)
_FIRST_CHUNK: Final = ChunkIndex(0)
_ALL_FLAGS: Final = int(Flags.SYNC)
_KINDS: Final[dict[int, FrameKind]] = {int(kind): kind for kind in FrameKind}
BULK: Final = frozenset({FrameKind.CHUNK, FrameKind.RUN})
"""The frames that carry user data, and follow a REPLY."""


def max_payload_bytes(kind: FrameKind) -> int:
    """Return the longest payload a frame of this kind may have."""
    return MAX_CHUNK_BYTES if kind in BULK else MAX_MESSAGE_BYTES


class Header(msgspec.Struct, frozen=True, gc=False):
    """The first 48 bytes of a frame, without the fields that are the same in each.

    It is made twice for each chunk and vote: a frozen dataclass takes ten times as long to make.
    """

    kind: FrameKind
    flags: int = 0
    payload_length: int = 0
    payload_crc: int = 0
    block: BlockId = _NO_BLOCK
    generation: Generation = FIRST_GENERATION
    index: ChunkIndex = _FIRST_CHUNK
    acknowledged: int = 0
    request: int = 0

    def pack(self) -> bytes:
        """Return the 48 bytes.

        Raises:
            ProtocolError: a field does not fit its place in the layout.
        """
        try:
            body = _BODY.pack(
                MAGIC,
                self.kind,
                self.flags,
                0,
                self.payload_length,
                self.payload_crc,
                self.block,
                self.generation,
                self.index,
                self.acknowledged,
                self.request,
            )
        except struct.error as error:
            raise ProtocolError(f"a field of the frame is out of range: {self}") from error
        return body + _HEADER_CRC.pack(crc32c(body))

    @classmethod
    def unpack(cls, buffer: Buffer, offset: int = 0) -> Header:
        """Return the header at `offset` of `buffer`, which may go on after it.

        Raises:
            ProtocolError: these bytes are no header of a frame; the message says why.
        """
        if len(buffer) - offset < HEADER_BYTES:
            raise ProtocolError(f"a frame header has 48 bytes, not {len(buffer) - offset}")
        (
            magic, kind_code, flags, reserved, length, crc,
            block, generation, index, acknowledged, request, header_crc,
        ) = _HEADER.unpack_from(buffer, offset)  # fmt: skip
        if magic != MAGIC:
            raise ProtocolError(f"bad magic: a frame begins with {MAGIC!r}, not {magic!r}")
        if crc32c(memoryview(buffer)[offset : offset + _BODY_BYTES]) != header_crc:
            raise ProtocolError("header checksum does not match")
        kind = _KINDS.get(kind_code)
        if kind is None:
            raise ProtocolError(f"unknown frame kind {kind_code}")
        if reserved or flags & ~_ALL_FLAGS:
            raise ProtocolError(f"unknown flags {flags:#x} or reserved field {reserved:#x}")
        if length > MAX_MESSAGE_BYTES and length > max_payload_bytes(kind):
            raise ProtocolError(
                f"payload too long: {length} bytes in a {kind.name} frame, "
                f"at most {max_payload_bytes(kind)}"
            )
        return cls(kind, flags, length, crc, block, generation, index, acknowledged, request)

    @classmethod
    def of(cls, kind: FrameKind, payload: Buffer, **fields: Any) -> Self:
        """Return the header for `payload`, with its length and checksum filled in."""
        return cls(kind, payload_length=len(payload), payload_crc=crc32c(payload), **fields)

    @property
    def frame_length(self) -> int:
        """Bytes of header and payload together."""
        return HEADER_BYTES + self.payload_length


def record_start(log: ChunkLog, index: int) -> int:
    """Return the offset of the frame of chunk `index`, also for `len(log)`, where all those of a
    log follow each other, as in a block file (FORMAT.md, 4)."""
    return log.start_of(index) + index * HEADER_BYTES


def verify_payload(header: Header, payload: Buffer) -> None:
    """Check the payload against its header; call this before you use a payload.

    Raises:
        CorruptionError: the payload differs from the one that was sent.
    """
    if len(payload) != header.payload_length:
        raise CorruptionError(
            f"{header.kind.name} payload of {len(payload)} bytes, not {header.payload_length}",
            block=header.block,
            index=header.index,
        )
    found = crc32c(payload)
    if found != header.payload_crc:
        raise CorruptionError(
            f"{header.kind.name} payload has checksum {found:08x}, not {header.payload_crc:08x} "
            f"(block {header.block}, chunk {header.index})",
            block=header.block,
            index=header.index,
        )


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """A `PaxosBlockError` on its way between processes."""

    code: str
    message: str
    details: dict[str, str | int | bool] = field(default_factory=dict)
    outcome: str | None = None
    retriable: bool | None = None


_ENCODER = msgspec.msgpack.Encoder()
_ERROR_DECODER = msgpack_decoder(ErrorBody)


def encode_error(error: PaxosBlockError) -> bytes:
    """Return the msgpack of an error: body of a failed control call, payload of an ERROR frame."""
    outcome, retriable = error.outcome.value, error.retriable
    return _ENCODER.encode(ErrorBody(error.code, error.message, error.details, outcome, retriable))


def decode_error(payload: Buffer) -> PaxosBlockError:
    """Return the error that a peer reported.

    Raises:
        ProtocolError: this is not an error's msgpack.
    """
    try:
        body = _ERROR_DECODER.decode(payload)
    except MALFORMED as error:
        raise ProtocolError(f"not an error of paxosblock: {error}") from error
    return from_wire(body.code, body.message, body.details, body.outcome, body.retriable)


class MessageTable:
    """The types that CALL or REPLY payloads may have: structs, distinguished by their tags."""

    def __init__(self, types: tuple[type[msgspec.Struct], ...]) -> None:
        """`types` are structs whose tags are all different."""
        assert all(kind.__struct_config__.tag for kind in types)
        self._types = types
        self._decoder = msgpack_decoder(functools.reduce(operator.or_, types))

    def encode(self, message: object) -> bytes:
        """Return the payload for `message`.

        Raises:
            ProtocolError: its type is not in the table, or it is too long for a frame.
            InvalidRequestError: it cannot be encoded.
        """
        name = type(message).__name__
        if not isinstance(message, self._types):
            raise ProtocolError(f"{name} is no message of this stream")
        payload = encode(message)
        if len(payload) > MAX_MESSAGE_BYTES:
            raise ProtocolError(
                f"{name} has {len(payload)} bytes, a message at most {MAX_MESSAGE_BYTES}"
            )
        return payload

    def decode(self, payload: Buffer) -> Any:
        """Return the message in `payload`, an instance of one of the table's types.

        Raises:
            ProtocolError: unknown tag, or fields that do not fit the type.
        """
        try:
            return self._decoder.decode(payload)
        except MALFORMED as error:
            raise ProtocolError(f"malformed message: {error}") from error
