"""What a member counts, for `GET /metrics`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from paxosblock.errors import PaxosBlockError
from paxosblock.metrics import NodeMetrics
from paxosblock.namenode.raft.http_transport import HttpTransport
from paxosblock.namenode.raft.store import ReplicatedStore, Status


@dataclass(frozen=True, slots=True)
class _Instrument:
    name: str
    about: str
    value: Callable[[Status], float]


_INSTRUMENTS = (
    _Instrument("raft_term", "The latest term this member knows.", lambda it: it.term),
    _Instrument(
        "raft_elections_won", "Terms it won since its start.", lambda it: it.counters.elections_won
    ),
    _Instrument(
        "raft_commit_index",
        "Last entry of the log known to be committed.",
        lambda it: it.commit_index,
    ),
    _Instrument("raft_applied_index", "Last entry applied here.", lambda it: it.applied_index),
    _Instrument("raft_last_index", "Last entry of the log here.", lambda it: it.last_index),
    _Instrument(
        "raft_lag_entries",
        "Entries that the member furthest behind has still to store; of the leader.",
        lambda it: max(it.lag.values(), default=0),
    ),
    _Instrument(
        "raft_snapshot_index",
        "Last entry that the newest snapshot holds.",
        lambda it: it.snapshot_index,
    ),
    _Instrument(
        "raft_snapshots_written",
        "Snapshots written here.",
        lambda it: it.counters.snapshots_written,
    ),
    _Instrument(
        "raft_snapshots_installed",
        "Snapshots received and installed here.",
        lambda it: it.counters.snapshots_installed,
    ),
    _Instrument(
        "raft_strangers_refused",
        "Messages that no member of this cluster sends.",
        lambda it: it.counters.strangers_refused,
    ),
)


def observe(metrics: NodeMetrics, store: ReplicatedStore, transport: HttpTransport) -> None:
    """Add the instruments of a member; while its store is not open they show NaN."""
    for each in _INSTRUMENTS:
        metrics.observe(each.name, each.about, _number(store, each.value))
    refused = transport.counters
    metrics.observe(
        "raft_connections_refused",
        "Connections of unknown or unproven members.",
        lambda: refused.connections_refused,
    )
    metrics.observe(
        "raft_messages_malformed",
        "Messages that were damaged or not understood.",
        lambda: refused.messages_malformed,
    )
    metrics.observe(
        "raft_messages_dropped",
        "Messages not sent because the other member was away.",
        lambda: refused.messages_dropped,
    )


def _number(store: ReplicatedStore, value: Callable[[Status], float]) -> Callable[[], float]:
    def ask() -> float:
        try:
            return value(store.status())
        except PaxosBlockError:
            return float("nan")

    return ask
