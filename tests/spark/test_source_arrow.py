"""Arrow streams: their messages are found by headers alone, and parts of them are read alone."""

from __future__ import annotations

import io
import itertools

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paxosblock.client.spark.arrow_frames import (
    ArrowOffset,
    MessageKind,
    last_place,
    messages,
    opening,
)
from paxosblock.errors import InvalidRequestError

STREAMS = st.lists(st.lists(st.integers(0, 9), max_size=4), min_size=1, max_size=3)
"""Rows of each batch of each stream."""


def encoded(streams: list[list[int]]) -> bytes:
    """Streams of numbers that count on, one behind the other."""
    out, numbers = io.BytesIO(), itertools.count()
    schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
    for batches in streams:
        with pa.ipc.new_stream(out, schema) as writer:
            for rows in batches:
                ids = [next(numbers) for _ in range(rows)]
                writer.write_batch(pa.record_batch([ids, list(map(str, ids))], schema))
    return out.getvalue()


class Bytes:
    """A file in memory, and how often it was asked."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.reads = 0

    def pread(self, offset: int, size: int) -> bytes:
        self.reads += 1
        return self.data[offset : offset + size]


def rows(data: bytes) -> list[int]:
    source, found = pa.BufferReader(data), []
    while source.tell() < len(data):
        found += pa.ipc.open_stream(source).read_all()["id"].to_pylist()
    return found


@given(STREAMS)
def test_messages_follow_each_other_from_the_first_byte_to_the_last(
    streams: list[list[int]],
) -> None:
    data = encoded(streams)
    found = list(messages(Bytes(data).pread, 0, len(data)))
    assert [each.start for each in found] == [0, *(each.stop for each in found[:-1])]
    assert found[-1].stop == len(data)
    kinds = [kind for batches in streams for kind in ("S" + "B" * len(batches) + "E")]
    assert [each.kind.name[0] for each in found] == kinds


@given(STREAMS, st.integers(0, 3000), st.integers(0, 5000))
def test_every_part_between_two_places_is_read_alone(
    streams: list[list[int]], most: int, visible: int
) -> None:
    """Whatever the limit, and however many bytes of the file are there."""
    file = Bytes(encoded(streams))
    visible = min(visible, len(file.data))
    at, found = ArrowOffset(0, 0), []
    while (end := last_place(file.pread, at, most, visible)) != at:
        head = b"" if at.offset == at.stream else opening(file.pread, at.stream, at.offset)
        found += rows(head + file.data[at.offset : end.offset])
        at = end
    whole = [each for each in messages(file.pread, 0, len(file.data)) if each.stop <= visible]
    assert at.offset == (whole[-1].stop if whole else 0)
    batches = sum(each.kind is MessageKind.BATCH for each in whole)
    expected = sum([count for batch in streams for count in batch][:batches])
    assert found == list(range(expected))


@pytest.mark.parametrize("deltas", [False, True])
@pytest.mark.parametrize("nested", [False, True])
def test_a_part_has_the_dictionaries_that_its_batches_need(*, nested: bool, deltas: bool) -> None:
    """Each batch has words of its own: they replace the dictionary, or are added to it."""
    words = [f"word {number}" for number in range(12)]
    out, options = io.BytesIO(), pa.ipc.IpcWriteOptions(emit_dictionary_deltas=deltas)
    kind = pa.dictionary(pa.int32(), pa.string())
    schema = pa.schema([("text", pa.list_(kind) if nested else kind)])
    with pa.ipc.new_stream(out, schema, options=options) as writer:
        for count in range(3, len(words) + 1, 3):
            known = words[:count] if deltas else words[count - 3 : count]
            last = pa.array(range(len(known) - 3, len(known)), pa.int32())
            column = pa.DictionaryArray.from_arrays(last, pa.array(known))
            if nested:
                column = pa.ListArray.from_arrays([0, 1, 2, 3], column)
            writer.write_batch(pa.record_batch([column], schema))
    file, at = Bytes(out.getvalue()), ArrowOffset(0, 0)
    found: list[object] = []
    while (end := last_place(file.pread, at, 1, len(file.data))) != at:
        head = b"" if at.offset == at.stream else opening(file.pread, at.stream, at.offset)
        part = pa.ipc.open_stream(head + file.data[at.offset : end.offset]).read_all()
        found += part["text"].to_pylist()
        at = end
    assert found == ([[word] for word in words] if nested else words)


def test_headers_near_each_other_are_fetched_together() -> None:
    file = Bytes(encoded([[1] * 100]))
    assert len(list(messages(file.pread, 0, len(file.data)))) == 102
    assert file.reads == 1


@pytest.mark.parametrize(
    "data", [b"ARROW1\x00\x00 and so on", b"\xff\xff\xff\xff\x08\x00\x00\x00" + b"\xee" * 8]
)
def test_bytes_that_are_no_stream_are_an_error(data: bytes) -> None:
    with pytest.raises(InvalidRequestError, match="Arrow message"):
        list(messages(Bytes(data).pread, 0, len(data)))


def test_a_stream_begins_with_its_schema() -> None:
    data = encoded([[1]])
    first = next(messages(Bytes(data).pread, 0, len(data)))
    with pytest.raises(InvalidRequestError, match="begins no Arrow stream"):
        opening(Bytes(data).pread, first.stop, len(data))
