"""DataNodes that are killed for good: what they held is made again. Real processes and disks."""

from __future__ import annotations

import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.api.datanode import LIST_REPLICAS, ListReplicas
from paxosblock.api.file_pages import GET_FILE, GetFile
from paxosblock.api.namenode import BlockView
from paxosblock.api.status import ReplicationStatus
from paxosblock.base.units import KIB, MIB
from paxosblock.local.cluster_folder import Settings
from paxosblock.local.node_process import Node
from paxosblock.namenode.blocks.replication import monitor
from paxosblock.net.calls import control
from paxosblock.protocol.types import BlockId, ReplicaState
from tests.cli.conftest import Paxosblock, paxosblock  # noqa: F401 - a fixture
from tests.datanode.node import unadopted
from tests.disks.faults import SYNCS, Fault
from tests.secure import url_of
from tests.services.conftest import wait_other_leader
from tests.services.content import content, first_difference
from tests.services.faulty_node import FaultyCluster
from tests.services.test_scrubbing import alarms
from tests.waiting import wait_until

QUICK: Settings = {
    "namenode": {
        "heartbeat_interval": "200ms",
        "datanode_stale_after": "1s",
        "datanode_dead_after": "3s",
        "replicate_after": "1s",
        "safe_mode_extension": "500ms",
    },
    "datanode": {"heartbeat_interval": "200ms", "reserved_space": "0B"},
}
WHOLE_WITHIN_S = 60.0
BLOCK_BYTES = 64 * KIB
BLOCKS = 12
FILES_OF_A_REPLICA = 2
SMALL_BYTES = 1 * KIB
"""Blocks of this length are many in a short time."""


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(datanodes=4, settings=QUICK) as cluster:
        yield cluster


def put(fs: Client, path: str, blocks: int = BLOCKS, block_bytes: int = BLOCK_BYTES) -> None:
    """Write a file of so many full blocks."""
    with fs.create(path, block_size=block_bytes, chunk_size=min(block_bytes, 16 * KIB)) as out:
        out.write(content(path, 0, blocks * block_bytes))


def check(fs: Client, path: str, blocks: int = BLOCKS, block_bytes: int = BLOCK_BYTES) -> None:
    """Every byte is there."""
    with fs.open(path) as file:
        data = file.read()
    assert len(data) == blocks * block_bytes
    assert first_difference(path, 0, data) is None


def blocks_of(cluster: LocalCluster, path: str) -> list[BlockView]:
    """The blocks of a file as the NameNode shows them."""
    namenodes, found, place = (
        control.BlockingNameNodes(cluster.addresses, 20.0),
        list[BlockView](),
        0,
    )
    while True:
        page = namenodes.call(GET_FILE, GetFile(path, place=place))
        found += page.blocks
        if page.next_place is None:
            return found
        place = page.next_place


def replicas_at(nodes: list[Node]) -> Counter[BlockId]:
    """Return how often each block is there as a finalized replica."""
    listed = [control.call(node.address, LIST_REPLICAS, ListReplicas()).replicas for node in nodes]
    return Counter(
        found.state.block
        for replicas in listed
        for found in replicas
        if found.state.registers.state is ReplicaState.FINALIZED
    )


def is_whole(cluster: LocalCluster, path: str, replicas: int = 3) -> bool:
    """True if each block has so many live members, and the NameNode finds nothing to do."""
    lives = [sum(member.live for member in view.members) for view in blocks_of(cluster, path)]
    return min(lives) >= replicas and cluster.status().replication == ReplicationStatus()


def wait_whole(cluster: LocalCluster, path: str) -> None:
    wait_until(lambda: is_whole(cluster, path), WHOLE_WITHIN_S, f"all replicas of {path}")


def counted(node: Node, metric: str) -> float:
    """A number of a NameNode's `/metrics`."""
    with urllib.request.urlopen(url_of(node.address, "metrics"), timeout=10) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(f"paxosblock_namenode_{metric} "):
                return float(line.rpartition(" ")[2])
    raise AssertionError(f"no metric {metric}")


def test_a_datanode_killed_for_good_costs_no_replica(cluster: LocalCluster) -> None:
    with Client(cluster.url) as fs:
        put(fs, "/f")
        wait_whole(cluster, "/f")
        lost = sum(replicas_at([cluster.datanodes[0]]).values())
        assert lost > 0
        cluster.datanodes[0].kill()
        wait_until(lambda: has_made(cluster, lost), WHOLE_WITHIN_S, f"{lost} copies")
        wait_whole(cluster, "/f")
        check(fs, "/f")
        held = replicas_at(list(cluster.datanodes[1:]))
        assert [held[view.record.block] for view in blocks_of(cluster, "/f")] == [3] * BLOCKS
        assert counted(cluster.namenode, "blocks_missing") == 0


