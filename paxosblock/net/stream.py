"""The data stream: frames on a connection that began as an HTTP Upgrade.

A client asks `GET /stream` with `Upgrade: paxosblock-stream/1` on a node's only port. After the
`101` both ends speak frames (wire.py) and nothing else; the client sends its first frame when it
has the `101`. `connection.py` is what each end does then; `calls.py` puts requests and replies on
top. Here is how the two ends find each other.
"""

from __future__ import annotations

import asyncio
import contextlib
import email.message
import email.parser
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from aiohttp import web

from paxosblock.errors import (
    DeadlineError,
    Outcome,
    PaxosBlockError,
    ProtocolError,
    UnavailableError,
)
from paxosblock.net.admission import Slot
from paxosblock.net.bodies import STALL_S
from paxosblock.net.connection import (
    HIGH_WATER_BYTES,
    FrameConnection,
    FrameHandler,
    tune_socket,
)
from paxosblock.net.http_server import HttpConnection
from paxosblock.net.refusals import Refusal, Refusals
from paxosblock.net.wire import decode_error, encode_error
from paxosblock.units import KIB

__all__ = ["FrameConnection", "FrameHandler", "connect", "upgrade_handler"]

UPGRADE: Final = "paxosblock-stream/1"
STREAM_PATH: Final = "/stream"
ERROR_TYPE: Final = "application/msgpack"
SHUTDOWN_SECONDS: Final = 1.0
MAX_HANDSHAKE_BYTES: Final = 16 * KIB


# -- the server's end ---------------------------------------------------------------------------

MakeHandler = Callable[[web.Request], FrameHandler]


def upgrade_handler(
    app: web.Application,
    make_handler: MakeHandler,
    *,
    stall_s: float = STALL_S,
    refusals: Refusals | None = None,
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """The handler of `GET /stream`: `app.router.add_get(STREAM_PATH, upgrade_handler(app, ...))`.

    `make_handler` makes the `FrameHandler` of a new connection; a `PaxosBlockError` that it raises
    refuses the connection. When `app` shuts down, the open streams are closed.

    One on which no frame ever comes, or the rest of one does not come, is closed when that has
    lasted for `stall_s`, and counted in `refusals`; any other may be silent.
    """
    connections: dict[FrameConnection, Slot] = {}
    watch = _StallWatch(stall_s, refusals or Refusals())

    def lost(connection: FrameConnection) -> None:
        connections.pop(connection).release()
        watch.end(connection)

    async def upgrade(request: web.Request) -> web.StreamResponse:
        if request.headers.get("Upgrade", "").lower() != UPGRADE:
            return web.Response(
                status=426,
                headers={"Upgrade": UPGRADE, "Connection": "Upgrade"},
                text=f"{STREAM_PATH} speaks {UPGRADE} only\n",
            )
        try:
            _refuse_spare(request)
            handler = make_handler(request)
        except PaxosBlockError as error:
            return web.Response(
                status=error.http_status, body=encode_error(error), content_type=ERROR_TYPE
            )
        transport = request.transport
        if transport is not None:
            connection = FrameConnection(handler, _peer_of(transport), on_lost=lost)
            slot = take_over(request, transport, connection, {"Upgrade": UPGRADE})
            connections[connection] = slot
            watch.begin(connection)
        return web.Response(status=101)  # for the access log; it finds the connection gone

    async def close_all(_app: web.Application) -> None:
        await close_connections(tuple(connections))

    app.on_shutdown.append(close_all)
    return upgrade


class _StallWatch:
    """Looks every `stall_s` for streams whose peer has begun something and does not go on."""

    def __init__(self, stall_s: float, refusals: Refusals) -> None:
        self._stall_s, self._refusals = stall_s, refusals
        self._received: dict[FrameConnection, int | None] = {}  # at the last look
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, connection: FrameConnection) -> None:
        self._received[connection] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._stall_s, self._look)

    def end(self, connection: FrameConnection) -> None:
        del self._received[connection]
        if not self._received and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._stall_s, self._look)
        for connection, before in self._received.items():
            now = connection.received_bytes
            due = now == 0 or connection.awaits_rest
            if due and now == before:
                self._give_up(connection)
            self._received[connection] = now

    def _give_up(self, connection: FrameConnection) -> None:
        why = Refusal.BODY_STALLED if connection.received_bytes else Refusal.NO_HEAD
        self._refusals.count(why, connection.peer)
        connection.abort(DeadlineError(f"{connection.peer} did not send the rest of a frame"))


def _refuse_spare(request: web.Request) -> None:
    """Raise UnavailableError when the connection is one beyond the cap, which must not stay."""
    http = request.protocol
    if isinstance(http, HttpConnection) and http.slot.spare:
        raise UnavailableError("the node has as many connections as it takes; try again")


def _peer_of(transport: asyncio.Transport) -> str:
    host, port, *_ = transport.get_extra_info("peername") or ("?", 0)
    return f"{host}:{port}"


