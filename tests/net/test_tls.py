"""TLS at a node's port: calls, streams and blocking commands, and what those get who may not."""

from __future__ import annotations

import asyncio
import errno
import os
import pwd
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web
from cryptography.hazmat.primitives import serialization

from paxosblock.api.methods import Method
from paxosblock.config import ClientConfig, NameNodeConfig
from paxosblock.errors import AccessDeniedError, ConfigError, PaxosBlockError, UnavailableError
from paxosblock.net.calls import control
from paxosblock.net.calls.call_server import RpcRouter
from paxosblock.net.calls.rpc import RpcClient
from paxosblock.net.message_frames import MessageFrameKind, pack
from paxosblock.net.port.access import OPEN, Access
from paxosblock.net.port.access_server import add_without_token
from paxosblock.net.port.admission import Caps
from paxosblock.net.port.certified import CertifiedKind, CertifiedName
from paxosblock.net.port.guard import Guard
from paxosblock.net.port.refusals import Refusal
from paxosblock.net.port.tls import Tls
from paxosblock.net.port.upgrade import STREAM, split_address
from paxosblock.net.serving import listen
from paxosblock.net.streams.stream import connect
from paxosblock.net.streams.stream_server import upgrade_handler
from tests.certificates import DAY_S, Certificates
from tests.loops import on_both_loops
from tests.net.relay import relay
from tests.net.streams import Echo, Recorder, chunk, some_bytes
from tests.waiting import wait_until_async


class Text(msgspec.Struct, frozen=True):
    text: str


ECHO = Method("echo", Text, Text)
SECRET = (b"the secret of all of this cluster",)
SOON_S = 10.0


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """The authority of another cluster, with the same names."""
    return Certificates(tmp_path_factory.mktemp("others"))


@dataclass
class Served:
    address: str
    guard: Guard
    begun: list[str]

    def count(self, why: Refusal) -> int:
        return self.guard.refusals.counts[why]


@asynccontextmanager
async def node(access: Access, guard: Guard | None = None) -> AsyncIterator[Served]:
    guard = guard or Guard(access=access)
    app, router, begun = web.Application(), RpcRouter(), list[str]()

    async def echo(asked: Text) -> Text:
        begun.append(asked.text)
        return asked

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    router.register("echo", Text, echo)
    add_without_token(app, "/healthz", healthz)
    upgrade = upgrade_handler(app, lambda _: Echo(), refusals=guard.refusals, access=access)
    add_without_token(app, STREAM.path, upgrade)
    async with AsyncExitStack() as stack:
        address = await listen(stack, app, router, "127.0.0.1:0", guard)
        yield Served(address, guard, begun)


async def called(address: str, access: Access, text: str = "a") -> str:
    async with RpcClient(access) as client:
        return (await client.call(address, "echo", Text(text), Text, SOON_S)).text


async def commanded(address: str, access: Access, text: str = "a") -> str:
    """As a command does it, without an event loop."""
    said = await asyncio.to_thread(control.call, address, ECHO, Text(text), SOON_S, access)
    return said.text


async def streamed(address: str, access: Access, data: bytes = b"a") -> bytes:
    heard = Recorder()
    connection = await connect(*split_address(address), heard, access=access)
    connection.send(chunk(data))
    _, frame = await asyncio.wait_for(heard.frames.get(), SOON_S)
    connection.close()
    await connection.wait_closed()
    return frame


async def _alone() -> None:
    """Wait for the end of what serves the connections of a server that is no node."""
    await wait_until_async(lambda: len(asyncio.all_tasks()) == 1)


async def refused(address: str, access: Access) -> list[str]:
    """Return what each way says that comes to nothing."""
    said = []
    for way in (called, commanded, streamed):
        with pytest.raises(PaxosBlockError) as error:
            await way(address, access)
        assert isinstance(error.value, AccessDeniedError | UnavailableError)
        assert "\n" not in str(error.value)
        said.append(str(error.value))
    return said


# -- those who may ---------------------------------------------------------------------------------


