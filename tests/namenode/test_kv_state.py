"""The state machine of the key-value store: what each part of an edit does."""

from __future__ import annotations

from collections.abc import Generator
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sortedcontainers import SortedDict

from paxosblock.namenode.kv import state_machine
from paxosblock.namenode.kv.interface import (
    ABSENT,
    Committed,
    Conflict,
    Edit,
    Expect,
    ExpectEmpty,
    Versioned,
    prefix_range,
)
from paxosblock.namenode.kv.state_machine import StateMachine
from paxosblock.namenode.kv.table import SLICE_KEYS
from tests import memory_table
from tests.memory_table import MemoryTable, Snapshot

EVERYTHING = (b"", b"")
COUNT = 500
KEYS = st.integers(0, COUNT).map(lambda number: b"%03d" % number)


def machine_with(*keys: bytes) -> StateMachine:
    """A machine in memory whose i-th key, from 1, was put with value b"v" by entry i."""
    machine = StateMachine(MemoryTable())
    for index, key in enumerate(keys, 1):
        machine.apply(index, Edit(puts=((key, b"v"),)))
    return machine


def snapshot_of(machine: StateMachine) -> Snapshot:
    assert isinstance(machine._table, MemoryTable)
    return machine._table.snapshot()


def keys_of(machine: StateMachine, start: bytes, end: bytes) -> list[bytes]:
    return [key for key, _ in machine.scan(start, end)]


def test_a_put_key_carries_the_index_of_the_entry_that_wrote_it() -> None:
    machine = machine_with(b"a", b"b")
    assert machine.apply(7, Edit(puts=((b"a", b"new"),))) == Committed(7)
    assert machine.get(b"a") == Versioned(b"new", 7)
    assert machine.get(b"b") == Versioned(b"v", 2)
    assert machine.revision == 7


def test_an_absent_key_reads_as_revision_zero() -> None:
    assert machine_with(b"a").get(b"b") == ABSENT
    assert not ABSENT.exists


def test_a_compare_and_set_on_the_current_revision_is_committed() -> None:
    machine = machine_with(b"a")
    change = Edit((Expect(b"a", 1),), ((b"a", b"new"),))
    assert machine.apply(2, change) == Committed(2)


@pytest.mark.parametrize("expected", [0, 2, 99])
def test_a_compare_and_set_on_another_revision_is_a_conflict(expected: int) -> None:
    machine = machine_with(b"a")
    change = Edit((Expect(b"a", expected),), ((b"a", b"new"),))
    assert machine.apply(2, change) == Conflict(b"a", expected, 1)
    assert machine.get(b"a") == Versioned(b"v", 1)


def test_expecting_revision_zero_creates_a_key_once() -> None:
    machine = StateMachine(MemoryTable())
    create = Edit((Expect(b"a", 0),), ((b"a", b"v"),))
    assert machine.apply(1, create) == Committed(1)
    assert machine.apply(2, create) == Conflict(b"a", 0, 1)


def test_a_deleted_key_counts_as_absent_again() -> None:
    machine = machine_with(b"a")
    machine.apply(2, Edit(deletes=(b"a",)))
    assert machine.apply(3, Edit((Expect(b"a", 0),))) == Committed(3)


def test_an_empty_range_is_empty_up_to_its_exclusive_end() -> None:
    machine = machine_with(b"dir", b"dir0")
    delete_directory = Edit((ExpectEmpty(b"dir/", b"dir0"),), deletes=(b"dir",))
    assert machine.apply(3, delete_directory) == Committed(3)
    assert keys_of(machine, *EVERYTHING) == [b"dir0"]


def test_a_range_that_holds_a_key_is_a_conflict_that_names_the_first() -> None:
    machine = machine_with(b"dir", b"dir/y", b"dir/x")
    delete_directory = Edit((ExpectEmpty(b"dir/", b"dir0"),), deletes=(b"dir",))
    assert machine.apply(4, delete_directory) == Conflict(b"dir/x", 0, 3)
    assert machine.get(b"dir").exists


