"""A segment of a log as bytes: a torn tail is left out, damage to what was durable is told."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paxosblock.base.checksum import crc32c
from paxosblock.errors import ConfigError, CorruptionError
from paxosblock.journal.segment import (
    FIRST_OWN_KIND,
    HEADER_BYTES,
    MARK,
    PREVIOUS,
    RECORD_BYTES,
    LogRecord,
    SegmentBounds,
    SegmentHeader,
    decode_header,
    read_records,
)
from paxosblock.namenode.kv.journal import FORMAT
from tests.journal.records import begun_journal, encode_record, entries_in

SALT = b"saltsalt"
KIND = FIRST_OWN_KIND
PAYLOADS = [b"first", b"", b"third" * 9]
CRASHED = SegmentBounds(SALT, None, same_boot=False)


def segment_of(payloads: list[bytes], first: int = 11) -> tuple[bytes, list[int]]:
    """Return a segment's bytes and the offsets at which its records end."""
    data, ends = SegmentHeader(1, SALT, 0, "").encode(FORMAT.magic), list[int]()
    for key, payload in enumerate(payloads, first):
        data += encode_record(SALT, KIND, key, payload, len(data))
        ends.append(len(data))
    return data, ends


def read(data: bytes, bounds: SegmentBounds = CRASHED) -> list[LogRecord]:
    return list(read_records("f/log", data, bounds))


