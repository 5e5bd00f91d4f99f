"""Calls that show people the state of the cluster, of its nodes and of a block."""

from __future__ import annotations

import enum

import msgspec

from paxosblock.api.methods import Method
from paxosblock.api.namenode import BlockMember, BlockRequest, BlockView
from paxosblock.api.reports import StorageReport
from paxosblock.base.rack import DEFAULT_RACK
from paxosblock.protocol.types import Generation, StorageId


class ClusterStatusRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """Ask for the state of the cluster; `recent` is content with a count of files that is some
    seconds old, as counting them walks over all names."""

    recent: bool = False


class NodeStatus(msgspec.Struct, frozen=True):
    """One DataNode as the NameNode sees it."""

    node: str
    address: str
    state: str
    seconds_since_heartbeat: float
    storages: tuple[StorageReport, ...]
    open_blocks: int
    blocks: int
    rack: str = DEFAULT_RACK


class SafeModeAction(enum.Enum):
    """The action that an operator asks for."""

    GET = "get"
    ENTER = "enter"
    LEAVE = "leave"


class SafeModeRequest(msgspec.Struct, frozen=True):
    """Show safe mode, enter it until an operator leaves it, or leave it. May arrive twice."""

    action: SafeModeAction = SafeModeAction.GET


class SafeModeStatus(msgspec.Struct, frozen=True):
    """Safe mode: while it is `on`, no replica is copied or removed.

    `by_hand` says that an operator entered it; changes of names are refused until one leaves it.
    Otherwise safe mode ends by itself in `left_s` seconds; that is None until the share
    `threshold` of the finalized `blocks` was `reported` by enough DataNodes. The counts are those
    of the last look, and none follows once safe mode has ended by itself.
    """

    on: bool
    by_hand: bool = False
    reported: int = 0
    blocks: int = 0
    threshold: float = 0.0
    left_s: float | None = 0.0


OFF = SafeModeStatus(on=False)


class ReplicationStatus(msgspec.Struct, frozen=True):
    """Numbers of blocks.

    `waiting` finalized blocks need another replica and have one to copy, `under_way` are being
    copied, `missing` have no readable replica left, `corrupt` have a damaged one. `short` blocks
    are being written, with fewer members than their files ask for.
    """

    waiting: int = 0
    under_way: int = 0
    missing: int = 0
    corrupt: int = 0
    short: int = 0


class ClusterRoom(msgspec.Struct, frozen=True):
    """Bytes of the volumes of all live DataNodes.

    `used` are block files, with all replicas; `free` is what further ones may take. The rest of the
    `size` belongs to others or is kept in reserve.
    """

    size: int
    used: int
    free: int


class PastStatus(msgspec.Struct, frozen=True):
    """The cost of what snapshots and the window of history keep: `records` of names, files and
    their places that were replaced or removed since, and the `bytes` of replicas that no file of
    today has. A snapshot that ended counts until all that only it showed is gone."""

    snapshots: int = 0
    records: int = 0
    bytes: int = 0
    since_s: float = 0.0
    """The time at which the window of history begins, in seconds since the epoch; 0: there is none.
    """


class ClusterStatus(msgspec.Struct, frozen=True):
    """The state of the cluster, as `cluster status` and `admin report` show it."""

    namenode: str
    role: str
    files: int
    blocks: int
    open_files: int
    recoveries: int
    datanodes: tuple[NodeStatus, ...]
    safe_mode: SafeModeStatus = OFF
    replication: ReplicationStatus = ReplicationStatus()
    to_learn: int = 0
    """Blocks of a restored backup about which DataNodes must still be asked."""
    past: PastStatus = PastStatus()

    @property
    def room(self) -> ClusterRoom:
        """The room of the DataNodes that live."""
        volumes = [
            volume
            for node in self.datanodes
            if node.state != "dead"
            for volume in node.storages
            if not volume.failed
        ]
        return ClusterRoom(
            size=sum(volume.capacity_bytes for volume in volumes),
            used=sum(volume.used_bytes for volume in volumes),
            free=sum(volume.free_bytes for volume in volumes),
        )


class NameNodeStatusRequest(msgspec.Struct, frozen=True):
    """Ask a NameNode for its own state."""


class NameNodeStatus(msgspec.Struct, frozen=True):
    """One NameNode among `members` (host:port, itself included; empty if it is alone).

    `role` is "leader", "follower", "candidate" or, for a cluster's only NameNode, "alone". `serves`
    says that it leads and has begun. Indexes count entries of the replicated log; `lag` has, on the
    leader, the entries that each other member has still to store. `datanodes` are those that this
    NameNode hears from, with the finalized blocks they reported to it. `trouble` says why it cannot
    store changes, "" while it can. `cluster` is the cluster's id, "" before its first leader began.
    `alarms` are the latest of the `alarm_count` alarms that it has raised since its start.
    `access_open` says that it serves every caller that reaches it, without an access secret. The
    file system of its folder has `capacity_bytes`, and `free_bytes` of them are free; 0 if it does
    not say.
    """

    node: str
    role: str
    serves: bool
    leader: str
    term: int
    commit_index: int
    applied_index: int
    lag: dict[str, int]
    members: tuple[str, ...]
    datanodes: tuple[NodeStatus, ...]
    trouble: str = ""
    cluster: str = ""
    alarms: tuple[str, ...] = ()
    alarm_count: int = 0
    access_open: bool = False
    capacity_bytes: int = 0
    free_bytes: int = 0


class VoteLine(msgspec.Struct, frozen=True):
    """One step of a block's recovery as it happened, for `explain`: those that led to a decision
    are kept for days, the others while this NameNode leads; both are bounded."""

    time_ms: int
    generation: Generation
    event: str
    storage: StorageId
    detail: str


class BlockExplanation(msgspec.Struct, frozen=True):
    """A block's record, its HDFS state, and the vote history that the NameNode remembers.

    `copied_to` is the member that gets a new replica now, None if there is none.
    """

    view: BlockView
    hdfs_state: str
    path: str
    history: tuple[VoteLine, ...]
    copied_to: BlockMember | None = None


CLUSTER_STATUS = Method("cluster_status", ClusterStatusRequest, ClusterStatus)
NAMENODE_STATUS = Method("namenode_status", NameNodeStatusRequest, NameNodeStatus)
SAFE_MODE = Method("safe_mode", SafeModeRequest, SafeModeStatus)
EXPLAIN = Method("explain", BlockRequest, BlockExplanation)
