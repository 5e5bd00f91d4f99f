"""A segment of the journal as bytes: a torn tail is cut, damage to what was durable is refused."""

from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paxosblock.base.checksum import crc32c
from paxosblock.errors import ConfigError, CorruptionError
from paxosblock.namenode.kv.segment import (
    BATCH_HEADER_BYTES,
    HEADER_BYTES,
    encode_batch,
    encode_header,
    read_segment,
)

SALT = b"saltsalt"
BATCHES = [[b"first"], [b"second", b""], [b"third" * 9, b"fourth"]]


def segment_of(batches: list[list[bytes]], first_index: int = 11) -> tuple[bytes, list[int]]:
    """Return a segment's bytes and the offsets at which its batches end."""
    data, ends, index = encode_header(first_index, SALT), [], first_index
    for entries in batches:
        data += encode_batch(SALT, len(data), index, entries)
        ends.append(len(data))
        index += len(entries)
    return data, ends


def flipped(data: bytes, bit: int) -> bytes:
    broken = bytearray(data)
    broken[bit // 8] ^= 1 << bit % 8
    return bytes(broken)


def test_the_worked_example_of_the_format_document_is_these_bytes() -> None:
    data, _ = segment_of([[b"hi"]], first_index=1)
    assert data.hex(" ", -4) == (
        "50424b4a 524e4c32 00000000 00000001 73616c74 73616c74 ed7ca891 "
        "73616c74 73616c74 00000000 0000001c 00000000 00000001 00000006 1cb98097 "
        "228d0a7d 00000002 6869"
    )


def test_a_journal_of_an_earlier_version_is_refused_with_what_to_do() -> None:
    """Its edits had one more field, which would be found when an entry is applied."""
    header = b"PBKJRNL1" + (7).to_bytes(8, "big") + b"saltsalt"
    data = header + crc32c(header).to_bytes(4, "big")
    with pytest.raises(ConfigError, match=r"^journal-7 was written by another version .* copy"):
        read_segment("journal-7", data)


def test_entries_come_back_in_order_across_batches() -> None:
    data, ends = segment_of(BATCHES)
    segment = read_segment("journal", data)
    assert [bytes(entry) for entry in segment.entries] == list(chain(*BATCHES))
    assert (segment.first_index, segment.next_index, segment.size_bytes) == (11, 16, ends[-1])


@pytest.mark.parametrize("tail", ["cut", "zeros", "garbage"])
def test_a_last_batch_torn_at_any_byte_is_left_out(tail: str) -> None:
    data, ends = segment_of(BATCHES)
    for size in range(ends[1], ends[2]):
        rest = ends[2] - size
        filling = {"cut": b"", "zeros": bytes(rest), "garbage": b"\xa5" * rest}[tail]
        segment = read_segment("journal", data[:size] + filling)
        assert segment.size_bytes == ends[1]
        assert len(segment.entries) == 3


def test_a_flipped_bit_in_the_last_batch_leaves_it_out() -> None:
    data, ends = segment_of(BATCHES)
    for bit in range(ends[1] * 8, ends[2] * 8):
        assert read_segment("journal", flipped(data, bit)).size_bytes == ends[1]


def test_a_flipped_bit_before_a_later_durable_mark_is_refused_with_file_and_offset() -> None:
    data, ends = segment_of(BATCHES)
    starts = [0, HEADER_BYTES, ends[0]]
    for bit in range(ends[1] * 8):
        bad = max(start for start in starts if start <= bit // 8)
        with pytest.raises(CorruptionError, match=rf"^f/journal: damaged at offset {bad}: .*"):
            read_segment("f/journal", flipped(data, bit))


def test_a_mark_without_entries_protects_the_batch_before_it() -> None:
    data, ends = segment_of([[b"only"], []])
    assert len(read_segment("journal", data).entries) == 1
    with pytest.raises(CorruptionError, match=f"offset {HEADER_BYTES}"):
        read_segment("journal", flipped(data, ends[0] * 8 - 1))


def test_a_mark_counts_even_if_the_batch_that_carries_it_is_torn() -> None:
    data, ends = segment_of([[b"first"], [b"second"]])
    torn = data[: ends[0] + BATCH_HEADER_BYTES]
    assert read_segment("journal", torn).size_bytes == ends[0]
    with pytest.raises(CorruptionError, match=f"offset {HEADER_BYTES}"):
        read_segment("journal", flipped(torn, ends[0] * 8 - 1))


def test_a_batch_inside_a_torn_payload_is_no_evidence_of_damage() -> None:
    foreign = encode_batch(b"othersal", 1 << 20, 5, [b"x"])
    data, ends = segment_of([[b"first"], [foreign + b"tail"]])
    assert read_segment("journal", data[: ends[1] - 1]).size_bytes == ends[0]


def test_a_whole_batch_of_another_segment_is_no_part_of_this_one() -> None:
    """A file system may give back blocks that belonged to an older segment."""
    data, ends = segment_of([[b"first"]])
    stale = encode_batch(b"othersal", len(data), 12, [b"stale"])
    assert read_segment("journal", data + stale).size_bytes == ends[0]


def test_a_batch_whose_index_leaves_a_gap_is_refused() -> None:
    data = encode_header(1, SALT)
    data += encode_batch(SALT, len(data), 2, [b"x"])
    with pytest.raises(CorruptionError, match="entry 2 follows 0"):
        read_segment("journal", data)


@pytest.mark.parametrize("size", range(HEADER_BYTES))
def test_a_segment_shorter_than_its_header_is_refused(size: int) -> None:
    with pytest.raises(CorruptionError, match="offset 0"):
        read_segment("journal", encode_header(1, SALT)[:size])


@given(st.binary(max_size=200))
def test_any_bytes_after_the_header_are_a_torn_tail(tail: bytes) -> None:
    data, ends = segment_of([[b"first"]])
    assert read_segment("journal", data + tail).size_bytes == ends[0]


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused_cleanly(data: bytes) -> None:
    with pytest.raises(CorruptionError):
        read_segment("journal", data)


@given(st.lists(st.lists(st.binary(max_size=20), max_size=3), max_size=5))
def test_whatever_was_written_is_read_back(batches: list[list[bytes]]) -> None:
    data, _ = segment_of(batches)
    segment = read_segment("journal", data)
    assert [bytes(entry) for entry in segment.entries] == list(chain(*batches))
    assert segment.size_bytes == len(data)
