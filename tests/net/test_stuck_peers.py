"""A port under peers that begin something, or ask for something, and do not go on: they keep no
place that others need."""

from __future__ import annotations

import asyncio

import pytest

from paxosblock.base.units import KIB, MIB
from paxosblock.errors import InvalidRequestError
from paxosblock.net.calls.rpc import RpcClient
from paxosblock.net.message_frames import MessageFrameKind, pack
from paxosblock.net.port.access import OPEN, Access, dialled
from paxosblock.net.port.admission import UNPROVEN_MIN, Caps
from paxosblock.net.port.guard import Guard
from paxosblock.net.port.refusals import Refusal
from paxosblock.net.port.request_bodies import BodyLimits
from paxosblock.net.port.upgrade import CALLS, STREAM, Spoken, head, split_address
from paxosblock.net.streams.stream import connect
from paxosblock.net.wire import decode_error
from tests.loops import on_both_loops
from tests.net.streams import Recorder, chunk
from tests.net.test_floods import TYPE, Node, Text, node, post, rest
from tests.waiting import wait_until_async

SHORT_S = 0.2
SECRET = Access((bytes(32),))


def unread(reader: asyncio.StreamReader) -> None:
    """Read no more of what comes."""
    transport: asyncio.ReadTransport = vars(reader)["_transport"]
    transport.pause_reading()


async def answer_much(_: Text) -> str:
    return "x" * (32 * MIB)


def call(text: bytes, method: bytes = b"measure") -> bytes:
    return pack(MessageFrameKind.CALL, 1, text, method)


async def in_frames(each: Node, frame: bytes) -> asyncio.StreamReader:
    """Send a frame on a connection of its own."""
    reader, writer = await each.connect(head(each.address, CALLS, {}))
    assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
    writer.write(frame)
    await writer.drain()
    return reader


def upgraded(address: str, spoken: Spoken) -> bytes:
    """Ask for an Upgrade as one who could prove the secret."""
    place = split_address(address)
    introduction = SECRET.introduction(spoken.path, dialled(*place, place))
    return head(address, spoken, introduction.headers)


# --- answers that no peer reads ------------------------------------------------------------------


@on_both_loops
async def test_who_does_not_read_an_answer_over_http_is_hung_up_on() -> None:
    async with node(Guard(body_limits=BodyLimits(stall_s=SHORT_S)), answer_much) as each:
        for _ in range(3):
            reader, _ = await each.connect(post(7, b"\x81\xa4text\xa0"))
            unread(reader)
        await wait_until_async(lambda: each.count(Refusal.ANSWER_UNREAD) == 3)
        await wait_until_async(lambda: each.guard.admission.count == 0)
        assert each.count(Refusal.ANSWER_UNREAD) == 3


@on_both_loops
async def test_who_does_not_read_answers_in_frames_is_hung_up_on() -> None:
    async with node(Guard(body_limits=BodyLimits(stall_s=SHORT_S)), answer_much) as each:
        reader = await in_frames(each, call(b"\x81\xa4text\xa0"))
        unread(reader)
        await wait_until_async(lambda: each.count(Refusal.ANSWER_UNREAD) == 1)
        await wait_until_async(lambda: each.guard.admission.count == 0)
        assert each.count(Refusal.ANSWER_UNREAD) == 1


@on_both_loops
@pytest.mark.parametrize("over_http", [True, False], ids=["http", "frames"])
async def test_an_answer_that_is_read_slowly_is_read_to_its_end(over_http: bool) -> None:
    """It takes several times as long as a peer may stand still."""
    async with node(Guard(body_limits=BodyLimits(stall_s=1.0)), answer_much) as each:
        if over_http:
            reader, _ = await each.connect(post(7, b"\x81\xa4text\xa0"))
        else:
            reader = await in_frames(each, call(b"\x81\xa4text\xa0"))
        clock_s = asyncio.get_running_loop().time
        came, due_s = 0, clock_s()

        def is_due() -> bool:
            return clock_s() >= due_s

        while came < 32 * MIB:
            part = await asyncio.wait_for(reader.read(MIB), 20)
            assert part, f"hung up on after {came} bytes"
            came, due_s = came + len(part), due_s + len(part) / (10 * MIB)
            await wait_until_async(is_due)
        assert each.count(Refusal.ANSWER_UNREAD) == 0


# --- places --------------------------------------------------------------------------------------


EXPECT = f"{TYPE}\r\nExpect: 100-continue"


async def others_are_served(each: Node, stuck: bytes) -> None:
    """Begin more connections than the node takes in all, each of which it has heard, and ask on one
    from before, which is idle, and on a new one."""
    async with RpcClient(each.guard.access) as before, RpcClient(each.guard.access) as after:
        assert await before.call(each.address, "measure", Text("text"), int, 20) == 4
        for _ in range(60):
            reader, _ = await each.connect(stuck)
            await reader.readuntil(b"\r\n\r\n")
        assert each.guard.admission.unproven_count == UNPROVEN_MIN
        for client in (before, after):
            assert await client.call(each.address, "measure", Text("text"), int, 20) == 4
        assert each.count(Refusal.UNPROVEN) >= 60 - UNPROVEN_MIN
        assert each.count(Refusal.IDLE) == 0


def crowded(access: Access) -> Guard:
    """Make the guard of a node of 40 places, of which an address may have all."""
    return Guard(Caps(node=40, address=40), access=access)


@on_both_loops
@pytest.mark.parametrize("spoken", [STREAM, CALLS])
async def test_streams_and_calls_that_prove_nothing_give_way_to_others(
    spoken: Spoken,
) -> None:
    async with node(crowded(SECRET)) as each:
        await others_are_served(each, upgraded(each.address, spoken))
        assert each.count(Refusal.ADDRESS_FULL) == 0


