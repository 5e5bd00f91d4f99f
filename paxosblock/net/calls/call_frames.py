"""Control calls as frames: the layout of the frames in both directions after the Upgrade. No I/O.

A caller asks `GET /calls` with `Upgrade: paxosblock-calls/1` on a node's only port (`upgrade.py`).
After the `101` the caller sends CALL frames, as many as it likes without waiting; the node answers
each one with an ANSWER or an ERROR that repeats its number, in whichever order they are ready. A
frame is a header of 16 bytes, little-endian, then its words and its msgpack::

    offset  size  field
         0     4  length           bytes from offset 8 to the end, at most 64 MiB
         4     4  crc              CRC32C of the bytes from offset 8 to the end
         8     4  number           of the call on this connection, each greater than the one before
        12     1  kind             CallFrameKind
        13     1  method length    of a CALL; in other frames 0
        14     1  name length      of a CALL; in other frames 0
        15     1  reserved         0
        16        method           ASCII, as in `POST /rpc/<method>`
                  name             ASCII, of the call in the logs of both sides
                  payload          msgpack: the request, the answer, or `wire.encode_error`
"""

from __future__ import annotations

import enum
import itertools
import os
import struct
from typing import Final

import msgspec

from paxosblock.api.limits import MAX_BODY_BYTES
from paxosblock.base.checksum import crc32c
from paxosblock.errors import CorruptionError, ProtocolError

NAME_BYTES_MAX: Final = 255

_OUTER: Final = struct.Struct("<II")
_INNER: Final = struct.Struct("<IBBBB")
_HEADER: Final = struct.Struct("<IIIBBBB")
HEADER_BYTES: Final = _HEADER.size
assert _OUTER.size + _INNER.size == HEADER_BYTES
_LENGTH_MIN: Final = _INNER.size


class CallFrameKind(enum.IntEnum):
    """The meaning of a frame."""

    CALL = 1
    ANSWER = 2
    ERROR = 3
    """Its payload is `wire.encode_error` of a `PaxosBlockError`."""
    GOODBYE = 4
    """From the node: it takes no call after `number`, and still answers those up to it. The payload
    is the error that says why."""


_KINDS: Final = {int(kind): kind for kind in CallFrameKind}
_NAMES: Final = itertools.count(int.from_bytes(os.urandom(7), "big"))


def new_name() -> str:
    """Return a name for a call: a random start for each process, then counted."""
    return f"{next(_NAMES):016x}"


class CallFrame(msgspec.Struct, frozen=True, gc=False):
    """A frame as it came."""

    kind: CallFrameKind
    number: int
    method: str
    name: str
    payload: bytes | bytearray


def pack(
    kind: CallFrameKind,
    number: int,
    payload: bytes | bytearray,
    method: bytes = b"",
    name: bytes = b"",
) -> bytes:
    """Return a whole frame.

    Raises:
        ProtocolError: it is too long for the other end.
    """
    inner = _INNER.pack(number, kind, len(method), len(name), 0)
    body = b"".join((inner, method, name, payload))
    if len(body) > MAX_BODY_BYTES:
        raise ProtocolError(f"a message of {len(body)} bytes: at most {MAX_BODY_BYTES}")
    return _OUTER.pack(len(body), crc32c(body)) + body


class CallFrames:
    """Finds the frames in a stream of bytes, in whichever pieces it comes."""

    __slots__ = ("_data", "_start")

    def __init__(self) -> None:
        """Start before the first byte."""
        self._data: bytes | bytearray = b""
        self._start = 0

    @property
    def held_bytes(self) -> int:
        """Bytes that came and belong to no frame that `next` returned."""
        return len(self._data) - self._start

    def feed(self, data: bytes) -> None:
        """Add the next bytes of the stream."""
        if self._start == len(self._data):
            self._data = data
        elif isinstance(self._data, bytearray):
            del self._data[: self._start]
            self._data += data
        else:
            self._data = bytearray(self._data[self._start :]) + data
        self._start = 0

    def next(self) -> CallFrame | None:
        """Return the next frame; None until all of it has come.

        Raises:
            ProtocolError: these bytes are no frame; nothing after them can be read.
            CorruptionError: a frame differs from the one that was sent.
        """
        data, start = self._data, self._start
        if len(data) - start < HEADER_BYTES:
            return None
        length, crc, number, code, method_length, name_length, reserved = _HEADER.unpack_from(
            data, start
        )
        kind = _KINDS.get(code)
        words = _LENGTH_MIN + method_length + name_length
        if kind is None or reserved or not words <= length <= MAX_BODY_BYTES:
            begin = bytes(data[start : start + HEADER_BYTES])
            raise ProtocolError(f"no frame of a call begins with {begin!r}")
        inner = start + _OUTER.size
        end = inner + length
        if end > len(data):
            return None
        if crc32c(memoryview(data)[inner:end]) != crc:
            raise CorruptionError(f"{kind.name} frame {number} does not match its checksum")
        method_at = start + HEADER_BYTES
        name_at = method_at + method_length
        frame = CallFrame(
            kind,
            number,
            str(data[method_at:name_at], "latin-1"),  # as every byte is one there
            str(data[name_at : inner + words], "latin-1"),
            data[inner + words : end],
        )
        self._data, self._start = (data, end) if end < len(data) else (b"", 0)
        return frame
