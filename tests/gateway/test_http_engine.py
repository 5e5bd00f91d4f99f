"""HTTP of a gateway, where an answer is not sent to its end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from paxosblock.errors import TruncatedError
from paxosblock.gateway.exchange import ARRIVED_BYTES, Answer, Exchange, StreamedBody
from paxosblock.gateway.http_engine import HttpEngine
from paxosblock.gateway.webhdfs.webhdfs_door import failure
from paxosblock.net.port.guard import Guard
from paxosblock.net.serving import open_port
from tests.waiting import wait_until_async

PIECE = bytes(1 << 20)


class Streams:
    """An answer in pieces, and whether it was given back."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.sent = 0
        self.closed = False

    async def pieces(self) -> AsyncIterator[bytes]:
        while True:
            if self.sent == 2 and self.error is not None:
                raise self.error
            yield PIECE
            self.sent += 1

    async def answer(self, _: Exchange) -> Answer:
        release = contextlib.AsyncExitStack()
        release.callback(setattr, self, "closed", True)
        return Answer(200, StreamedBody(self.pieces(), 1 << 40, release))


class Waits:
    """An answer that asks for the body late, and notes the length of its first piece."""

    def __init__(self) -> None:
        self.asks = asyncio.Event()
        self.first_bytes = 0

    async def answer(self, exchange: Exchange) -> Answer:
        await self.asks.wait()
        async for piece in exchange.body():
            self.first_bytes = self.first_bytes or len(piece)
        return Answer(200)


@contextlib.asynccontextmanager
async def serving(streams: Streams | Waits) -> AsyncIterator[tuple[str, int]]:
    engine = HttpEngine(streams.answer, failure, 60)
    async with contextlib.AsyncExitStack() as stack:
        runner = web.ServerRunner(engine.server)
        address = await open_port(stack, runner, "127.0.0.1:0", Guard(), engine.connect)
        host, port = address.split(":")
        yield host, int(port)


async def test_an_answer_that_cannot_go_on_is_cut_and_told_in_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    streams = Streams(TruncatedError("'/f' was truncated"))
    with caplog.at_level(logging.INFO):
        async with serving(streams) as place:
            reader, writer = await asyncio.open_connection(*place)
            writer.write(b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n")
            with contextlib.suppress(ConnectionResetError):
                while await reader.read(1 << 20):
                    pass
            writer.close()
            await wait_until_async(lambda: streams.closed)
    (line,) = caplog.records
    assert "was cut: '/f' was truncated" in line.getMessage()
    assert not line.exc_info


async def test_a_reader_that_resets_the_connection_is_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    streams = Streams()
    with caplog.at_level(logging.INFO):
        async with serving(streams) as place:
            with socket.create_connection(place) as reader:
                reader.sendall(b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n")
                before = -1

                def stands() -> bool:  # what it reads no more fills all buffers
                    nonlocal before
                    before, moved = streams.sent, streams.sent != before
                    return streams.sent > 0 and not moved

                await wait_until_async(stands)
                reader.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            await wait_until_async(lambda: streams.closed)
    assert caplog.records == []


async def test_only_so_much_of_a_body_comes_before_it_is_asked_for() -> None:
    """Each request that waits has so much of it in memory, and the budget counts no more."""
    waits, body = Waits(), bytes(16 << 20)
    async with serving(waits) as place:
        reader, writer = await asyncio.open_connection(*place)
        writer.transport.set_write_buffer_limits(0)
        writer.write(b"PUT /x HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body))
        writer.write(body)
        before = -1

        def stands() -> bool:  # the buffers are full up to the gateway's
            nonlocal before
            left = writer.transport.get_write_buffer_size()
            before, moved = left, left != before
            return left < len(body) and not moved

        await wait_until_async(stands)
        waits.asks.set()
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()
    assert 0 < waits.first_bytes <= ARRIVED_BYTES
