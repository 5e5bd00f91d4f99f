"""Finds out if an answer arrived: whether the system of the caller has acknowledged all of it."""

from __future__ import annotations

import asyncio
import fcntl
import termios
from collections.abc import Callable
from typing import Final

TRIES: Final = tuple(0.001 * 2**number for number in range(11))
"""Seconds until the next look: 2 in all. A delayed acknowledgement takes 40 ms."""


def left_bytes(transport: asyncio.WriteTransport) -> int:
    """Return how many bytes that were sent are not acknowledged yet; at least one where the socket
    is closed, as the system no longer tells."""
    connection = transport.get_extra_info("socket")  # uvloop forgets a closed one
    if connection is None or connection.fileno() < 0:
        return 1
    counted = fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(4))
    return transport.get_write_buffer_size() + int.from_bytes(counted, "little")


async def arrived(transport: asyncio.WriteTransport | None, is_known: Callable[[], bool]) -> bool:
    """Return if all that was sent arrived. Where it did not within two seconds the connection is
    cut, so that it never does.

    Args:
        transport: of the connection; None: it is gone.
        is_known: tells if the caller has done what it does only behind the answer.
    """
    for pause_s in TRIES:
        if is_known():
            return True
        if transport is None or transport.is_closing():
            return False
        if not left_bytes(transport):
            return True
        await asyncio.sleep(pause_s)
    if transport is not None:
        transport.abort()
    return False
