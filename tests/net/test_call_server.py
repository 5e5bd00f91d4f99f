"""The cost of a connection for control calls to a node, and what its caller is told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import cast

import msgspec
import pytest
from aiohttp import web

from paxosblock.api.limits import MAX_BODY_BYTES
from paxosblock.base.units import KIB, MIB
from paxosblock.errors import (
    DeadlineError,
    InvalidRequestError,
    OutcomeUnknownError,
    PaxosBlockError,
    ProtocolError,
    UnavailableError,
)
from paxosblock.net.calls import call_server, rpc
from paxosblock.net.calls.call_server import CALLS_TOGETHER, UNDER_WAY_MAX, RpcRouter
from paxosblock.net.calls.rpc import RpcClient
from paxosblock.net.message_frames import MessageFrame, MessageFrameKind, MessageFrames, pack
from paxosblock.net.port.admission import Caps
from paxosblock.net.port.guard import Guard
from paxosblock.net.port.refusals import Refusal
from paxosblock.net.port.request_bodies import BodyLimits
from paxosblock.net.port.upgrade import split_address
from paxosblock.net.serving import listen
from paxosblock.net.wire import decode_error
from tests.loops import on_both_loops
from tests.waiting import wait_until_async

HEAD = b"GET /calls HTTP/1.1\r\nHost: n\r\nUpgrade: %b\r\nConnection: Upgrade\r\n\r\n"
VERSION = b"paxosblock-calls/1"
SHORT_S = 0.2
CONNECTING_S = 2.0
"""For a call that will not be answered, and has to connect first on a busy machine."""
CALL = MessageFrameKind.CALL


class Text(msgspec.Struct):
    text: str


class Gate:
    """Answers wait while it is shut."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.waiting = 0
        self.begun = 0

    async def pass_through(self, request: Text) -> str:
        self.begun += 1
        self.waiting += 1
        await self.open.wait()
        self.waiting -= 1
        return request.text


