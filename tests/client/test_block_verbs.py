"""The seed's own verbs at single DataNodes (`test_sync.py` has the synchronous ones)."""

from __future__ import annotations

import pytest

from paxosblock.errors import CorruptionError, DeadlineError
from paxosblock.protocol.types import FIRST_GENERATION, ChunkIndex
from tests.client.memory_cluster import memory_cluster

FIRST_CHUNK = ChunkIndex(0)


async def test_a_vote_that_comes_late_is_not_taken_for_one_for_other_bytes() -> None:
    async with memory_cluster(1, vote_timeout_s=1.0) as (cluster, fs):
        view = await fs.add_block(replication=1)
        block, node = view.record.block, fs.datanode(view.members[0])
        cluster.nodes[0].votes_may_go.clear()
        with pytest.raises(DeadlineError):
            await node.write(block, FIRST_GENERATION, FIRST_CHUNK, b"first")
        cluster.nodes[0].votes_may_go.set()
        with pytest.raises(CorruptionError):
            await node.write(block, FIRST_GENERATION, FIRST_CHUNK, b"other")
        vote = await node.write(block, FIRST_GENERATION, FIRST_CHUNK, b"first")
        assert vote.index == FIRST_CHUNK
