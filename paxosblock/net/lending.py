"""Descriptors that pass from a node to a client on the same machine, over a Unix socket.

A stream is where a client proves who it is and what it may do, and where the node proves itself. So
there the node answers with an `Offer`, and the socket only brings what was offered: who shows the
ticket gets the descriptor, once and within seconds. The client shows it only to a process of the
user that the offer names, and takes only the file that the offer names. So a program
that finds the socket gets nothing from it, and one that stands in its place gives nothing.

The name of the socket is in the abstract namespace of Linux: no file is left behind, no caller
needs a right to a folder, and it is seen only where the network is the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import secrets
import socket
import struct
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from paxosblock.api.datanode import Offer
from paxosblock.errors import UnavailableError

TICKET_BYTES: Final = 16
OFFERED_S: Final = 5.0
OFFERED_MAX: Final = 64
"""Offers that wait; the oldest one goes for another."""
CALLERS_MAX: Final = 64
"""Connections to the socket at the same time; more are closed."""
TAKE_S: Final = 1.0
"""Seconds that a client waits for what it was offered."""
_SHORTAGE_S: Final = 0.5
_FILE: Final = struct.Struct("i")
_ONE_FILE: Final = socket.CMSG_SPACE(_FILE.size)
_PEER: Final = struct.Struct("3i")  # `struct ucred`: process, user, group

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class LendingDoor:
    """The node's end. Everything runs on the loop that opened it, and nothing waits there."""

    _loop: asyncio.AbstractEventLoop
    _sock: socket.socket
    _name: str
    _offered_s: float
    _callers: dict[socket.socket, asyncio.TimerHandle] = field(default_factory=dict)
    _offered: OrderedDict[bytes, tuple[int, asyncio.TimerHandle]] = field(
        default_factory=OrderedDict
    )

    @classmethod
    def open(cls, offered_s: float = OFFERED_S) -> LendingDoor:
        """Listen at a name that no program can guess. An offer waits for `offered_s` seconds for
        the one who shows its ticket, and a caller for as long.

        Raises OSError where the system has no such sockets, or no descriptor for one.
        """
        name = f"paxosblock-{secrets.token_hex(16)}"
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        try:
            sock.bind("\0" + name)
            sock.listen(CALLERS_MAX)
        except OSError:
            sock.close()
            raise
        door = cls(asyncio.get_running_loop(), sock, name, offered_s)
        door._listen()
        return door

    def offer(self, file: int) -> Offer:
        """Keep `file`, a descriptor that is this object's from now on, for who shows the ticket."""
        about = os.fstat(file)
        ticket = secrets.token_bytes(TICKET_BYTES)
        late = self._loop.call_later(self._offered_s, self._withdraw, ticket)
        self._offered[ticket] = file, late
        if len(self._offered) > OFFERED_MAX:
            self._withdraw(next(iter(self._offered)))
        return Offer(self._name, os.geteuid(), ticket, about.st_dev, about.st_ino)

    def close(self) -> None:
        """Listen no more, and give nothing that was offered."""
        self._loop.remove_reader(self._sock)
        self._sock.close()
        for caller in tuple(self._callers):
            self._drop(caller)
        for ticket in tuple(self._offered):
            self._withdraw(ticket)

    def _withdraw(self, ticket: bytes) -> None:
        file, late = self._offered.pop(ticket)
        late.cancel()
        os.close(file)

    def _listen(self) -> None:
        if self._sock.fileno() >= 0:  # it may have been closed since
            self._loop.add_reader(self._sock, self._accept)

    def _accept(self) -> None:
        try:
            sock, _ = self._sock.accept()
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):  # it would be told again at once
                self._loop.remove_reader(self._sock)
                self._loop.call_later(_SHORTAGE_S, self._listen)
            return
        if len(self._callers) >= CALLERS_MAX:
            sock.close()
            return
        sock.setblocking(False)
        self._callers[sock] = self._loop.call_later(self._offered_s, self._drop, sock)
        self._loop.add_reader(sock, self._came, sock)

    def _came(self, caller: socket.socket) -> None:
        """Give the caller what its ticket is for, and hear no more of it."""
        try:
            ticket = caller.recv(TICKET_BYTES + 1)
            if ticket in self._offered:
                socket.send_fds(caller, [b"\1"], [self._offered[ticket][0]])
                self._withdraw(ticket)
        except OSError as error:
            _log.info("a descriptor was not given: %s", error)
        self._drop(caller)

    def _drop(self, caller: socket.socket) -> None:
        self._callers.pop(caller).cancel()
        self._loop.remove_reader(caller)
        caller.close()


def take(offer: Offer) -> int:
    """Return the descriptor that was offered, of a file to read. Blocks, at most `TAKE_S`.

    Raises:
        UnavailableError: no process gives it here; or not the one that offered it, or another file.
    """
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
            sock.settimeout(TAKE_S)
            sock.connect("\0" + offer.socket)
            peer = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
            if _PEER.unpack(peer)[1] != offer.user:
                raise UnavailableError("another user's process has the socket of the offer")
            sock.send(offer.ticket)
            # Python 3.11's `recv_fds` leaves out the flags.
            _, brought, _, _ = sock.recvmsg(1, _ONE_FILE, socket.MSG_CMSG_CLOEXEC)
    except (OSError, ValueError) as error:
        raise UnavailableError(f"no descriptor came: {error}") from error
    files: list[int] = [
        _FILE.unpack(data)[0] for _, kind, data in brought if kind == socket.SCM_RIGHTS
    ]
    if not files:
        raise UnavailableError("no descriptor came: the offer is over")
    with contextlib.ExitStack() as wrong:
        for file in files:
            wrong.callback(os.close, file)
        about = os.fstat(files[0])
        if (about.st_dev, about.st_ino) != (offer.device, offer.inode):
            raise UnavailableError("another file came than the one of the offer")
        wrong.pop_all()
    return files[0]
