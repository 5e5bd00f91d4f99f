"""Cutting writes into chunks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from paxosblock.base.checksum import crc32c
from paxosblock.client.writing.chunks import ChunkBuffer, chunk_of


@given(
    size=st.integers(1, 20),
    writes=st.lists(st.tuples(st.binary(max_size=50), st.sampled_from([bytes, bytearray]))),
)
def test_chunks_are_full_and_lose_nothing(size: int, writes: list[tuple[bytes, type]]) -> None:
    buffer = ChunkBuffer(size)
    chunks = [bytes(piece) for data, kind in writes for piece in buffer.cut(kind(data))]
    assert all(len(chunk) == size for chunk in chunks)
    assert len(buffer) < size
    assert b"".join([*chunks, buffer.take()]) == b"".join(data for data, _ in writes)
    assert len(buffer) == 0


def test_whole_chunks_of_immutable_bytes_are_not_copied() -> None:
    data = b"0123456789"
    buffer = ChunkBuffer(4)
    first, second = buffer.cut(data)
    assert isinstance(first, memoryview)
    assert isinstance(second, memoryview)
    assert first.obj is data
    assert second.obj is data
    assert buffer.take() == b"89"


def test_what_may_change_later_is_copied() -> None:
    data = bytearray(b"01234567")
    chunks = list(ChunkBuffer(4).cut(memoryview(data)))
    data[:] = b"xxxxxxxx"
    assert chunks == [b"0123", b"4567"]


def test_a_chunk_carries_the_checksum_of_its_bytes() -> None:
    chunk = chunk_of(b"hello", sync=True)
    assert (chunk.crc, chunk.size_bytes, chunk.sync) == (crc32c(b"hello"), 5, True)
    assert chunk_of(b"").crc == 0
