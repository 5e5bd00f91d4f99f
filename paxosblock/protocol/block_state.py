"""HDFS's names for a block's record, as one table (PROTOCOL.md 7)."""

from __future__ import annotations

import enum

from paxosblock.protocol.finalize import BlockRecord
from paxosblock.protocol.types import BlockState


class HdfsBlockState(enum.Enum):
    """HDFS's block states (HDFS-265, *Append/Hflush/Read Design*, section 2.3)."""

    UNDER_CONSTRUCTION = "under_construction"
    UNDER_RECOVERY = "under_recovery"
    COMMITTED = "committed"
    """Decided, but fewer than min_replication members have reported Finalized."""
    COMPLETE = "complete"
    """Decided, and at least min_replication members hold it durably."""


#: (record, enough members reported Finalized) -> name.
TABLE: dict[tuple[BlockState, bool], HdfsBlockState] = {
    (BlockState.UNDER_CONSTRUCTION, False): HdfsBlockState.UNDER_CONSTRUCTION,
    (BlockState.UNDER_CONSTRUCTION, True): HdfsBlockState.UNDER_CONSTRUCTION,
    (BlockState.UNDER_RECOVERY, False): HdfsBlockState.UNDER_RECOVERY,
    (BlockState.UNDER_RECOVERY, True): HdfsBlockState.UNDER_RECOVERY,
    (BlockState.FINALIZED, False): HdfsBlockState.COMMITTED,
    (BlockState.FINALIZED, True): HdfsBlockState.COMPLETE,
}


def hdfs_state(record: BlockRecord, finalized_count: int, min_replication: int) -> HdfsBlockState:
    """Return HDFS's name for this state; `finalized_count` members reported the final version."""
    return TABLE[record.state, finalized_count >= min_replication]
