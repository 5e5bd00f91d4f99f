"""HDFS's names for the states of a replica, as one table (PROTOCOL.md 7)."""

from __future__ import annotations

import enum

from paxosblock.protocol.register import Replica
from paxosblock.protocol.types import ReplicaState


class HdfsReplicaState(enum.Enum):
    """HDFS's replica states (HDFS-265, *Append/Hflush/Read Design*, section 2.2)."""

    TEMPORARY = "temporary"
    """Being copied here; it answers nothing and is removed at restart."""
    RBW = "rbw"
    """Being written."""
    RWR = "rwr"
    """Waiting to be recovered: its process restarted, so its writer needs a new generation."""
    RUR = "rur"
    """Under recovery: a higher generation was promised than was accepted."""
    FINALIZED = "finalized"
    """Holds exactly a decided version."""


#: (folder, promised more than accepted, restarted) -> name; PROTOCOL.md draws this table.
TABLE: dict[tuple[ReplicaState, bool, bool], HdfsReplicaState] = {
    (ReplicaState.TEMPORARY, False, False): HdfsReplicaState.TEMPORARY,
    (ReplicaState.TEMPORARY, False, True): HdfsReplicaState.TEMPORARY,
    (ReplicaState.TEMPORARY, True, False): HdfsReplicaState.TEMPORARY,
    (ReplicaState.TEMPORARY, True, True): HdfsReplicaState.TEMPORARY,
    (ReplicaState.RBW, False, False): HdfsReplicaState.RBW,
    (ReplicaState.RBW, False, True): HdfsReplicaState.RWR,
    (ReplicaState.RBW, True, False): HdfsReplicaState.RUR,
    (ReplicaState.RBW, True, True): HdfsReplicaState.RUR,
    (ReplicaState.FINALIZED, False, False): HdfsReplicaState.FINALIZED,
    (ReplicaState.FINALIZED, False, True): HdfsReplicaState.FINALIZED,
    (ReplicaState.FINALIZED, True, False): HdfsReplicaState.RUR,
    (ReplicaState.FINALIZED, True, True): HdfsReplicaState.RUR,
}


def hdfs_state(replica: Replica) -> HdfsReplicaState:
    """Return HDFS's name for the state of this replica."""
    registers = replica.registers
    promised = registers.max_generation > registers.accepted_generation
    return TABLE[registers.state, promised, replica.restarted]
