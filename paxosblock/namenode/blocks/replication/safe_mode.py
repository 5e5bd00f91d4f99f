"""Safe mode: replicas are neither copied nor taken away while too little is known of them.

A NameNode that begins to lead knows replicas only from reports. If it acted before they are in, it
would take unreported replicas for lost. So nothing is copied or taken away until enough of the
finalized blocks were reported, and for a moment longer; and never while an operator wants safe
mode. Writers and readers do not wait for it. (HDFS: BlockManagerSafeMode, with the same threshold
and moment.)

Time is an argument: seconds on a clock that does not go back.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from paxosblock.api.status import SafeModeStatus
from paxosblock.namenode.blocks.replicas import Replicas
from paxosblock.namenode.catalog.catalog import Catalog


class SafeMode:
    """On from the beginning of a term until enough is known, and as long as an operator wants."""

    def __init__(
        self, threshold: float, extension_s: float, by_hand: Callable[[], bool] = lambda: False
    ) -> None:
        """Wait until the share `threshold` (0 to 1) of the finalized blocks was reported, and
        `extension_s` longer. `by_hand` returns True from an operator's entering it to the leaving.
        """
        assert 0 <= threshold <= 1, "a share"
        self._threshold = threshold
        self._extension_s = extension_s
        self._by_hand = by_hand
        self._waits = True
        self._met_s: float | None = None
        self._reported = self._blocks = 0

    def __repr__(self) -> str:
        return f"<SafeMode {self.status(self._met_s or 0.0)}>"

    @property
    def holds(self) -> bool:
        """True while nothing is copied or taken away."""
        return self._waits or self._by_hand()

    @property
    def waits(self) -> bool:
        """True while it waits for reports; it ends by itself when there are enough."""
        return self._waits

    def begin(self) -> None:
        """Begin a term, in which earlier reports must come again."""
        self._waits = True
        self._met_s = None

    def note(self, reported: int, blocks: int, now_s: float) -> None:
        """Take in how many of the finalized `blocks` were `reported` with enough replicas.

        Without blocks there is nothing to wait for. If the share falls again before the extension
        is over, the extension begins again.
        """
        self._reported, self._blocks = min(reported, blocks), blocks
        if not blocks:
            self._waits = False
        elif self._reported < self._needed(blocks):
            self._met_s = None
        elif self._met_s is None:
            self._met_s = now_s
        if self._left_s(now_s) == 0:
            self._waits = False

    def leave(self) -> None:
        """End the wait for reports, as an operator asked; unreported blocks count as missing."""
        self._waits = False

    def status(self, now_s: float) -> SafeModeStatus:
        """Return the state for people, with the numbers of the last look."""
        return SafeModeStatus(
            on=self.holds,
            by_hand=self._by_hand(),
            reported=self._reported,
            blocks=self._blocks,
            threshold=self._threshold,
            left_s=self._left_s(now_s) if self._waits else 0.0,
        )

    def _needed(self, blocks: int) -> int:
        """Return how many of `blocks` are enough, rounded down as in HDFS: a lost block must not
        keep the others of a small cluster from being copied at each fail-over."""
        share = math.floor(self._threshold * blocks)
        return max(1, share) if self._threshold else 0

    def _left_s(self, now_s: float) -> float | None:
        """Return the seconds until it ends by itself; None while too few blocks were reported."""
        if self._met_s is None:
            return None
        return max(0.0, self._met_s + self._extension_s - now_s)


async def note_progress(
    safe_mode: SafeMode, catalog: Catalog, replicas: Replicas, clock_s: Callable[[], float]
) -> None:
    """Tell safe mode how much was reported up to now, while it waits for that."""
    if safe_mode.waits:
        blocks = await catalog.finalized_blocks()
        safe_mode.note(replicas.complete, blocks, clock_s())
