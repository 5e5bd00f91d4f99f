"""The block that is made ahead, on real processes: kills around the step lose and leave nothing."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.request import urlopen

import pytest

from paxosblock import AsyncClient, Client, LocalCluster
from paxosblock.base.units import MIB
from paxosblock.client.writing.file_writer import AsyncFileWriter
from paxosblock.client.writing.next_block import AHEAD_FROM_BYTES
from paxosblock.config import ClientConfig
from paxosblock.local.node_process import Node
from paxosblock.protocol.types import BlockId
from tests.secure import url_of
from tests.services.content import content
from tests.waiting import wait_until

BLOCK = AHEAD_FROM_BYTES
HALF = BLOCK // 2 + MIB
CONFIG = ClientConfig(retry_for_s=30.0)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    settings = {
        "namenode": {"safe_mode_extension": "0s"},  # nothing is deleted meanwhile
        "datanode": {"block_report_interval": "1s"},
    }
    path = tmp_path_factory.mktemp("ahead")
    with LocalCluster(datanodes=4, path=path, settings=settings) as cluster:
        yield cluster


async def begun(fs: AsyncClient, path: str) -> tuple[AsyncFileWriter, BlockId]:
    """A file with half a block, and the block that was made ahead."""
    out = await fs.create(path, block_size=BLOCK, overwrite=True)
    await out.write(content(path, 0, HALF))
    await out.hflush()
    ahead = await out._next.ahead()
    assert ahead is not None
    return out, ahead.block


def replicas_of(cluster: LocalCluster, block: BlockId) -> list[Node]:
    """The DataNodes that have a file of the block."""
    return [
        node
        for node in cluster.datanodes
        if any(next(folder.rglob(f"blk_{block}*"), None) for folder in node.volumes)
    ]


def check(cluster: LocalCluster, path: str, length: int) -> None:
    """Another client reads exactly this."""
    with Client(cluster.url) as fs, fs.open(path) as file:
        assert file.read() == content(path, 0, length)


async def test_a_writer_that_is_gone_leaves_no_block_that_was_made_ahead(
    cluster: LocalCluster,
) -> None:
    async with AsyncClient(cluster.url, CONFIG) as fs, AsyncClient(cluster.url) as other:
        out, ahead = await begun(fs, "/gone")
        assert len(replicas_of(cluster, ahead)) == 3
        assert await other.take_over("/gone") == HALF
        await out.abort()  # which can do nothing any more
    wait_until(lambda: not replicas_of(cluster, ahead), what="the replicas to be deleted")
    check(cluster, "/gone", HALF)


async def test_a_namenode_that_is_killed_knows_the_block_that_was_made_ahead(
    cluster: LocalCluster,
) -> None:
    async with AsyncClient(cluster.url, CONFIG) as fs:
        out, ahead = await begun(fs, "/namenode")
        cluster.namenode.kill()
        cluster.namenode.start()
        await out.write(content("/namenode", HALF, HALF + BLOCK))
        await out.hflush()
        assert [each.block for each in await fs.locations("/namenode")][1:] == [ahead]
        await out.close()
    check(cluster, "/namenode", HALF + BLOCK)


async def test_a_datanode_that_is_killed_before_the_step_costs_no_byte_and_leaves_no_block(
    cluster: LocalCluster,
) -> None:
    async with AsyncClient(cluster.url, CONFIG) as fs:
        out, ahead = await begun(fs, "/datanode")
        holder = replicas_of(cluster, ahead)[0]
        holder.kill()
        await out.write(content("/datanode", HALF, HALF + BLOCK))
        await out.close()
        blocks = [each.block for each in await fs.locations("/datanode")]
    check(cluster, "/datanode", HALF + BLOCK)
    holder.start()
    if ahead not in blocks:
        wait_until(lambda: not replicas_of(cluster, ahead), what="the replicas to be deleted")


def added_blocks(cluster: LocalCluster) -> float:
    """Return how often the NameNode was asked for a block since it started."""
    with urlopen(url_of(cluster.namenode.address, "metrics"), timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    asked = 'paxosblock_namenode_calls_total{call="add_block",outcome="done"}'
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(asked))


async def test_a_small_file_is_written_in_the_block_that_was_made_with_it(
    cluster: LocalCluster,
) -> None:
    """Also where the NameNode was killed in between."""
    async with AsyncClient(cluster.url, CONFIG) as fs:
        out = await fs.create("/small", overwrite=True)
        cluster.namenode.kill()
        cluster.namenode.start()
        before = added_blocks(cluster)
        await out.write(content("/small", 0, 1000))
        await out.close()
        assert added_blocks(cluster) == before
        async with await fs.create("/flushed", overwrite=True) as flushed:
            await flushed.write(content("/flushed", 0, 1000))
            await flushed.hflush()
        assert added_blocks(cluster) == before + 1, "readers see it before it is closed"
    check(cluster, "/small", 1000)


async def test_a_small_file_whose_datanode_is_killed_goes_to_others(cluster: LocalCluster) -> None:
    async with AsyncClient(cluster.url, CONFIG) as fs:
        out = await fs.create("/smaller", overwrite=True)
        assert out._next._first is not None
        chosen = {member.address for member in out._next._first.members}
        holder = next(node for node in cluster.datanodes if node.address in chosen)
        holder.kill()
        await out.write(content("/smaller", 0, 1000))
        await out.close()
    check(cluster, "/smaller", 1000)
    holder.start()
