"""How many members the blocks of a file get, and why so few."""

from __future__ import annotations

import logging

from paxosblock.api.namenode import BlockView

_log = logging.getLogger(__name__)


class Shortfall:
    """Counts the members of a file's blocks. `fewest` is `wanted` while there is no block; `why`
    tells why the block that has the fewest got no more, "" when none was short.
    """

    def __init__(self, path: str, wanted: int) -> None:
        self.fewest = wanted
        self.why = ""
        self._path = path
        self._wanted = wanted
        self._latest = wanted

    def note(self, view: BlockView) -> None:
        """A block was opened. A loss is logged once: further blocks like it are no news."""
        before, self._latest = self._latest, len(view.members)
        why = view.shortfall or "the answer that told why was lost"
        if self._latest < self.fewest:
            self.fewest, self.why = self._latest, why
        told = self._path, self._latest, self._wanted
        if self._latest < before:
            _log.warning("'%s': a block gets only %d of %d replicas: %s", *told, why)
        elif self._latest > before:
            _log.info("'%s': a block gets %d of %d replicas again", *told)
