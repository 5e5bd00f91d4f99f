"""A connection that begins as an HTTP Upgrade and speaks something else afterwards: both ends.

A caller asks `GET <path>` with `Upgrade: <protocol>` on a node's only port. The node answers `101`,
with headers of the protocol's own, and nothing after them: the caller speaks first.
"""

from __future__ import annotations

import asyncio
import contextlib
import email.message
import email.parser
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from aiohttp import web

from paxosblock.errors import Outcome, PaxosBlockError, ProtocolError, UnavailableError
from paxosblock.net.admission import Slot
from paxosblock.net.http_server import HttpConnection
from paxosblock.net.wire import decode_error, encode_error
from paxosblock.units import KIB

ERROR_TYPE: Final = "application/msgpack"
MAX_HANDSHAKE_BYTES: Final = 16 * KIB


# -- the called end -----------------------------------------------------------------------------


def refusal(error: PaxosBlockError) -> web.Response:
    """Return the answer to a caller that is not let in."""
    return web.Response(status=error.http_status, body=encode_error(error), content_type=ERROR_TYPE)


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


# -- the calling end ----------------------------------------------------------------------------


async def call(
    host: str,
    port: int,
    path: str,
    protocol: str,
    headers: Mapping[str, str],
    *,
    timeout_s: float,
    tune: Callable[[socket.socket], None],
) -> tuple[socket.socket, dict[str, str]]:
    """Open a connection to the node at host:port that speaks `protocol` from now on.

    `headers` are the caller's own; `tune` sets options of the socket before it connects.

    Returns:
        The connected socket, which does not block, and the headers of the answer.

    Raises:
        UnavailableError: nobody answers there within `timeout_s`.
        ProtocolError: somebody answers, but nobody who speaks `protocol`.
        PaxosBlockError: the node refuses the connection and says why.
        In each case nothing was asked yet.
    """
    peer = f"{host}:{port}"
    lines = {"Host": peer, "Upgrade": protocol, "Connection": "Upgrade", **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    try:
        async with asyncio.timeout(timeout_s):
            sock = await _open_socket(host, port, tune)
            try:
                request = f"GET {path} HTTP/1.1\r\n{head}\r\n"
                await asyncio.get_running_loop().sock_sendall(sock, request.encode())
                return sock, await _expect_switch(sock, peer, protocol)
            except BaseException:
                sock.close()
                raise
    except PaxosBlockError as error:
        error.with_outcome(Outcome.NEVER)  # whatever it says
        raise
    except TimeoutError as error:
        why = f"{peer} did not answer within {timeout_s:.3g} s"
        raise UnavailableError(why, peer=peer) from error
    except OSError as error:
        raise UnavailableError(f"{peer} cannot be reached: {error}", peer=peer) from error


async def _open_socket(
    host: str, port: int, tune: Callable[[socket.socket], None]
) -> socket.socket:
    """Connect to the first of the host's addresses that answers."""
    loop = asyncio.get_running_loop()
    addresses = await _resolve(host, port)
    refused: OSError | None = None
    for family, kind, protocol, _, address in addresses:
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            tune(sock)
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


async def _expect_switch(sock: socket.socket, peer: str, protocol: str) -> dict[str, str]:
    """Read the answer to the upgrade. Nothing may come after it: the caller speaks first."""
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
        raise await _refusal(sock, peer, f"{protocol}: {status}", headers, tail)
    if headers.get("Upgrade", "").lower() != protocol:
        raise ProtocolError(f"{peer} does not speak {protocol}", peer=peer)
    if tail:
        raise ProtocolError(f"{peer} sent {len(tail)} bytes before it was asked", peer=peer)
    return dict(headers.items())


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
    return ProtocolError(f"{peer} does not speak {status}", peer=peer)
