"""A connection that begins as an HTTP Upgrade and speaks something else afterwards.

A caller asks `GET <path>` with `Upgrade: <protocol>` on a node's only port. The node answers `101`,
and nothing after its headers: the caller speaks first. A protocol has its version in its name, so
that a node of another version is told in one line. This is the caller's end, where each connection
of ours is made: by `connect` on an event loop, by `dial` without one. `upgrade_server.py` is the
node's.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from paxosblock.base.units import KIB
from paxosblock.errors import Outcome, PaxosBlockError, ProtocolError, UnavailableError
from paxosblock.net.port.access import OPEN, Access, Introduction, dialled
from paxosblock.net.wire import decode_error

ERROR_TYPE: Final = "application/msgpack"
MAX_HANDSHAKE_BYTES: Final = 16 * KIB
READ_BYTES: Final = 4096

E = TypeVar("E", bound=asyncio.BaseProtocol)


@dataclass(frozen=True, slots=True)
class Spoken:
    """A protocol that a connection speaks from its Upgrade on, with its version; the path that is
    asked for it."""

    path: str
    protocol: str


CALLS: Final = Spoken("/calls", "paxosblock-calls/1")
STREAM: Final = Spoken("/stream", "paxosblock-stream/3")

Answer = Generator[None, bytes, dict[str, str]]
"""Gets the bytes of an answer as they come, b"" at their end; returns its headers, by their names
in small letters."""


def head(peer: str, spoken: Spoken, headers: Mapping[str, str]) -> bytes:
    """Return the request to speak this, with the caller's own `headers`."""
    lines = {"Host": peer, "Upgrade": spoken.protocol, "Connection": "Upgrade", **headers}
    fields = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"GET {spoken.path} HTTP/1.1\r\n{fields}\r\n".encode()


def answer(peer: str, spoken: Spoken) -> Answer:
    """Read the answer to that request; begin it, then send it the bytes that come.

    Raises:
        ProtocolError: something answers that does not speak this.
        PaxosBlockError: the node refuses the connection and says why.
    """
    protocol, came = spoken.protocol, b""
    while b"\r\n\r\n" not in came:
        more = yield
        came += more
        if not more:
            raise UnavailableError(f"{peer} hung up before it answered", peer=peer)
        if len(came) > MAX_HANDSHAKE_BYTES or not _may_be_http(came):
            raise ProtocolError(
                f"{peer} is no paxosblock node: it answered {came[:40]!r}", peer=peer
            )
    head, _, tail = came.partition(b"\r\n\r\n")
    status, *lines = head.decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    if not status.startswith("HTTP/1.1 101"):
        raise (yield from _refusal(peer, f"{protocol}: {status}", headers, tail))
    if headers.get("upgrade", "").lower() != protocol:
        raise ProtocolError(f"{peer} does not speak {protocol}", peer=peer)
    if tail:
        raise ProtocolError(f"{peer} sent {len(tail)} bytes before it was asked", peer=peer)
    return headers


async def connect(
    host: str,
    port: int,
    spoken: Spoken,
    make_end: Callable[[bytes], E],
    *,
    timeout_s: float,
    headers: Mapping[str, str] | None = None,
    tune: Callable[[socket.socket], None] = lambda _: None,
    access: Access = OPEN,
    about: str = "",
) -> E:
    """Open a connection to the node at host:port that speaks this from now on.

    Args:
        host: a name or an address.
        port: the node's only one.
        spoken: what both ends speak.
        make_end: makes our end of it; gets the key that both ends have since they proved a secret
            to each other, b"" if they did not.
        timeout_s: for all of it.
        headers: the caller's own.
        tune: sets options of the socket before it connects.
        access: has the secret that both ends prove.
        about: is proven, too; both ends know it.

    Raises:
        UnavailableError: nothing answers there within `timeout_s`; `details["nobody_listens"]` is
            true if the machine itself says so.
        ProtocolError: something answers that does not speak this.
        AccessDeniedError: the node does not know our secret, or wants one that we lack.
        PaxosBlockError: the node refuses the connection and says why.
        In each case nothing was asked yet.
    """
    peer = f"{host}:{port}"
    try:
        async with asyncio.timeout(timeout_s):
            sock = await _open_socket(host, port, tune)
            try:
                to = dialled(host, port, sock.getpeername())
                introduction = access.introduction(spoken.path + about, to)
                key = await _agree(sock, peer, spoken, headers or {}, introduction)
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
        number = error.errno or 0  # negative if a name has no address
        reason = os.strerror(number).lower() if number > 0 else error.strerror or str(error)
        nobody = isinstance(error, ConnectionRefusedError)
        text = f"{peer} cannot be reached: {reason}"
        raise UnavailableError(text, peer=peer, nobody_listens=nobody) from error
    end = make_end(key)
    await asyncio.get_running_loop().create_connection(lambda: end, sock=sock)
    return end


def dial(address: str, timeout_s: float) -> socket.socket:
    """Return a socket that blocks, connected to the node at `address` (host:port).

    Raises:
        UnavailableError: it is no address, or nothing answers there.
    """
    try:
        return socket.create_connection(split_address(address), timeout_s)
    except OSError as error:
        raise unreachable(address, error) from error


def unreachable(address: str, error: OSError) -> UnavailableError:
    """Return the error of a caller that blocks, for that of its socket before it asked anything."""
    reason = (error.strerror or str(error)).lower()
    return UnavailableError(f"cannot connect to {address}: {reason}", address=address)


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of "host:port" or "[ipv6]:port".

    Raises:
        UnavailableError: it is not an address.
    """
    host, colon, port = address.rpartition(":")
    is_port = port.isascii() and port.isdigit() and int(port) < 1 << 16
    if not (colon and host.split() == [host] and is_port):
        raise UnavailableError(f"{address!r} is not an address: write host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


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
        # The program ends, and its pools of threads take no more work: nothing else runs meanwhile.
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)


async def _agree(
    sock: socket.socket,
    peer: str,
    spoken: Spoken,
    headers: Mapping[str, str],
    introduction: Introduction,
) -> bytes:
    """Speak this from now on; return the key that both ends have then."""
    loop, own = asyncio.get_running_loop(), {**headers, **introduction.headers}
    await loop.sock_sendall(sock, head(peer, spoken, own))
    answered = await _receive(sock, answer(peer, spoken))
    if proof := introduction.proof(peer, answered):
        await loop.sock_sendall(sock, proof)
    return introduction.key(answered)


async def _receive(sock: socket.socket, reading: Answer) -> dict[str, str]:
    loop = asyncio.get_running_loop()
    next(reading)
    while True:
        came = await loop.sock_recv(sock, READ_BYTES)
        try:
            reading.send(came)
        except StopIteration as end:
            headers: dict[str, str] = end.value
            return headers


def _may_be_http(answer: bytes) -> bool:
    return answer[:5] == b"HTTP/"[: len(answer)]


def _refusal(
    peer: str, status: str, headers: Mapping[str, str], body: bytes
) -> Generator[None, bytes, PaxosBlockError]:
    """Yield the node's own reason when it gave one."""
    length = headers.get("content-length", "")
    if headers.get("content-type") == ERROR_TYPE and length.isdigit():
        while len(body) < min(int(length), MAX_HANDSHAKE_BYTES):
            more = yield
            if not more:
                break
            body += more
        with suppress(ProtocolError):
            return decode_error(body)
    return ProtocolError(f"{peer} does not speak {status}", peer=peer)
