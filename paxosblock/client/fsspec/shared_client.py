"""The connection of a file system to its cluster, on the event loop that made it."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import weakref

from paxosblock.client.async_client import AsyncClient
from paxosblock.client.blocking.loop_thread import STOP_WITHIN_S, OtherLoop
from paxosblock.client.publishing import StagingArea
from paxosblock.config import ClientConfig

_INHERITED: list[object] = []
"""Objects that a forked process must not clean up."""


class Connection:
    """A client and its staging area, on the event loop that made it; closed when it is done."""

    def __init__(self, addresses: tuple[str, ...], config: ClientConfig, ttl_s: float) -> None:
        """Must be made inside the running loop. `ttl_s`: see `StagingArea`."""
        self.loop = asyncio.get_running_loop()
        self.client = AsyncClient(addresses, config)
        self.staging = StagingArea(self.client, ttl_s)
        self._process = os.getpid()
        self._closed = False

    async def close(self) -> None:
        """Remove unpublished files and close all connections; once, on the loop's thread."""
        if self._closed:
            return
        if asyncio.get_running_loop() is not self.loop:
            if self.loop.is_running():
                closing = asyncio.run_coroutine_threadsafe(self.close(), self.loop)
                await asyncio.wrap_future(closing)
            return
        self._closed = True
        try:
            await self.staging.close()
        finally:
            await self.client.close()

    def close_at_end_of(self, owner: object) -> None:
        """Close when `owner` is gone or the program ends, if the loop still runs then."""
        weakref.finalize(owner, self._end)

    def _end(self) -> None:
        if self._process != os.getpid():
            # Sockets and loop are shared with the parent: leave them alone, for ever.
            _INHERITED.append(self)
            return
        if self._closed or not self.loop.is_running() or sys.is_finalizing():
            return
        other = OtherLoop(self.loop)
        closing = other.prepare(self.close)
        closing.launch()
        if other.usable:  # the owner may be collected on the loop's own thread
            closing.wait(STOP_WITHIN_S)
            if not threading.main_thread().is_alive():
                closing.cancel()  # the program ends: asyncio would complain of a task that is left
