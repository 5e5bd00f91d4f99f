"""The listening sockets of a node.

A node accepts connections itself: the servers of asyncio and uvloop accept all waiting ones at
once, up to the last descriptor, before the node could refuse any.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Callable
from typing import Any, Final

from paxosblock.host.descriptors import is_shortage
from paxosblock.net.port.admission import Admission, Slot
from paxosblock.net.port.refusals import Refusal, Refusals

BACKLOG: Final = 4096
"""Connections that may wait to be accepted, if the system allows so many. With the usual 128, the
system dropped the rest of a program's thousand calls, and the program tried again only seconds
later."""
ACCEPTED_TOGETHER: Final = 16
"""Connections accepted in one turn of the event loop. Each brings an Upgrade along, which takes
half a millisecond: 64 at once were a turn of more than 30."""
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
    ) -> None:
        """`sockets` listen already, and are closed with this."""
        self._sockets = sockets
        self._admission = admission
        self._refusals = refusals
        self._make_protocol = make_protocol
        self._loop = asyncio.get_running_loop()
        self._beginning: set[asyncio.Task[None]] = set()
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
        if self._beginning:
            await asyncio.wait(self._beginning)

    def _watch(self, listening: socket.socket) -> None:
        self._loop.add_reader(listening, self._accept_some, listening)

    def _accept_some(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTED_TOGETHER):
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
            await self._loop.connect_accepted_socket(lambda: self._make_protocol(slot), accepted)
        except OSError as error:
            _log.debug("a connection from %s ended at once: %s", slot.address, error)
            slot.release()
            accepted.close()

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


async def open_sockets(host: str | None, port: int) -> list[socket.socket]:
    """Return sockets that listen at each address of `host` (None: each address of the machine).

    Raises:
        OSError: it has none, or the port is taken.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
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