@on_both_loops
async def test_calls_streams_and_commands_go_through_tls(ours: Certificates) -> None:
    data = some_bytes(3_000_000)
    async with node(ours.of_node()) as served:
        assert await called(served.address, ours.of_user(), "x" * 300_000) == "x" * 300_000
        assert await commanded(served.address, ours.of_user(), "y" * 300_000) == "y" * 300_000
        assert await streamed(served.address, ours.of_user(), data) == chunk(data)
        assert await called(served.address, ours.of_node()) == "a"


@on_both_loops
async def test_a_secret_is_proven_inside_tls_too(ours: Certificates) -> None:
    for caller in (ours.of_user(secrets=SECRET), ours.of_stranger(SECRET)):
        async with node(ours.of_node(secrets=SECRET)) as served:
            assert await called(served.address, caller) == "a"
            assert await commanded(served.address, caller) == "a"
            assert await streamed(served.address, caller) == chunk(b"a")
    async with node(ours.of_node(secrets=SECRET)) as served:
        for said in await refused(served.address, ours.of_user()):
            assert "access secret" in said
        assert served.begun == []


@on_both_loops
async def test_an_idle_line_of_a_command_stays_usable(ours: Certificates) -> None:
    async with node(ours.of_node()) as served:
        line = await asyncio.to_thread(control.Line, served.address, SOON_S, ours.of_user())
        with closing(line):
            for text in ("a", "b"):
                assert line.usable
                said = await asyncio.to_thread(line.ask, ECHO, Text(text), SOON_S)
                assert said.text == text


def test_a_node_sends_no_ticket_that_would_make_an_idle_line_look_used(ours: Certificates) -> None:
    tls = ours.of_node().tls
    assert tls is not None
    assert tls.server.num_tickets == 0


@on_both_loops
async def test_who_relays_reads_nothing(ours: Certificates) -> None:
    seen: list[bytes] = []
    secret = b"what no other may read " * 1000
    for access, caller in ((OPEN, OPEN), (ours.of_node(), ours.of_user())):
        async with node(access) as served, relay(served.address, seen.append) as between:
            assert await streamed(between, caller, secret) == chunk(secret)
            assert await called(between, caller, "/secret/path") == "/secret/path"
        await _alone()
        whole = b"".join(seen)
        seen.clear()
        assert (b"what no other may read" in whole) is (access is OPEN)
        assert (b"/secret/path" in whole) is (access is OPEN)