def has_made(cluster: LocalCluster, copies: int) -> bool:
    """True if the NameNode has made so many copies, and it makes no more."""
    made = counted(cluster.namenode, 'copies_total{outcome="made"}')
    assert made <= copies
    return made == copies


def test_a_copy_may_take_longer_than_the_recovery_of_a_block() -> None:
    settings = {
        "namenode": {**QUICK["namenode"], "recovery_timeout": "1s"},
        "datanode": {**QUICK["datanode"], "copy_bandwidth": "1MiB/s"},
    }
    with LocalCluster(4, settings=settings) as cluster, Client(cluster.url) as fs:
        put(fs, "/f", 1, 4 * MIB)
        (view,) = blocks_of(cluster, "/f")
        gone = {member.address for member in view.members[:1]}
        next(node for node in cluster.datanodes if node.address in gone).kill()
        wait_until(lambda: cluster.status().replication.under_way == 1, WHOLE_WITHIN_S)
        begun_s = time.monotonic()
        wait_whole(cluster, "/f")
        assert time.monotonic() - begun_s > 1.5, "a second at most is not paced"
        assert counted(cluster.namenode, 'copies_total{outcome="failed"}') == 0
        assert counted(cluster.namenode, 'copies_total{outcome="made"}') == 1
        check(fs, "/f", 1, 4 * MIB)


def test_a_copy_of_a_file_that_is_cut_meanwhile_goes_on_from_what_it_has() -> None:
    """Each cut is a later version (K8), and no holder sends the one before any more."""
    settings = {
        "namenode": QUICK["namenode"],
        "datanode": {**QUICK["datanode"], "copy_bandwidth": "1MiB/s"},
    }
    size_bytes, drafts = 8 * MIB, dict[str, int]()
    with LocalCluster(4, settings=settings) as cluster, Client(cluster.url) as fs:
        put(fs, "/f", 1, size_bytes)
        (view,) = blocks_of(cluster, "/f")
        members = {member.address for member in view.members}
        (target,) = (node for node in cluster.datanodes if node.address not in members)
        next(node for node in cluster.datanodes if node.address in members).kill()

        def has_fetched(some_bytes: int) -> bool:
            with suppress(FileNotFoundError):  # it has just become a replica
                drafts.update((each.name, each.stat().st_size) for each in drafts_at(target))
            return sum(drafts.values()) > some_bytes

        for seen_bytes in (2 * MIB, 4 * MIB):
            wait_until(partial(has_fetched, seen_bytes), WHOLE_WITHIN_S)
            size_bytes -= 16 * KIB
            fs.truncate("/f", size_bytes)
        wait_until(lambda: has_fetched(0) and is_whole(cluster, "/f"), WHOLE_WITHIN_S)
        assert len(drafts) == 1, "it began anew"
        assert counted(cluster.namenode, 'copies_total{outcome="failed"}') == 0
        assert counted(cluster.namenode, 'copies_total{outcome="made"}') == 1
        with fs.open("/f") as file:
            data = file.read()
        assert (len(data), first_difference("/f", 0, data)) == (size_bytes, None)


def drafts_at(node: Node) -> list[Path]:
    """The files of chunks that are being fetched."""
    return list((node.volumes[0] / "tmp").glob("*.draft*"))


def test_a_file_outlives_its_datanodes_when_they_die_one_after_the_other(
    cluster: LocalCluster,
    paxosblock: Paxosblock,  # noqa: F811 - it is the fixture
) -> None:
    """Three of four: the last of them had no replica of some blocks when the first one died."""
    report = ("admin", "report", "--namenodes", cluster.namenode.address)
    with Client(cluster.url) as fs:
        put(fs, "/f")
        cluster.datanodes[0].kill()
        wait_until(lambda: not is_whole(cluster, "/f"), WHOLE_WITHIN_S, "its death to be noticed")
        wait_whole(cluster, "/f")
        cluster.datanodes[1].kill()
        waits = ReplicationStatus(waiting=BLOCKS)
        wait_until(lambda: cluster.status().replication == waits, WHOLE_WITHIN_S)
        shown = paxosblock(*report)
        assert f"Replicas  {BLOCKS} blocks wait for a copy, 0 are being copied\n" in shown.out
        assert shown.code == 1
        assert counted(cluster.namenode, "blocks_waiting") == BLOCKS
        cluster.datanodes[2].kill()
        check(fs, "/f")
        cluster.datanodes[3].kill()
        missing = ReplicationStatus(missing=BLOCKS)
        wait_until(lambda: cluster.status().replication == missing, WHOLE_WITHIN_S)
        shown = paxosblock(*report)
        assert f"Replicas  {BLOCKS} blocks missing: no replica is left that can be" in shown.out
        assert shown.out.count("missing block: no replica is left") == BLOCKS
        for node in cluster.datanodes[2:]:
            node.start()
        wait_until(lambda: cluster.status().replication == waits, WHOLE_WITHIN_S)
        check(fs, "/f")
        cluster.datanodes[1].start()
        wait_whole(cluster, "/f")


