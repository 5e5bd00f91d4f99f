"""A map in the order of its keys, made of small dicts: no step costs more than one of them.

The keys between two *bounds* are in one *leaf*, a dict; inside it they are in no order, and a scan
sorts the leaves that it visits. So no large table ever grows, and a frozen copy is a list of the
same leaves, each of which is copied before its first change after that. The garbage collector never
visits a key, as Python leaves out dicts that hold nothing which could be part of a cycle.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import pairwise

from paxosblock.namenode.kv.interface import ABSENT, Item, Versioned

Leaf = dict[bytes, Versioned]

LEAF_MAX = 256
"""A leaf with more keys is halved. Longer leaves would make `get` and `put` quicker, because there
would be fewer to choose from, but scans and copies of leaves slower."""

LEAF_MIN = 32
"""A leaf with fewer keys joins the one before it."""


class FrozenMap:
    """The map as it was at one moment: its items in order of their keys, to be read once.

    Any thread may read it. Each leaf is freed once it has been read, because freeing an old map as
    a whole would hold the interpreter for long.
    """

    def __init__(self, leaves: list[Leaf]) -> None:
        """Take leaves that nobody changes any more."""
        self._leaves = deque(leaves)

    def __len__(self) -> int:
        """Return how many items are in the leaves that were not read yet."""
        return sum(map(len, self._leaves))

    def __iter__(self) -> Iterator[Item]:
        while self._leaves:
            leaf = self._leaves.popleft()
            keys = sorted(leaf)
            yield from zip(keys, map(leaf.__getitem__, keys), strict=True)


class OrderedMap:
    """Bytes to `Versioned`, in byte order of the keys."""

    def __init__(self, items: Iterable[Item] = ()) -> None:
        """Start with `items`; quickest when they are in order already."""
        ordered = list(items)
        if not all(key < after for (key, _), (after, _) in pairwise(ordered)):
            ordered = sorted(dict(ordered).items())
        starts = range(0, len(ordered), LEAF_MAX // 2)
        self._leaves: list[Leaf] = [dict(ordered[i : i + LEAF_MAX // 2]) for i in starts] or [{}]
        self._bounds = [ordered[i][0] for i in starts[1:]]
        """The borders between leaves: keys from the i-th bound on are not in the i-th leaf."""
        self._shared = [False] * len(self._leaves)
        """True if a frozen copy may hold the leaf, too."""

    def __len__(self) -> int:
        return sum(map(len, self._leaves))

    def get(self, key: bytes) -> Versioned:
        """Return the value of `key`; `ABSENT` when it is not there."""
        return self._leaves[bisect_right(self._bounds, key)].get(key, ABSENT)

    def keys(self, start: bytes, end: bytes, reverse: bool = False) -> Iterator[bytes]:
        """Yield the keys in [start, end) in order, or from the end; `b""` as `end`: no bound."""
        first = self._number(start)
        last = self._number(end) if end else len(self._leaves) - 1
        numbers = range(first, last + 1)
        for number in reversed(numbers) if reverse else numbers:
            keys = sorted(self._leaves[number])
            if end and number == last:
                del keys[bisect_left(keys, end) :]
            if number == first:
                del keys[: bisect_left(keys, start)]
            yield from reversed(keys) if reverse else keys

    def count(self, start: bytes, end: bytes) -> int:
        """Return how many keys are in [start, end), by a look into the leaves at its ends only."""
        first = self._number(start)
        last = self._number(end) if end else len(self._leaves) - 1
        within = sum(map(len, self._leaves[first : last + 1]))
        before = sum(key < start for key in self._leaves[first])
        behind = sum(key >= end for key in self._leaves[last]) if end else 0
        return max(0, within - before - behind)

    def put(self, key: bytes, value: Versioned) -> None:
        """Set the value of `key`, which may be new."""
        number = bisect_right(self._bounds, key)
        leaf = self._own(number) if self._shared[number] else self._leaves[number]
        leaf[key] = value
        if len(leaf) > LEAF_MAX:
            self._halve(number)

    def remove(self, key: bytes) -> None:
        """Remove `key`; an absent key is no error."""
        number = self._number(key)
        if key in self._leaves[number]:
            leaf = self._own(number)
            del leaf[key]
            if len(leaf) < LEAF_MIN and number > 0:
                self._join(number)

    def freeze(self) -> FrozenMap:
        """Return a copy that later changes do not reach; under 1 ms at 400,000 keys."""
        self._shared = [True] * len(self._leaves)
        return FrozenMap(self._leaves)

    def fork(self) -> OrderedMap:
        """Return an independent copy, as quickly as `freeze`; nobody changes this map any more."""
        copy = OrderedMap()
        copy._leaves, copy._bounds = list(self._leaves), list(self._bounds)
        copy._shared = [True] * len(self._leaves)
        return copy

    def _number(self, key: bytes) -> int:
        """Return the number of the leaf to which `key` belongs, whether it is there or not."""
        return bisect_right(self._bounds, key)

    def _own(self, number: int) -> Leaf:
        """Return a leaf that may be changed, as no frozen copy holds it."""
        if self._shared[number]:
            self._shared[number] = False
            self._leaves[number] = self._leaves[number].copy()
        return self._leaves[number]

    def _halve(self, number: int) -> None:
        """Put the upper half of the leaf's keys into a leaf of their own."""
        leaf = self._leaves[number]
        keys = sorted(leaf)
        lower, upper = keys[: len(keys) // 2], keys[len(keys) // 2 :]
        self._leaves[number] = {key: leaf[key] for key in lower}
        self._leaves.insert(number + 1, {key: leaf[key] for key in upper})
        self._bounds.insert(number, upper[0])
        self._shared.insert(number + 1, False)

    def _join(self, number: int) -> None:
        """Put the leaf's keys into the one before it."""
        leaf = self._leaves.pop(number)
        del self._bounds[number - 1], self._shared[number]
        before = self._own(number - 1)
        before.update(leaf)
        if len(before) > LEAF_MAX:
            self._halve(number - 1)
