"""LocalCluster: real processes that can be killed, paused and started again, and leave nothing."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.errors import ConfigError, ExistsError, NotFoundError, UnavailableError
from paxosblock.host.process import identify
from paxosblock.net.calls import control
from tests.children import killed_at_the_end
from tests.waiting import wait_until

PARENT = """
import signal
from paxosblock import LocalCluster
with LocalCluster(datanodes=1) as cluster:
    cluster.datanodes[0].pause()
    print(*(node.pid for node in cluster.nodes), cluster.path, flush=True)
    signal.pause()
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """One cluster for the tests that leave it as they found it."""
    with LocalCluster(datanodes=2, volumes=2) as cluster:
        yield cluster


def live(cluster: LocalCluster) -> set[str]:
    return {node.address for node in cluster.status().datanodes if node.state == "live"}


def test_a_cluster_is_ready_when_its_datanodes_are_known(cluster: LocalCluster) -> None:
    assert live(cluster) == {node.address for node in cluster.datanodes}
    assert all(control.healthy(node.address) for node in cluster.nodes)
    assert cluster.url == f"paxosblock://{cluster.namenode.address}"


def test_every_volume_of_a_datanode_is_a_storage(cluster: LocalCluster) -> None:
    storages = {at.storage for node in cluster.status().datanodes for at in node.storages}
    assert len(storages) == 4
    assert [len(node.volumes) for node in cluster.datanodes] == [2, 2]


def test_a_killed_node_comes_back_at_its_port(cluster: LocalCluster) -> None:
    node = cluster.datanodes[0]
    before = node.pid, node.address
    node.kill()
    assert (node.alive, node.exit_code, node.pid) == (False, -signal.SIGKILL, None)
    assert not control.healthy(node.address)
    node.start()
    cluster.wait_registered([node])
    assert node.pid != before[0]
    assert node.address == before[1]


def test_nobody_gets_the_port_of_a_killed_node(cluster: LocalCluster) -> None:
    node = cluster.datanodes[0]
    host, _, port = node.address.rpartition(":")
    node.kill()
    with socket.socket() as other, pytest.raises(OSError, match="already in use"):
        other.bind((host, int(port)))
    node.start()
    cluster.wait_registered([node])


def test_a_stopped_node_closes_by_itself(cluster: LocalCluster) -> None:
    node = cluster.datanodes[1]
    assert node.stop()
    assert node.exit_code == 0
    node.start()
    cluster.wait_registered([node])


def test_a_paused_node_is_silent_until_it_is_resumed(cluster: LocalCluster) -> None:
    node = cluster.datanodes[0]
    node.pause()
    assert node.alive
    assert not control.healthy(node.address, timeout_s=0.2)
    node.resume()
    assert control.healthy(node.address)


def test_a_paused_node_can_be_stopped(cluster: LocalCluster) -> None:
    node = cluster.datanodes[0]
    node.pause()
    assert node.stop()
    node.start()
    cluster.wait_registered([node])


def test_the_namenode_comes_back_and_hears_of_its_datanodes_again(cluster: LocalCluster) -> None:
    address = cluster.namenode.address
    cluster.namenode.kill()
    with pytest.raises(UnavailableError, match=f"cannot connect to {address}"):
        cluster.status(retry_for_s=0)
    cluster.namenode.start()
    cluster.wait_registered()
    assert cluster.namenode.address == address


def test_a_node_that_runs_is_not_started_twice(cluster: LocalCluster) -> None:
    with pytest.raises(ExistsError, match=r"^datanode-0 is running already, as process \d+$"):
        cluster.datanodes[0].start()


def test_the_log_of_a_node_is_kept(cluster: LocalCluster) -> None:
    assert "DataNode registered" in cluster.namenode.log_tail()
    assert cluster.namenode.log == cluster.path / "logs" / "namenode-0.log"


def test_a_temporary_cluster_leaves_nothing() -> None:
    with LocalCluster(datanodes=1) as cluster:
        pids = [node.pid for node in cluster.nodes]
        assert cluster.path.is_dir()
    assert not cluster.path.exists()
    assert all(pid is not None and identify(pid) is None for pid in pids)


def test_a_cluster_in_a_folder_keeps_its_files_and_ports(tmp_path: Path) -> None:
    with LocalCluster(datanodes=1, path=tmp_path) as cluster, Client(cluster.url) as fs:
        with fs.create("/kept", replication=1) as out:
            out.write(b"still here")
        addresses = [node.address for node in cluster.nodes]
    with LocalCluster(datanodes=1, path=tmp_path) as again, Client(again.url) as fs:
        assert [node.address for node in again.nodes] == addresses
        with fs.open("/kept") as file:
            assert file.read() == b"still here"


def test_three_namenodes_keep_their_ports_and_a_secret_for_themselves(tmp_path: Path) -> None:
    with LocalCluster(1, 3, tmp_path) as cluster, Client(cluster.url) as fs:
        fs.mkdirs("/kept")
        addresses = [node.address for node in cluster.nodes]
        secret = (tmp_path / "secret").read_bytes()
        assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600
    found = LocalCluster.at(tmp_path)
    assert len(found.namenodes) == 3
    found.start()
    try:
        assert [node.address for node in found.nodes] == addresses
        assert (tmp_path / "secret").read_bytes() == secret
        with Client(found.url) as fs:
            assert fs.exists("/kept")
    finally:
        found.close()


