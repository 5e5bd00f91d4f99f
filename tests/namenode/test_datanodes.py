"""The registry: who is alive by the clock, where a storage is, what placement is told."""

from __future__ import annotations

import pytest

from paxosblock.api.reports import ALL_BLOCKS, Heartbeat, Register, StorageReport
from paxosblock.base.rack import DEFAULT_RACK, FAR_AWAY, Location
from paxosblock.errors import InvalidRequestError, NotReadyError
from paxosblock.namenode.blocks.datanodes import DataNodes, Liveness
from paxosblock.protocol.types import BlockId, StorageId

S1, S2 = StorageId("s1"), StorageId("s2")
BLOCK = BlockId(7)


def report(storage: StorageId, free: int = 1000, failed: str = "") -> StorageReport:
    return StorageReport(storage, 2000, free, 2000 - free, failed)


def register(node: str = "dn", incarnation: str = "run-1", *storages: StorageReport) -> Register:
    return Register(node, f"{node}:9864", incarnation, storages or (report(S1), report(S2)))


def heartbeat(
    *storages: StorageReport, incarnation: str = "run-1", open_blocks: int = 0
) -> Heartbeat:
    return Heartbeat("dn", incarnation, storages or (report(S1), report(S2)), open_blocks)


@pytest.fixture
def datanodes() -> DataNodes:
    """One DataNode with two storages, heard at second 0; stale after 3 s, dead after 15."""
    datanodes = DataNodes(3, 15)
    datanodes.register(register(), 0)
    return datanodes


@pytest.mark.parametrize(
    ("now", "expected"),
    [(2.9, Liveness.LIVE), (3, Liveness.STALE), (14.9, Liveness.STALE), (15, Liveness.DEAD)],
)
def test_silence_makes_a_node_stale_and_then_dead(
    datanodes: DataNodes, now: float, expected: Liveness
) -> None:
    (node,) = datanodes
    assert datanodes.liveness(node, now) is expected
    assert datanodes.member(S1, now).live == (expected is Liveness.LIVE)
    assert datanodes.is_reachable(S1, now) == (expected is not Liveness.DEAD)


def test_a_heartbeat_keeps_a_node_alive_and_tells_its_room(datanodes: DataNodes) -> None:
    assert datanodes.heartbeat(heartbeat(report(S1, 7), report(S2, 8), open_blocks=4), 14)
    assert [(c.free_bytes, c.load, c.stale) for c in datanodes.candidates(16)] == [
        (7, 4, False),
        (8, 4, False),
    ]


def test_another_process_or_other_storages_must_register_first(datanodes: DataNodes) -> None:
    assert not datanodes.heartbeat(heartbeat(incarnation="run-2"), 1)
    assert not datanodes.heartbeat(heartbeat(report(S1)), 1)
    assert not DataNodes(3, 15).heartbeat(heartbeat(), 1)


def test_a_node_that_registers_again_may_have_another_address_and_fewer_storages(
    datanodes: DataNodes,
) -> None:
    again = Register("dn", "dn:1", "run-2", (report(S2),))
    datanodes.register(again, 1, ended={"run-1"})
    assert datanodes.address(S2) == "dn:1"
    assert datanodes.address(S1) == ""
    assert not datanodes.member(S1, 1).live
    assert not datanodes.is_current("dn", "run-1")


def test_a_storage_of_a_live_node_cannot_appear_in_another_one(datanodes: DataNodes) -> None:
    with pytest.raises(InvalidRequestError, match="storage s1 of DataNode other is in use by"):
        datanodes.register(register("other", "run-1", report(S1)), 1)


def test_a_disk_may_move_to_another_node_once_its_own_is_dead(datanodes: DataNodes) -> None:
    datanodes.register(register("other", "run-1", report(S1)), 15)
    assert datanodes.address(S1) == "other:9864"
    assert [c.node for c in datanodes.candidates(15) if c.storage == S1] == ["other"]


def seen(datanodes: DataNodes) -> dict[StorageId, tuple[int, int]]:
    """Room for further blocks, and load, of each storage."""
    return {c.storage: (c.room_bytes, c.load) for c in datanodes.candidates(1)}


def test_a_placed_block_counts_as_load_and_room_until_the_next_heartbeat(
    datanodes: DataNodes,
) -> None:
    datanodes.note_placed(BLOCK, (S1,), 100)
    assert seen(datanodes) == {S1: (900, 1), S2: (1000, 1)}
    datanodes.note_placed(BLOCK, (S1,), 100)
    assert seen(datanodes) == {S1: (900, 1), S2: (1000, 1)}, "the request came twice"
    datanodes.heartbeat(heartbeat(), 1)
    assert seen(datanodes) == {S1: (1000, 0), S2: (1000, 0)}


