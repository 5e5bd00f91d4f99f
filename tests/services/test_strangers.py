"""Strangers at the ports of a cluster that has no access secret."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.api.namenode import DELETE, DeletePath
from paxosblock.base.encoding import encode
from paxosblock.cli.main import run
from paxosblock.host.user import claimed_user
from paxosblock.net.wire import decode_error
from tests.children import killed_at_the_end
from tests.fork_server import Program, ended
from tests.waiting import wait_until

pytestmark = pytest.mark.plain("clusters without a secret and without certificates")

MSGPACK = {"Content-Type": "application/msgpack", "Access-User": claimed_user()}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(1, 1, tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def fs(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster.url) as fs:
        yield fs


@pytest.mark.parametrize(
    ("headers", "words"),
    [
        (MSGPACK | {"Origin": "http://evil"}, "a page in a browser may not ask here"),
        (MSGPACK | {"Host": "evil:9870"}, "'evil:9870' is no name of this node"),
        ({"Content-Type": "text/plain"}, "Content-Type: application/msgpack"),
    ],
)
def test_a_page_in_a_browser_deletes_nothing(
    cluster: LocalCluster, fs: Client, headers: dict[str, str], words: str
) -> None:
    fs.mkdirs("/d")
    with pytest.raises(HTTPError) as refused:
        delete(cluster, headers)
    assert re.search(words, str(decode_error(refused.value.read())))
    assert fs.exists("/d")


def test_a_program_deletes_over_http(cluster: LocalCluster, fs: Client) -> None:
    fs.mkdirs("/d")
    delete(cluster, MSGPACK)
    assert not fs.exists("/d")


def delete(cluster: LocalCluster, headers: dict[str, str]) -> None:
    url = f"http://{cluster.namenode.address}/rpc/{DELETE.name}"
    body = encode(DeletePath(path="/d", recursive=True))
    with urlopen(Request(url, body, headers, method="POST"), timeout=30) as answered:
        assert answered.status == 200


def test_a_page_in_a_browser_gets_no_backup_of_the_catalog(cluster: LocalCluster) -> None:
    backup = Request(f"http://{cluster.namenode.address}/backup", headers={"Host": "evil"})
    with pytest.raises(HTTPError, match="403"):
        urlopen(backup, timeout=30)


def test_no_other_user_of_the_machine_may_look_into_what_nodes_keep_and_say(
    cluster: LocalCluster,
) -> None:
    for node in cluster.nodes:
        assert stat.S_IMODE(node.log.stat().st_mode) == 0o640
        for volume in node.volumes:
            assert stat.S_IMODE(volume.stat().st_mode) == 0o700
            modes = {each: each.stat().st_mode for each in volume.rglob("*")}
            assert modes
            assert not [each for each, mode in modes.items() if mode & 0o077]


def test_a_node_that_crashes_leaves_no_file_with_its_secrets(tmp_path: Path) -> None:
    words = ["namenode", "--path", str(tmp_path / "node"), "--listen", "127.0.0.1:0"]
    allowed = ["sh", "-c", 'ulimit -S -c "$(ulimit -H -c)" && exec "$@"', "sh"]
    command = [*allowed, sys.executable, "-m", "paxosblock", *words]
    with killed_at_the_end(subprocess.Popen(command)) as node:
        wait_until((tmp_path / "node" / "address").exists, what="the node to listen")
        limits = Path(f"/proc/{node.pid}/limits").read_text()
        assert re.search(r"^Max core file size +0 ", limits, re.MULTILINE)


def test_an_open_cluster_says_that_it_is(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for node in cluster.nodes:
        with urlopen(f"http://{node.address}/metrics", timeout=30) as shown:
            assert f"paxosblock_{node.member.role.value}_access_open 1.0" in shown.read().decode()
    monkeypatch.setenv("PAXOSBLOCK_NAMENODES", cluster.namenode.address)
    assert run(["admin", "report"]) == 0
    assert "Access    open: whoever reaches the ports is served" in capfd.readouterr().out


NODES = {
    "namenode": ("namenode",),
    "datanode": ("datanode", "--namenodes", "127.0.0.1:9"),
}


@pytest.mark.parametrize("words", NODES.values(), ids=NODES.keys())
@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "some.machine"])
def test_a_node_without_a_secret_does_not_listen_beyond_its_machine(
    tmp_path: Path, words: tuple[str, ...], host: str
) -> None:
    command = [sys.executable, "-m", "paxosblock", *words, "--path", str(tmp_path / "node")]
    refused = ended([*command, "--listen", f"{host}:0"])  # in a minute: one that listens goes on
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"{words[0]}: whoever reaches {host}:0 may read and delete")
    assert refused.stderr.count("\n") == 1
    assert not (tmp_path / "node").exists()


@pytest.mark.parametrize("protected", [True, False], ids=["with a secret", "--insecure"])
def test_a_node_listens_beyond_its_machine_with_a_secret_or_on_the_users_word(
    tmp_path: Path, protected: bool
) -> None:
    assert run(["setup", "secret", str(tmp_path / "access")]) == 0
    words = ["namenode", "--path", str(tmp_path / "node"), "--listen", "0.0.0.0:0"]
    environment = dict(os.environ)
    if protected:
        environment["PAXOSBLOCK_ACCESS_FILE"] = str(tmp_path / "access")
    else:
        words.append("--insecure")
    node = Program([sys.executable, "-m", "paxosblock", *words], env=environment)
    with killed_at_the_end(node):
        wait_until((tmp_path / "node" / "address").exists, what="the node to listen")
