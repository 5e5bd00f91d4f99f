"""Broken invariants: logged as errors, counted, never acted upon."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Final

from paxosblock.host.logs import facts

KEPT: Final = 10_000
"""Alarms that are remembered; an older one would be logged and counted again."""
SHOWN: Final = 20
"""Alarms that are shown to people."""

_SUBJECTS: Final = ("block", "storage", "address")

_log = logging.getLogger(__name__)


class Alarms:
    """Things that an operator has to look at, by rule (I6, I7, I9 of PROTOCOL.md).

    If the next report of the same replica shows the same, it is the same alarm.
    """

    def __init__(self) -> None:
        """Start with none."""
        self.counts: Counter[str] = Counter()
        self._rung: dict[str, None] = {}

    def ring(self, why: str, **known: object) -> None:
        """Log and count an alarm once; the first word of `why` is the rule."""
        alarm = _told(why, known)
        if alarm in self._rung:
            return
        self._rung[alarm] = None
        if len(self._rung) > KEPT:
            del self._rung[next(iter(self._rung))]
        self.counts[why.partition(" ")[0]] += 1
        _log.error("alarm: %s", why, extra=facts(**known))

    def end(self, why: str, **known: object) -> None:
        """Show an alarm no longer, as it is not true any more; if it rings again, it is another."""
        if _told(why, known) in self._rung:
            del self._rung[_told(why, known)]
            self.counts[why.partition(" ")[0]] -= 1
            _log.warning("the alarm is over: %s", why, extra=facts(**known))

    def latest(self, most: int = SHOWN) -> tuple[str, ...]:
        """Return the latest alarms, oldest first."""
        return tuple(self._rung)[-most:]


def _told(why: str, known: dict[str, object]) -> str:
    return " ".join((why, *(f"{name}={known[name]}" for name in _SUBJECTS if name in known)))
