"""Real NameNodes whose map is damaged on the disk: no client hears of it, and it is replaced."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.local.node_process import Node
from tests.secure import url_of
from tests.services.conftest import QUICK
from tests.waiting import wait_until

FOLDERS = 300
BLOCK_BYTES = 4096
"""RocksDB's blocks have about this many bytes, each with a checksum of its own."""


@pytest.fixture
def three(tmp_path: Path) -> Iterator[LocalCluster]:
    """Three NameNodes, and one DataNode, without which nothing counts as up."""
    with LocalCluster(1, 3, tmp_path) as cluster:
        yield cluster


def path_of(number: int) -> str:
    return f"/a-directory-whose-name-takes-some-room-in-the-map-{number}"


def flip_bits(namenode: Node) -> int:
    """Flip a bit in nearly every block of keys of a NameNode's table; return in how many.

    The first block stays, without which it would not start, and the indexes behind the blocks.
    """
    flipped = 0
    for file in sorted(namenode.volumes[0].glob("raft/db*/*.sst")):
        with file.open("r+b") as opened:
            data = opened.read()
            for place in range(3 * BLOCK_BYTES // 2, len(data) * 3 // 4, BLOCK_BYTES):
                opened.seek(place)
                opened.write(bytes((data[place] ^ 1,)))
                flipped += 1
    return flipped


def metric(namenode: Node, name: str) -> float:
    with urlopen(url_of(namenode.address, "metrics")) as answer:
        lines = answer.read().decode().splitlines()
    (value,) = [
        line.split()[1] for line in lines if line.startswith(f"paxosblock_namenode_{name} ")
    ]
    return float(value)


def wait_whole(namenode: Node) -> None:
    """Wait until damage was found, and the map replaced by that of another NameNode."""

    def whole() -> bool:
        installed = metric(namenode, "raft_snapshots_installed")
        return metric(namenode, "raft_tables_damaged") == installed > 0

    wait_until(whole, what=f"{namenode.name} to have got another map")
    assert urlopen(url_of(namenode.address, "healthz")).status == 200


def test_a_follower_whose_map_was_damaged_while_it_was_down_gets_another_one(
    three: LocalCluster,
) -> None:
    leader = three.wait_leader()
    victim = next(node for node in three.namenodes if node is not leader)
    with Client(three.url, QUICK) as fs:
        for number in range(FOLDERS):
            fs.mkdirs(path_of(number))
        victim.stop()
        assert flip_bits(victim) > 5
        victim.start()
        with Client(f"paxosblock://{victim.address}", QUICK) as through_it:
            for number in range(FOLDERS):
                through_it.stat(path_of(number))
                fs.mkdirs(f"/after-{number}")
        wait_whole(victim)
        victim.kill()
        victim.start()
        leader.stop()
        for number in range(FOLDERS):
            fs.stat(path_of(number))
        assert metric(victim, "raft_tables_damaged") == 0, "it was whole at its start"


def test_a_namenode_that_leads_and_finds_its_map_damaged_lets_another_one_lead(
    three: LocalCluster,
) -> None:
    with Client(three.url, QUICK) as fs:
        for number in range(FOLDERS):
            fs.mkdirs(path_of(number))
    for node in three.namenodes:  # what is in memory now would hide what is on the disk
        node.stop()
        node.start()
    leader = three.wait_leader()
    victim, last = (node for node in three.namenodes if node is not leader)
    wait_until(lambda: metric(victim, "table_passes") == 1, what="it to have read all once")
    last.pause()
    newest = f"{path_of(0)}/newest"
    with Client(three.url, QUICK) as fs:
        fs.mkdirs(newest)
    with Client(f"paxosblock://{victim.address}", QUICK) as through_it:
        through_it.stat(newest)
    assert flip_bits(victim) > 5
    leader.stop()  # it hands over to the one that has all changes
    last.resume()
    with Client(three.url, QUICK) as fs:
        for number in range(FOLDERS):
            fs.stat(path_of(number))
            fs.mkdirs(f"{path_of(number)}/below")
        assert three.wait_leader() is last
        wait_whole(victim)
        assert metric(victim, "raft_elections_won") == 1, "it led when it found out"
        leader.start()
        last.stop()
        assert len(fs.ls("/")) == FOLDERS
