"""Calls on the data stream (stream_calls.py), on asyncio's own loop and on uvloop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from paxosblock.errors import (
    CorruptionError,
    DeadlineError,
    NotFoundError,
    OutcomeUnknownError,
    PaxosBlockError,
    ProtocolError,
    UnavailableError,
)
from paxosblock.net.port.caller import REQUEST_ID
from paxosblock.net.streams.connection import FrameConnection
from paxosblock.net.streams.stream_calls import Bulk, CallChannel, CallServer, open_channel
from paxosblock.net.wire import FrameKind, Header, MessageTable, encode_error, verify_payload
from paxosblock.protocol.types import BlockId, ChunkIndex
from tests.loops import on_both_loops
from tests.net.streams import HOST, Recorder, chunk, feed, node, some_bytes
from tests.waiting import wait_until_async


class Ask(msgspec.Struct, frozen=True, tag=True):
    what: str
    count: int = 0
    size: int = 0


class Told(msgspec.Struct, frozen=True, tag=True):
    what: str


ASKS = MessageTable((Ask,))
TOLD = MessageTable((Told,))


class Answering(Recorder):
    """A server's handler that answers calls, and CHUNK frames with a VOTE."""

    def __init__(self) -> None:
        self.calls = CallServer(ASKS, TOLD, self.answer, self.at_once)
        self.begun: list[bool] = []
        self.later: list[asyncio.Future[object]] = []
        self.release = asyncio.Event()
        self.connection: FrameConnection | None = None

    def frame_received(
        self, connection: FrameConnection, header: Header, frame: memoryview
    ) -> None:
        self.connection = connection
        if header.kind is FrameKind.CHUNK:
            connection.send_frame(Header(FrameKind.VOTE, index=header.index))
        else:
            self.begun.append(self.calls.call_received(connection, header, frame))

    def at_once(self, request: Ask) -> object | None:
        match request.what:
            case "at once":
                return Told("at once")
            case "part":
                return Bulk(Told("part"), 1, (chunk(some_bytes(request.size)),))
            case "who":
                return Told(REQUEST_ID.get())
            case "later":
                later: asyncio.Future[object] = asyncio.get_running_loop().create_future()
                self.later.append(later)
                return later
        return None

    def connection_lost(self, connection: FrameConnection, error: PaxosBlockError) -> None:
        self.lost = error
        self.calls.connection_lost()

    async def answer(self, request: Ask, header: Header) -> object:
        match request.what:
            case "fail":
                raise NotFoundError("no such thing", block=header.block)
            case "break":
                raise ZeroDivisionError
            case "wait":
                await self.release.wait()
            case "whose":
                return Told(REQUEST_ID.get())
            case "chunks":
                frames = [
                    chunk(some_bytes(request.size, index), index) for index in range(request.count)
                ]
                return Bulk(Told("chunks"), request.count, tuple(frames))
        return Told(request.what)


@dataclass
class Sink:
    """Gathers the chunks of a reply, in a buffer or one by one."""

    buffer: bytearray | None = None
    filled: int = 0
    reply: Told | None = None
    chunks: list[bytes] = field(default_factory=list)

    def reply_received(self, reply: Told, count: int) -> None:
        self.reply = reply

    def payload_buffer(self, header: Header) -> memoryview | None:
        if self.buffer is None:
            return None
        return memoryview(self.buffer)[self.filled :]

    def chunk_received(self, header: Header, payload: memoryview) -> None:
        verify_payload(header, payload)
        self.filled += len(payload)
        self.chunks.append(bytes(payload))


@dataclass
class Votes:
    """Takes the votes and beats that come beside the replies."""

    got: asyncio.Queue[int] = field(default_factory=asyncio.Queue)
    lost: PaxosBlockError | None = None

    def vote_received(self, header: Header, payload: memoryview) -> None:
        self.got.put_nowait(header.index)

    def beat_received(self, header: Header) -> None:
        self.got.put_nowait(header.index)

    def connection_lost(self, error: PaxosBlockError) -> None:
        self.lost = error


