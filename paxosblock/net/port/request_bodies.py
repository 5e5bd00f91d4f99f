"""Reads the bodies of requests, and limits their length, their time and their memory."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler, RequestPayloadError

from paxosblock.api.limits import MAX_BODY_BYTES
from paxosblock.base.units import KIB, MIB
from paxosblock.errors import (
    DeadlineError,
    InvalidRequestError,
    PaxosBlockError,
    UnavailableError,
)
from paxosblock.net.port.http_server import STALL_S, HttpConnection, slot_of
from paxosblock.net.port.refusals import Refusal, Refusals

SMALL_BODY_BYTES: Final = 16 * KIB
"""A body of at most this many bytes is always accepted; the cap on connections bounds them."""
PROGRESS_BYTES: Final = 64 * KIB
"""So many bytes of a body, or its end, must come in each `stall_s`: a byte now and then is not
enough."""


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """Bytes that all bodies under way may have, and seconds for which one may stand still."""

    memory_bytes: int = 128 * MIB
    stall_s: float = STALL_S


class RequestBodies:
    """The bodies that are being read."""

    def __init__(self, limits: BodyLimits | None = None, refusals: Refusals | None = None) -> None:
        """Start without a body under way."""
        self.limits = limits or BodyLimits()
        self.refusals = refusals or Refusals()
        self.held_bytes = 0

    async def read(self, request: web.BaseRequest) -> bytes | bytearray:
        """Return the body, which the caller must decode before others run.

        Raises:
            InvalidRequestError: it is too long, or ended before its end.
            UnavailableError: other bodies use all the memory for bodies, or the node has no place
                left for this connection.
            DeadlineError: it stood still or came too slowly; the connection is closed.
        """
        if request.content.is_eof():  # it came together with the head, as nearly all bodies do
            return request.content.read_nowait()
        if (request.content_length or 0) > MAX_BODY_BYTES:
            raise _too_long()
        body = bytearray()
        connection = request.protocol
        try:
            with _reading(connection):
                await self._read_parts(request, body)
        except PaxosBlockError:
            raise
        except TimeoutError as error:
            self.refusals.count(Refusal.BODY_STALLED, request.remote or "")
            request.protocol.force_close()  # a peer that sends nothing may read nothing, either
            raise DeadlineError("the rest of the request did not come") from error
        except (RequestPayloadError, HttpProcessingError, ConnectionError) as error:
            raise InvalidRequestError(f"the request ended before its end: {error}") from error
        finally:
            self.count(0, counted(len(body)), "")
        slot_of(request).prove()
        return body

    async def _read_parts(self, request: web.BaseRequest, body: bytearray) -> None:
        """Raise TimeoutError if the body comes too slowly, and as `read`."""
        stall_s, goal = self.limits.stall_s, PROGRESS_BYTES
        clock_s = asyncio.get_running_loop().time
        async with asyncio.timeout(stall_s) as patience:
            async for part in request.content.iter_any():
                self._take(request, body, part)
                if len(body) >= goal:
                    goal = len(body) + PROGRESS_BYTES
                    patience.reschedule(clock_s() + stall_s)

    def _take(self, request: web.BaseRequest, body: bytearray, part: bytes) -> None:
        if len(body) + len(part) > MAX_BODY_BYTES:
            raise _too_long()
        self.count(len(body) + len(part), counted(len(body)), request.remote or "")
        body += part

    def count(self, size_bytes: int, before_bytes: int, address: str) -> int:
        """Count a request that has `size_bytes` here now; return how many of them count.

        `before_bytes` is the number that the last call returned, 0 before the first.

        Raises:
            UnavailableError: other requests use all the memory for requests; nothing is changed.
        """
        now_bytes = counted(size_bytes)
        growth = now_bytes - before_bytes
        if growth > 0 and self.held_bytes + growth > self.limits.memory_bytes:
            self.refusals.count(Refusal.BODY_MEMORY, address)
            raise UnavailableError("the node has too many large requests under way; try again")
        self.held_bytes += growth
        assert self.held_bytes >= 0, "no request gives back more than it took"
        return now_bytes


@contextlib.contextmanager
def _reading(connection: RequestHandler) -> Iterator[None]:
    """Let the node close the connection meanwhile, if it needs it for another one."""
    if not isinstance(connection, HttpConnection):
        yield
        return
    connection.reads_body = True
    try:
        yield
    finally:
        connection.reads_body = False


def counted(size_bytes: int) -> int:
    """Return how much of a request of this size counts."""
    return max(0, size_bytes - SMALL_BODY_BYTES)


def _too_long() -> InvalidRequestError:
    return InvalidRequestError(f"the request has more than {MAX_BODY_BYTES} bytes")
