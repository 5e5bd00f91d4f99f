"""The blocks that wait for a copy, the ones with the fewest replicas left first."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from paxosblock.protocol.types import BlockId


class Waiting:
    """Blocks by rank; within a rank the one that has waited longest comes first.

    A block for which nothing can be done is parked, so that it does not hold up others.
    """

    def __init__(self) -> None:
        """Start with none."""
        self._ranks: dict[int, dict[BlockId, None]] = {}
        self._rank_of: dict[BlockId, int] = {}
        self._parked: dict[BlockId, None] = {}

    def __len__(self) -> int:
        """Return the number of blocks that wait, parked ones included."""
        return len(self._rank_of)

    def __contains__(self, block: BlockId) -> bool:
        return block in self._rank_of

    def __iter__(self) -> Iterator[BlockId]:
        """Yield the blocks that are not parked, in the order in which they are served."""
        for rank in sorted(self._ranks):
            yield from self._ranks[rank]

    def first(self, most: int) -> tuple[BlockId, ...]:
        """Return the first blocks in that order, at most `most`."""
        return tuple(islice(self, most))

    def put(self, block: BlockId, rank: int) -> None:
        """Let a block wait, at the end of its rank unless it is there already."""
        before = self._rank_of.get(block)
        self._rank_of[block] = rank
        if block in self._parked or before == rank:
            return
        if before is not None:
            self._take_out(block, before)
        self._ranks.setdefault(rank, {})[block] = None

    def drop(self, block: BlockId) -> None:
        """Let a block wait no longer, if it did."""
        rank = self._rank_of.pop(block, None)
        if block in self._parked:
            del self._parked[block]
        elif rank is not None:
            self._take_out(block, rank)

    def park(self, block: BlockId) -> None:
        """Set a waiting block aside, as nothing can be done for it now."""
        if block not in self._parked:
            self._take_out(block, self._rank_of[block])
            self._parked[block] = None

    def unpark(self, most: int | None = None) -> None:
        """Try again those that were parked first; None: all of them."""
        for block in tuple(islice(self._parked, most)):
            del self._parked[block]
            self._ranks.setdefault(self._rank_of[block], {})[block] = None

    def clear(self) -> None:
        """Forget everything."""
        self._ranks.clear()
        self._rank_of.clear()
        self._parked.clear()

    def _take_out(self, block: BlockId, rank: int) -> None:
        blocks = self._ranks[rank]
        del blocks[block]
        if not blocks:
            del self._ranks[rank]
