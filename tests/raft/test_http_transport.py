"""Real sockets: members that know the secret talk, everybody else is refused and counted."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec
import pytest
from aiohttp import ClientSession, web

from paxosblock.errors import AccessDeniedError, ConfigError, CorruptionError, ProtocolError
from paxosblock.namenode.raft import raft_messages
from paxosblock.namenode.raft.entry import Entry, EntryKind
from paxosblock.namenode.raft.http_transport import RAFT, HttpTransport, names_of
from paxosblock.namenode.raft.raft_messages import AppendEntries, Message, RequestVote
from paxosblock.namenode.raft.secure_channel import FRAME_BYTES_MAX, Opener, Sealer
from paxosblock.net.calls.call_server import RpcRouter
from paxosblock.net.message_frames import HEADER_BYTES, MessageFrameKind, pack
from paxosblock.net.port.access import Access, Introduction, dialled
from paxosblock.net.port.admission import Caps
from paxosblock.net.port.guard import Guard
from paxosblock.net.port.handshake import PROOF_BYTES, Handshake
from paxosblock.net.port.upgrade import Spoken, connect, head, split_address
from paxosblock.net.serving import listen
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


def upgraded(*headers: str) -> bytes:
    """Return the answer of one who speaks the protocol, with these headers."""
    lines = ("HTTP/1.1 101 Yes", f"Upgrade: {RAFT.protocol}", *headers, "", "")
    return "\r\n".join(lines).encode("latin-1")


async def hung_up_on(reader: asyncio.StreamReader) -> None:
    """Wait until the node hangs up, without another byte."""
    with contextlib.suppress(ConnectionError):
        assert await asyncio.wait_for(reader.read(), 20) == b""


NONCE = f"Access-Nonce: {'00' * 16}"
UNPROVEN = "does not know the cluster's secret"


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", f"does not speak {RAFT.protocol}: HTTP/1.1 403 Forb"),
        (upgraded(), UNPROVEN),
        (upgraded("Access-Proof: 00"), UNPROVEN),
        (upgraded(NONCE), UNPROVEN),
        (upgraded(NONCE, "Access-Proof: 00"), UNPROVEN),
        (upgraded(NONCE, "Access-Proof: \u00e9"), UNPROVEN),
        (upgraded("Access-Nonce: caf\u00e9"), UNPROVEN),
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


def introduced(caller: str, called: str, secret: bytes = SECRET) -> tuple[Introduction, bytes]:
    """Return what `caller` says to `called` first."""
    place = split_address(called)
    introduction = Access((secret,)).introduction(
        RAFT.path + names_of(caller, called), dialled(*place, place)
    )
    names = {"X-Raft-From": caller, "X-Raft-To": called}
    return introduction, head(called, RAFT, names | introduction.headers)


async def answered(
    address: str, asked: bytes
) -> tuple[bytes, asyncio.StreamWriter, asyncio.StreamReader]:
    """Return the head of the answer to a request, and both ways of its connection."""
    reader, writer = await asyncio.open_connection(*split_address(address))
    writer.write(asked)
    return await reader.readuntil(b"\r\n\r\n"), writer, reader


@pytest.mark.parametrize(
    ("said", "instead", "status"),
    [
        (b"X-Raft-From: ", b"X-Raft-From: somewhere ", 403),
        (b"X-Raft-To: ", b"X-Raft-To: 10.0.0.9:1, ", 403),
        (b"Access-Nonce: ", b"Access-Nonce: short", 403),
        (b"Access-Nonce: ", b"Another: ", 403),
        (b"Upgrade: paxosblock-raft/8", b"Upgrade: paxosblock-raft/7", 426),
    ],
)
async def test_l22_a_caller_that_is_no_member_is_refused_and_counted(
    said: bytes, instead: bytes, status: int
) -> None:
    async with members(SECRET, SECRET) as ((one, _), addresses):
        assert one.transport is not None
        _, asked = introduced(addresses[1], addresses[0])
        assert said in asked
        before = one.transport.counters.connections_refused
        found, writer, _ = await answered(addresses[0], asked.replace(said, instead))
        assert found.startswith(f"HTTP/1.1 {status} ".encode())
        assert one.transport.counters.connections_refused == before + 1
        writer.close()


async def test_l22_one_that_only_claims_to_be_a_member_is_refused_at_its_proof() -> None:
    async with members(SECRET, SECRET) as ((one, _), addresses):
        assert one.transport is not None
        _, asked = introduced(addresses[1], addresses[0], b"sixteen bytes no")
        found, writer, reader = await answered(addresses[0], asked)
        assert found.startswith(b"HTTP/1.1 101 ")
        writer.write(bytes(PROOF_BYTES) + Sealer(b"not the key").seal(b"\x00nonsense"))
        await hung_up_on(reader)
        assert one.transport.counters.connections_refused == 1
        assert one.transport.counters.messages_malformed == 0
        writer.close()


async def test_l22_a_proof_for_one_member_is_of_no_use_at_another() -> None:
    async with members(SECRET, SECRET, SECRET) as ((one, two, _), addresses):
        assert two.transport is not None
        meant, _ = introduced(addresses[2], addresses[0])  # what a dead member's port would hear
        passed_on = head(
            addresses[1],
            RAFT,
            {"X-Raft-From": addresses[2], "X-Raft-To": addresses[1]} | meant.headers,
        )
        found, writer, reader = await answered(addresses[1], passed_on)
        headers = dict(line.split(": ") for line in found.decode().split("\r\n") if ": " in line)
        lower = {name.lower(): text for name, text in headers.items()}
        with pytest.raises(AccessDeniedError):
            meant.proof(addresses[0], lower)
        handshake = Handshake(
            "", f"{meant.path} {meant.dialled}", meant.nonce, bytes.fromhex(headers["Access-Nonce"])
        )
        writer.write(handshake.purpose(SECRET, b"access of caller"))
        await hung_up_on(reader)
        assert two.transport.counters.connections_refused == 1
        assert one.inbox == two.inbox == []
        writer.close()


async def test_l22_a_member_of_an_earlier_version_is_told_in_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with members(SECRET, SECRET) as ((one, _), addresses):
        assert one.transport is not None
        earlier = Spoken(RAFT.path, "paxosblock-raft/6")
        with pytest.raises(ProtocolError) as told:
            await connect(
                *split_address(addresses[0]),
                earlier,
                lambda _: asyncio.Protocol(),
                timeout_s=20,
                headers={"X-Raft-From": addresses[1], "X-Raft-To": addresses[0]},
            )
        assert str(told.value) == (
            f"{addresses[0]} does not speak paxosblock-raft/6: HTTP/1.1 426 Upgrade Required"
        )
        assert f"{addresses[1]} does not speak {RAFT.protocol}" in caplog.text


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


def opened(frames: bytes) -> list[bytes]:
    return [bytes(body) for body in Opener(b"key").feed(frames)]


def test_a_frame_cannot_be_repeated_left_out_or_changed() -> None:
    sealer = Sealer(b"key")
    first, second, third = sealer.seal(b"none"), sealer.seal(b"one"), sealer.seal(b"two")
    assert opened(first + second + third) == [b"none", b"one", b"two"]
    payload = second[HEADER_BYTES:-1] + b"?"
    changed = pack(MessageFrameKind.ONE_WAY, 0, payload)  # its checksum is right
    another_kind = pack(MessageFrameKind.CALL, 0, second[HEADER_BYTES:])
    for forged in (first + second + second, first + third, first + changed, first + another_kind):
        with pytest.raises(ProtocolError, match="secret"):
            opened(forged)
    for short in (b"", bytes(15)):
        with pytest.raises(ProtocolError, match="secret"):
            opened(pack(MessageFrameKind.ONE_WAY, 0, short))


def test_a_frame_that_is_too_long_or_damaged_is_refused() -> None:
    begin = pack(MessageFrameKind.ONE_WAY, 0, bytes(FRAME_BYTES_MAX))[:HEADER_BYTES]
    with pytest.raises(ProtocolError, match="no frame of a message begins with"):
        opened(begin)
    with pytest.raises(CorruptionError):
        opened(Sealer(b"key").seal(b"one")[:-1] + b"?")


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
