"""Gives the catalog to `paxosblock admin backup`: `GET /backup`, the stream of a checkpoint."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from paxosblock.base.units import KIB
from paxosblock.errors import PaxosBlockError
from paxosblock.namenode.backups import BACKUP_PATH
from paxosblock.namenode.kv.table import Checkpoint, pieces
from paxosblock.net.port import upgrade_server
from paxosblock.net.port.access_server import PROOF_HEADERS

_PIECE_BYTES: Final = 256 * KIB

STALL_S: Final = 10.0
"""A reader that takes nothing for so long is gone, as far as the others that wait can know."""

_log = logging.getLogger(__name__)


class Backups:
    """One at a time: each takes room on the disk, and reading."""

    def __init__(
        self,
        checkpoint: Callable[[], Awaitable[Checkpoint]],
        demand: Callable[[web.Request], Awaitable[None]],
        stall_s: float = STALL_S,
    ) -> None:
        """Give away what `checkpoint` makes, for requests that `demand` does not refuse, to readers
        that take some of it every `stall_s`."""
        self._checkpoint = checkpoint
        self._demand = demand
        self._stall_s = stall_s
        self._gives = False

    def add_to(self, app: web.Application) -> None:
        """Add the route."""
        app.router.add_get(BACKUP_PATH, self._give)

    async def _give(self, request: web.Request) -> web.StreamResponse:
        try:
            await self._demand(request)
        except PaxosBlockError as error:
            return upgrade_server.refusal(error)
        if self._gives:
            return _refusal("it gives another one; try again")
        self._gives = True
        try:
            checkpoint = await self._checkpoint()
            try:
                return await _send(request, checkpoint, self._stall_s)
            finally:
                await asyncio.to_thread(checkpoint.close)
        except PaxosBlockError as error:
            return _refusal(str(error))
        finally:
            self._gives = False


async def _send(request: web.Request, checkpoint: Checkpoint, stall_s: float) -> web.StreamResponse:
    """Send the stream; cut the connection of a reader that takes nothing for `stall_s`."""
    response = web.StreamResponse(headers=request.get(PROOF_HEADERS))
    response.content_length = checkpoint.size_bytes
    await response.prepare(request)
    stream = pieces(checkpoint, _PIECE_BYTES)
    while piece := await asyncio.to_thread(next, stream, b""):
        try:
            async with asyncio.timeout(stall_s):
                await response.write(piece)
        except TimeoutError:
            _log.warning("gives up a backup: %s took nothing for %g s", request.remote, stall_s)
            if request.transport is not None:
                request.transport.abort()
            return response
    _log.info("gave a backup of the catalog: %d bytes", checkpoint.size_bytes)
    return response


def _refusal(words: str) -> web.Response:
    return web.Response(status=503, text=f"{words}\n")
