"""A real DataNode process that lies on the wire, beside honest ones: no byte of a file suffers."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from paxosblock import Client
from paxosblock.base.units import KIB
from paxosblock.client.blocking.sync import FileWriter
from paxosblock.config import ClientConfig
from paxosblock.protocol.types import StorageId
from tests.services.lying_cluster import LyingCluster
from tests.services.rogue_datanode import OPENING, READING, WRITING
from tests.waiting import wait_until

CHUNK = 16 * KIB
PATIENCE = ClientConfig(
    chunk_size=CHUNK,
    block_size=10 * CHUNK,
    vote_timeout_s=1.0,
    rpc_timeout_s=2.0,
    retry_for_s=20.0,
)


class Rogues(LyingCluster):
    """A cluster whose first DataNode lies when it is told to."""

    module = "tests.services.rogue_datanode"
    liars = "datanode-0"

    @property
    def storage(self) -> StorageId:
        """The liar's."""
        address = self.datanodes[0].address
        (report,) = [node for node in self.status().datanodes if node.address == address]
        return report.storages[0].storage


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rogues]:
    with Rogues(datanodes=4, path=tmp_path_factory.mktemp("rogues")) as cluster:
        yield cluster


@pytest.fixture
def fs(cluster: Rogues) -> Iterator[Client]:
    with Client(cluster.url, PATIENCE) as fs:
        yield fs
    cluster.repent()


@pytest.mark.parametrize("lie", WRITING)
def test_a_liar_among_the_voters_is_left_behind(cluster: Rogues, fs: Client, lie: str) -> None:
    data = os.urandom(25 * CHUNK + 7)

    def begun_with_the_liar() -> FileWriter | None:
        out = fs.create("/written", overwrite=True)
        out.write(data[: 3 * CHUNK])
        if cluster.storage in out.hflush().replicas:
            return out
        out.close()
        return None

    # What the liar still has open of the test before may let it come last.
    with wait_until(begun_with_the_liar, what="a block of the liar's") as out:
        cluster.lie(lie)
        out.write(data[3 * CHUNK :])
        after = out.hflush()
        assert cluster.has_lied
        assert after.size == len(data)
        assert cluster.storage not in after.replicas
    with fs.open("/written") as file:
        assert file.read() == data
    assert "Traceback" not in cluster.namenode.log.read_text()


@pytest.mark.parametrize("lie", OPENING)
def test_a_liar_that_is_asked_for_a_replica_is_left_out(
    cluster: Rogues, fs: Client, lie: str
) -> None:
    data = os.urandom(5 * CHUNK)
    cluster.lie(lie)

    def asked_the_liar() -> bool:
        with fs.create("/created", overwrite=True) as out:
            out.write(data)
            assert cluster.storage not in out.hflush().replicas
        with fs.open("/created") as file:
            assert file.read() == data
        return cluster.has_lied

    wait_until(asked_the_liar, what="the liar to be asked")


@pytest.mark.parametrize("lie", READING)
def test_what_a_liar_says_is_never_read(cluster: Rogues, fs: Client, lie: str) -> None:
    data = os.urandom(25 * CHUNK + 7)

    def is_held_by_the_liar() -> bool:
        with fs.create("/read", overwrite=True, replication=len(cluster.datanodes)) as out:
            out.write(data)
            return cluster.storage in out.hflush().replicas

    # On three of four, now and then no block of the file is the liar's; on a busy machine it is
    # now and then too slow for four.
    wait_until(is_held_by_the_liar, what="a file on all DataNodes")
    cluster.lie(lie)

    def asked_the_liar() -> bool:
        with fs.open("/read") as file:
            assert file.read() == data
        return cluster.has_lied

    wait_until(asked_the_liar, what="the liar to be asked")
