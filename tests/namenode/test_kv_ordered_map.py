"""The map in small pieces: a dict and a sorted list are its model."""

from __future__ import annotations

import gc
import sys
import threading
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paxosblock.namenode.kv.interface import ABSENT, Item, Versioned
from paxosblock.namenode.kv.ordered_map import LEAF_MAX, FrozenMap, Leaf, OrderedMap

MANY = 20 * LEAF_MAX
numbers = st.integers(0, 4 * LEAF_MAX)
spans = st.tuples(numbers, st.integers(0, 2 * LEAF_MAX), st.sampled_from((1, 3, -1)))


def key_of(number: int) -> bytes:
    return b"%06d" % number


def items_of(count: int) -> list[Item]:
    return [(key_of(number), Versioned(b"v", number)) for number in range(count)]


def leaves_of(real: OrderedMap) -> list[Leaf]:
    """The pieces as they are now; how they are cut is the subject of some tests."""
    return list(real._leaves)


@dataclass(slots=True)
class Twins:
    """A map, and a dict to which the same was done; frozen copies, and copies of the dict."""

    real: OrderedMap = field(default_factory=OrderedMap)
    model: dict[bytes, Versioned] = field(default_factory=dict)
    frozen: list[tuple[FrozenMap, list[Item]]] = field(default_factory=list)
    version: int = 0

    def put(self, first: int, count: int, step: int) -> None:
        """Put keys upward or downward, next to each other or with gaps."""
        self.version += 1
        for number in range(first, first + count)[::step]:
            value = Versioned(b"value", self.version)
            self.real.put(key_of(number), value)
            self.model[key_of(number)] = value

    def remove(self, first: int, count: int, step: int) -> None:
        for number in range(first, first + count)[::step]:
            self.real.remove(key_of(number))
            self.model.pop(key_of(number), None)

    def freeze(self) -> None:
        self.frozen.append((self.real.freeze(), sorted(self.model.items())))


changes = st.lists(
    st.tuples(st.just(Twins.put), spans)
    | st.tuples(st.just(Twins.remove), spans)
    | st.tuples(st.just(Twins.freeze), st.just(())),
    max_size=12,
)


def changed(done: list[tuple[object, tuple[int, ...]]]) -> Twins:
    twins = Twins()
    twins.put(0, 2 * LEAF_MAX, 1)
    for change, arguments in done:
        assert callable(change)
        change(twins, *arguments)
    return twins


@settings(deadline=None)
@given(changes)
def test_whatever_is_put_and_removed_it_has_what_a_dict_has_in_order(
    done: list[tuple[object, tuple[int, ...]]],
) -> None:
    twins = changed(done)
    assert list(twins.real.keys(b"", b"")) == sorted(twins.model)
    assert len(twins.real) == len(twins.model)
    for number in range(6 * LEAF_MAX):
        key = key_of(number)
        assert twins.real.get(key) == twins.model.get(key, ABSENT)


@settings(deadline=None)
@given(changes, numbers, numbers, st.booleans())
def test_a_range_holds_the_keys_from_its_start_to_before_its_end(
    done: list[tuple[object, tuple[int, ...]]], first: int, last: int, reverse: bool
) -> None:
    twins = changed(done)
    start, end = key_of(first), key_of(last)
    expected = sorted((key for key in twins.model if start <= key < end), reverse=reverse)
    assert list(twins.real.keys(start, end, reverse)) == expected
    unbounded = sorted((key for key in twins.model if start <= key), reverse=reverse)
    assert list(twins.real.keys(start, b"", reverse)) == unbounded
    assert twins.real.count(start, end) == len(expected)
    assert twins.real.count(start, b"") == len(unbounded)


@settings(deadline=None)
@given(changes)
def test_a_frozen_copy_is_a_copy_of_all_items_at_that_moment_whatever_is_changed_after_it(
    done: list[tuple[object, tuple[int, ...]]],
) -> None:
    for frozen, copied in changed(done).frozen:
        assert len(frozen) == len(copied)
        assert list(frozen) == copied


@settings(deadline=None)
@given(changes, st.lists(st.tuples(numbers, st.booleans()), min_size=1, max_size=300))
def test_changes_between_any_two_items_that_are_read_do_not_reach_a_frozen_copy(
    done: list[tuple[object, tuple[int, ...]]], meanwhile: list[tuple[int, bool]]
) -> None:
    twins = changed(done)
    twins.freeze()
    frozen, copied = twins.frozen[-1]
    read = []
    for position, item in enumerate(frozen):
        read.append(item)
        number, is_put = meanwhile[position % len(meanwhile)]
        (twins.put if is_put else twins.remove)((number + position) % (4 * LEAF_MAX), 1, 1)
    assert read == copied
    assert list(twins.real.keys(b"", b"")) == sorted(twins.model)