def test_a_log_that_lost_a_member_is_not_called_missing_while_it_grows(tmp_path: Path) -> None:
    """Each line makes a version, of which two members that live are slow to tell."""
    line = content("/log", 0, 20 * KIB)
    with (
        FaultyCluster(3, path=tmp_path / "c", settings=QUICK) as cluster,
        Client(cluster.url) as fs,
    ):
        put(fs, "/log", 1, 20 * KIB)
        lost, *left = cluster.datanodes
        lost.kill()
        waits = ReplicationStatus(waiting=1)
        wait_until(lambda: cluster.status().replication == waits, WHOLE_WITHIN_S)
        for node in left:
            cluster.break_disk(node, Fault(SYNCS, path="/current", delay_s=0.5))
        for _ in range(6):
            with fs.append("/log") as out:
                out.write(line)
            assert cluster.status().replication.missing == 0
        assert alarms(cluster) == ()
        assert all(cluster.met(node) for node in left)
        with fs.open("/log") as file:
            assert file.read() == 7 * line


@pytest.mark.parametrize(
    ("blocks", "copies"),
    [
        (120, 40),
        pytest.param(1800, 1000, marks=[pytest.mark.slow, pytest.mark.timeout(900)]),
    ],
)
def test_a_fail_over_in_the_middle_of_copies_loses_none_and_leaves_none_twice(
    blocks: int, copies: int
) -> None:
    """Copies that the old leader made become members, or a member too many that leaves again."""
    patience_s, files = WHOLE_WITHIN_S + blocks / 5, [f"/{number}" for number in range(8)]
    each = blocks // len(files)
    # One at a time, so that there is a middle while the old leader is killed.
    one = {"copies_per_source": 1, "copies_per_target": 1} if blocks < 1000 else {}
    settings = {**QUICK, "namenode": {**QUICK["namenode"], **one}}
    with LocalCluster(5, 3, settings=settings) as cluster, Client(cluster.url) as fs:
        with ThreadPoolExecutor(len(files)) as writers:
            list(writers.map(lambda path: put(fs, path, each, SMALL_BYTES), files))
        ids = [view.record.block for path in files for view in blocks_of(cluster, path)]
        lost = sum(replicas_at([cluster.datanodes[0]]).values())
        assert lost >= copies
        left = list(cluster.datanodes[1:])
        cluster.datanodes[0].kill()
        old, before = cluster.wait_leader(), sum(replicas_at(left).values())
        wait_until(
            lambda: sum(replicas_at(left).values()) > before + lost // 3,
            patience_s,
            "a third of the copies",
        )
        old.kill()
        assert sum(replicas_at(left).values()) < before + lost
        wait_other_leader(cluster, old)

        def whole() -> bool:
            held = replicas_at(left)
            exactly = all(held[block] == 3 for block in ids)
            return exactly and all(is_whole(cluster, path) for path in files)

        wait_until(whole, patience_s, "each block to have three replicas")
        assert {len(view.members) for path in files for view in blocks_of(cluster, path)} == {3}
        found = [len(list((node.volumes[0] / "current").iterdir())) for node in left]
        assert sum(found) == 3 * len(ids) * FILES_OF_A_REPLICA
        assert not [each for node in left for each in unadopted(node.volumes[0])]
        for path in files:
            check(fs, path, each, SMALL_BYTES)


def test_what_the_leader_before_decided_without_a_member_is_copied_before_the_next_walk() -> None:
    """The member died as the block was closed, and the leader before it was dead for the leader."""
    settings = {
        "namenode": {**QUICK["namenode"], "datanode_dead_after": "6s"},
        "datanode": QUICK["datanode"],
    }
    with LocalCluster(4, 3, settings=settings) as cluster, Client(cluster.url) as fs:
        put(fs, "/warm", 1)
        wait_whole(cluster, "/warm")
        old = cluster.wait_leader()
        with fs.create("/f") as out:
            out.write(b"closed without a word of one member")
            out.flush()
            (view,) = blocks_of(cluster, "/f")
            dying = view.members[0].address
            next(node for node in cluster.datanodes if node.address == dying).kill()
        old.kill()
        wait_other_leader(cluster, old)
        led_s = time.monotonic()
        wait_until(lambda: is_whole(cluster, "/f"), WHOLE_WITHIN_S)
        assert time.monotonic() - led_s < monitor.WALK_PAUSE_S - 5
