"""The counts of a DataNode, for `GET /metrics`."""

from __future__ import annotations

from collections.abc import Sequence

from paxosblock.datanode.acceptor import Acceptor
from paxosblock.datanode.volumes.volume import Volume
from paxosblock.host.metrics import NodeMetrics


class DataNodeCounters:
    """The instruments that the parts of a DataNode share."""

    def __init__(self, acceptor: Acceptor, volumes: Sequence[Volume]) -> None:
        """Read from `acceptor` and `volumes` what they know anyway, when the metrics are asked
        for."""
        self.metrics = NodeMetrics("datanode")
        self.streams = self.metrics.gauge("streams", "Open data streams.")
        self.votes = self.metrics.counter("votes", "Votes for chunks.")
        self.nacks = self.metrics.counter("nacks", "Chunks that were refused.", ["reason"])
        observe = self.metrics.observe
        observe("blocks", "Replicas, the dead ones too.", lambda: acceptor.count)
        observe("volumes", "Folders.", lambda: len(volumes))
        observe("volumes_failed", "Failed.", lambda: sum(bool(v.failed) for v in volumes))
        observe(
            "volumes_hung",
            "Volumes that do not answer.",
            lambda: sum(bool(v.hung) for v in volumes),
        )
        observe(
            "volumes_unread",
            "Volumes that are not reported yet, because not all their replicas were read.",
            lambda: sum(not v.all_read.is_set() for v in volumes),
        )
        observe(
            "deleted_bytes",
            "Bytes of deleted replicas that are not given back to the file system yet.",
            lambda: sum(v.store.removals.waiting_bytes for v in volumes),
        )
        last_whole = (
            "Unix time at which the volume that waits longest was read as a whole; 0: never."
        )
        observe(
            "scrubbed_last_seconds",
            last_whole,
            lambda: min((v.scrubbed.whole_ms for v in volumes if not v.failed), default=0) / 1000,
        )
        self.metrics.tally(
            "scrubbed_bytes",
            "Bytes that the scrubber has read.",
            ("storage",),
            lambda: (((v.storage,), v.scrubbed.read_bytes) for v in volumes),
        )
        self.metrics.tally(
            "scrubbed_damaged",
            "Replicas that the scrubber found damaged.",
            ("storage",),
            lambda: (((v.storage,), v.scrubbed.damaged) for v in volumes),
        )
        observe("syncs", "Group commits.", lambda: sum(v.commit.sync_count for v in volumes))