def take_over(
    request: web.Request,
    transport: asyncio.Transport,
    protocol: asyncio.BaseProtocol,
    headers: Mapping[str, str],
) -> Slot:
    """Move the request's transport from aiohttp to `protocol`; to aiohttp it looks closed.

    `headers` of the `101` name what is spoken from now on.

    Returns:
        The connection's slot, to be released when it is lost, or need not count any more.
    """
    http = request.protocol
    slot = http.hand_over() if isinstance(http, HttpConnection) else Slot(None, "")
    # A uvloop transport chooses how to read when reading starts: buffered or not.
    transport.pause_reading()
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    http.transport = None
    http.connection_lost(None)
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    transport.write(
        f"HTTP/1.1 101 Switching Protocols\r\n{lines}Connection: Upgrade\r\n\r\n".encode()
    )
    transport.resume_reading()
    return slot


async def close_connections(connections: tuple[FrameConnection, ...]) -> None:
    """Close all; what a peer does not read within a second is dropped."""
    for connection in connections:
        connection.close()
    closing = [asyncio.create_task(connection.wait_closed()) for connection in connections]
    if closing:
        await asyncio.wait(closing, timeout=SHUTDOWN_SECONDS)
    for connection in connections:
        connection.abort()
    for task in closing:
        await task


# -- the client's end ---------------------------------------------------------------------------


async def connect(
    host: str,
    port: int,
    handler: FrameHandler,
    *,
    timeout_s: float = 5.0,
    high_water_bytes: int = HIGH_WATER_BYTES,
) -> FrameConnection:
    """Open a data stream to the node at host:port.

    Raises:
        UnavailableError: nobody answers there within `timeout_s`; nothing was done.
        ProtocolError: somebody answers, but not a node's data stream.
        PaxosBlockError: the node refuses the connection and says why.
    """
    peer = f"{host}:{port}"
    try:
        async with asyncio.timeout(timeout_s):
            sock = await _open_socket(host, port)
            try:
                await _send_upgrade(sock, peer)
                await _expect_switch(sock, peer)
            except BaseException:
                sock.close()
                raise
    except PaxosBlockError as error:
        error.with_outcome(Outcome.NEVER)  # whatever it says: nothing was asked yet
        raise
    except TimeoutError as error:
        raise UnavailableError(
            f"{peer} did not answer within {timeout_s:.3g} s", peer=peer
        ) from error
    except OSError as error:
        raise UnavailableError(f"{peer} cannot be reached: {error}", peer=peer) from error
    connection = FrameConnection(handler, peer, high_water_bytes=high_water_bytes)
    await asyncio.get_running_loop().create_connection(lambda: connection, sock=sock)
    return connection


async def _open_socket(host: str, port: int) -> socket.socket:
    """A connected socket to the first of the host's addresses that answers."""
    loop = asyncio.get_running_loop()
    addresses = await _resolve(host, port)
    refused: OSError | None = None
    for family, kind, protocol, _, address in addresses:
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            tune_socket(sock)
            await loop.sock_connect(sock, address)
        except OSError as error:
            refused = error
            sock.close()
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise refused or OSError("the name has no address")


async def _resolve(host: str, port: int) -> Sequence[tuple[Any, ...]]:
    try:
        return await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except RuntimeError:
        # The program ends, and its pools of threads take no more work: nothing else waits here.
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)


async def _send_upgrade(sock: socket.socket, peer: str) -> None:
    request = (
        f"GET {STREAM_PATH} HTTP/1.1\r\nHost: {peer}\r\n"
        f"Upgrade: {UPGRADE}\r\nConnection: Upgrade\r\n\r\n"
    )
    await asyncio.get_running_loop().sock_sendall(sock, request.encode())


async def _expect_switch(sock: socket.socket, peer: str) -> None:
    """Read the answer to the upgrade. Nothing may come after it: the first frame is ours."""
    answer = b""
    while b"\r\n\r\n" not in answer:
        more = await asyncio.get_running_loop().sock_recv(sock, 4096)
        answer += more
        if not more:
            raise UnavailableError(f"{peer} hung up before it answered", peer=peer)
        if len(answer) > MAX_HANDSHAKE_BYTES or not _may_be_http(answer):
            raise ProtocolError(
                f"{peer} is no paxosblock node: it answered {answer[:40]!r}", peer=peer
            )
    head, _, tail = answer.partition(b"\r\n\r\n")
    status, _, lines = head.decode("latin-1").partition("\r\n")
    headers = email.parser.HeaderParser().parsestr(lines)
    if not status.startswith("HTTP/1.1 101"):
        raise await _refusal(sock, peer, status, headers, tail)
    if headers.get("Upgrade", "").lower() != UPGRADE:
        raise ProtocolError(f"{peer} does not speak {UPGRADE}", peer=peer)
    if tail:
        raise ProtocolError(f"{peer} sent {len(tail)} bytes before it was asked", peer=peer)


def _may_be_http(answer: bytes) -> bool:
    return answer[:5] == b"HTTP/"[: len(answer)]


async def _refusal(
    sock: socket.socket, peer: str, status: str, headers: email.message.Message, body: bytes
) -> PaxosBlockError:
    """The node's own reason when it gave one."""
    length = headers.get("Content-Length", "")
    if headers.get("Content-Type") == ERROR_TYPE and length.isdigit():
        while len(body) < min(int(length), MAX_HANDSHAKE_BYTES):
            more = await asyncio.get_running_loop().sock_recv(sock, 4096)
            if not more:
                break
            body += more
        with contextlib.suppress(ProtocolError):
            return decode_error(body)
    return ProtocolError(f"{peer} has no paxosblock data stream: {status}", peer=peer)
