"""The engine's settings: times in seconds, sizes in bytes."""

from __future__ import annotations

from dataclasses import dataclass, field

from paxosblock.config import NameNodeConfig
from paxosblock.namenode.kv.snapshot import PAUSE_S
from paxosblock.namenode.raft.storage import Limits
from paxosblock.units import MIB


@dataclass(frozen=True, slots=True)
class Options:
    """Times and sizes of one member; all members of a cluster have the same.

    A member that hears nothing from a leader for `election_min_s` to `election_max_s` (a new
    random value each time) asks whether it might be elected. A leader that does not reach a
    majority for `election_min_s` steps down. At most `apply_entries_max` entries are applied in one
    turn of the event loop, so that catching up delays no heartbeat; at most `forget_entries_max`
    are dropped from memory, of those that a snapshot covers. Its writer waits for
    `snapshot_pause_s` after each slice.

    A member that answers nothing for `away_after_s` is away: its leader sends it no snapshot, and
    keeps no entries that it would need after one.

    At most `append_window` messages are on their way to a member. While there is one, fewer than
    `append_full` entries wait for its answer and go together: a message costs more than an entry.
    """

    heartbeat_s: float = 0.1
    election_min_s: float = 0.4
    election_max_s: float = 0.8
    commit_timeout_s: float = 10.0
    away_after_s: float = 10.0
    append_entries_max: int = 4096
    append_bytes_max: int = MIB
    append_window: int = 4
    append_full: int = 256
    apply_entries_max: int = 256
    forget_entries_max: int = 8192
    snapshot_chunk_bytes: int = MIB
    snapshot_pause_s: float = PAUSE_S
    pending_max: int = 16_384
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        assert 0 < self.heartbeat_s < self.election_min_s <= self.election_max_s


def options_of(config: NameNodeConfig) -> Options:
    """What the NameNode's configuration says about the engine."""
    return Options(
        heartbeat_s=config.leader_heartbeat_s,
        election_min_s=config.election_min_s,
        election_max_s=config.election_max_s,
        limits=Limits(snapshot_bytes=config.snapshot_growth_bytes),
    )
