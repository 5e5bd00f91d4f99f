"""The layout of messages (message_frames.py): what is written is read, and nothing else."""

from __future__ import annotations

import os
import random

import pytest

from paxosblock.errors import CorruptionError, PaxosBlockError, ProtocolError
from paxosblock.net import message_frames
from paxosblock.net.message_frames import (
    HEADER_BYTES,
    MessageFrame,
    MessageFrameKind,
    MessageFrames,
    new_name,
    pack,
)

FRAMES = [
    MessageFrame(MessageFrameKind.CALL, 1, "mkdirs", "0011223344556677", b"\x81\xa4path\xa2/a"),
    MessageFrame(MessageFrameKind.CALL, 2, "stat", "", b""),
    MessageFrame(MessageFrameKind.ANSWER, 1, "", "", bytes(range(256)) * 300),
    MessageFrame(MessageFrameKind.ERROR, (1 << 32) - 1, "", "", b"\x80"),
    MessageFrame(MessageFrameKind.GOODBYE, 0, "", "", b"\x80"),
    MessageFrame(MessageFrameKind.ONE_WAY, 0, "", "", b"\x90"),
]


def packed(frame: MessageFrame) -> bytes:
    words = frame.method.encode(), frame.name.encode()
    return pack(frame.kind, frame.number, bytes(frame.payload), *words)


def taken(frames: MessageFrames) -> list[MessageFrame]:
    return list(iter(frames.next, None))


def test_the_worked_example() -> None:
    """The checksum is CRC32C as any other program computes it."""
    assert pack(MessageFrameKind.CALL, 7, b"\x80", b"stat", b"n1") == bytes.fromhex(
        "0f000000 b3318a47 07000000 01 04 02 00 73746174 6e31 80"
    )


@pytest.mark.parametrize("seed", range(20))
def test_frames_are_read_from_pieces_of_any_length(seed: int) -> None:
    rng, stream = random.Random(seed), b"".join(map(packed, FRAMES))
    frames, found = MessageFrames(), list[MessageFrame]()
    while stream:
        size = rng.choice([1, 2, 5, 15, 16, 17, 1000, 100_000])
        frames.feed(stream[:size])
        stream = stream[size:]
        found += taken(frames)
        assert 0 <= frames.held_bytes < max(len(packed(frame)) for frame in FRAMES)
    assert found == FRAMES
    assert frames.held_bytes == 0


@pytest.mark.parametrize("frame", [FRAMES[0], FRAMES[1], FRAMES[3]])
def test_no_bit_can_change_unnoticed(frame: MessageFrame) -> None:
    whole = packed(frame)
    for place in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[place // 8] ^= 1 << place % 8
        frames = MessageFrames()
        frames.feed(bytes(damaged))
        try:
            assert frames.next() is None, "a frame that is longer now waits for its rest"
        except PaxosBlockError:
            continue
        assert place < 32, "only the length makes it wait"


def test_what_begins_like_no_frame_is_refused_before_its_rest_comes() -> None:
    for begin in (b"GET / HTTP/1.1\r\n", bytes(16), b"\xff" * 16, b"\x00\x00\x00\x05" + bytes(12)):
        frames = MessageFrames()
        frames.feed(begin)
        with pytest.raises(ProtocolError, match="no frame of a message begins with"):
            frames.next()


def test_damage_is_told_apart_from_what_is_no_frame() -> None:
    frames = MessageFrames()
    frames.feed(packed(FRAMES[0])[:-1] + b"?")
    with pytest.raises(CorruptionError, match="CALL frame 1 does not match its checksum"):
        frames.next()


def test_a_frame_that_nobody_would_take_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_frames, "MAX_BODY_BYTES", 100)
    longest = 100 - (HEADER_BYTES - 8)
    frames = MessageFrames()
    frames.feed(pack(MessageFrameKind.ANSWER, 1, bytes(longest)))
    assert frames.next() is not None
    with pytest.raises(ProtocolError, match="a message of 101 bytes: at most 100"):
        pack(MessageFrameKind.ANSWER, 1, bytes(longest + 1))


def test_a_connection_may_take_shorter_frames_only() -> None:
    longest = 100 - (HEADER_BYTES - 8)
    frames = MessageFrames(100)
    frames.feed(pack(MessageFrameKind.ONE_WAY, 0, bytes(longest)))
    assert frames.next() is not None
    frames.feed(pack(MessageFrameKind.ONE_WAY, 0, bytes(longest + 1))[:HEADER_BYTES])
    with pytest.raises(ProtocolError, match="no frame of a message begins with"):
        frames.next()


def test_a_process_that_is_forked_gives_other_names_to_calls() -> None:
    """Else a NameNode would take the change of one for a repeated change of the other."""
    heard, told = os.pipe()
    if (pid := os.fork()) == 0:
        os.write(told, new_name().encode())
        os._exit(0)
    os.close(told)
    with os.fdopen(heard, "rb") as names:
        forked = int(names.read(), 16)
    os.waitpid(pid, 0)
    assert abs(forked - int(new_name(), 16)) > 1
