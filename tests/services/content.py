"""Bytes that can be checked anywhere: what stands at an offset follows from the seed alone."""

from __future__ import annotations

import hashlib

PIECE_BYTES = 4096


def content(seed: str, start: int, stop: int) -> bytes:
    """Bytes [start, stop) of the endless content of `seed`."""
    first, last = start // PIECE_BYTES, -(-stop // PIECE_BYTES)
    pieces = b"".join(_piece(seed, index) for index in range(first, last))
    return pieces[start - first * PIECE_BYTES : stop - first * PIECE_BYTES]


def _piece(seed: str, index: int) -> bytes:
    return hashlib.shake_128(f"{seed}:{index}".encode()).digest(PIECE_BYTES)


def first_difference(seed: str, start: int, data: bytes) -> int | None:
    """Offset of the first byte of `data` (which starts at `start`) that is not of `seed`."""
    expected = content(seed, start, start + len(data))
    if expected == data:
        return None
    return next(start + i for i, (a, b) in enumerate(zip(expected, data, strict=True)) if a != b)
