"""Each connection has a caller, whose name is what it claims where nothing proves it."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import ClientSession, web

from paxosblock.api.methods import Method
from paxosblock.base.user_names import NAME_CHARACTERS_MAX
from paxosblock.config import ClientConfig
from paxosblock.errors import ConfigError, InvalidRequestError, Outcome, PaxosBlockError
from paxosblock.host.user import HADOOP_USER_NAME, claimed_user, current_user
from paxosblock.net.calls import control
from paxosblock.net.calls.call_server import RpcRouter
from paxosblock.net.calls.rpc import RpcClient
from paxosblock.net.port.access import Access, make_secret
from paxosblock.net.port.caller import CALLER, NOBODY, UNTOLD, Caller, CallerRole
from paxosblock.net.port.upgrade import ERROR_TYPE, split_address
from paxosblock.net.serving import listen
from paxosblock.net.streams.stream import connect
from paxosblock.net.wire import decode_error
from tests.net.streams import Echo
from tests.net.streams import node as stream_node


class Ask(msgspec.Struct):
    """Asks for the caller that the node sees."""


WHO = Method("who", Ask, list[str])
WHO_AT_ONCE = Method("who_at_once", Ask, list[str])

BAD_NAMES = ["", " me", "me ", "me:staff", "me,you", "a\tb", "a\x7fb", "m" * 256]


@asynccontextmanager
async def node() -> AsyncIterator[str]:
    """A node that tells its callers who they are."""

    async def who(_: Ask) -> list[str]:
        before = CALLER.get()
        await asyncio.sleep(0)  # other calls are begun meanwhile
        assert CALLER.get() is before
        return [before.role.value, before.user, before.address]

    router = RpcRouter()
    router.register(WHO.name, Ask, who)
    router.register(WHO_AT_ONCE.name, Ask, who, at_once=True)
    async with AsyncExitStack() as stack:
        yield await listen(stack, web.Application(), router, "127.0.0.1:0")


def seen(name: str) -> list[str]:
    return [CallerRole.CLAIMED.value, name, "127.0.0.1"]


async def test_who_says_nothing_else_is_the_user_who_runs_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(HADOOP_USER_NAME, raising=False)
    async with node() as address, RpcClient() as client:
        for method in (WHO, WHO_AT_ONCE):
            assert await client.call(address, method.name, Ask(), list, 10) == seen(current_user())
            told = await asyncio.to_thread(control.call, address, method, Ask(), 10.0)
            assert told == seen(current_user())


@pytest.mark.parametrize("name", ["me", "José da Silva", "m" * NAME_CHARACTERS_MAX, "d\\me@R"])
async def test_a_program_says_whom_it_acts_for_by_variable_or_by_setting(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(HADOOP_USER_NAME, name)
    by_setting = Access.of("", user=ClientConfig(user="another").user)
    async with node() as address, RpcClient() as client, RpcClient(by_setting) as other:
        assert await client.call(address, WHO.name, Ask(), list, 10) == seen(name)
        assert await other.call(address, WHO.name, Ask(), list, 10) == seen("another")
        assert await asyncio.to_thread(control.call, address, WHO, Ask(), 10.0) == seen(name)
        told = await asyncio.to_thread(control.call, address, WHO, Ask(), 10.0, by_setting)
        assert told == seen("another")


async def test_calls_of_several_callers_under_way_at_once_keep_their_own() -> None:
    async with node() as address, AsyncExitStack() as stack:
        names = [f"user{number}" for number in range(4)]
        clients = [await stack.enter_async_context(RpcClient(Access(user=name))) for name in names]
        for method in (WHO, WHO_AT_ONCE):
            asked = (client.call(address, method.name, Ask(), list, 10) for client in clients * 5)
            assert await asyncio.gather(*asked) == [seen(name) for name in names] * 5
    assert CALLER.get() is UNTOLD


async def test_who_asks_over_http_names_the_user_in_a_header_or_is_nobody() -> None:
    async with node() as address, ClientSession() as session:

        async def asked(headers: dict[str, str]) -> Any:
            sent = msgspec.msgpack.encode(Ask())
            headers = {"Content-Type": ERROR_TYPE, **headers}
            url = f"http://{address}/rpc/{WHO.name}"
            async with session.post(url, data=sent, headers=headers) as answer:
                body = await answer.read()
                if answer.status != 200:
                    raise decode_error(body)
                return msgspec.msgpack.decode(body)

        assert await asked({"Access-User": "me"}) == seen("me")
        assert await asked({}) == seen(NOBODY)
        with pytest.raises(InvalidRequestError, match="'me:staff' is no name of a user"):
            await asked({"Access-User": "me:staff"})


async def refusal(address: str, path: str, protocol: str, name: bytes) -> PaxosBlockError:
    """The node's answer to an Upgrade by a caller that claims this name."""
    reader, writer = await asyncio.open_connection(*split_address(address))
    writer.write(
        b"GET %b HTTP/1.1\r\nHost: n\r\nUpgrade: %b\r\nConnection: Upgrade, close\r\n"
        b"Access-User: %b\r\n\r\n" % (path.encode(), protocol.encode(), name)
    )
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
    assert head.startswith(b"HTTP/1.1 400 ")
    length = int(head.lower().partition(b"content-length: ")[2].split()[0])
    body = await reader.readexactly(length)
    writer.close()
    return decode_error(body)


