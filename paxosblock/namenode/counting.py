"""Keeps the count of files for people who ask again and again: counting walks over all names."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from paxosblock.namenode.background import Background
from paxosblock.namenode.catalog.catalog import Catalog, CatalogCounts

RECENT_S: Final = 5.0
"""Seconds after which a count is made again for one who is content with a recent one."""
REST: Final = 50
"""And at least so many times the seconds that it took: it takes 2 % of a processor at most."""


class RecentCounts:
    """The last count of what the catalog holds."""

    def __init__(
        self, catalog: Catalog, background: Background, clock_s: Callable[[], float]
    ) -> None:
        """Nothing is counted before it is asked for; `background` ends with the term."""
        self._catalog, self._background, self._clock_s = catalog, background, clock_s
        self._last: CatalogCounts | None = None
        self._task: asyncio.Task[CatalogCounts] | None = None
        self._due_s = float("-inf")

    async def recent(self) -> CatalogCounts:
        """Return a count that may be some seconds old; the first one is waited for."""
        running = self._task is not None and not self._task.done()
        if not running and self._clock_s() >= self._due_s:
            self._task = self._background.start(self._count(), "count of files")
        if self._last is None and self._task is not None:
            await asyncio.wait((self._task,))
        return self._last or await self._catalog.counts()

    async def _count(self) -> CatalogCounts:
        began_s = self._clock_s()
        self._last = counts = await self._catalog.counts()
        ended_s = self._clock_s()
        self._due_s = ended_s + max(RECENT_S, (ended_s - began_s) * REST)
        return counts
