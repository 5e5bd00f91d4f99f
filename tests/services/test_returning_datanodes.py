"""DataNodes that go and come back, under writers that stay open: real processes and settings."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.base.units import KIB
from paxosblock.client.blocking.sync import FileWriter
from paxosblock.local.node_process import Node
from paxosblock.protocol.types import BlockId
from tests.waiting import wait_until

PIECE = 16 * KIB
SEALED_WITHIN_S = 10.0
"""A killed DataNode is told at once, one that hangs after a second; the rest is a busy machine."""


@pytest.fixture(scope="module")
def running() -> Iterator[LocalCluster]:
    with LocalCluster(datanodes=3) as cluster:
        yield cluster


@pytest.fixture
def cluster(running: LocalCluster) -> LocalCluster:
    """All three DataNodes live, also after a test that failed in between."""
    for node in running.datanodes:
        node.resume()
    running.start_missing()
    return running


@pytest.fixture
def fs(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster.url) as fs:
        yield fs


class Application:
    """Writes and flushes without a pause, on a thread of its own, until it is told to end."""

    def __init__(self, out: FileWriter) -> None:
        self.flushed = b""
        self.error: BaseException | None = None
        self._out = out
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def wait_flushed(self, more: int) -> None:
        """Wait until that many further bytes were flushed."""
        wanted = len(self.flushed) + more
        wait_until(lambda: len(self.flushed) >= wanted, what="the application to go on")

    def __enter__(self) -> Application:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not self._ends.is_set():
                piece = os.urandom(PIECE)
                self._out.write(piece)
                self._out.hflush()
                self.flushed += piece
        except BaseException as error:
            self.error = error


def registrations(cluster: LocalCluster, node: Node) -> int:
    """Return how often the NameNode took note of a process of this DataNode."""
    lines = cluster.namenode.log.read_text().splitlines()
    return sum(f" datanode={node.name} " in each for each in lines if "DataNode registered" in each)


def start_again(cluster: LocalCluster, node: Node) -> None:
    """Start a DataNode, and wait until the restart is over for the NameNode, too."""
    before = registrations(cluster, node)
    node.start()
    wait_until(lambda: registrations(cluster, node) > before, what=f"{node.name} to register")


def blocks_of(fs: Client, path: str) -> list[BlockId]:
    return [at.block for at in fs.locations(path)]


def members_of(fs: Client, block: BlockId) -> int:
    return len(fs.blocks.get(block).record.members)


@pytest.mark.parametrize("end", [Node.stop, Node.kill])
def test_three_restarts_in_a_row_cost_an_open_file_no_replica_that_lives(
    cluster: LocalCluster, fs: Client, end: Callable[[Node], object]
) -> None:
    """Every block begun after a restart was over, and before the next, has all its members."""
    out = fs.create("/rolling", overwrite=True, chunk_size=PIECE, block_size=16 * PIECE)
    with Application(out) as application:
        for node in cluster.datanodes:
            application.wait_flushed(PIECE)
            end(node)
            application.wait_flushed(PIECE)
            start_again(cluster, node)
            known = blocks_of(fs, "/rolling")
            application.wait_flushed(64 * PIECE)
            begun = blocks_of(fs, "/rolling")[len(known) :]
            assert [members_of(fs, block) for block in begun] == [3] * len(begun)
            assert len(begun) >= 3
    assert application.error is None
    out.close()
    with fs.open("/rolling") as file:
        assert file.read() == application.flushed


@pytest.mark.parametrize(
    ("leave", "come_back"), [(Node.kill, start_again), (Node.pause, lambda _, node: node.resume())]
)
def test_what_an_idle_writer_flushed_stays_readable_while_datanodes_go_one_after_the_other(
    cluster: LocalCluster,
    fs: Client,
    leave: Callable[[Node], None],
    come_back: Callable[[LocalCluster, Node], None],
) -> None:
    """No caller uses the writer: it ends the block that lost a member by itself."""
    data = os.urandom(5 * PIECE)
    with fs.create("/idle", overwrite=True, chunk_size=PIECE, block_size=2 * PIECE) as out:
        out.write(data)
        last = out.hflush().block
        first, second, _ = cluster.datanodes
        leave(first)
        wait_until(lambda: fs.blocks.get(last).record.finalized, SEALED_WITHIN_S)
        come_back(cluster, first)
        leave(second)
        with Client(cluster.url) as other, other.open("/idle") as file:
            assert file.read() == data
        come_back(cluster, second)
        out.write(b"at last")
        assert members_of(fs, out.hflush().block) >= 2
    with fs.open("/idle") as file:
        assert file.read() == data + b"at last"


def test_a_short_block_of_an_idle_writer_ends_as_soon_as_there_is_another_datanode(
    cluster: LocalCluster, fs: Client
) -> None:
    away = cluster.datanodes[0]
    with fs.create("/short") as out:
        out.write(b"three, ")
        out.hflush()
        away.kill()
        out.write(b"two, ")
        short = out.hflush().block
        assert members_of(fs, short) == 2
        start_again(cluster, away)
        wait_until(lambda: fs.blocks.get(short).record.finalized, SEALED_WITHIN_S)
        out.write(b"three")
        assert members_of(fs, out.hflush().block) == 3
    assert "datanode-0 (failed this writer)" in out.shortfall
    with fs.open("/short") as file:
        assert file.read() == b"three, two, three"