@pytest.mark.parametrize("name", ["", "me:staff", "m" * 256, b"\xff\xfe"])
async def test_a_name_that_is_none_gets_one_line_and_no_connection(name: str | bytes) -> None:
    sent = name if isinstance(name, bytes) else name.encode()
    made: list[web.Request] = []

    def make(request: web.Request) -> Echo:
        made.append(request)
        return Echo()

    async with node() as address, stream_node(make) as port:
        for at, path, protocol in (
            (address, "/calls", "paxosblock-calls/1"),
            (f"127.0.0.1:{port}", "/stream", "paxosblock-stream/3"),
        ):
            error = await refusal(at, path, protocol, sent)
            assert isinstance(error, InvalidRequestError)
            assert "is no name of a user: 1 to 255 characters" in str(error)
            assert "\n" not in str(error)
    assert not made


@pytest.mark.parametrize("name", [*BAD_NAMES[1:], "me\r\nAccess-Proof: x"])
async def test_a_caller_sends_no_name_that_is_none(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The head of its Upgrade would hold what it means to say, or more."""
    monkeypatch.setenv(HADOOP_USER_NAME, name)
    async with node() as address, RpcClient() as client:
        for asked in (
            client.call(address, WHO.name, Ask(), list, 10),
            asyncio.to_thread(control.call, address, WHO, Ask(), 10.0),
        ):
            with pytest.raises(InvalidRequestError, match="is no name of a user") as refused:
                await asked
            assert refused.value.outcome is Outcome.NEVER
    if name:
        with pytest.raises(ConfigError, match=r"user = .*: expected the name of a user"):
            ClientConfig(user=name)


async def test_a_stream_has_its_caller_when_it_is_made(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    make_secret(file)
    access, callers = Access.of(str(file), user="me"), []

    def make(_: web.Request) -> Echo:
        callers.append(CALLER.get())
        return Echo()

    async with stream_node(make, access=access) as port:
        for each in (access, Access.of(str(file), user="you")):
            (await connect("127.0.0.1", port, Echo(), access=each)).close()
    here = "127.0.0.1"
    assert callers == [Caller.claiming(name, here, private=True) for name in ("me", "you")]


def test_a_user_without_a_name_is_called_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> str:
        raise KeyError("getpwuid(): uid not found: 4711")

    monkeypatch.delenv(HADOOP_USER_NAME, raising=False)
    monkeypatch.setattr("getpass.getuser", unknown)
    monkeypatch.setattr("os.getuid", lambda: 4711)
    current_user.cache_clear()
    try:
        assert claimed_user() == "4711"
    finally:
        current_user.cache_clear()


def test_a_door_that_tells_no_caller_lets_in_nobody() -> None:
    assert contextvars.Context().run(CALLER.get) == Caller.claiming(None, "")
