"""The instruments of a NameNode: its parts tell `/metrics` when it is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from paxosblock.api.care import AdminState
from paxosblock.errors import PaxosBlockError
from paxosblock.host.metrics import NodeMetrics
from paxosblock.host.stall import StallWatch
from paxosblock.namenode.blocks.datanodes import Liveness
from paxosblock.namenode.catalog import keys
from paxosblock.namenode.kv.interface import KeyValueStore
from paxosblock.namenode.membership import Engine
from paxosblock.namenode.name_node import NameNode


def instruments(node: NameNode, engine: Engine, stall: StallWatch) -> NodeMetrics:
    """Return those of a NameNode, its engine and its event loop."""
    metrics = NodeMetrics("namenode")
    metrics.observe("leases", "Writers that hold files.", lambda: len(node.leases))
    metrics.observe(
        "recoveries",
        "Blocks under recovery, also those that wait for members.",
        lambda: node.recoverer.unended,
    )
    _observe_replicas(metrics, node)
    _observe_datanodes(metrics, node)
    metrics.histogram(
        "recovery",
        "From the first request to end a block until it was ended.",
        (),
        lambda: [((), node.recoverer.times)],
    )
    metrics.histogram(
        "takeover",
        "From each election of this NameNode until it served.",
        (),
        lambda: [((), node.leadership.times)],
    )
    metrics.observe("leads", "1 on the NameNode that serves.", lambda: node.leadership.serves)
    metrics.observe(
        "safe_mode",
        "1 while the NameNode that serves has nothing copied or taken away.",
        lambda: node.leadership.serves and node.safe_mode.holds,
    )
    metrics.observe(
        "table_keys_read",
        "Keys of its own map that the scrubber read since the start.",
        lambda: node.table_scrubber.keys_read,
    )
    metrics.observe(
        "table_passes",
        "Times since the start that the scrubber has read the whole map.",
        lambda: node.table_scrubber.passes,
    )
    metrics.observe("alarms", "Broken invariants and damaged replicas.", node.alarms.counts.total)
    metrics.observe(
        "loop_stall_seconds", "Longest stall of the event loop since the last look.", stall.take
    )
    metrics.observe(
        "loop_busy_seconds",
        "The same in processor time of the loop's thread: what a busy machine and other threads add"
        " is left out.",
        stall.take_busy,
    )
    _observe_watchers(metrics, node)
    _observe_names(metrics, engine.store)
    engine.observe(metrics)
    return metrics


@dataclass(slots=True)
class _DataNodeSums:
    """The numbers of DataNodes that one page of metrics shows."""

    states: Counter[str]
    capacity_bytes: int = 0
    used_bytes: int = 0
    free_bytes: int = 0


def _summed(node: NameNode) -> _DataNodeSums:
    """Go over the DataNodes that this NameNode has heard of since its start."""
    admin, now_s = node.datanodes.admin, node.clock_s()
    sums = _DataNodeSums(Counter())
    for each in node.datanodes:
        state = node.datanodes.liveness(each, now_s)
        sums.states[state.value] += admin.state(each.node, now_s) is AdminState.IN_SERVICE
        for storage in each.storages.values() if state is not Liveness.DEAD else ():
            sums.capacity_bytes += storage.capacity_bytes
            sums.used_bytes += storage.used_bytes
            sums.free_bytes += storage.free_bytes
    return sums


def _observe_datanodes(metrics: NodeMetrics, node: NameNode) -> None:
    """Show the DataNodes that this NameNode has heard of since its start, and their room."""

    def leaving() -> Iterator[tuple[tuple[str], int]]:
        counts = Counter(record.admin for _, record in node.datanodes.admin.records(node.clock_s()))
        wanted = (AdminState.DECOMMISSIONED, AdminState.IN_MAINTENANCE)
        return (((admin.value,), counts[admin]) for admin in wanted)

    # The first of these goes over the DataNodes, for all on the same page: they are read in order.
    sums = _DataNodeSums(Counter())

    def states() -> Iterator[tuple[tuple[str], int]]:
        nonlocal sums
        sums = _summed(node)
        return (((state.value,), sums.states[state.value]) for state in Liveness)

    metrics.levels(
        "datanodes",
        "DataNodes in service that it has heard of since its start.",
        ("state",),
        states,
    )
    metrics.levels(
        "datanodes_leaving",
        "DataNodes that an operator asked to leave; known to the NameNode that leads.",
        ("state",),
        leaving,
    )
    metrics.observe(
        "capacity_bytes",
        "Size of the file systems of all volumes, of DataNodes that are not dead.",
        lambda: sums.capacity_bytes,
    )
    metrics.observe("used_bytes", "Bytes that replicas take there.", lambda: sums.used_bytes)
    metrics.observe(
        "free_bytes", "Bytes that further replicas may take there.", lambda: sums.free_bytes
    )


def _observe_names(metrics: NodeMetrics, store: KeyValueStore) -> None:
    """Show how many names and blocks the catalog has, as far as this NameNode has heard."""

    def count(table: bytes) -> float:
        try:
            return store.view().count(table)
        except PaxosBlockError:
            return float("nan")  # it is not open

    metrics.observe("names", "Files and directories.", lambda: count(keys.ENTRIES[0]))
    metrics.observe("blocks", "Blocks of files.", lambda: count(keys.BLOCKS[0]))
    metrics.observe(
        "files_open", "Files that are being written.", lambda: count(keys.OPEN_FILES[0])
    )


def _observe_watchers(metrics: NodeMetrics, node: NameNode) -> None:
    """Show who waits for changes of names here, and what they were told."""
    feed = node.feed
    metrics.observe("watchers", "Watchers of names that wait for a change.", lambda: feed.watchers)
    metrics.tally(
        "watch_events",
        "Changes that watchers of names were told, one for each of them.",
        (),
        lambda: [((), feed.events)],
    )
    metrics.tally(
        "watch_gaps",
        "Times that a watcher was told that changes are no longer known here.",
        (),
        lambda: [((), feed.gaps)],
    )


def _observe_replicas(metrics: NodeMetrics, node: NameNode) -> None:
    """Show how many blocks lack a replica and are copied: 0 where this NameNode does not lead."""
    metrics.observe(
        "blocks_waiting",
        "Blocks that wait for another replica.",
        lambda: node.monitor.status.waiting,
    )
    metrics.observe(
        "blocks_copied", "Blocks that are being copied.", lambda: node.monitor.status.under_way
    )
    metrics.observe(
        "blocks_missing",
        "Blocks without a replica that can be read.",
        lambda: node.monitor.status.missing,
    )
    metrics.observe(
        "blocks_corrupt", "Blocks with a damaged replica.", lambda: node.monitor.status.corrupt
    )
    metrics.observe(
        "blocks_short",
        "Blocks that are being written, at fewer DataNodes than their files ask for.",
        lambda: node.monitor.status.short,
    )
    metrics.observe(
        "blocks_to_learn",
        "Blocks of a restored backup about which DataNodes must still be asked.",
        lambda: node.learner.left,
    )
    metrics.tally(
        "copies",
        "Copies of blocks that were made, or failed.",
        ("outcome",),
        lambda: [((outcome,), count) for outcome, count in node.copies.outcomes.items()],
    )
