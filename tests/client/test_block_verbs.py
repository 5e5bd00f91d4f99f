"""The seed's own verbs at single DataNodes (`test_sync.py` has the synchronous ones)."""

from __future__ import annotations

import pytest

from paxosblock.api.limits import MAX_CHUNK_BYTES
from paxosblock.errors import CorruptionError, DeadlineError, InvalidRequestError
from paxosblock.protocol.types import FIRST_GENERATION, ChunkIndex, Generation
from tests.client.shipped import shipped_cluster

FIRST_CHUNK = ChunkIndex(0)


async def test_a_vote_that_comes_late_is_not_taken_for_one_for_other_bytes() -> None:
    async with shipped_cluster(1, vote_timeout_s=1.0) as (cluster, fs):
        view = await fs.blocks.add(replication=1)
        block, node = view.record.block, fs.blocks.datanode(view.members[0])
        cluster.nodes[0].wire.votes_may_go.clear()
        with pytest.raises(DeadlineError):
            await node.write(block, FIRST_GENERATION, FIRST_CHUNK, b"first")
        cluster.nodes[0].wire.votes_may_go.set()
        with pytest.raises(CorruptionError):
            await node.write(block, FIRST_GENERATION, FIRST_CHUNK, b"other")
        vote = await node.write(block, FIRST_GENERATION, FIRST_CHUNK, b"first")
        assert vote.index == FIRST_CHUNK


async def test_what_no_datanode_could_do_is_refused_before_it_is_sent() -> None:
    async with shipped_cluster(1) as (_, fs):
        view = await fs.blocks.add(replication=1)
        block, node = view.record.block, fs.blocks.datanode(view.members[0])
        with pytest.raises(InvalidRequestError, match="negative offset -1"):
            await node.read(block, -1, 2)
        with pytest.raises(InvalidRequestError, match="a chunk has at most"):
            await node.write(block, FIRST_GENERATION, FIRST_CHUNK, bytes(MAX_CHUNK_BYTES + 1))
        with pytest.raises(InvalidRequestError, match="more than 64 bits"):
            await node.next_gs(block, Generation(1 << 64))
