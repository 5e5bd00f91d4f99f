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
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast

from paxosblock.base.units import KIB
from paxosblock.errors import (
    CorruptionError,
    Outcome,
    PaxosBlockError,
    ProtocolError,
    UnavailableError,
)
from paxosblock.net.message_frames import MessageFrameKind, MessageFrames
from paxosblock.net.port.access import OPEN, Access, dialled
from paxosblock.net.wire import decode_error

if TYPE_CHECKING:
    from paxosblock.net.port.certified import CertifiedKind
    from paxosblock.net.port.tls import Tls

ERROR_TYPE: Final = "application/msgpack"
MAX_HANDSHAKE_BYTES: Final = 16 * KIB

CLOSED_WITHIN_S: Final = 1.0
"""Seconds for which a peer may hold up an end that closes: by what it does not read, or, with TLS,
by not closing its own."""

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
        if spoken is CALLS:
            yield from _goodbye(peer, tail)
        raise ProtocolError(f"{peer} sent {len(tail)} bytes before it was asked", peer=peer)
    return headers


def _goodbye(peer: str, came: bytes) -> Generator[None, bytes, None]:
    """Read what a node says before it was asked: a full one may need an idle connection for others
    as soon as it has agreed to it.

    Raises:
        UnavailableError: it says goodbye.
    """
    frames = MessageFrames()
    frames.feed(came)
    try:
        while (frame := frames.next()) is None:
            more = yield
            if not more:
                raise UnavailableError(f"{peer} hung up before it was asked", peer=peer)
            frames.feed(more)
    except (ProtocolError, CorruptionError):
        return
    if frame.kind is MessageFrameKind.GOODBYE:
        raise UnavailableError(f"{peer}: {decode_error(frame.payload)}", peer=peer)


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
    kind: CertifiedKind | None = None,
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
        access: has the secret that both ends prove, and the certificates of TLS.
        about: is proven, too; both ends know it.
        kind: the kind of node that must be there, where it shows a certificate; None: any.

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
            asking = await _reach(host, port, spoken, tune, access.tls, kind=kind)
            try:
                to = dialled(host, port, asking.transport.get_extra_info("peername"))
                hidden = asking.transport.get_extra_info("ssl_object") is not None
                introduction = access.introduction(spoken.path + about, to, hidden=hidden)
                own = {**(headers or {}), **introduction.headers}
                asking.transport.write(head(peer, spoken, own))
                answered = await asking.answered
                proof, key = introduction.proof(peer, answered), introduction.key(answered)
                return asking.give_way(proof, make_end(key))
            except BaseException:
                asking.transport.abort()
                raise
    except PaxosBlockError as error:
        error.with_outcome(Outcome.NEVER)  # whatever it says
        raise
    except TimeoutError as error:
        why = f"{peer} did not answer within {timeout_s:.3g} s"
        raise UnavailableError(why, peer=peer) from error
    except OSError as error:
        raise _unreached(peer, error, access.tls) from error


def _unreached(peer: str, error: OSError, tls: Tls | None) -> PaxosBlockError:
    """Return our error for that of a connection on which nothing was asked yet."""
    if tls is not None and (failure := tls.explained(peer, error)) is not None:
        return failure.with_outcome(Outcome.NEVER)
    number = error.errno or 0  # negative if a name has no address
    reason = os.strerror(number).lower() if number > 0 else error.strerror or str(error)
    nobody = isinstance(error, ConnectionRefusedError)
    text = f"{peer} cannot be reached: {reason}"
    return UnavailableError(text, peer=peer, nobody_listens=nobody)


class ConnectionEnd(Protocol):
    """Our end of a connection."""

    def close(self) -> None:
        """Close once everything is sent."""

    def abort(self) -> None:
        """Close at once; what is unsent is lost."""

    async def wait_closed(self) -> None:
        """Wait until it is closed."""


async def close_ends(ends: Sequence[ConnectionEnd]) -> None:
    """Close all; drop what a peer does not read within a second."""
    for end in ends:
        end.close()
    closing = [asyncio.create_task(end.wait_closed()) for end in ends]
    if closing:
        await asyncio.wait(closing, timeout=CLOSED_WITHIN_S)
    for end in ends:
        end.abort()
    for task in closing:
        await task


