"""Frames between members that only holders of the cluster secret can make or replay.

A ONE_WAY frame (`net/message_frames.py`) whose payload is a tag of 16 bytes, then the message.

Both ends have proven the secret before (`net/port/access.py`); the key of the connection is made
from their nonces, too. A frame's tag covers its place among those of the connection, so a frame
cannot be repeated, left out or moved to another connection. Nothing is encrypted, although the log
holds names and sizes of files: a cluster that needs secrecy has TLS in front.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Iterator

from paxosblock.base.checksum import Buffer
from paxosblock.base.units import MIB
from paxosblock.errors import ProtocolError
from paxosblock.net.message_frames import MessageFrameKind, MessageFrames, pack

TAG_BYTES = 16
FRAME_BYTES_MAX = 32 * MIB
"""Longer than any message: an edit (8 MiB) on top of a full batch."""

_ONE_WAY = MessageFrameKind.ONE_WAY
_PLACE = struct.Struct(">Q")


class Sealer:
    """The sending end of a connection."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._place = 0

    def seal(self, body: bytes) -> bytes:
        """Return the next frame."""
        tag = _tag(self._key, self._place, body)
        self._place += 1
        return pack(_ONE_WAY, 0, tag + body)


class Opener:
    """The receiving end."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._place = 0
        self._frames = MessageFrames(FRAME_BYTES_MAX)

    def feed(self, data: bytes) -> Iterator[Buffer]:
        """Yield the bodies of the frames that are complete.

        Raises:
            ProtocolError: a frame is too long or its tag is wrong; the connection is lost.
            CorruptionError: a frame differs from the one that was sent.
        """
        frames = self._frames
        frames.feed(data)
        while frames.held_bytes and (frame := frames.next()) is not None:
            payload = frame.payload
            body = memoryview(payload)[TAG_BYTES:]
            tag = _tag(self._key, self._place, body)
            if frame.kind is not _ONE_WAY or not hmac.compare_digest(payload[:TAG_BYTES], tag):
                raise ProtocolError("a frame was not made with the cluster's secret")
            self._place += 1
            yield body


def _tag(key: bytes, place: int, body: Buffer) -> bytes:
    return hmac.digest(key, _PLACE.pack(place) + body, "sha256")[:TAG_BYTES]