def test_an_unbounded_range_reaches_the_last_key() -> None:
    machine = machine_with(b"\xff\xff")
    assert machine.apply(2, Edit((ExpectEmpty(b"a", b""),))) == Conflict(b"\xff\xff", 0, 1)


def test_one_failing_precondition_of_several_keeps_everything_as_it_was() -> None:
    machine = machine_with(b"a", b"b")
    before = list(machine.scan(*EVERYTHING))
    change = Edit(
        expect=(Expect(b"a", 1), Expect(b"b", 9), Expect(b"c", 9)),
        puts=((b"a", b"x"), (b"d", b"x")),
        deletes=(b"b",),
    )
    assert machine.apply(3, change) == Conflict(b"b", 9, 2)
    assert list(machine.scan(*EVERYTHING)) == before
    assert machine.revision == 3


def test_preconditions_see_the_state_before_the_edit() -> None:
    machine = machine_with(b"a")
    move = Edit((Expect(b"a", 1), Expect(b"b", 0)), ((b"b", b"v"),), (b"a",))
    assert machine.apply(2, move) == Committed(2)
    assert keys_of(machine, *EVERYTHING) == [b"b"]


def test_a_put_survives_the_deletion_of_its_key_in_the_same_edit() -> None:
    machine = machine_with(b"d", b"e")
    machine.apply(3, Edit(puts=((b"d", b"kept"),), deletes=(b"d", b"e")))
    assert list(machine.scan(*EVERYTHING)) == [(b"d", Versioned(b"kept", 3))]


def test_of_two_puts_of_one_key_the_later_stays() -> None:
    machine = StateMachine(MemoryTable())
    machine.apply(1, Edit(puts=((b"a", b"1"), (b"a", b"2"))))
    assert machine.get(b"a").value == b"2"


def test_deleting_an_absent_key_is_no_error() -> None:
    assert StateMachine(MemoryTable()).apply(1, Edit(deletes=(b"a",))) == Committed(1)


def test_a_scan_is_ordered_limited_and_reversible() -> None:
    machine = machine_with(b"c", b"a", b"d", b"b")
    assert keys_of(machine, b"a", b"d") == [b"a", b"b", b"c"]
    assert [key for key, _ in machine.scan(b"a", b"d", limit=2)] == [b"a", b"b"]
    assert [key for key, _ in machine.scan(b"a", b"d", limit=2, reverse=True)] == [b"c", b"b"]
    assert keys_of(machine, b"d", b"a") == []


def test_an_entry_is_not_applied_twice() -> None:
    machine = machine_with(b"a")
    with pytest.raises(AssertionError):
        machine.apply(1, Edit())


def test_a_snapshot_does_not_see_what_is_applied_later() -> None:
    machine = machine_with(b"b", b"a")
    snapshot = snapshot_of(machine)
    machine.apply(3, Edit(puts=((b"b", b"new"),), deletes=(b"a",)))
    restored = StateMachine(MemoryTable(snapshot))
    assert restored.revision == 2
    assert list(restored.scan(*EVERYTHING)) == [
        (b"a", Versioned(b"v", 2)),
        (b"b", Versioned(b"v", 1)),
    ]


changes = st.builds(
    Edit,
    puts=st.lists(st.tuples(KEYS, st.binary(max_size=2)), max_size=4).map(tuple),
    deletes=st.lists(KEYS, max_size=4).map(tuple),
)


preconditions = st.lists(
    st.builds(Expect, KEYS, st.integers(0, COUNT))
    | st.builds(ExpectEmpty, KEYS, KEYS)
    | st.integers(1, COUNT).map(lambda number: Expect(b"%03d" % (number - 1), number)),
    max_size=6,
).map(tuple)


