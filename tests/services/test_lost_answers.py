"""An answer that is lost on its way costs nothing: the request is sent again and done once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

import pytest

from paxosblock import AsyncClient, LocalCluster
from paxosblock.cli.main import run
from paxosblock.config import ClientConfig
from paxosblock.errors import NotFoundError
from paxosblock.local.node_process import Node
from tests.calls_proxy import CallsProxy, served

pytestmark = pytest.mark.plain("its proxy reads the frames that it loses")

CONFIG = ClientConfig(replication=1, rpc_timeout_s=5.0)

Loss = Callable[[], Awaitable[None]]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(1, 3, tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


async def nothing_else() -> None:
    """The answer is lost, and that is all."""


class LosingProxy(CallsProxy):
    """Passes calls on to a NameNode; of the first call of each method the answer is lost."""

    def __init__(self, target: str, loss: Loss) -> None:
        super().__init__(target, answer=self._lose)
        self._loss = loss
        self.lost: list[str] = []

    async def _lose(self, method: str) -> bool:
        if method in self.lost:
            return True
        self.lost.append(method)
        await self._loss()
        return False


@asynccontextmanager
async def losing(
    cluster: LocalCluster, leader: Node, loss: Loss
) -> AsyncIterator[tuple[AsyncClient, LosingProxy]]:
    """A client that reaches the leader through a `LosingProxy` first, the others directly."""
    async with (
        proxied(leader, loss) as (address, proxy),
        AsyncClient([address, *cluster.addresses], CONFIG) as fs,
    ):
        yield fs, proxy


@asynccontextmanager
async def proxied(leader: Node, loss: Loss) -> AsyncIterator[tuple[str, LosingProxy]]:
    """A `LosingProxy` in front of the leader, and its address."""
    proxy = LosingProxy(leader.address, loss)
    async with served(proxy.serve) as address:
        yield address, proxy


async def test_a_command_sends_what_may_not_happen_twice_again_and_it_happens_once(
    cluster: LocalCluster,
) -> None:
    async with proxied(cluster.wait_leader(), nothing_else) as (address, proxy):
        namenodes = ",".join([address, *cluster.addresses])
        command = ["fs", "mkdir", "--namenodes", namenodes, "/made-by-a-command"]
        assert await asyncio.to_thread(run, command) == 0
        # A command that waits long asks the NameNodes who leads.
        assert [each for each in proxy.lost if each != "namenode_status"] == ["mkdirs"]


async def test_what_may_not_happen_twice_is_sent_again_and_happens_once(
    cluster: LocalCluster,
) -> None:
    leader = cluster.wait_leader()
    async with losing(cluster, leader, nothing_else) as (fs, proxy):
        made = await fs.mkdirs("/once", parents=False)
        assert made.path == "/once"
    async with losing(cluster, leader, nothing_else) as (fs, proxy):
        assert (await fs.rename("/once", "/moved")).file_id == made.file_id
        assert "rename" in proxy.lost
    async with losing(cluster, leader, nothing_else) as (fs, proxy):
        assert await fs.delete("/moved")
        with pytest.raises(NotFoundError):
            await fs.stat("/moved")
    async with losing(cluster, leader, nothing_else) as (fs, proxy):
        blocks = cluster.status().blocks
        await fs.blocks.add()
        assert "add_block" in proxy.lost
        assert cluster.status().blocks == blocks + 1


async def test_the_next_leader_knows_what_the_one_before_has_done(cluster: LocalCluster) -> None:
    leader = await asyncio.to_thread(cluster.wait_leader)

    async def kill() -> None:
        await asyncio.to_thread(leader.kill)

    async with AsyncClient(cluster.url, CONFIG) as direct:
        source = await direct.mkdirs("/source")
    try:
        async with losing(cluster, leader, kill) as (fs, proxy):
            assert (await fs.rename("/source", "/destination")).file_id == source.file_id
            assert "rename" in proxy.lost
            assert (await fs.ls("/"))[0].path == "/destination"
    finally:
        await asyncio.to_thread(leader.start)
