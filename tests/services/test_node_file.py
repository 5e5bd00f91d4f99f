"""The secret of nodes: who knows the users' alone is no node, neither calling nor called.

Each attack is tried on a cluster without that secret, too, where it succeeds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.api.datanode import ACCEPT, STREAM_CALLS, STREAM_REPLIES, Envelope, FetchChunks
from paxosblock.api.methods import Method
from paxosblock.api.reports import HEARTBEAT, REGISTER, Heartbeat, Register, StorageReport
from paxosblock.config import ClientConfig, DataNodeConfig
from paxosblock.errors import AccessDeniedError
from paxosblock.local.cluster_folder import Settings
from paxosblock.net.calls import control
from paxosblock.net.port.access import AS, AS_NODE, Access, make_secret
from paxosblock.net.port.upgrade import split_address
from paxosblock.net.streams.stream_calls import open_channel
from paxosblock.net.wire import MessageTable
from paxosblock.protocol.messages import LastVote, NextGS
from paxosblock.protocol.types import (
    FIRST_GENERATION,
    ChunkIndex,
    Durability,
    Generation,
    StorageId,
)
from tests.datanode.process import Received
from tests.services.conftest import wait_other_leader

pytestmark = pytest.mark.plain("roles without certificates")

TIMEOUT_S = 10.0
BEAT = "200ms"


@dataclass(frozen=True)
class Running:
    cluster: LocalCluster
    defended: bool
    users: Path
    nodes: Path

    @property
    def user(self) -> Access:
        """A caller that knows the users' secret."""
        return Access.of(str(self.users))

    @property
    def node(self) -> Access:
        """A node, as a caller."""
        config = DataNodeConfig(access_file=str(self.users), node_file=str(self.nodes))
        return Access.of_node(config, serves=False)

    @property
    def client(self) -> Client:
        config = ClientConfig(access_file=str(self.users), retry_for_s=20.0, chunk_size=20_000)
        return Client(self.cluster.url, config)


def settings(users: Path, nodes: Path | None) -> Settings:
    files: dict[str, str | int] = {"access_file": str(users)}
    if nodes is not None:
        files["node_file"] = str(nodes)
    return {"namenode": files, "datanode": {**files, "heartbeat_interval": BEAT}}


@pytest.fixture(scope="module", params=[False, True], ids=["open", "node_file"])
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """A cluster without the defence, and with it."""
    folder = tmp_path_factory.mktemp("secrets")
    users, nodes = folder / "users", folder / "nodes"
    make_secret(users)
    make_secret(nodes)
    given = settings(users, nodes if request.param else None)
    with LocalCluster(3, 3, folder / "cluster", settings=given) as cluster:
        yield Running(cluster, request.param, users, nodes)


def check_written(fs: Client, path: str) -> None:
    data = b"of those who may " * 10_000
    with fs.create(path) as out:
        out.write(data)
    with fs.open(path) as file:
        assert file.read() == data


def test_files_are_written_recovered_and_read(running: Running) -> None:
    cluster = running.cluster
    with running.client as fs:
        check_written(fs, "/a")
        with fs.create("/b") as out:
            out.write(b"x" * 50_000)
            out.hflush()
            cluster.datanodes[0].kill()
            out.write(b"x" * 50_000)
        cluster.datanodes[0].start()
        leader = cluster.wait_leader()
        leader.kill()
        wait_other_leader(cluster, leader)
        check_written(fs, "/c")
        leader.start()
        cluster.wait_registered()


def test_the_secret_of_users_registers_no_datanode(running: Running) -> None:
    address = running.cluster.wait_leader().address
    stolen = Register(
        "stranger", "127.0.0.1:1", "x", (StorageReport(StorageId("s-1"), 1 << 40, 0, 0),)
    )
    beat = Heartbeat("datanode-1", "x", (), 0)
    calls: list[tuple[Method[Any, Any], Any]] = [(REGISTER, stolen), (HEARTBEAT, beat)]
    for method, request in calls:
        if running.defended:
            with pytest.raises(AccessDeniedError, match="is of a DataNode alone") as error:
                control.call(address, method, request, TIMEOUT_S, running.user)
            assert "\n" not in str(error.value)
        else:
            control.call(address, method, request, TIMEOUT_S, running.user)
    known = {node.node for node in running.cluster.status().datanodes}
    assert ("stranger" in known) is not running.defended


