"""The state of a storage, by what was heard of its DataNode and what an operator said."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from paxosblock.api.care import AdminState
from paxosblock.api.reports import ALL_BLOCKS, Register, StorageReport
from paxosblock.namenode.blocks.datanodes import DataNodes
from paxosblock.namenode.blocks.replication.needs import StoragePlace, StorageState, StorageView
from paxosblock.namenode.blocks.replication.storage_states import Patience, view_storages
from paxosblock.namenode.catalog.records import NodeRecord
from paxosblock.protocol.types import StorageId

DEAD_AFTER_S = 15.0
PATIENCE = Patience(replicate_after_s=30.0, dead_after_s=DEAD_AFTER_S, since_s=0.0)
S1 = StorageId("s1")


def seen(
    silence_s: float,
    *,
    failed: str = "",
    reported: bool = True,
    admin: AdminState = AdminState.IN_SERVICE,
) -> StoragePlace:
    """Return where the storage of a DataNode stands that was last heard of so long ago."""
    nodes = DataNodes(3.0, DEAD_AFTER_S)
    nodes.register(registration(S1, failed), 1000.0)
    if reported:
        nodes.reported(S1).add(ALL_BLOCKS)
    if admin is not AdminState.IN_SERVICE:
        nodes.admin.take([("dn-s1", NodeRecord(admin, "h:1", (S1,)))], 1000.0, 0)
    return view_storages(nodes, 1000.0 + silence_s, PATIENCE).place(S1)


def registration(storage: StorageId, failed: str = "", rack: str = "/a") -> Register:
    room = StorageReport(storage, 100, 100, 0, failed)
    return Register(f"dn-{storage}", "h:1", "run-1", (room,), rack=rack)


LEAVING, AWAY = AdminState.DECOMMISSIONED, AdminState.IN_MAINTENANCE


@pytest.mark.parametrize(
    ("place", "state", "live"),
    [
        (seen(0), StorageState.IN_SERVICE, True),
        (seen(14.9), StorageState.IN_SERVICE, True),
        (seen(15), StorageState.AWAY, False),
        (seen(44.9), StorageState.AWAY, False),
        (seen(45), StorageState.LOST, False),
        (seen(0, failed="no disk"), StorageState.LOST, False),
        (seen(0, reported=False), StorageState.AWAY, True),
        (seen(0, admin=LEAVING), StorageState.LEAVING, True),
        (seen(20, admin=LEAVING), StorageState.LEAVING, False),
        (seen(45, admin=LEAVING), StorageState.LOST, False),
        (seen(0, admin=AWAY), StorageState.MAINTENANCE, True),
        (seen(9999, admin=AWAY), StorageState.MAINTENANCE, False),
        (seen(0, admin=AWAY, failed="no disk"), StorageState.LOST, False),
    ],
)
def test_where_a_storage_stands(place: StoragePlace, state: StorageState, live: bool) -> None:
    assert (place.state, place.live, place.node) == (state, live, "dn-s1")


def racks_of(nodes: DataNodes, now_s: float = 1000.0) -> int:
    return view_storages(nodes, now_s, PATIENCE).racks


def registered(storages: Iterable[tuple[str, str]]) -> DataNodes:
    """DataNodes with these storages and racks."""
    nodes = DataNodes(3.0, DEAD_AFTER_S)
    for storage, rack in storages:
        nodes.register(registration(StorageId(storage), rack=rack), 1000.0)
    return nodes


def test_a_rack_counts_while_a_node_of_it_is_in_service() -> None:
    nodes = registered([("s1", "/a"), ("s2", "/b"), ("s3", "/b")])
    assert racks_of(nodes) == 2
    assert racks_of(nodes, 2000.0) == 0
    nodes.admin.take([("dn-s1", NodeRecord(LEAVING, "h:1", (S1,)))], 1000.0, 0)
    assert racks_of(nodes) == 1


def test_who_was_never_heard_of_is_waited_for_as_one_that_died_when_we_started() -> None:
    def stranger(now_s: float) -> StorageState:
        view: StorageView = view_storages(DataNodes(3.0, DEAD_AFTER_S), now_s, PATIENCE)
        return view.place(StorageId("nobody")).state

    assert stranger(44.9) is StorageState.AWAY
    assert stranger(45.0) is StorageState.LOST


def test_a_node_in_maintenance_counts_before_this_namenode_has_heard_of_it() -> None:
    nodes = DataNodes(3.0, DEAD_AFTER_S)
    nodes.admin.take([("dn-s1", NodeRecord(AWAY, "h:1", (S1,)))], 0.0, 0)
    place = view_storages(nodes, 1e6, PATIENCE).place(S1)
    assert (place.state, place.node, place.live) == (StorageState.MAINTENANCE, "dn-s1", False)
