"""Control calls: `POST /rpc/<method>` with msgpack in both directions.

A 200 carries the answer; every other status carries the msgpack of a `PaxosBlockError`. The header
`X-Request-Id` names a call in the logs of both sides; calls made while a call is answered keep its
name (`REQUEST_ID`).
"""

from __future__ import annotations

import email.utils
import functools
import io
import itertools
import logging
import os
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, Self, TypeVar

import aiohttp
import msgspec
import yarl
from aiohttp import hdrs, web
from aiohttp.abc import AbstractStreamWriter

from paxosblock.api.methods import encode
from paxosblock.errors import (
    DeadlineError,
    InvalidRequestError,
    Outcome,
    OutcomeUnknownError,
    PaxosBlockError,
    ProtocolError,
    UnavailableError,
)
from paxosblock.net.bodies import Bodies
from paxosblock.net.control import split_address
from paxosblock.net.wire import decode_error, encode_error
from paxosblock.units import MIB

Q = TypeVar("Q")
A = TypeVar("A")

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

CONTENT_TYPE: Final = "application/msgpack"
LONG_BODY_BYTES: Final = MIB
"""aiohttp sends longer ones piece by piece, so that the event loop is not held up."""
REQUEST_ID: ContextVar[str] = ContextVar("paxosblock_request_id")
"""The name of the call that is being answered."""

_PATH: Final = "/rpc/"
_HEADERS: Final = {"Content-Type": CONTENT_TYPE}
_REQUEST_ID_HEADER: Final = "X-Request-Id"
_REQUEST_NUMBERS: Final = itertools.count(int.from_bytes(os.urandom(7), "big"))
_ENCODER = msgspec.msgpack.Encoder()
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Registered:
    decoder: msgspec.msgpack.Decoder[Any]
    handler: Callable[[Any], Awaitable[object]]


class RpcRouter:
    """The server's end: methods by name."""

    def __init__(self, bodies: Bodies | None = None) -> None:
        """`bodies` reads those of the requests; None: with the usual limits."""
        self._methods: dict[str, _Registered] = {}
        self._bodies = bodies or Bodies()

    def register(
        self, method: str, request_type: type[Q], handler: Callable[[Q], Awaitable[object]]
    ) -> None:
        """Let `handler` answer `POST /rpc/<method>`; it gets a `request_type`."""
        assert method not in self._methods
        self._methods[method] = _Registered(msgspec.msgpack.Decoder(request_type), handler)

    def add_to(self, app: web.Application) -> None:
        """Add the route of all methods to `app`; methods may be registered later."""

        async def handler(request: web.Request) -> web.StreamResponse:
            return await self._handle(request.match_info["method"], request)

        app.router.add_post(f"{_PATH}{{method}}", handler)

    def ahead_of(self, others: Handler) -> Handler:
        """A server's handler that answers control calls and leaves all else to `others`.

        An application to which the methods were added finds its way to them, too; but that takes
        longer than many a call does. So `others` only gets those with an unusual head.
        """

        def handler(request: web.BaseRequest) -> Awaitable[web.StreamResponse]:
            path = request.raw_path
            plain = request.method == hdrs.METH_POST and hdrs.EXPECT not in request.headers
            if plain and path.startswith(_PATH):
                return self._handle(path.removeprefix(_PATH), request)
            return others(request)

        return handler

    async def _handle(self, method: str, request: web.BaseRequest) -> web.StreamResponse:
        request_id = request.headers.get(_REQUEST_ID_HEADER) or _new_request_id()
        REQUEST_ID.set(request_id)
        started = time.perf_counter()
        status, body = await self._answer(method, request)
        _log.debug(
            "%s: %s %d in %.2f ms",
            request_id,
            method,
            status,
            (time.perf_counter() - started) * 1e3,
        )
        return _Answer(status, body)

    async def _answer(self, method: str, request: web.BaseRequest) -> tuple[int, bytes]:
        try:
            registered = self._methods.get(method)
            if registered is None:
                strange = ProtocolError(f"there is no control call {method!r} on this node")
                raise strange.with_outcome(Outcome.NEVER)
            message = _decode_request(method, registered, await self._bodies.read(request))
            return 200, _ENCODER.encode(await registered.handler(message))
        except PaxosBlockError as error:
            return error.http_status, encode_error(error)
        except Exception:
            _log.exception("%s: %s failed", REQUEST_ID.get(), method)
            reason = f"internal error in {method}; the node's log tells more"
            return 500, encode_error(OutcomeUnknownError(reason, request=REQUEST_ID.get()))


def _decode_request(method: str, registered: _Registered, body: bytes | bytearray) -> Any:
    try:
        return registered.decoder.decode(body)
    except msgspec.DecodeError as error:
        raise InvalidRequestError(f"malformed request of {method}: {error}") from error


