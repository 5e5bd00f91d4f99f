"""What does uvloop gain over asyncio's own loop, for messages of the size of a vote and of a chunk?

    python -m benchmarks.loop [--seconds 1] [--rounds 5]

One process, one connection over loopback, one message under way: it is sent, echoed, and awaited.
Both ends share the loop and no network is in between, so only the ratio says something about nodes.
The two loops take turns, `--rounds` times each; the table shows the median and the extremes.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time
from collections.abc import Callable
from typing import Final, cast

import uvloop

from paxosblock.units import KIB

MESSAGE_BYTES: Final = (100, 512 * KIB)
LOOPS: Final[dict[str, Callable[[], asyncio.AbstractEventLoop]]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


class Echo(asyncio.BufferedProtocol):
    """Receives into one buffer, and sends back what arrived."""

    def __init__(self) -> None:
        self._buffer = bytearray(256 * KIB)
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is not derived from it

    def get_buffer(self, sizehint: int) -> bytearray:
        """The same buffer each time: what is in it was handled before the next read."""
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


def measure(size_bytes: int, seconds: float, rounds: int) -> dict[str, list[float]]:
    """Round trips per second of each loop, one figure per round."""
    found: dict[str, list[float]] = {name: [] for name in LOOPS}
    for _ in range(rounds):
        for name, new_loop in LOOPS.items():
            with asyncio.Runner(loop_factory=new_loop) as runner:
                found[name].append(runner.run(round_trips_per_second(size_bytes, seconds)))
    return found


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print("message bytes | loop | round trips/s, median (least - most)")
    for size_bytes in MESSAGE_BYTES:
        for name, figures in measure(size_bytes, options.seconds, options.rounds).items():
            middle, least, most = statistics.median(figures), min(figures), max(figures)
            print(f"{size_bytes} | {name} | {middle:.0f} ({least:.0f} - {most:.0f})")


if __name__ == "__main__":
    main()
