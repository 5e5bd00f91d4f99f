"""The standing of a storage, by what was heard of its DataNode and what an operator said."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from paxosblock.api.care import AdminState
from paxosblock.api.reports import ALL_BLOCKS, Register, StorageReport
from paxosblock.namenode.blocks.datanodes import DataNodes
from paxosblock.namenode.blocks.replication.needs import Standing, StoragePlace, StorageView
from paxosblock.namenode.blocks.replication.standing import Patience, look
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
    return look(nodes, 1000.0 + silence_s, PATIENCE).place(S1)


def registration(storage: StorageId, failed: str = "", rack: str = "/a") -> Register:
    room = StorageReport(storage, 100, 100, 0, failed)
    return Register(f"dn-{storage}", "h:1", "run-1", (room,), rack=rack)


LEAVING, AWAY = AdminState.DECOMMISSIONED, AdminState.IN_MAINTENANCE


@pytest.mark.parametrize(
    ("place", "standing", "live"),
    [
        (seen(0), Standing.IN_SERVICE, True),
        (seen(14.9), Standing.IN_SERVICE, True),
        (seen(15), Standing.AWAY, False),
        (seen(44.9), Standing.AWAY, False),
        (seen(45), Standing.LOST, False),
        (seen(0, failed="no disk"), Standing.LOST, False),
        (seen(0, reported=False), Standing.AWAY, True),
        (seen(0, admin=LEAVING), Standing.LEAVING, True),
        (seen(20, admin=LEAVING), Standing.LEAVING, False),
        (seen(45, admin=LEAVING), Standing.LOST, False),
        (seen(0, admin=AWAY), Standing.MAINTENANCE, True),
        (seen(9999, admin=AWAY), Standing.MAINTENANCE, False),
        (seen(0, admin=AWAY, failed="no disk"), Standing.LOST, False),
    ],
)
def test_where_a_storage_stands(place: StoragePlace, standing: Standing, live: bool) -> None:
    assert (place.standing, place.live, place.node) == (standing, live, "dn-s1")


def racks_of(nodes: DataNodes, now_s: float = 1000.0) -> int:
    return look(nodes, now_s, PATIENCE).racks


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
    def stranger(now_s: float) -> Standing:
        view: StorageView = look(DataNodes(3.0, DEAD_AFTER_S), now_s, PATIENCE)
        return view.place(StorageId("nobody")).standing

    assert stranger(44.9) is Standing.AWAY
    assert stranger(45.0) is Standing.LOST


def test_a_node_in_maintenance_counts_before_this_namenode_has_heard_of_it() -> None:
    nodes = DataNodes(3.0, DEAD_AFTER_S)
    nodes.admin.take([("dn-s1", NodeRecord(AWAY, "h:1", (S1,)))], 0.0, 0)
    place = look(nodes, 1e6, PATIENCE).place(S1)
    assert (place.standing, place.node, place.live) == (Standing.MAINTENANCE, "dn-s1", False)
