"""States of the catalog that callers go through in several calls, as it was at one moment."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass
from typing import Final

from paxosblock.api.subtree import KEPT_S
from paxosblock.errors import NotReadyError
from paxosblock.namenode.kv.interface import Moment, View

MOMENTS_MAX: Final = 32
"""Each one keeps what is replaced meanwhile, so there are not as many as there are callers."""


@dataclass(frozen=True, slots=True)
class _HeldMoment:
    moment: Moment
    end: asyncio.TimerHandle


class Moments:
    """The moments that are kept, each until it was not asked for in `KEPT_S`."""

    def __init__(self) -> None:
        """Begin with none."""
        self._held: dict[str, _HeldMoment] = {}

    def take(self, view: View) -> tuple[str, Moment]:
        """Keep the state that `view` shows now; return the name that it gets, and the state.

        Raises:
            NotReadyError: too many are kept.
        """
        if len(self._held) >= MOMENTS_MAX:
            raise NotReadyError(f"{MOMENTS_MAX} callers sum up or list large subtrees just now")
        name, moment = secrets.token_hex(8), view.moment()
        self._keep(name, moment)
        return name, moment

    def find(self, name: str) -> Moment | None:
        """Return the moment of this name, and keep it longer; None if it is gone."""
        held = self._held.get(name)
        if held is None:
            return None
        held.end.cancel()
        self._keep(name, held.moment)
        return held.moment

    def drop(self, name: str) -> None:
        """Forget a moment, if it is there."""
        if (held := self._held.pop(name, None)) is not None:
            held.end.cancel()
            held.moment.release()

    def clear(self) -> None:
        """Forget all."""
        for name in tuple(self._held):
            self.drop(name)

    def _keep(self, name: str, moment: Moment) -> None:
        end = asyncio.get_running_loop().call_later(KEPT_S, self.drop, name)
        self._held[name] = _HeldMoment(moment, end)
