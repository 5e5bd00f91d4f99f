"""Gives up a connection whose peer does not read what it is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from paxosblock.base.units import KIB

PROGRESS_BYTES: Final = 64 * KIB
"""Bytes of an answer that must leave in each time: a byte now and then is not enough."""


class UnreadWatch:
    """Looks from time to time whether the answers of one connection leave, while many wait.

    The loop says only when nearly all of them have left, and a long answer may take longer than
    that: what counts is that it goes on.
    """

    def __init__(self, stall_s: float, give_up: Callable[[], None]) -> None:
        """Call `give_up` when less than `PROGRESS_BYTES` were read in `stall_s`."""
        self._stall_s, self._give_up = stall_s, give_up
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, transport: asyncio.WriteTransport | None) -> None:
        """Look from now on, as too much waits to be sent."""
        self.end()
        if transport is not None:
            self._check_later(transport)

    def end(self) -> None:
        """Look no more, as it was read, or the connection is gone."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check_later(self, transport: asyncio.WriteTransport) -> None:
        unsent_bytes = transport.get_write_buffer_size()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._stall_s, self._check_progress, transport, unsent_bytes)

    def _check_progress(self, transport: asyncio.WriteTransport, before_bytes: int) -> None:
        self._timer = None
        if before_bytes - transport.get_write_buffer_size() >= PROGRESS_BYTES:
            self._check_later(transport)
        else:
            self._give_up()
