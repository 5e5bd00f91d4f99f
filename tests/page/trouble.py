"""Pages of nodes that have every trouble there is, without a node that has it."""

from __future__ import annotations

import msgspec

from paxosblock.api.fsck_call import Condition, Finding
from paxosblock.api.insight import (
    DATANODE_STATUS,
    LIST_UNWHOLE,
    LIST_WRITERS,
    SHOW_SETTINGS,
    ChangedSetting,
    DataNodeStatus,
    NodeSettings,
    UnwholeBlocks,
    VolumeStatus,
    WriterLease,
    Writers,
)
from paxosblock.api.namenode import BlockMember, BlockView
from paxosblock.api.status import (
    CLUSTER_STATUS,
    EXPLAIN,
    NAMENODE_STATUS,
    BlockExplanation,
    NameNodeStatus,
    NodeStatus,
    ReplicationStatus,
    SafeModeStatus,
    VoteLine,
)
from paxosblock.page.site import PageAnswer, Site
from paxosblock.protocol.finalize import BlockRecord
from paxosblock.protocol.types import (
    BlockId,
    BlockState,
    Durability,
    Generation,
    StorageId,
    WriterId,
)
from tests.page.answers import Answers, cluster, datanode, namenode, of_a_cluster

S1, S2 = StorageId("s1-long-name"), StorageId("s2")


def line(generation: int, event: str, storage: str = "", detail: str = "") -> VoteLine:
    """One step in the life of a block."""
    return VoteLine(1_700_000_000_123, Generation(generation), event, StorageId(storage), detail)


HISTORY = (
    line(0, "opened again"),
    line(2, "last vote", S1, "length 12, accepted in 0"),
    line(2, "refused", S2, "fenced, promised 3, accepted 0, length 11"),
    line(2, "chose", detail="length 12, accepted in 0"),
    line(1, "finalized", "<b>", "length 12"),
)
"""A block that was recovered: votes, a refusal, decisions."""


def explained(history: tuple[VoteLine, ...]) -> BlockExplanation:
    """A block with two members under recovery, with these steps."""
    record = BlockRecord(
        BlockId(7),
        BlockState.UNDER_RECOVERY,
        Generation(2),
        Generation(0),
        (S1, S2),
        WriterId("w"),
        4,
        Durability.DISK,
    )
    members = tuple(
        BlockMember(storage, f"dn-{storage}", f"{storage}:9871", True, capability=b"secret!")
        for storage in (S1, S2)
    )
    return BlockExplanation(BlockView(record, members), "under_recovery", "/f<i>", history)


async def pages_of_trouble() -> dict[str, PageAnswer]:
    """The pages by the name of what is in trouble."""
    own = namenode(
        leader="nn:1",
        members=("nn:1", "nn:2"),
        lag={"nn:2": 12},
        trouble="its disk is full",
        alarms=("a block lost its last replica",),
        alarm_count=1,
        access_open=True,
    )
    nodes = (
        datanode("dn-1", failed="it hangs"),
        datanode("dn-2", "dead"),
        datanode("dn-3", "stale"),
    )
    leads = Site.of_namenode("nn", Answers(_of_blocks(own, *nodes) | _of_leader()), "http")
    follower = msgspec.structs.replace(own, serves=False, role="follower", datanodes=nodes)
    follows = Site.of_namenode("nn", Answers({NAMENODE_STATUS.name: follower}), "http")
    stores = Site.of_datanode("dn-1", Answers(_of_datanode()), "http")
    return {
        "leader": await leads.page("/", {}, "me"),
        "follower": await follows.page("/", {}, "me"),
        "block": await leads.page("/block", {"id": "7"}, "me"),
        "volumes": await stores.page("/", {}, "me"),
        "refused-login": await leads.login("", with_token=True, why="the token is of yesterday"),
    }


def _of_leader() -> dict[str, object]:
    lease = WriterLease(WriterId("w1"), "ann", "10.0.0.7", 125.0, 61.0, 60.0, 7, ("/log/a",))
    changed = ChangedSetting("racks", "/etc/racks", "")
    return {
        LIST_WRITERS.name: Writers((lease,), 1),
        SHOW_SETTINGS.name: NodeSettings("namenode", (changed,)),
        EXPLAIN.name: explained(HISTORY),
    }


def _of_blocks(own: NameNodeStatus, *nodes: NodeStatus) -> dict[str, object]:
    found = tuple(
        Finding(f"/d/{state.value}", 1, state, BlockId(number), 5, 3, 1)
        for number, state in enumerate(Condition, start=1)
    )
    seen = cluster(
        *nodes,
        replication=ReplicationStatus(waiting=1, under_way=1, missing=2, corrupt=1, short=1),
        safe_mode=SafeModeStatus(on=True, reported=3, blocks=9, left_s=None),
    )
    given = {
        NAMENODE_STATUS.name: own,
        CLUSTER_STATUS.name: seen,
        LIST_UNWHOLE.name: UnwholeBlocks(found, len(found)),
    }
    return of_a_cluster(*nodes) | given


def _of_datanode() -> dict[str, object]:
    volumes = (
        VolumeStatus(StorageId("s1"), "/disk1", "ok", 100, 25, 50),
        VolumeStatus(StorageId("s2"), "/disk2", "it hangs", 100, 25, 50, damaged=3),
    )
    status = DataNodeStatus("dn-1", "c", "", volumes, ("nn:1",), 4, 7, 1, 99, 5, 6)
    return {DATANODE_STATUS.name: status, SHOW_SETTINGS.name: NodeSettings("datanode", ())}
