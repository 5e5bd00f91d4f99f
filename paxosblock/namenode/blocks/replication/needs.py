"""The needs of a finalized block: a pure function of its members, its holders and their places.

Everything that cares for replicas (copying, removing, reporting) uses it, so that none undoes the
work of another.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from paxosblock.protocol.finalize import BlockRecord
from paxosblock.protocol.types import StorageId


class StorageState(enum.Enum):
    """The worth of a storage to the blocks that it holds."""

    IN_SERVICE = "in_service"
    """Live, and it has reported all that it holds."""
    AWAY = "away"
    """It may be back, or report what it holds, in a moment: counted, and not read from."""
    LEAVING = "leaving"
    """Asked to leave (decommission): read from, and not counted."""
    MAINTENANCE = "maintenance"
    """It will be back: counted, live or not."""
    LOST = "lost"
    """Its volume failed, or its DataNode has been dead for longer than `replicate_after`."""


@dataclass(frozen=True, slots=True)
class StoragePlace:
    """The place and state of a storage; it can be read from now if it is `live`."""

    node: str
    state: StorageState = StorageState.IN_SERVICE
    live: bool = True
    rack: str = ""


NOWHERE = StoragePlace("", StorageState.LOST, live=False)


@dataclass(frozen=True, slots=True)
class StorageView:
    """All storages at one moment; `unknown` stands for those never heard from.

    `racks` is the number of racks with a DataNode in service. At least `min_live` replicas should
    be on DataNodes that are not in maintenance. `all_told` is False while one that registered,
    and is not lost, has not told all that it holds.
    """

    places: Mapping[StorageId, StoragePlace]
    racks: int = 1
    unknown: StoragePlace = NOWHERE
    min_live: int = 1
    all_told: bool = True

    def place(self, storage: StorageId) -> StoragePlace:
        """Return the place of a storage."""
        return self.places.get(storage, self.unknown)


@dataclass(frozen=True, slots=True)
class Need:
    """The needs of one block. Storages are in the order of the record's members.

    `wanted` is the number of replicas that are asked for, 0 if that no longer matters.
    """

    wanted: int
    counted: int = 0
    """Replicas that count, whether they can be read now or not."""
    lacks: int = 0
    """Additional replicas that should be made."""
    surplus: int = 0
    """Replicas that count beyond those wanted, even without those in maintenance."""
    sound: tuple[StorageId, ...] = ()
    """Holders that can be read now: the sources of a copy."""
    lagging: tuple[StorageId, ...] = ()
    """Members in service that have not reported the decided version: they are told again (P5)."""
    damaged: tuple[StorageId, ...] = ()
    """Members whose replica is known to be damaged; they are told to replace it (D9)."""
    gone: tuple[StorageId, ...] = ()
    """Members that do not count: lost, or asked to leave. They leave once others are enough."""
    misplaced: tuple[StorageId, ...] = ()
    """Members that are together on a node, or all in one rack although there are others: one of
    them may give way to a storage in another place."""
    missing: bool = False
    """No readable replica is left, nor one that may come back in a moment."""
    elsewhere: tuple[StorageId, ...] = ()
    """If no replica is known that fits the record: storages that have others, or may have one."""

    @property
    def in_order(self) -> bool:
        """True if the block needs nothing."""
        return not (
            self.lacks
            or self.surplus
            or self.lagging
            or self.damaged
            or self.gone
            or self.misplaced
            or self.missing
        )

    @property
    def may_mend(self) -> bool:
        """True if the block lacks nothing once all members in service have the decided version."""
        return self.lacks <= len(self.lagging) + len(self.damaged)


@dataclass(slots=True)
class _Sorted:
    """The members of a block by their worth; `in_maintenance` counts those of `counted`."""

    counted: list[StorageId] = field(default_factory=list)
    in_maintenance: int = 0
    sound: list[StorageId] = field(default_factory=list)
    lagging: list[StorageId] = field(default_factory=list)
    gone: list[StorageId] = field(default_factory=list)


def assess(
    record: BlockRecord,
    wanted: int,
    holders: Collection[StorageId],
    view: StorageView,
    damaged: Collection[StorageId] = (),
) -> Need:
    """Return what a finalized block needs.

    Args:
        wanted: replicas that are asked for; 0 if its file is gone, as the block will be, too.
        holders: members that reported the decided version, or one that counts for it meanwhile.
        damaged: members whose replica is known to be damaged, and was not replaced since.
    """
    assert record.finalized, "only of a finalized block is it known what is whole"
    seen = _Sorted()
    for member in record.members:
        _sort(seen, member, view.place(member), member in holders, member in damaged)
    found = len(seen.sound) > 0 or any(may_be_back(view.place(each)) for each in seen.counted)
    return Need(
        wanted=wanted,
        counted=len(seen.counted),
        lacks=_lacks(seen, wanted, view),
        surplus=max(0, len(seen.counted) - seen.in_maintenance - wanted),
        sound=tuple(seen.sound),
        lagging=tuple(seen.lagging),
        damaged=tuple(member for member in record.members if member in damaged),
        gone=tuple(seen.gone),
        misplaced=_misplaced(tuple(seen.counted), wanted, view),
        missing=wanted > 0 and record.length > 0 and not found,
    )


def of_restored(need: Need, may_have: tuple[StorageId, ...]) -> Need:
    """Return the need of a finalized block when it is not learned yet what became of it since a
    backup (K14): nothing is copied or taken away. Without a sound replica it is unclear as long as
    there are storages that `may_have` one, and only then missing."""
    return Need(
        need.wanted,
        need.counted,
        sound=need.sound,
        damaged=need.damaged,
        missing=need.missing and not may_have,
        elsewhere=() if need.sound else may_have,
    )


def is_well(
    record: BlockRecord, wanted: int, holders: Collection[StorageId], view: StorageView
) -> bool:
    """True only if `assess` would find a block without damage in order; most blocks are.

    This takes a third of the time of `assess`, and all blocks of a cluster are looked at again and
    again.
    """
    if not len(record.members) == len(holders) == wanted:
        return False
    nodes, racks = set(), set()
    for member in record.members:
        place = view.places.get(member)
        if place is None:
            return False
        if place.state is not StorageState.IN_SERVICE and place.state is not StorageState.AWAY:
            return False
        nodes.add(place.node)
        racks.add(place.rack)
    return len(nodes) == wanted and len(racks) >= min(2, wanted, view.racks)


def _sort(
    seen: _Sorted, member: StorageId, place: StoragePlace, holds: bool, damaged: bool
) -> None:
    if place.state is StorageState.LOST or place.state is StorageState.LEAVING:
        seen.gone.append(member)
    elif not damaged and (holds or may_be_back(place)):
        seen.counted.append(member)
        seen.in_maintenance += place.state is StorageState.MAINTENANCE
    elif not damaged:
        seen.lagging.append(member)
    if holds and not damaged and place.live and place.state is not StorageState.LOST:
        seen.sound.append(member)


def _lacks(seen: _Sorted, wanted: int, view: StorageView) -> int:
    lacks = max(0, wanted - len(seen.counted))
    if not seen.in_maintenance:
        return lacks
    staying = len(seen.counted) - seen.in_maintenance
    return max(lacks, min(view.min_live, wanted) - staying)


def may_be_back(place: StoragePlace) -> bool:
    """True for a storage that may hold what it did not report to this NameNode."""
    return place.state is StorageState.AWAY or place.state is StorageState.MAINTENANCE


def _misplaced(
    counted: tuple[StorageId, ...], wanted: int, view: StorageView
) -> tuple[StorageId, ...]:
    """Return the members that share a node; or else all of them, if they share one rack."""
    places = [view.place(member) for member in counted]
    nodes = [place.node for place in places]
    crowded = tuple(
        member
        for member, place in zip(counted, places, strict=True)
        if place.node and nodes.count(place.node) > 1
    )
    if crowded or min(wanted, len(counted), view.racks) < 2:
        return crowded
    return counted if len({place.rack for place in places}) == 1 else ()
