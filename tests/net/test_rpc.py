"""Control calls (rpc.py): typed both ways, and every failure is one of our errors."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import msgspec
import pytest
from aiohttp import web

from paxosblock.api.limits import MAX_BODY_BYTES
from paxosblock.base.units import MIB
from paxosblock.errors import (
    DeadlineError,
    InvalidRequestError,
    NotFoundError,
    Outcome,
    OutcomeUnknownError,
    PaxosBlockError,
    ProtocolError,
    UnavailableError,
)
from paxosblock.net.calls.call_server import RpcRouter
from paxosblock.net.calls.rpc import RpcClient
from paxosblock.net.message_frames import MessageFrameKind, pack
from paxosblock.net.port.caller import REQUEST_ID
from paxosblock.net.port.upgrade import split_address
from paxosblock.net.serving import listen
from paxosblock.net.wire import decode_error, encode_error
from tests.loops import on_both_loops

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Ask:
    path: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class Told:
    paths: tuple[str, ...]


async def repeat(request: Ask) -> Told:
    return Told((request.path,) * request.count)


@asynccontextmanager
async def node(handler: Callable[[Ask], Awaitable[object]] = repeat) -> AsyncIterator[str]:
    """A server with the method `repeat`; gives its address."""
    router = RpcRouter()
    router.register("repeat", Ask, handler, request_bytes_max=MAX_BODY_BYTES)
    async with AsyncExitStack() as stack:
        yield await listen(stack, web.Application(), router, f"{HOST}:0")


async def ask(address: str, request: object, method: str = "repeat", timeout_s: float = 10) -> Told:
    async with RpcClient() as client:
        return await client.call(address, method, request, Told, timeout_s)


@on_both_loops
async def test_a_call_is_answered_with_the_type_that_was_asked_for() -> None:
    async with node() as address:
        assert await ask(address, Ask("/a", 3)) == Told(("/a", "/a", "/a"))


@on_both_loops
async def test_many_calls_share_a_client() -> None:
    async with node() as address, RpcClient() as client:
        calls = [client.call(address, "repeat", Ask(f"/{n}"), Told, 10) for n in range(100)]
        assert await asyncio.gather(*calls) == [Told((f"/{n}",)) for n in range(100)]


@on_both_loops
async def test_a_node_that_is_busy_for_a_moment_turns_no_connection_away() -> None:
    """A connection that does not fit into its queue is lost, and comes again after 1, 3 and 7 s."""
    count = min(300, int(Path("/proc/sys/net/core/somaxconn").read_text()))
    async with node() as address:
        with ExitStack() as stack:  # its event loop stands still meanwhile
            place = split_address(address)
            for _ in range(count):
                caller = stack.enter_context(socket.create_connection(place, timeout=5))
                assert caller.getpeername() == place


@on_both_loops
async def test_a_request_may_be_longer_than_aiohttps_own_limit() -> None:
    path = "x" * (3 << 20)
    async with node() as address:
        assert await ask(address, Ask(path)) == Told((path,))


@on_both_loops
async def test_a_malformed_request_is_refused_and_the_field_is_named() -> None:
    async with node() as address:
        with pytest.raises(InvalidRequestError, match=r"malformed request of repeat: .*\$\.count"):
            await ask(address, {"path": "/a", "count": "many"})


@on_both_loops
async def test_an_unknown_method_is_a_protocol_error() -> None:
    async with node() as address:
        with pytest.raises(ProtocolError, match="no control call 'reboot' on this node"):
            await ask(address, Ask("/a"), method="reboot")


@on_both_loops
async def test_a_call_raises_what_the_handler_raised_and_notes_where() -> None:
    async def missing(request: Ask) -> Told:
        raise NotFoundError(f"'{request.path}': no such file", path=request.path)

    async with node(missing) as address:
        with pytest.raises(NotFoundError, match=r"^'/a': no such file\n") as raised:
            await ask(address, Ask("/a"))
    assert raised.value.details == {"path": "/a"}
    assert raised.value.__notes__[0].startswith(f"repeat of {address}, request ")


@on_both_loops
async def test_a_bug_in_a_handler_leaves_the_outcome_unknown_and_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def buggy(_request: Ask) -> Told:
        raise ZeroDivisionError

    async with node(buggy) as address:
        with pytest.raises(OutcomeUnknownError, match=r"^internal error in repeat; "):
            await ask(address, Ask("/a"))
    assert caplog.text.count("Traceback") == 1


@on_both_loops
async def test_a_call_made_while_answering_keeps_the_name_of_the_first() -> None:
    seen: list[str] = []

    async def inner(request: Ask) -> Told:
        seen.append(REQUEST_ID.get())
        return Told((request.path,))

    async with node(inner) as second:

        async def outer(request: Ask) -> Told:
            seen.append(REQUEST_ID.get())
            return await ask(second, request)

        async with node(outer) as first:
            await ask(first, Ask("/a"))
            await ask(first, Ask("/a"))
    assert seen[0] == seen[1] != seen[2] == seen[3]


@on_both_loops
async def test_a_name_that_a_frame_cannot_hold_is_cut() -> None:
    seen: list[str] = []

    async def inner(request: Ask) -> Told:
        seen.append(REQUEST_ID.get())
        return Told((request.path,))

    async with node(inner) as address:
        REQUEST_ID.set("n" * 1000)
        await ask(address, Ask("/a"))
    assert seen == ["n" * 255]


async def post(
    address: str, body: bytes, method: str = "repeat", **headers: str
) -> tuple[int, str, bytes]:
    """Call as people do, with curl: status, type and body of the answer."""
    headers = {"Content-Type": "application/msgpack"} | headers
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"http://{address}/rpc/{method}", data=body, headers=headers) as answer,
    ):
        return answer.status, answer.content_type, await answer.read()


@on_both_loops
async def test_over_http_a_call_is_answered_with_the_same() -> None:
    async with node() as address:
        status, kind, body = await post(address, msgspec.msgpack.encode(Ask("/a", 2)))
        assert (status, kind) == (200, "application/msgpack")
        assert msgspec.msgpack.decode(body, type=Told) == await ask(address, Ask("/a", 2))


@on_both_loops
@pytest.mark.parametrize(
    ("header", "text", "status", "words"),
    [
        ("Origin", "http://evil", 403, "a page in a browser may not ask here"),
        ("Origin", "null", 403, "a page in a browser may not ask here"),
        ("Host", "evil:9870", 403, "'evil:9870' is no name of this node"),
        ("Host", "127.0.0.1.evil", 403, "is no name of this node"),
        ("Host", "", 403, "is no name of this node"),
        ("Content-Type", "text/plain", 400, "Content-Type: application/msgpack"),
        ("Content-Type", "application/x-www-form-urlencoded", 400, "Content-Type"),
    ],
)
async def test_over_http_nothing_is_done_that_a_page_in_a_browser_may_ask_for(
    header: str, text: str, status: int, words: str
) -> None:
    async def never(request: Ask) -> Told:
        raise AssertionError("a page in a browser did this")

    async with node(never) as address:
        body = msgspec.msgpack.encode(Ask("/a"))
        found, _, said = await post(address, body, **{header: text})
        assert found == status
        with pytest.raises(PaxosBlockError, match=re.escape(words)):
            raise decode_error(said)


@on_both_loops
@pytest.mark.parametrize(
    "host", ["10.0.0.1", "[::1]:9870", "localhost:1", "LocalHost", socket.gethostname()]
)
async def test_over_http_a_node_is_asked_by_its_address_or_its_name(host: str) -> None:
    async with node() as address:
        status, _, _ = await post(address, msgspec.msgpack.encode(Ask("/a")), Host=host)
        assert status == 200


@on_both_loops
@pytest.mark.parametrize(
    ("method", "request_", "status"),
    [("repeat", {"path": 7}, 400), ("reboot", Ask("/a"), 400), ("repeat", Ask("/none"), 404)],
)
async def test_over_http_a_refusal_is_the_same(method: str, request_: object, status: int) -> None:
    async def missing(request: Ask) -> Told:
        raise NotFoundError(f"'{request.path}': no such file")

    async with node(missing) as address:
        found, _, body = await post(address, msgspec.msgpack.encode(request_), method)
        with pytest.raises(PaxosBlockError) as raised:
            await ask(address, request_, method)
    refusal = decode_error(body)
    assert found == status == refusal.http_status
    assert type(refusal) is type(raised.value)
    assert str(raised.value).endswith(str(refusal))


@on_both_loops
async def test_nobody_listening_is_unavailable() -> None:
    with socket.socket() as unused:
        unused.bind((HOST, 0))
        address = f"{HOST}:{unused.getsockname()[1]}"
        with pytest.raises(UnavailableError, match=rf"^repeat of {address}: cannot be reached"):
            await ask(address, Ask("/a"))


@on_both_loops
@pytest.mark.parametrize("address", ["localhost", "localhost:http", "a b:1", ":1", "h:1/x", ""])
async def test_what_is_no_address_is_unavailable(address: str) -> None:
    with pytest.raises(UnavailableError, match="is not an address: write host:port"):
        await ask(address, Ask("/a"))


@on_both_loops
async def test_no_answer_in_time_leaves_the_outcome_unknown() -> None:
    async def stuck(_request: Ask) -> Told:
        await released.wait()
        return Told(())

    released = asyncio.Event()
    async with node(stuck) as address:
        with pytest.raises(DeadlineError, match=rf"^repeat of {address}: no answer in 0\.333 s$"):
            await ask(address, Ask("/a"), timeout_s=1 / 3)
        released.set()


@on_both_loops
async def test_calls_whose_time_is_up_when_they_are_sent_end_as_late_ones() -> None:
    async with node() as address, RpcClient() as client:
        await client.call(address, "repeat", Ask("/a"), Told, 10)  # there is a connection now
        late = [client.call(address, "repeat", Ask("/b"), Told, 0.0) for _ in range(3)]
        errors = await asyncio.gather(*late, return_exceptions=True)
        assert [type(each) for each in errors] == [DeadlineError] * 3


@asynccontextmanager
async def stranger(*answers: bytes) -> AsyncIterator[str]:
    """A server that answers the head of a request and then the request like this, and hangs up."""
    finished = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for number, answer in enumerate(answers):
            await reader.readuntil(b"/a" if number else b"\r\n\r\n")
            writer.write(answer)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        finished.set()

    server = await asyncio.start_server(serve, HOST, 0)
    async with server:
        yield f"{HOST}:{server.sockets[0].getsockname()[1]}"
        await finished.wait()


AGREES = b"HTTP/1.1 101 x\r\nUpgrade: paxosblock-calls/1\r\n\r\n"
ANSWER, ERROR, GOODBYE = MessageFrameKind.ANSWER, MessageFrameKind.ERROR, MessageFrameKind.GOODBYE
LEAVES = pack(GOODBYE, 0, encode_error(UnavailableError("it is needed for others")))


@on_both_loops
@pytest.mark.parametrize(
    ("answer", "kind", "reason"),
    [
        (b"", UnavailableError, "hung up before it answered"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", ProtocolError, "is no paxosblock node: .*SSH-2.0"),
        (b"HTTP/1.1 200 OK\r\n\r\nhello", ProtocolError, "does not speak .*: HTTP/1.1 200 OK"),
        (b"HTTP/1.1 404 Not\r\n\r\nhello", ProtocolError, "does not speak .*: HTTP/1.1 404"),
        (AGREES.replace(b"/1\r", b"/2\r"), ProtocolError, "does not speak paxosblock-calls/1$"),
        (AGREES + b"x" * 16, ProtocolError, "sent 16 bytes before it was asked"),
        (AGREES + pack(ANSWER, 1, b"x"), ProtocolError, "sent 17 bytes before it was asked"),
        (AGREES + LEAVES, UnavailableError, "it is needed for others"),
        (AGREES + LEAVES[:20], UnavailableError, "hung up before it was asked"),
    ],
    ids=["nothing", "ssh", "text", "not-found", "version", "eager", "answer", "goodbye", "half"],
)
async def test_who_takes_no_calls_is_named_and_nothing_was_done(
    answer: bytes, kind: type[PaxosBlockError], reason: str
) -> None:
    async with stranger(answer) as address:
        with pytest.raises(kind, match=rf"^repeat of {address}: .*{reason}") as caught:
            await ask(address, Ask("/a"))
    assert caught.value.outcome is Outcome.NEVER


@on_both_loops
@pytest.mark.parametrize(
    ("answer", "kind", "reason"),
    [
        (b"", OutcomeUnknownError, "connection lost"),
        (pack(ANSWER, 1, b"half")[:-1], OutcomeUnknownError, "connection lost"),
        (bytes(100), ProtocolError, "no frame of a message begins with"),
        (
            b"HTTP/1.1 502 Bad\r\n\r\n",
            ProtocolError,
            "no frame of a message begins with b'HTTP/1.1",
        ),
        (pack(ANSWER, 1, b"x")[:-1] + b"y", ProtocolError, "does not match its checksum"),
        (pack(ANSWER, 1, b"\x01"), ProtocolError, "malformed answer"),
        (pack(ERROR, 1, b"\x01"), ProtocolError, "not an error of"),
        (pack(GOODBYE, 1, b"\x01"), ProtocolError, "not an error of"),
    ],
    ids=["nothing", "half", "zeros", "http", "damaged", "type", "error", "goodbye"],
)
async def test_a_strange_answer_is_named_with_its_address(
    answer: bytes, kind: type[PaxosBlockError], reason: str
) -> None:
    async with stranger(AGREES, answer) as address:
        with pytest.raises(kind, match=rf"^repeat of {address}: .*{reason}") as caught:
            await ask(address, Ask("/a"))
    assert caught.value.outcome is Outcome.UNKNOWN, "the request was sent"


@on_both_loops
async def test_what_comes_after_a_goodbye_was_not_begun() -> None:
    """The answer to the first comes, the second was never read."""
    why = encode_error(UnavailableError("the node is closing"))
    told = pack(ANSWER, 1, msgspec.msgpack.encode(Told(("/a",))))
    async with stranger(AGREES, pack(GOODBYE, 1, why) + told) as address, RpcClient() as client:
        calls = [client.send(address, "repeat", Ask(path), Told, 10) for path in ("/a", "/b")]
        first, second = await asyncio.gather(*calls, return_exceptions=True)
    assert first == Told(("/a",))
    assert isinstance(second, UnavailableError)
    assert "the node is closing" in str(second)


@on_both_loops
async def test_a_client_that_was_closed_opens_anew() -> None:
    client = RpcClient()
    async with node() as address:
        for _ in range(2):
            assert await client.call(address, "repeat", Ask("/a"), Told, 10) == Told(("/a",))
            await client.close()


@on_both_loops
async def test_a_node_that_reads_nothing_keeps_no_client_from_closing() -> None:
    hangs, over, gone = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(AGREES)
        await reader.readuntil(b"/a")
        transport: asyncio.Transport = vars(reader)["_transport"]
        transport.pause_reading()
        hangs.set()
        await over.wait()
        transport.abort()
        gone.set()

    server = await asyncio.start_server(hang, HOST, 0)
    async with server:
        address = f"{HOST}:{server.sockets[0].getsockname()[1]}"
        client = RpcClient()
        calls = [client.send(address, "repeat", Ask("/a"), Told, 10)]
        await hangs.wait()
        much = Ask("x" * MIB)
        calls += [client.send(address, "repeat", much, Told, 10) for _ in range(32)]
        try:
            async with asyncio.timeout(5):
                await client.close()
        finally:
            over.set()
            await gone.wait()
        errors = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(each) for each in errors} == {OutcomeUnknownError}