@asynccontextmanager
async def channel_to(server: Recorder, votes: Votes | None = None) -> AsyncIterator[CallChannel]:
    async with node(lambda _request: server) as port:
        channel = await open_channel(HOST, port, ASKS, TOLD, votes)
        try:
            yield channel
        finally:
            channel.connection.close()
            await channel.connection.wait_closed()


@on_both_loops
async def test_each_call_gets_its_own_reply() -> None:
    server = Answering()
    async with channel_to(server) as channel:
        slow = asyncio.create_task(channel.call(Ask("wait"), timeout_s=10))
        quick = [channel.call(Ask(f"{number}"), timeout_s=10) for number in range(50)]
        assert await asyncio.gather(*quick) == [Told(f"{number}") for number in range(50)]
        assert not slow.done()
        server.release.set()
        assert await slow == Told("wait")


@on_both_loops
async def test_what_comes_on_a_stream_has_the_name_of_the_call_for_which_it_was_opened() -> None:
    """For the log; without one it has a name of its own."""
    names = ["a-recovery", "", "n" * 1000, "a read"]
    async with AsyncExitStack() as stack:
        port = await stack.enter_async_context(node(lambda _request: Answering()))
        channels = []
        for name in names:
            context = copy_context()
            if name:
                context.run(REQUEST_ID.set, name)
            opening = open_channel(HOST, port, ASKS, TOLD)
            channels.append(await asyncio.create_task(opening, context=context))
            stack.callback(channels[-1].connection.close)
        for ask in (Ask("who"), Ask("whose")):
            told = [await channel.call(ask, timeout_s=10) for channel in channels]
            assert (told[0], told[3]) == (Told("a-recovery"), Told("a read"))
            assert told[2] == Told("n" * 255)
            assert len(told[1].what) == 16


@on_both_loops
async def test_what_is_answered_at_once_overtakes_what_waits() -> None:
    server = Answering()
    async with channel_to(server) as channel:
        slow = asyncio.create_task(channel.call(Ask("wait"), timeout_s=10))
        sinks = [Sink() for _ in range(50)]
        await asyncio.gather(
            *(channel.call(Ask("part", size=10), timeout_s=10, sink=sink) for sink in sinks)
        )
        assert all(sink.chunks == [some_bytes(10)] for sink in sinks)
        assert await channel.call(Ask("at once"), timeout_s=10) == Told("at once")
        assert not slow.done()
        assert server.begun == [True] + [False] * 51, "a call that is over is not under way"
        server.release.set()
        assert await slow == Told("wait")


