"""Messages as frames: their layout on connections for control calls and between NameNodes. No I/O.

On a connection for calls the caller sends CALL frames, as many as it likes without waiting; the
node answers each one with an ANSWER or an ERROR that repeats its number, in whichever order they
are ready. NameNodes send ONE_WAY frames to each other. A frame is a header of 16 bytes,
little-endian, then its words and its msgpack::

    offset  size  field
         0     4  length           bytes from offset 8 to the end, at most 64 MiB
         4     4  crc              CRC32C of the bytes from offset 8 to the end
         8     4  number           of the call on this connection, each greater than the one before
        12     1  kind             MessageFrameKind
        13     1  method length    of a CALL; in other frames 0
        14     1  name length      of a CALL; in other frames 0
        15     1  reserved         0
        16        method           ASCII, as in `POST /rpc/<method>`
                  name             ASCII, of the call in the logs of both sides
                  payload          msgpack: the request, the answer, or `wire.encode_error`

Frames of data streams are those of the disk (`wire.py`). Their header of 48 bytes, with a checksum
of its own, would cost a call 4 us more.
"""

from __future__ import annotations

import enum
import itertools
import os
import struct
from typing import Final

import msgspec

from paxosblock.api.limits import MAX_BODY_BYTES
from paxosblock.base.checksum import Buffer, crc32c
from paxosblock.base.units import KIB
from paxosblock.errors import CorruptionError, ProtocolError

NAME_BYTES_MAX: Final = 255
SHORT_BYTES: Final = 16 * KIB
"""A message so short is copied once more: two checksums would take longer."""

_OUTER: Final = struct.Struct("<II")
_INNER: Final = struct.Struct("<IBBBB")
_HEADER: Final = struct.Struct("<IIIBBBB")
HEADER_BYTES: Final = _HEADER.size
assert _OUTER.size + _INNER.size == HEADER_BYTES
_LENGTH_MIN: Final = _INNER.size


class MessageFrameKind(enum.IntEnum):
    """The meaning of a frame."""

    CALL = 1
    ANSWER = 2
    ERROR = 3
    """Its payload is `wire.encode_error` of a `PaxosBlockError`."""
    GOODBYE = 4
    """From the node: it takes no call after `number`, and still answers those up to it. The payload
    is the error that says why."""
    ONE_WAY = 5
    """No answer follows; its number is 0."""


_KINDS: Final = {int(kind): kind for kind in MessageFrameKind}


class _CallNames:
    """Numbers from a random start."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Begin somewhere else."""
        self.numbers = itertools.count(int.from_bytes(os.urandom(7), "big"))


_NAMES: Final = _CallNames()
os.register_at_fork(after_in_child=_NAMES.begin)  # else parent and child give the same names


def new_name() -> str:
    """Return a name for a call: a random start for each process, then counted."""
    return f"{next(_NAMES.numbers):016x}"


class MessageFrame(msgspec.Struct, frozen=True, gc=False):
    """A frame as it came."""

    kind: MessageFrameKind
    number: int
    method: str
    name: str
    payload: bytes | bytearray


def pack(
    kind: MessageFrameKind,
    number: int,
    payload: Buffer,
    method: bytes = b"",
    name: bytes = b"",
) -> bytes:
    """Return a whole frame.

    Raises:
        ProtocolError: it is too long for the other end.
    """
    words = _INNER.pack(number, kind, len(method), len(name), 0) + method + name
    length = len(words) + len(payload)
    if length > MAX_BODY_BYTES:
        raise ProtocolError(f"a message of {length} bytes: at most {MAX_BODY_BYTES}")
    if length > SHORT_BYTES:  # a copy more of 1 MiB takes milliseconds, as its memory is new
        return b"".join((_OUTER.pack(length, crc32c(payload, crc32c(words))), words, payload))
    body = words + payload
    return _OUTER.pack(length, crc32c(body)) + body


class MessageFrames:
    """Finds the frames in a stream of bytes, in whichever pieces it comes."""

    __slots__ = ("_data", "_most", "_start", "held_bytes")

    def __init__(self, most_bytes: int = MAX_BODY_BYTES) -> None:
        """Start before the first byte; refuse frames with more than `most_bytes` after offset 8."""
        self._most = most_bytes
        self._data: bytes | bytearray = b""
        self._start = 0
        self.held_bytes = 0
        """Bytes that came and belong to no frame that `next` returned."""

    def feed(self, data: bytes) -> None:
        """Add the next bytes of the stream."""
        if not self.held_bytes:
            self._data = data
        elif isinstance(self._data, bytearray):
            del self._data[: self._start]
            self._data += data
        else:
            self._data = bytearray(self._data[self._start :]) + data
        self._start = 0
        self.held_bytes += len(data)

    def next(self) -> MessageFrame | None:
        """Return the next frame; None until all of it has come.

        Raises:
            ProtocolError: these bytes are no frame; nothing after them can be read.
            CorruptionError: a frame differs from the one that was sent.
        """
        data, start = self._data, self._start
        if self.held_bytes < HEADER_BYTES:
            return None
        length, crc, number, code, method_length, name_length, reserved = _HEADER.unpack_from(
            data, start
        )
        kind = _KINDS.get(code)
        words = _LENGTH_MIN + method_length + name_length
        if kind is None or reserved or not words <= length <= self._most:
            begin = bytes(data[start : start + HEADER_BYTES])
            raise ProtocolError(f"no frame of a message begins with {begin!r}")
        inner = start + _OUTER.size
        end = inner + length
        if end > len(data):
            return None
        if crc32c(memoryview(data)[inner:end]) != crc:
            raise CorruptionError(f"{kind.name} frame {number} does not match its checksum")
        method = name = ""
        if words > _LENGTH_MIN:
            name_at = start + HEADER_BYTES + method_length
            method = str(data[start + HEADER_BYTES : name_at], "latin-1")  # every byte is one there
            name = str(data[name_at : inner + words], "latin-1")
        frame = MessageFrame(kind, number, method, name, data[inner + words : end])
        self.held_bytes -= end - start
        self._data, self._start = (data, end) if self.held_bytes else (b"", 0)
        return frame
