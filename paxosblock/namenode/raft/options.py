"""The engine's settings (times in seconds, sizes in bytes), and its one odd requirement: raftos
0.2.6, whose own requirements pip cannot resolve.
"""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass, field

from paxosblock.base.units import KIB, MIB
from paxosblock.config import NameNodeConfig
from paxosblock.errors import ConfigError
from paxosblock.namenode.raft.member_folder import Limits

RAFTOS = "0.2.6"
"""The engine overrides methods of raftos and relies on the others: no other version will do."""

INSTALL = ("--no-deps", f"raftos=={RAFTOS}")
"""`paxosblock setup raft` has pip install this."""

HOW = "run: paxosblock setup raft"


@dataclass(frozen=True, slots=True)
class Options:
    """Times and sizes of one member; all members of a cluster have the same.

    A member that hears nothing from a leader for `election_min_s` to `election_max_s` (a new
    random value each time) asks whether it might be elected. A leader that does not reach a
    majority for `election_min_s` steps down. In one turn of the event loop at most
    `apply_entries_max` entries are applied, or fewer that have `apply_bytes_max` together, and at
    most `forget_entries_max` entries that a flush covers are dropped from memory, so that neither
    delays heartbeats.

    A member that answers nothing for `away_after_s` is away: its leader sends it no copy of the
    map, and keeps no entries that it would need after such a copy.

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
    apply_entries_max: int = 64
    apply_bytes_max: int = 32 * KIB
    forget_entries_max: int = 8192
    snapshot_chunk_bytes: int = MIB
    pending_max: int = 16_384
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        assert 0 < self.heartbeat_s < self.election_min_s <= self.election_max_s


def options_of(config: NameNodeConfig) -> Options:
    """Return the engine's settings in the NameNode's configuration."""
    return Options(
        heartbeat_s=config.leader_heartbeat_s,
        election_min_s=config.election_min_s,
        election_max_s=config.election_max_s,
        limits=Limits(flush_bytes=config.snapshot_growth_bytes),
    )


def check_raftos() -> None:
    """Return if raftos is here in the version that the engine is built on.

    Raises:
        ConfigError: it is missing or has another version; one line tells how to install it.
    """
    if _is_bundled():
        return
    try:
        found = importlib.metadata.version("raftos")
    except importlib.metadata.PackageNotFoundError as error:
        raise ConfigError(
            f"a NameNode needs raftos {RAFTOS}, whose own requirements cannot be installed; {HOW}"
        ) from error
    if found != RAFTOS:
        raise ConfigError(f"a NameNode needs raftos {RAFTOS}, not {found}; {HOW}")


def _is_bundled() -> bool:
    """True if the wheel of this package brought raftos: its build takes no other version."""
    try:
        ours = importlib.metadata.files("paxosblock") or ()
    except importlib.metadata.PackageNotFoundError:
        return False
    return any(file.as_posix() == "raftos/state.py" for file in ours)
