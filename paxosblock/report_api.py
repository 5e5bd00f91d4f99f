"""What every DataNode tells every NameNode: that it lives, and which replicas it holds."""

from __future__ import annotations

from dataclasses import dataclass

from paxosblock.datanode_api import ReplicaSummary
from paxosblock.methods import Done, Method
from paxosblock.protocol.types import BlockId, StorageId


@dataclass(frozen=True, slots=True)
class StorageReport:
    """One volume: identity and room in bytes; a failed one says why.

    `used_bytes` is what its block files take, `free_bytes` what further ones may take. The rest of
    its file system's `capacity_bytes` belongs to others or is kept in reserve.
    """

    storage: StorageId
    capacity_bytes: int
    free_bytes: int
    used_bytes: int
    failed: str = ""


@dataclass(frozen=True, slots=True)
class Register:
    """A DataNode presents itself; `incarnation` differs for every start of its process."""

    node: str
    address: str
    incarnation: str
    storages: tuple[StorageReport, ...]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Alive; open streams count as load for placement."""

    node: str
    incarnation: str
    storages: tuple[StorageReport, ...]
    open_blocks: int


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """`register` asks the DataNode to register and report its blocks again."""

    register: bool
    report: bool = False


@dataclass(frozen=True, slots=True)
class BlockReport:
    """All replicas of one storage (`full`), or those that changed since the last report."""

    node: str
    incarnation: str
    storage: StorageId
    full: bool
    replicas: tuple[ReplicaSummary, ...]
    deleted: tuple[BlockId, ...] = ()


REGISTER = Method("register", Register, Done)
HEARTBEAT = Method("heartbeat", Heartbeat, HeartbeatAnswer)
BLOCK_REPORT = Method("block_report", BlockReport, Done)
