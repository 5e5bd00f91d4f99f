"""A draft shows its own changes, and expects what it read of others to stay."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paxosblock.namenode.catalog import keys
from paxosblock.namenode.catalog.draft import Draft, inode_of
from paxosblock.namenode.catalog.namespace import root
from paxosblock.namenode.catalog.records import encode
from paxosblock.namenode.kv.interface import Committed, Conflict, Edit
from paxosblock.namenode.kv.state_machine import StateMachine
from tests.memory_table import MemoryTable

KEYS = st.sampled_from([bytes([letter]) for letter in b"abcdefgh"])
CHANGES = st.lists(st.tuples(KEYS, st.one_of(st.none(), st.binary(max_size=2))), max_size=8)
SPAN = (b"c", b"g")


def machine_with(*keys: bytes) -> StateMachine:
    machine = StateMachine(MemoryTable())
    machine.apply(1, Edit(puts=tuple((key, b"old") for key in keys)))
    return machine


def change(draft: Draft, changes: list[tuple[bytes, bytes | None]]) -> None:
    for key, value in changes:
        if value is None:
            draft.delete(key)
        else:
            draft.put(key, value)


@given(
    present=st.sets(KEYS),
    changes=CHANGES,
    bounds=st.tuples(KEYS, st.one_of(KEYS, st.just(b""))),
    limit=st.one_of(st.none(), st.integers(0, 5)),
    reverse=st.booleans(),
)
def test_a_draft_shows_what_will_be_there_when_it_is_applied(
    present: set[bytes],
    changes: list[tuple[bytes, bytes | None]],
    bounds: tuple[bytes, bytes],
    limit: int | None,
    reverse: bool,
) -> None:
    machine = machine_with(*present)
    draft = Draft(machine)
    change(draft, changes)
    shown = [(key, found.value) for key, found in draft.scan(*bounds, limit, reverse)]
    read = {key: (draft.peek(key).exists, draft.get(key).value) for key, _ in changes}
    assert machine.apply(2, draft.to_edit()) == Committed(2)
    there = [(key, found.value) for key, found in machine.scan(*bounds, limit, reverse)]
    assert shown == there
    assert read == {key: (machine.get(key).exists, machine.get(key).value) for key in read}


def test_a_record_is_not_decoded_in_the_change_that_put_it() -> None:
    draft = Draft(machine_with())
    first = root(1)
    draft.begin_part()
    draft.put_inode(first)
    assert inode_of(draft, first.number) is first
    draft.begin_part()
    draft.put_inode(root(2))
    draft.undo_part()
    assert inode_of(draft, first.number) == first
    draft.put_inode(first)
    draft.put(keys.inode(first.number), encode(root(3)))
    assert inode_of(draft, first.number) == root(3)
    draft.delete(keys.inode(first.number))
    assert inode_of(draft, first.number) is None


def test_what_a_draft_wrote_itself_is_no_precondition() -> None:
    machine = machine_with()
    draft = Draft(machine)
    draft.put(b"a", b"1")
    assert draft.get(b"a").value == b"1"
    machine.apply(2, Edit(puts=((b"a", b"other"),)))
    assert machine.apply(3, draft.to_edit()) == Committed(3)


def test_what_was_read_before_it_was_written_stays_a_precondition() -> None:
    machine = machine_with(b"a")
    draft = Draft(machine)
    draft.get(b"a")
    draft.put(b"a", b"1")
    draft.get(b"a")
    machine.apply(2, Edit(puts=((b"a", b"other"),)))
    assert isinstance(machine.apply(3, draft.to_edit()), Conflict)


@pytest.mark.parametrize("intruder", [b"c", b"d", b"ea", b"f"])
def test_a_range_is_empty_but_for_what_the_draft_removes(intruder: bytes) -> None:
    for intrudes in (False, True):
        machine = machine_with(b"b", b"e", b"g")
        draft = Draft(machine)
        draft.delete(b"e")
        draft.expect_empty(SPAN)
        if intrudes:
            machine.apply(2, Edit(puts=((intruder, b"new"),)))
        outcome = machine.apply(3, draft.to_edit())
        assert isinstance(outcome, Conflict) == intrudes


@given(present=st.sets(KEYS), before=CHANGES, undone=CHANGES, after=CHANGES, scanned=st.booleans())
def test_a_part_that_is_taken_back_leaves_nothing(
    present: set[bytes],
    before: list[tuple[bytes, bytes | None]],
    undone: list[tuple[bytes, bytes | None]],
    after: list[tuple[bytes, bytes | None]],
    scanned: bool,
) -> None:
    draft, other = Draft(machine_with(*present)), Draft(machine_with(*present))
    change(draft, before)
    draft.begin_part()
    assert draft.changes == 0
    if scanned:
        list(draft.scan(b"a", b""))
    change(draft, undone)
    draft.expect_empty((b"x", b"y"))
    assert draft.changes == len(dict(undone))
    draft.undo_part()
    assert draft.changes == 0
    for changes in (before, after):
        change(other, changes)
    change(draft, after)
    mine, theirs = draft.to_edit(), other.to_edit()
    assert mine.expect == theirs.expect
    assert dict(mine.puts) == dict(theirs.puts)
    assert set(mine.deletes) == set(theirs.deletes)
    assert list(draft.scan(b"a", b"")) == list(other.scan(b"a", b""))


class CountedKey(bytes):
    """A key that counts how often any of its kind is looked for."""

    sought = 0

    def __hash__(self) -> int:
        CountedKey.sought += 1
        return super().__hash__()


def test_a_part_looks_for_what_it_read_and_not_for_what_all_parts_before_it_have_changed() -> None:
    machine = machine_with(b"way")
    draft = Draft(machine)
    for number in range(100):
        draft.begin_part()
        draft.put(CountedKey(b"%d" % number), b"new")
    draft.begin_part()
    CountedKey.sought = 0
    assert draft.stands_on({b"way": machine.get(b"way")})
    assert CountedKey.sought == 0
    assert not draft.stands_on({b"7": machine.get(b"7")})
