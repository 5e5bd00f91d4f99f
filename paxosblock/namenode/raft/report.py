"""The counts of a member, for `GET /metrics`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from paxosblock.base.durations import Durations
from paxosblock.errors import PaxosBlockError
from paxosblock.host.metrics import NodeMetrics
from paxosblock.namenode.raft.http_transport import HttpTransport, TransportCounters
from paxosblock.namenode.raft.store import ReplicatedStore, Status

_OF_STATUS: tuple[tuple[str, str, Callable[[Status], float]], ...] = (
    ("raft_term", "The latest term this member knows.", lambda it: it.term),
    ("raft_elections_won", "Terms it won since its start.", lambda it: it.counters.elections_won),
    (
        "raft_commit_index",
        "Last entry of the log known to be committed.",
        lambda it: it.commit_index,
    ),
    ("raft_applied_index", "Last entry applied here.", lambda it: it.applied_index),
    ("raft_last_index", "Last entry of the log here.", lambda it: it.last_index),
    (
        "raft_uncommitted_entries",
        "Entries of the log here that are not known to be committed yet.",
        lambda it: it.last_index - it.commit_index,
    ),
    (
        "raft_lag_entries",
        "Entries that the member furthest behind has still to store; of the leader.",
        lambda it: max(it.lag.values(), default=0),
    ),
    (
        "raft_snapshot_index",
        "Last entry that is durable in this member's database.",
        lambda it: it.snapshot_index,
    ),
    (
        "raft_snapshots_written",
        "Flushes after which the log was cut here.",
        lambda it: it.counters.snapshots_written,
    ),
    (
        "raft_snapshots_installed",
        "Databases received from a leader and installed here.",
        lambda it: it.counters.snapshots_installed,
    ),
    (
        "raft_tables_damaged",
        "Times that damage of this member's database was found since its start.",
        lambda it: it.counters.tables_damaged,
    ),
    (
        "raft_table_damaged_ago_seconds",
        "Since this member's database was last known to be damaged: 0 while it is, +Inf if it never"
        " was since its start.",
        lambda it: it.damaged_ago_s,
    ),
    (
        "raft_strangers_refused",
        "Messages that no member of this cluster sends.",
        lambda it: it.counters.strangers_refused,
    ),
)
_OF_TRANSPORT: tuple[tuple[str, str, Callable[[TransportCounters], float]], ...] = (
    (
        "raft_connections_refused",
        "Connections of unknown or unproven members.",
        lambda it: it.connections_refused,
    ),
    (
        "raft_messages_malformed",
        "Messages that were damaged or not understood.",
        lambda it: it.messages_malformed,
    ),
    (
        "raft_messages_dropped",
        "Messages not sent because the other member was away.",
        lambda it: it.messages_dropped,
    ),
)


def observe(metrics: NodeMetrics, store: ReplicatedStore, transport: HttpTransport | None) -> None:
    """Add the instruments of a member; while its store is not open they show NaN. One that is alone
    has no `transport`.
    """
    for name, about, value in _OF_STATUS:
        metrics.observe(name, about, partial(_of_status, store, value))
    metrics.histogram(
        "raft_sync",
        "Group commits of the log: one write and sync, for all changes that wait for it.",
        (),
        lambda: [((), times)] if (times := _sync_times(store)) else [],
    )
    if transport is None:
        return
    for name, about, counted in _OF_TRANSPORT:
        metrics.observe(name, about, partial(counted, transport.counters))


def _sync_times(store: ReplicatedStore) -> Durations | None:
    try:
        return store.sync_times
    except PaxosBlockError:
        return None


def _of_status(store: ReplicatedStore, value: Callable[[Status], float]) -> float:
    try:
        return value(store.status())
    except PaxosBlockError:
        return float("nan")
