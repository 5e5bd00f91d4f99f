"""Frames between members that only holders of the cluster secret can make or replay.

    frame = length of body u32, tag 16 bytes, body       all integers big-endian

Both ends have proven the secret before (`net/port/access.py`); the key of the connection is made
from their nonces, too. A frame's tag covers its number in the connection, so a frame cannot be
repeated, left out or moved to another connection. Nothing is encrypted, although the log holds
names and sizes of files: a cluster that needs secrecy has TLS in front.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Iterator

from paxosblock.base.units import MIB
from paxosblock.errors import ProtocolError

TAG_BYTES = 16
FRAME_BYTES_MAX = 32 * MIB
"""Longer than any message: an edit (8 MiB) on top of a full batch."""

_LENGTH = struct.Struct(">I")
_HEAD_BYTES = _LENGTH.size + TAG_BYTES
_NUMBER = struct.Struct(">Q")


class Sealer:
    """The sending end of a connection."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._number = 0

    def seal(self, body: bytes) -> bytes:
        """Return the next frame."""
        tag = _tag(self._key, self._number, body)
        self._number += 1
        return b"".join((_LENGTH.pack(len(body)), tag, body))


class Opener:
    """The receiving end."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._number = 0
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the bodies of the frames that are complete.

        Raises:
            ProtocolError: a frame is too long or its tag is wrong; the connection is lost.
        """
        self._buffer += data
        begin = 0
        while (body := self._next(begin)) is not None:
            begin += _HEAD_BYTES + len(body)
            yield body
        del self._buffer[:begin]

    def _next(self, begin: int) -> bytes | None:
        if len(self._buffer) - begin < _HEAD_BYTES:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer, begin)
        if length > FRAME_BYTES_MAX:
            raise ProtocolError(f"a frame of {length} bytes is too long")
        start = begin + _HEAD_BYTES
        body = bytes(memoryview(self._buffer)[start : start + length])
        if len(body) < length:
            return None
        found = self._buffer[begin + _LENGTH.size : start]
        if not hmac.compare_digest(found, _tag(self._key, self._number, body)):
            raise ProtocolError("a frame was not made with the cluster's secret")
        self._number += 1
        return body


def _tag(key: bytes, number: int, body: bytes) -> bytes:
    return hmac.digest(key, _NUMBER.pack(number) + body, "sha256")[:TAG_BYTES]
