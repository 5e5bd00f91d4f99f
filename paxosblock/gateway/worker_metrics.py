"""The metrics of all workers of one gateway, told by whichever of them is asked.

Each tells the others its own at a socket which it inherited, as does one that takes its place.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final

from paxosblock.host.metrics import labelled

TELL_WITHIN_S: Final = 1.0
"""Seconds that another worker has to tell its metrics; they are left out then."""
_ASKERS: Final = 64
"""Workers that may wait for an answer of one."""
_PIECE_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker of a gateway: its number, from 1 on, and the sockets at which each is asked; none
    where it is alone."""

    number: int
    lines: tuple[socket.socket, ...]

    @property
    def count(self) -> int:
        """The number of all of them."""
        return max(1, len(self.lines))

    @contextlib.asynccontextmanager
    async def telling(self, page: Callable[[], bytes]) -> AsyncIterator[None]:
        """Tell the others `page`, the metrics of this worker, for the length of a `with`."""
        if not self.lines:
            yield
            return

        async def tell(_: asyncio.StreamReader, asker: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError):  # it waits no longer
                asker.write(page())
                await asker.drain()
            asker.close()

        server = await asyncio.start_unix_server(tell, sock=self.lines[self.number - 1])
        try:
            yield
        finally:
            server.close()

    async def page_of_all(self, page: Callable[[], bytes]) -> bytes:
        """Return the metrics of all workers that tell them; `page` has those of this one."""
        if not self.lines:
            return page()
        told = await asyncio.gather(*(self._told(each, page) for each in range(len(self.lines))))
        return labelled("worker", {str(n): one for n, one in enumerate(told, 1) if one})

    async def _told(self, place: int, page: Callable[[], bytes]) -> bytes:
        """Return the metrics of one worker, b"" if it does not tell them."""
        if place == self.number - 1:
            return page()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(TELL_WITHIN_S):
                return await _all_of(self.lines[place].getsockname())
        return b""


ALONE: Final = Worker(1, ())


def open_lines(count: int) -> tuple[socket.socket, ...]:
    """Return a socket for each of so many workers, at names that the system chooses.

    Raises OSError where there is no descriptor for one.
    """
    lines = []
    for _ in range(count):
        lines.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK))
        lines[-1].bind("")
        lines[-1].listen(_ASKERS)
    return tuple(lines)


async def _all_of(name: bytes) -> bytes:
    loop = asyncio.get_running_loop()
    pieces = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as asking:
        await loop.sock_connect(asking, name)
        while piece := await loop.sock_recv(asking, _PIECE_BYTES):
            pieces.append(piece)
    return b"".join(pieces)