@given(
    before=changes,
    change=changes,
    expect=preconditions,
    following=changes,
    slice_keys=st.integers(1, 5),
    given_up_after=st.integers(0, 20),
)
def test_a_long_entry_applied_in_slices_is_seen_as_a_whole_or_not_at_all(
    *,
    before: Edit,
    change: Edit,
    expect: tuple[Expect | ExpectEmpty, ...],
    following: Edit,
    slice_keys: int,
    given_up_after: int,
) -> None:
    change = msgspec.structs.replace(change, expect=expect)
    at_once, sliced = (machine_with(*(b"%03d" % n for n in range(COUNT))) for _ in "ab")
    for machine in (at_once, sliced):
        machine.apply(machine.revision + 1, before)
    index, map_before = sliced.revision + 1, list(sliced.scan(*EVERYTHING))
    with pytest.MonkeyPatch.context() as patch:
        for module in (state_machine, memory_table):
            patch.setattr(module, "SLICE_KEYS", slice_keys)
        for _, _ in zip(range(given_up_after), sliced.apply_in_slices(index, change), strict=False):
            assert list(sliced.scan(*EVERYTHING)) == map_before
        if sliced.revision < index:
            steps = sliced.apply_in_slices(index, change)
            frozen = []
            while (result := next_or_result(steps)) is None:
                assert (sliced.revision, list(sliced.scan(*EVERYTHING))) == (index - 1, map_before)
                frozen.append(snapshot_of(sliced))
            assert result == at_once.apply(index, change)
        else:
            at_once.apply(index, change)
            frozen = []
    for machine in (at_once, sliced):
        machine.apply(index + 1, following)
    assert list(sliced.scan(*EVERYTHING)) == list(at_once.scan(*EVERYTHING))
    assert all(list(each.items) == map_before for each in frozen)


def next_or_result(
    steps: Generator[None, None, Committed | Conflict],
) -> Committed | Conflict | None:
    """One step: None, or what came out at the end."""
    try:
        next(steps)
    except StopIteration as end:
        result: Committed | Conflict = end.value
        return result
    return None


class CountedMap(SortedDict):  # type: ignore[misc]  # it has no types
    """Counts the keys that are looked at or changed, those of its copies among them."""

    work = 0

    def get(self, key: bytes, default: Versioned) -> Versioned:
        CountedMap.work += 1
        found: Versioned = super().get(key, default)
        return found

    def __setitem__(self, key: bytes, value: Versioned) -> None:
        CountedMap.work += 1
        super().__setitem__(key, value)

    def pop(self, key: bytes, default: None) -> object:
        CountedMap.work += 1
        return super().pop(key, default)


def test_no_slice_of_a_long_entry_is_longer_than_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_table, "SortedDict", CountedMap)
    count = 5000
    machine, keys = StateMachine(MemoryTable()), [b"%05d" % number for number in range(count)]
    machine.apply(1, Edit(puts=tuple((key, b"") for key in keys)))
    change = Edit(
        expect=(*(Expect(key, 1) for key in keys), *(ExpectEmpty(b"x", b"y") for _ in range(500))),
        deletes=tuple(keys[::2]),
        puts=tuple((b"new" + key, b"") for key in keys),
    )
    slices, CountedMap.work = [0], 0
    for _ in machine.apply_in_slices(2, change):
        slices.append(CountedMap.work)
    assert machine.revision == 2
    assert max(after - before for before, after in pairwise(slices)) <= SLICE_KEYS
    looking = count + 500 * state_machine.EMPTY_KEYS
    assert len(slices) > (looking + len(change.deletes) + len(change.puts)) / SLICE_KEYS - 2


@given(prefix=st.binary(max_size=3), key=st.binary(max_size=5))
def test_a_prefix_range_holds_exactly_the_keys_with_the_prefix(prefix: bytes, key: bytes) -> None:
    machine = machine_with(key)
    assert (keys_of(machine, *prefix_range(prefix)) == [key]) == key.startswith(prefix)