def flipped(data: bytes, *bits: int) -> bytes:
    broken = bytearray(data)
    for bit in bits:
        broken[bit // 8] ^= 1 << bit % 8
    return bytes(broken)


def test_the_worked_example_of_the_document_is_what_the_journal_reads_and_writes(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (repository / "paxosblock" / "namenode" / "KV.md").read_text()
    (dump,) = re.findall(r"payload `hi`.*?```text\n(.*?)```", text, re.DOTALL)
    monkeypatch.setattr("os.urandom", lambda size: SALT[:size])
    journal = begun_journal(tmp_path, 1 << 20)
    journal.append([b"hi"])
    (segment,) = tmp_path.glob("journal-*")
    assert segment.read_bytes() == bytes.fromhex(dump)
    assert entries_in(tmp_path) == [(1, b"hi")]
    journal.close()


def test_records_come_back_in_order() -> None:
    data, ends = segment_of(PAYLOADS)
    records = read(data)
    assert [bytes(each.payload or b"") for each in records] == PAYLOADS
    assert [each.key for each in records] == [11, 12, 13]
    assert [each.end for each in records] == ends


@pytest.mark.parametrize("tail", ["cut", "zeros", "garbage"])
def test_a_last_record_torn_at_any_byte_is_left_out(tail: str) -> None:
    data, ends = segment_of(PAYLOADS)
    for size in range(ends[1], ends[2]):
        rest = ends[2] - size
        filling = {"cut": b"", "zeros": bytes(rest), "garbage": b"\xa5" * rest}[tail]
        assert [each.key for each in read(data[:size] + filling)] == [11, 12]


def test_a_flipped_bit_in_the_last_record_leaves_it_out() -> None:
    data, ends = segment_of(PAYLOADS)
    for bit in range(ends[1] * 8, ends[2] * 8):
        assert [each.key for each in read(flipped(data, bit))] == [11, 12]


@pytest.mark.parametrize("told_by", ["a later record", "the mark", "the next segment", "the boot"])
def test_a_record_that_was_whole_once_is_damaged_and_never_torn(told_by: str) -> None:
    """Each of four things tells so; a payload is then None, a head is mended or its place told."""
    payloads = [b"one", b"two" * 9]
    data, ends = segment_of(payloads)
    bounds = {
        "a later record": CRASHED,
        "the mark": SegmentBounds(SALT, None, same_boot=False, durable=ends[1]),
        "the next segment": SegmentBounds(SALT, ends[1], same_boot=False),
        "the boot": SegmentBounds(SALT, None, same_boot=True),
    }[told_by]
    if told_by == "a later record":
        data += encode_record(SALT, MARK, 0, b"", ends[1])
    for at in range(HEADER_BYTES, ends[1]):
        start = HEADER_BYTES if at < ends[0] else ends[0]
        index = int(at >= ends[0])
        one, two = flipped(data, 8 * at + at % 8), flipped(data, 8 * at, 8 * at + 6)
        if at < start + RECORD_BYTES:
            whole = [bytes(each.payload or b"") for each in read(one, bounds)[:2]]
            assert whole == payloads, "one bit of a head is mended"
            with pytest.raises(CorruptionError, match=f"^f/log is damaged at offset {start}$"):
                read(two, bounds)
        else:
            assert read(one, bounds)[index].payload is read(two, bounds)[index].payload is None


def test_records_behind_those_that_are_lost_are_read() -> None:
    data, ends = segment_of(PAYLOADS)
    broken = flipped(data, 8 * ends[0], 8 * ends[0] + 6)
    bounds, lost = SegmentBounds(SALT, len(data)), list[int]()
    assert [each.key for each in read_records("it", broken, bounds, lost.append)] == [11, 13]
    assert lost == [ends[0]]


def test_one_bit_of_where_the_segment_before_ended_is_mended() -> None:
    data, _ = segment_of([])
    data += encode_record(SALT, PREVIOUS, 1, (300).to_bytes(8, "little"), len(data))
    data += encode_record(SALT, MARK, 0, b"", len(data))
    for bit in range(64):
        at = 8 * (HEADER_BYTES + RECORD_BYTES) + bit
        payload = read(flipped(data, at))[0].payload
        assert payload is not None
        assert int.from_bytes(payload, "little") == 300
        assert read(flipped(data, at, at ^ 1))[0].payload is None


def test_what_a_record_says_is_durable_counts_even_if_its_payload_is_torn() -> None:
    data, ends = segment_of([b"first", b"second"])
    torn = data[: ends[0] + RECORD_BYTES]
    assert [each.key for each in read(torn)] == [11]
    assert read(flipped(torn, ends[0] * 8 - 1))[0].payload is None


def test_a_record_inside_a_torn_payload_is_no_evidence_of_damage() -> None:
    foreign = encode_record(b"othersal", KIND, 5, b"x", 1 << 20)
    data, _ = segment_of([b"first", foreign + b"tail"])
    assert [each.key for each in read(data[:-1])] == [11]


def test_a_whole_record_of_another_segment_is_no_part_of_this_one() -> None:
    """A file system may give back blocks that belonged to an older segment."""
    data, _ = segment_of([b"first"])
    assert len(read(data + encode_record(b"othersal", KIND, 12, b"stale", len(data)))) == 1


# -- the header ------------------------------------------------------------------------------------


def test_a_header_comes_back() -> None:
    header = SegmentHeader(7, SALT, 3, "boot-1")
    assert decode_header("it", header.encode(FORMAT.magic), FORMAT) == header


@pytest.mark.parametrize("at", range(HEADER_BYTES))
def test_a_damaged_header_has_its_salt_from_the_first_record(at: int) -> None:
    data, _ = segment_of(PAYLOADS)
    header = decode_header("it", flipped(data, 8 * at, 8 * at + 6), FORMAT)
    assert (header.salt, header.previous, header.boot) == (SALT, None, None)


@pytest.mark.parametrize("size", range(28))
def test_a_segment_that_is_shorter_than_its_header_is_damaged(size: int) -> None:
    data, _ = segment_of([])
    with pytest.raises(CorruptionError, match="it is damaged at offset 0"):
        decode_header("it", data[:size], FORMAT)


@pytest.mark.parametrize("version", [b"1", b"2"])
def test_a_journal_of_an_earlier_version_is_refused_with_what_to_do(version: bytes) -> None:
    head = b"PBKJRNL" + version + (7).to_bytes(8, "big") + SALT
    data = head + crc32c(head).to_bytes(4, "big")
    with pytest.raises(ConfigError, match=r"^journal-7 was written by another version .* copy"):
        decode_header("journal-7", data, FORMAT)


# -- any bytes -------------------------------------------------------------------------------------


@given(st.binary(max_size=200))
def test_any_bytes_behind_the_records_are_a_torn_tail(tail: bytes) -> None:
    data, _ = segment_of([b"first"])
    assert [each.key for each in read(data + tail)] == [11]


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused_cleanly(data: bytes) -> None:
    with pytest.raises(CorruptionError):
        decode_header("it", data, FORMAT)


@given(st.lists(st.binary(max_size=20), max_size=5))
def test_whatever_was_written_is_read_back(payloads: list[bytes]) -> None:
    data, _ = segment_of(payloads)
    assert [bytes(each.payload or b"") for each in read(data)] == payloads
