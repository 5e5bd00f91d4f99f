"""Connections that come at once."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from contextlib import ExitStack

from paxosblock.net.port.accepting import Listener, open_sockets
from paxosblock.net.port.admission import Admission, Caps, Slot
from paxosblock.net.port.refusals import Refusals

COUNT = 100
MOST = 16
"""So many Upgrades take less than the longest turn that a node may have, 20 ms."""


async def test_connections_that_come_at_once_begin_a_few_in_each_turn_of_the_loop() -> None:
    turn = 0
    begun = list[int]()

    class Begun(asyncio.Protocol):
        def __init__(self, slot: Slot) -> None:
            self._slot = slot

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            begun.append(turn)

        def connection_lost(self, exc: Exception | None) -> None:
            self._slot.release()

    refusals = Refusals()
    admission = Admission(Caps(node=1000, address=1000), refusals)
    listener = Listener(await open_sockets("127.0.0.1", 0), admission, refusals, Begun)
    with ExitStack() as callers:
        for _ in range(COUNT):  # the system takes them; the loop has had no turn yet
            callers.enter_context(socket.create_connection(("127.0.0.1", listener.port)))
        while len(begun) < COUNT:
            turn += 1
            await asyncio.sleep(0)
    await listener.close()
    assert max(Counter(begun).values()) <= MOST
