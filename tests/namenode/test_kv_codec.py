"""Log entries as bytes: they come back as they were, and garbage is an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paxosblock.errors import (
    CorruptionError,
    InvalidRequestError,
    UnavailableError,
)
from paxosblock.namenode.kv.codec import LONG_BYTES, decode_edit, encode_edit, prepare
from paxosblock.namenode.kv.interface import EDIT_BYTES_MAX, Edit, Expect, ExpectEmpty
from paxosblock.namenode.raft.store import ReplicatedStore
from tests.loops import turns_beside
from tests.raft.rig import Wire

keys = st.binary(max_size=8)
pairs = st.tuples(keys, keys)
revisions = st.integers(0, 2**63)
edits = st.builds(
    Edit,
    expect=st.lists(
        st.builds(Expect, keys, revisions) | st.builds(ExpectEmpty, keys, keys), max_size=4
    ).map(tuple),
    puts=st.lists(pairs, max_size=4).map(tuple),
    deletes=st.lists(keys, max_size=4).map(tuple),
)
# Bytes that are msgpack, so that the types are tested and not only the framing.
plausible = st.recursive(
    st.integers(-(2**63), 2**64 - 1) | st.binary(max_size=4) | st.text(max_size=4) | st.none(),
    lambda inner: st.lists(inner, max_size=5),
).map(msgspec.msgpack.encode)
hostile = st.binary(max_size=64) | plausible


@given(edits)
def test_an_edit_comes_back_as_it_was(edit: Edit) -> None:
    assert decode_edit(encode_edit(edit)) == edit


@given(hostile)
def test_bytes_that_are_no_edit_are_a_corruption_error(data: bytes) -> None:
    try:
        decoded = decode_edit(data)
    except CorruptionError:
        return
    assert decode_edit(encode_edit(decoded)) == decoded


@given(edits, st.data())
def test_an_edit_cut_short_is_a_corruption_error(edit: Edit, data: st.DataObject) -> None:
    payload = encode_edit(edit)
    size = data.draw(st.integers(0, len(payload) - 1))
    with pytest.raises(CorruptionError):
        decode_edit(payload[:size])


@pytest.mark.parametrize(
    "wrong",
    [
        Edit(puts=(cast(Any, ("text", b"v")),)),
        Edit(deletes=(cast(Any, 3),)),
        Edit(expect=(Expect(b"a", cast(Any, b"b")),)),
        Edit(expect=(Expect(b"a", 1 << 70),)),
        Edit(puts=cast(Any, ((b"a",),))),
        Edit(deletes=(cast(Any, object()),)),
        Edit(deletes=(cast(Any, bytearray(b"k")),)),
        Edit(expect=(ExpectEmpty(b"a", cast(Any, "b")),)),
        Edit(expect=(cast(Any, (0, b"a", 1)),)),
        Edit(puts=cast(Any, (b"ab",))),
    ],
)
def test_an_edit_that_could_not_be_read_again_is_refused(wrong: Edit) -> None:
    with pytest.raises(InvalidRequestError, match="not an edit"):
        prepare(wrong)


anything = keys | st.text(max_size=3) | st.integers(-1, 2**70) | st.none() | st.booleans()
wrong_or_not = st.builds(
    Edit,
    expect=st.lists(
        st.builds(Expect, anything, anything) | st.builds(ExpectEmpty, anything, anything) | pairs,
        max_size=2,
    ).map(tuple),
    puts=st.lists(st.lists(anything, min_size=1, max_size=3).map(tuple), max_size=2).map(tuple),
    deletes=st.lists(anything, max_size=2).map(tuple),
)


@given(edits | wrong_or_not)
def test_what_is_not_refused_is_what_every_member_reads(edit: Edit) -> None:
    """The member that proposed it applies it as it is; the others decode it."""
    try:
        payload = prepare(edit)
    except InvalidRequestError:
        return
    assert decode_edit(payload) == edit


async def test_others_have_a_turn_once_a_long_edit_is_encoded(tmp_path: Path) -> None:
    store = ReplicatedStore(tmp_path, "a:1", ["a:1"], Wire())  # which is not open

    async def refused(size_bytes: int) -> None:
        with pytest.raises(UnavailableError, match="is not open"):
            await store.commit(Edit(puts=((b"a", bytes(size_bytes)),)))

    async def turns_of(size_bytes: int) -> int:
        return (await turns_beside(refused(size_bytes)))[1]

    assert await turns_of(LONG_BYTES) == 1
    assert await turns_of(100) == 0


def test_an_edit_that_is_too_long_is_refused() -> None:
    with pytest.raises(InvalidRequestError, match="longer than"):
        encode_edit(Edit(puts=((b"a", bytes(EDIT_BYTES_MAX)),)))
