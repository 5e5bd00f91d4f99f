"""A ChunkLog behaves as a plain list of chunk names, however its buffers are shared."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paxosblock.protocol.chunk_log import ChunkLog, acknowledged_before
from paxosblock.protocol.types import ChunkIndex, ChunkName

Entry = tuple[int, int]
ENTRIES = st.tuples(st.integers(1, 1 << 20), st.integers(0, (1 << 32) - 1))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 9), ENTRIES),
        st.tuples(st.just("truncate"), st.integers(0, 9), st.integers(0, 9)),
    ),
    max_size=30,
)


def names(entries: list[Entry]) -> list[ChunkName]:
    return [ChunkName(ChunkIndex(i), size, crc) for i, (size, crc) in enumerate(entries)]


@given(STEPS)
def test_every_log_ever_made_keeps_its_content(steps: list[tuple[str, int, object]]) -> None:
    """Appending to any earlier log must not show in the others that share its buffer."""
    logs: list[tuple[ChunkLog, list[Entry]]] = [(ChunkLog(), [])]
    for verb, pick, value in steps:
        log, model = logs[pick % len(logs)]
        if verb == "append":
            assert isinstance(value, tuple)
            logs.append((log.append(*value), [*model, value]))
        else:
            assert isinstance(value, int)
            count = value % (len(model) + 1)
            logs.append((log.truncate(count), model[:count]))
    for log, model in logs:
        assert list(log) == names(model)
        assert log.size_bytes == sum(size for size, _ in model)
        for other, other_model in logs:
            assert log.starts_with(other) == (model[: len(other_model)] == other_model)
            assert (log == other) == (model == other_model)
            assert log != other or hash(log) == hash(other)


@given(st.lists(ENTRIES, min_size=1, max_size=12), st.data())
def test_offsets_and_indexes_agree_with_sums(entries: list[Entry], data: st.DataObject) -> None:
    log = ChunkLog(names(entries))
    starts = [sum(size for size, _ in entries[:index]) for index in range(len(entries) + 1)]
    assert [log.start_of(index) for index in range(len(entries) + 1)] == starts
    offset = data.draw(st.integers(0, log.size_bytes - 1))
    at = log.index_at(offset)
    assert starts[at] <= offset < starts[at + 1]
    assert log.index_at(log.size_bytes) == len(entries)


@given(st.integers(1, 5), st.lists(st.integers(0, 5), max_size=5), st.integers(1, 9))
def test_each_byte_is_in_the_chunk_that_begins_before_it_and_ends_behind_it(
    first: int, others: list[int], equal: int
) -> None:
    sizes = [first] * equal + others
    log = ChunkLog(names([(size, 0) for size in sizes]))
    found = [log.index_at(offset) for offset in range(log.size_bytes + 2)]
    assert found == [i for i, size in enumerate(sizes) for _ in range(size)] + [len(sizes)] * 2


@given(st.lists(ENTRIES, max_size=8), st.integers(0, 10))
def test_a_tail_is_the_end_of_the_list(entries: list[Entry], window: int) -> None:
    log = ChunkLog(names(entries))
    assert list(log.tail(window)) == names(entries)[max(0, len(entries) - window) :]


def test_chunks_that_do_not_follow_are_refused() -> None:
    second = ChunkName(ChunkIndex(1), 1, 1)
    with pytest.raises(ValueError, match="does not follow"):
        ChunkLog([second])
    with pytest.raises(ValueError, match="does not follow"):
        ChunkLog().extend([second])
    with pytest.raises(ValueError, match="cannot truncate"):
        ChunkLog().truncate(1)
    with pytest.raises(IndexError):
        ChunkLog()[0]


@pytest.mark.parametrize("window", range(1, 6))
def test_a_writer_sends_a_chunk_exactly_when_so_many_are_acknowledged_as_the_window_asks(
    window: int,
) -> None:
    """A writer that acknowledges as late as possible sees the least that is ever known."""
    unacknowledged: list[int] = []
    for index in range(20):
        if len(unacknowledged) == window:
            unacknowledged.pop(0)
        assert acknowledged_before(index, window) == index - len(unacknowledged)
        unacknowledged.append(index)
