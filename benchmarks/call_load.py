"""A source of control calls: many callers on connections like those of clients.

The load generator shares the machine's cores with the nodes that it measures. It makes a call as
`RpcClient` does, without the search for the NameNode that leads.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from paxosblock.api.methods import Method
from paxosblock.base.encoding import msgpack_decoder
from paxosblock.net.calls.rpc import CallLink, OutgoingCall, open_link

Q = TypeVar("Q")
A = TypeVar("A")

TIMEOUT_S = 60.0
CALLS_AT_LEAST = 3


class Connection:
    """One connection, one caller."""

    def __init__(self, link: CallLink) -> None:
        self._link = link

    async def call(self, method: Method[Q, A], request: Q) -> A:
        """Return the answer. Raises what the node reported, or that the connection is lost."""
        body = msgspec.msgpack.encode(request)
        question = OutgoingCall(
            method.name, "benchmark", body, msgpack_decoder(method.answer), TIMEOUT_S
        )
        answer: A = await self._link.send(question)
        return answer

    def close(self) -> None:
        """Hang up."""
        self._link.close()


async def connect(address: str) -> Connection:
    """Return a connection to a node (host:port). Raises what `open_link` does."""
    return Connection(await open_link(address, TIMEOUT_S, lambda _: None))


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
    """Let `clients` make one call after the other, until `seconds` are over or their requests are;
    each makes a few calls at least.

    `requests(client)` returns those of one client.
    """
    latencies: list[float] = []
    begun = time.perf_counter()

    async def client(number: int) -> None:
        connection = await connect(address)
        for place, request in enumerate(requests(number)):
            called = time.perf_counter()
            if called - begun > seconds and place >= CALLS_AT_LEAST:
                break
            await connection.call(method, request)
            latencies.append(time.perf_counter() - called)
        connection.close()

    await asyncio.gather(*(client(number) for number in range(clients)))
    return Load(time.perf_counter() - begun, latencies)