def test_settings_reach_the_nodes(tmp_path: Path) -> None:
    quick = {"heartbeat_interval": "100ms"}
    limits = {"datanode_dead_after": "900ms", "datanode_stale_after": "600ms"}
    settings = {"namenode": quick | limits, "datanode": quick}
    with LocalCluster(datanodes=1, path=tmp_path, settings=settings) as cluster:
        cluster.datanodes[0].kill()
        wait_until(lambda: cluster.status().datanodes[0].state == "dead", timeout_s=10)


def test_a_wrong_setting_is_quoted_from_the_log(tmp_path: Path) -> None:
    cluster = LocalCluster(path=tmp_path, settings={"namenode": {"lease_sof_limit": "2s"}})
    with pytest.raises(UnavailableError) as caught:
        cluster.start()
    line = str(caught.value)
    assert line.startswith("namenode-0 did not start: namenode: ")
    assert "unknown setting 'lease_sof_limit'; did you mean 'lease_soft_limit'?" in line
    assert "\n" not in line


def test_a_port_in_use_is_one_line_and_nothing_is_left_running(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        cluster = LocalCluster(datanodes=1, path=tmp_path, base_port=port)
        with pytest.raises(UnavailableError) as caught:
            cluster.start()
    assert re.fullmatch(
        rf"namenode-0 did not start: namenode: cannot listen at 127\.0\.0\.1:{port}: "
        r".*address already in use.*",
        str(caught.value),
    )
    assert not cluster.alive


def test_a_datanode_that_fails_ends_the_whole_start(tmp_path: Path) -> None:
    (tmp_path / "datanode-0").mkdir()
    (tmp_path / "datanode-0" / "volume-0").write_text("a file stands in the way")
    cluster = LocalCluster(datanodes=2, path=tmp_path)
    with pytest.raises(Exception, match=r"^cannot make a cluster in .*: File exists$"):
        cluster.start()
    assert not cluster.alive


def test_a_running_cluster_is_found_in_its_folder_and_not_started_twice(tmp_path: Path) -> None:
    with LocalCluster(datanodes=1, path=tmp_path) as cluster:
        found = LocalCluster.at(tmp_path)
        assert [node.pid for node in found.nodes] == [node.pid for node in cluster.nodes]
        with pytest.raises(ExistsError, match=r"its cluster is running already$"):
            found.start()
        assert found.close()
        assert not cluster.alive


def test_pid_files_that_outlived_their_processes_are_not_believed(tmp_path: Path) -> None:
    with LocalCluster(datanodes=1, path=tmp_path) as cluster:
        stale = {file: file.read_bytes() for file in (tmp_path / "run").iterdir()}
        assert len(stale) == 2
        for node in cluster.nodes:
            node.kill()
    for file, content in stale.items():
        # Another process has the number now: this test.
        file.write_text(json.dumps(json.loads(content) | {"pid": os.getpid()}))
    found = LocalCluster.at(tmp_path)
    assert not found.alive
    for node in found.nodes:
        node.kill()  # which must not be us
    found.start()
    assert found.close()


def test_nodes_die_with_a_killed_parent_even_when_paused() -> None:
    command = [sys.executable, "-c", PARENT]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    with killed_at_the_end(process) as parent:
        assert parent.stdout is not None
        namenode, datanode, path = parent.stdout.readline().split()
        nodes = [identify(int(pid)) for pid in (namenode, datanode)]
        parent.kill()
    for node in nodes:
        assert node is not None
        assert node.wait(10)
    for file in sorted(Path(path).rglob("*"), reverse=True):  # no process was left to do it
        file.rmdir() if file.is_dir() else file.unlink()
    Path(path).rmdir()


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (
            partial(LocalCluster, namenodes=2),
            "namenodes = 2: an odd number, one, three or five",
        ),
        (
            partial(LocalCluster, datanodes=0),
            "datanodes = 0: a cluster has at least one DataNode",
        ),
        (partial(LocalCluster, volumes=0), "volumes = 0: a DataNode has at least one volume"),
        (partial(LocalCluster, base_port=65534), "base_port = 65534: ports end at 65535"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(
    make: Callable[[], LocalCluster], reason: str
) -> None:
    with pytest.raises(ConfigError, match=f"^{reason}$"):
        make()


def test_a_folder_of_another_cluster_is_refused(tmp_path: Path) -> None:
    with LocalCluster(datanodes=1, path=tmp_path):
        pass
    with pytest.raises(ConfigError, match=r"holds a cluster of 1 DataNodes, not 2$"):
        LocalCluster(datanodes=2, path=tmp_path)
    with pytest.raises(
        ConfigError,
        match=r"holds a cluster of 1 NameNodes, not 3: `paxosblock cluster up .*--grow`",
    ):
        LocalCluster(datanodes=1, namenodes=3, path=tmp_path)


def test_a_folder_without_a_cluster_is_told_apart_from_a_damaged_one(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"no cluster lives in this folder$"):
        LocalCluster.at(tmp_path)
    (tmp_path / "cluster.json").write_text('{"members": 3}')
    with pytest.raises(ConfigError, match=r"cluster\.json does not describe a cluster: "):
        LocalCluster.at(tmp_path)