@dataclass
class Between:
    """A stranger on the way to a node: knows what callers send, and may send what they like."""

    address: str = ""
    sent: bytearray = field(default_factory=bytearray)
    to_node: list[asyncio.StreamWriter] = field(default_factory=list)
    ended: int = 0
    """Connections that the node has ended."""

    async def serve(
        self, node: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        from_node, to_node = await asyncio.open_connection(*split_address(node))
        self.to_node.append(to_node)
        back = asyncio.ensure_future(self._back(from_node, writer))
        while data := await _some(reader):
            self.sent += data
            to_node.write(data)
        to_node.close()
        await back

    async def _back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await _some(reader):
            writer.write(data)
        self.ended += 1
        writer.close()


async def _some(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(65536)
    except ConnectionError:
        return b""


@asynccontextmanager
async def stranger_between(node: str) -> AsyncIterator[Between]:
    between = Between()
    async with await asyncio.start_server(partial(between.serve, node), "127.0.0.1", 0) as server:
        between.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield between


@on_both_loops
@pytest.mark.parametrize("with_tls", [False, True], ids=["without TLS", "with TLS"])
async def test_what_a_stranger_puts_in_or_sends_again_is_done_without_tls_alone(
    ours: Certificates, with_tls: bool
) -> None:
    """The caller's bytes come again on another connection, and a call of the stranger on theirs."""
    put_in = pack(MessageFrameKind.CALL, 9, msgspec.msgpack.encode(Text("x")), b"echo", b"strange")
    access, caller = (ours.of_node(), ours.of_user()) if with_tls else (OPEN, OPEN)
    async with (
        node(access) as served,
        stranger_between(served.address) as between,
        RpcClient(caller) as client,
    ):
        await client.call(between.address, "echo", Text("a"), Text, SOON_S)
        await client.call(between.address, "echo", Text("b"), Text, SOON_S)
        reader, writer = await asyncio.open_connection(*split_address(served.address))
        with closing(writer):
            if with_tls:
                writer.write(between.sent)
                assert b"echo" not in await asyncio.wait_for(_end(reader), SOON_S)
            else:
                request, end, frames = bytes(between.sent).partition(b"\r\n\r\n")
                writer.write(request + end)
                await reader.readuntil(end)
                writer.write(frames)
                await wait_until_async(lambda: served.begun == ["a", "b", "a", "b"])
        between.to_node[0].write(put_in)
        if with_tls:
            await wait_until_async(lambda: between.ended == 1)
            assert served.begun == ["a", "b"]
        else:
            await wait_until_async(lambda: served.begun == ["a", "b", "a", "b", "x"])
        assert await called(served.address, caller, "c") == "c"
    await _alone()


@on_both_loops
async def test_who_turns_back_what_a_caller_sends_is_no_node(ours: Certificates) -> None:
    async def turn_back(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await _some(reader):
            writer.write(data)
        writer.close()

    async with await asyncio.start_server(turn_back, "127.0.0.1", 0) as mirror:
        address = f"127.0.0.1:{mirror.sockets[0].getsockname()[1]}"
        for caller in (OPEN, ours.of_user(), Access(SECRET), ours.of_user(secrets=SECRET)):
            for way in (called, commanded, streamed):
                with pytest.raises(PaxosBlockError):
                    await way(address, caller)
    await _alone()


# -- those who may not -----------------------------------------------------------------------------


@on_both_loops
async def test_who_does_not_speak_tls_is_told_so(ours: Certificates) -> None:
    async with node(ours.of_node()) as served:
        for said in await refused(served.address, OPEN):
            assert "the node speaks TLS only" in said
        assert served.count(Refusal.NO_TLS) == 3
        assert served.begun == []
        assert not await asyncio.to_thread(control.healthy, served.address)


@on_both_loops
async def test_a_node_that_does_not_speak_tls_is_told_from_one_that_does(
    ours: Certificates,
) -> None:
    async with node(OPEN) as served:
        for said in await refused(served.address, ours.of_user()):
            assert served.address in said
            assert "speaks no TLS, and tls_required demands it" in said
        assert served.begun == []


def test_a_node_that_says_nothing_is_told_in_our_words(ours: Certificates) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(UnavailableError) as error:
            control.call(address, ECHO, Text("a"), 0.2, ours.of_user())
    assert str(error.value) == f"cannot connect to {address}: the handshake was not answered"


@on_both_loops
async def test_who_shows_no_certificate_gets_nothing_but_the_health(ours: Certificates) -> None:
    async with node(ours.of_node()) as served:
        for said in await refused(served.address, ours.of_stranger()):
            assert "show a certificate of this cluster" in said
        assert served.begun == []
        tls = ours.of_stranger().tls
        assert tls is not None
        async with aiohttp.ClientSession() as http:
            async with http.get(f"https://{served.address}/healthz", ssl=tls.client) as answer:
                assert await answer.text() == "ok"
            body = msgspec.msgpack.encode(Text("a"))
            headers = {"Content-Type": "application/msgpack"}
            url = f"https://{served.address}/rpc/echo"
            async with http.post(url, data=body, headers=headers, ssl=tls.client) as answer:
                assert answer.status == 403
            certified = ours.of_user().tls
            assert certified is not None
            async with http.post(url, data=body, headers=headers, ssl=certified.client) as answer:
                assert msgspec.msgpack.decode(await answer.read()) == {"text": "a"}


@on_both_loops
async def test_who_stole_the_certificate_of_a_gateway_is_served_by_no_node(
    ours: Certificates,
) -> None:
    """It is of the same authority, as that of a user is, who is served."""
    body, headers = msgspec.msgpack.encode(Text("a")), {"Content-Type": "application/msgpack"}
    async with node(ours.of_node()) as served, aiohttp.ClientSession() as http:
        for shown, is_served in ((ours.user(), True), (ours.gateway(), False)):
            context = ssl.create_default_context(cafile=ours.ca)
            context.load_cert_chain(shown)
            url = f"https://{served.address}/rpc/echo"
            try:
                async with http.post(url, data=body, headers=headers, ssl=context) as answer:
                    assert (answer.status == 200) is is_served
            except (aiohttp.ClientError, OSError):
                assert not is_served
        assert served.begun == ["a"]


@on_both_loops
async def test_a_foreign_authority_is_believed_by_neither_end(
    ours: Certificates, others: Certificates
) -> None:
    shows_theirs = Access(tls=Tls(others.user("stranger"), _joined(ours, others)))
    async with node(ours.of_node()) as served:
        for said in await refused(served.address, others.of_user()):
            assert f"no authority in tls_ca {others.ca} made its certificate" in said
        for said in await refused(served.address, shows_theirs):
            assert "refuses our certificate" in said or "hung up" in said or "reset" in said
        assert served.begun == []
        await wait_until_async(lambda: served.count(Refusal.HANDSHAKE) == 6)


def _joined(*authorities: Certificates) -> str:
    """Return a file with several authorities."""
    file = authorities[0].folder / "joined.pem"
    file.write_bytes(b"".join(Path(each.ca).read_bytes() for each in authorities))
    return str(file)


@on_both_loops
async def test_another_cluster_of_the_same_authority_is_a_stranger(ours: Certificates) -> None:
    file = ours.folder / "elsewhere.pem"
    holder = CertifiedName("elsewhere", CertifiedKind.USER, "me")
    ours.authority.certify(file, holder, (), DAY_S)
    caller = Access(tls=Tls(str(file), ours.ca))
    async with node(ours.of_node()) as served:
        for said in await refused(served.address, caller):
            assert "not of a node of this cluster: paxosblock://cluster/namenode" in said


@on_both_loops
@pytest.mark.parametrize(
    ("made", "words"),
    [
        (
            lambda ours: ours.node("dn", hosts=("10.0.0.7",)),
            "its certificate is of another machine",
        ),
        (lambda ours: ours.node("dn", for_s=-1.0), "its certificate has ended"),
        (
            lambda ours: ours.node("dn", now_s=time.time() + 3 * 3600),
            "its certificate is not good yet: is the clock of either machine wrong?",
        ),
        (lambda ours: ours.user("dn"), "its certificate is a user's, not a node's"),
    ],
)
async def test_what_is_wrong_with_the_certificate_of_a_node_is_said(
    ours: Certificates, made: Callable[[Certificates], str], words: str
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made(ours))
    server = await asyncio.start_server(
        lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context
    )
    async with server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        for said in await refused(address, ours.of_user()):
            assert f"{address}: {words}" in said
    await _alone()


# -- while a cluster is brought over ---------------------------------------------------------------


@on_both_loops
async def test_where_tls_is_not_required_those_with_and_those_without_are_served(
    ours: Certificates,
) -> None:
    on_the_way = ours.of_node(required=False), ours.of_user(required=False)
    async with node(on_the_way[0]) as served, node(OPEN) as plain, node(ours.of_node()) as strict:
        for way in (called, commanded, streamed):
            expected = chunk(b"a") if way is streamed else "a"
            for caller in (OPEN, ours.of_user(), ours.of_stranger(), *on_the_way):
                assert await way(served.address, caller) == expected
            for caller in on_the_way:
                assert await way(plain.address, caller) == expected
                assert await way(strict.address, caller) == expected


# -- certificates that are replaced ----------------------------------------------------------------


@on_both_loops
async def test_certificates_are_replaced_under_load_without_an_error(tmp_path: Path) -> None:
    ours = Certificates(tmp_path / "ours")
    access, caller = ours.of_node(), ours.of_user()
    shown: set[bytes] = set()
    stop = asyncio.Event()

    async def calls() -> int:
        count = 0
        async with RpcClient(caller) as lasting:
            while not stop.is_set():
                await lasting.call(served.address, "echo", Text("a"), Text, SOON_S)
                assert await called(served.address, caller) == "a"
                count += 1
        return count

    async with node(access) as served:
        load = [asyncio.create_task(calls()) for _ in range(4)]
        for _ in range(5):
            shown.add(await asyncio.to_thread(_certificate_at, served.address, caller))
            ours.node()
            ours.user()
        # The other authority comes beside the first, which then goes.
        others = Certificates(tmp_path / "others")
        first = Path(ours.ca).read_bytes()
        _replace(Path(ours.ca), first + Path(others.ca).read_bytes())
        await called(served.address, caller)
        for name in ("namenode.pem", "user-me.pem"):
            others.node()
            others.user()
            _replace(ours.folder / name, (others.folder / name).read_bytes())
            await called(served.address, caller)
        _replace(Path(ours.ca), Path(others.ca).read_bytes())
        shown.add(await asyncio.to_thread(_certificate_at, served.address, caller))
        stop.set()
        assert min(await asyncio.gather(*load)) > 0
    assert len(shown) == 6


def _replace(file: Path, data: bytes) -> None:
    fresh = file.with_name(f".{file.name}")
    fresh.write_bytes(data)
    fresh.chmod(0o600)
    fresh.replace(file)


def _certificate_at(address: str, access: Access) -> bytes:
    assert access.tls is not None
    host, port = split_address(address)
    with (
        socket.create_connection((host, port), SOON_S) as sock,
        access.tls.client.wrap_socket(sock, server_hostname=host) as secured,
    ):
        return secured.getpeercert(binary_form=True) or b""


def test_what_replaces_a_certificate_and_is_none_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours = Certificates(tmp_path)
    tls = ours.of_node().tls
    assert tls is not None
    before = tls.server
    (tmp_path / "namenode.pem").write_bytes(b"half of a file")
    assert tls.server is before
    assert tls.server is before
    (line,) = caplog.messages
    assert "goes on with the certificate that it has: tls_cert" in line
    (tmp_path / "namenode.pem").unlink()
    assert tls.server is before
    ours.node()
    assert tls.server is not before


def _apart(file: str, folder: Path) -> tuple[Path, Path]:
    """Write a certificate and its key to two files, as Kubernetes gives them."""
    certificate, mark, key = Path(file).read_bytes().partition(b"-----BEGIN PRIVATE KEY")
    folder.mkdir(exist_ok=True)
    for name, data in (("tls.crt", certificate), ("tls.key", mark + key)):
        _replace(folder / name, data)
    (folder / "tls.crt").chmod(0o644)
    return folder / "tls.crt", folder / "tls.key"


async def test_a_certificate_and_its_key_may_be_in_two_files(ours: Certificates) -> None:
    cert, key = _apart(ours.node(), ours.folder / "node")
    settings = NameNodeConfig(tls_cert=str(cert), tls_key=str(key), tls_ca=ours.ca)
    access = Access.of_node(settings)
    cert, key = _apart(ours.user(), ours.folder / "user")
    caller = Access.of_client(ClientConfig(tls_cert=str(cert), tls_key=str(key), tls_ca=ours.ca))
    async with node(access) as served:
        assert await called(served.address, caller) == "a"
        assert await commanded(served.address, caller) == "a"


def test_of_two_files_that_are_replaced_both_count_or_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours, place = Certificates(tmp_path), tmp_path / "mounted"
    cert, key = _apart(ours.node(), place)
    tls = Tls(str(cert), ours.ca, key=str(key), serves=CertifiedKind.NAMENODE)
    before = tls.server
    new_cert, new_key = _apart(ours.node(), tmp_path / "new")
    new_key.replace(key)
    assert tls.server is before
    (line,) = caplog.messages
    assert f"tls_key {key}: its key is that of another certificate than tls_cert {cert}" in line
    new_cert.replace(cert)
    assert tls.server is not before

    # Kubernetes keeps all files of a mount in a folder to which a link points, and moves the link.
    link = tmp_path / "link"
    link.symlink_to(place)
    tls = Tls(str(link / "tls.crt"), ours.ca, key=str(link / "tls.key"))
    before = tls.client
    _apart(ours.user(), tmp_path / "next")
    fresh = tmp_path / "fresh"
    fresh.symlink_to(tmp_path / "next")
    fresh.replace(link)
    assert tls.client is not before
    assert tls.names[0].kind is CertifiedKind.USER


# -- files that are not as they should be ----------------------------------------------------------


def _mixed(ours: Certificates) -> str:
    """Write a certificate with the key of another one."""
    certificate, _, _ = Path(ours.node()).read_text().partition("-----BEGIN PRIVATE KEY")
    _, mark, key = Path(ours.user()).read_text().partition("-----BEGIN PRIVATE KEY")
    file = ours.folder / "mixed.pem"
    file.write_text(certificate + mark + key)
    file.chmod(0o600)
    return str(file)


def _shown_to_all(ours: Certificates) -> str:
    file = ours.node()
    os.chmod(file, 0o644)
    return file


def _locked(ours: Certificates) -> str:
    whole = Path(ours.node()).read_bytes()
    certificate, mark, key = whole.partition(b"-----BEGIN PRIVATE KEY")
    locked = serialization.load_pem_private_key(mark + key, None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"a word"),
    )
    file = ours.folder / "locked.pem"
    file.write_bytes(certificate + locked)
    file.chmod(0o600)
    return str(file)


def _nameless(ours: Certificates) -> str:
    """Write a certificate that names no node and no user of a cluster."""
    file = ours.folder / "nameless.pem"
    holder = CertifiedName("cluster", CertifiedKind.DATANODE, "a/b")
    ours.authority.certify(file, replace(holder, name=""), ("h",), DAY_S)
    return str(file)


class ReplacedTls(Tls):
    """Its certificate is replaced in the middle of the first reading."""

    def _show(self, context: ssl.SSLContext) -> None:
        own = Path(self._cert)
        if not own.with_suffix(".half").exists():
            whole = own.read_bytes()
            own.write_bytes(whole[: len(whole) // 2])
            own.with_suffix(".half").write_bytes(whole)
            try:
                super()._show(context)
            finally:
                _replace(own, whole)
        super()._show(context)


def test_files_that_are_replaced_while_they_are_read_are_read_again(tmp_path: Path) -> None:
    ours = Certificates(tmp_path)
    tls = ReplacedTls(cert := ours.user(), ours.ca)
    assert Path(cert).with_suffix(".half").exists()
    assert tls.names[0].kind is CertifiedKind.USER


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda ours: str(ours.folder / "none"), "No such file or directory"),
        (_shown_to_all, "everybody may read the key: chmod o= it"),
        (lambda ours: ours.ca, "it must hold a certificate and its key, both in PEM"),
        (_mixed, "its key is that of another certificate"),
        (_locked, "its key is locked with a password, which a node cannot type"),
        (lambda ours: ours.node(for_s=-1), "it has ended: `paxosblock setup tls` makes another"),
        (
            lambda ours: ours.node(now_s=time.time() + 3 * 3600),
            "it is not good yet: is the clock of this machine right?",
        ),
        (
            lambda ours: Certificates(ours.folder / "others").node(),
            "no authority in tls_ca .*ca.pem made it",
        ),
        (lambda ours: ours.user(), "it is not for a node: its purposes must be those of servers"),
        (
            lambda ours: ours.node("dn"),
            "it needs a URI such as paxosblock://CLUSTER/namenode among",
        ),
        (_nameless, "it needs a URI such as paxosblock://CLUSTER/namenode among its names"),
    ],
)
def test_a_certificate_that_is_not_as_it_should_be_is_refused_in_one_line(
    made: Callable[[Certificates], str], words: str, tmp_path: Path
) -> None:
    ours = Certificates(tmp_path / "ours")
    os.chmod(ours.ca, 0o600)
    file = made(ours)
    with pytest.raises(ConfigError, match=words) as error:
        Tls(file, ours.ca, serves=CertifiedKind.NAMENODE)
    assert str(error.value).startswith(f"tls_cert {file}: ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda key: key.unlink(), "No such file or directory"),
        (lambda key: key.chmod(0o644), "everybody may read the key: chmod o= it"),
        (
            lambda key: key.write_text("no key"),
            "it must hold the key, and tls_cert .*tls.crt its certificate, both in PEM",
        ),
        (
            lambda key: key.write_bytes(Path(Certificates(key.parent).user()).read_bytes()),
            "its key is that of another certificate than tls_cert .*tls.crt",
        ),
        (lambda key: (key.unlink(), key.mkdir()), "Is a directory"),
    ],
)
def test_a_key_that_is_not_as_it_should_be_is_refused_in_one_line(
    damage: Callable[[Path], object], words: str, tmp_path: Path
) -> None:
    ours = Certificates(tmp_path)
    cert, key = _apart(ours.node(), tmp_path / "apart")
    damage(key)
    with pytest.raises(ConfigError, match=words) as error:
        Tls(str(cert), ours.ca, key=str(key), serves=CertifiedKind.NAMENODE)
    assert str(error.value).startswith(f"tls_key {key}: ")
    assert "\n" not in str(error.value)
    with pytest.raises(ConfigError, match=r"tls_key .*: tls_cert is missing"):
        Access.of_client(ClientConfig(tls_key=str(key)))


