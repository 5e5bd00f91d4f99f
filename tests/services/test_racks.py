"""Racks and machines, with real processes: where replicas go, and which one is read."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.client.reading.locations import BlockLocation
from paxosblock.config import ClientConfig
from paxosblock.errors import ConfigError
from paxosblock.local.node_process import Node
from tests.cli.conftest import Paxosblock, paxosblock  # noqa: F401 - a fixture
from tests.secure import url_of

RACKS = {
    "datanode-0": "/rack-0",
    "datanode-1": "/rack-1",
    "datanode-2": "/rack-0",
    "datanode-3": "/rack-1",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Four DataNodes in two racks, each of which thinks that it is on a machine of its own."""
    with LocalCluster(datanodes=4, racks=2) as cluster:
        settings = cluster.path / "config.toml"
        for node in cluster.datanodes:
            settings.write_text(f'[datanode]\nhost = "machine-of-{node.name}"\n')
            node.stop()
            node.start()
        cluster.wait_registered()
        yield cluster


def put(fs: Client, path: str, data: bytes) -> None:
    """A closed file."""
    with fs.create(path) as out:
        out.write(data)


def nodes_of(cluster: LocalCluster, block: BlockLocation) -> list[str]:
    """The names of the DataNodes that hold a block, the first member first."""
    by_address = {node.address: node.name for node in cluster.datanodes}
    return [by_address[address] for address in block.hosts]


def streams(node: Node) -> int:
    """The data streams that are open at a DataNode."""
    with urllib.request.urlopen(url_of(node.address, "metrics")) as answer:
        found = re.search(r"^paxosblock_datanode_streams (\d+)", answer.read().decode(), re.M)
    assert found is not None
    return int(found[1])


@pytest.mark.parametrize("number", range(4))
def test_the_first_replica_is_on_the_writers_machine_and_the_others_in_the_other_rack(
    cluster: LocalCluster, number: int
) -> None:
    home = f"datanode-{number}"
    with Client(cluster.url, ClientConfig(host=f"machine-of-{home}")) as fs:
        put(fs, f"/from-{home}", b"bytes")
        (block,) = fs.locations(f"/from-{home}")
    first, *others = nodes_of(cluster, block)
    assert first == home
    assert {RACKS[name] for name in others} == set(RACKS.values()) - {RACKS[home]}


def test_a_reader_reads_on_its_own_machine_else_in_its_rack(cluster: LocalCluster) -> None:
    with Client(cluster.url, ClientConfig(host="machine-of-datanode-0")) as fs:
        put(fs, "/read", b"x" * 100_000)
        (block,) = fs.locations("/read")
    assert set(nodes_of(cluster, block)) == {"datanode-0", "datanode-1", "datanode-3"}
    for machine, served in (("datanode-3", "datanode-3"), ("datanode-2", "datanode-0")):
        before = {node.name: streams(node) for node in cluster.datanodes}
        with Client(cluster.url, ClientConfig(host=f"machine-of-{machine}")) as fs:
            with fs.open("/read") as file:
                assert file.read() == b"x" * 100_000
            more = {node.name for node in cluster.datanodes if streams(node) > before[node.name]}
        assert more == {served}


def test_racks_are_shown(cluster: LocalCluster, paxosblock: Paxosblock) -> None:  # noqa: F811 - it is the fixture
    with Client(cluster.url) as fs:
        put(fs, "/shown", b"bytes")
    here = ("--namenodes", ",".join(cluster.addresses))
    assert paxosblock(*here, "fs", "stat", "%m in %R", "/shown").out == "3 in 2\n"
    fact = json.loads(paxosblock(*here, "fs", "stat", "--json", "/shown").out)
    assert fact["fewest_racks"] == 2
    _, _, columns, *rows = (
        paxosblock(*here, "explain", "/shown").out.partition("votes:")[0].splitlines()
    )
    assert columns.split()[:3] == ["storage", "node", "rack"]
    shown = {row.split()[1]: row.split()[2] for row in rows if row.strip()}
    assert len(shown) == 3
    assert shown.items() <= RACKS.items()
    report = paxosblock(*here, "admin", "report").out
    assert all(f"live in {rack}, " in report for rack in RACKS.values())
    seen = [
        json.loads(line) for line in paxosblock(*here, "admin", "report", "--json").out.splitlines()
    ]
    assert {each["node"]: each["rack"] for each in seen if "rack" in each} == RACKS


def test_the_table_of_the_namenode_wins_over_the_flag() -> None:
    table = {"namenode": {"racks": "datanode-0=/dc1/r1,datanode-1=/dc1/r2"}}
    with LocalCluster(datanodes=3, racks=3, settings=table) as cluster:
        found = {node.node: node.rack for node in cluster.status().datanodes}
    assert found == {"datanode-0": "/dc1/r1", "datanode-1": "/dc1/r2", "datanode-2": "/rack-2"}


def test_more_racks_than_datanodes_make_no_sense() -> None:
    with pytest.raises(ConfigError, match="racks = 3: from 1 to the number of DataNodes, 2"):
        LocalCluster(datanodes=2, racks=3)
