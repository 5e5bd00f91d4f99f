"""The line of health names the worst trouble, and says what it means for the data."""

from __future__ import annotations

from typing import Any

import pytest

from paxosblock.api.care import AdminState, AdminStatus, LeavingNode
from paxosblock.api.status import NameNodeStatus, ReplicationStatus, SafeModeStatus
from paxosblock.page.health import Health, HealthLevel, health_of
from tests.page.answers import cluster, datanode, namenode

SAFE = SafeModeStatus(on=True, reported=3, blocks=9, left_s=None)
BY_HAND = SafeModeStatus(on=True, by_hand=True)
FULL = namenode(trouble="its disk is full")
ALL: dict[HealthLevel, dict[str, Any]] = {
    HealthLevel.MISSING: {"replication": ReplicationStatus(missing=1)},
    HealthLevel.DAMAGED: {"replication": ReplicationStatus(corrupt=2)},
    HealthLevel.WAITING: {"replication": ReplicationStatus(waiting=3, under_way=2)},
    HealthLevel.SAFE_MODE: {"safe_mode": BY_HAND},
    HealthLevel.HEALTHY: {},
}


def health(
    *nodes: Any, namenodes: dict[str, NameNodeStatus | None] | None = None, **others: Any
) -> Health:
    """That of a cluster of one DataNode that lives, and of these."""
    standings = {"nn:1": namenode()} if namenodes is None else namenodes
    return health_of(cluster(datanode("a"), *nodes, **others), standings, {})


@pytest.mark.parametrize("level", ALL, ids=lambda level: level.name)
def test_each_level_has_its_cause(level: HealthLevel) -> None:
    assert health(**ALL[level]).level is level


def test_the_worst_comes_first_and_the_others_follow_in_order() -> None:
    found = health(
        datanode("b", "dead"),
        namenodes={"nn:1": FULL, "nn:2": None},
        replication=ReplicationStatus(waiting=3, missing=1, corrupt=2),
        safe_mode=BY_HAND,
    )
    assert [found.level, *(each.level for each in found.others)] == [
        HealthLevel.MISSING,
        HealthLevel.DAMAGED,
        HealthLevel.NO_CHANGES,
        HealthLevel.DEAD_NODE,
        HealthLevel.DEAD_NODE,
        HealthLevel.WAITING,
        HealthLevel.SAFE_MODE,
    ]


def test_missing_blocks_cannot_be_read_but_in_safe_mode_they_may_only_be_unheard() -> None:
    gone = health(replication=ReplicationStatus(missing=2))
    assert gone.text.startswith("2 blocks have no replica that can be read. Their files cannot")
    early = health(replication=ReplicationStatus(missing=2), safe_mode=SAFE)
    assert "may still report them" in early.text


def test_a_full_disk_of_the_leader_stops_writing_and_that_of_another_namenode_does_not() -> None:
    led = health(namenodes={"nn:1": FULL})
    assert (led.level, "none be written" in led.text) == (HealthLevel.NO_CHANGES, True)
    follower = namenode(serves=False, trouble="its disk is full")
    other = health(namenodes={"nn:1": namenode(), "nn:2": follower})
    assert (other.level, "none be written" in other.text) == (HealthLevel.NO_CHANGES, False)


def test_a_dead_datanode_is_no_trouble_once_it_is_asked_to_leave() -> None:
    dead = datanode("b", "dead")
    assert "DataNode b at b:9871 is dead: last heard 1.5 s ago" in health(dead).text
    gone = LeavingNode(AdminStatus("b", "b:9871", AdminState.DECOMMISSIONED), known=True)
    left = health_of(cluster(datanode("a"), dead), {"nn:1": namenode()}, {"b": gone})
    assert left.level is HealthLevel.HEALTHY


def test_a_volume_that_failed_is_told_with_its_reason() -> None:
    found = health(datanode("b", failed="it hangs"))
    assert (found.level, found.text) == (
        HealthLevel.DEAD_NODE,
        "A volume of DataNode b is not used: it hangs.",
    )


def test_a_cluster_without_datanodes_says_that_nothing_can_be_stored() -> None:
    assert "nothing be stored" in health_of(cluster(), {"nn:1": namenode()}, {}).text
