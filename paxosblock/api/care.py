"""Calls of people who look after blocks: how many replicas each should have, and on which nodes."""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from paxosblock.api.methods import Method, Once
from paxosblock.api.namenode import FileStatus
from paxosblock.protocol.types import BlockId

REPLICATION_MAX: Final = 32
"""Replicas that a file may ask for."""
BALANCE_KEPT_S: Final = 10.0
"""Balancing ends once whoever asked for it has been silent this long."""


class SetReplication(msgspec.Struct, frozen=True):
    """Set the number of replicas of each block of a file, of the present ones and those to come."""

    path: str
    replication: int
    once: Once | None = None


class AdminState(enum.Enum):
    """The use that an operator lets the cluster make of a DataNode."""

    IN_SERVICE = "in_service"
    DECOMMISSIONED = "decommissioned"
    """Asked to leave for good: its replicas do not count, but serve as sources of copies."""
    IN_MAINTENANCE = "in_maintenance"
    """Away for a while: its replicas count, as long as min_replication others are there."""


class SetAdminState(msgspec.Struct, frozen=True):
    """Let a DataNode, named by its id or host:port, leave or come back.

    `for_s` is how long a maintenance lasts in seconds; 0 for the other states.
    """

    node: str
    admin: AdminState
    for_s: float = 0
    once: Once | None = None


class AdminStatus(msgspec.Struct, frozen=True):
    """The state of one DataNode; `until_ms` is when a maintenance is over, since the epoch."""

    node: str
    address: str
    admin: AdminState
    until_ms: int = 0


class Balancing(enum.Enum):
    """The standing of a balancer's work."""

    MOVING = "moving"
    """Replicas are moved, or about to be."""
    HELD_UP = "held up"
    """Nothing is moved for now: it goes on by itself."""
    BALANCED = "balanced"
    """Every storage's use is near enough to the mean."""
    STUCK = "stuck"
    """Some are not, and no block may be moved that would change it."""


class Balance(msgspec.Struct, frozen=True):
    """Move replicas until every storage's use, a share of its room, is within `threshold` of the
    mean; and tell how it stands.

    It goes on while the same `session` asks again, and ends `BALANCE_KEPT_S` after it last asked,
    or with `stop`; moves that are under way then are finished. `bandwidth_bytes_per_s` is the most
    that is moved in the whole cluster, None: as the NameNode's setting says.
    """

    session: str
    threshold: float
    bandwidth_bytes_per_s: int | None = None
    stop: bool = False


class BalanceStatus(msgspec.Struct, frozen=True):
    """The moves since a NameNode began with them, in its `run`: after a fail-over another one
    begins anew.

    `mean` is the mean use of the `storages`, `furthest` how far one is away from it at most, both
    as they will be when the moves that are `under_way` are done; at least `left_bytes` still have
    to be moved after that. `failed` counts moves that came to nothing, `why` says what holds it up.
    """

    run: str
    standing: Balancing
    moved_blocks: int
    moved_bytes: int
    under_way: int
    failed: int
    storages: int
    mean: float
    furthest: float
    left_bytes: int
    why: str = ""


class LeavingRequest(msgspec.Struct, frozen=True):
    """Ask how far the DataNodes are that have been asked to leave."""


class HoldUp(enum.Enum):
    """The reason why a block still needs the replica on a DataNode that is to leave."""

    TOO_FEW = "too few replicas elsewhere"
    """Copies are under way, or waited for."""
    NO_ROOM = "too few other DataNodes"
    """No copy can be made: there are fewer DataNodes than replicas asked for."""
    OPEN = "is being written"
    MISSING = "no replica can be read"


class HeldUp(msgspec.Struct, frozen=True):
    """A block that keeps a DataNode from leaving; `path` is "" for one without a file.

    `elsewhere` replicas of the `wanted` are where they may stay.
    """

    block: BlockId
    path: str
    why: HoldUp
    elsewhere: int
    wanted: int


class LeavingNode(msgspec.Struct, frozen=True):
    """A DataNode that is to leave.

    Of the `blocks` with a replica there, `waiting` hold it up; `open_blocks` of them are being
    written. `held_up` are some of them. `others` are the DataNodes in service and live. Until it is
    `known`, nobody has looked since it was asked to leave.
    """

    status: AdminStatus
    known: bool
    blocks: int = 0
    waiting: int = 0
    open_blocks: int = 0
    others: int = 0
    held_up: tuple[HeldUp, ...] = ()

    @property
    def done(self) -> bool:
        """True if nothing is lost when it goes now."""
        return self.known and not self.waiting


class Leaving(msgspec.Struct, frozen=True):
    """All DataNodes that are to leave."""

    nodes: tuple[LeavingNode, ...]


SET_REPLICATION = Method("set_replication", SetReplication, FileStatus)
SET_ADMIN_STATE = Method("set_admin_state", SetAdminState, AdminStatus)
BALANCE = Method("balance", Balance, BalanceStatus)
LEAVING = Method("leaving", LeavingRequest, Leaving)
