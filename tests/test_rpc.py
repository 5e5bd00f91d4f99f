"""Control calls (rpc.py): typed both ways, and every failure is one of our errors."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

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
from paxosblock.net.control import split_address
from paxosblock.net.rpc import REQUEST_ID, RpcClient, RpcRouter
from paxosblock.net.serving import listen
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
    router.register("repeat", Ask, handler)
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
    """What does not fit into its queue is lost, and comes again after one second, three, seven."""
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


def http_request(*headers: str, version: str = "1.1", body: bytes) -> bytes:
    lines = (f"POST /rpc/repeat HTTP/{version}", "Host: node", f"Content-Length: {len(body)}")
    return "\r\n".join((*lines, *headers, "", "")).encode() + body


async def read_answer(reader: asyncio.StreamReader) -> tuple[str, Told]:
    """The head of an HTTP answer, in small letters, and what its body says."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
    return head, msgspec.msgpack.decode(await reader.readexactly(length), type=Told)


@on_both_loops
@pytest.mark.parametrize(
    ("version", "header", "stays"),
    [
        ("1.1", "Accept: */*", True),
        ("1.1", "Connection: close", False),
        ("1.0", "Accept: */*", False),
        ("1.0", "Connection: keep-alive", True),
    ],
)
async def test_a_connection_stays_open_where_the_request_asks_for_it(
    version: str, header: str, stays: bool
) -> None:
    request = http_request(header, version=version, body=msgspec.msgpack.encode(Ask("/a")))
    async with node() as address:
        reader, writer = await asyncio.open_connection(*address.split(":"))
        writer.write(request)
        head, told = await read_answer(reader)
        assert told == Told(("/a",))
        assert f"connection: {'keep-alive' if stays else 'close'}\r\n" in head
        assert re.search(r"\r\ndate: \w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d gmt\r\n", head)
        if stays:
            writer.write(request)
            assert (await read_answer(reader))[1] == told
        else:
            assert await reader.read() == b""
        writer.close()


@on_both_loops
async def test_two_requests_in_one_piece_are_answered_in_order() -> None:
    one, two = (http_request(body=msgspec.msgpack.encode(Ask(path))) for path in ("/1", "/2"))
    async with node() as address:
        reader, writer = await asyncio.open_connection(*address.split(":"))
        writer.write(one + two)
        assert [(await read_answer(reader))[1] for _ in range(2)] == [Told(("/1",)), Told(("/2",))]
        writer.close()


@on_both_loops
async def test_a_body_may_come_after_the_node_has_agreed_to_take_it() -> None:
    body = msgspec.msgpack.encode(Ask("/a"))
    request = http_request("Expect: 100-continue", body=body)
    async with node() as address:
        reader, writer = await asyncio.open_connection(*address.split(":"))
        writer.write(request.removesuffix(body))
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
        writer.write(body)
        assert (await read_answer(reader))[1] == Told(("/a",))
        writer.close()


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


@asynccontextmanager
async def stranger(answer: bytes) -> AsyncIterator[str]:
    """Somebody who reads a request, writes `answer` and hangs up."""
    finished = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"/a")
        writer.write(answer)
        writer.close()
        await writer.wait_closed()
        finished.set()

    server = await asyncio.start_server(serve, HOST, 0)
    async with server:
        yield f"{HOST}:{server.sockets[0].getsockname()[1]}"
        await finished.wait()


MSGPACK = b"HTTP/1.1 200 OK\r\nContent-Type: application/msgpack\r\nContent-Length: "


@on_both_loops
@pytest.mark.parametrize(
    ("answer", "kind", "reason"),
    [
        (b"", OutcomeUnknownError, "connection lost"),
        (MSGPACK + b"10\r\n\r\nhalf", OutcomeUnknownError, "connection lost"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", ProtocolError, "this is no paxosblock node"),
        (b"HTTP/1.1 200 OK\r\n\r\nhello", ProtocolError, r"this is no paxosblock node \(HTTP 200"),
        (b"HTTP/1.1 404 Not\r\n\r\nhello", ProtocolError, r"this is no paxosblock node \(HTTP 404"),
        (b"HTTP/1.1 502 Bad\r\n\r\n<html>", ProtocolError, "this is no paxosblock node .HTTP 502"),
        (MSGPACK + b"1\r\n\r\n\x01", ProtocolError, "malformed answer"),
        (MSGPACK.replace(b"200", b"500") + b"1\r\n\r\n\x01", ProtocolError, "not an error of"),
    ],
    ids=["nothing", "half", "ssh", "text", "not-found", "proxy", "wrong-type", "wrong-error"],
)
async def test_a_strange_answer_is_named_with_its_address(
    answer: bytes, kind: type[PaxosBlockError], reason: str
) -> None:
    async with stranger(answer) as address:
        with pytest.raises(kind, match=rf"^repeat of {address}: .*{reason}") as caught:
            await ask(address, Ask("/a"))
    assert caught.value.outcome is Outcome.UNKNOWN, "the request was sent"


@on_both_loops
async def test_a_client_that_was_closed_opens_anew() -> None:
    client = RpcClient()
    async with node() as address:
        for _ in range(2):
            assert await client.call(address, "repeat", Ask("/a"), Told, 10) == Told(("/a",))
            await client.close()
