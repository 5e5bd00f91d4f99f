"""Equally long chunks are checked together with the result that each alone would have."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paxosblock.base.checksum import crc32c
from paxosblock.base.even_run import AT_LEAST, SHORT_BYTES, TOGETHER_BYTES, EvenRun
from paxosblock.base.units import KIB
from paxosblock.protocol.chunk_log import ENTRY_BYTES, ChunkLog

HEADER = b"\x00head\xff"
GROUPS = 7
"""A run has at most so many groups of chunks that are looked at together."""


def log_of(chunks: list[bytes]) -> ChunkLog:
    log = ChunkLog()
    for each in chunks:
        log = log.append(len(each), crc32c(each))
    return log


def even_run(chunks: list[bytes], skipped: int = 0) -> EvenRun:
    """The run that begins with chunk `skipped`."""
    log = log_of(chunks)
    return EvenRun.of(log.entries(skipped, len(log)), log.start_of(skipped))


def chunks_of(size: int, count: int, last: int) -> list[bytes]:
    random_bytes = random.Random(size * count + last).randbytes
    return [random_bytes(size) for _ in range(count)] + [random_bytes(last)]


SIZES = st.sampled_from([4, 5, 64, 1000, KIB, SHORT_BYTES])
COUNTS = st.sampled_from([AT_LEAST, AT_LEAST + 1, 2 * AT_LEAST, 3 * TOGETHER_BYTES // KIB])


@given(SIZES, COUNTS, st.integers(0, 9), st.integers(0, 2), st.data())
def test_a_run_is_good_until_a_bit_flips(
    size: int, count: int, last: int, skipped: int, data: st.DataObject
) -> None:
    chunks = chunks_of(size, min(count, GROUPS * TOGETHER_BYTES // size) + skipped, last)
    even = even_run(chunks, skipped)
    assert (even.chunks, even.size_bytes) == (len(chunks) - skipped - 1, size)
    whole = bytearray().join(chunks[skipped:])
    assert even.is_good(memoryview(whole))
    bit = data.draw(st.integers(0, even.chunks * size * 8 - 1))
    whole[bit // 8] ^= 1 << bit % 8
    assert not even.is_good(memoryview(whole))
    whole[bit // 8] ^= 1 << bit % 8
    at = data.draw(st.integers(0, even.chunks - 1)) * ENTRY_BYTES + ENTRY_BYTES - 4
    names = bytearray(even.names)
    names[at + bit % 4] ^= 1 << bit % 8
    assert not even._replace(names=bytes(names)).is_good(memoryview(whole))


@given(SIZES, st.integers(AT_LEAST, 80))
def test_headers_in_front_of_the_chunks_are_checked_as_well(size: int, count: int) -> None:
    chunks = chunks_of(size, count, 1)
    whole = bytearray().join(HEADER + each for each in chunks[:-1])
    mark = crc32c(HEADER + bytes(size)) ^ crc32c(bytes(size))
    even = even_run(chunks)
    assert even.is_good(memoryview(whole), len(HEADER), mark)
    whole[(count - 1) * (len(HEADER) + size) + 1] ^= 1
    assert not even.is_good(memoryview(whole), len(HEADER), mark)


def test_chunks_that_changed_places_are_not_good() -> None:
    chunks = chunks_of(100, AT_LEAST, 1)
    even = even_run(chunks)
    for one, other in itertools.combinations(range(AT_LEAST), 2):
        mixed = chunks.copy()
        mixed[one], mixed[other] = mixed[other], mixed[one]
        assert not even.is_good(memoryview(b"".join(mixed)))
    assert not even.is_good(memoryview(b"".join(chunks[1:])))
    assert not even.is_good(memoryview(b"".join(chunks[: AT_LEAST - 1])))


@pytest.mark.parametrize("odd", [0, 1, AT_LEAST // 2, AT_LEAST - 1])
@pytest.mark.parametrize("by", [-1, 1])
def test_a_run_with_a_chunk_of_another_length_is_not_even(odd: int, by: int) -> None:
    chunks = chunks_of(100, AT_LEAST, 100)
    chunks[odd] = bytes(100 + by)
    assert even_run(chunks).chunks == 0


@pytest.mark.parametrize(
    "chunks",
    [
        [],
        chunks_of(100, AT_LEAST - 1, 100),
        chunks_of(SHORT_BYTES + 1, AT_LEAST, 1),
        chunks_of(3, AT_LEAST, 3),
        chunks_of(0, AT_LEAST, 0),
    ],
    ids=["no chunk", "too few", "long", "shorter than a checksum", "empty"],
)
def test_what_is_not_worth_it_is_left_to_a_step_for_each(chunks: list[bytes]) -> None:
    assert even_run(chunks) == (0, 0, log_of(chunks).to_bytes())
