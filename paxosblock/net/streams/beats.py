"""Beats on a data stream: a sign of life of a node's event loop, whatever its disk does.

A client that waits for votes sends a BEAT frame that says how often it wants to hear from the node.
From then on the node sends BEAT frames at that pace, by its clock alone, even while the disk is
slow, and while it does not read this connection because too many votes wait for the disk. A beat
says how many of the client's bytes have arrived and how many answers the node owes, so that the
client notices if its way to the node is broken and only the way back works.

A node that is stopped or unreachable is silent; a node whose disk is slow beats and owes votes. A
beat also says for how long nothing has come back from a disk of the node: that disk hangs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from paxosblock.config import SHORTEST_BEAT_S
from paxosblock.net.streams.connection import FrameConnection
from paxosblock.net.wire import FrameKind, Header
from paxosblock.protocol.types import ChunkIndex

SHORTEST_MS: Final = round(SHORTEST_BEAT_S * 1000)
LONGEST_MS: Final = 60_000
_BYTES_MASK: Final = (1 << 32) - 1


def beat_wish(every_s: float) -> bytes:
    """Return the frame of a client that wants a beat every `every_s` seconds; 0: no more beats."""
    every_ms = round(every_s * 1000)
    index = min(max(every_ms, SHORTEST_MS), LONGEST_MS) if every_s else 0
    return Header(FrameKind.BEAT, index=ChunkIndex(index)).pack()


def arrived_bytes(beat: Header, sent_bytes: int) -> int:
    """Return how many of this connection's `sent_bytes` had arrived when the peer sent `beat`."""
    return sent_bytes - ((sent_bytes - beat.acknowledged) & _BYTES_MASK)


class BeatSender:
    """The node's end of the beats of one connection."""

    def __init__(self, owed: Callable[[], int], stands_s: Callable[[], float]) -> None:
        """`owed` counts the votes and answers that the node owes on this connection. `stands_s` are
        the seconds for which nothing has come back from a disk that a call waits for."""
        self._owed = owed
        self._stands_s = stands_s
        self._timer: asyncio.TimerHandle | None = None

    def asked(self, connection: FrameConnection, wish: Header) -> None:
        """Handle a BEAT frame from the client."""
        self.stop()
        if wish.index:
            self._wait(connection, max(wish.index, SHORTEST_MS) / 1000)

    def stop(self) -> None:
        """Stop sending beats: the client wants none, or the connection is lost."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self, connection: FrameConnection, every_s: float) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(every_s, self._beat, connection, every_s)

    def _beat(self, connection: FrameConnection, every_s: float) -> None:
        if connection.writable:  # a peer that does not read must not fill our memory with beats
            connection.send(
                Header(
                    FrameKind.BEAT,
                    index=ChunkIndex(self._owed()),
                    acknowledged=connection.received_bytes & _BYTES_MASK,
                    request=round(self._stands_s() * 1000),
                ).pack()
            )
        self._wait(connection, every_s)