@on_both_loops
async def test_a_stream_that_is_used_keeps_its_place() -> None:
    async with node(crowded(SECRET)) as each:
        host, port = split_address(each.address)
        heard = Recorder()
        proven = await connect(host, port, heard, access=SECRET)
        proven.send(chunk(b"x"))
        assert (await asyncio.wait_for(heard.frames.get(), 20))[1] == chunk(b"x")
        for _ in range(100):
            await each.connect(upgraded(each.address, STREAM))
        proven.send(chunk(b"y"))
        assert (await asyncio.wait_for(heard.frames.get(), 20))[1] == chunk(b"y")
        proven.close()
        await proven.wait_closed()


@on_both_loops
async def test_bodies_that_drip_give_way_to_others() -> None:
    async with node(crowded(OPEN)) as each:
        await others_are_served(each, post(MIB, b"x").replace(TYPE.encode(), EXPECT.encode()))
        assert each.count(Refusal.ADDRESS_FULL) == 0


@on_both_loops
async def test_bodies_that_drip_give_way_though_their_connections_were_of_use() -> None:
    served = b"\x81\xa4text\xa4text"
    async with node(crowded(OPEN)) as each, RpcClient(OPEN) as after:
        for _ in range(60):
            reader, writer = await each.connect(post(len(served), served))
            assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
            writer.write(post(MIB, b"x"))
            await writer.drain()
        assert await after.call(each.address, "measure", Text("text"), int, 20) == 4
        assert each.count(Refusal.IDLE) >= 20
        assert each.count(Refusal.ADDRESS_FULL) == 0


@on_both_loops
async def test_streams_that_are_proven_and_not_used_give_way_to_others() -> None:
    async with node(crowded(SECRET)) as each, RpcClient(SECRET) as after:
        host, port = split_address(each.address)
        streams = [await connect(host, port, Recorder(), access=SECRET) for _ in range(60)]
        assert await after.call(each.address, "measure", Text("text"), int, 20) == 4
        assert each.count(Refusal.IDLE) >= 20
        assert each.count(Refusal.ADDRESS_FULL) == 0
        for stream in streams:
            stream.close()
            await stream.wait_closed()


@on_both_loops
async def test_a_refused_request_whose_body_drips_gives_way_to_others() -> None:
    async with node(crowded(SECRET)) as each:
        await others_are_served(each, post(MIB, b"x"))
        assert each.count(Refusal.NO_ACCESS) == 60


# --- heads ---------------------------------------------------------------------------------------


@on_both_loops
@pytest.mark.parametrize("field", [b"X-%03d: " + b"x" * 600 + b"\r\n", b"%d:" + b"x" * 5000])
async def test_a_head_that_grows_is_hung_up_on(field: bytes) -> None:
    async with node() as each:
        reader, writer = await each.connect(b"GET / HTTP/1.1\r\n")
        peer = (reader, writer)

        def refused_though_more_comes() -> bool:
            if not writer.is_closing():
                writer.write(field % 1)
            return each.count(Refusal.MALFORMED) == 1

        await wait_until_async(refused_though_more_comes)
        await rest(peer[0])
        await wait_until_async(lambda: each.guard.admission.count == 0)
        assert each.count(Refusal.MALFORMED) == 1


# --- what no text or too deep is, or too long ----------------------------------------------------

BAD = {
    "no UTF-8": b"\x81\xa4text\xa2\xff\xfe",
    "no UTF-8 in a name": b"\x81\xa2\xff\xfe\xa1a",
    "a million deep": b"\x82\xa4text\xa1a\xa4more" + b"\x91" * 1_000_000 + b"\xc0",
}


@on_both_loops
@pytest.mark.parametrize("body", BAD.values(), ids=BAD.keys())
async def test_a_request_that_nobody_could_read_is_answered(
    body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with node() as each:
        assert b"malformed request" in await answered(await in_frames(each, call(body)))
        over_http, _ = await each.connect(post(len(body), body))
        assert b" 400 " in await answered(over_http)
    assert "Traceback" not in caplog.text


async def answered(reader: asyncio.StreamReader) -> bytes:
    """Return what came until a node has said what it refuses."""
    came = b""
    while b"malformed" not in came:
        more = await asyncio.wait_for(reader.read(KIB), 20)
        assert more, came
        came += more
    return came


@pytest.mark.parametrize("body", BAD.values(), ids=BAD.keys())
def test_an_error_that_nobody_could_read_is_one_of_ours(body: bytes) -> None:
    with pytest.raises(Exception, match="not an error of paxosblock"):
        decode_error(body)


@on_both_loops
async def test_a_request_longer_than_its_row_allows_is_refused_before_it_is_read() -> None:
    async with node(request_bytes_max=KIB) as each, RpcClient() as client:
        for text, length in (("x" * 1000, 1000), ("x" * KIB, 0)):
            asking = client.call(each.address, "measure", Text(text), int, 20)
            if length:
                assert await asking == length
            else:
                with pytest.raises(InvalidRequestError, match="measure with 1033 bytes: at most"):
                    await asking


@on_both_loops
async def test_a_token_that_is_no_text_is_refused_in_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with node(Guard(access=SECRET)) as each:
        for token in (b"Bearer 1.\xc3\xa9", b"Bearer 1.\xff", b"\xff"):
            lines = b"POST /rpc/measure HTTP/1.1\r\nHost: localhost\r\n%b\r\nAuthorization: %b"
            asked = lines % (TYPE.encode(), token) + b"\r\nContent-Length: 0\r\n\r\n"
            reader, _ = await each.connect(asked)
            assert b" 403 " in await reader.readuntil(b"\r\n\r\n")
    assert "Traceback" not in caplog.text