async def test_the_secret_of_users_fences_no_writer_and_fetches_no_chunks(
    running: Running,
) -> None:
    with running.client as fs:
        view = fs.blocks.add()
        block, member = view.record.block, view.members[0]
        fs.blocks.datanode(member).write(block, FIRST_GENERATION, ChunkIndex(0), b"mine")
    host, port = split_address(member.address)
    calls, replies = MessageTable(STREAM_CALLS), MessageTable(STREAM_REPLIES)
    fetch = FetchChunks(block, member.storage, (FIRST_GENERATION,), 0, 1)
    callers = (running.user, running.node) if running.defended else (running.user,)
    for caller in callers:
        channel = await open_channel(host, port, calls, replies, access=caller)
        received = Received()
        try:
            if running.defended and caller == running.user:
                with pytest.raises(AccessDeniedError, match="FetchChunks is of a DataNode alone"):
                    await channel.call(fetch, timeout_s=TIMEOUT_S, sink=received)
                continue
            await channel.call(fetch, timeout_s=TIMEOUT_S, sink=received)
            assert b"".join(received.payloads) == b"mine"
        finally:
            channel.connection.close()
            # With TLS that takes the other end, too: else the loop may end before it.
            await channel.connection.wait_closed()
    fence = Envelope(
        member.storage, NextGS(block, Generation(1), FIRST_GENERATION, 4, Durability.DISK)
    )
    if running.defended:
        with pytest.raises(AccessDeniedError, match="is of a NameNode alone"):
            control.call(member.address, ACCEPT, fence, TIMEOUT_S, running.user)
    answer = control.call(
        member.address, ACCEPT, fence, TIMEOUT_S, running.node if running.defended else running.user
    )
    assert isinstance(answer, LastVote), "nothing was promised before"


def test_to_say_that_one_is_a_node_is_no_proof(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attacker puts the users' secret in the place of the nodes', or proves nothing at all."""
    address = running.cluster.wait_leader().address
    beat = Heartbeat("datanode-1", "x", (), 0)
    if not running.defended:
        control.call(address, HEARTBEAT, beat, TIMEOUT_S, running.user)
        return
    known = running.user.secrets
    impostor = replace(running.user, node_secrets=known)
    with pytest.raises(AccessDeniedError, match="another access secret than ours"):
        control.call(address, HEARTBEAT, beat, TIMEOUT_S, impostor)
    silent = Access()
    monkeypatch.setattr(
        "paxosblock.net.port.access.claim", lambda _: {"Access-User": "me", AS: AS_NODE}
    )
    for caller in (silent, running.user):
        with pytest.raises(AccessDeniedError):
            control.call(address, HEARTBEAT, beat, TIMEOUT_S, caller)


def test_a_node_believes_no_process_that_knows_the_secret_of_users_alone(
    running: Running, tmp_path: Path
) -> None:
    """It has the port of a node that is dead, and answers there."""
    given = settings(running.users, None)
    with LocalCluster(1, 1, tmp_path, settings=given) as theirs:
        address = theirs.namenode.address
        if not running.defended:
            assert control.healthy(address)
            return
        with pytest.raises(AccessDeniedError, match="another access secret than ours"):
            control.call(
                address, HEARTBEAT, Heartbeat("datanode-0", "x", (), 0), TIMEOUT_S, running.node
            )


def test_a_cluster_that_runs_is_given_the_secret_of_nodes_without_an_interruption(
    tmp_path: Path,
) -> None:
    """One node after the other, with the users' secret as a second line of the file meanwhile."""
    users, nodes = tmp_path / "users", tmp_path / "nodes"
    make_secret(users)
    make_secret(nodes)
    both = tmp_path / "both"
    both.write_bytes(nodes.read_bytes() + users.read_bytes())
    both.chmod(0o600)
    with LocalCluster(3, 1, tmp_path / "cluster", settings=settings(users, None)) as cluster:
        config = tmp_path / "cluster" / "config.toml"
        running = Running(cluster, True, users, nodes)
        with running.client as fs:
            for step, file in enumerate((both, nodes)):
                text = f'access_file = "{users}"\nnode_file = "{file}"\n'
                config.write_text(
                    f'[namenode]\n{text}[datanode]\n{text}heartbeat_interval = "{BEAT}"\n'
                )
                for node in (*cluster.datanodes, *cluster.namenodes):
                    node.stop()
                    node.start()
                    cluster.wait_registered()
                    check_written(fs, f"/{step}-{node.name}")
        test_the_secret_of_users_registers_no_datanode(running)
