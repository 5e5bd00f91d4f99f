"""Nodes know where they belong: real processes in the wrong cluster, folder, or name."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.api.status import (
    NAMENODE_STATUS,
    NameNodeStatus,
    NameNodeStatusRequest,
    NodeStatus,
)
from paxosblock.cli.main import run
from paxosblock.net.calls.control import call
from tests.fork_server import Program, ended
from tests.waiting import wait_until

HEARTBEAT = {
    "namenode": {"datanode_stale_after": "2s"},
    "datanode": {"heartbeat_interval": "200ms"},
}
FILES = 60
REFUSED = "NameNode refuses this DataNode"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(datanodes=1, path=tmp_path / "ours", settings=HEARTBEAT) as cluster:
        yield cluster


@contextmanager
def node(log: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A node that no cluster started; what it says goes to `log`."""
    with open(log, "wb") as out:
        process = Program[bytes]([sys.executable, "-m", "paxosblock", *words], stderr=out)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


def datanode(cluster: LocalCluster, folder: Path, name: str) -> tuple[str, ...]:
    where = ("--namenodes", cluster.namenode.address, "--path", str(folder))
    settings = ("--config", str(cluster.path / "config.toml"))
    return ("datanode", *where, "--listen", "127.0.0.1:0", "--id", name, *settings)


def standing(cluster: LocalCluster) -> NameNodeStatus:
    return call(cluster.namenode.address, NAMENODE_STATUS, NameNodeStatusRequest())


def refused(process: subprocess.Popen[bytes], log: Path) -> str:
    """Wait until a node ended because none takes it in; return the one line that says why."""
    assert process.wait(60) == 1
    said = log.read_text()
    assert "Traceback" not in said
    (line,) = [line for line in said.splitlines() if REFUSED in line]
    return line


def copied(cluster: LocalCluster, folder: Path) -> NodeStatus:
    """Copy the volume of the one DataNode; return what the NameNode says of that node."""
    (own,), (volume,) = cluster.status().datanodes, cluster.datanodes[0].volumes
    shutil.copytree(volume, folder)
    return own


def asks(log: Path) -> bool:
    """True once a node looks for a NameNode that is down."""
    return "NameNode does not answer" in log.read_text()


def files(folder: Path) -> dict[Path, bytes]:
    """All that a volume keeps of its blocks, and its name."""
    found = (path for path in folder.rglob("*") if path.is_file())
    kept = (path for path in found if path.name.startswith("blk_") or path.name == "VERSION")
    return {path: path.read_bytes() for path in kept}


