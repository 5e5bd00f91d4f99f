"""Descriptions of nodes for people, wherever they are shown."""

from __future__ import annotations

from paxosblock.api.status import ClusterStatus, NodeStatus
from paxosblock.cli.text import counted, human_size
from paxosblock.rack import DEFAULT_RACK


def datanode_words(report: NodeStatus) -> str:
    """State, rack, blocks and room of a DataNode, and which of its volumes failed.

    A rack is shown where somebody chose one (as HDFS does).
    What is neither used nor free belongs to others, or is kept in reserve.
    """
    used = sum(volume.used_bytes for volume in report.storages)
    free = sum(volume.free_bytes for volume in report.storages)
    capacity = sum(volume.capacity_bytes for volume in report.storages)
    failed = [f"{volume.storage}: {volume.failed}" for volume in report.storages if volume.failed]
    rack = "" if report.rack == DEFAULT_RACK else f" in {report.rack}"
    words = f"{report.state}{rack}, {counted(report.blocks, 'block')}, {human_size(used)} used"
    return ", ".join([words, f"{human_size(free)} free of {human_size(capacity)}", *failed])


def shortfall(has: int, wanted: int) -> str:
    """That a block has fewer replicas than its file asks for."""
    return f"only {has} of {wanted} replicas"


def cluster_words(seen: ClusterStatus) -> str:
    """Return how much a cluster holds."""
    files, blocks = counted(seen.files, "file"), counted(seen.blocks, "block")
    return f"{files} ({seen.open_files} being written), {blocks}"
