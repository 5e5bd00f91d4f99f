"""The parts of files that one task reads."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from paxosblock.base.units import MIB

PACK_BYTES: Final = 16 * MIB
"""One task reads small files until they amount to this many bytes together."""
OPEN_COST_BYTES: Final = MIB
"""The cost of opening a file, in bytes, when files are packed."""


@dataclass(frozen=True, slots=True)
class Split:
    """The records of a file that begin in [start, stop).

    Lines and row groups: [begin, end) is all that is read of the file now; a record begins at
    `begin`, and the bytes from `end` on are treated as not there. A split of Arrow streams is whole
    messages of the stream whose schema is at `begin`, and of the streams after it. `file_id` and
    `truncations` tell whether the file is still the one that was cut into splits.
    """

    path: str
    file_id: int
    begin: int
    start: int
    stop: int
    end: int
    truncations: int = 0

    @property
    def is_first(self) -> bool:
        """True if the records that are read begin with this split."""
        return self.start == self.begin

    @property
    def is_whole(self) -> bool:
        """True if it is all that is read of the file."""
        return self.is_first and self.stop == self.end

    def holds(self, middle: float) -> bool:
        """True if a record with this middle that is not made of lines (a row group) is ours."""
        return self.start <= middle < self.stop


def cut(begin: int, end: int, edges: Iterable[int], split_bytes: int) -> Iterator[tuple[int, int]]:
    """Return ranges that cover [begin, end) in order, each of at most about `split_bytes`.

    They end at `edges`, where blocks end, wherever that is possible: a block is read from one
    replica. Longer blocks are cut evenly, short ones are read together.
    """
    start = begin
    last = begin
    for edge in (*sorted(edge for edge in edges if begin < edge < end), end):
        if last > start and edge - start > split_bytes:
            yield start, last
            start = last
        if edge - start > split_bytes:
            yield from _evenly(start, edge, split_bytes)
            start = edge
        last = edge
    if last > start:
        yield start, last


def _evenly(start: int, stop: int, split_bytes: int) -> Iterator[tuple[int, int]]:
    parts = -(-(stop - start) // split_bytes)
    marks = [start + (stop - start) * part // parts for part in range(parts + 1)]
    yield from itertools.pairwise(marks)


def pack(splits: Iterable[Split], split_bytes: int) -> list[tuple[Split, ...]]:
    """Return the splits of each task, in order: small files together, parts of a file alone."""
    most = min(split_bytes, PACK_BYTES)
    tasks: list[tuple[Split, ...]] = []
    held: list[Split] = []
    held_bytes = 0
    for split in splits:
        cost = split.stop - split.start + OPEN_COST_BYTES if split.is_whole else most + 1
        if held and held_bytes + cost > most:
            tasks.append(tuple(held))
            held, held_bytes = [], 0
        held.append(split)
        held_bytes += cost
    return [*tasks, tuple(held)] if held else tasks
