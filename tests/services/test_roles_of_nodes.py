"""A secure cluster: what only its nodes may do, tried by a user and by another DataNode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.api.datanode import (
    ACCEPT,
    STREAM_CALLS,
    STREAM_REPLIES,
    Envelope,
    FetchChunks,
)
from paxosblock.api.methods import Method
from paxosblock.api.namenode import BlockMember
from paxosblock.api.reports import HEARTBEAT, REGISTER, Heartbeat, Register, StorageReport
from paxosblock.config import DataNodeConfig
from paxosblock.errors import AccessDeniedError
from paxosblock.net.calls import control
from paxosblock.net.port.access import Access
from paxosblock.net.port.upgrade import split_address
from paxosblock.net.streams.stream_calls import open_channel
from paxosblock.net.wire import MessageTable
from paxosblock.protocol.messages import Delete, LastVote, NextGS
from paxosblock.protocol.types import (
    FIRST_GENERATION,
    BlockId,
    ChunkIndex,
    Durability,
    Generation,
)
from tests.datanode.process import Received

TIMEOUT_S = 10.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """DataNodes that know neither capabilities nor a secret: certificates are the one defence."""
    folder = tmp_path_factory.mktemp("cluster")
    settings = {kind: {"block_tokens": "false"} for kind in ("namenode", "datanode")}
    with LocalCluster(3, 1, folder, secure=True, settings=settings) as cluster:
        yield cluster


@pytest.fixture
def user(cluster: LocalCluster) -> Access:
    return Access.of_client(cluster.client_config)


@pytest.fixture
def datanode(cluster: LocalCluster) -> Access:
    """The first DataNode, of whose certificate an attacker has got hold."""
    return access_of(cluster, "datanode-0")


@pytest.fixture
def namenode(cluster: LocalCluster) -> Access:
    return access_of(cluster, "namenode-0")


def access_of(cluster: LocalCluster, node: str) -> Access:
    """The access of a node as a caller."""
    files = cluster.path / "tls"
    config = DataNodeConfig(tls_cert=str(files / f"{node}.pem"), tls_ca=str(files / "ca.pem"))
    return Access.of_node(config, serves=False)


@pytest.fixture
def block(cluster: LocalCluster) -> Iterator[tuple[BlockId, BlockMember]]:
    """A block with one chunk, and its member at the second DataNode."""
    with Client(cluster.url, cluster.client_config) as fs:
        view = fs.blocks.add()
        for member in view.members:
            fs.blocks.datanode(member).write(
                view.record.block, FIRST_GENERATION, ChunkIndex(0), b"mine"
            )
        yield view.record.block, next(each for each in view.members if each.node == "datanode-1")


def test_a_datanode_is_the_one_that_its_certificate_names(
    cluster: LocalCluster, user: Access, datanode: Access
) -> None:
    before = {node.node: node.address for node in cluster.status().datanodes}
    storage = cluster.status().datanodes[1].storages[0].storage
    stolen = Register("datanode-1", "127.0.0.1:1", "x", (StorageReport(storage, 1, 1, 0),))
    beat = Heartbeat("datanode-1", "x", (), 0)
    for caller, why in ((user, "is the user"), (datanode, "is of DataNode datanode-0")):
        calls: list[tuple[Method[Any, Any], Any]] = [(REGISTER, stolen), (HEARTBEAT, beat)]
        for method, request in calls:
            with pytest.raises(AccessDeniedError, match=why) as error:
                control.call(cluster.addresses[0], method, request, TIMEOUT_S, caller)
            assert "\n" not in str(error.value)
    assert {node.node: node.address for node in cluster.status().datanodes} == before


def test_what_a_namenode_decides_is_of_a_namenode(
    user: Access,
    datanode: Access,
    namenode: Access,
    block: tuple[BlockId, BlockMember],
) -> None:
    number, member = block
    fence = NextGS(number, Generation(1), FIRST_GENERATION, 4, Durability.DISK)
    for caller in (user, datanode):
        for message in (fence, Delete(number, Generation(9))):
            with pytest.raises(AccessDeniedError, match="is of a NameNode alone"):
                control.call(
                    member.address, ACCEPT, Envelope(member.storage, message), TIMEOUT_S, caller
                )
    answer = control.call(
        member.address, ACCEPT, Envelope(member.storage, fence), TIMEOUT_S, namenode
    )
    assert isinstance(answer, LastVote), answer
    assert answer.length == 1, "nothing was deleted or promised before"


async def test_chunks_are_fetched_by_datanodes_and_streams_decide_nothing(
    user: Access, datanode: Access, block: tuple[BlockId, BlockMember]
) -> None:
    number, member = block
    calls, replies = MessageTable(STREAM_CALLS), MessageTable(STREAM_REPLIES)
    fetch = FetchChunks(number, member.storage, (FIRST_GENERATION,), 0, 1)
    delete = Envelope(member.storage, Delete(number, Generation(9)))
    host, port = split_address(member.address)
    for caller, may_fetch in ((user, False), (datanode, True)):
        channel = await open_channel(host, port, calls, replies, access=caller)
        try:
            with pytest.raises(AccessDeniedError, match="Delete is of a NameNode alone"):
                await channel.call(delete, timeout_s=TIMEOUT_S)
            received = Received()
            if may_fetch:
                await channel.call(fetch, timeout_s=TIMEOUT_S, sink=received)
                assert b"".join(received.payloads) == b"mine"
                continue
            with pytest.raises(AccessDeniedError, match="FetchChunks is of a DataNode alone"):
                await channel.call(fetch, timeout_s=TIMEOUT_S, sink=received)
        finally:
            channel.connection.close()
            # With TLS that takes the other end, too: else the loop may end before it.
            await channel.connection.wait_closed()
