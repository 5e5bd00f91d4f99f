"""The one line that says how a cluster is, and what that means for the data in it."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping

import msgspec

from paxosblock.api.care import LeavingNode
from paxosblock.api.status import ClusterStatus, NameNodeStatus, NodeStatus
from paxosblock.base.wording import counted, human_time


class HealthLevel(enum.Enum):
    """The meaning of a cluster's worst trouble for the data, the worst first."""

    MISSING = "missing"
    """Bytes cannot be read."""
    DAMAGED = "damaged"
    """A replica is not what it should be; another one is."""
    NO_CHANGES = "cannot store changes"
    """All can be read, and nothing be written, at one NameNode at least."""
    DEAD_NODE = "dead node"
    """All can be read and written; one more loss may change that."""
    WAITING = "waiting"
    """Blocks have fewer replicas than their files ask for."""
    SAFE_MODE = "safe mode"
    """Nothing is copied or taken away."""
    HEALTHY = "healthy"
    FOLLOWER = "follows"
    """Only the NameNode that leads knows."""


class Trouble(msgspec.Struct, frozen=True):
    """One thing that is not as it should be."""

    level: HealthLevel
    text: str


class Health(msgspec.Struct, frozen=True):
    """The worst of all troubles, and the others."""

    level: HealthLevel
    text: str
    others: tuple[Trouble, ...] = ()


_ORDER = {level: rank for rank, level in enumerate(HealthLevel)}


def health_of(
    seen: ClusterStatus,
    namenodes: Mapping[str, NameNodeStatus | None],
    leaving: Mapping[str, LeavingNode],
) -> Health:
    """Return that of a cluster; `namenodes` have None where one does not answer, and DataNodes that
    are `leaving` may be dead."""
    troubles = [*_of_blocks(seen), *_of_namenodes(namenodes), *_of_datanodes(seen, leaving)]
    troubles.sort(key=lambda each: _ORDER[each.level])
    if not troubles:
        return Health(HealthLevel.HEALTHY, _all_well(seen))
    return Health(troubles[0].level, troubles[0].text, tuple(troubles[1:]))


def _all_well(seen: ClusterStatus) -> str:
    if not seen.datanodes:
        return "No DataNode has been heard of yet: names can be changed, and nothing be stored."
    return "No block is known to lack a replica, and all nodes answer."


def _of_blocks(seen: ClusterStatus) -> Iterator[Trouble]:
    blocks, safe = seen.replication, seen.safe_mode
    if blocks.missing:
        hope = (
            "Safe mode is on, so DataNodes may still report them."
            if safe.on and not safe.by_hand
            else "Their files cannot be read whole until a DataNode that has one is back."
        )
        has = "has" if blocks.missing == 1 else "have"
        text = f"{counted(blocks.missing, 'block')} {has} no replica that can be read. {hope}"
        yield Trouble(HealthLevel.MISSING, text)
    if blocks.corrupt:
        has = "has" if blocks.corrupt == 1 else "have"
        rest = "the others" if blocks.missing else "all of them"
        mends = f"Others of their replicas serve, for {rest}; the damaged ones are made again."
        text = f"{counted(blocks.corrupt, 'block')} {has} a damaged replica. {mends}"
        yield Trouble(HealthLevel.DAMAGED, text)
    if blocks.waiting or blocks.under_way or blocks.short:
        yield Trouble(HealthLevel.WAITING, _waiting(seen))
    if seen.to_learn:
        text = (
            f"{counted(seen.to_learn, 'block')} of a backup that was brought back: DataNodes have "
            "still to tell what became of them."
        )
        yield Trouble(HealthLevel.WAITING, text)
    if safe.on:
        yield Trouble(HealthLevel.SAFE_MODE, _safe_mode(seen))


def _waiting(seen: ClusterStatus) -> str:
    blocks, parts = seen.replication, list[str]()
    lacking = blocks.waiting + blocks.under_way
    if lacking:
        parts.append(
            f"{counted(lacking, 'block')} with fewer replicas than asked for "
            f"({blocks.under_way} being copied)"
        )
    if blocks.short:
        parts.append(f"{counted(blocks.short, 'block')} being written with too few")
    return f"{' and '.join(parts)}. These can be read; another loss could change that."


def _safe_mode(seen: ClusterStatus) -> str:
    safe = seen.safe_mode
    if safe.by_hand:
        return (
            "Safe mode: an operator entered it. Files can be read; names cannot be changed, and "
            "nothing is copied or taken away, until one leaves it."
        )
    ends = "it ends once enough blocks are reported"
    if safe.left_s is not None:
        ends = f"it ends in {human_time(safe.left_s)}"
    return (
        f"Safe mode: {safe.reported} of {counted(safe.blocks, 'block')} are reported; {ends}. "
        "Files can be read and written; nothing is copied or taken away."
    )


def _of_namenodes(namenodes: Mapping[str, NameNodeStatus | None]) -> Iterator[Trouble]:
    for address, each in namenodes.items():
        if each is None:
            left = sum(other is not None for other in namenodes.values())
            text = (
                f"NameNode {address} does not answer; {left} of {len(namenodes)} do, and "
                f"{len(namenodes) // 2 + 1} must for names to change."
            )
            yield Trouble(HealthLevel.DEAD_NODE, text)
        elif each.trouble:
            text = f"NameNode {address} cannot store changes: {each.trouble}."
            if each.serves:
                text += " Files can be read; until it has room or another leads, none be written."
            yield Trouble(HealthLevel.NO_CHANGES, text)


def _of_datanodes(seen: ClusterStatus, leaving: Mapping[str, LeavingNode]) -> Iterator[Trouble]:
    for node in seen.datanodes:
        if node.state != "live" and node.node not in leaving:
            level = HealthLevel.DEAD_NODE if node.state == "dead" else HealthLevel.WAITING
            yield Trouble(level, _silent(node))
        for volume in node.storages:
            if volume.failed:
                text = f"A volume of DataNode {node.node} is not used: {volume.failed}."
                yield Trouble(HealthLevel.DEAD_NODE, text)


def _silent(node: NodeStatus) -> str:
    ago = human_time(node.seconds_since_heartbeat)
    then = (
        "its replicas are made again where there is room"
        if node.state == "dead"
        else "it is read last"
    )
    return f"DataNode {node.node} at {node.address} is {node.state}: last heard {ago} ago; {then}."
