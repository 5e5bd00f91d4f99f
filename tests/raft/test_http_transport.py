"""Real sockets: members that know the secret talk, everybody else is refused and counted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec
import pytest
from aiohttp import ClientSession, web

from paxosblock.errors import ConfigError, ProtocolError
from paxosblock.namenode.raft import raft_messages
from paxosblock.namenode.raft.entry import Entry, EntryKind
from paxosblock.namenode.raft.http_transport import RAFT_PATH, UPGRADE, HttpTransport
from paxosblock.namenode.raft.raft_messages import AppendEntries, Message, RequestVote
from paxosblock.namenode.raft.secure_channel import Opener, Sealer
from paxosblock.net.calls.call_server import RpcRouter
from paxosblock.net.calls.control import split_address
from paxosblock.net.port import upgrade
from paxosblock.net.port.admission import Caps
from paxosblock.net.port.guard import Guard
from paxosblock.net.port.handshake import Handshake
from paxosblock.net.serving import listen
from paxosblock.net.streams.connection import tune_socket
from tests.loops import on_both_loops
from tests.waiting import wait_until_async

SECRET = b"sixteen bytes ok"
VOTE = RequestVote(3, "a:1", last_log_index=7, last_log_term=2)


class Ports:
    """Two servers that are there before their members are known."""

    def __init__(self) -> None:
        self.runners: list[web.AppRunner] = []
        self.apps: list[web.Application] = []
        self.addresses: list[str] = []

    async def open(self, handlers: list[web.Application], host: str) -> None:
        for app in handlers:
            runner = web.AppRunner(app)
            await runner.setup()
            site = web.TCPSite(runner, host.strip("[]"), 0)
            await site.start()
            self.runners.append(runner)
            self.addresses.append(f"{host}:{runner.addresses[0][1]}")


class Member:
    """A transport on a port of its own, and what came in."""

    def __init__(self) -> None:
        self.app = web.Application()
        self.app.router.add_get("/raft", self._forward)
        self.transport: HttpTransport | None = None
        self.inbox: list[tuple[str, Message]] = []

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        assert self.transport is not None
        return await self.transport._upgrade(request)

    def join(self, address: str, everybody: list[str], secret: bytes) -> HttpTransport:
        self.transport = HttpTransport(address, everybody, secret)
        self.transport.start(lambda sender, message: self.inbox.append((sender, message)))
        return self.transport


@asynccontextmanager
async def members(
    *secrets: bytes, host: str = "127.0.0.1"
) -> AsyncIterator[tuple[list[Member], list[str]]]:
    """As many members as secrets; their ports are chosen by the system."""
    ports = Ports()
    found = [Member() for _ in secrets]
    await ports.open([each.app for each in found], host)
    transports = [
        member.join(address, ports.addresses, secret)
        for member, address, secret in zip(found, ports.addresses, secrets, strict=True)
    ]
    try:
        yield found, ports.addresses
    finally:
        for transport in transports:
            await transport.close()
        for runner in ports.runners:
            await runner.cleanup()


async def connected(member: Member, count: int) -> None:
    transport = member.transport
    assert transport is not None
    await wait_until_async(lambda: repr(transport).count("127.0.0.1") == count + 1)


@on_both_loops
async def test_a_message_arrives_as_it_was_sent() -> None:
    async with members(SECRET, SECRET) as ((one, two), addresses):
        await connected(one, 1)
        assert one.transport is not None
        entries = [Entry(3, EntryKind.EDIT, bytes(3 << 20)), Entry(3, EntryKind.NOOP, b"")]
        large = AppendEntries(3, addresses[0], 0, 0, 0, entries, 1, 1)
        one.transport.send(addresses[1], VOTE)
        one.transport.send(addresses[1], large)
        await wait_until_async(lambda: len(two.inbox) == 2)
        assert two.inbox == [(addresses[0], VOTE), (addresses[0], large)]


@on_both_loops
async def test_n3_who_does_not_know_the_secret_is_refused_by_both_ends_and_counted() -> None:
    async with members(SECRET, b"another sixteen b") as ((one, two), addresses):
        assert one.transport is not None
        assert two.transport is not None
        counters = one.transport.counters, two.transport.counters
        await wait_until_async(lambda: all(each.connections_refused > 0 for each in counters))
        one.transport.send(addresses[1], VOTE)
        assert one.transport.counters.messages_dropped == 1
        assert two.inbox == []


@pytest.mark.parametrize(
    "answer",
    [
        {"X-Raft-Proof": "00"},
        {"X-Raft-Nonce": "caf\u00e9", "X-Raft-Proof": "00"},
        {"X-Raft-Nonce": "00" * 16},
        {"X-Raft-Nonce": "00" * 16, "X-Raft-Proof": "\u00e9"},
    ],
)
def test_n3_an_answer_without_the_proof_is_refused(answer: dict[str, str]) -> None:
    transport = HttpTransport("n1:1", ["n1:1", "n2:1"], SECRET)
    with pytest.raises(ProtocolError):
        transport.check_answer("n2:1", bytes(16), answer)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", f"does not speak {UPGRADE}: HTTP/1.1 403 Forb"),
        (f"HTTP/1.1 101 Yes\r\nUpgrade: {UPGRADE}\r\n\r\n".encode(), "does not take messages"),
        (b"\xff\r\n: \r\n\r\n", "is no paxosblock node"),
    ],
)
async def test_n3_whoever_answers_otherwise_is_refused_counted_and_called_again(
    answer: bytes, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def stranger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(stranger, "127.0.0.1", 0) as server:
        peer = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        transport = HttpTransport("127.0.0.1:1", ["127.0.0.1:1", peer], SECRET)
        transport.start(lambda sender, message: None)
        try:
            await wait_until_async(lambda: transport.counters.connections_refused > 1)
        finally:
            await transport.close()
    assert told in caplog.text


@pytest.mark.parametrize("host", ["localhost", "[::1]"])
async def test_l20_members_are_known_by_their_names_not_by_where_a_message_comes_from(
    host: str,
) -> None:
    async with members(SECRET, SECRET, host=host) as ((one, two), addresses):
        assert one.transport is not None
        peer = addresses[1]
        await wait_until_async(lambda: peer in repr(one.transport))
        one.transport.send(peer, VOTE)
        await wait_until_async(lambda: bool(two.inbox))
        assert two.inbox == [(addresses[0], VOTE)]


async def test_each_reason_for_a_refusal_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    transport = HttpTransport("n1:1", ["n1:1", "n2:1"], SECRET)
    for _ in range(3):
        for stranger in ("n8:1", "n9:1"):
            transport.refuse_connection(f"{stranger} is no other member")
    assert transport.counters.connections_refused == 6
    assert [record.args[1] for record in caplog.records if isinstance(record.args, tuple)] == [
        "n8:1 is no other member",
        "n9:1 is no other member",
    ]


@pytest.mark.parametrize(
    "changed",
    [{"X-Raft-From": "10.0.0.9:1"}, {"X-Raft-Nonce": "short"}, {"Upgrade": "websocket"}],
)
async def test_l22_a_caller_that_is_no_member_is_refused_and_counted(
    changed: dict[str, str],
) -> None:
    async with members(SECRET, SECRET) as ((one, _), addresses):
        assert one.transport is not None
        headers = {
            "Upgrade": UPGRADE,
            "Connection": "Upgrade",
            "X-Raft-From": addresses[1],
            "X-Raft-To": addresses[0],
            "X-Raft-Nonce": "00" * 16,
        }
        before = one.transport.counters.connections_refused
        async with (
            ClientSession() as session,
            session.get(f"http://{addresses[0]}/raft", headers=headers | changed) as answer,
        ):
            assert answer.status == 403
        assert one.transport.counters.connections_refused == before + 1


async def test_l22_one_that_only_claims_to_be_a_member_is_refused_at_its_first_frame() -> None:
    async with members(SECRET, SECRET) as ((one, _), addresses):
        assert one.transport is not None
        caller = HttpTransport(addresses[1], addresses, SECRET)
        headers = caller.introduction(addresses[0], bytes(16))
        host, port = split_address(addresses[0])
        sock, _ = await upgrade.call(
            host, port, RAFT_PATH, UPGRADE, headers, timeout_s=10, tune=tune_socket
        )
        reader, writer = await asyncio.open_connection(sock=sock)
        writer.write(Sealer(b"not the key").seal(b""))
        assert await reader.read() == b""
        assert one.transport.counters.connections_refused == 1
        writer.close()


async def test_l21_a_malformed_message_of_a_member_is_refused_and_counted() -> None:
    async with members(SECRET, SECRET) as ((one, two), addresses):
        await connected(one, 1)
        assert one.transport is not None
        assert two.transport is not None
        one.transport._links[addresses[1]].send(b"\x00nonsense")
        counters = two.transport.counters
        await wait_until_async(lambda: counters.messages_malformed == 1)
        await connected(one, 1)  # it may call again
        assert two.inbox == []


def test_a_frame_cannot_be_repeated_left_out_or_changed() -> None:
    sealer = Sealer(b"key")
    first, second, third = sealer.seal(b""), sealer.seal(b"one"), sealer.seal(b"two")
    assert list(Opener(b"key").feed(first + second + third)) == [b"one", b"two"]
    flipped = bytes((*third[:-1], third[-1] ^ 1))
    for forged in (first + second + second, first + third, first + second + flipped):
        with pytest.raises(ProtocolError, match="secret"):
            list(Opener(b"key").feed(forged))


def test_a_stranger_cannot_make_us_keep_a_long_frame() -> None:
    with pytest.raises(ProtocolError, match="too long"):
        list(Opener(b"key").feed(Sealer(b"other").seal(b"something")))


def test_both_directions_and_connections_have_keys_of_their_own() -> None:
    one = Handshake("a", "b", b"1", b"2")
    keys = {
        one.key(SECRET),
        one.proof(SECRET),
        Handshake("b", "a", b"1", b"2").key(SECRET),
        Handshake("a", "b", b"1", b"3").key(SECRET),
        one.key(SECRET + b"x"),
    }
    assert len(keys) == 5


def test_n2_a_short_secret_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match="at least 16 bytes"):
        HttpTransport("a:1", ["a:1", "b:1"], b"secret")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"\x00",
        b"\x00\x80",
        msgspec.msgpack.encode([0, -1, "a:1", 7, 2]),
        msgspec.msgpack.encode([0, "3", "a:1", 7, 2]),
        msgspec.msgpack.encode([0, 3, 7, 2]),
        msgspec.msgpack.encode([99, 3]),
    ],
)
def test_l21_what_is_not_in_the_table_of_messages_is_a_protocol_error(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="not a message between NameNodes"):
        raft_messages.decode(data)


@on_both_loops
async def test_members_reach_each_other_while_clients_use_every_connection() -> None:
    busy, ended = 4, asyncio.Event()
    asking: list[web.Request] = []

    async def stuck(request: web.Request) -> web.Response:
        asking.append(request)
        await ended.wait()
        return web.Response()

    found = [Member(), Member()]
    guards = [Guard(Caps(node=busy, address=busy)) for _ in found]
    async with AsyncExitStack() as stack, ClientSession() as client, asyncio.TaskGroup() as asked:
        addresses: list[str] = []
        for member, guard in zip(found, guards, strict=True):
            member.app.router.add_get("/stuck", stuck)
            where = await listen(stack, member.app, RpcRouter(), "127.0.0.1:0", guard)
            addresses.append(where)
            for _ in range(busy):
                asked.create_task(get(client, f"http://{where}/stuck"))
        # A connection on which no request came yet is idle, and gives way.
        await wait_until_async(lambda: len(asking) == 2 * busy)
        assert [each.admission.count for each in guards] == [busy] * 2
        for member, address in zip(found, addresses, strict=True):
            stack.push_async_callback(member.join(address, addresses, SECRET).close)
        for member in found:
            await connected(member, 1)
        await wait_until_async(lambda: [each.admission.count for each in guards] == [busy] * 2)
        assert not any(each.refusals.counts for each in guards)
        ended.set()


async def get(client: ClientSession, url: str) -> None:
    async with client.get(url) as answer:
        assert answer.status == 200