def test_a_block_that_is_ended_takes_the_room_that_it_has(datanodes: DataNodes) -> None:
    """However many small files are written between two heartbeats."""
    for number in range(100):
        datanodes.note_placed(BlockId(number), (S1, S2), 100)
        datanodes.note_ended(BlockId(number), (S1, S2), 1)
        datanodes.note_ended(BlockId(number), (S1, S2), 1)
    assert seen(datanodes) == {S1: (900, 0), S2: (900, 0)}


def test_a_block_that_was_placed_before_a_heartbeat_gives_back_nothing(
    datanodes: DataNodes,
) -> None:
    datanodes.note_placed(BLOCK, (S1,), 100)
    datanodes.heartbeat(heartbeat(), 1)
    datanodes.note_ended(BLOCK, (S1,), 1)
    assert seen(datanodes) == {S1: (1000, 0), S2: (1000, 0)}


def test_a_failed_storage_is_neither_live_for_readers_nor_reachable(datanodes: DataNodes) -> None:
    datanodes.heartbeat(heartbeat(report(S1, failed="read-only file system"), report(S2)), 1)
    assert not datanodes.member(S1, 1).live
    assert not datanodes.is_reachable(S1, 1)
    assert datanodes.member(S2, 1).live
    assert datanodes.is_reachable(S2, 1)


def test_a_node_that_could_not_be_reached_is_stale_until_it_is_heard_of(
    datanodes: DataNodes,
) -> None:
    datanodes.suspect(S2)
    assert all(c.stale for c in datanodes.candidates(0))
    assert not datanodes.member(S1, 0).live
    datanodes.heartbeat(heartbeat(), 1)
    assert datanodes.member(S1, 1).live


def test_no_report_is_asked_for_of_a_storage_that_failed(datanodes: DataNodes) -> None:
    broken = register("dn", "run-2", report(S1), report(S2, failed="broken"))
    datanodes.register(broken, 0, ended={"run-1"})
    datanodes.reported(S1).add(ALL_BLOCKS)
    assert not datanodes.must_report("dn", 4)


def test_full_reports_are_asked_for_until_all_storages_have_reported(datanodes: DataNodes) -> None:
    assert not datanodes.must_report("dn", 1)
    assert datanodes.must_report("dn", 4)
    datanodes.reported(S1).add(ALL_BLOCKS)
    assert datanodes.must_report("dn", 4)
    datanodes.reported(S2).add(ALL_BLOCKS)
    assert not datanodes.must_report("dn", 4)
    assert datanodes.has_reported(S1)
    datanodes.register(register(), 5)
    assert not datanodes.has_reported(S1)


def test_a_node_that_reported_just_before_its_namenode_led_is_asked_again_at_once(
    datanodes: DataNodes,
) -> None:
    for storage in (S1, S2):
        datanodes.reported(storage).add(ALL_BLOCKS)
    datanodes.ask_for_reports()
    assert datanodes.must_report("dn", 0.1)
    for storage in (S1, S2):
        datanodes.reported(storage).add(ALL_BLOCKS)
    assert not datanodes.must_report("dn", 0.2)
    datanodes.ask_for_report(S2)
    assert datanodes.must_report("dn", 0.3)
    datanodes.register(register(), 5)
    assert not datanodes.must_report("dn", 5.1)  # it sends them by itself


# -- who belongs here -----------------------------------------------------------------------------

OTHER_DISKS = (report(StorageId("other")),)


def start(
    incarnation: str, port: int = 9864, *storages: StorageReport, cluster: str = ""
) -> Register:
    """Return what a process of the name "dn" registers with, by default the storages of "dn"."""
    disks = storages or (report(S1), report(S2))
    return Register("dn", f"dn:{port}", incarnation, disks, cluster)


COMES_AGAIN = (
    start("run-2"),
    start("run-2", 1),  # at another address
    start("run-2", 1, report(S2)),  # and with one of its disks
    start("run-2", 9864, *OTHER_DISKS),  # with new disks
    start("run-2", 1, *OTHER_DISKS),  # of another node, by its name
)


