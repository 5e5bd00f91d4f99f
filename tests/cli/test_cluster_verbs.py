"""`paxosblock cluster up|down|status`: nodes that outlive the command that started them."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from paxosblock import Client, LocalCluster, NodeStatus
from paxosblock.local.cluster_folder import why_ended
from paxosblock.net.calls.control import healthy
from tests.children import killed_at_the_end
from tests.cli.conftest import Paxosblock
from tests.fork_server import Program, ended
from tests.waiting import wait_until


def up_with(home: Path, datanodes: int) -> tuple[str, ...]:
    """Return the words that start a cluster without a gateway, at any free ports."""
    counts = ("--datanodes", str(datanodes), "--gateways", "0")
    return ("cluster", "up", "--path", str(home), "--base-port", "0", *counts)


@pytest.mark.plain("a secure cluster prints other lines: test_setup_tls.py")
def test_a_cluster_goes_up_is_used_and_goes_down(paxosblock: Paxosblock, home: Path) -> None:
    up = paxosblock(*up_with(home, datanodes=2))
    assert (up.code, up.err) == (0, "")
    *nodes, page, export = up.out.splitlines()
    assert [line.split()[:2] for line in nodes] == [
        ["namenode-0", "up"],
        ["datanode-0", "up"],
        ["datanode-1", "up"],
    ]
    address = export.removeprefix("export PAXOSBLOCK_NAMENODES=")
    assert paxosblock("fs", "ls", "--namenodes", address, "/").code == 0
    assert page == f"status page   http://{address}/"
    with urllib.request.urlopen(page.split()[-1]) as shown:
        assert b"Health" in shown.read()

    status = paxosblock("cluster", "status", "--path", home)
    assert (status.code, status.err) == (0, "")
    namenode, *datanodes = status.out.splitlines()
    assert namenode.endswith("0 files (0 being written), 0 blocks")
    words = r"live, 0 blocks, 0 used, .* free of .*$"
    assert all(re.search(words, line) for line in datanodes)

    down = paxosblock("cluster", "down", "--path", home)
    assert (down.code, down.out) == (0, "3 nodes stopped\n")


def test_a_cluster_comes_up_again_where_it_was(paxosblock: Paxosblock, home: Path) -> None:
    arguments = ("cluster", "up", "--json", "--path", home, "--base-port", "0")
    first = paxosblock(*arguments, "--datanodes", "1", "--gateways", "0")
    assert paxosblock("cluster", "down", "--path", home).code == 0
    again = paxosblock(*arguments)
    local = LocalCluster.at(home)
    for result in (first, again):
        *nodes, page = (json.loads(line) for line in result.out.splitlines())
        assert [node["address"] for node in nodes] == [node.address for node in local.nodes]
        assert page["page"].endswith(f"://{local.namenode.address}/")


def test_status_fails_when_a_node_is_down(paxosblock: Paxosblock, home: Path) -> None:
    paxosblock(*up_with(home, datanodes=2))
    datanode = LocalCluster.at(home).datanodes[1]
    wait_until(datanode.log_tail)  # it writes its lines a moment after it answers
    datanode.kill()
    status = paxosblock("cluster", "status", "--path", home)
    assert status.code == 1
    line = status.out.splitlines()[2]
    assert line.startswith("datanode-1    down 127.0.0.1:")
    assert "  ended without a word, as by SIGKILL or for want of memory, after 20" in line
    LocalCluster.at(home).namenode.kill()
    status = paxosblock("cluster", "status", "--path", home)
    assert status.code == 1
    assert [line.split()[1] for line in status.out.splitlines()] == ["down", "up", "down"]


@pytest.mark.parametrize(
    ("last_line", "why"),
    [
        ("", "ended without a word, as by SIGKILL or for want of memory"),
        ("2026-11-27T10:52:20.453Z info datanode-0 DataNode closes", "was stopped"),
        ("datanode: /disk1: no space left on device", None),
        ("MemoryError", None),
        ("2026-11-27T10:52:20.453Z error namenode-0 opening failed path=/a", None),
        (
            "2026-11-27T10:52:20.453Z warning datanode-0 all NameNodes are away",
            "ended without a word, as by SIGKILL or for want of memory, after "
            "2026-11-27T10:52:20.453Z",
        ),
    ],
)
def test_the_end_of_a_log_tells_why_its_node_has_ended(last_line: str, why: str | None) -> None:
    assert why_ended(last_line) == (why or last_line)


def test_up_says_what_it_waits_for(paxosblock: Paxosblock, home: Path) -> None:
    up = up_with(home, datanodes=1)
    assert paxosblock(*up).code == 0
    namenode = LocalCluster.at(home).namenode
    namenode.pause()
    try:
        process = subprocess.Popen(
            [sys.executable, "-m", "paxosblock", *up], stderr=subprocess.PIPE, text=True
        )
        with process:
            assert process.stderr is not None
            assert process.stderr.readline() == "up: waiting: no NameNode leads\n"
            namenode.resume()
            assert process.wait(30) == 0
    finally:
        namenode.resume()


def test_status_shows_which_of_three_namenodes_leads(paxosblock: Paxosblock, home: Path) -> None:
    up = up_with(home, datanodes=1)
    assert paxosblock(*up, "--namenodes", "3").code == 0
    status = paxosblock("cluster", "status", "--path", home)
    assert (status.code, status.err) == (0, "")
    roles = [line.split(maxsplit=5)[5] for line in status.out.splitlines()[:3]]
    leader = "leader, 0 files (0 being written), 0 blocks"
    assert sorted(roles) == ["follower", "follower", leader]
    LocalCluster.at(home).wait_leader().kill()
    LocalCluster.at(home).wait_leader()
    status = paxosblock("cluster", "status", "--path", home)
    assert status.code == 1
    assert sorted(line.split()[1] for line in status.out.splitlines()) == ["down", "up", "up", "up"]


def test_what_is_wrong_with_a_cluster_is_one_line(paxosblock: Paxosblock, home: Path) -> None:
    for verb in ("down", "status"):
        result = paxosblock("cluster", verb, "--path", home)
        line = f"{verb}: '{home}': no cluster lives in this folder\n"
        assert (result.code, result.out, result.err) == (1, "", line)
    up = up_with(home, datanodes=1)
    assert paxosblock(*up).code == 0
    result = paxosblock("cluster", "restart", "--path", home, "nothing")
    line = "restart: 'nothing': no such node: there are namenode-0, datanode-0\n"
    assert (result.code, result.out, result.err) == (1, "", line)
    assert paxosblock("cluster", "down", "--path", home).code == 0
    result = paxosblock("cluster", "down", "--path", home)
    assert (result.code, result.err) == (1, f"down: '{home}': its cluster is not running\n")
    result = paxosblock("cluster", "env", "--path", home)
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith(f"env: '{home}': its cluster is not running: start it with ")


@pytest.mark.plain("a secure cluster prints other lines: test_setup_tls.py")
def test_up_starts_what_is_down_and_leaves_alone_what_runs(
    paxosblock: Paxosblock, home: Path
) -> None:
    up = up_with(home, datanodes=2)
    first = paxosblock(*up)
    assert first.code == 0
    assert paxosblock(*up) == first
    LocalCluster.at(home).datanodes[1].kill()
    again = paxosblock(*up)
    assert (again.code, again.err) == (0, "")
    *same, _, page, export = first.out.splitlines()
    *unchanged, started, same_page, last = again.out.splitlines()
    assert (unchanged, same_page, last) == (same, page, export)
    assert started.split()[:2] == ["datanode-1", "up"]
    assert paxosblock("cluster", "status", "--path", home).code == 0
    env = paxosblock("cluster", "env", "--path", home)
    assert (env.code, env.out) == (0, f"{export}\n")


def test_restart_stops_nodes_and_starts_them_where_they_were(
    paxosblock: Paxosblock, home: Path
) -> None:
    paxosblock(*up_with(home, datanodes=2))
    before = {node.name: (node.address, node.pid) for node in LocalCluster.at(home).nodes}
    LocalCluster.at(home).datanodes[1].kill()
    restart = paxosblock("cluster", "restart", "--path", home, "namenode-0", "datanode-1")
    assert (restart.code, restart.err) == (0, "")
    assert [line.split()[0] for line in restart.out.splitlines()] == ["namenode-0", "datanode-1"]
    after = {node.name: (node.address, node.pid) for node in LocalCluster.at(home).nodes}
    assert {name: address for name, (address, _) in after.items()} == {
        name: address for name, (address, _) in before.items()
    }
    assert [name for name in before if before[name] == after[name]] == ["datanode-0"]
    assert paxosblock("cluster", "status", "--path", home).code == 0


def test_the_global_option_meant_as_a_number_is_refused(paxosblock: Paxosblock, home: Path) -> None:
    result = paxosblock("--namenodes", "3", "cluster", "up", "--path", home)
    assert (result.code, result.out) == (2, "")
    assert "type 'paxosblock cluster up --namenodes 3'. Try" in result.err
    assert result.err.count("\n") == 1
    assert not home.exists()


def test_a_port_in_use_is_one_line(paxosblock: Paxosblock, home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = paxosblock("cluster", "up", "--path", home, "--base-port", str(port))
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith("up: namenode-0 did not start: namenode: cannot listen at")
    assert result.err.count("\n") == 1


def test_a_node_runs_in_the_foreground_until_sigterm(tmp_path: Path) -> None:
    words = ["namenode", "--listen", "127.0.0.1:0", "--path", str(tmp_path)]
    command = [sys.executable, "-m", "paxosblock", *words]
    address = tmp_path / "address"
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    with killed_at_the_end(process):
        wait_until(address.exists, what="the node to be ready")
        assert healthy(address.read_text().strip())
        process.terminate()
        _, log = process.communicate(timeout=30)
    assert process.returncode == 0
    assert not address.exists()
    assert f" {socket.gethostname()}:{tmp_path} NameNode serves " in log


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("namenode", "--listen", "nowhere"), "namenode: 'nowhere' is not an address"),
        (("namenode", "--listen", "127.0.0.1:0", "--config", "c.toml"), "namenode: c.toml: "),
        (("datanode", "--namenodes", "x:y"), "datanode: 'x:y': 'y' is no port"),
        (("datanode", "--namenodes", "x", "--path", "."), "datanode: --path .,.: name each"),
    ],
)
def test_a_node_that_cannot_start_says_why_in_one_line(
    tmp_path: Path, words: tuple[str, ...], line: str
) -> None:
    (tmp_path / "c.toml").write_text("[namenode]\nnonsense = 1\n")
    command = [sys.executable, "-m", "paxosblock", *words, "--path", "."]
    node = ended(command, cwd=tmp_path)
    assert (node.returncode, node.stdout) == (1, "")
    assert node.stderr.startswith(line)
    assert node.stderr.count("\n") == 1


def test_the_secret_file_may_be_named_by_the_environment(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "paxosblock", "namenode", "--path", "."]
    peers = "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"
    command += ["--listen", "127.0.0.1:1", "--peers", peers]
    environment = os.environ | {"PAXOSBLOCK_SECRET_FILE": "nowhere"}
    node = ended(command, cwd=tmp_path, env=environment)
    told = "namenode: nowhere: No such file or directory\n"
    assert (node.returncode, node.stdout, node.stderr) == (1, "", told)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--listen", "0.0.0.0:0"], "0.0.0.0:0 leads whoever dials it to himself. The NameNode at"),
        (
            ["--listen", "127.0.0.1:0"],
            "127.0.0.1:0 leads whoever dials it to himself. The NameNode",
        ),
        (["--listen", "0.0.0.0:0", "--advertise", "[::]:1"], "[::]:1 leads whoever dials it"),
        (["--listen", "0.0.0.0:0", "--advertise", "dn1:0"], "--advertise dn1:0: name the port"),
        (["--listen", "0.0.0.0:0", "--advertise", "dn1"], "'dn1' is not an address"),
    ],
)
def test_a_datanode_that_nobody_else_would_reach_does_not_start(
    tmp_path: Path, options: list[str], why: str
) -> None:
    words = ["--path", "dn", "--namenodes", "nn.invalid:1", "--insecure", *options]
    refused = ended([sys.executable, "-m", "paxosblock", "datanode", *words], cwd=tmp_path)
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"datanode: {why}")
    assert not (tmp_path / "dn").exists()


@pytest.mark.plain("a certificate names its DataNode, which makes no id")
def test_a_datanode_is_reached_by_the_address_that_it_advertises(tmp_path: Path) -> None:
    """It listens at every address, and makes its own id, which its folder keeps."""
    soon = {"datanode_stale_after": "1s", "datanode_dead_after": "2s"}
    with LocalCluster(1, settings={"namenode": soon}) as cluster, Client(cluster.url) as fs:
        cluster.datanodes[0].stop()
        ids = [id_of_one_that_advertises(cluster, fs, tmp_path) for _ in range(2)]
    assert ids[0] == ids[1]
    assert re.fullmatch(re.escape(socket.gethostname()) + "-[0-9a-f]{8}", ids[0])


def id_of_one_that_advertises(cluster: LocalCluster, fs: Client, tmp_path: Path) -> str:
    """Start the only DataNode, write a file there, and stop it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    listen = ["--listen", f"0.0.0.0:{port}", "--advertise", f"127.0.0.1:{port}", "--insecure"]
    command = [sys.executable, "-m", "paxosblock", "datanode", "--path", str(tmp_path / "dn")]
    command += ["--namenodes", ",".join(cluster.addresses), *listen]

    def registered() -> NodeStatus | None:
        found = (node for node in cluster.status().datanodes if node.state == "live")
        return next((node for node in found if node.address == f"127.0.0.1:{port}"), None)

    with killed_at_the_end(Program[bytes](command, stderr=subprocess.DEVNULL)) as process:
        found = wait_until(registered, what="the DataNode to register")
        with fs.create("/a", overwrite=True, replication=1) as out:
            out.write(b"there")
        process.terminate()
        assert process.wait(30) == 0
    wait_until(lambda: registered() is None, what="its end to be noticed")
    return found.node