def dial(address: str, timeout_s: float, tls: Tls | None = None) -> socket.socket:
    """Return a socket that blocks, connected to the node at `address` (host:port).

    Raises:
        UnavailableError: it is no address, or nothing answers there.
        AccessDeniedError: one end does not believe the certificate of the other.
    """
    where = split_address(address)
    try:
        sock = socket.create_connection(where, timeout_s)
        if tls is None:
            return sock
        try:
            secured = tls.client.wrap_socket(sock, server_hostname=where[0])
        except TimeoutError as error:  # Python's words name a line of its own source
            sock.close()
            raise TimeoutError("the handshake was not answered") from error
        except OSError as error:
            sock.close()
            if tls.may_be_plain(error):
                return socket.create_connection(where, timeout_s)
            raise
    except OSError as error:
        raise unreachable(address, error, tls) from error
    try:
        tls.check_node(address, secured.getpeercert())
    except PaxosBlockError:
        secured.close()
        raise
    return secured


def is_hidden(connected: socket.socket) -> bool:
    """True if `dial` came to speak TLS on this socket."""
    return hasattr(connected, "getpeercert")  # without the import of ssl: a command starts fast


def unreachable(address: str, error: OSError, tls: Tls | None = None) -> PaxosBlockError:
    """Return the error of a caller that blocks, for that of its socket before it asked anything."""
    if tls is not None and (explained := tls.explained(address, error)) is not None:
        return explained
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


async def _reach(
    host: str,
    port: int,
    spoken: Spoken,
    tune: Callable[[socket.socket], None],
    tls: Tls | None,
    *,
    kind: CertifiedKind | None,
) -> _Asking:
    """Return a connection to the node at host:port on which nothing is asked yet, with TLS if we
    speak it, and if the node does or must."""
    loop, peer = asyncio.get_running_loop(), f"{host}:{port}"
    secured: dict[str, Any] = {}
    if tls is not None:
        secured = {"ssl": tls.client, "server_hostname": host, "ssl_shutdown_timeout": tls.END_S}
    sock = await _open_socket(host, port, tune)
    asking = _Asking(peer, spoken)
    try:
        await loop.create_connection(lambda: asking, sock=sock, **secured)
    except BaseException as error:
        # A transport that asyncio has only just begun is not closed by the end of its handshake.
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
        if tls is None or not (isinstance(error, OSError) and tls.may_be_plain(error)):
            raise
        return await _reach(host, port, spoken, tune, None, kind=kind)
    if tls is not None:
        try:
            tls.check_node(peer, asking.transport.get_extra_info("peercert"), kind)
        except PaxosBlockError:
            asking.transport.abort()
            raise
    return asking


class _Asking(asyncio.Protocol):
    """Our end of a connection until the node has answered what it speaks from now on."""

    transport: asyncio.Transport

    def __init__(self, peer: str, spoken: Spoken) -> None:
        self._peer = peer
        self._lost = False
        self._reading = answer(peer, spoken)
        next(self._reading)
        self.answered: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()
        """Gets the headers of the answer."""
        # A caller that has given up does not ask why it came to nothing.
        self.answered.add_done_callback(lambda got: got.cancelled() or got.exception())

    def give_way(self, proof: bytes, end: E) -> E:
        """Send the proof, and let `end` have the connection from now on; return it.

        Raises:
            UnavailableError: the connection is lost already.
        """
        transport = self.transport
        if self._lost:
            raise UnavailableError(f"{self._peer} hung up after it answered", peer=self._peer)
        if proof:
            transport.write(proof)
        transport.set_protocol(end)
        end.connection_made(transport)
        transport.resume_reading()
        return end

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass

    def data_received(self, data: bytes) -> None:
        if self.answered.done():
            return
        try:
            self._reading.send(data)
        except StopIteration as end:
            # What comes after the answer is for the protocol that follows. A transport of uvloop
            # chooses how to read when reading starts: buffered or not.
            self.transport.pause_reading()
            self.answered.set_result(end.value)
        except PaxosBlockError as error:
            self.answered.set_exception(error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        if exc is None:
            self.data_received(b"")
        elif not self.answered.done():
            self.answered.set_exception(exc)


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
