"""Broken invariants: logged as errors, counted, never acted upon."""

from __future__ import annotations

import logging
from collections import Counter

from paxosblock.logs import facts

_log = logging.getLogger(__name__)


class Alarms:
    """What somebody has to look at, by rule (I6, I7, I9 of PROTOCOL.md)."""

    def __init__(self) -> None:
        """Start with none."""
        self.counts: Counter[str] = Counter()

    def ring(self, why: str, **known: object) -> None:
        """Log and count one; the first word of `why` is the rule."""
        self.counts[why.partition(" ")[0]] += 1
        _log.error("alarm: %s", why, extra=facts(**known))
