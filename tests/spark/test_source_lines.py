"""The lines that a split takes, and how they become arrays. No Spark and no cluster."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paxosblock.base.units import KIB
from paxosblock.client.spark.lines import (
    first_byte,
    last_line_end,
    line_array,
    next_line_end,
    whole_lines,
)
from paxosblock.client.spark.splits import PACK_BYTES, Split, cut, pack

TEXTS = st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\n\n", b"\r\n", b"\xff"])).map(b"".join)


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


def read(data: bytes, split: Split, piece_size: int) -> list[bytes]:
    """Return what a task that reads the split makes of it."""
    found = whole_lines(split, pieces(data[first_byte(split) :], piece_size))
    return [line for lines in found for line in line_array(lines).cast(pa.binary()).to_pylist()]


def lines_of(data: bytes) -> list[bytes]:
    """The plain definition, without splits."""
    lines = data.split(b"\n")
    return [line.removesuffix(b"\r") for line in (lines if lines[-1] else lines[:-1])]


def splits_at(begin: int, end: int, marks: list[int]) -> list[Split]:
    edges = [begin, *sorted({mark for mark in marks if begin < mark < end}), end]
    return [
        Split("/f", 1, begin, start, stop, end)
        for start, stop in itertools.pairwise(edges)
        if start < stop
    ]


@given(TEXTS, st.lists(st.integers(0, 60)), st.integers(1, 8))
def test_every_line_belongs_to_exactly_one_split_wherever_they_are_cut(
    data: bytes, marks: list[int], piece_size: int
) -> None:
    splits = splits_at(0, len(data), marks)
    assert [line for split in splits for line in read(data, split, piece_size)] == lines_of(data)


@given(TEXTS, st.lists(st.integers(0, 60)), st.integers(1, 8))
def test_what_lies_around_the_bytes_that_are_read_now_is_as_good_as_not_there(
    data: bytes, marks: list[int], piece_size: int
) -> None:
    before, after = b"xy\nz", b"w\nv"
    begin, end = len(before), len(before) + len(data)
    found = [
        line
        for split in splits_at(begin, end, [begin + mark for mark in marks])
        for line in read(before + data + after, split, piece_size)
    ]
    assert found == lines_of(data)


def test_a_line_that_fills_several_splits_belongs_to_the_one_it_begins_in() -> None:
    data = b"a\n" + b"x" * 50 + b"\nb\n"
    found = [read(data, split, 7) for split in splits_at(0, len(data), [1, 10, 20, 53])]
    assert found == [[b"a"], [b"x" * 50], [], [], [b"b"]]


def test_a_split_reads_no_further_than_the_end_of_its_last_line() -> None:
    data = b"ab\ncd\nef\n" * 3
    asked: list[bytes] = []

    def counted() -> Iterator[bytes]:
        for piece in pieces(data, 2):
            asked.append(piece)
            yield piece

    assert list(whole_lines(Split("/f", 1, 0, 0, 4, len(data)), counted())) == [b"ab\n", b"cd\n"]
    assert b"".join(asked) == data[:6]


def test_text_that_is_no_utf_8_stays_what_it_is() -> None:
    assert line_array(b"\xff\xfe\n\n").cast(pa.binary()).to_pylist() == [b"\xff\xfe", b""]


@given(TEXTS, st.integers(0, 40))
def test_the_last_and_the_next_line_end_are_found_from_any_place(data: bytes, begin: int) -> None:
    begin = min(begin, len(data))

    def pread(offset: int, size: int) -> bytes:
        return data[offset : offset + size]

    last = data.rfind(b"\n", begin)
    assert last_line_end(pread, begin, len(data)) == (last + 1 if last >= 0 else begin)
    following = data.find(b"\n", begin)
    assert next_line_end(pread, begin, len(data)) == (following + 1 if following >= 0 else -1)


LOOK = 64 * KIB


@pytest.mark.parametrize("place", [0, 1, LOOK - 1, LOOK, LOOK + 1, 3 * LOOK - 1, 3 * LOOK, 300_000])
def test_a_single_line_end_is_found_however_far_away_it_is(place: int) -> None:
    """Also where one look ends and the next begins, which reads twice as much."""

    def pread(offset: int, size: int) -> bytes:
        return data[offset : offset + size]

    data = b"x" * place + b"\n" + b"x" * (400_000 - place)
    assert next_line_end(pread, 0, len(data)) == place + 1
    assert next_line_end(pread, place + 1, len(data)) == -1
    data = data[::-1]
    assert last_line_end(pread, 0, len(data)) == len(data) - place
    assert last_line_end(pread, len(data) - place, len(data)) == len(data) - place


# -- splits ---------------------------------------------------------------------------------------


@given(
    st.integers(0, 500),
    st.integers(1, 500),
    st.lists(st.integers(0, 1000), unique=True),
    st.integers(1, 300),
)
def test_ranges_cover_a_file_once_and_end_with_blocks_where_these_fit(
    begin: int, length: int, edges: list[int], split_bytes: int
) -> None:
    end = begin + length
    ranges = list(cut(begin, end, edges, split_bytes))
    assert [start for start, _ in ranges] == [begin, *(stop for _, stop in ranges[:-1])]
    assert ranges[-1][1] == end
    assert all(0 < stop - start <= split_bytes for start, stop in ranges)
    inside = sorted({edge for edge in edges if begin < edge < end})
    blocks = zip([begin, *inside], [*inside, end], strict=True)
    stops = {stop for _, stop in ranges}
    for start, stop in blocks:
        # A block is cut only when it is longer than a split.
        assert stop - start > split_bytes or not any(start < each < stop for each in stops)


def test_short_blocks_are_read_together() -> None:
    assert list(cut(0, 100, range(10, 100, 10), 35)) == [(0, 30), (30, 60), (60, 90), (90, 100)]


@pytest.mark.parametrize(("size", "tasks"), [(1000, 7), (PACK_BYTES, 100)])
def test_small_files_share_a_task_and_large_ones_do_not(size: int, tasks: int) -> None:
    splits = [Split(f"/{number}", number, 0, 0, size, size) for number in range(100)]
    packed = pack(splits, 1 << 30)
    assert [split for task in packed for split in task] == splits
    assert len(packed) == tasks


def test_parts_of_a_file_are_never_read_by_one_task() -> None:
    splits = splits_at(0, 100, [10, 20])
    assert pack(splits, 10) == [(split,) for split in splits]
