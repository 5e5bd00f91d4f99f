"""HTTP for the doors, by aiohttp's parser and writer, which the doors do not know."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from http import HTTPStatus
from typing import Any, ClassVar, Final
from urllib.parse import quote

from aiohttp import web
from aiohttp.client_exceptions import ClientError
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import RequestPayloadError

from paxosblock.base.units import KIB
from paxosblock.errors import DeadlineError, InvalidRequestError, PaxosBlockError, UnavailableError
from paxosblock.gateway.arrival import arrived, left_bytes
from paxosblock.gateway.exchange import (
    ARRIVED_BYTES,
    Answer,
    Exchange,
    Sent,
    StreamedBody,
    Traffic,
)
from paxosblock.net.port.admission import Slot
from paxosblock.net.port.http_server import HeadWatch, HttpConnection, slot_of

LINE_BYTES_MAX: Final = 64 * KIB
"""A path of HDFS's 8,000 bytes, each of them percent-encoded, twice in a line, and a token."""
READ_BYTES: Final = 256 * KIB
"""The most that a loop, asyncio's or uvloop's, takes from a socket at a time."""
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"

_log = logging.getLogger(__name__)


class HttpEngine:
    """Answers the requests of connections with what the doors say."""

    def __init__(
        self,
        answer: Callable[[Exchange], Awaitable[Answer]],
        refusal: Callable[[int, str], Answer],
        idle_s: float,
    ) -> None:
        """`answer` raises nothing. `refusal` is the answer of this status to what is no request;
        no byte of a body may come or go for `idle_s`."""
        self._answer, self._refusal, self._idle_s = answer, refusal, idle_s
        self._watched: set[asyncio.Task[None]] = set()

    @property
    def server(self) -> web.Server:
        """The server of aiohttp that calls the doors."""
        return web.Server(self._handle)

    def connect(self, server: web.Server, heads: HeadWatch, slot: Slot) -> HttpConnection:
        """Return the protocol of a connection."""
        return DoorConnection(server, heads, slot, self._idle_s, self._refusal)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        answer = await self._answered(request)
        body = answer.body
        if isinstance(body, StreamedBody):
            async with aclosing(body):
                return await self._stream(request, answer, body)
        response = _Whole(status=answer.status, headers=answer.headers, body=body)
        _close_if_unread(request, response)
        if answer.sent is not None:
            await self._send_watched(request, response, answer.sent)
        return response

    async def _send_watched(
        self, request: web.BaseRequest, response: web.StreamResponse, sent: Sent
    ) -> None:
        """Send an answer, and find out beside what follows if it arrived."""
        connection = request.protocol
        assert isinstance(connection, DoorConnection), "it is made by `connect`"
        transport, requests = connection.transport, connection.requests
        try:
            await response.prepare(request)
            await response.write_eof()
        except ConnectionError:
            transport = None

        def goes_on() -> bool:
            written = transport is not None
            return written and (connection.requests > requests or connection.took_all)

        async def tell() -> None:
            await sent(came=await arrived(transport, goes_on))

        task = asyncio.create_task(tell())
        self._watched.add(task)
        task.add_done_callback(self._watched.discard)

    async def _answered(self, request: web.BaseRequest) -> Answer:
        try:
            slot_of(request).prove()
        except UnavailableError as error:
            return self._refusal(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        return await self._answer(_HttpExchange(request, self._idle_s))

    async def _stream(
        self, request: web.BaseRequest, answer: Answer, body: StreamedBody
    ) -> web.StreamResponse:
        response = _Streamed(status=answer.status, headers=answer.headers)
        response.content_length = body.length
        _close_if_unread(request, response)
        try:
            await response.prepare(request)
            async for piece in body.pieces:
                await response.write(piece)
                body.traffic.sent_bytes += len(piece)
                del piece  # its buffer is used again
            await response.write_eof()
        except PaxosBlockError as error:
            # What was said of the length would be a lie, were it ended: the caller must notice.
            _log.warning("an answer to %s was cut: %s", request.remote, error)
            if request.transport is not None:
                request.transport.abort()
            raise ConnectionResetError("the answer was cut") from None
        except ConnectionError:  # of this kind aiohttp tells no traceback
            raise ConnectionResetError("the reader has left") from None
        return response


def _close_if_unread(request: web.BaseRequest, response: web.StreamResponse) -> None:
    """Let no rest of a body be taken for the next request."""
    if not request.content.is_eof():
        response.force_close()


class _HttpExchange:
    """A request as aiohttp has it."""

    def __init__(self, request: web.BaseRequest, idle_s: float) -> None:
        self._request, self._idle_s = request, idle_s
        self._asked = False
        self.traffic = Traffic()

    @property
    def method(self) -> str:
        return self._request.method

    @property
    def target(self) -> str:
        return self._request.raw_path

    @property
    def headers(self) -> Mapping[str, str]:
        return self._request.headers

    @property
    def address(self) -> str:
        return self._request.remote or ""

    @property
    def origin(self) -> str:
        host = self._request.headers.get("Host", "")
        if not host:  # of HTTP/1.0: the address that it reached
            name, port = self._request.get_extra_info("sockname")[:2]
            host = f"[{name}]:{port}" if ":" in name else f"{name}:{port}"
        return f"{'https' if self._request.secure else 'http'}://{host}"

    @property
    def has_body(self) -> bool:
        return self._request.can_read_body

    async def body(self) -> AsyncIterator[bytes]:
        await self._ask()
        content = self._request.content
        while True:
            try:
                async with asyncio.timeout(self._idle_s):
                    piece = await content.readany()
            except TimeoutError as error:
                raise DeadlineError("the rest of the request did not come") from error
            except _BROKEN as error:
                raise InvalidRequestError("the request ended before its end") from error
            if not piece:
                return
            self.traffic.received_bytes += len(piece)
            yield piece

    async def _ask(self) -> None:
        """Ask for the body, where its sender waits for that."""
        if not self._asked and self._request.headers.get("Expect", "").lower() == "100-continue":
            await self._request.writer.write(CONTINUE)
            self._request.writer.output_size = 0  # it is no part of the answer
        self._asked = True


_BROKEN: Final = RequestPayloadError, HttpProcessingError, ConnectionError, ClientError


class _Untyped(web.StreamResponse):
    """An answer whose content has no type unless the door gives it one.

    Hadoop's client looks a type up by a library that Spark does not bring, and fails.
    """

    async def _prepare_headers(self) -> None:
        typed = "Content-Type" in self.headers
        await super()._prepare_headers()
        if not typed:
            self.headers.pop("Content-Type", None)


class _Whole(_Untyped, web.Response):
    """An answer that is there."""


class _Streamed(_Untyped):
    """An answer that is made while it is sent."""


class DoorConnection(HttpConnection):
    """A connection of a program that knows nothing of this project."""

    HEAD_BYTES_MAX: ClassVar = 2 * LINE_BYTES_MAX
    BOUNDS: ClassVar[Mapping[str, Any]] = {
        "max_line_size": LINE_BYTES_MAX,
        "max_field_size": 16 * KIB,
        "max_headers": 64,
        # No more is read once twice as much waits, and what is read at a time may come on top.
        "read_bufsize": (ARRIVED_BYTES - READ_BYTES) // 2,
    }

    __slots__ = ("_last_body", "_line_came", "_refusal", "took_all")

    def __init__(
        self,
        server: web.Server,
        heads: HeadWatch,
        slot: Slot,
        stall_s: float,
        refusal: Callable[[int, str], Answer],
    ) -> None:
        super().__init__(server, heads, slot, stall_s)
        self._refusal = refusal
        self._line_came = False
        self._last_body: StreamReader | None = None
        self.took_all = False
        """The caller has closed its side, and had all that was sent until then."""

    @property
    def requests(self) -> int:
        """The number of requests that came so far."""
        return self._request_count

    def eof_received(self) -> None:
        """Note if the caller, who sends no more, has acknowledged all that was sent."""
        if self.transport is not None:
            self.took_all = not left_bytes(self.transport)
        super().eof_received()

    def data_received(self, data: bytes) -> None:
        """Pass bytes on; those of a request line that are not ASCII as the parser wants them."""
        # Only where the parser has seen the end of the body before does a line begin: what is
        # changed anywhere else is a byte of a file.
        if self._last_body is None or self._last_body.is_eof():
            if not data.isascii() and not self._line_came:
                line, end, rest = data.partition(b"\n")
                data = _escaped(line) + end + rest
            self._line_came = self._line_came or b"\n" in data
        before = self._request_count
        super().data_received(data)
        if self._request_count > before:
            self._line_came = False
            _, self._last_body = self._messages[-1]

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """As that of every connection, in the words of the doors."""
        super().handle_error(request, status, exc, message)
        words = "the gateway failed" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "no HTTP"
        answer = self._refusal(status, words)
        assert isinstance(answer.body, bytes), "a refusal is short"
        response = _Whole(status=answer.status, headers=answer.headers, body=answer.body)
        response.force_close()
        return response


_ASCII: Final = bytes(range(128))


def _escaped(line: bytes) -> bytes:
    """Return a line with each byte that is not ASCII percent-encoded: Hadoop sends UTF-8."""
    return quote(line, safe=_ASCII).encode()