@dataclass
class Caller:
    """A connection of a caller that speaks bytes."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    frames: MessageFrames = field(default_factory=MessageFrames)

    def call(self, number: int, text: str = "text", method: bytes = b"long") -> None:
        self.writer.write(pack(CALL, number, msgspec.msgpack.encode(Text(text)), method))

    async def next(self) -> MessageFrame | None:
        """The next frame; None at the end of the connection."""
        while (frame := self.frames.next()) is None:
            try:
                data = await asyncio.wait_for(self.reader.read(1 << 16), 20)
            except ConnectionError:
                return None
            if not data:
                return None
            self.frames.feed(data)
        return frame

    async def said(self) -> list[MessageFrame]:
        """All frames until the end."""
        frames = []
        while (frame := await self.next()) is not None:
            frames.append(frame)
        return frames


@dataclass
class Node:
    address: str
    guard: Guard
    gate: Gate
    stack: AsyncExitStack
    longs: int = 0

    async def long(self, request: Text) -> str:
        self.longs += 1
        return request.text * 1000

    async def connect(self, version: bytes = VERSION) -> Caller:
        reader, writer = await asyncio.open_connection(*split_address(self.address))
        self.stack.callback(writer.close)
        writer.write(HEAD % version)
        assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
        return Caller(reader, writer)

    def count(self, why: Refusal) -> int:
        return self.guard.refusals.counts[why]


@asynccontextmanager
async def node(guard: Guard | None = None) -> AsyncIterator[Node]:
    router, gate, guard = RpcRouter(), Gate(), guard or Guard()
    router.register("wait", Text, gate.pass_through, request_bytes_max=MAX_BODY_BYTES)
    router.register("wait_at_once", Text, gate.pass_through, at_once=True)
    async with AsyncExitStack() as stack:
        address = await listen(stack, web.Application(), router, "127.0.0.1:0", guard)
        each = Node(address, guard, gate, stack)
        router.register("long", Text, each.long, at_once=True)
        yield each
        gate.open.set()


def reason(frame: MessageFrame | None) -> PaxosBlockError:
    assert frame is not None
    return decode_error(frame.payload)


# --- calls side by side --------------------------------------------------------------------------


@on_both_loops
@pytest.mark.parametrize("method", [b"wait", b"wait_at_once"])
async def test_a_call_that_waits_holds_up_no_other(method: bytes) -> None:
    async with node() as each:
        caller = await each.connect()
        caller.call(1, "first", method)
        caller.call(2, "second")
        assert (second := await caller.next()) is not None
        each.gate.open.set()
        assert (first := await caller.next()) is not None
        assert [second.number, first.number] == [2, 1]
        assert msgspec.msgpack.decode(first.payload) == "first"


@on_both_loops
@pytest.mark.parametrize("method", [b"wait", b"wait_at_once"])
async def test_calls_in_one_piece_leave_others_their_turn(method: bytes) -> None:
    async with node() as each:
        caller = await each.connect()
        begun, loop = [0], asyncio.get_running_loop()

        def look() -> None:
            begun.append(each.gate.begun)
            if begun[-1] < 5 * CALLS_TOGETHER:
                loop.call_soon(look)

        look()
        for number in range(1, 5 * CALLS_TOGETHER + 1):
            caller.call(number, "", method)
        await wait_until_async(lambda: begun[-1] == 5 * CALLS_TOGETHER)
        steps = [later - before for before, later in pairwise(begun)]
        assert max(steps) <= 2 * CALLS_TOGETHER, steps


@on_both_loops
async def test_so_many_calls_are_under_way_and_then_more_when_some_have_ended() -> None:
    async with node() as each:
        caller = await each.connect()
        count = UNDER_WAY_MAX + 50
        for number in range(1, count + 1):
            caller.call(number, "", b"wait")
        await wait_until_async(lambda: each.gate.waiting >= UNDER_WAY_MAX)
        async with RpcClient() as other:
            for _ in range(10):
                await other.call(each.address, "long", Text(""), str, 10)
        assert each.gate.waiting == UNDER_WAY_MAX
        each.gate.open.set()
        numbers = [frame.number for _ in range(count) if (frame := await caller.next())]
        assert sorted(numbers) == list(range(1, count + 1))


@on_both_loops
async def test_answers_that_nobody_reads_wait_with_the_caller_not_in_memory() -> None:
    """Its calls are 100 bytes, the answers 100 KB: what the sockets hold, and a little more."""
    count, text = 2000, "x" * 100
    async with node() as each:
        caller = await each.connect()
        transport = cast(asyncio.Transport, caller.writer.transport)
        transport.pause_reading()
        for number in range(1, count + 1):
            caller.call(number, text)
        async with RpcClient() as other:
            await wait_until_async(lambda: each.longs > 0)
            before = -1
            while each.longs != before:
                before = each.longs
                for _ in range(20):  # many turns of the loop
                    with pytest.raises(ProtocolError):
                        await other.call(each.address, "nothing", Text(""), str, 10)
        assert each.longs < count / 2
        transport.resume_reading()
        numbers = [frame.number for _ in range(count) if (frame := await caller.next())]
        assert numbers == list(range(1, count + 1))


@on_both_loops
async def test_what_a_caller_began_is_done_though_it_hung_up() -> None:
    async with node() as each:
        caller = await each.connect()
        caller.call(1, "", b"wait")
        await wait_until_async(lambda: each.gate.waiting == 1)
        caller.writer.close()
        await wait_until_async(lambda: each.guard.admission.count == 0)
        assert each.gate.waiting == 1
        each.gate.open.set()
        await wait_until_async(lambda: each.gate.waiting == 0)


# --- bytes that are no calls, or come too slowly --------------------------------------------------


GARBAGE = {
    "zeros": bytes(100),
    "http": b"POST /rpc/stat HTTP/1.1\r\n\r\n",
    "too long": (65 * MIB).to_bytes(4, "little") + bytes(8) + b"\x01\x00\x00\x00",
    "damaged": pack(CALL, 2, b"\x80", b"long")[:-1] + b"?",
    "an answer": pack(MessageFrameKind.ANSWER, 2, b"\x80"),
    "a number again": pack(CALL, 1, b"\x80", b"long"),
}


@on_both_loops
@pytest.mark.parametrize("sent", GARBAGE.values(), ids=GARBAGE)
async def test_garbage_is_one_line_and_a_closed_connection(
    sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with node() as each:
        caller = await each.connect()
        caller.call(1, "a")
        caller.writer.write(sent)
        answer, goodbye = await caller.said()
        assert (answer.kind, answer.number) == (MessageFrameKind.ANSWER, 1)
        assert (goodbye.kind, goodbye.number) == (MessageFrameKind.GOODBYE, 1)
        assert reason(goodbye).outcome is not None
        assert each.count(Refusal.MALFORMED) == 1
    assert len(caplog.records) == 1, caplog.text


@on_both_loops
async def test_an_unknown_call_and_a_malformed_request_cost_the_connection_nothing() -> None:
    async with node() as each:
        caller = await each.connect()
        caller.call(1, method=b"reboot")
        caller.writer.write(pack(CALL, 2, b"\x01", b"long"))
        caller.call(3)
        unknown, malformed, answer = [await caller.next() for _ in range(3)]
        assert "there is no control call 'reboot'" in str(reason(unknown))
        assert isinstance(reason(malformed), InvalidRequestError)
        assert answer is not None
        assert answer.kind is MessageFrameKind.ANSWER


@on_both_loops
async def test_another_version_is_refused_and_told_which_one_is_spoken() -> None:
    async with node() as each:
        reader, writer = await asyncio.open_connection(*split_address(each.address))
        writer.write(HEAD % b"paxosblock-calls/2")
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 426 ")
        assert b"\r\nUpgrade: paxosblock-calls/1\r\n" in head
        assert b"/calls speaks paxosblock-calls/1 only" in await reader.read(100)
        writer.close()


@on_both_loops
@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"", Refusal.NO_HEAD),
        (pack(CALL, 1, bytes(1000))[:7], Refusal.BODY_STALLED),
        (pack(CALL, 1, bytes(1000))[:-1], Refusal.BODY_STALLED),
    ],
    ids=["nothing", "header", "payload"],
)
async def test_a_frame_that_stands_still_is_given_up(sent: bytes, why: Refusal) -> None:
    async with node(Guard(body_limits=BodyLimits(stall_s=SHORT_S))) as each:
        caller = await each.connect()
        caller.writer.write(sent)
        assert await caller.said() == []
        assert each.count(why) == 1
        assert each.guard.admission.count == 0


@on_both_loops
async def test_a_frame_of_which_a_byte_comes_now_and_then_is_given_up() -> None:
    async with node(Guard(body_limits=BodyLimits(stall_s=SHORT_S))) as each:
        caller = await each.connect()
        caller.writer.write(pack(CALL, 1, bytes(MIB))[:100])

        def given_up_though_more_comes() -> bool:
            caller.writer.write(b"x")
            return each.count(Refusal.BODY_STALLED) == 1

        await wait_until_async(given_up_though_more_comes)
        assert await caller.said() == []


@on_both_loops
async def test_a_caller_that_was_heard_may_be_silent() -> None:
    async with node(Guard(body_limits=BodyLimits(stall_s=SHORT_S))) as each:
        caller, silent = await each.connect(), await each.connect()
        caller.call(1)
        assert await caller.next() is not None
        assert await silent.said() == []  # the time is over
        caller.call(2)
        assert await caller.next() is not None


@on_both_loops
async def test_large_requests_under_way_share_a_budget_that_small_ones_need_not() -> None:
    async with node(Guard(body_limits=BodyLimits(memory_bytes=2 * MIB))) as each:
        begun = pack(CALL, 1, bytes(10 * MIB), b"long")[: 900 * KIB]
        held = [await each.connect() for _ in range(2)]
        for caller in held:
            caller.writer.write(begun)
        await wait_until_async(lambda: each.guard.request_bodies.held_bytes > 1700 * KIB)
        third = await each.connect()
        third.writer.write(begun)
        (goodbye,) = await third.said()
        assert "too many large requests under way; try again" in str(reason(goodbye))
        assert each.count(Refusal.BODY_MEMORY) == 1
        async with RpcClient() as small:
            assert await small.call(each.address, "long", Text("x"), str, 10) == 1000 * "x"
        for caller in held:
            caller.writer.close()
        await wait_until_async(lambda: each.guard.request_bodies.held_bytes == 0)
        fourth = await each.connect()
        fourth.call(1, "x" * MIB, b"wait")
        each.gate.open.set()
        assert (answer := await fourth.next()) is not None
        assert len(answer.payload) > MIB
        assert each.guard.request_bodies.held_bytes == 0


# --- slots ---------------------------------------------------------------------------------------


@on_both_loops
async def test_an_idle_connection_gives_way_and_its_next_call_takes_another() -> None:
    async with node(Guard(Caps(node=20, address=20))) as each, RpcClient() as client:
        assert await client.call(each.address, "long", Text(""), str, 10) == ""
        busy = await each.connect()
        busy.call(1, "busy", b"wait")
        await wait_until_async(lambda: each.gate.waiting == 1)
        for _ in range(100):
            await each.connect()
        assert each.count(Refusal.IDLE) >= 80
        assert await client.call(each.address, "long", Text(""), str, 10) == ""
        each.gate.open.set()
        assert (answer := await busy.next()) is not None
        assert msgspec.msgpack.decode(answer.payload) == "busy"


@on_both_loops
async def test_beyond_the_cap_one_call_is_answered() -> None:
    async with node(Guard(Caps(node=2, address=2))) as each:
        for _ in range(2):
            caller = await each.connect()
            caller.call(1, "", b"wait")
        await wait_until_async(lambda: each.gate.waiting == 2)
        spare = await each.connect()
        spare.call(1, "x", b"wait")
        spare.call(2)
        each.gate.open.set()
        goodbye, answer = await spare.said()
        assert (goodbye.kind, goodbye.number) == (MessageFrameKind.GOODBYE, 1)
        assert msgspec.msgpack.decode(answer.payload) == "x"


# --- the end -------------------------------------------------------------------------------------


@on_both_loops
@pytest.mark.parametrize("ends", [True, False])
async def test_a_node_that_closes_waits_a_moment_for_what_is_under_way(
    ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_server, "SHUTDOWN_S", 10 if ends else SHORT_S)
    async with RpcClient() as client:
        async with node() as each:
            under_way = client.send(each.address, "wait", Text("x"), str, 10)
            await wait_until_async(lambda: each.gate.waiting == 1)
            closing = asyncio.create_task(each.stack.aclose())
            with pytest.raises(UnavailableError):
                await ask_on(client, each.address)
            if ends:
                each.gate.open.set()
            await closing
        if ends:
            assert await under_way == "x"
        else:
            with pytest.raises(OutcomeUnknownError, match="connection lost"):
                await under_way


async def ask_on(client: RpcClient, address: str) -> None:
    """Call until that fails."""
    while True:
        await client.call(address, "long", Text(""), str, 10)


# --- the client's end ----------------------------------------------------------------------------


@on_both_loops
async def test_a_connection_that_answers_nothing_is_not_used_again() -> None:
    """The machine at the other end may be gone: a new connection would tell."""
    async with node() as each, RpcClient() as client:
        for in_time_s in (CONNECTING_S, SHORT_S):
            with pytest.raises(DeadlineError):
                await client.call(each.address, "wait", Text(""), str, in_time_s)
            await wait_until_async(lambda: each.guard.admission.count == 0)
            assert await client.call(each.address, "long", Text(""), str, 10) == ""
        before = each.gate.begun
        waits = client.send(each.address, "wait", Text("x"), str, 10)
        await wait_until_async(lambda: each.gate.begun == before + 1)
        with pytest.raises(DeadlineError):
            await client.call(each.address, "wait", Text(""), str, SHORT_S)
        assert await client.call(each.address, "long", Text(""), str, 10) == ""
        assert each.guard.admission.count == 2
        each.gate.open.set()
        assert await waits == "x"


@on_both_loops
async def test_a_call_that_is_given_up_by_its_caller_disturbs_no_other() -> None:
    async with node() as each, RpcClient() as client:
        calls = [client.send(each.address, "wait", Text(str(n)), str, 10) for n in range(3)]
        await wait_until_async(lambda: each.gate.waiting == 3)
        calls[1].cancel()
        each.gate.open.set()
        assert await calls[0] == "0"
        assert await calls[2] == "2"
        assert calls[1].cancelled()


@on_both_loops
async def test_an_idle_connection_is_replaced_before_the_next_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rpc, "IDLE_S", 0)
    async with node() as each, RpcClient() as client:
        for _ in range(3):
            assert await client.call(each.address, "long", Text(""), str, 10) == ""
        await wait_until_async(lambda: each.guard.admission.count == 1)
