"""What does uvloop gain over asyncio's own loop, for messages of the size of a vote and of a chunk?

One process, one connection over loopback, one message under way: it is sent, echoed, and awaited.
Both ends share the loop and no network is in between, so only the ratio says something about nodes.
The limit of uvloop is asyncio's own loop, in turns.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final, cast

import uvloop

from benchmarks.suite import Bench, case
from paxosblock.base.units import KIB, format_size

MESSAGE_BYTES: Final = (100, 512 * KIB)


class Echo(asyncio.BufferedProtocol):
    """Receives into one buffer, and sends back what arrived."""

    def __init__(self) -> None:
        self._buffer = bytearray(256 * KIB)
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is not derived from it

    def get_buffer(self, sizehint: int) -> bytearray:
        """Return the same buffer each time: what is in it was handled before the next read."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """`nbytes` arrived."""
        self._transport.write(bytes(memoryview(self._buffer)[:nbytes]))


class Caller(Echo):
    """Sends a message and waits until as many bytes came back."""

    def __init__(self) -> None:
        super().__init__()
        self._missing = 0
        self._answered: asyncio.Future[None]

    async def call(self, message: bytes) -> None:
        """One round trip of `message`."""
        self._missing = len(message)
        self._answered = asyncio.get_running_loop().create_future()
        self._transport.write(message)
        await self._answered

    def buffer_updated(self, nbytes: int) -> None:
        """`nbytes` came back."""
        self._missing -= nbytes
        if not self._missing:
            self._answered.set_result(None)


async def round_trips_per_second(size_bytes: int, seconds: float) -> float:
    """Round trips of messages of `size_bytes`, one after the other, for `seconds`."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Echo, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    transport, caller = await loop.create_connection(Caller, host, port)
    message, count, start = bytes(size_bytes), 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds:
        await caller.call(message)
        count += 1
    transport.close()
    server.close()
    return count / elapsed


def measure(new_loop: Callable[[], asyncio.AbstractEventLoop], size: int, seconds: float) -> float:
    """Return round trips per second on a loop of this kind, which runs in the calling thread."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(round_trips_per_second(size, seconds))


@case("event-loop")
async def event_loop(bench: Bench) -> None:
    """What does uvloop gain over asyncio's own loop, for a message like a vote and for a chunk?"""
    for size_bytes in MESSAGE_BYTES:
        for number in bench.rounds:
            bare, fast = [
                await asyncio.to_thread(measure, new_loop, size_bytes, bench.seconds / 2)
                for new_loop in (asyncio.new_event_loop, uvloop.new_event_loop)
            ]
            what = f"round trips of {format_size(size_bytes)}, beside asyncio's own loop"
            bench.emit(what, fast, "/s", number, limit=bare)