def test_a_datanode_of_another_cluster_is_refused_with_one_line(
    cluster: LocalCluster, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with LocalCluster(datanodes=1, path=tmp_path / "theirs", settings=HEARTBEAT) as theirs:
        (volume,) = theirs.datanodes[0].volumes
        wait_until(lambda: "cluster=" in (volume / "VERSION").read_text(), what="it belongs there")
        theirs.datanodes[0].stop()
        name = "node=".join((volume / "VERSION").read_text().split("node=")[1:]).split()[0]
    log = tmp_path / "log"
    held = files(volume)
    with node(log, *datanode(cluster, volume, name)) as stranger:
        line = refused(stranger, log)
        assert f"this is {standing(cluster).cluster}" in line
        assert files(volume) == held, "nothing of it was changed"
        (own,) = cluster.status().datanodes
        assert own.address == cluster.datanodes[0].address
        wait_until(lambda: standing(cluster).alarm_count == 1, what="it is an alarm")
        capfd.readouterr()
        assert run(["admin", "report", "--namenodes", cluster.namenode.address]) == 0
        alarms = [each for each in capfd.readouterr().out.splitlines() if "Alarm" in each]
        assert len(alarms) == 1
        assert f"DataNode {name}: it is of cluster" in alarms[0]
    assert standing(cluster).alarm_count == 1


@pytest.mark.plain("a DataNode has the id of its certificate")
@pytest.mark.parametrize("place", ["..", "current"])
def test_a_datanode_lays_no_volume_around_or_into_that_of_another(
    cluster: LocalCluster, tmp_path: Path, place: str
) -> None:
    (volume,) = cluster.datanodes[0].volumes
    folder, log = (volume / place).resolve(), tmp_path / "log"
    before = sorted(folder.iterdir())
    with node(log, *datanode(cluster, folder, "other")) as process:
        assert process.wait(60) == 1
    line = log.read_text().splitlines()[-1]
    assert f"{folder} and {volume.resolve()}, which is a volume already" in line
    assert sorted(folder.iterdir()) == before


@pytest.mark.plain("a DataNode has the id of its certificate")
def test_a_datanode_that_would_be_silent_too_long_is_refused_with_one_line(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    config, log = tmp_path / "slow.toml", tmp_path / "log"
    config.write_text('[datanode]\nheartbeat_interval = "1h"\n')
    words = (*datanode(cluster, tmp_path / "new", "slow"), "--config", str(config))
    with node(log, *words) as process:
        line = refused(process, log)
    assert "heartbeat_interval = 3600s is more than datanode_stale_after = 2s" in line
    assert [each.node for each in standing(cluster).datanodes] == ["datanode-0"]


def test_a_second_process_of_the_same_id_is_refused_and_the_first_goes_on(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    (own,) = cluster.status().datanodes
    log = tmp_path / "log"
    with node(log, *datanode(cluster, tmp_path / "second", own.node)) as second:
        line = refused(second, log)
        assert f"another process of this name lives at {own.address}" in line
        with Client(cluster.url) as client, client.create("/a", replication=1) as out:
            out.write(b"all")
        assert [each.address for each in cluster.status().datanodes] == [own.address]


def test_a_copy_of_a_volume_does_not_take_the_place_of_the_volume(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    own, log = copied(cluster, tmp_path / "copy"), tmp_path / "log"
    with node(log, *datanode(cluster, tmp_path / "copy", own.node)) as copy:
        assert f"another process of this name lives at {own.address}" in refused(copy, log)
        assert [each.address for each in cluster.status().datanodes] == [own.address]
    cluster.datanodes[0].kill()
    with node(log, *datanode(cluster, tmp_path / "copy", own.node)) as copy:
        wait_until(
            lambda: cluster.status().datanodes[0].address != own.address,
            what="the copy takes its place",
        )
        assert copy.poll() is None
    # What comes back with the volume itself is a restart.
    cluster.datanodes[0].start()
    wait_until(
        lambda: cluster.status().datanodes[0].address == own.address, what="the first is back"
    )


def test_a_copy_of_a_live_nodes_volume_is_registered_for_no_moment_and_deletes_nothing(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    with Client(cluster.url) as client:
        for number in range(FILES):
            with client.create(f"/{number}", replication=1) as out:
                out.write(bytes(70_000))  # more than a small replica: a file on disk
        folder, log = tmp_path / "copy", tmp_path / "log"
        own = copied(cluster, folder)
        held = files(folder)
        assert len(held) > FILES
        with node(log, *datanode(cluster, folder, own.node)) as copy:
            for number in range(FILES):
                client.delete(f"/{number}")
                with suppress(subprocess.TimeoutExpired):
                    copy.wait(0.05)  # the Deletes go out while it begins and is refused
            assert f"another process of this name lives at {own.address}" in refused(copy, log)
        assert files(folder) == held, "it carried out no Delete"
    said = cluster.namenode.log.read_text()
    assert said.count("DataNode registered") == 1
    assert "Traceback" not in said


def test_a_copy_that_is_the_first_to_come_to_a_namenode_that_started_is_nobody(
    tmp_path: Path,
) -> None:
    """The node itself comes with its next heartbeat, as seldom as they are by default; the copy
    asks all the time. It is nobody for no moment, and carries out no Delete."""
    eager = tmp_path / "eager.toml"
    eager.write_text('[datanode]\nheartbeat_interval = "50ms"\n')
    with LocalCluster(datanodes=1, path=tmp_path / "ours") as cluster:
        with Client(cluster.url) as client, client.create("/big", replication=1) as out:
            out.write(bytes(70_000))
        folder = tmp_path / "copy"
        own = copied(cluster, folder)
        held = files(folder)
        for log in (tmp_path / "log-1", tmp_path / "log-2", tmp_path / "log-3"):
            cluster.namenode.kill()
            words = (*datanode(cluster, folder, own.node), "--config", str(eager))
            with node(log, *words) as copy:
                wait_until(partial(asks, log), what="it asks for a place")
                cluster.namenode.start()
                assert f"another process of this name lives at {own.address}" in refused(copy, log)
            # One that serves nobody yet may note whoever comes; what counts is that of the last.
            _, serves, said = cluster.namenode.log.read_text().rpartition(" serves\n")
            assert serves
            taken = [each for each in said.splitlines() if "DataNode registered" in each]
            assert all(f"address={own.address}" in each for each in taken), taken
        with Client(cluster.url) as client:
            client.delete("/big")
        assert files(folder) == held


def test_a_restart_at_another_port_is_back_before_the_one_before_it_counts_as_dead(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    (own,) = cluster.status().datanodes
    (volume,) = cluster.datanodes[0].volumes
    cluster.datanodes[0].kill()
    with node(tmp_path / "log", *datanode(cluster, volume, own.node)):
        began_s = time.monotonic()
        wait_until(
            lambda: cluster.status().datanodes[0].address != own.address,
            what="it is back at another port",
        )
        assert time.monotonic() - began_s < 10, "15 s make a node dead"


def test_a_copy_waits_while_the_process_before_it_hangs(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    own, log = copied(cluster, tmp_path / "copy"), tmp_path / "log"
    cluster.datanodes[0].pause()
    with node(log, *datanode(cluster, tmp_path / "copy", own.node)) as copy:
        wait_until(lambda: "it may live" in log.read_text(), what="it is told to wait")
        assert cluster.status().datanodes[0].address == own.address
        cluster.datanodes[0].resume()
        assert f"another process of this name lives at {own.address}" in refused(copy, log)
    assert cluster.namenode.log.read_text().count("DataNode registered") == 1


@pytest.mark.plain("a DataNode has the id of its certificate")
def test_a_node_in_the_folder_of_the_other_role_touches_nothing(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    (volume,) = cluster.datanodes[0].volumes
    (theirs,) = cluster.namenode.volumes
    for folder, words in (
        (theirs, datanode(cluster, theirs, "second")),
        (volume, ("namenode", "--path", str(volume), "--listen", "127.0.0.1:0")),
    ):
        address = (folder / "address").read_text()
        names = {each.name for each in folder.iterdir()}
        command = [sys.executable, "-m", "paxosblock", *words]
        refused = ended(command)
        assert refused.returncode == 1
        (line,) = [each for each in refused.stderr.splitlines() if "is the folder of" in each]
        assert str(folder) in line
        assert (folder / "address").read_text() == address
        assert {each.name for each in folder.iterdir()} == names
