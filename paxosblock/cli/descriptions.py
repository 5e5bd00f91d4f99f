"""Descriptions of nodes for people, wherever they are shown."""

from __future__ import annotations

import time
from datetime import datetime

from paxosblock.api.care import AdminStatus
from paxosblock.api.status import ClusterStatus, NodeStatus, PastStatus, ReplicationStatus
from paxosblock.base.rack import DEFAULT_RACK
from paxosblock.cli.text import counted, human_size


def name_and_place(node: NodeStatus | AdminStatus) -> str:
    """Return the two names of a DataNode: commands take both."""
    return f"{node.node} at {node.address}"


def describe_datanode(report: NodeStatus) -> str:
    """Return state, rack, blocks and room of a DataNode, its snapshot, and failed volumes.

    A rack is shown only if one was chosen, as HDFS does. Room that is neither used nor free belongs
    to others, or is kept in reserve.
    """
    used = sum(volume.used_bytes for volume in report.storages)
    free = sum(volume.free_bytes for volume in report.storages)
    capacity = sum(volume.capacity_bytes for volume in report.storages)
    failed = [f"{volume.storage}: {volume.failed}" for volume in report.storages if volume.failed]
    kept = any(volume.snapshot for volume in report.storages)
    snapshot = ["keeps the snapshot of an upgrade"] if kept else []
    rack = "" if report.rack == DEFAULT_RACK else f" in {report.rack}"
    room = f"{report.state}{rack}, {counted(report.blocks, 'block')}, {human_size(used)} used"
    return ", ".join(
        [room, f"{human_size(free)} free of {human_size(capacity)}", *snapshot, *failed]
    )


def describe_scrubbing(report: NodeStatus) -> str:
    """Return the day on which the volume that has waited longest had last been read in full."""
    last_ms = [volume.scrubbed_ms for volume in report.storages if not volume.failed]
    if not last_ms or not min(last_ms):
        return "not scrubbed yet"
    return "scrubbed " + time.strftime("%Y-%m-%d", time.localtime(min(last_ms) / 1000))


def shortfall(has: int, wanted: int) -> str:
    """Say that a block has fewer replicas than its file asks for."""
    return f"only {has} of {wanted} replicas"


def describe_cluster(seen: ClusterStatus) -> str:
    """Return the numbers of files and blocks of a cluster."""
    files, blocks = counted(seen.files, "file"), counted(seen.blocks, "block")
    return f"{files} ({seen.open_files} being written), {blocks}"


def describe_past(past: PastStatus) -> str:
    """Return what the past keeps."""
    records = counted(past.records, "record")
    size = human_size(past.bytes)
    what = f"{records} of names and files, and {size} of replicas"
    if not past.since_s:
        return f"Snapshots {past.snapshots}, which keep {what}"
    since = datetime.fromtimestamp(past.since_s).isoformat(" ", "seconds")
    return f"History   since {since} and {counted(past.snapshots, 'snapshot')}, which keep {what}"


def describe_replication(seen: ReplicationStatus) -> str:
    """Return the numbers of blocks that lack a replica, by urgency; "" if there are none."""
    parts = []
    if seen.waiting or seen.under_way:
        waits = "waits" if seen.waiting == 1 else "wait"
        parts.append(f"{counted(seen.waiting, 'block')} {waits} for a copy")
        parts.append(f"{seen.under_way} {'is' if seen.under_way == 1 else 'are'} being copied")
    if seen.missing:
        parts.append(
            f"{counted(seen.missing, 'block')} missing: no replica is left that can be read"
        )
    if seen.corrupt:
        has = "has" if seen.corrupt == 1 else "have"
        parts.append(f"{counted(seen.corrupt, 'block')} {has} a damaged replica")
    if seen.short:
        parts.append(f"{counted(seen.short, 'block')} being written with too few replicas")
    return ", ".join(parts)
