"""The sums that a draft adds to counters: the log entry adds them when it is applied.

No counter is a precondition, so changes that count for one quota do not conflict with each other.
An amount may depend on other counters, such as that of a directory that is moved: then it, too, is
only known when the entry is applied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec

from paxosblock.namenode.kv.interface import BeginCounter, Count, CounterChange, EndCounter

NO_LIMIT = -1


class Amount(msgspec.Struct, frozen=True):
    """A number, and counters by the factor with which they are added: each with its total before
    the edit."""

    number: int = 0
    of: Mapping[bytes, int] = {}

    def plus(self, other: Amount, factor: int = 1) -> Amount:
        """Return this amount and so many times the other one."""
        of = dict(self.of)
        for key, times in other.of.items():
            of[key] = of.get(key, 0) + factor * times
        return Amount(self.number + factor * other.number, {key: n for key, n in of.items() if n})

    def value(self, total: Callable[[bytes], int]) -> int:
        """Return it as a number, with the `total` of each counter."""
        return self.number + sum(factor * total(key) for key, factor in self.of.items())


class Limit(msgspec.Struct, frozen=True):
    """The most that a counter may be, of names or of bytes, and the directory that it is for."""

    most: int
    directory: int
    of_names: bool


class _State(msgspec.Struct, frozen=True):
    """All changes of counters up to some part of a draft."""

    begun: tuple[bytes, ...] = ()
    added: Mapping[bytes, Amount] = {}
    ended: tuple[bytes, ...] = ()


class CounterSums:
    """The changes of counters of one draft; those of its last part can be removed."""

    def __init__(self, total: Callable[[bytes], int]) -> None:
        """Begin with none; `total` is that of a counter in the draft's view."""
        self._total = total
        self._before = self._now = _State()
        self._limits: dict[bytes, Limit] = {}

    def begin(self, key: bytes) -> None:
        """Let a counter begin."""
        now = self._now
        self._now = _State((*now.begun, key), now.added, now.ended)

    def end(self, key: bytes) -> None:
        """Remove a counter."""
        now = self._now
        self._now = _State(now.begun, now.added, (*now.ended, key))

    def add(self, key: bytes, amount: Amount, limit: Limit) -> None:
        """Add to a counter, which may then be as much as its limit says."""
        now = self._now
        added = {**now.added, key: now.added.get(key, Amount()).plus(amount)}
        self._now = _State(now.begun, added, now.ended)
        self._limits[key] = limit

    def as_amount(self, key: bytes) -> Amount:
        """Return what a counter has by now: before the edit, and what this draft adds."""
        return Amount(0, {key: 1}).plus(self._now.added.get(key, Amount()))

    def total(self, key: bytes) -> int:
        """Return what a counter has by now."""
        return self.as_amount(key).value(self._total)

    def exceeded(self) -> Iterator[tuple[Limit, int]]:
        """Yield the limits that the last part exceeds, each with what the counter would be."""
        for key, amount in self._now.added.items():
            limit, before = self._limits[key], self._before.added.get(key, Amount())
            if limit.most == NO_LIMIT or amount.plus(before, -1).value(self._total) <= 0:
                continue
            if (total := self._total(key) + amount.value(self._total)) > limit.most:
                yield limit, total

    def begin_part(self) -> None:
        """Begin a part, which `undo_part` can remove."""
        self._before = self._now

    def undo_part(self) -> None:
        """Remove what the part has added."""
        self._now = self._before

    def changes(self) -> tuple[CounterChange, ...]:
        """Return what the edit does with counters."""
        now = self._now
        added = (
            Count(key, amount.number, self._limits[key].most, tuple(amount.of.items()))
            for key, amount in now.added.items()
            if amount.number or amount.of
        )
        return (*map(BeginCounter, now.begun), *added, *map(EndCounter, now.ended))
