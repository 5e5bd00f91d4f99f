"""Real nodes besieged by strangers, who have no access secret and more connections than the nodes
take: a client that knows the secret goes on writing and reading.

Time-outs are long here: what strangers hold must not be in the way of others while they hold it.
`test_node_floods.py` shows that they do not hold it for ever.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.api.namenode import RENEW_LEASES
from paxosblock.base.units import KIB, MIB
from paxosblock.config import ClientConfig
from paxosblock.local.node_process import Node
from paxosblock.net.port.access import PROOF_S, Access, dialled, make_secret
from paxosblock.net.port.bearer import SCHEME
from paxosblock.net.port.upgrade import STREAM, head, split_address
from tests.children import memory_bytes
from tests.net.test_stuck_peers import BAD
from tests.services.content import content
from tests.services.test_node_floods import refusals
from tests.waiting import wait_until

pytestmark = pytest.mark.plain("its strangers send plain bytes; half of a handshake: test_tls.py")

PLACES = 40
STRANGERS = 60
LIMITS: dict[str, str | int] = {
    "max_connections": PLACES,
    "request_head_timeout": "60s",
    "request_stall_timeout": "60s",
}


@pytest.fixture(scope="module")
def secret(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("secret") / "access"
    make_secret(file)
    return file


@pytest.fixture(scope="module")
def access(secret: Path) -> Access:
    return Access.of(str(secret))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, secret: Path) -> Iterator[LocalCluster]:
    limits = {**LIMITS, "access_file": str(secret)}
    settings = {"namenode": limits, "datanode": limits}
    path = tmp_path_factory.mktemp("cluster")
    with LocalCluster(1, 1, path, settings=settings) as cluster:
        yield cluster


@pytest.fixture
def fs(cluster: LocalCluster, secret: Path) -> Iterator[Client]:
    with knowing(cluster, secret) as fs:
        works(fs)  # its connections are idle when the siege begins
        yield fs


def knowing(cluster: LocalCluster, secret: Path) -> Client:
    return Client(cluster.url, ClientConfig(access_file=str(secret), retry_for_s=30.0))


def works(fs: Client) -> None:
    """A file is written and read."""
    with fs.create("/file", overwrite=True, replication=1) as out:
        out.write(content("file", 0, 300_000))
    with fs.open("/file") as file:
        assert file.read() == content("file", 0, 300_000)


@contextmanager
def besieged(node: Node, sent: bytes) -> Iterator[list[socket.socket]]:
    """Strangers who send this, send a byte more now and then, and read nothing. One who is hung up
    on is replaced by another at once."""
    begun: list[socket.socket] = []
    over = Event()

    def begin() -> socket.socket:
        stranger = stack.enter_context(socket.socket())
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * KIB)
        stranger.settimeout(20)
        stranger.connect(split_address(node.address))
        with suppress(OSError):
            stranger.sendall(sent)
        begun.append(stranger)
        return stranger

    def drip(strangers: list[socket.socket]) -> None:
        while not over.wait(0.05):
            for place, stranger in enumerate(strangers):
                try:
                    stranger.send(b"x", socket.MSG_DONTWAIT)
                except BlockingIOError:
                    continue
                except OSError:
                    stranger.close()
                    strangers[place] = begin()

    with ExitStack() as stack:
        dripping = Thread(target=drip, args=([begin() for _ in range(STRANGERS)],))
        dripping.start()
        try:
            yield begun
        finally:
            over.set()
            dripping.join()


def unproven_stream(node: Node, access: Access) -> bytes:
    """Ask for a stream as one who could prove the secret, as a stranger does."""
    place = split_address(node.address)
    introduction = access.introduction(STREAM.path, dialled(*place, place))
    return head(node.address, STREAM, introduction.headers)


POST = b"POST /rpc/stat HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/msgpack\r\n"
SIEGES = {
    "silent": b"",
    "metrics that nobody reads": b"GET /metrics HTTP/1.1\r\nHost: n\r\n\r\n" * 300,
    "half a head": POST + b"X-More: ",
    "half a body": POST + b"Content-Length: 1000000\r\n\r\n",
}


@pytest.mark.parametrize("number", [0, 1], ids=["namenode", "datanode"])
@pytest.mark.parametrize("siege", [*SIEGES, "unproven streams"])
def test_others_write_and_read_while_strangers_hold_connections(
    cluster: LocalCluster, secret: Path, siege: str, number: int
) -> None:
    node = (*cluster.namenodes, *cluster.datanodes)[number]
    sent = SIEGES.get(siege) or unproven_stream(node, Access.of(str(secret)))
    before = refusals(node)
    with knowing(cluster, secret) as fs:
        works(fs)
        with besieged(node, b"" if siege == "silent" else sent):
            for _ in range(2):
                works(fs)
                with knowing(cluster, secret) as newcomer:
                    works(newcomer)

    def gave_way() -> bool:  # the page may be a second old
        return refusals(node)["unproven"] - before["unproven"] >= STRANGERS - PLACES

    wait_until(gave_way)
    now = refusals(node)
    for why in ("idle", "node_full", "address_full"):
        assert now[why] == before[why], why


def ask(node: Node, method: str, body: bytes, token: bytes) -> bytes:
    """Ask over HTTP, and return all of the answer."""
    lines = (b"Authorization: " + token, b"Connection: close", b"Content-Length: %d" % len(body))
    asked = POST.replace(b"stat", method.encode()) + b"\r\n".join(lines) + b"\r\n\r\n"
    with socket.create_connection(split_address(node.address), timeout=60) as stranger:
        with suppress(ConnectionError):
            stranger.sendall(asked + body)
        came = bytearray()
        with suppress(ConnectionError):
            while part := stranger.recv(64 * KIB):
                came += part
    return bytes(came)


def test_tokens_that_are_no_text_are_refused_and_fill_no_log(
    cluster: LocalCluster, fs: Client
) -> None:
    node = cluster.namenode
    before = node.log.stat().st_size
    for token in (b"Bearer 1.\xc3\xa9", b"Bearer \xff.\xff", b"\xe9" * 1000) * 100:
        assert ask(node, "stat", b"\x81\xa4path\xa1/", token).startswith(b"HTTP/1.1 403 ")
    works(fs)
    assert node.log.stat().st_size - before < 20 * KIB
    assert "Traceback" not in node.log.read_text()


def test_the_proof_of_another_time_or_node_is_refused(
    cluster: LocalCluster, fs: Client, access: Access
) -> None:
    """It is an older kind of token, which was good at each node, and for as long as it said."""
    for for_s, meant in ((2 * PROOF_S + 600, ""), (600, ""), (600, "nn9:9870 10.0.0.9:9870")):
        proof = access.request_proof("rpc", int(time.time()) + for_s, meant)
        refused = ask(cluster.namenode, "stat", b"\x81\xa4path\xa1/", f"{SCHEME}{proof}".encode())
        assert refused.startswith(b"HTTP/1.1 403 ")
    works(fs)


def own_token(fs: Client) -> bytes:
    return f"{SCHEME}{fs.issue_token(600).token}".encode()


@pytest.mark.parametrize("body", BAD.values(), ids=BAD.keys())
def test_what_nobody_could_read_is_answered(cluster: LocalCluster, fs: Client, body: bytes) -> None:
    for node in cluster.nodes:
        method = "stat" if node is cluster.namenode else "acceptor"
        answered = ask(node, method, body, own_token(fs))
        assert answered.startswith(b"HTTP/1.1 400 ")
        assert b"malformed request" in answered
        assert "Traceback" not in node.log.read_text()
    works(fs)


def test_a_request_of_64_mib_of_empty_names_costs_little_more_than_its_bytes(
    cluster: LocalCluster, fs: Client
) -> None:
    node = cluster.namenode
    assert node.pid is not None
    count = 63 * MIB
    body = b"\x81\xa7writers\xdd" + count.to_bytes(4, "big") + b"\xa0" * count
    before_bytes = memory_bytes(node.pid, "VmHWM")
    answered = ask(node, RENEW_LEASES.name, body, own_token(fs))
    grown_bytes = memory_bytes(node.pid, "VmHWM") - before_bytes
    assert b"at most" in answered
    assert grown_bytes < 250 * MIB
    works(fs)
