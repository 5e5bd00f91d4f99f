"""Buffers that are lent and come back."""

from __future__ import annotations

from paxosblock.net.streams.buffers import BufferPool


def test_a_buffer_is_lent_again_once_nobody_has_a_view_of_it() -> None:
    pool = BufferPool(most=2)
    first = pool.take(100)
    memory = first.obj
    del first
    assert pool.take(60).obj is memory


def test_a_part_of_a_buffer_keeps_all_of_it() -> None:
    pool = BufferPool(most=2)
    whole = pool.take(100)
    part = whole[10:20]
    part[:] = b"x" * 10
    memory = whole.obj
    del whole
    other = pool.take(100)
    assert other.obj is not memory
    other[:] = b"y" * 100
    assert bytes(part) == b"x" * 10


def test_a_buffer_that_was_lent_keeps_its_size_and_what_is_in_it() -> None:
    pool = BufferPool(most=1)
    pool.take(3)[:] = b"abc"
    assert bytes(pool.take(3)) == b"abc"


def test_a_longer_buffer_is_made_anew() -> None:
    pool = BufferPool(most=2)
    assert len(pool.take(10)) == 10
    assert len(pool.take(20)) == 20


def test_no_more_are_remembered_than_was_said() -> None:
    pool = BufferPool(most=2)
    lent = [pool.take(10) for _ in range(5)]
    memories = {id(view.obj) for view in lent}
    assert len(memories) == 5
    remembered = [lent[3].obj, lent[4].obj]
    lent.clear()
    assert [pool.take(10).obj is remembered[0], pool.take(10).obj is remembered[0]] == [True, True]


def test_buffers_that_became_too_short_are_forgotten() -> None:
    """A reader that looks further and further ahead kept three MiB of shorter ones."""
    pool = BufferPool(most=6)
    for size in (10, 20, 40):
        pool.take(size)
    lent = pool.take(40)
    assert [len(buffer) for buffer in pool._buffers] == [40]
    pool.take(80)
    assert [len(buffer) for buffer in pool._buffers] == [40, 80]
    del lent
