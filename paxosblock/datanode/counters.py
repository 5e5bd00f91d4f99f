"""The counts of a DataNode, for `GET /metrics`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from paxosblock.api.reports import StorageReport
from paxosblock.base.durations import Durations
from paxosblock.datanode.acceptor import Acceptor
from paxosblock.datanode.volumes.volume import Volume
from paxosblock.host.metrics import NodeMetrics


class CopiedBytes(NamedTuple):
    """Bytes of whole replicas that came from other DataNodes, and went to them."""

    received: int
    sent: int


class DataNodeCounters:
    """The instruments that the parts of a DataNode share."""

    def __init__(
        self,
        acceptor: Acceptor,
        volumes: Sequence[Volume],
        rooms: Callable[[], Iterable[StorageReport]],
        copied: Callable[[], CopiedBytes],
        left_out: int = 0,
    ) -> None:
        """Read from these what they know anyway, when the metrics are asked for: `rooms` are the
        volumes as they were last reported, `copied` counts the bytes of copies. So many volumes
        were `left_out` at the start."""
        self.metrics = NodeMetrics("datanode")
        self.streams = 0
        self.lent = 0
        """Offers of files of replicas to clients on this machine."""
        self.votes = 0
        self.vote_times = Durations()
        self.nacks = self.metrics.counter("nacks", "Chunks that were refused.", ["reason"])
        observe = self.metrics.observe
        observe("streams", "Open data streams.", lambda: self.streams)
        observe("blocks", "Replicas, the dead ones too.", lambda: acceptor.count)
        observe("volumes", "Folders.", lambda: len(volumes))
        observe(
            "volumes_failed",
            "Volumes that failed, or were left out at the start.",
            lambda: left_out + sum(bool(v.failed) for v in volumes),
        )
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
        self._add_scrubbing(volumes)
        self._add_times(volumes)
        self._add_lending()
        self._add_room(rooms)
        self.metrics.tally(
            "copied_bytes",
            "Bytes of whole replicas that were copied from DataNode to DataNode.",
            ("direction",),
            lambda: zip((("received",), ("sent",)), copied(), strict=True),
        )

    def _add_scrubbing(self, volumes: Sequence[Volume]) -> None:
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

    def _add_times(self, volumes: Sequence[Volume]) -> None:
        self.metrics.tally("votes", "Votes for chunks.", (), lambda: [((), self.votes)])
        self.metrics.histogram(
            "vote",
            "From the arrival of a chunk here until the answer to it.",
            (),
            lambda: [((), self.vote_times)],
        )
        self.metrics.histogram(
            "sync",
            "Group commits: one sync of a file, for all votes that wait for it.",
            ("storage",),
            lambda: [((v.storage,), v.commit.times) for v in volumes],
        )

        self.metrics.levels(
            "syncs_waiting",
            "Files whose votes wait for a sync, or for one that is under way.",
            ("storage",),
            lambda: (((v.storage,), v.commit.waiting_count) for v in volumes),
        )

    def _add_lending(self) -> None:
        self.metrics.tally(
            "lent_replicas",
            "Files of finalized replicas that were offered to clients on this machine.",
            (),
            lambda: [((), self.lent)],
        )

    def _add_room(self, rooms: Callable[[], Iterable[StorageReport]]) -> None:
        levels: tuple[tuple[str, str, Callable[[StorageReport], int]], ...] = (
            ("capacity_bytes", "Size of the volume's file system.", lambda it: it.capacity_bytes),
            ("used_bytes", "Bytes that replicas take there.", lambda it: it.used_bytes),
            ("free_bytes", "Bytes that further ones may take.", lambda it: it.free_bytes),
        )
        for name, about, value in levels:
            self.metrics.levels(name, about, ("storage",), partial(_each, rooms, value))


def _each(
    rooms: Callable[[], Iterable[StorageReport]], value: Callable[[StorageReport], int]
) -> Iterator[tuple[tuple[str], int]]:
    return (((room.storage,), value(room)) for room in rooms())
