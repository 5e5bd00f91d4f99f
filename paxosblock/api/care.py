"""Calls of people who look after blocks: how many replicas each should have, and on which nodes."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from paxosblock.api.methods import Method, Once
from paxosblock.api.namenode import FileStatus

REPLICATION_MAX: Final = 32
"""Replicas that a file may ask for."""


@dataclass(frozen=True, slots=True)
class SetReplication:
    """Ask for so many replicas of each block of a file, of those it has and those to come."""

    path: str
    replication: int
    once: Once | None = None


class AdminState(enum.Enum):
    """The use that an operator lets the cluster make of a DataNode."""

    IN_SERVICE = "in_service"
    DECOMMISSIONED = "decommissioned"
    """Asked to leave for good: its replicas do not count, but are copied from."""
    IN_MAINTENANCE = "in_maintenance"
    """Away for a while: its replicas count, as long as min_replication others are there."""


@dataclass(frozen=True, slots=True)
class SetAdminState:
    """Let a DataNode, named by its id or host:port, leave or come back.

    `for_s` is how long a maintenance lasts in seconds; 0 for the other states.
    """

    node: str
    admin: AdminState
    for_s: float = 0
    once: Once | None = None


@dataclass(frozen=True, slots=True)
class AdminStatus:
    """The state of one DataNode; `until_ms` is when a maintenance is over, since the epoch."""

    node: str
    address: str
    admin: AdminState
    until_ms: int = 0


SET_REPLICATION = Method("set_replication", SetReplication, FileStatus)
SET_ADMIN_STATE = Method("set_admin_state", SetAdminState, AdminStatus)
