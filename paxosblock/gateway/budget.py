"""Bounds the bytes that are on their way through a gateway at a time.

What is counted is the memory that they take here, not how many were asked for: a writer has the
chunks that no DataNode voted for yet, and what came of its body beyond them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final

from paxosblock.config import ClientConfig
from paxosblock.errors import UnavailableError
from paxosblock.gateway.exchange import ARRIVED_BYTES

WAIT_S: Final = 5.0
"""Seconds for which a request waits for room."""
ARRIVED_SHARE: Final = 8
"""One part of so many is for the bytes of bodies that came with requests which wait for room."""


def reader_bytes(config: ClientConfig, size_bytes: int) -> int:
    """Return the memory of one who reads so many bytes: what is fetched, and what goes out."""
    return min(size_bytes, 2 * config.prefetch_size)


def writer_bytes(config: ClientConfig, size_bytes: int) -> int:
    """Return the memory of one who writes so many bytes: its window, the chunk that waits for it,
    the one that is being filled, and what came of the body beyond that. A buffer that grows as it
    is filled takes up to an eighth more than its bytes."""
    chunks_bytes = (config.window + 2) * config.chunk_size
    # One part of the body is being cut into chunks while another one comes.
    return min(2 * size_bytes, chunks_bytes * 9 // 8 + 2 * ARRIVED_BYTES)


@dataclass(eq=False, slots=True)
class _WaitingRequest:
    """A request that waits for room, and is told when it has it."""

    size_bytes: int
    arrived_bytes: int
    told: asyncio.Future[None]


class Budget:
    """The room for bytes, which requests get in the order in which they came."""

    def __init__(self, size_bytes: int, wait_s: float = WAIT_S) -> None:
        self.size_bytes = size_bytes
        self.held_bytes = 0
        """Bytes that requests hold, and those that came with requests which wait."""
        self._arrived_bytes = 0  # of these, those of requests which wait
        self._most_arrived_bytes = size_bytes // ARRIVED_SHARE
        self._wait_s = wait_s
        self._waiting: deque[_WaitingRequest] = deque()

    @contextlib.asynccontextmanager
    async def hold(self, size_bytes: int, arrived_bytes: int = 0) -> AsyncIterator[None]:
        """Hold room for so many bytes, at most all that there is, for the length of a `with`.

        Args:
            size_bytes: what it takes, once it has room.
            arrived_bytes: what is here of it while it waits.

        Raises:
            UnavailableError: there is none in time, or too much came with others that wait.
        """
        size_bytes = min(size_bytes, self.size_bytes - self._most_arrived_bytes)
        await self._take(size_bytes, arrived_bytes)
        try:
            yield
        finally:
            self._give_back(size_bytes)

    async def _take(self, size_bytes: int, arrived_bytes: int) -> None:
        if not self._waiting and self._has_room(size_bytes):
            self.held_bytes += size_bytes
            return
        if self._arrived_bytes and self._arrived_bytes + arrived_bytes > self._most_arrived_bytes:
            raise _full()
        mine = _WaitingRequest(
            size_bytes, arrived_bytes, asyncio.get_running_loop().create_future()
        )
        self._begin_to_wait(mine)
        try:
            async with asyncio.timeout(self._wait_s):
                await mine.told
        except BaseException as error:
            if mine in self._waiting:
                self._end_waiting(mine)
                self._let_in()  # the one that goes away may have been the largest
            elif not mine.told.cancelled():
                self._give_back(size_bytes)  # it was let in, and cannot use that any more
            if isinstance(error, TimeoutError):
                raise _full() from None
            raise

    def _has_room(self, size_bytes: int) -> bool:
        used_bytes = self.held_bytes - self._arrived_bytes
        return used_bytes + size_bytes <= self.size_bytes - self._most_arrived_bytes

    def _begin_to_wait(self, one: _WaitingRequest) -> None:
        self._waiting.append(one)
        self._arrived_bytes += one.arrived_bytes
        self.held_bytes += one.arrived_bytes

    def _end_waiting(self, one: _WaitingRequest) -> None:
        self._waiting.remove(one)
        self._arrived_bytes -= one.arrived_bytes
        self.held_bytes -= one.arrived_bytes

    def _give_back(self, size_bytes: int) -> None:
        self.held_bytes -= size_bytes
        self._let_in()

    def _let_in(self) -> None:
        while self._waiting and self._has_room((first := self._waiting[0]).size_bytes):
            self._end_waiting(first)
            if not first.told.done():  # else it was cancelled in this very turn, and gets nothing
                self.held_bytes += first.size_bytes
                first.told.set_result(None)


def _full() -> UnavailableError:
    return UnavailableError("the gateway has too many files on their way; try again")
