"""The listening sockets of a node.

A node accepts connections itself: the servers of asyncio and uvloop accept all waiting ones at
once, up to the last descriptor, before the node could refuse any.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, cast

from paxosblock.errors import AccessDeniedError
from paxosblock.host.descriptors import is_shortage
from paxosblock.net.port.admission import Admission, Rank, Slot
from paxosblock.net.port.refusals import Refusal, Refusals
from paxosblock.net.port.upgrade import ERROR_TYPE
from paxosblock.net.wire import encode_error

if TYPE_CHECKING:
    from paxosblock.net.port.tls import Tls

BACKLOG: Final = 4096
"""Connections that may wait to be accepted, if the system allows so many. With the usual 128, the
system dropped the rest of a program's thousand calls, and the program tried again only seconds
later."""
ACCEPTED_TOGETHER: Final = 16
"""Connections accepted in one turn of the event loop. Each brings an Upgrade along, which takes
half a millisecond: 64 at once were a turn of more than 30."""
HANDSHAKE_S: Final = 10.0
"""Seconds until the two ends must speak TLS."""
_DRAINED_BYTES: Final = 64 * 1024
"""The most bytes that are read of a request that came without TLS."""
PAUSE_S: Final = 0.2
"""Seconds until the next try to accept when no descriptor was left."""

_log = logging.getLogger(__name__)


class Listener:
    """Accepts connections and makes a protocol for each one that is admitted."""

    def __init__(
        self,
        sockets: list[socket.socket],
        admission: Admission,
        refusals: Refusals,
        make_protocol: Callable[[Slot], asyncio.BaseProtocol],
        *,
        tls: Tls | None = None,
        handshake_s: float = HANDSHAKE_S,
        shared: bool = False,
    ) -> None:
        """`sockets` listen already, and are closed with this. Where they speak `tls`, a connection
        has `handshake_s` to begin. Where they are `shared` with other processes, connections are
        accepted one at a time, so that the first process does not take all that come together.
        """
        self._sockets = sockets
        self._admission = admission
        self._refusals = refusals
        self._make_protocol = make_protocol
        self._tls, self._handshake_s = tls, handshake_s
        self._together = 1 if shared else ACCEPTED_TOGETHER
        self._loop = asyncio.get_running_loop()
        self._beginning: set[asyncio.Task[None]] = set()
        self._greeting: set[_Greeting] = set()
        self._pauses: set[asyncio.TimerHandle] = set()
        for each in sockets:
            self._watch(each)

    @property
    def port(self) -> int:
        """The port it listens on, of the first socket if there are several."""
        port: int = self._sockets[0].getsockname()[1]
        return port

    async def close(self) -> None:
        """Stop accepting connections."""
        for pause in self._pauses:
            pause.cancel()
        for each in self._sockets:
            self._loop.remove_reader(each)
            each.close()
        for greeting in tuple(self._greeting):
            greeting.dismiss()
        if self._beginning:
            await asyncio.wait(self._beginning)

    def _watch(self, listening: socket.socket) -> None:
        self._loop.add_reader(listening, self._accept_some, listening)

    def _accept_some(self, listening: socket.socket) -> None:
        for _ in range(self._together):
            try:
                accepted, place = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:  # the caller has gone already
                continue
            except OSError as error:
                self._pause(listening, error)
                return
            self._admit(accepted, place[0])

    def _admit(self, accepted: socket.socket, address: str) -> None:
        slot = self._admission.admit(address)
        if slot is None:
            accepted.close()
            return
        accepted.setblocking(False)
        task = self._loop.create_task(self._begin(accepted, slot))
        self._beginning.add(task)
        task.add_done_callback(self._beginning.discard)

    async def _begin(self, accepted: socket.socket, slot: Slot) -> None:
        try:
            if self._tls is not None:
                await self._begin_with(self._tls, accepted, slot)
            else:
                await self._begin_plain(accepted, slot)
        except OSError as error:
            _log.debug("a connection from %s ended at once: %s", slot.address, error)
            slot.release()
            accepted.close()

    async def _begin_plain(self, accepted: socket.socket, slot: Slot) -> None:
        await self._loop.connect_accepted_socket(lambda: self._make_protocol(slot), accepted)

    # -- TLS --------------------------------------------------------------------------------------

    async def _begin_with(self, tls: Tls, accepted: socket.socket, slot: Slot) -> None:
        """Begin a connection, with TLS unless the caller does not speak it and need not."""
        greeting = slot.holder = _Greeting(accepted)
        self._greeting.add(greeting)
        late = self._loop.call_later(self._handshake_s, greeting.dismiss)
        why = Refusal.HANDSHAKE
        try:
            first = await self._first_byte(accepted)
            if first == tls.FIRST_BYTE:
                await self._secure(tls, accepted, slot)
            elif first and tls.required:
                why = Refusal.NO_TLS
                accepted.recv(_DRAINED_BYTES)  # else its end were a reset, which takes the answer
                accepted.send(tls.plain_refusal or _NO_TLS)
                raise ConnectionAbortedError("the caller does not speak TLS")
            elif first:
                await self._begin_plain(accepted, slot)
            else:
                raise ConnectionResetError("nothing came")
        except OSError:  # the errors of ssl, too
            self._refusals.count(why, slot.address)
            raise
        finally:
            late.cancel()
            self._greeting.discard(greeting)

    async def _secure(self, tls: Tls, accepted: socket.socket, slot: Slot) -> None:
        waiting = _Unshaken()
        await self._loop.connect_accepted_socket(
            lambda: waiting,
            accepted,
            ssl=tls.server,
            ssl_handshake_timeout=self._handshake_s,
            ssl_shutdown_timeout=tls.END_S,
        )
        if waiting.lost:
            raise ConnectionResetError("the caller has gone")
        protocol = self._make_protocol(slot)
        waiting.transport.set_protocol(protocol)
        protocol.connection_made(waiting.transport)
        waiting.transport.resume_reading()

    async def _first_byte(self, accepted: socket.socket) -> bytes:
        """Return the first byte that comes, which stays where it is; b"" at the end."""
        while True:
            try:
                return accepted.recv(1, socket.MSG_PEEK)
            except BlockingIOError:
                came = self._loop.create_future()
                self._loop.add_reader(accepted, _set, came)
                try:
                    await came
                finally:
                    self._loop.remove_reader(accepted)

    def _pause(self, listening: socket.socket, error: OSError) -> None:
        """Let new connections wait until there is a descriptor again (or memory)."""
        if not is_shortage(error):
            _log.warning("cannot accept connections for a moment: %s", error.strerror)
        self._refusals.count(Refusal.NO_DESCRIPTOR, "")
        self._admission.make_room()
        self._loop.remove_reader(listening)

        def resume() -> None:
            self._pauses.discard(pause)
            self._watch(listening)

        pause = self._loop.call_later(PAUSE_S, resume)
        self._pauses.add(pause)


class _Greeting:
    """The holder of a slot before the two ends speak TLS: it has not even a protocol."""

    def __init__(self, accepted: socket.socket) -> None:
        self._accepted = accepted

    @property
    def idle(self) -> bool:
        return True

    @property
    def idle_rank(self) -> tuple[Rank, float]:
        return Rank.UNUSED, 0.0

    def dismiss(self) -> None:
        """End it: the task that waits for its bytes finds the end."""
        with contextlib.suppress(OSError):
            self._accepted.shutdown(socket.SHUT_RDWR)


class _Unshaken(asyncio.Protocol):
    """Has a connection until its handshake is done; what comes then is for another protocol."""

    transport: asyncio.Transport
    lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        self.transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True


def _set(came: asyncio.Future[None]) -> None:
    if not came.done():
        came.set_result(None)


def _plain_refusal() -> bytes:
    """Return the answer to a caller that does not speak TLS, which it reads as that of a node."""
    why = "the node speaks TLS only: name the authority of its cluster with PAXOSBLOCK_TLS_CA"
    body = encode_error(AccessDeniedError(why))
    fields = f"Content-Type: {ERROR_TYPE}\r\nContent-Length: {len(body)}\r\nConnection: close"
    return f"HTTP/1.1 403 Forbidden\r\n{fields}\r\n\r\n".encode() + body


_NO_TLS: Final = _plain_refusal()


async def open_sockets(host: str | None, port: int) -> list[socket.socket]:
    """Return sockets that listen at each address of `host` (None: each address of the machine).

    Raises:
        OSError: it has none, or the port is taken.
    """
    loop = asyncio.get_running_loop()
    return sockets_at(
        await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    )


def sockets_at(found: Iterable[tuple[Any, ...]]) -> list[socket.socket]:
    """Return sockets that listen where `getaddrinfo` found. Raises as `open_sockets`."""
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, place in dict.fromkeys(found):
            try:
                sockets.append(socket.socket(family, kind, protocol))
            except OSError:  # a host may have addresses of a family that this machine lacks
                continue
            _listen(sockets[-1], place)
    except BaseException:
        for each in sockets:
            each.close()
        raise
    if not sockets:
        raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
    return sockets


def _listen(fresh: socket.socket, place: Any) -> None:
    fresh.setblocking(False)
    fresh.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if fresh.family == socket.AF_INET6:
        fresh.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    fresh.bind(place)
    fresh.listen(BACKLOG)
