"""Safe mode with real processes: after a start, with a block that is lost, across a fail-over."""

from __future__ import annotations

from pathlib import Path
from urllib.request import urlopen

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.api.status import (
    SAFE_MODE,
    SafeModeAction,
    SafeModeRequest,
    SafeModeStatus,
)
from paxosblock.cli.main import run
from paxosblock.config import ClientConfig
from paxosblock.errors import SafeModeError
from paxosblock.local.node_process import Node
from paxosblock.net.calls import control
from tests.secure import url_of
from tests.services.conftest import QUICK, wait_other_leader
from tests.waiting import wait_until

EAGER = {"namenode": {"safe_mode_extension": "0s", "heartbeat_interval": "100ms"}}
HASTY = ClientConfig(rpc_timeout_s=2.0, retry_for_s=5.0)


def ask(cluster: LocalCluster, action: SafeModeAction = SafeModeAction.GET) -> SafeModeStatus:
    return control.BlockingNameNodes(cluster.addresses).call(SAFE_MODE, SafeModeRequest(action))


def metric(namenode: Node) -> float:
    """Return what a NameNode tells of it in `/metrics`."""
    with urlopen(url_of(namenode.address, "metrics")) as response:
        lines = response.read().decode().splitlines()
    (line,) = (line for line in lines if line.startswith("paxosblock_namenode_safe_mode "))
    return float(line.rpartition(" ")[2])


def test_after_a_start_it_is_on_until_the_datanodes_have_reported(tmp_path: Path) -> None:
    """And files can be made and read meanwhile: only copies and removals wait."""
    settings = {"namenode": EAGER["namenode"] | {"safe_mode_threshold": "1.0"}}
    with LocalCluster(3, 1, tmp_path, settings=settings) as cluster, Client(cluster.url) as fs:
        assert not ask(cluster).on
        for name, replication in (("/a", 1), ("/b", 3)):
            with fs.create(name, replication=replication) as out:
                out.write(b"12345")
        away = [node for node in cluster.datanodes if node.address in fs.locations("/a")[0].hosts]
        for node in away:
            node.kill()
        cluster.namenode.kill()
        cluster.namenode.start()
        wait_until(lambda: ask(cluster).reported == 1, what="the file that others hold, too")
        status = ask(cluster)
        assert (status.on, status.by_hand, status.blocks, status.left_s) == (True, False, 2, None)
        assert metric(cluster.namenode) == 1
        fs.mkdirs("/made-meanwhile")
        for node in away:
            node.start()
        wait_until(lambda: not ask(cluster).on, what="safe mode to end")
        assert metric(cluster.namenode) == 0


def test_a_lost_block_keeps_it_on_until_an_operator_leaves(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with LocalCluster(2, 1, tmp_path, settings=EAGER) as cluster, Client(cluster.url) as fs:
        with fs.create("/a", replication=2) as out:
            out.write(b"12345")
        cluster.namenode.kill()
        for node in cluster.datanodes:
            node.kill()
        cluster.namenode.start()
        status = ask(cluster)
        assert (status.on, status.reported, status.blocks) == (True, 0, 1)
        capfd.readouterr()
        run(["admin", "report", "--namenodes", cluster.namenode.address])
        lines = capfd.readouterr().out.splitlines()
        (told,) = (line for line in lines if line.startswith("Safe mode is ON"))
        assert "have reported 0 of 1 block, 99.9 % are needed; without the rest: `pax" in told
        assert not ask(cluster, SafeModeAction.LEAVE).on
        assert not ask(cluster).on


def test_entered_by_hand_it_outlives_the_leader_and_writers_go_on(cluster: LocalCluster) -> None:
    leader = cluster.wait_leader()
    with Client(cluster.url, QUICK) as fs, Client(cluster.url, HASTY) as hasty:
        with fs.create("/closed") as closed:
            closed.write(b"a finalized block to wait for")
        out = fs.create("/open")
        out.write(b"before")
        out.hflush()
        assert ask(cluster, SafeModeAction.ENTER).by_hand
        with pytest.raises(SafeModeError):
            hasty.mkdirs("/new")
        leader.kill()
        other = wait_other_leader(cluster, leader)
        status = ask(cluster)
        assert (status.by_hand, status.blocks) == (True, 1)
        assert status.left_s != 0.0, "the new leader waits for reports, too"
        assert metric(other) == 1
        with pytest.raises(SafeModeError):
            hasty.create("/new")
        out.write(b" and after")
        out.close()
        with fs.open("/open") as file:
            assert file.read() == b"before and after"
        ask(cluster, SafeModeAction.LEAVE)
        fs.mkdirs("/new")
        leader.start()
        cluster.wait_registered()
