"""Files of one chunk: two calls to the NameNode, and nothing acknowledged before the second."""

from __future__ import annotations

import asyncio

import pytest

from paxosblock.api.namenode import CLOSE_FILE, NO_BLOCK
from paxosblock.errors import FencedError, PaxosBlockError
from paxosblock.protocol.types import SMALL_BYTES_MAX, Reason
from tests.client.shipped import NEAR, ShippedCluster, shipped_cluster
from tests.waiting import wait_until_async

DATA = b"a small file"


async def only_block(cluster: ShippedCluster, path: str = "/a") -> tuple[int, int]:
    """The length of the file's one block in chunks, and the generation that ended it."""
    (record,) = await cluster.records(path)
    assert record.finalized
    return record.length, record.finalized_generation


async def test_a_small_file_takes_two_calls() -> None:
    async with shipped_cluster() as (cluster, fs):
        async with await fs.create("/a") as out:
            await out.write(DATA[:3])
            await out.write(DATA[3:])
        assert cluster.calls == ["create", "close_file"]
        assert [node.wire.batches for node in cluster.nodes] == [["CreateAndWrite"]] * 3
        assert await only_block(cluster) == (1, 1), "its writer ended it"
        assert await cluster.content("/a") == DATA
        assert [each.unsent for each in cluster.asked(CLOSE_FILE)] == [NO_BLOCK]
        assert out.acknowledged == out.status.size == len(DATA)


async def test_a_file_of_one_long_chunk_is_made_first_and_written_then() -> None:
    async with shipped_cluster() as (cluster, fs):
        data = bytes(SMALL_BYTES_MAX + 1)
        async with await fs.create("/a", chunk_size=2 * SMALL_BYTES_MAX) as out:
            await out.write(data)
        assert cluster.calls == ["create", "close_file"]
        assert [node.wire.batches for node in cluster.nodes] == [["Create"]] * 3
        assert await cluster.content("/a") == data


async def test_an_empty_file_has_no_block() -> None:
    async with shipped_cluster() as (cluster, fs):
        async with await fs.create("/a"):
            pass
        assert cluster.calls == ["create", "close_file"]
        assert await cluster.records("/a") == []
        (closed,) = cluster.asked(CLOSE_FILE)
        assert closed.unsent != NO_BLOCK, "no DataNode has to hear of it"


async def test_what_is_flushed_is_in_a_block_that_readers_see() -> None:
    async with shipped_cluster() as (cluster, fs), await fs.create("/a") as out:
        await out.write(DATA)
        await out.hflush()
        assert cluster.calls == ["create", "add_block"]
        async with await fs.open("/a") as file:
            assert await file.read() == DATA


@pytest.mark.parametrize("how", ["refuses", "cuts", "votes for what was never sent", "is dead"])
async def test_where_the_block_that_came_with_the_file_fails_another_takes_its_bytes(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with shipped_cluster(4, host=NEAR) as (cluster, fs):
        out = await fs.create("/a")
        await out.write(DATA)
        faults = cluster.nodes[0].wire.faults
        match how:
            case "refuses":
                faults.refuses_replicas = True
            case "cuts":
                faults.drops_after_chunks = 0
            case "is dead":
                await cluster.nodes[0].kill()
            case _:
                faults.votes_for_unsent = True
        await out.close()
        assert await cluster.content("/a") == DATA
        assert "not in the block that was made with it" in caplog.text
        (record,) = await cluster.records("/a")
        assert cluster.nodes[0].storage not in record.members
        assert "seal_block" not in cluster.calls, "nobody had acknowledged anything in it"


async def test_nothing_is_acknowledged_before_the_file_is_closed() -> None:
    """The block is the file's with its close only: until then a take-over drops it."""
    async with shipped_cluster() as (cluster, fs):
        out = await fs.create("/a")
        await out.write(DATA)
        await fs.take_over("/a")
        with pytest.raises(FencedError):
            await out.close()
        assert out.acknowledged == 0
        assert await cluster.content("/a") == b""


async def test_a_close_whose_answer_is_lost_is_repeated() -> None:
    async with shipped_cluster() as (cluster, fs):
        out = await fs.create("/a")
        await out.write(DATA)
        cluster.answers_lost.add("close_file")
        closing = asyncio.create_task(out.close())
        await wait_until_async(lambda: cluster.calls.count("close_file") > 1)
        cluster.answers_lost.clear()
        await closing
        assert await cluster.content("/a") == DATA
        assert await only_block(cluster) == (1, 1), "its writer ended it"


async def test_a_close_that_is_cancelled_leaves_nobody_who_listens() -> None:
    async with shipped_cluster() as (cluster, fs):
        for node in cluster.nodes:
            node.wire.votes_may_go.clear()
        out = await fs.create("/a")
        await out.write(DATA)
        closing = asyncio.create_task(out.close())
        await wait_until_async(lambda: all(node.wire.chunks for node in cluster.nodes))
        closing.cancel()
        await asyncio.wait([closing])
        assert out.closed
        assert out.acknowledged == 0
        for node in cluster.nodes:
            connection = await fs._session.writing.get(node.address)
            assert not connection._listeners
            node.wire.votes_may_go.set()


async def test_a_datanode_that_has_no_room_is_left_out_of_the_next_block() -> None:
    async with shipped_cluster(4, host=NEAR) as (cluster, fs):
        cluster.nodes[0].wire.faults.refuses_chunks = Reason.NO_SPACE
        async with await fs.create("/a") as out:
            await out.write(DATA)
        assert await cluster.content("/a") == DATA


async def test_a_namenode_that_is_away_at_the_close_leaves_the_outcome_unknown() -> None:
    async with shipped_cluster(retry_for_s=0.5) as (cluster, fs):
        out = await fs.create("/a")
        await out.write(DATA)
        cluster.answers_lost.add("close_file")
        with pytest.raises(PaxosBlockError) as raised:
            await out.close()
        assert raised.value.outcome.value == "unknown"
        assert out.closed
