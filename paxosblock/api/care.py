"""Calls by which operators set how many replicas blocks have, and which DataNodes may hold them."""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from paxosblock.api.methods import Method, Once
from paxosblock.api.namenode import FileStatus
from paxosblock.base.wording import counted
from paxosblock.protocol.types import BlockId

REPLICATION_MAX: Final = 32
"""The most replicas that a file may ask for."""
BALANCE_KEPT_S: Final = 10.0
"""Balancing ends once the caller that asked for it has been silent this long."""


class SetReplication(msgspec.Struct, frozen=True):
    """Set the number of replicas of each block of a file, present and future."""

    path: str
    replication: int
    once: Once | None = None


class AdminState(enum.Enum):
    """The use that an operator lets the cluster make of a DataNode."""

    IN_SERVICE = "in_service"
    DECOMMISSIONED = "decommissioned"
    """Asked to leave for good: its replicas do not count, but may be copied from."""
    IN_MAINTENANCE = "in_maintenance"
    """Away for a while: its replicas count as long as a block has min_replication others."""


_UNDER_WAY: Final = {
    AdminState.DECOMMISSIONED: "decommissioning",
    AdminState.IN_MAINTENANCE: "entering maintenance",
}
_DONE: Final = {
    AdminState.DECOMMISSIONED: "decommissioned",
    AdminState.IN_MAINTENANCE: "in maintenance",
}


class SetAdminState(msgspec.Struct, frozen=True):
    """Let a DataNode, named by its id or host:port, leave or come back.

    `for_s` is the length of a maintenance in seconds; 0 for the other states.
    """

    node: str
    admin: AdminState
    for_s: float = 0
    once: Once | None = None


class AdminStatus(msgspec.Struct, frozen=True):
    """The state of one DataNode; a maintenance ends at `until_ms`, counted since the epoch."""

    node: str
    address: str
    admin: AdminState
    until_ms: int = 0


class Balancing(enum.Enum):
    """The phase of a balancer's work."""

    MOVING = "moving"
    """Replicas are being moved, or will be soon."""
    HELD_UP = "held up"
    """Nothing is moved for now; moving goes on by itself."""
    BALANCED = "balanced"
    """Every storage's use is near enough to the mean."""
    STUCK = "stuck"
    """Some storages are not, and no block that may be moved would change that."""


class Balance(msgspec.Struct, frozen=True):
    """Move replicas until every storage's use, a share of its room, is within `threshold` of the
    mean; and report the progress.

    Balancing goes on while the same `balancer` asks again. It ends `BALANCE_KEPT_S` after the last
    request, or with `stop`; moves that are under way then are finished. `bandwidth_bytes_per_s`
    limits the moves of the whole cluster; None leaves the limit to the NameNode's setting.
    """

    balancer: str
    threshold: float
    bandwidth_bytes_per_s: int | None = None
    stop: bool = False


class BalanceStatus(msgspec.Struct, frozen=True):
    """The moves of a NameNode's `run`; after a fail-over the next NameNode begins another run.

    `mean` is the mean use of the `storages`, `furthest` the largest distance from it, both as they
    will be once the moves that are `under_way` are done; at least `left_bytes` still have to be
    moved after that. `failed` counts moves that came to nothing; `why` says what holds the run up.
    """

    run: str
    phase: Balancing
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
    """Ask for the progress of the DataNodes that have been asked to leave."""


class HoldUp(enum.Enum):
    """The reason why a block still needs its replica on a leaving DataNode."""

    TOO_FEW = "too few replicas elsewhere"
    """Copies are under way, or still to be made."""
    NO_ROOM = "too few other DataNodes"
    """No copy can be made: there are fewer DataNodes than replicas asked for."""
    OPEN = "is being written"
    MISSING = "no replica can be read"


class HeldUp(msgspec.Struct, frozen=True):
    """A block that keeps a DataNode from leaving; `path` is "" if the block has no file.

    It has `elsewhere` of its `wanted` replicas on DataNodes that stay.
    """

    block: BlockId
    path: str
    why: HoldUp
    elsewhere: int
    wanted: int


class LeavingNode(msgspec.Struct, frozen=True):
    """A DataNode that is to leave.

    It has a replica of `blocks`: `waiting` of them hold it up and `open_blocks` are being written.
    `held_up` lists some of those that wait. `others` counts the live DataNodes in service. Nothing
    is `known` until a first look after the node was asked to leave.
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
        """True if no block needs this DataNode any more."""
        return self.known and not self.waiting

    @property
    def progress(self) -> str:
        """Return how far it is, in words: what it was asked to become, it is when it is `done`."""
        words = _DONE if self.done else _UNDER_WAY
        return words[self.status.admin]

    def reason(self, block: HeldUp) -> str:
        """Return the reason why one of `held_up` still needs this DataNode."""
        match block.why:
            case HoldUp.NO_ROOM:
                others = counted(self.others, "other DataNode")
                return f"only {others} live for replication {block.wanted}"
            case HoldUp.TOO_FEW:
                return f"{block.elsewhere} of {block.wanted} replicas are elsewhere"
            case HoldUp.OPEN | HoldUp.MISSING:
                return str(block.why.value)


class Leaving(msgspec.Struct, frozen=True):
    """All DataNodes that are to leave."""

    nodes: tuple[LeavingNode, ...]


SET_REPLICATION = Method("set_replication", SetReplication, FileStatus)
SET_ADMIN_STATE = Method("set_admin_state", SetAdminState, AdminStatus)
BALANCE = Method("balance", Balance, BalanceStatus)
LEAVING = Method("leaving", LeavingRequest, Leaving)
