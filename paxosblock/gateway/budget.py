"""Bounds the bytes that are on their way through a gateway at a time."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from typing import Final

from paxosblock.errors import UnavailableError

WAIT_S: Final = 5.0
"""Seconds for which a request waits for room."""


class Budget:
    """The room for bytes, which requests get in the order in which they came."""

    def __init__(self, size_bytes: int, wait_s: float = WAIT_S) -> None:
        self.size_bytes = size_bytes
        self.held_bytes = 0
        self._wait_s = wait_s
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @contextlib.asynccontextmanager
    async def hold(self, size_bytes: int) -> AsyncIterator[None]:
        """Hold room for so many bytes, at most all that there is, for the length of a `with`.

        Raises:
            UnavailableError: there is none in time.
        """
        size_bytes = min(size_bytes, self.size_bytes)
        await self._take(size_bytes)
        try:
            yield
        finally:
            self._give_back(size_bytes)

    async def _take(self, size_bytes: int) -> None:
        if not self._waiting and self.held_bytes + size_bytes <= self.size_bytes:
            self.held_bytes += size_bytes
            return
        mine = size_bytes, asyncio.get_running_loop().create_future()
        self._waiting.append(mine)
        try:
            async with asyncio.timeout(self._wait_s):
                await mine[1]
        except BaseException as error:
            if mine in self._waiting:
                self._waiting.remove(mine)
                self._let_in()  # the one that goes away may have been the largest
            else:
                self._give_back(size_bytes)  # it was let in, and cannot use that any more
            if isinstance(error, TimeoutError):
                raise UnavailableError(
                    "the gateway has too many files on their way; try again"
                ) from None
            raise

    def _give_back(self, size_bytes: int) -> None:
        self.held_bytes -= size_bytes
        self._let_in()

    def _let_in(self) -> None:
        while self._waiting and self.held_bytes + self._waiting[0][0] <= self.size_bytes:
            size_bytes, told = self._waiting.popleft()
            self.held_bytes += size_bytes
            if told.done():  # cancelled in this very turn: it gives nothing back by itself
                self.held_bytes -= size_bytes
            else:
                told.set_result(None)
