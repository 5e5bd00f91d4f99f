"""The data stream (connection.py, stream.py), on asyncio's own loop and on uvloop."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from aiohttp import web

from paxosblock.api.limits import MAX_CHUNK_BYTES
from paxosblock.errors import (
    NotReadyError,
    Outcome,
    OutcomeUnknownError,
    ProtocolError,
    UnavailableError,
)
from paxosblock.net.port.refusals import Refusal, Refusals
from paxosblock.net.streams import connection as connection_module
from paxosblock.net.streams.connection import FrameConnection
from paxosblock.net.streams.stream import connect
from paxosblock.net.wire import HEADER_BYTES, FrameKind, Header, verify_payload
from tests.loops import on_both_loops
from tests.net.streams import (
    HOST,
    Echo,
    Recorder,
    Written,
    chunk,
    feed,
    node,
    some_bytes,
    stream_to,
)
from tests.waiting import wait_until_async

# -- frames -------------------------------------------------------------------------------------


@on_both_loops
async def test_frames_of_all_sizes_come_back_whole_and_in_order() -> None:
    sizes = [
        0,
        1,
        1024,
        65_487,
        65_488,
        65_489,
        300_000,
        5,
        5,
        1 << 20,
        0,
        300_000,
        MAX_CHUNK_BYTES,
    ]
    sent = [chunk(some_bytes(size, seed=index), index) for index, size in enumerate(sizes)]
    client = Recorder()
    async with node(lambda _request: Echo()) as port, stream_to(port, client) as connection:
        for frame in sent:
            connection.send(frame[:HEADER_BYTES], frame[HEADER_BYTES:])
            await connection.drain()
        for index, frame in enumerate(sent):
            header, got = await client.frames.get()
            assert (header.index, got) == (index, frame)


@pytest.mark.parametrize("piece", [1, 47, 48, 49, 1000, 70_000])
async def test_frames_are_found_however_the_bytes_are_cut(piece: int) -> None:
    sizes = [0, 3, 0, 200, 1] if piece < 48 else [0, 3, 70_000, 0, 200_000, 200_000, 60_000, 1]
    sent = [chunk(some_bytes(size), index) for index, size in enumerate(sizes)]
    recorder = Recorder()
    receiver = FrameConnection(recorder, "peer")
    data = b"".join(sent)
    for begin in range(0, len(data), piece):
        feed(receiver, data[begin : begin + piece])
    assert [recorder.frames.get_nowait()[1] for _ in sizes] == sent
    receiver.connection_lost(None)


@dataclass
class IntoOneBuffer(Recorder):
    """A handler that has all chunks put side by side into one buffer of its own."""

    buffer: bytearray = field(default_factory=lambda: bytearray(4 << 20))
    filled: int = 0
    done: asyncio.Event = field(default_factory=asyncio.Event)
    chunks: int = 0

    def payload_buffer(self, header: Header) -> memoryview | None:
        if header.kind is not FrameKind.CHUNK:
            return None
        return memoryview(self.buffer)[self.filled :]

    def payload_received(
        self, connection: FrameConnection, header: Header, payload: memoryview
    ) -> None:
        verify_payload(header, payload)
        self.filled += len(payload)
        self.chunks += 1
        if self.chunks == 5:
            self.done.set()


async def test_a_handler_may_have_payloads_put_where_it_needs_them() -> None:
    payloads = [some_bytes(size, size) for size in (10, 1 << 20, 70_000, 1, 1 << 20)]
    client = IntoOneBuffer()
    async with node(lambda _request: Echo()) as port, stream_to(port, client) as connection:
        for payload in payloads:
            connection.send(chunk(payload))
        connection.send_frame(Header(FrameKind.VOTE))
        await client.done.wait()
        assert client.buffer[: client.filled] == b"".join(payloads)
        assert (await client.frames.get())[0].kind is FrameKind.VOTE


async def test_only_behind_large_payloads_nothing_but_a_header_is_read() -> None:
    """A small answer comes with one read, a large one without a copy."""
    client = IntoOneBuffer()
    async with node(lambda _request: Echo()) as port, stream_to(port, client) as connection:
        for count, (size, room) in enumerate([(1 << 20, HEADER_BYTES), (4096, 1 << 16)], 1):
            connection.send(chunk(some_bytes(size, size)))
            await wait_until_async(lambda: client.chunks == count)  # noqa: B023 - awaited here
            assert len(connection.get_buffer(-1)) == room


async def test_a_sender_waits_while_the_receiver_is_slow() -> None:
    servers: list[FrameConnection] = []

    class Slow(Recorder):
        def frame_received(
            self, connection: FrameConnection, header: Header, frame: memoryview
        ) -> None:
            servers.append(connection)
            connection.pause_reading()

    big = chunk(bytes(MAX_CHUNK_BYTES))
    async with node(lambda _request: Slow()) as port, stream_to(port, Recorder()) as connection:
        connection.send(chunk(b"stop reading"))
        for _ in range(4):
            connection.send(big)
        waiting = asyncio.create_task(connection.drain())
        await asyncio.sleep(0)
        connection.abort()
        with pytest.raises(OutcomeUnknownError, match="aborted here"):
            await waiting
    assert servers


async def test_a_large_buffer_is_given_back_when_the_connection_is_quiet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_module, "IDLE_SECONDS", 0.02)
    client = Recorder()
    async with node(lambda _request: Echo()) as port, stream_to(port, client) as connection:
        connection.send(chunk(bytes(1 << 20)))
        await client.frames.get()
        assert len(connection.get_buffer(-1)) > 1 << 20
        await wait_until_async(lambda: len(connection.get_buffer(-1)) == 1 << 16)
        connection.send(chunk(bytes(1 << 20)))
        assert len((await client.frames.get())[1]) == HEADER_BYTES + (1 << 20)


# -- how a connection begins and ends -----------------------------------------------------------


async def test_a_plain_get_is_told_to_upgrade() -> None:
    async with node(lambda _request: Echo()) as port:
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(b"GET /stream HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 426 ")
        assert b"Upgrade: paxosblock-stream/3" in answer
        writer.close()
        await writer.wait_closed()


async def test_a_refusal_reaches_the_client_as_the_error_it_was() -> None:
    def refuse(_request: web.Request) -> Echo:
        raise NotReadyError("not open yet")

    async with node(refuse) as port:
        with pytest.raises(NotReadyError, match="not open yet"):
            await connect(HOST, port, Recorder())


async def test_nobody_listening_is_unavailable() -> None:
    with socket.socket() as unused:
        unused.bind((HOST, 0))
        port = unused.getsockname()[1]
        with pytest.raises(UnavailableError, match=rf"^{HOST}:{port} cannot be reached: "):
            await connect(HOST, port, Recorder())


async def test_a_peer_that_never_answers_is_unavailable() -> None:
    with socket.socket() as silent:
        silent.bind((HOST, 0))
        silent.listen()
        port = silent.getsockname()[1]
        with pytest.raises(UnavailableError, match=rf"{port} did not answer within 0\.05 s"):
            await connect(HOST, port, Recorder(), timeout_s=0.05)


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", r"is no paxosblock node: it answered b'SSH-2.0-"),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", r"does not speak paxosblock-stream/3: HTTP/1.1 404"),
        (b"HTTP/1.1 101 Yes\r\nUpgrade: websocket\r\n\r\n", r"does not speak paxosblock-stream/3"),
        (b"HTTP/1.1 101 Yes\r\nUpgrade: paxosblock-stream/3\r\n\r\nPXB1", r"sent 4 bytes before"),
        (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 4000, r"is no paxosblock node: it answered"),
    ],
    ids=["ssh", "not-found", "websocket", "hasty", "endless"],
)
@on_both_loops
async def test_a_stranger_on_the_port_is_named(answer: bytes, found: str) -> None:
    async with stranger(answer) as port:
        with pytest.raises(ProtocolError, match=rf"^{HOST}:{port} .*{found}") as caught:
            await connect(HOST, port, Recorder())
        assert caught.value.outcome is Outcome.NEVER, "nothing was asked yet"


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 101 Swi"])
@on_both_loops
async def test_a_node_that_ends_during_the_handshake_is_unavailable(answer: bytes) -> None:
    async with stranger(answer) as port:
        with pytest.raises(UnavailableError, match=rf"^{HOST}:{port} hung up before it answered"):
            await connect(HOST, port, Recorder())


@asynccontextmanager
async def stranger(answer: bytes) -> AsyncIterator[int]:
    """The port of a server that says this to each caller, and hangs up."""
    finished = asyncio.Event()

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()
        await writer.wait_closed()
        finished.set()

    server = await asyncio.start_server(speak, HOST, 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
        await finished.wait()


@on_both_loops
async def test_a_server_that_shuts_down_closes_its_streams() -> None:
    client, server = Recorder(), Recorder()
    async with node(lambda _request: server) as port:
        connection = await connect(HOST, port, client)
        connection.send(chunk(b"one"))
        await server.frames.get()
    await connection.wait_closed()
    assert "closed by the peer" in str(client.lost)
    assert "closed here" in str(server.lost)


async def test_short_frames_of_one_turn_leave_together_and_none_is_overtaken() -> None:
    connection, transport = FrameConnection(Recorder(), "a peer"), Written()
    connection.connection_made(transport)
    one, two, three, four = (chunk(some_bytes(10, seed), seed) for seed in range(4))
    connection.send_soon(one[:HEADER_BYTES], one[HEADER_BYTES:])
    connection.send_soon(two)
    assert transport.pieces == []
    await asyncio.sleep(0)
    assert transport.pieces == [one + two]
    connection.send_soon(three)
    connection.send(four)
    assert transport.pieces[1:] == [three, four]
    assert connection.sent_bytes == len(one + two + three + four)
    connection.send_soon(one)
    connection.close()
    await asyncio.sleep(0)
    assert transport.pieces[3:] == [one, b"closed"]


@on_both_loops
async def test_a_closed_connection_takes_nothing_more() -> None:
    async with node(lambda _request: Echo()) as port, stream_to(port, Recorder()) as connection:
        connection.close()
        connection.send(chunk(b"too late"))
        connection.send_soon(chunk(b"too late"))
        with pytest.raises(OutcomeUnknownError, match="closed here"):
            await connection.drain()


# -- garbage ------------------------------------------------------------------------------------


@on_both_loops
async def test_a_peer_that_breaks_the_protocol_is_told_why() -> None:
    server, client = Recorder(), Recorder()
    async with node(lambda _request: server) as port, stream_to(port, client) as connection:
        connection.send(b"x" * 48)
        await connection.wait_closed()
    assert isinstance(client.lost, ProtocolError)
    assert "bad magic" in str(client.lost)
    assert str(server.lost) == str(client.lost)


@on_both_loops
async def test_a_handlers_own_bug_costs_one_connection_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Buggy(Recorder):
        def frame_received(
            self, connection: FrameConnection, header: Header, frame: memoryview
        ) -> None:
            raise ZeroDivisionError

    client = Recorder()
    async with node(lambda _request: Buggy()) as port, stream_to(port, client) as connection:
        connection.send(chunk(b"a"))
        await connection.wait_closed()
    assert "internal error" in str(client.lost)
    assert isinstance(client.lost, OutcomeUnknownError), "a frame before may have been handled"
    assert "ZeroDivisionError" in caplog.text


def garbage(seed: int) -> bytes:
    """Random bytes, cut frames, flipped bits and giant lengths."""
    choose = random.Random(seed)
    frame = bytearray(chunk(choose.randbytes(choose.randrange(3000))))
    match seed % 4:
        case 0:
            return choose.randbytes(choose.randrange(1, 5000))
        case 1:
            return bytes(frame[: choose.randrange(1, len(frame))])
        case 2:
            frame[choose.randrange(HEADER_BYTES)] ^= 1 << choose.randrange(8)
            return bytes(frame)
        case _:
            giant = Header(FrameKind.CHUNK, payload_length=choose.randrange(1 << 24, 1 << 32))
            return bytes(frame) + giant.pack() + choose.randbytes(100)


@on_both_loops
async def test_a_server_survives_garbage() -> None:
    handlers: list[Recorder] = []

    def make_handler(_request: web.Request) -> Recorder:
        handlers.append(Echo() if handlers == [] else Recorder())
        return handlers[-1]

    survivor = Recorder()
    async with node(make_handler) as port, stream_to(port, survivor) as good:
        for seed in range(80):
            connection = await connect(HOST, port, Recorder())
            connection.send(garbage(seed))
            connection.close()
            await connection.wait_closed()
            good.send(chunk(b"still there", seed))
            assert (await survivor.frames.get())[0].index == seed
        assert survivor.lost is None
    assert all(handler.lost is not None for handler in handlers)


class Busy(Echo):
    """Reads nothing for a while when it is told so: the rest of a frame waits for it."""

    def frame_received(
        self, connection: FrameConnection, header: Header, frame: memoryview
    ) -> None:
        super().frame_received(connection, header, frame)
        if bytes(frame).endswith(b"busy"):
            connection.pause_reading()


@on_both_loops
async def test_a_stream_on_which_a_frame_does_not_come_is_closed_and_a_silent_one_is_not() -> None:
    refusals = Refusals()
    silent, unread, never, stuck = Recorder(), Recorder(), Recorder(), Recorder()
    whole, half = chunk(b"x"), chunk(some_bytes(1000))[:500]
    async with (
        node(lambda _request: Busy(), stall_s=0.1, refusals=refusals) as port,
        stream_to(port, silent) as to_silent,
        stream_to(port, unread) as to_unread,
        stream_to(port, never),
        stream_to(port, stuck) as to_stuck,
    ):
        to_silent.send(whole)
        to_unread.send(chunk(b"busy") + half)
        to_stuck.send(whole + half)
        for recorder in (silent, unread, stuck):
            await recorder.frames.get()
        await wait_until_async(lambda: never.lost is not None and stuck.lost is not None)
        assert refusals.counts == {Refusal.NO_HEAD: 1, Refusal.BODY_STALLED: 1}
        to_silent.send(whole)
        await silent.frames.get()
        assert (silent.lost, unread.lost) == (None, None)