def test_the_certificate_of_a_user_that_has_ended_is_made_anew_by_the_command_for_users(
    tmp_path: Path,
) -> None:
    ours = Certificates(tmp_path)
    with pytest.raises(ConfigError, match="it has ended: `paxosblock setup tls-user` makes anoth"):
        Tls(ours.user(for_s=-1), ours.ca)


@pytest.mark.parametrize("setting", ["tls_cert", "tls_ca"])
def test_a_file_that_this_user_may_not_read_is_said_to_be_one(
    setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = Certificates(tmp_path)
    cert = ours.user()
    file = {"tls_cert": cert, "tls_ca": ours.ca}[setting]
    user = pwd.getpwuid(os.geteuid()).pw_name
    stat = os.stat

    def refusing(path: str, *args: Any, **kwargs: Any) -> os.stat_result:
        """Refuse it: tests may run as root, who may read everything."""
        if path == file:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return stat(path, *args, **kwargs)

    monkeypatch.setattr(os, "stat", refusing)
    with pytest.raises(ConfigError) as error:
        Tls(cert, ours.ca)
    assert str(error.value) == (
        f"{setting} {file}: Permission denied: the user {user}, who runs this, must be able to"
        " read it"
    )


def test_a_file_of_authorities_that_is_not_as_it_should_be_is_refused(tmp_path: Path) -> None:
    ours = Certificates(tmp_path)
    with pytest.raises(ConfigError, match="tls_ca is missing"):
        Tls(ours.node(), "")
    with pytest.raises(ConfigError, match="tls_cert is missing"):
        Tls("", ours.ca, serves=CertifiedKind.NAMENODE)
    (tmp_path / "text").write_text("no certificate")
    with pytest.raises(ConfigError, match=r"tls_ca .*/text: it holds no certificate in PEM"):
        Tls("", str(tmp_path / "text"))
    with pytest.raises(ConfigError, match=r"tls_ca .*/none: No such file or directory"):
        Tls("", str(tmp_path / "none"))


def test_the_id_of_a_datanode_is_that_of_its_certificate(tmp_path: Path) -> None:
    ours = Certificates(tmp_path)
    tls = Tls(ours.node("dn"), ours.ca, serves=CertifiedKind.DATANODE)
    assert tls.own_id(None) == tls.own_id("dn") == "dn"
    with pytest.raises(ConfigError, match=r"--id other: tls_cert .* is that of DataNode dn$"):
        tls.own_id("other")


@pytest.mark.parametrize(
    "name",
    [
        CertifiedName("c", CertifiedKind.NAMENODE),
        CertifiedName("c", CertifiedKind.DATANODE, "host:/srv/a b"),
        CertifiedName("c", CertifiedKind.USER, "me?groups=root", ("ops", "a,b", "c&d")),
        CertifiedName("c", CertifiedKind.USER, "me"),
    ],
)
def test_a_name_is_read_from_its_uri_as_it_was_written(name: CertifiedName) -> None:
    assert CertifiedName.of(str(name)) == name


@pytest.mark.parametrize(
    "uri",
    [
        "https://c/user/me",
        "paxosblock:///user/me",
        "paxosblock://c/root",
        "paxosblock://c/user",
        "paxosblock://c/user/",
        "paxosblock://c/user/a/b",
        "paxosblock://c/namenode/a",
        "paxosblock://[c/namenode",
    ],
)
def test_another_uri_is_no_name(uri: str) -> None:
    assert CertifiedName.of(uri) is None


# -- those who only begin --------------------------------------------------------------------------


@on_both_loops
@pytest.mark.parametrize("begun", [b"", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"])
async def test_handshakes_that_are_never_finished_keep_no_other_out(
    ours: Certificates, begun: bytes
) -> None:
    access = ours.of_node()
    guard = Guard(Caps(64, 64), access=access)
    async with node(access, guard) as served:
        host, port = split_address(served.address)
        with ExitStack() as stack:
            for count in range(200):
                half = stack.enter_context(socket.create_connection((host, port), SOON_S))
                half.sendall(begun)
                if count % 20 == 0:
                    assert await called(served.address, ours.of_user()) == "a"
            assert await streamed(served.address, ours.of_user()) == chunk(b"a")
            assert guard.admission.unproven_count <= 16
        await wait_until_async(lambda: guard.admission.count == 0)


async def test_without_a_small_pool_handshakes_that_are_never_finished_pile_up(
    ours: Certificates,
) -> None:
    guard = Guard(access=ours.of_node())
    async with node(guard.access, guard) as served:
        with ExitStack() as stack:
            for _ in range(40):
                stack.enter_context(socket.create_connection(split_address(served.address), SOON_S))
            await wait_until_async(lambda: guard.admission.unproven_count == 40)
        await wait_until_async(lambda: guard.admission.count == 0)


@on_both_loops
async def test_a_handshake_has_its_time(ours: Certificates) -> None:
    access = ours.of_node()
    guard = Guard(head_timeout_s=0.1, access=access)
    async with node(access, guard) as served:
        for begun in (b"", b"\x16\x03\x01\x02\x00\x01"):
            reader, writer = await asyncio.open_connection(*split_address(served.address))
            writer.write(begun)
            assert await asyncio.wait_for(_end(reader), SOON_S) == b""
            writer.close()
        assert served.count(Refusal.HANDSHAKE) == 2
        await wait_until_async(lambda: guard.admission.count == 0)


async def _end(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionError:
        return b""


@on_both_loops
@pytest.mark.parametrize(
    "sent", [b"\x16" + os.urandom(300), b"\x16\x03\x01\xff\xff" + bytes(70000)]
)
async def test_garbage_that_begins_as_tls_does_costs_one_connection(
    ours: Certificates, sent: bytes
) -> None:
    for access in (ours.of_node(), ours.of_node(required=False), OPEN):
        async with node(access) as served:
            reader, writer = await asyncio.open_connection(*split_address(served.address))
            writer.write(sent)
            await asyncio.wait_for(_end(reader), SOON_S)
            writer.close()
            caller = OPEN if access is OPEN else ours.of_user()
            assert await called(served.address, caller) == "a"
