"""Files whose blocks are rebuilt when a DataNode fails (W4, W5), and the policies for both ways."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace

import pytest

from paxosblock import WriteOptions
from paxosblock.base.units import KIB
from paxosblock.client.async_client import AsyncClient
from paxosblock.config import ClientConfig, load_config
from paxosblock.errors import ConfigError, FencedError, NoSpaceError
from paxosblock.protocol.finalize import BlockRecord
from tests.client.shipped import ShippedCluster, ShippedDataNode, shipped_cluster
from tests.waiting import PATIENCE_S, wait_until_async


async def records(cluster: ShippedCluster, path: str = "/a") -> list[BlockRecord]:
    return [view.record for view in await cluster.blocks(path)]


async def members(cluster: ShippedCluster) -> list[int]:
    return [len(record.members) for record in await records(cluster)]


async def lose(cluster: ShippedCluster, *, paths: tuple[str, ...] = ("/a",)) -> ShippedDataNode:
    """Kill a member of the first file, wait until the writers have seen to it, and return it."""
    lost, *_ = await cluster.members(paths[0])
    await lost.kill()

    async def is_seen() -> bool:
        if "rebuild_block" in cluster.calls:
            return True
        return all([(await records(cluster, path))[0].finalized for path in paths])

    await wait_until_async(is_seen)
    return lost


async def has_members(cluster: ShippedCluster, count: int) -> bool:
    return await members(cluster) == [count]


async def read(fs: AsyncClient, path: str = "/a") -> bytes:
    async with await fs.open(path) as file:
        return await file.read()


async def test_a_block_that_lost_a_member_goes_on() -> None:
    async with shipped_cluster() as (cluster, fs):
        async with await fs.create("/a", options=WriteOptions("rebuild")) as out:
            await out.write(b"before, ")
            await out.hflush()
            await cluster.nodes[0].kill()
            await out.write(b"after")
            assert (await out.hflush()).size == 13
            (record,) = await records(cluster)
            assert (record.writer_generation, len(record.members)) == (1, 2)
            assert (out.fewest_replicas, "connection" in out.shortfall) == (2, True)
        assert await cluster.content("/a") == b"before, after"
        assert await members(cluster) == [2]


async def test_a_rebuild_waits_for_a_namenode_that_does_not_know_yet_who_lives() -> None:
    async with shipped_cluster() as (cluster, fs):
        async with await fs.create("/a", options=WriteOptions("rebuild")) as out:
            await out.write(b"before, ")
            await out.hflush()
            await cluster.stop_namenode()
            await cluster.nodes[0].kill()
            await cluster.start_namenode()
            await out.write(b"after")
            await out.hflush()
        assert await cluster.content("/a") == b"before, after"
        assert await members(cluster) == [2]


async def test_chunks_under_way_are_sent_again_without_a_call_of_the_writer() -> None:
    data = os.urandom(3 * KIB + 1)
    async with shipped_cluster(4) as (cluster, fs):
        async with await fs.create("/a", chunk_size=KIB, options=WriteOptions("rebuild")) as out:
            await out.write(data[:1])
            await out.hflush()
            slow, *_ = await cluster.members("/a")
            slow.wire.votes_may_go.clear()
            answers = slow.wire.answers
            await out.write(data[1:])
            await wait_until_async(lambda: slow.wire.answers == answers + 3)
            assert out.acknowledged == 1
            slow.wire.cut()
            slow.wire.votes_may_go.set()
            await wait_until_async(lambda: out.acknowledged == len(data))
            assert await read(fs) == data
        assert await cluster.content("/a") == data
        assert len(await records(cluster)) == 1


async def test_one_member_after_the_other_may_fail() -> None:
    """Each in its turn is replaced: r > n, and the block is flushed."""
    async with shipped_cluster(5) as (cluster, fs):
        async with await fs.create("/a", options=WriteOptions("rebuild")) as out:
            for _ in range(2):
                await out.write(b"more, ")
                await out.hflush()
                node, *_ = await cluster.members("/a")
                await node.kill()
            await out.write(b"end")
            await out.hflush()
            assert await members(cluster) == [3]
        assert await cluster.content("/a") == b"more, more, end"


async def test_a_lost_answer_is_asked_for_again() -> None:
    async with shipped_cluster() as (cluster, fs):
        async with await fs.create("/a", options=WriteOptions("rebuild")) as out:
            await out.write(b"one, ")
            await out.hflush()
            cluster.answers_lost.add("rebuild_block")
            await cluster.nodes[2].kill()
            await wait_until_async(lambda: cluster.calls.count("rebuild_block") > 1)
            cluster.answers_lost.clear()
            await out.write(b"two")
        assert await cluster.content("/a") == b"one, two"
        (record,) = await records(cluster)
        assert record.writer_generation == 1


async def test_a_follower_sees_every_byte_through_a_rebuild() -> None:
    async with shipped_cluster(4) as (cluster, fs):
        out = await fs.create("/a", options=WriteOptions("rebuild"))
        await out.write(b"one, ")
        await out.hflush()
        seen = bytearray()

        async def follow() -> None:
            async for piece in fs.follow("/a"):
                seen.extend(piece)

        following = asyncio.create_task(follow())
        await wait_until_async(lambda: bytes(seen) == b"one, ")
        await (await cluster.members("/a"))[0].kill()
        await out.write(b"two, ")
        await out.hflush()
        await wait_until_async(lambda: bytes(seen) == b"one, two, ")
        await out.write(b"three")
        await out.close()
        await asyncio.wait_for(following, 10)
        assert seen == b"one, two, three"


async def test_a_writer_that_was_fenced_does_not_rebuild() -> None:
    async with shipped_cluster() as (cluster, fs):
        out = await fs.create("/a", options=WriteOptions("rebuild"))
        await out.write(b"kept")
        await out.hflush()
        assert await fs.take_over("/a") == 4 or (await records(cluster))[0].finalized
        cluster.nodes[0].wire.cut()
        await wait_until_async(lambda: out._fence.is_up)
        with pytest.raises(FencedError):
            await out.hflush()
        await out.abort()
        assert await cluster.content("/a") == b"kept"


async def test_a_block_whose_members_all_failed_is_sealed() -> None:
    async with shipped_cluster() as (cluster, fs):
        async with await fs.create("/a", options=WriteOptions("rebuild")) as out:
            await out.write(b"one, ")
            await out.hflush()
            for node in cluster.nodes:
                node.wire.cut()

            async def is_ended() -> bool:
                return [record.finalized for record in await records(cluster)] == [True]

            await wait_until_async(is_ended)
            await out.write(b"two")
        assert await cluster.content("/a") == b"one, two"
        assert "rebuild_block" not in cluster.calls


async def test_a_close_that_fails_is_a_rebuild_and_another_close() -> None:
    """Seed 000, section 7: close recovery."""
    async with shipped_cluster() as (cluster, fs):
        out = await fs.create("/a", options=WriteOptions("rebuild"))
        await out.write(b"all of it")
        cluster.nodes[1].wire.votes_may_go.clear()
        closing = asyncio.create_task(out.close())
        await wait_until_async(lambda: cluster.nodes[1].wire.answers)
        await cluster.nodes[1].kill()
        await closing
        assert await cluster.content("/a") == b"all of it"
        assert await members(cluster) == [2]


async def test_always_waits_for_a_datanode_and_goes_on_with_it() -> None:
    """ "The client will keep trying until the specified policy is satisfied" (seed 004)."""
    options = WriteOptions("rebuild", "always")
    async with shipped_cluster(retry_for_s=0.3) as (cluster, fs):
        out = await fs.create("/a", options=options)
        await out.write(b"one, ")
        await out.hflush()
        await cluster.nodes[0].kill()
        await out.write(b"two")
        with pytest.raises(
            NoSpaceError, match="policy 'always' needs 3 DataNodes, and there are 2"
        ):
            await out.hflush()
        assert (await read(fs)).startswith(b"one, "), "who reads does not wait"
        await cluster.nodes[0].start()
        await wait_until_async(lambda: out.acknowledged == 8)
        await out.close()
        assert await cluster.content("/a") == b"one, two"
        assert await members(cluster) == [3]


@pytest.mark.parametrize("on_failure", ["seal", "rebuild"])
@pytest.mark.parametrize("policy", ["disable", "never", "default"])
async def test_with_three_datanodes_and_one_dead_every_policy_but_always_goes_on(
    on_failure: str, policy: str
) -> None:
    async with shipped_cluster(retry_for_s=PATIENCE_S) as (cluster, fs):
        options = WriteOptions(on_failure, policy)
        async with await fs.create("/a", options=options) as out:
            await out.write(b"one, ")
            await out.hflush()
            await lose(cluster)
            await out.write(b"two")
            await out.hflush()
        assert await cluster.content("/a") == b"one, two"
        assert await members(cluster) == ([2] if on_failure == "rebuild" else [3, 2])


@pytest.mark.parametrize("on_failure", ["seal", "rebuild"])
async def test_with_three_datanodes_and_one_dead_always_goes_on_by_best_effort_only(
    on_failure: str,
) -> None:
    options = WriteOptions(on_failure, "always")
    async with shipped_cluster(retry_for_s=1.0) as (cluster, fs):
        strict = await fs.create("/a", options=options)
        lenient = await fs.create("/b", options=replace(options, best_effort=True))
        for out in (strict, lenient):
            await out.write(b"one, ")
            await out.hflush()
        lost = await lose(cluster, paths=("/a", "/b"))
        for out in (strict, lenient):
            await out.write(b"two")
        with pytest.raises(NoSpaceError, match="policy 'always'"):
            await strict.hflush()
        await lenient.close()
        assert await cluster.content("/b") == b"one, two"
        await lost.start()
        await strict.close()
        assert await cluster.content("/a") == b"one, two"


@pytest.mark.parametrize(("policy", "count"), [("never", 2), ("default", 3), ("always", 3)])
@pytest.mark.parametrize("on_failure", ["seal", "rebuild"])
async def test_a_fourth_datanode_comes_in_as_the_policy_says(
    on_failure: str, policy: str, count: int
) -> None:
    options = WriteOptions(on_failure, policy)
    async with shipped_cluster(4, retry_for_s=PATIENCE_S) as (cluster, fs):
        async with await fs.create("/a", options=options) as out:
            await out.write(b"one, ")
            await out.hflush()
            await lose(cluster)
            await out.write(b"two")
            await out.hflush()
            assert (await members(cluster))[-1] == count
        assert await cluster.content("/a") == b"one, two"


async def test_default_does_not_replace_what_was_never_flushed() -> None:
    async with shipped_cluster(4) as (cluster, fs):
        async with await fs.create("/a", chunk_size=4, options=WriteOptions("rebuild")) as out:
            await out.write(b"one,two,")
            await wait_until_async(lambda: out.acknowledged == 8)
            await (await cluster.members("/a"))[0].kill()
            await out.write(b"end")
        assert await members(cluster) == [2]


async def test_a_block_that_is_short_gets_another_member_while_it_is_written() -> None:
    """HDFS-6867: in place, without another block."""
    async with shipped_cluster(lease_interval_s=0.02) as (cluster, fs):
        async with await fs.create("/a", options=WriteOptions("rebuild")) as out:
            await out.write(b"one, ")
            await out.hflush()
            await cluster.nodes[0].kill()
            await out.write(b"two, ")
            await out.hflush()
            assert await members(cluster) == [2]
            await cluster.nodes[0].start()
            await wait_until_async(lambda: has_members(cluster, 3))
            await out.write(b"three")
        assert await cluster.content("/a") == b"one, two, three"


async def test_a_policy_that_never_replaces_leaves_a_short_block_alone() -> None:
    async with shipped_cluster(4, lease_interval_s=0.02) as (cluster, fs):
        options = WriteOptions("rebuild", "never")
        async with await fs.create("/a", options=options) as out:
            await out.write(b"one, ")
            await out.hflush()
            await (await cluster.members("/a"))[0].kill()
            await out.write(b"two")
            await out.hflush()
            renewed = cluster.calls.count("renew_leases")
            await wait_until_async(lambda: cluster.calls.count("renew_leases") > renewed + 3)
            assert await members(cluster) == [2]


def test_the_configuration_names_them_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAXOSBLOCK_CLIENT_ON_FAILURE", "rebuild")
    monkeypatch.setenv("PAXOSBLOCK_CLIENT_REPLACE_ON_FAILURE", "never")
    monkeypatch.setenv("PAXOSBLOCK_CLIENT_REPLACE_BEST_EFFORT", "true")
    config = load_config(ClientConfig)
    assert config.on_failure.value == "rebuild"
    assert config.replace_on_failure is not None
    assert (config.replace_on_failure.value, config.replace_best_effort) == ("never", True)
    monkeypatch.setenv("PAXOSBLOCK_CLIENT_REPLACE_ON_FAILURE", "")
    assert load_config(ClientConfig).replace_on_failure is None
    monkeypatch.setenv("PAXOSBLOCK_CLIENT_ON_FAILURE", "maybe")
    with pytest.raises(ConfigError, match='\'maybe\': expected one of "seal", "rebuild"'):
        load_config(ClientConfig)
