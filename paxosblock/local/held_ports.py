"""Ports of this machine that are kept for nodes, also while no process listens at them."""

from __future__ import annotations

import contextlib
import random
import socket
from typing import Final

_FREE: Final = (15_000, 32_000)
"""Where to look for a free port: below those that the system gives to anybody who asks for any."""


class HeldPorts:
    """The ports of killed nodes are not given to somebody else before the nodes are back.

    Each is held by a socket that is bound to it and does not listen: a connection is refused as
    when nobody was there. Linux lets a server bind it as well, since both say SO_REUSEADDR.
    """

    def __init__(self) -> None:
        """Hold none yet."""
        self._holders: list[socket.socket] = []

    def hold(self, address: str) -> str:
        """Hold the port of host:port until `release`, and any free one instead of port 0.

        Returns the address. A port that somebody listens at already is not held: the node will
        say so when it starts.
        """
        host, _, port = address.rpartition(":")
        if port == "0":
            return f"{host}:{self._hold_any(host)}"
        with contextlib.suppress(OSError):
            self._bind(host, int(port), exclusive=False)
        return address

    def release(self) -> None:
        """Let them go."""
        for holder in self._holders:
            holder.close()
        self._holders.clear()

    def _hold_any(self, host: str) -> int:
        while True:
            port = random.randrange(*_FREE)
            with contextlib.suppress(OSError):
                self._bind(host, port, exclusive=True)
                return port

    def _bind(self, host: str, port: int, *, exclusive: bool) -> None:
        """`exclusive`: refuse one that somebody else holds; else only one with a listener."""
        holder = socket.socket()
        try:
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, not exclusive)
            holder.bind((host, port))
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, True)
        except OSError:
            holder.close()
            raise
        self._holders.append(holder)
