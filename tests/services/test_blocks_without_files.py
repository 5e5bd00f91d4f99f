"""A process that writes a block without a file dies: the block is ended, and can be deleted."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.config import ClientConfig
from paxosblock.errors import NotFoundError
from paxosblock.protocol.types import BlockId
from tests.fork_server import ended
from tests.waiting import wait_until

WRITE = """
import os, sys
from paxosblock import Client
from paxosblock.protocol.types import ChunkIndex, Generation

fs = Client(sys.argv[1])
view = fs.blocks.add()
for member in view.members:
    node = fs.blocks.datanode(member)
    node.write(view.record.block, Generation(0), ChunkIndex(0), b"acknowledged")
print(view.record.block, flush=True)
os._exit(0)
"""


RENEWS = ClientConfig(lease_interval_s=0.2)


def test_the_block_of_a_process_that_died_is_ended_and_can_be_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAXOSBLOCK_NAMENODE_LEASE_SOFT_LIMIT", "1s")
    monkeypatch.setenv("PAXOSBLOCK_NAMENODE_LEASE_HARD_LIMIT", "2s")
    with LocalCluster(datanodes=3, path=tmp_path) as cluster, Client(cluster.url, RENEWS) as fs:
        ours = fs.blocks.add().record.block  # older than the other one, and its writer lives
        block = BlockId(int(ended([sys.executable, "-c", WRITE, cluster.url]).stdout))
        wait_until(lambda: fs.blocks.get(block).record.finalized, what="the block to be ended")
        assert not fs.blocks.get(ours).record.finalized
        view = fs.blocks.get(block)
        assert (view.record.length, view.record.size_bytes) == (1, len(b"acknowledged"))
        assert fs.blocks.datanode(view.members[0]).read(block)[1] == b"acknowledged"

        def gone() -> bool:
            return not [path for path in tmp_path.rglob(f"*{block}*") if path.is_file()]

        assert not gone()
        assert fs.blocks.delete(block)
        assert not fs.blocks.delete(block)
        with pytest.raises(NotFoundError):
            fs.blocks.get(block)
        wait_until(gone, what="the replicas to be deleted")