@on_both_loops
async def test_a_future_is_answered_when_it_is_done_and_without_a_task(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Answering()
    async with channel_to(server) as channel:
        calls = [
            asyncio.create_task(channel.call(Ask("later"), timeout_s=10, soon=True))
            for _ in range(4)
        ]
        await wait_until_async(lambda: len(server.later) == 4)
        assert server.begun == [True] * 4, "they are under way"
        one, two, fails, breaks = server.later
        two.set_result(Told("two"))
        assert await calls[1] == Told("two")
        one.set_result(Told("one"))
        fails.set_exception(NotFoundError("no such thing"))
        breaks.set_exception(ZeroDivisionError())
        assert await calls[0] == Told("one")
        with pytest.raises(NotFoundError, match="no such thing"):
            await calls[2]
        with pytest.raises(OutcomeUnknownError, match="internal error"):
            await calls[3]
        assert "ZeroDivisionError" in caplog.text
        assert await channel.call(Ask("and on"), timeout_s=10) == Told("and on")


@on_both_loops
async def test_what_nobody_waits_for_any_more_is_answered_to_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = Answering()
    async with channel_to(server) as channel:
        lost = asyncio.create_task(channel.call(Ask("later"), timeout_s=10))
        await wait_until_async(lambda: server.later)
        channel.connection.abort()
        with pytest.raises(OutcomeUnknownError):
            await lost
        await wait_until_async(lambda: server.lost)
        server.later[0].set_result(Told("late"))
        await asyncio.sleep(0)
        assert caplog.text == ""


@on_both_loops
async def test_a_call_raises_what_the_server_raised() -> None:
    async with channel_to(Answering()) as channel:
        with pytest.raises(NotFoundError, match="no such thing") as raised:
            await channel.call(Ask("fail"), block=BlockId(9), timeout_s=10)
        assert raised.value.details == {"block": 9}
        assert await channel.call(Ask("and on"), timeout_s=10) == Told("and on")


@on_both_loops
async def test_a_bug_in_an_answer_leaves_the_outcome_unknown_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with channel_to(Answering()) as channel:
        with pytest.raises(OutcomeUnknownError, match="internal error"):
            await channel.call(Ask("break"), timeout_s=10)
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize("into_buffer", [True, False], ids=["into-a-buffer", "one-by-one"])
async def test_the_chunks_of_a_reply_come_in_order(into_buffer: bool) -> None:
    async with channel_to(Answering()) as channel:
        sink = Sink(bytearray(8 * 200_000) if into_buffer else None)
        reply = await channel.call(Ask("chunks", 8, 200_000), timeout_s=10, sink=sink)
        assert reply == sink.reply == Told("chunks")
        expected = [some_bytes(200_000, index) for index in range(8)]
        assert sink.chunks == expected
        if into_buffer:
            assert bytes(sink.buffer or b"") == b"".join(expected)


async def test_votes_come_between_replies() -> None:
    votes = Votes()
    async with channel_to(Answering(), votes) as channel:
        calls = []
        for index in range(20):
            channel.connection.send(chunk(b"data", index))
            calls.append(channel.call(Ask("chunks", 2, 100_000), timeout_s=10, sink=Sink()))
        assert len(await asyncio.gather(*calls)) == 20
        assert [await votes.got.get() for _ in range(20)] == list(range(20))
    assert "closed here" in str(votes.lost)


async def test_a_late_reply_and_its_chunks_are_dropped() -> None:
    server = Answering()
    async with channel_to(server) as channel:
        with pytest.raises(DeadlineError, match=r"did not answer Ask within 0\.01 s"):
            await channel.call(Ask("wait"), timeout_s=0.01)
        abandoned = Sink(bytearray(4 << 20))
        task = asyncio.create_task(
            channel.call(Ask("chunks", 4, 1 << 20), timeout_s=10, sink=abandoned)
        )
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        server.release.set()
        assert await channel.call(Ask("next"), timeout_s=10) == Told("next")
        assert abandoned.buffer == bytearray(4 << 20)


@on_both_loops
async def test_each_call_is_given_up_at_its_own_time() -> None:
    server = Answering()
    async with channel_to(server) as channel:
        patient = asyncio.create_task(channel.call(Ask("wait"), timeout_s=60))
        for seconds in (0.03, 0.01, 0.02):
            with pytest.raises(DeadlineError, match=f"did not answer Ask within {seconds} s"):
                await channel.call(Ask("wait"), timeout_s=seconds)
        late = [channel.call(Ask("wait"), timeout_s=seconds) for seconds in (0.03, 0.01, 0.02)]
        errors = await asyncio.gather(*late, return_exceptions=True)
        assert [isinstance(each, DeadlineError) for each in errors] == [True] * 3
        assert not patient.done()
        server.release.set()
        assert await patient == Told("wait")


@on_both_loops
async def test_calls_whose_time_is_up_when_they_are_sent_end_as_late_ones() -> None:
    server = Answering()
    async with channel_to(server) as channel:
        late = [channel.call(Ask("wait"), timeout_s=0.0) for _ in range(3)]
        errors = await asyncio.gather(*late, return_exceptions=True)
        assert [type(each) for each in errors] == [DeadlineError] * 3
        assert await channel.call(Ask("at once"), timeout_s=60) == Told("at once")
        server.release.set()


class CancelsItself(Sink):
    """Gives up its call as soon as the first chunk's place is known."""

    task: asyncio.Task[Any]

    def payload_buffer(self, header: Header) -> memoryview | None:
        place = super().payload_buffer(header)
        self.task.cancel()
        return place


async def test_a_cancelled_call_lets_go_of_its_buffer_at_once() -> None:
    """Chunk 1 is half on its way into the buffer when the call ends."""
    votes = Votes()
    first, rest = chunk(bytes(1 << 20)), bytes([1]) * (1 << 20)
    channel = CallChannel(ASKS, TOLD, votes)
    channel.connection = FrameConnection(channel, "peer")
    sink = CancelsItself(bytearray([9]) * (1 << 20))
    sink.task = asyncio.create_task(channel.call(Ask("chunks"), timeout_s=10, sink=sink))
    await asyncio.sleep(0)
    payload = TOLD.encode(Told("chunks"))
    reply = Header.of(FrameKind.REPLY, payload, request=1, index=ChunkIndex(2))
    second = Header.of(FrameKind.CHUNK, rest)
    feed(channel.connection, reply.pack() + payload + first[:1000])
    with pytest.raises(asyncio.CancelledError):
        await sink.task
    assert sink.buffer is not None
    before = bytes(sink.buffer)
    feed(channel.connection, first[1000:] + second.pack() + rest + Header(FrameKind.VOTE).pack())
    assert sink.buffer == before
    assert sink.chunks == []
    assert votes.got.get_nowait() == 0
    channel.connection.connection_lost(None)


async def test_an_error_in_the_sink_fails_the_call_and_nothing_else() -> None:
    class Picky(Sink):
        def chunk_received(self, header: Header, payload: memoryview) -> None:
            raise CorruptionError("not what I expected")

    async with channel_to(Answering()) as channel:
        with pytest.raises(CorruptionError, match="not what I expected"):
            await channel.call(Ask("chunks", 5, 100_000), timeout_s=10, sink=Picky())
        assert await channel.call(Ask("next"), timeout_s=10) == Told("next")


async def test_calls_on_a_lost_connection_have_an_unknown_outcome() -> None:
    server = Answering()
    async with channel_to(server) as channel:
        waiting = [asyncio.create_task(channel.call(Ask("wait"), timeout_s=10)) for _ in range(3)]
        await channel.call(Ask("hello"), timeout_s=10)
        assert server.connection is not None
        server.connection.abort()
        for task in waiting:
            with pytest.raises(OutcomeUnknownError, match="connection to"):
                await task
        with pytest.raises(UnavailableError):
            await channel.call(Ask("too late"), timeout_s=10)


Misbehave = Callable[[FrameConnection, Header], None]


def between_chunks(connection: FrameConnection, header: Header) -> None:
    payload = TOLD.encode(Told("a"))
    reply = Header.of(FrameKind.REPLY, payload, request=header.request, index=ChunkIndex(2))
    connection.send(reply.pack() + payload + chunk(b"1") + Header(FrameKind.VOTE).pack())


def bad_checksum(connection: FrameConnection, header: Header) -> None:
    payload = encode_error(NotFoundError("a"))
    wrong = Header(FrameKind.ERROR, payload_length=len(payload), request=header.request)
    connection.send(wrong.pack(), payload)


@pytest.mark.parametrize(
    ("misbehave", "reason"),
    [
        (between_chunks, "a VOTE frame came between the chunks of a reply"),
        (lambda c, h: c.send(chunk(b"1")), "a CHUNK frame came that belongs to no reply"),
        (lambda c, h: c.send_frame(Header(FrameKind.CALL)), "a server does not call"),
        (lambda c, h: c.send_frame(Header(FrameKind.VOTE)), "a VOTE frame came, but nothing was"),
        (bad_checksum, "ERROR payload has checksum"),
    ],
)
@on_both_loops
async def test_a_server_that_breaks_the_protocol_fails_the_call(
    misbehave: Misbehave, reason: str
) -> None:
    class Misbehaving(Recorder):
        def frame_received(
            self, connection: FrameConnection, header: Header, frame: memoryview
        ) -> None:
            if header.kind is FrameKind.CALL:
                misbehave(connection, header)

    server = Misbehaving()
    async with channel_to(server) as channel:
        with pytest.raises(OutcomeUnknownError, match=reason):
            await channel.call(Ask("a"), timeout_s=10, sink=Sink())


@on_both_loops
async def test_a_call_that_is_no_message_of_the_stream_closes_it() -> None:
    async with channel_to(Answering()) as channel:
        payload = b"\x93garbage"
        header = Header.of(FrameKind.CALL, payload, request=1)
        channel.connection.send_frame(header, payload)
        await channel.connection.wait_closed()
        assert isinstance(channel.connection.error, ProtocolError)
        assert "malformed message" in str(channel.connection.error)
