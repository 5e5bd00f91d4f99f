"""DataNodes that failed a writer, and for how long its next blocks should do without them.

The NameNode judges (`api.namenode.Excluded`): it hears which DataNodes live. The writer adds what
only it knows: when a node failed it, and whether that happens again and again. Such a node rests
for 1, 2, 4 ... seconds, so that one which lives but does not work for us (its disk hangs, the
network between us is cut) costs a small share of the time instead of every other block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from paxosblock.api.namenode import Excluded
from paxosblock.protocol.types import StorageId

FIRST_REST_S: Final = 1.0
LONGEST_REST_S: Final = 64.0
FORGET_AFTER_S: Final = 60.0
"""Seconds without a further failure, counted from the end of the rest."""


@dataclass(frozen=True, slots=True)
class _Failure:
    at_s: float
    rest_s: float

    @property
    def rests_until_s(self) -> float:
        return self.at_s + self.rest_s


class Exclusions:
    """The DataNodes that failed one writer, as it tells the NameNode."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` returns seconds and does not go back."""
        self._clock = clock
        self._failures: dict[StorageId, _Failure] = {}

    def add(self, failed: Iterable[StorageId]) -> None:
        """Note that these storages failed the writer just now."""
        now_s = self._clock()
        self._forget(now_s)
        for storage in failed:
            before = self._failures.get(storage)
            rest_s = FIRST_REST_S if before is None else min(2 * before.rest_s, LONGEST_REST_S)
            self._failures[storage] = _Failure(now_s, rest_s)

    def forgive(self, members: Iterable[StorageId]) -> None:
        """Note that these storages voted for all that they were sent: the trouble is over."""
        if self._failures:
            for storage in members:
                self._failures.pop(storage, None)

    def end_rest(self) -> None:
        """Let all rest no more: a DataNode that fails again and again is better than none."""
        now_s = self._clock()
        for storage, failure in self._failures.items():
            rested_s = min(failure.rest_s, now_s - failure.at_s)
            self._failures[storage] = replace(failure, rest_s=rested_s)

    def excluded(self) -> tuple[Excluded, ...]:
        """Return what to tell the NameNode about them now."""
        now_s = self._clock()
        self._forget(now_s)
        return tuple(
            Excluded(storage, now_s - failure.at_s, resting=now_s < failure.rests_until_s)
            for storage, failure in self._failures.items()
        )

    def _forget(self, now_s: float) -> None:
        over = [
            storage
            for storage, failure in self._failures.items()
            if now_s >= failure.rests_until_s + FORGET_AFTER_S
        ]
        for storage in over:
            del self._failures[storage]
