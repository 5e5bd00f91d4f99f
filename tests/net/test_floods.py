"""A node's port under connections and requests that never end, and under what is no HTTP."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import msgspec
import pytest
from aiohttp import web

from paxosblock.api.limits import MAX_BODY_BYTES
from paxosblock.base.units import KIB, MIB
from paxosblock.errors import UnavailableError
from paxosblock.net.calls.call_server import RpcRouter
from paxosblock.net.calls.rpc import RpcClient
from paxosblock.net.port.access_server import add_without_token
from paxosblock.net.port.admission import Caps
from paxosblock.net.port.guard import Guard
from paxosblock.net.port.refusals import Refusal, Refusals
from paxosblock.net.port.request_bodies import BodyLimits
from paxosblock.net.port.upgrade import STREAM, split_address
from paxosblock.net.serving import listen
from paxosblock.net.streams.connection import FrameConnection
from paxosblock.net.streams.stream import connect
from paxosblock.net.streams.stream_server import upgrade_handler
from tests.loops import on_both_loops
from tests.net.streams import Echo, Recorder, chunk
from tests.waiting import wait_until_async

SHORT_S = 0.2
"""A time-out that tests wait for."""
LONG_S = 600.0
"""One that is as good as none."""

TYPE = "Content-Type: application/msgpack"

Peer = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Text(msgspec.Struct):
    text: str


async def measure(request: Text) -> int:
    return len(request.text)


@dataclass
class Node:
    address: str
    guard: Guard
    stack: AsyncExitStack

    def count(self, why: Refusal) -> int:
        return self.guard.refusals.counts[why]

    async def connect(self, sent: bytes = b"") -> Peer:
        """A connection on which `sent` was sent; ours is closed with the node at the latest."""
        reader, writer = await asyncio.open_connection(*split_address(self.address))
        self.stack.callback(writer.close)
        writer.write(sent)
        await writer.drain()
        return reader, writer

    async def measure(self, text: str = "text", timeout_s: float = 20) -> int:
        """A call on a connection of its own."""
        async with RpcClient() as client:
            return await client.call(self.address, "measure", Text(text), int, timeout_s)


@asynccontextmanager
async def node(
    guard: Guard | None = None,
    handler: Callable[[Text], Awaitable[object]] = measure,
    request_bytes_max: int = MAX_BODY_BYTES,
) -> AsyncIterator[Node]:
    """A server with one method and a data stream."""
    guard = guard or Guard()
    router = RpcRouter()
    router.register("measure", Text, handler, request_bytes_max=request_bytes_max)
    app = web.Application()
    streams = upgrade_handler(app, lambda _: Echo(), refusals=guard.refusals, access=guard.access)
    add_without_token(app, STREAM.path, streams)
    async with AsyncExitStack() as stack:
        yield Node(await listen(stack, app, router, "127.0.0.1:0", guard), guard, stack)


def post(length: int, body: bytes = b"", method: str = "measure") -> bytes:
    """A request that says it has `length` bytes, and so many of them as `body` has."""
    head = f"POST /rpc/{method} HTTP/1.1\r\nHost: localhost\r\n{TYPE}\r\nContent-Length: {length}"
    return head.encode() + b"\r\n\r\n" + body


def whole() -> bytes:
    body = msgspec.msgpack.encode(Text("text"))
    return post(len(body), body)


async def closed(*peers: Peer) -> bool:
    """True once the node has closed the connections without a word."""
    async with asyncio.timeout(20):
        return not any([await rest(reader) for reader, _ in peers])


async def rest(reader: asyncio.StreamReader) -> bytes:
    """Return what the node still said."""
    try:
        return await reader.read()
    except ConnectionError:
        return b""


# --- heads ---------------------------------------------------------------------------------------


@on_both_loops
@pytest.mark.parametrize("sent", [b"", b"POST /rpc/mea", b"GET / HTTP/1.1\r\nHost: n\r\n"])
async def test_a_connection_on_which_no_head_comes_is_closed(sent: bytes) -> None:
    """A node that waits long keeps them all."""
    async with (
        node(Guard(head_timeout_s=LONG_S)) as patient,
        node(Guard(head_timeout_s=SHORT_S)) as each,
    ):
        for _ in range(50):
            await patient.connect(sent)
        peers = [await each.connect(sent) for _ in range(50)]
        assert await closed(*peers)
        assert each.count(Refusal.NO_HEAD) == 50
        assert each.guard.admission.count == 0
        assert patient.guard.admission.count == 50


@on_both_loops
async def test_one_that_was_used_may_idle_but_not_begin_a_head_and_stop() -> None:
    async with node(Guard(head_timeout_s=SHORT_S)) as each:
        idle, stuck = [await each.connect(whole()) for _ in range(2)]
        for reader, _ in (idle, stuck):
            assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(1)
        stuck[1].write(b"POST /rpc/")
        assert await closed(stuck)
        idle[1].write(whole())
        assert b" 200 " in await idle[0].readuntil(b"\r\n\r\n")
        assert each.count(Refusal.NO_HEAD) == 1


@on_both_loops
async def test_an_answer_may_take_longer_than_a_head() -> None:
    async def slow(request: Text) -> int:
        await asyncio.wait_for(late.wait(), 20)
        return len(request.text)

    late = asyncio.Event()
    async with node(Guard(head_timeout_s=SHORT_S), slow) as each:
        asked = asyncio.create_task(each.measure())
        silent = await each.connect()
        assert await closed(silent)  # the time-out is over
        late.set()
        assert await asked == 4


# --- connections ---------------------------------------------------------------------------------


@on_both_loops
async def test_idle_connections_give_way_to_new_ones() -> None:
    async with node(Guard(Caps(node=60, address=50))) as each:
        for _ in range(200):
            await each.connect()
        assert await each.measure() == 4
        assert each.guard.admission.count <= 50
        assert each.count(Refusal.UNPROVEN) >= 150


@on_both_loops
async def test_beyond_the_cap_a_call_is_answered_and_its_connection_closed() -> None:
    """All others are data streams in use: a NameNode that recovers a block must be heard."""
    async with node(Guard(Caps(node=3, address=3))) as each:
        host, port = split_address(each.address)
        streams = []
        for heard in (Recorder(), Recorder(), Recorder()):
            streams.append(await connect(host, port, heard))
            streams[-1].send(chunk(b"x"))
            await heard.frames.get()
        reader, writer = await each.connect(whole())
        answer = await reader.read()
        assert b"Connection: close\r\n" in answer
        assert answer.endswith(b"\r\n\r\n" + msgspec.msgpack.encode(4))
        writer.close()
        with pytest.raises(UnavailableError, match="as many connections as it takes"):
            await connect(host, port, Recorder())
        await leave(streams[0])
        await wait_until_async(lambda: each.guard.admission.count == 2)
        again = Recorder()
        streams[0] = await connect(host, port, again)
        streams[0].send(chunk(b"x"))
        assert (await again.frames.get())[1] == chunk(b"x")
        for stream in streams:
            await leave(stream)


async def leave(stream: FrameConnection) -> None:
    stream.close()
    await stream.wait_closed()


class OutOfDescriptors(socket.socket):
    """A listening socket whose process has no descriptor left for a while."""

    failures = 3

    def accept(self) -> tuple[socket.socket, object]:
        if self.failures:
            self.failures -= 1
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return super().accept()


@on_both_loops
async def test_without_a_descriptor_a_connection_waits_and_the_node_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("paxosblock.net.port.accepting.socket.socket", OutOfDescriptors)
    async with node() as each:
        monkeypatch.undo()
        assert await each.measure() == 4
        assert each.count(Refusal.NO_DESCRIPTOR) == 3
    assert caplog.text.count("no file descriptor is left") == 1
    assert "Traceback" not in caplog.text


# --- bodies --------------------------------------------------------------------------------------


@on_both_loops
async def test_a_body_that_stands_still_is_given_up() -> None:
    """A node that waits long keeps them all."""
    limits, part = BodyLimits(stall_s=SHORT_S), post(MIB, b"x" * 40 * KIB)
    long = Guard(body_limits=BodyLimits(stall_s=LONG_S))
    async with node(long) as patient, node(Guard(body_limits=limits)) as each:
        for _ in range(10):
            await patient.connect(part)
        peers = [await each.connect(part) for _ in range(10)]
        assert await closed(*peers)
        assert each.count(Refusal.BODY_STALLED) == 10
        assert each.guard.request_bodies.held_bytes == 0
        assert patient.guard.admission.count == 10


@on_both_loops
async def test_a_body_of_which_a_byte_comes_now_and_then_is_given_up() -> None:
    async with node(Guard(body_limits=BodyLimits(stall_s=SHORT_S))) as each:
        peer = await each.connect(post(MIB, b"x"))

        def given_up_though_more_comes() -> bool:
            if not peer[1].is_closing():  # uvloop raises otherwise
                peer[1].write(b"x")
            return each.count(Refusal.BODY_STALLED) == 1

        await wait_until_async(given_up_though_more_comes)
        assert await closed(peer)


@on_both_loops
async def test_without_a_budget_bodies_under_way_take_what_they_say() -> None:
    async with node(Guard(body_limits=BodyLimits(memory_bytes=1024 * MIB))) as each:
        for _ in range(4):
            await each.connect(post(10 * MIB, b"x" * 900 * KIB))
        await wait_until_async(lambda: each.guard.request_bodies.held_bytes > 3400 * KIB)
        assert await each.measure("x" * MIB) == MIB


@on_both_loops
async def test_bodies_under_way_share_a_budget_that_small_ones_need_not() -> None:
    text = "x" * MIB
    async with node(Guard(body_limits=BodyLimits(memory_bytes=2 * MIB))) as each:
        held = [await each.connect(post(10 * MIB, b"x" * 900 * KIB)) for _ in range(2)]
        await wait_until_async(lambda: each.guard.request_bodies.held_bytes > 1700 * KIB)
        with pytest.raises(UnavailableError, match="too many large requests under way; try again"):
            await each.measure(text)
        assert each.count(Refusal.BODY_MEMORY) == 1
        assert await each.measure("x" * 10 * KIB) == 10 * KIB
        for _, writer in held:
            writer.close()
        await wait_until_async(lambda: each.guard.request_bodies.held_bytes == 0)
        assert await each.measure(text) == MIB


@on_both_loops
async def test_a_body_that_says_it_is_too_long_is_not_waited_for() -> None:
    async with node() as each:
        reader, writer = await each.connect(post(MAX_BODY_BYTES + 1))
        assert b" 400 " in await reader.readuntil(b"\r\n\r\n")
        assert b"the request has more than %d bytes" % MAX_BODY_BYTES in await reader.read(1000)
        writer.close()
        await wait_until_async(lambda: each.guard.admission.count == 0)


# --- what is no HTTP -----------------------------------------------------------------------------

CHUNKED = b"POST /%b HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"
GARBAGE = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)),  # a TLS hello
    b"\x00" * 1000,
    b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET /\xff\xfe HTTP/1.1\r\nHo st: n\r\n\r\n",
    b"GET / HTTP/1.1\r\nContent-Length: many\r\n\r\n",
    b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
    CHUNKED % b"rpc/measure",
    CHUNKED % b"nowhere",
    whole() + b"\x00\x01garbage\r\n\r\n",
    post(100, b"and gone"),
    b"GET /stream HTTP/1.1\r\nHost: n\r\nUpgrade: paxosblock-stream/3\r\n"
    b"Connection: Upgrade\r\n\r\n" + bytes(100),
]


@on_both_loops
@pytest.mark.parametrize("sent", GARBAGE, ids=range(len(GARBAGE)))
async def test_garbage_logs_no_traceback(sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with node() as each:
        for _ in range(3):
            reader, writer = await each.connect(sent)
            writer.write_eof()
            await rest(reader)
            writer.close()
        assert await each.measure() == 4
    assert "Traceback" not in caplog.text
    assert len(caplog.records) <= 1, caplog.text


@on_both_loops
async def test_a_refusal_is_logged_at_once_and_then_how_many_there_were_since(
    caplog: pytest.LogCaptureFixture,
) -> None:
    refusals = Refusals(log_every_s=0.05)
    for times in (1, 2, 3):
        refusals.count(Refusal.NO_HEAD, "10.0.0.1", times)
    await wait_until_async(lambda: len(caplog.records) == 2)
    told = [vars(record)["facts"] for record in caplog.records]
    assert told == [{"times": 1, "address": "10.0.0.1"}, {"times": 5, "address": "10.0.0.1"}]
    assert refusals.counts[Refusal.NO_HEAD] == 6
