"""A real DataNode that lies: what it sends on data streams is spoiled on its way out.

    python -m tests.services.rogue_datanode SWITCH datanode --id ... (as `python -m paxosblock`)

It is honest until the file SWITCH names one of `LIES`. Once a lie has left, SWITCH.told exists.
"""

from __future__ import annotations

import random
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec.structs import replace

from paxosblock.api.datanode import STREAM_REPLIES, Chunks, Run
from paxosblock.base.checksum import Buffer, crc32c
from paxosblock.cli.main import main
from paxosblock.errors import PaxosBlockError
from paxosblock.net.streams.connection import FrameConnection
from paxosblock.net.wire import (
    HEADER_BYTES,
    MAX_MESSAGE_BYTES,
    FrameKind,
    Header,
    MessageTable,
    encode_error,
)
from paxosblock.protocol.messages import Created, Nack
from paxosblock.protocol.types import BlockId, ChunkIndex, Generation, Reason, StorageId

REPLIES = MessageTable(STREAM_REPLIES)
CRC_AT = HEADER_BYTES - 4
NOBODY = StorageId("nobody")


@dataclass(frozen=True)
class Lie:
    """Frames of `kind` become what `spoil` makes of them; the others stay as they are."""

    kind: FrameKind
    spoil: Callable[[Header, bytes], bytes]


def patched(header: Header, offset: int, layout: str, value: int) -> bytes:
    """The header with one field changed to what no honest node sends, its checksum right."""
    raw = bytearray(header.pack())
    struct.pack_into(layout, raw, offset, value)
    struct.pack_into("<I", raw, CRC_AT, crc32c(raw[:CRC_AT]))
    return bytes(raw)


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def noise(_: Header, __: bytes) -> bytes:
    return random.Random(1).randbytes(3000)


def silence(_: Header, __: bytes) -> bytes:
    return b""


def framed(header: Header, payload: bytes) -> bytes:
    """A frame like `header`'s with another payload."""
    return (
        replace(header, payload_length=len(payload), payload_crc=crc32c(payload)).pack() + payload
    )


def nack(header: Header, storage: StorageId) -> bytes:
    fields = (header.block, header.generation, storage, Reason.GAP, header.generation)
    return msgspec.msgpack.encode(Nack(*fields, header.generation, 0))


def as_nack(header: Header, payload: bytes) -> bytes:
    return framed(replace(header, kind=FrameKind.NACK), payload)


def vote(spoil: Callable[[Header], bytes]) -> Lie:
    """Instead of a vote."""
    return Lie(FrameKind.VOTE, lambda header, _: spoil(header))


def reply(spoil: Callable[[Header, bytes], bytes]) -> Lie:
    """Instead of an answer to a call."""
    return Lie(FrameKind.REPLY, spoil)


def chunk(spoil: Callable[[Header, bytes], bytes]) -> Lie:
    """Instead of the chunks that were asked for."""
    return Lie(FrameKind.RUN, spoil)


def names(spoil: Callable[[bytes], bytes]) -> Lie:
    """Instead of the names of the chunks that were asked for."""

    def named(header: Header, payload: bytes) -> bytes:
        answer = REPLIES.decode(payload)
        if isinstance(answer, Run):
            answer = replace(answer, names=spoil(answer.names))
        return framed(header, REPLIES.encode(answer))

    return reply(named)