@pytest.mark.parametrize("first", range(0, MANY, 5 * LEAF_MAX // 2))
def test_leaves_that_are_halved_and_joined_leave_a_frozen_copy_alone(first: int) -> None:
    real, items = OrderedMap(items_of(MANY)), items_of(MANY)
    there = [key_of(number) for number in range(first, first + 2 * LEAF_MAX)]
    new = [key + end for key in there for end in (b"-1", b"-2")]
    before_halving, leaves = real.freeze(), len(leaves_of(real))
    for key in new:
        real.put(key, Versioned(b"new", 1))
    assert len(leaves_of(real)) > leaves
    for key, _ in items:
        real.put(key, Versioned(b"newer", 2))
    before_joining = real.freeze()
    expected = [(key, real.get(key)) for key in real.keys(b"", b"")]
    for key in there + new:
        real.remove(key)
    assert len(leaves_of(real)) < leaves
    for key, _ in items:
        real.put(key, Versioned(b"newest", 3))
    assert list(before_halving) == items
    assert list(before_joining) == expected


def test_a_thread_reads_frozen_copies_while_their_map_is_changed() -> None:
    items = items_of(MANY)
    real = OrderedMap(items)
    frozen = [real.freeze() for _ in range(20)]
    read: list[list[Item]] = []
    reader = threading.Thread(target=lambda: read.extend(map(list, frozen)))
    reader.start()
    while reader.is_alive():
        for number in range(0, MANY, 7):
            real.put(key_of(number), Versioned(b"new", 1))
            real.remove(key_of(number + 1))
            real.put(key_of(number) + b"-new", Versioned(b"new", 1))
    reader.join()
    assert read == [items] * 20


def test_a_map_starts_from_items_in_any_order_and_keeps_the_last_of_one_key() -> None:
    items = items_of(3 * LEAF_MAX)
    mixed = [(items[5][0], Versioned(b"older", 1)), *reversed(items)]
    assert list(OrderedMap(mixed).freeze()) == items


@pytest.mark.parametrize("step", [1, -1, 7919])
def test_no_leaf_is_longer_than_allowed_however_the_keys_came(step: int) -> None:
    real = OrderedMap()
    for number in range(MANY):
        real.put(key_of(number * step % MANY), Versioned(b"v", 1))
    sizes = [len(leaf) for leaf in leaves_of(real)]
    assert sum(sizes) == MANY
    assert max(sizes) <= LEAF_MAX


def test_leaves_that_lose_their_keys_become_fewer() -> None:
    real = OrderedMap(items_of(MANY))
    before = len(leaves_of(real))
    for number in range(MANY):
        if number % 100:
            real.remove(key_of(number))
    assert len(leaves_of(real)) < before / 5


def test_a_change_after_a_frozen_copy_copies_one_leaf_and_only_once() -> None:
    real = OrderedMap(items_of(MANY))
    real.freeze()
    before = leaves_of(real)
    real.put(key_of(0), Versioned(b"new", 1))
    first = leaves_of(real)
    real.put(key_of(1), Versioned(b"new", 1))
    second = leaves_of(real)
    assert [old is new for old, new in zip(before, first, strict=True)].count(False) == 1
    assert all(old is new for old, new in zip(first, second, strict=True))


def test_a_frozen_copy_lets_go_of_what_was_read() -> None:
    frozen = OrderedMap(items_of(MANY)).freeze()
    items = iter(frozen)
    for _ in range(MANY // 2):
        next(items)
    assert len(frozen) <= MANY // 2


def test_the_garbage_collector_visits_at_most_the_leaves_themselves() -> None:
    """From Python 3.14 on it visits every dict; before, none that holds nothing to be visited."""
    real = OrderedMap(items_of(MANY))
    real.freeze()
    for number in range(0, 2 * MANY, 3):
        real.put(key_of(number), Versioned(b"new", 1))
    leaves = leaves_of(real)
    assert not any(gc.is_tracked(held) for leaf in leaves for held in gc.get_referents(leaf))
    assert sys.version_info >= (3, 14) or not any(gc.is_tracked(leaf) for leaf in leaves)
