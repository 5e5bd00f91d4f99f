"""A byte that flips on a disk is mended unread; where nothing is sound, everything stays."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.request import urlopen

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.api.status import NAMENODE_STATUS, NameNodeStatusRequest, ReplicationStatus
from paxosblock.base.units import MIB
from paxosblock.cli.main import run
from paxosblock.config import ClientConfig
from paxosblock.datanode.volumes.cursor import SCRUB, read_cursor
from paxosblock.errors import PaxosBlockError
from paxosblock.host.disk import OsDisk
from paxosblock.local.node_process import Node
from paxosblock.net.calls.control import call
from tests.secure import url_of
from tests.waiting import wait_until

SETTINGS = {
    "namenode": {"heartbeat_interval": "100ms", "safe_mode_extension": "0s"},
    "datanode": {"heartbeat_interval": "100ms", "scrub_period": "500ms"},
}
IMPATIENT = ClientConfig(retry_for_s=1.0)


def block_files(node: Node) -> list[Path]:
    """The block files of the node's finalized replicas."""
    (volume,) = node.volumes
    return sorted(each for each in (volume / "current").iterdir() if each.suffix != ".meta")


def put(cluster: LocalCluster, data: bytes) -> None:
    """Write `data` to /file and wait until every DataNode has a finalized replica of it."""
    with Client(cluster.url) as fs, fs.create("/file") as out:
        out.write(data)
    wait_until(
        lambda: all(len(block_files(node)) == 1 for node in cluster.datanodes),
        what="finalized replicas",
    )


def flip(path: Path, position: int) -> bytes:
    """Change one bit, and return what is in the file then."""
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data[position : position + 1])
    return bytes(data)


def alarms(cluster: LocalCluster) -> tuple[str, ...]:
    return call(cluster.namenode.address, NAMENODE_STATUS, NameNodeStatusRequest()).alarms


def metric(node: Node, name: str) -> float:
    with urlopen(url_of(node.address, "metrics"), timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    found = [line for line in lines if line.startswith(f"paxosblock_datanode_{name}")]
    return sum(float(line.rpartition(" ")[2]) for line in found)


def test_a_flipped_byte_is_mended_without_a_reader_having_seen_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = os.urandom(3 * MIB)
    with LocalCluster(datanodes=3, path=tmp_path / "cluster", settings=SETTINGS) as cluster:
        put(cluster, data)
        node = cluster.datanodes[1]
        (sound,) = {path.read_bytes() for each in cluster.datanodes for path in block_files(each)}
        (path,) = block_files(node)
        flip(path, 2 * MIB)
        wait_until(
            lambda: [each.read_bytes() for each in block_files(node)] == [sound],
            what="a sound copy in its place",
        )
        (copy,) = block_files(node)
        assert copy.name == f"{path.name}.1"
        assert metric(node, "scrubbed_damaged_total") == 1
        assert metric(node, "scrubbed_bytes_total") > 0
        (told,) = [each for each in alarms(cluster) if "damaged replica" in each]
        assert "does not match its checksum on disk" in told
        # Passes go on, and what they found is kept beside the replicas.
        before = metric(node, "scrubbed_last_seconds")
        wait_until(lambda: metric(node, "scrubbed_last_seconds") > before, what="the next pass")
        assert read_cursor(OsDisk(), node.volumes[0]).whole_ms > 0
        assert metric(node, "scrubbed_damaged_total") == 1
        reported = [at.scrubbed_ms for each in cluster.status().datanodes for at in each.storages]
        assert all(reported)
        assert run(["admin", "report", "--namenodes", cluster.namenode.address]) == 0
        assert capsys.readouterr().out.count(", scrubbed 20") == 3
        assert cluster.status().replication.corrupt == 0
        with Client(cluster.url) as fs, fs.open("/file") as file:
            assert file.read() == data


def test_a_replica_that_is_damaged_and_nobodys_goes(tmp_path: Path) -> None:
    """Its file was deleted while its DataNode was away, which finds at its start that it is dead;
    and who would have told it to delete it has forgotten that."""
    with LocalCluster(datanodes=3, path=tmp_path / "cluster", settings=SETTINGS) as cluster:
        put(cluster, os.urandom(MIB))
        node, *others = cluster.datanodes
        (path,) = block_files(node)
        node.stop()
        path.unlink()
        with Client(cluster.url) as fs:
            fs.delete("/file")
        wait_until(lambda: not any(map(block_files, others)), what="the others to be deleted")
        assert path.with_name(f"{path.name}.meta").exists()
        cluster.namenode.stop()
        cluster.namenode.start()
        node.start()
        wait_until(lambda: not list((node.volumes[0] / "current").iterdir()), what="it to go")


def test_where_every_replica_is_damaged_nothing_is_deleted_and_everybody_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with LocalCluster(datanodes=3, path=tmp_path / "cluster", settings=SETTINGS) as cluster:
        put(cluster, os.urandom(MIB))
        for node in cluster.datanodes:
            node.stop()
        harmed = {}
        for number, node in enumerate(cluster.datanodes):
            (path,) = block_files(node)
            harmed[path] = flip(path, 1000 + number)
            (node.volumes[0] / SCRUB).unlink()
        for node in cluster.datanodes:
            node.start()
        wait_until(
            lambda: sum(metric(node, "scrubbed_damaged_total") for node in cluster.datanodes) == 3,
            what="all of them to be found",
        )
        wait_until(
            lambda: sum("damaged replica" in each for each in alarms(cluster)) >= 3,
            what="the alarms",
        )
        wait_until(
            lambda: cluster.status().replication == ReplicationStatus(missing=1, corrupt=1),
            what="the numbers",
        )
        assert run(["admin", "report", "--namenodes", cluster.namenode.address]) == 1
        assert "1 block has a damaged replica" in capsys.readouterr().out
        with (
            Client(cluster.url, IMPATIENT) as fs,
            fs.open("/file") as file,
            pytest.raises(PaxosBlockError),
        ):
            file.read()
        passes = [metric(node, "scrubbed_last_seconds") for node in cluster.datanodes]
        wait_until(
            lambda: all(
                metric(node, "scrubbed_last_seconds") > before
                for node, before in zip(cluster.datanodes, passes, strict=True)
            ),
            what="another pass of each",
        )
        assert {path: path.read_bytes() for path in harmed} == harmed
        assert all(path.with_name(f"{path.name}.meta").exists() for path in harmed)
