"""A request to a door and its answer, without a socket: what stands between doors and HTTP."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from paxosblock.base.checksum import Buffer
from paxosblock.base.units import KIB

ARRIVED_BYTES: Final = 384 * KIB
"""Bytes of a body that may have come before they are asked for."""


@dataclass(slots=True)
class Traffic:
    """The bytes that came and went with requests."""

    received_bytes: int = 0
    sent_bytes: int = 0


class Exchange(Protocol):
    """A request that waits for its answer."""

    traffic: Traffic
    """It counts the bytes of the body as they come."""

    @property
    def method(self) -> str:
        """The method, in capitals."""

    @property
    def target(self) -> str:
        """The path and the query as they came: nothing in them is decoded."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, by names in which case does not count."""

    @property
    def address(self) -> str:
        """The host at which the connection begins."""

    @property
    def origin(self) -> str:
        """The scheme and the host as the caller named them, such as `http://gw:14000`."""

    @property
    def has_body(self) -> bool:
        """True if bytes come with it, or were announced."""

    def body(self) -> AsyncIterator[bytes]:
        """Yield the bytes that come with it, once; a caller that waits to be asked for them is
        asked now.

        Raises:
            InvalidRequestError: they end before their end.
            DeadlineError: none came for too long.
        """


class StreamedBody:
    """The body of an answer that is made while it is sent, and what is given back behind it."""

    def __init__(
        self,
        pieces: AsyncIterator[Buffer],
        length: int | None,
        release: contextlib.AsyncExitStack | None = None,
    ) -> None:
        """`length` in bytes, None where it is not known before the end; all of it is sent or the
        connection is cut."""
        self.pieces = pieces
        self.length = length
        self.release = release or contextlib.AsyncExitStack()
        self.traffic = Traffic()
        """It counts the bytes as they go."""

    async def aclose(self) -> None:
        """Give back what it holds, sent or not."""
        close = getattr(self.pieces, "aclose", None)
        try:
            if close is not None:
                await close()
        finally:
            await self.release.aclose()


class Sent(Protocol):
    """Hears, once, what became of an answer that was sent."""

    async def __call__(self, *, came: bool) -> None:
        """Hear if all of it arrived: where `came` is False it never will."""


@dataclass(slots=True)
class Answer:
    """The answer to a request. It has no `Content-Type` unless `headers` say so."""

    status: int
    body: bytes | StreamedBody = b""
    headers: dict[str, str] = field(default_factory=dict)
    sent: Sent | None = None
    """Asks to be told if the answer arrived; only of one that is there, as bytes."""
    failed: bool = False
    """Nothing was wrong with the request: the gateway or its cluster failed. A status of 5xx says
    so by itself."""


async def answered_with(run: Callable[[contextlib.AsyncExitStack], Awaitable[Answer]]) -> Answer:
    """Return what `run` answers. What it puts on the stack is given back when the answer was sent.

    Raises: as `run`.
    """
    async with contextlib.AsyncExitStack() as stack:
        answer = await run(stack)
        if isinstance(answer.body, StreamedBody):
            answer.body.release = stack.pop_all()
        return answer
