"""A cheap source of control calls: keep-alive connections that speak just enough HTTP.

The load generator shares the machine's cores with the nodes that it measures. aiohttp's client
needs about as much processor time for a call as the NameNode does; this one needs a tenth.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import msgspec

from paxosblock.api.methods import Method
from paxosblock.net.wire import decode_error

Q = TypeVar("Q")
A = TypeVar("A")

_END = b"\r\n\r\n"
_LENGTH = b"content-length: "


class Connection(asyncio.Protocol):
    """One connection, one request under way."""

    def __init__(self) -> None:
        self._received = b""
        self._transport: asyncio.Transport
        self._answered: asyncio.Future[tuple[bool, bytes]] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is not derived from it

    def data_received(self, data: bytes) -> None:
        """Wait until all of the answer is there."""
        self._received += data
        head = self._received.find(_END)
        if head < 0:
            return
        length = self._received.lower().index(_LENGTH, 0, head + 2) + len(_LENGTH)
        begin = head + len(_END)
        end = begin + int(self._received[length : self._received.index(b"\r\n", length)])
        if len(self._received) >= end and self._answered is not None:
            answer = self._received[9:12] == b"200", self._received[begin:end]
            self._received = b""
            self._answered.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        """The node is gone."""
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(ConnectionResetError())

    async def call(self, method: Method[Q, A], request: Q) -> A:
        """The answer. Raises what the node reported, ConnectionResetError when it is gone."""
        body = msgspec.msgpack.encode(request)
        head = (
            f"POST /rpc/{method.name} HTTP/1.1\r\nHost: namenode\r\n"
            f"Content-Type: application/msgpack\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._answered = asyncio.get_running_loop().create_future()
        self._transport.write(head.encode() + body)
        succeeded, answer = await self._answered
        if not succeeded:
            raise decode_error(answer)
        return cast(A, _decoder(method).decode(answer))

    def close(self) -> None:
        """Hang up."""
        self._transport.close()


_decoders: dict[str, msgspec.msgpack.Decoder[Any]] = {}


def _decoder(method: Method[Any, Any]) -> msgspec.msgpack.Decoder[Any]:
    if method.name not in _decoders:
        _decoders[method.name] = msgspec.msgpack.Decoder(method.answer)
    return _decoders[method.name]


async def connect(address: str) -> Connection:
    """A connection to a node (host:port). Raises OSError."""
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(Connection, host, int(port))
    return connection


@dataclass(frozen=True, slots=True)
class Load:
    """The measurements of clients: the seconds of each call, and of all of them together."""

    seconds: float
    latencies: list[float] = field(repr=False)

    @property
    def rate(self) -> float:
        """Calls per second."""
        return len(self.latencies) / self.seconds


async def run_load(
    address: str,
    method: Method[Q, A],
    requests: Callable[[int], Iterator[Q]],
    *,
    clients: int,
    seconds: float = float("inf"),
) -> Load:
    """Let `clients` call, each one after the other, until `seconds` are over or its requests are.

    `requests(client)` are those of one client.
    """
    latencies: list[float] = []
    begun = time.perf_counter()

    async def client(number: int) -> None:
        connection = await connect(address)
        mine = requests(number)
        while (called := time.perf_counter()) - begun < seconds:
            request = next(mine, None)
            if request is None:
                break
            await connection.call(method, request)
            latencies.append(time.perf_counter() - called)
        connection.close()

    await asyncio.gather(*(client(number) for number in range(clients)))
    return Load(time.perf_counter() - begun, latencies)