class _Answer(web.StreamResponse):
    """An answer whose head and body leave in one piece.

    aiohttp's own `Response` composes the head from a dictionary of headers, for which it takes
    about as long as a NameNode for making a directory. The head of an answer is always the same.
    """

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(status=status)
        self._answer = body
        self._stays = False

    @property
    def keep_alive(self) -> bool:
        """True if the connection stays open: as the request asks."""
        return self._stays

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter:
        """Write all of it."""
        self._stays = request.keep_alive
        head = (
            f"HTTP/1.1 {self.status} {self.reason}\r\n"
            f"Content-Type: {CONTENT_TYPE}\r\n"
            f"Content-Length: {len(self._answer)}\r\n"
            f"Connection: {'keep-alive' if self._stays else 'close'}\r\n"
            f"Date: {_date(int(time.time()))}\r\n\r\n"
        )
        await request.writer.write(head.encode() + self._answer)
        return request.writer

    async def write_eof(self, data: bytes = b"") -> None:
        """There is nothing left to write."""


@functools.lru_cache(1)
def _date(second: int) -> str:
    """The time since the epoch as HTTP writes it."""
    return email.utils.formatdate(second, usegmt=True)


class RpcClient:
    """The client's end: keeps connections open and turns every failure into one of our errors."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; a later call opens new ones."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def call(
        self, address: str, method: str, request: object, response_type: type[A], timeout_s: float
    ) -> A:
        """Ask the node at `address` (host:port); every error names it and the method.

        Raises:
            InvalidRequestError: the request cannot even be written down.
            UnavailableError: the node cannot be reached; nothing was done.
            OutcomeUnknownError: the connection broke after the request was sent.
            DeadlineError: no answer within `timeout_s`; the request may have happened.
            ProtocolError: something else than a paxosblock node answers there.
            PaxosBlockError: what the node itself reported.
        """
        request_id = REQUEST_ID.get(None) or _new_request_id()
        status, content_type, body = await self._exchange(
            address, method, encode(request), request_id, timeout_s
        )
        _log.debug("%s: %s of %s answered %d", request_id, method, address, status)
        where = f"{method} of {address}"
        if content_type != CONTENT_TYPE:
            raise ProtocolError(
                f"{where}: this is no paxosblock node (HTTP {status}, {content_type})",
                address=address,
            )
        if status != 200:
            raise _reported(body, where, request_id)
        try:
            return msgspec.msgpack.decode(body, type=response_type)
        except msgspec.DecodeError as error:
            raise ProtocolError(f"{where}: malformed answer: {error}", address=address) from error

    async def _exchange(
        self, address: str, method: str, body: bytes, request_id: str, timeout_s: float
    ) -> tuple[int, str, bytes]:
        """The one place where aiohttp's errors become ours."""
        where = f"{method} of {address}"
        url = _url(address, method)
        try:
            async with self._open_session().post(
                url,
                data=body if len(body) <= LONG_BODY_BYTES else io.BytesIO(body),
                headers={**_HEADERS, _REQUEST_ID_HEADER: request_id},
                timeout=aiohttp.ClientTimeout(total=timeout_s, connect=timeout_s / 2),
                allow_redirects=False,
            ) as response:
                return response.status, response.content_type, await response.read()
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise UnavailableError(
                f"{where}: cannot be reached: {_reason(error)}", address=address
            ) from error
        except TimeoutError as error:
            raise DeadlineError(
                f"{where}: no answer in {timeout_s:.3g} s", address=address
            ) from error
        except aiohttp.ClientResponseError as error:
            raise ProtocolError(
                f"{where}: this is no paxosblock node: {error.message}", address=address
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            raise OutcomeUnknownError(
                f"{where}: connection lost: {error}", address=address
            ) from error

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent"),
            )
        return self._session


def _reported(body: bytes, where: str, request_id: str) -> PaxosBlockError:
    """The node's own error: its message is for the user, so where it came from is a note."""
    try:
        error = decode_error(body)
    except ProtocolError as malformed:
        return ProtocolError(f"{where}: {malformed}")
    if isinstance(error, ProtocolError):  # about the node: most likely the port is a wrong one
        return error.reworded(f"{where}: {error}")
    error.add_note(f"{where}, request {request_id}")
    return error


@functools.lru_cache(1024)
def _url(address: str, method: str) -> yarl.URL:
    """Raises UnavailableError when `address` is not host:port."""
    host, port = split_address(address)
    try:
        return yarl.URL.build(scheme="http", host=host, port=port, path=f"/rpc/{method}")
    except ValueError as error:
        raise UnavailableError(f"{address!r} is not an address: write host:port") from error


def _reason(error: OSError) -> str:
    """Return why a connection failed, in few words: the address is told anyway."""
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    number = cause.errno or 0  # negative where a name has no address
    return os.strerror(number).lower() if number > 0 else str(error)


def _new_request_id() -> str:
    """Names a call: a random start for each process, then counted."""
    return f"{next(_REQUEST_NUMBERS):016x}"
