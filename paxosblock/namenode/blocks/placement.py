"""The placement of a new block: a pure choice among storages as the DataNodes last reported them.

Each member is on a different node; live nodes come before stale ones, and nodes that did not fail
the writer before nodes that did. Among these, as in HDFS, the first replica goes to the writer's
own machine, the second to another rack than the first, the third to the rack of the second: so a
block is in two racks whenever there are two, and its bytes cross between them once. Nodes that are
still equal are chosen by load, idle before busy ones; by room, if one has twice as much as another;
and by a hash of the block's seed, so that the same situation always gives the same placement while
different blocks spread. A DataNode's free bytes do not include its own reserve.

HDFS lets a write begin on fewer nodes than asked for, and so do we: `min_replication` members are
enough. The file keeps the replication that was asked for, so that the monitor knows later how many
replicas are missing.
"""

from __future__ import annotations

import enum
import zlib
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

import msgspec

from paxosblock.api.care import AdminState
from paxosblock.base.rack import DEFAULT_RACK
from paxosblock.errors import NoSpaceError
from paxosblock.protocol.types import StorageId

NODES_NAMED_MAX: Final = 3
"""DataNodes named in the reason why a block has no more members."""

_LEAVING: Final = {
    AdminState.DECOMMISSIONED: "decommissioned",
    AdminState.IN_MAINTENANCE: "in maintenance",
}


class Blame(enum.IntEnum):
    """The weight of a DataNode's failure when the writer that saw it needs another block."""

    NONE = 0
    """It did not fail, or has registered again since, so that another process failed."""
    PAST = 1
    """It has been heard from since: chosen if a block would have fewer members without it."""
    FRESH = 2
    """Nothing shows that it works again, though it may still count as live: not chosen."""


class Candidate(msgspec.Struct, frozen=True, gc=False):
    """One storage as placement sees it.

    `load` counts the open blocks on its node; `pending_bytes` is room promised to blocks that were
    placed here since the DataNode last reported its free bytes; `blame` is that of its node.
    """

    storage: StorageId
    node: str
    free_bytes: int
    load: int = 0
    pending_bytes: int = 0
    live: bool = True
    stale: bool = False
    failed: bool = False
    blame: Blame = Blame.NONE
    rack: str = DEFAULT_RACK
    host: str = ""
    admin: AdminState = AdminState.IN_SERVICE

    @property
    def drawbacks(self) -> tuple[bool, Blame]:
        """The reasons against it, which weigh more than its place; less is better."""
        return self.stale, self.blame

    @property
    def room_bytes(self) -> int:
        """Return the bytes left for another block."""
        return self.free_bytes - self.pending_bytes


@dataclass(frozen=True, slots=True)
class Wish:
    """The block to be placed: the number of its members, and its writer.

    `writer_host` is the machine of its writer, "" if that is near no DataNode.
    """

    replication: int
    min_replication: int
    block_size: int
    seed: int = 0
    writer_host: str = ""

    @property
    def needed(self) -> int:
        """The fewest members that will do."""
        return max(1, min(self.min_replication, self.replication))


def place(
    wish: Wish, candidates: tuple[Candidate, ...], kept: tuple[Candidate, ...] = ()
) -> tuple[StorageId, ...]:
    """Choose storages on different nodes, the best first.

    Args:
        kept: members that a block to be copied keeps: `replication` more are chosen, none of them
            on a node of these, and in another rack if these share one.

    Returns:
        `replication` of them, or fewer but at least `needed`.

    Raises:
        NoSpaceError: fewer can be used; the message says what was wrong with the others.
    """
    taken = {member.node for member in kept}
    usable = [c for c in candidates if not _objection(wish, c, taken)]
    usable.sort(key=lambda c: _rank(wish, c))
    best: dict[str, Candidate] = {}
    for candidate in usable:
        best.setdefault(candidate.node, candidate)
    left, chosen = list(best.values()), list[Candidate]()
    while left and len(chosen) < wish.replication:
        following = _next(wish, left, kept, chosen)
        left.remove(following)
        chosen.append(following)
    if len(chosen) < wish.needed:
        reasons = (_objection(wish, c, taken) for c in candidates)
        raise _too_few(wish, len(chosen), Counter(filter(None, reasons)))
    return tuple(candidate.storage for candidate in chosen)


def is_placed_fresh(wish: Wish, candidates: tuple[Candidate, ...]) -> bool:
    """True if a block could be placed as wished now, without a DataNode that is even stale.

    That is when a block with fewer members is better left for another one (HDFS-6867).
    """
    try:
        place(wish, tuple(candidate for candidate in candidates if not candidate.stale))
    except NoSpaceError:
        return False
    return True


def shortfall(wish: Wish, candidates: tuple[Candidate, ...], chosen: tuple[StorageId, ...]) -> str:
    """Return the reason why a block gets fewer members than were asked for; "" if it gets all."""
    if len(chosen) >= wish.replication:
        return ""
    used = {candidate.node for candidate in candidates if candidate.storage in chosen}
    reasons: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for candidate in candidates:
        if candidate.node not in used:
            reasons[candidate.node][_objection(wish, candidate, used)] = None
    if not reasons:
        return "too few DataNodes"
    named = [f"{node} ({', '.join(why)})" for node, why in reasons.items()]
    more = f" and {len(named) - NODES_NAMED_MAX} more" if len(named) > NODES_NAMED_MAX else ""
    return f"DataNodes not used: {', '.join(named[:NODES_NAMED_MAX])}{more}"


def _next(
    wish: Wish, left: list[Candidate], kept: tuple[Candidate, ...], chosen: list[Candidate]
) -> Candidate:
    """Choose the next member among the best candidates left, preferring one in the right place."""
    members = (*kept, *chosen)
    racks = {member.rack for member in members}
    equals = takewhile(lambda each: each.drawbacks == left[0].drawbacks, left)
    if not members:
        there = (each for each in equals if each.host == wish.writer_host != "")
    elif len(racks) == 1:
        there = (each for each in equals if each.rack not in racks)
    elif len(members) == 2 and chosen:
        there = (each for each in equals if each.rack == chosen[-1].rack)
    else:
        return left[0]
    return next(there, left[0])


def _objection(wish: Wish, candidate: Candidate, taken: set[str]) -> str:
    if candidate.node in taken:
        return "on the node of another replica"
    if candidate.admin is not AdminState.IN_SERVICE:
        return _LEAVING[candidate.admin]
    if not candidate.live:
        return "dead"
    if candidate.failed:
        return "failed"
    if candidate.blame is Blame.FRESH:
        return "failed this writer"
    if candidate.room_bytes < wish.block_size:
        return "full"
    return ""


def _rank(wish: Wish, candidate: Candidate) -> tuple[bool, Blame, int, int, int, StorageId]:
    tie = zlib.crc32(f"{wish.seed}/{candidate.storage}".encode())
    lack = -(candidate.room_bytes // max(1, wish.block_size)).bit_length()
    return candidate.stale, candidate.blame, candidate.load, lack, tie, candidate.storage


def _too_few(wish: Wish, found: int, reasons: Counter[str]) -> NoSpaceError:
    others = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
    known = f"storages not used: {others}" if others else "no other storage is known"
    return NoSpaceError(
        f"no place for a block of {wish.block_size} bytes: found {found} of "
        f"{wish.replication} replicas, {wish.needed} needed; {known}",
        found=found,
        needed=wish.needed,
    )
