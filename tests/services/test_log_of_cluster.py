"""The logs of a cluster that runs: what stands in them, at which level, and how long they get."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

from paxosblock import MakeDirectory, Rename
from paxosblock.client import Client
from paxosblock.errors import FencedError
from paxosblock.host.user import current_user
from paxosblock.local.cluster import LocalCluster
from paxosblock.local.node_process import Node
from tests.secure import url_of
from tests.waiting import wait_until

FILES = 20
BYTES_PER_FILE = 450
"""In the logs of all nodes together, where a file is put: the line that publishes it. There were
2,200 of them."""


def lines(*nodes: Node) -> list[str]:
    return [line for node in nodes for line in node.log.read_text().splitlines()]


def levels(*nodes: Node) -> set[str]:
    return {line.split()[1] for line in lines(*nodes)}


def facts_of(line: str) -> dict[str, str]:
    return dict(re.findall(r' (\w+)=("[^"]*"|\S+)', line))


def test_small_files_leave_few_lines_and_a_dead_datanode_a_warning() -> None:
    settings = {"namenode": {"datanode_stale_after": "2s", "datanode_dead_after": "3s"}}
    with (
        LocalCluster(datanodes=3, settings=settings) as cluster,
        Client(cluster.url, config=cluster.client_config) as fs,
    ):
        fs.mkdirs("/d")
        before = sum(node.log.stat().st_size for node in cluster.nodes)
        for number in range(FILES):
            with fs.create(f"/d/{number}.new") as file:
                file.write(b"some bytes")
            fs.rename(f"/d/{number}.new", f"/d/{number}")
        wait_until(lambda: f"destination=/d/{FILES - 1}" in cluster.namenode.log.read_text())
        after = sum(node.log.stat().st_size for node in cluster.nodes)
        assert after - before < FILES * BYTES_PER_FILE
        assert levels(*cluster.nodes) == {"info"}, "all went well"
        victim = cluster.datanodes[1]
        victim.kill()
        dead = f" warning {cluster.namenode.name} DataNode is dead datanode={victim.name}"
        wait_until(lambda: dead in cluster.namenode.log.read_text(), what="the dead one to be told")
        victim.start()
        cluster.wait_registered()
        for log in lines(*cluster.nodes):
            assert "=None" not in log


def test_a_line_tells_who_asked_from_the_call_to_the_last_datanode() -> None:
    with (
        LocalCluster(datanodes=2) as cluster,
        Client(cluster.url, config=cluster.client_config, replication=2) as fs,
    ):
        writer = fs.create("/f")
        writer.write(b"some bytes")
        writer.flush()
        fs.take_over("/f")
        fs.transact([MakeDirectory("/made"), Rename("/f", "/made/g")])
        fs.delete("/made/g")
        with pytest.raises(FencedError):
            writer.close()
        wait_until(lambda: "delete path=/made/g" in cluster.namenode.log.read_text())
        did = {line.split()[3]: facts_of(line) for line in lines(cluster.namenode)}
        asked = [did[each] for each in ("take_over", "transact", "delete")]
        for told in asked:
            assert told["user"] == current_user()
            assert told["address"] == "127.0.0.1"
        assert len({told["request"] for told in asked}) == len(asked)
        assert did["transact"]["did"] == '"mkdirs /made; rename /f /made/g"'
        for node in cluster.datanodes:
            wait_until(lambda: 'step="NextGS' in node.log.read_text())  # noqa: B023 - called here
            told = next(facts_of(line) for line in lines(node) if 'step="NextGS' in line)
            assert told["request"] == did["take_over"]["request"]


def test_what_a_datanode_tells_of_a_stream_names_who_opened_it() -> None:
    """The bytes of a file come on another connection than the calls about it."""
    with (
        LocalCluster(datanodes=2, settings={"datanode": {"log_level": "debug"}}) as cluster,
        Client(cluster.url, config=cluster.client_config, replication=2) as fs,
    ):
        fs.mkdirs("/d")
        with fs.create("/d/f") as writer:
            writer.write(b"some bytes")
            writer.flush()
        wait_until(lambda: "mkdirs path=/d " in cluster.namenode.log.read_text())
        asked = next(facts_of(line) for line in lines(cluster.namenode) if " mkdirs " in line)
        for node in cluster.datanodes:
            wait_until(lambda: "step=Create " in node.log.read_text())  # noqa: B023 - called here
            told = next(facts_of(line) for line in lines(node) if "step=Create " in line)
            assert (told["user"], told["address"]) == (current_user(), "127.0.0.1")
            # The names of one process are counted.
            assert 0 < int(told["request"], 16) - int(asked["request"], 16) < 1000


def test_lines_of_json_are_objects_and_the_log_is_bounded() -> None:
    each: dict[str, str | int] = {
        "log_format": "json",
        "log_level": "debug",
        "log_file_size": "8KiB",
        "log_files": 2,
    }
    with LocalCluster(datanodes=1, settings={"namenode": each, "datanode": each}) as cluster:
        with Client(cluster.url, config=cluster.client_config, replication=1) as fs:
            for number in range(150):
                fs.mkdirs(f"/d{number}")
        node, log = cluster.namenode, cluster.namenode.log
        wait_until(lambda: '"/d149"' in log.read_text() + Path(f"{log}.1").read_text())
        node.stop()
        assert node.why_down == "was stopped"
        kept = sorted(each.name for each in log.parent.iterdir() if each.name.startswith(log.name))
        assert kept == [log.name, f"{log.name}.1"]
        for file in (log, Path(f"{log}.1")):
            assert file.stat().st_size < 2 * 8 * 1024
            found = [json.loads(line) for line in file.read_text().splitlines()]
            assert {told["node"] for told in found} == {node.name}
        assert found[-1].keys() >= {"time", "level", "message", "path", "user", "request"}


@pytest.mark.parametrize("to_file", [False, True])
def test_a_disk_full_of_logs_stops_nothing(tmp_path: Path, to_file: bool) -> None:
    command = [sys.executable, "-m", "paxosblock", "namenode", "--listen", "127.0.0.1:0"]
    command += ["--path", str(tmp_path / "nn"), "--log-level", "debug"]
    command += ["--log-file", "/dev/full"] if to_file else []
    with (
        Path("/dev/full").open("w") as full,
        subprocess.Popen(command, stderr=subprocess.DEVNULL if to_file else full) as node,
    ):
        address = tmp_path / "nn" / "address"
        try:
            wait_until(lambda: address.exists() or node.poll() is not None)
            with Client(f"paxosblock://{address.read_text().strip()}") as fs:
                for number in range(300):
                    fs.mkdirs(f"/d{number}")
            with urlopen(url_of(address.read_text().strip(), "healthz"), timeout=30) as health:
                assert health.status == 200
        finally:
            node.send_signal(signal.SIGTERM)
        assert node.wait(30) == 0
