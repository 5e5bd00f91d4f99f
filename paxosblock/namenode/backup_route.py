"""Gives the catalog to `paxosblock admin backup`: `GET /backup`, the stream of a checkpoint."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from paxosblock.errors import PaxosBlockError
from paxosblock.namenode.backups import BACKUP_PATH
from paxosblock.namenode.kv.table import Checkpoint, pieces
from paxosblock.units import KIB

_PIECE_BYTES: Final = 256 * KIB

_log = logging.getLogger(__name__)


class Backups:
    """One at a time: each takes room on the disk, and reading."""

    def __init__(self, checkpoint: Callable[[], Awaitable[Checkpoint]]) -> None:
        """Give away what `checkpoint` makes."""
        self._checkpoint = checkpoint
        self._gives = False

    def add_to(self, app: web.Application) -> None:
        """Add the route."""
        app.router.add_get(BACKUP_PATH, self._give)

    async def _give(self, request: web.Request) -> web.StreamResponse:
        if self._gives:
            return _refusal("it gives another one; try again")
        self._gives = True
        try:
            checkpoint = await self._checkpoint()
            try:
                return await _send(request, checkpoint)
            finally:
                await asyncio.to_thread(checkpoint.close)
        except PaxosBlockError as error:
            return _refusal(str(error))
        finally:
            self._gives = False


async def _send(request: web.Request, checkpoint: Checkpoint) -> web.StreamResponse:
    response = web.StreamResponse()
    response.content_length = checkpoint.size_bytes
    await response.prepare(request)
    stream = pieces(checkpoint, _PIECE_BYTES)
    while piece := await asyncio.to_thread(next, stream, b""):
        await response.write(piece)
    _log.info("gave a backup of the catalog: %d bytes", checkpoint.size_bytes)
    return response


def _refusal(words: str) -> web.Response:
    return web.Response(status=503, text=f"{words}\n")
