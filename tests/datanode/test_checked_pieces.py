"""Pieces of chunks are known by the chunk's name, and not for ever."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from paxosblock.datanode import replica_reads
from paxosblock.datanode.replica_reads import PIECE_BYTES, WORTH_BYTES, CheckedPieces
from paxosblock.protocol.types import BlockId
from tests.datanode.node import BLOCK, chunk, name

SIZE = WORTH_BYTES + 7
NAME, DATA = name(3, SIZE), chunk(3, SIZE)
WANTED = range(PIECE_BYTES + 1, PIECE_BYTES + 2)


def test_a_chunk_of_another_name_has_other_pieces() -> None:
    pieces = CheckedPieces()
    pieces.remember(BLOCK, NAME, DATA)
    for other in (replace(NAME, crc=NAME.crc ^ 1), replace(NAME, size_bytes=SIZE + 1)):
        assert pieces.around(BLOCK, other, WANTED) is None
    assert pieces.around(BlockId(BLOCK + 1), NAME, WANTED) is None
    assert pieces.around(BLOCK, NAME, WANTED) is not None


def test_each_byte_of_the_pieces_around_is_checked() -> None:
    pieces = CheckedPieces()
    pieces.remember(BLOCK, NAME, DATA)
    around = pieces.around(BLOCK, NAME, range(PIECE_BYTES - 1, PIECE_BYTES + 1))
    assert around is not None
    assert around.span == range(2 * PIECE_BYTES)
    assert around.are_good(memoryview(DATA[: 2 * PIECE_BYTES]))
    for at in (0, PIECE_BYTES - 1, PIECE_BYTES, 2 * PIECE_BYTES - 1):
        damaged = bytearray(DATA[: 2 * PIECE_BYTES])
        damaged[at] ^= 1
        assert not around.are_good(memoryview(damaged))


def test_the_last_piece_ends_with_the_chunk() -> None:
    pieces = CheckedPieces()
    pieces.remember(BLOCK, NAME, DATA)
    around = pieces.around(BLOCK, NAME, range(SIZE - 1, SIZE))
    assert around is not None
    assert around.span == range(SIZE - 7, SIZE)
    assert around.are_good(memoryview(DATA[-7:]))


def test_short_chunks_and_large_parts_are_read_whole() -> None:
    pieces = CheckedPieces()
    pieces.remember(BLOCK, name(0, WORTH_BYTES - 1), chunk(0, WORTH_BYTES - 1))
    assert pieces.around(BLOCK, name(0, WORTH_BYTES - 1), range(1)) is None
    pieces.remember(BLOCK, NAME, DATA)
    assert pieces.around(BLOCK, NAME, range(SIZE // 2)) is not None
    assert pieces.around(BLOCK, NAME, range(SIZE // 2 + 1)) is None


def test_the_chunks_that_were_read_last_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_reads, "MOST_PIECES", 3 * 5)
    pieces = CheckedPieces()
    for index in range(3):
        pieces.remember(BLOCK, name(index, SIZE), chunk(index, SIZE))
    assert pieces.around(BLOCK, name(0, SIZE), WANTED) is not None
    pieces.remember(BLOCK, NAME, DATA)
    known = [pieces.around(BLOCK, name(index, SIZE), WANTED) for index in range(4)]
    assert [each is not None for each in known] == [True, False, True, True]