WRITING = {
    "a header that does not fit its checksum": vote(lambda h: flipped(h.pack(), 20)),
    "an unknown kind of frame": vote(lambda h: patched(h, 4, "B", 99)),
    "unknown flags": vote(lambda h: patched(h, 5, "B", 0x80)),
    "a frame that only clients send": vote(lambda h: replace(h, kind=FrameKind.CALL).pack()),
    "a chunk instead of a vote": vote(lambda h: replace(h, kind=FrameKind.CHUNK).pack()),
    "a vote for a chunk that was never sent": vote(
        lambda h: replace(h, index=ChunkIndex(h.index + 1000)).pack()
    ),
    "a vote of a later generation": vote(
        lambda h: replace(h, generation=Generation(h.generation + 1)).pack()
    ),
    "a vote for another block": vote(lambda h: replace(h, block=BlockId(h.block + 1)).pack()),
    "half a frame": vote(lambda h: h.pack()[:20]),
    "a payload longer than any": vote(lambda h: patched(h, 8, "<I", 0xFFFF_FFFF)),
    "a long payload that never comes": vote(
        lambda h: replace(h, kind=FrameKind.NACK, payload_length=MAX_MESSAGE_BYTES).pack()
    ),
    "a refusal in another's name": vote(lambda h: as_nack(h, nack(h, NOBODY))),
    "a refusal that is no message": vote(lambda h: as_nack(h, b"\xc1\xc1")),
    "a refusal that does not fit its checksum": vote(
        lambda h: flipped(as_nack(h, nack(h, NOBODY)), HEADER_BYTES)
    ),
    "an error that is none": vote(lambda h: framed(replace(h, kind=FrameKind.ERROR), b"\xc1")),
    "noise": Lie(FrameKind.VOTE, noise),
    "silence": Lie(FrameKind.VOTE, silence),
}
OPENING = {
    "an answer to a call never made": reply(
        lambda h, p: replace(h, request=h.request + 1000).pack() + p
    ),
    "a replica of another storage": reply(
        lambda h, _: framed(h, REPLIES.encode(Created(h.block, NOBODY)))
    ),
    "an answer of another type": reply(lambda h, _: framed(h, REPLIES.encode(Chunks(0, 0, 0, 0)))),
    "an answer that is no message": reply(lambda h, _: framed(h, b"\xc1\xc1")),
    "chunks after the answer, which do not come": reply(
        lambda h, p: replace(h, index=ChunkIndex(5)).pack() + p
    ),
    "an answer that does not fit its checksum": reply(lambda h, p: h.pack() + flipped(p, 0)),
}
READING = {
    "a flipped bit": chunk(lambda h, p: h.pack() + flipped(p, len(p) // 2)),
    "a chunk of another block": chunk(
        lambda h, p: replace(h, block=BlockId(h.block + 1)).pack() + p
    ),
    "a chunk of another place": chunk(
        lambda h, p: replace(h, index=ChunkIndex(h.index + 1)).pack() + p
    ),
    "a chunk that is too short": chunk(lambda h, p: framed(h, p[:-1])),
    "a chunk that is too long": chunk(lambda h, p: framed(h, p + b"x")),
    "fewer chunks than announced": Lie(FrameKind.RUN, silence),
    "the name of another chunk": names(lambda n: flipped(n, len(n) - 1)),
    "a chunk that ends before it begins": names(lambda n: bytes(8) + n[8:] + n[:12]),
    "half a name": names(lambda n: n[:-5]),
    "frames of single chunks": chunk(
        lambda h, p: Header.of(FrameKind.CHUNK, p, block=h.block, index=h.index).pack() + p
    ),
    "half a chunk": chunk(lambda h, p: (h.pack() + p)[: len(p) // 2]),
    "a vote instead of a chunk": chunk(lambda h, _: Header(FrameKind.VOTE, block=h.block).pack()),
    "more than was asked for": reply(
        lambda h, _: framed(h, REPLIES.encode(Run(0, 0, struct.pack("<QI", 1 << 50, 0))))
    ),
    "noise instead of a chunk": Lie(FrameKind.RUN, noise),
    "an error that says nothing": chunk(
        lambda h, _: framed(replace(h, kind=FrameKind.ERROR), encode_error(PaxosBlockError("")))
    ),
}
LIES = {**WRITING, **OPENING, **READING}


def lying(send: Callable[..., None], switch: Path) -> Callable[..., None]:
    """`FrameConnection.send` with a tongue."""

    def spoiled_send(connection: FrameConnection, *buffers: Buffer) -> None:
        name = switch.read_text() if switch.exists() else ""
        if not name:
            send(connection, *buffers)
            return
        data, at, out = b"".join(buffers), 0, b""
        while at < len(data):
            header = Header.unpack(data, at)
            begin, at = at, at + header.frame_length
            lie = LIES[name]
            if header.kind is lie.kind:
                out += lie.spoil(header, data[begin + HEADER_BYTES : at])
                switch.with_suffix(".told").touch()
            else:
                out += data[begin:at]
        if out:
            send(connection, out)

    return spoiled_send


if __name__ == "__main__":
    spoiled = lying(FrameConnection.send, Path(sys.argv.pop(1)))
    # The whole of the lie; what is sent soon is sent at once.
    FrameConnection.send = spoiled  # type: ignore[method-assign]  # both ways out, here
    FrameConnection.send_soon = spoiled  # type: ignore[method-assign]  # and here
    main()
