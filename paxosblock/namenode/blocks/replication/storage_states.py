"""The state of every storage at a moment, from the words of DataNodes and operators.

Time is an argument: seconds on a clock that does not go back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from paxosblock.api.care import AdminState
from paxosblock.namenode.blocks.datanodes import DataNodeDescriptor, DataNodes
from paxosblock.namenode.blocks.replication.needs import (
    NOWHERE,
    StoragePlace,
    StorageState,
    StorageView,
)
from paxosblock.protocol.types import StorageId

_ASKED: Final = {
    AdminState.IN_SERVICE: StorageState.IN_SERVICE,
    AdminState.DECOMMISSIONED: StorageState.LEAVING,
    AdminState.IN_MAINTENANCE: StorageState.MAINTENANCE,
}


@dataclass(frozen=True, slots=True)
class Patience:
    """The seconds that a dead DataNode has to come back before its replicas are copied.

    A DataNode that was never heard from may have been dead since before `since_s`.
    """

    replicate_after_s: float
    dead_after_s: float
    since_s: float


def view_storages(
    datanodes: DataNodes, now_s: float, patience: Patience, min_live: int = 1
) -> StorageView:
    """Return the state of all storages."""
    places: dict[StorageId, StoragePlace] = {}
    racks, all_told = set(), True
    for node in datanodes:
        dead_s = datanodes.dead_for_s(node, now_s)
        asked = _ASKED[datanodes.admin.state(node.node, now_s)]
        for storage, report in node.storages.items():
            if report.failed:
                places[storage] = StoragePlace(
                    node.node, StorageState.LOST, False, node.location.rack
                )
                continue
            complete = datanodes.has_reported(storage)
            place = _place(node, asked, dead_s, patience, complete=complete)
            places[storage] = place
            all_told &= complete or place.state is StorageState.LOST
            if place.live and asked is StorageState.IN_SERVICE:
                racks.add(place.rack)
    for name, record in datanodes.admin.records(now_s):
        for storage in record.storages:
            places.setdefault(storage, StoragePlace(name, _ASKED[record.admin], live=False))
    begun_s = now_s - patience.since_s
    known = begun_s >= patience.dead_after_s + patience.replicate_after_s
    unknown = NOWHERE if known else StoragePlace("", StorageState.AWAY, live=False)
    return StorageView(places, len(racks), unknown, min_live, all_told)


def _place(
    node: DataNodeDescriptor,
    asked: StorageState,
    dead_s: float,
    patience: Patience,
    *,
    complete: bool,
) -> StoragePlace:
    state, live = asked, dead_s < 0
    if asked is not StorageState.MAINTENANCE:
        if dead_s >= patience.replicate_after_s:
            state = StorageState.LOST
        elif asked is StorageState.IN_SERVICE and not (live and complete):
            state = StorageState.AWAY
    return StoragePlace(node.node, state, live, node.location.rack)
