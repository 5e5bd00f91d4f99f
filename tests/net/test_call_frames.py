"""The layout of control calls (call_frames.py): what is written is read, and nothing else."""

from __future__ import annotations

import random

import pytest

from paxosblock.errors import CorruptionError, PaxosBlockError, ProtocolError
from paxosblock.net.calls import call_frames
from paxosblock.net.calls.call_frames import (
    HEADER_BYTES,
    CallFrame,
    CallFrameKind,
    CallFrames,
    pack,
)

FRAMES = [
    CallFrame(CallFrameKind.CALL, 1, "mkdirs", "0011223344556677", b"\x81\xa4path\xa2/a"),
    CallFrame(CallFrameKind.CALL, 2, "stat", "", b""),
    CallFrame(CallFrameKind.ANSWER, 1, "", "", bytes(range(256)) * 300),
    CallFrame(CallFrameKind.ERROR, (1 << 32) - 1, "", "", b"\x80"),
    CallFrame(CallFrameKind.GOODBYE, 0, "", "", b"\x80"),
]


def packed(frame: CallFrame) -> bytes:
    words = frame.method.encode(), frame.name.encode()
    return pack(frame.kind, frame.number, bytes(frame.payload), *words)


def taken(frames: CallFrames) -> list[CallFrame]:
    return list(iter(frames.next, None))


def test_the_worked_example() -> None:
    """The checksum is CRC32C as any other program computes it."""
    assert pack(CallFrameKind.CALL, 7, b"\x80", b"stat", b"n1") == bytes.fromhex(
        "0f000000 b3318a47 07000000 01 04 02 00 73746174 6e31 80"
    )


@pytest.mark.parametrize("seed", range(20))
def test_frames_are_read_from_pieces_of_any_length(seed: int) -> None:
    rng, stream = random.Random(seed), b"".join(map(packed, FRAMES))
    frames, found = CallFrames(), list[CallFrame]()
    while stream:
        size = rng.choice([1, 2, 5, 15, 16, 17, 1000, 100_000])
        frames.feed(stream[:size])
        stream = stream[size:]
        found += taken(frames)
        assert 0 <= frames.held_bytes < max(len(packed(frame)) for frame in FRAMES)
    assert found == FRAMES
    assert frames.held_bytes == 0


@pytest.mark.parametrize("frame", [FRAMES[0], FRAMES[1], FRAMES[3]])
def test_no_bit_can_change_unnoticed(frame: CallFrame) -> None:
    whole = packed(frame)
    for place in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[place // 8] ^= 1 << place % 8
        frames = CallFrames()
        frames.feed(bytes(damaged))
        try:
            assert frames.next() is None, "a frame that is longer now waits for its rest"
        except PaxosBlockError:
            continue
        assert place < 32, "only the length makes it wait"


def test_what_begins_like_no_frame_is_refused_before_its_rest_comes() -> None:
    for begin in (b"GET / HTTP/1.1\r\n", bytes(16), b"\xff" * 16, b"\x00\x00\x00\x05" + bytes(12)):
        frames = CallFrames()
        frames.feed(begin)
        with pytest.raises(ProtocolError, match="no frame of a call begins with"):
            frames.next()


def test_damage_is_told_apart_from_what_is_no_frame() -> None:
    frames = CallFrames()
    frames.feed(packed(FRAMES[0])[:-1] + b"?")
    with pytest.raises(CorruptionError, match="CALL frame 1 does not match its checksum"):
        frames.next()


def test_a_frame_that_nobody_would_take_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_frames, "MAX_BODY_BYTES", 100)
    longest = 100 - (HEADER_BYTES - 8)
    frames = CallFrames()
    frames.feed(pack(CallFrameKind.ANSWER, 1, bytes(longest)))
    assert frames.next() is not None
    with pytest.raises(ProtocolError, match="a message of 101 bytes: at most 100"):
        pack(CallFrameKind.ANSWER, 1, bytes(longest + 1))
