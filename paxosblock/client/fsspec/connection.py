"""The client behind a file system: made on the event loop that uses it, closed when it is done."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import sys
import weakref

from paxosblock.client.async_client import AsyncClient
from paxosblock.client.background import STOP_WITHIN_S, OtherLoop
from paxosblock.client.fsspec.staging import StagingArea
from paxosblock.config import ClientConfig

_INHERITED: list[object] = []
"""What a forked process must not clean up."""


class Connection:
    """A client and its staging area, on one event loop."""

    def __init__(self, addresses: tuple[str, ...], config: ClientConfig, ttl_s: float) -> None:
        """Made inside the running loop. `ttl_s`: see `StagingArea`."""
        self.loop = asyncio.get_running_loop()
        self.client = AsyncClient(addresses, config)
        self.staging = StagingArea(self.client, ttl_s)
        self._process = os.getpid()
        self._closed = False

    async def close(self) -> None:
        """Remove what was not published, and close all connections; once."""
        if self._closed:
            return
        self._closed = True
        await self.staging.close()
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
        closing = asyncio.run_coroutine_threadsafe(self.close(), self.loop)
        if OtherLoop(self.loop).usable:  # the owner may be collected on the loop's own thread
            concurrent.futures.wait([closing], STOP_WITHIN_S)