@pytest.mark.parametrize("second", COMES_AGAIN)
def test_another_process_waits_until_the_one_before_has_ended_or_is_dead(
    datanodes: DataNodes, second: Register
) -> None:
    """D10: it may have a copy of a volume, which has forgotten what was promised since."""
    datanodes.heartbeat(heartbeat(), 2)
    for now_s in (2.1, 5, 16.9):
        for ended in (frozenset[str](), {"run-0"}):
            with pytest.raises(NotReadyError, match="before this one, at dn:9864, was heard"):
                datanodes.register(second, now_s, ended=ended)
        assert datanodes.is_current("dn", "run-1")
        assert datanodes.address(S1) == "dn:9864"
    datanodes.register(second, 17)
    assert datanodes.is_current("dn", "run-2")


@pytest.mark.parametrize("restarted", COMES_AGAIN)
def test_a_restart_does_not_wait_however_alive_the_process_before_it_looks(
    datanodes: DataNodes, restarted: Register
) -> None:
    datanodes.register(restarted, 0.1, ended={"run-1"})
    assert datanodes.is_current("dn", "run-2")


def test_what_another_process_learned_of_the_end_of_one_is_of_no_use_behind_a_third(
    datanodes: DataNodes,
) -> None:
    datanodes.register(start("run-2"), 1, ended={"run-1"})
    with pytest.raises(NotReadyError):
        datanodes.register(start("copy", 1), 1, ended={"run-1"})
    assert datanodes.is_current("dn", "run-2")


def test_a_datanode_of_another_cluster_is_refused_and_not_known() -> None:
    datanodes = DataNodes(3, 15)
    with pytest.raises(InvalidRequestError, match="it is of cluster theirs, this is ours"):
        datanodes.register(start("run-1", cluster="theirs"), 0, "ours")
    assert len(datanodes) == 0
    datanodes.register(start("run-1", cluster="ours"), 0, "ours")
    assert len(datanodes) == 1


def test_one_that_came_before_the_cluster_was_known_registers_again_and_is_then_refused() -> None:
    datanodes = DataNodes(3, 15)
    datanodes.register(start("run-1", cluster="theirs"), 0)
    assert datanodes.heartbeat(heartbeat(), 1)
    assert not datanodes.heartbeat(heartbeat(), 2, "ours")
    with pytest.raises(InvalidRequestError, match="of cluster theirs"):
        datanodes.register(start("run-1", cluster="theirs"), 2, "ours")
    assert (len(datanodes), datanodes.address(S1)) == (0, "")


def test_the_table_of_racks_wins_over_what_a_datanode_says_and_its_own_name_over_its_machines() -> (
    None
):
    table = {"dn1": "/table/1", "host2": "/table/2", "office": "/table/office"}
    datanodes = DataNodes(3, 15, table)
    for number in (1, 2, 3):
        room = report(StorageId(f"s{number}"))
        request = Register(
            f"dn{number}",
            f"10.0.0.{number}:9864",
            "run-1",
            (room,),
            rack=f"/said/{number}",
            host=f"host{min(number, 2)}",
        )
        datanodes.register(request, 0)
    assert [node.location for node in datanodes] == [
        Location("host1", "/table/1"),
        Location("host2", "/table/2"),
        Location("host2", "/table/2"),
    ]
    assert [c.rack for c in datanodes.candidates(0)] == ["/table/1", "/table/2", "/table/2"]
    assert datanodes.locate("host1") == Location("host1", "/table/1")
    assert datanodes.locate("office") == Location("office", "/table/office")
    assert datanodes.locate("elsewhere") is datanodes.locate("") is None


def test_a_datanode_that_does_not_say_its_machine_is_on_the_one_of_its_address(
    datanodes: DataNodes,
) -> None:
    (node,) = datanodes
    assert node.location == Location("dn", DEFAULT_RACK)


def test_members_tell_their_rack_and_how_far_it_is_from_who_asks() -> None:
    datanodes = DataNodes(3, 15)
    datanodes.register(Register("a", "a:1", "run-1", (report(S1),), rack="/r1", host="h1"), 0)
    datanodes.register(Register("b", "b:1", "run-1", (report(S2),), rack="/r2", host="h2"), 0)
    asker = datanodes.locate("h1")
    shown = [datanodes.member(storage, 0, asker) for storage in (S1, S2, StorageId("s3"))]
    assert [(member.rack, member.distance) for member in shown] == [
        ("/r1", 0),
        ("/r2", 4),
        ("", FAR_AWAY),
    ]
    assert datanodes.member(S1, 0).distance == FAR_AWAY
