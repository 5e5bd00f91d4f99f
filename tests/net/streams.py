"""A server with a data stream, and simple handlers, for the tests of the stream."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from paxosblock.errors import PaxosBlockError
from paxosblock.net.port.access import OPEN, Access
from paxosblock.net.port.http_server import STALL_S
from paxosblock.net.port.refusals import Refusals
from paxosblock.net.streams.connection import FrameConnection
from paxosblock.net.streams.stream import connect
from paxosblock.net.streams.stream_server import upgrade_handler
from paxosblock.net.wire import FrameKind, Header
from paxosblock.protocol.types import BlockId, ChunkIndex

HOST = "127.0.0.1"


@dataclass
class Recorder:
    """A handler that keeps copies of what comes."""

    frames: asyncio.Queue[tuple[Header, bytes]] = field(default_factory=asyncio.Queue)
    lost: PaxosBlockError | None = None

    def payload_buffer(self, header: Header) -> memoryview | None:
        return None

    def frame_received(
        self, connection: FrameConnection, header: Header, frame: memoryview
    ) -> None:
        self.frames.put_nowait((header, bytes(frame)))

    def payload_received(
        self, connection: FrameConnection, header: Header, payload: memoryview
    ) -> None:
        raise AssertionError("no buffer was given")

    def connection_lost(self, connection: FrameConnection, error: PaxosBlockError) -> None:
        self.lost = error


class Echo(Recorder):
    """A server's handler that sends every frame back as it came."""

    def frame_received(
        self, connection: FrameConnection, header: Header, frame: memoryview
    ) -> None:
        connection.send(bytes(frame))


class Written(asyncio.Transport):
    """A transport that keeps what is written to it."""

    def __init__(self) -> None:
        super().__init__({"socket": socket.socket()})
        self.pieces: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.pieces.append(bytes(data))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Take any."""

    def close(self) -> None:
        self.get_extra_info("socket").close()
        self.pieces.append(b"closed")


@asynccontextmanager
async def node(
    make_handler: Callable[[web.Request], Any],
    *,
    stall_s: float = STALL_S,
    refusals: Refusals | None = None,
    access: Access = OPEN,
) -> AsyncIterator[int]:
    """A server with a data stream; gives its port."""
    app = web.Application()
    upgrade = upgrade_handler(app, make_handler, stall_s=stall_s, refusals=refusals, access=access)
    app.router.add_get("/stream", upgrade)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, HOST, 0)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@asynccontextmanager
async def stream_to(port: int, handler: Any) -> AsyncIterator[FrameConnection]:
    connection = await connect(HOST, port, handler)
    try:
        yield connection
    finally:
        connection.close()
        await connection.wait_closed()


def chunk(payload: bytes, index: int = 0) -> bytes:
    header = Header.of(FrameKind.CHUNK, payload, index=ChunkIndex(index), block=BlockId(7))
    return header.pack() + payload


def some_bytes(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


def feed(connection: FrameConnection, data: bytes) -> None:
    """Let `data` come in, as an event loop does."""
    while data:
        room = connection.get_buffer(-1)
        size = min(len(room), len(data))
        assert size
        room[:size] = data[:size]
        connection.buffer_updated(size)
        data = data[size:]
