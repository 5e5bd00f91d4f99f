"""Real nodes under connections and requests that never end, and under garbage: they go on."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from urllib.request import urlopen

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.api.namenode import STAT
from paxosblock.base.units import KIB, MIB
from paxosblock.host.descriptors import raise_limit
from paxosblock.local.cluster_folder import Settings
from paxosblock.local.node_process import Node
from paxosblock.net.port.upgrade import split_address
from tests.children import memory_bytes
from tests.net.test_floods import GARBAGE, post
from tests.secure import url_of
from tests.services.conftest import QUICK, wait_other_leader
from tests.services.flooding import HALF, Restricted, connections
from tests.waiting import wait_until

pytestmark = pytest.mark.plain("its strangers send plain bytes; half of a handshake: test_tls.py")

IMPATIENT: Settings = {
    role: {
        "request_head_timeout": "2s",
        "request_stall_timeout": "2s",
        "request_memory": "64MiB",
    }
    for role in ("namenode", "datanode")
}


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """One NameNode and one DataNode that wait for no client long."""
    path = tmp_path_factory.mktemp("single")
    with LocalCluster(1, 1, path, settings=IMPATIENT) as cluster:
        yield cluster


def ended(connection: socket.socket) -> bool:
    """True once the node has closed it, after whatever it said."""
    with suppress(ConnectionError):
        while connection.recv(65536):
            pass
    return True


def refusals(node: Node) -> dict[str, float]:
    """Return how much the node has refused, by reason."""
    with urlopen(url_of(node.address, "metrics"), timeout=20) as answer:
        lines = answer.read().decode().splitlines()
    start = f'paxosblock_{node.member.role.value}_refusals_total{{reason="'
    found = (line.removeprefix(start).split('"} ') for line in lines if line.startswith(start))
    return {reason: float(count) for reason, count in found}


def test_namenodes_outlive_a_thousand_idle_connections_and_a_pause_of_the_leader() -> None:
    """A vote needs a file: with none left both followers stopped for good."""
    with Restricted(1, 3) as cluster, Client(cluster.url, QUICK) as fs, ExitStack() as stack:
        for node in cluster.namenodes:
            stack.enter_context(connections(node.address, 1100))
        leader = cluster.wait_leader()
        leader.pause()
        stack.callback(leader.resume)
        stack.enter_context(waiting(leader, 1100))
        wait_other_leader(cluster, leader)
        fs.mkdirs("/meanwhile")
        leader.resume()
        with fs.create("/file") as out:
            out.write(b"bytes")
        wait_caught_up(cluster)
        for node in cluster.namenodes:
            assert refusals(node)["unproven"] > 0
            assert "stops" not in node.log.read_text()


@contextmanager
def waiting(node: Node, count: int) -> Iterator[None]:
    """Connections that wait to be accepted by a node that hangs, as many as the system lets."""
    with ExitStack() as stack:
        for _ in range(count):
            each = stack.enter_context(socket.socket())
            each.setblocking(False)
            with suppress(BlockingIOError):
                each.connect(split_address(node.address))
        yield


def wait_caught_up(cluster: LocalCluster) -> None:
    """Wait until one member leads, the others follow, and all have applied the same."""

    def level() -> bool:
        standings = [cluster.namenode_status(node) for node in cluster.namenodes]
        roles = sorted(seen.role for seen in standings if seen)
        applied = {seen.applied_index for seen in standings if seen}
        return (roles, len(applied)) == (["follower", "follower", "leader"], 1)

    wait_until(level)


STREAM = (
    b"GET /stream HTTP/1.1\r\nHost: n\r\n"
    b"Upgrade: paxosblock-stream/3\r\nConnection: Upgrade\r\n\r\n"
)


@pytest.mark.parametrize(
    ("number", "sent"),
    [(0, HALF), (1, HALF), (1, STREAM)],
    ids=["namenode", "datanode", "data-streams"],
)
def test_half_open_connections_are_closed_in_time(
    single: LocalCluster, number: int, sent: bytes
) -> None:
    node = (*single.namenodes, *single.datanodes)[number]
    count = min(3000, raise_limit() - 200)
    before = refusals(node)
    with connections(node.address, count, sent) as found:
        assert all(map(ended, found))
    after = refusals(node)
    late, gave_way = (after[why] - before[why] for why in ("no_head", "unproven"))
    assert late > 500, "those that fit into the pool of the unproven"
    assert late + gave_way > count / 2


def test_bodies_that_never_end_cost_a_bounded_memory_and_others_are_served(
    single: LocalCluster,
) -> None:
    node = single.namenode
    assert node.pid is not None
    before_bytes = memory_bytes(node.pid, "VmHWM")
    head, body = post(63 * MIB, method=STAT.name), bytes(63 * MIB - 1)

    def send(connection: socket.socket) -> None:
        with suppress(OSError):
            connection.sendall(body)

    with Client(single.url, QUICK) as fs, connections(node.address, 16, head) as found:
        senders = [threading.Thread(target=send, args=(each,)) for each in found]
        for sender in senders:
            sender.start()
        wait_until(lambda: refusals(node)["body_memory"] > 0)
        fs.mkdirs("/served/meanwhile")
        assert all(map(ended, found))
        for sender in senders:
            sender.join()
        fs.mkdirs("/served/after")
    assert refusals(node)["body_stalled"] > 0
    assert memory_bytes(node.pid, "VmHWM") - before_bytes < 250 * MIB


def test_heads_of_a_mebibyte_cost_no_memory(single: LocalCluster) -> None:
    node = single.namenode
    assert node.pid is not None
    before_bytes = memory_bytes(node.pid, "VmHWM")
    fields = (b"X-%03d: " % each + b"x" * 8 * KIB + b"\r\n" for each in range(128))
    with (
        Client(single.url, QUICK) as fs,
        connections(node.address, 500, HALF + b"stat HTTP/1.1\r\n" + b"".join(fields)) as found,
    ):
        fs.mkdirs("/served/meanwhile")
        assert all(map(ended, found))
    assert memory_bytes(node.pid, "VmHWM") - before_bytes < 100 * MIB
    wait_until(lambda: refusals(node)["malformed"] > 0)


def said_since(node: Node, before: int) -> str:
    """The log since it had `before` characters, once it tells of garbage: it comes in batches."""

    def said() -> str:
        return node.log.read_text()[before:]

    wait_until(lambda: "no HTTP" in said(), what="a line about garbage")
    return said()


def test_garbage_leaves_one_line_for_each_reason_in_the_log_and_no_traceback(
    single: LocalCluster,
) -> None:
    for node in single.nodes:
        before = len(node.log.read_text())
        for sent in GARBAGE:
            with connections(node.address, 5, sent) as found:
                for each in found:
                    with suppress(OSError):
                        each.shutdown(socket.SHUT_WR)
                    assert ended(each)
        assert refusals(node)["malformed"] >= 5
        said = said_since(node, before)
        assert "traceback" not in said.lower()
        assert 1 <= said.count("requests refused that are no HTTP") < 10
        assert node.alive
