"""The checker of the lives knows of replicas that no node can reach."""

from __future__ import annotations

from paxosblock.net.wire import record_start
from paxosblock.protocol.chunk_log import ChunkLog
from paxosblock.protocol.types import ChunkIndex, ChunkName
from tests.disks.power_cut import File, Wrote
from tests.lives.checks import kept_chunks


def test_a_power_cut_leaves_of_an_open_replica_what_was_synced() -> None:
    log = ChunkLog(ChunkName(ChunkIndex(i), 10 * i, 0) for i in range(3))
    file = File()
    assert kept_chunks(log, file) == 0
    for count in range(1, len(log) + 1):
        start, stop = record_start(log, count - 1), record_start(log, count)
        file.change(Wrote(start, bytes(stop - start)))
        assert kept_chunks(log, file) == count - 1
        file.settle()
        assert kept_chunks(log, file) == count
    assert kept_chunks(log, None) == 0, "that of a small one is told nowhere"
