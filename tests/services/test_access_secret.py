"""A cluster with an access secret: real processes that know it, and some that do not."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.cli.main import run
from paxosblock.config import ClientConfig
from paxosblock.errors import AccessDeniedError
from paxosblock.namenode.backups import take_backup
from paxosblock.net.port.access import Access
from tests.fork_server import Program
from tests.net.relay import relay_in_thread
from tests.services.conftest import wait_other_leader
from tests.waiting import wait_until

pytestmark = pytest.mark.plain("the secret by itself; inside TLS: test_tls.py")

OLD, NEW = b"the first secret of this cluster", b"the secret that comes after that"
SIZE = 300_000
DATA = bytes(range(250)) * (SIZE // 250)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    return written(tmp_path / "access", OLD)


@pytest.fixture
def cluster(tmp_path: Path, secret: Path) -> Iterator[LocalCluster]:
    file = {"access_file": str(secret)}
    settings = {"namenode": file, "datanode": {**file, "heartbeat_interval": "200ms"}}
    with LocalCluster(3, 3, tmp_path / "cluster", settings=settings) as cluster:
        yield cluster


def written(file: Path, *secrets: bytes) -> Path:
    file.write_text("".join(f"{secret.hex()}\n" for secret in secrets))
    file.chmod(0o600)
    return file


def knowing(secret: Path) -> ClientConfig:
    return ClientConfig(access_file=str(secret), chunk_size=20_000, retry_for_s=20.0)


def read(fs: Client) -> bytes:
    with fs.open("/a") as file:
        return file.read()


def test_files_are_written_recovered_and_read_by_those_who_know_the_secret(
    cluster: LocalCluster, secret: Path
) -> None:
    data = DATA
    with Client(cluster.url, knowing(secret)) as fs:
        with fs.create("/a") as out:
            out.write(data[: SIZE // 2])
            out.hflush()
            cluster.datanodes[0].kill()
            out.write(data[SIZE // 2 :])
        assert read(fs) == data
        cluster.datanodes[0].start()
        leader = cluster.wait_leader()
        leader.kill()
        wait_other_leader(cluster, leader)
        with fs.append("/a") as out:
            out.write(data)
        assert read(fs) == data + data

    with Client(cluster.url) as stranger, pytest.raises(AccessDeniedError, match="access secret"):
        stranger.stat("/a")


def test_who_has_the_port_of_a_dead_node_cannot_pass_on_what_callers_prove_there(
    cluster: LocalCluster, secret: Path
) -> None:
    with (
        relay_in_thread(cluster.wait_leader().address) as dead,
        Client(f"paxosblock://{dead}", knowing(secret)) as fs,
        pytest.raises(AccessDeniedError, match=f"wanted the node at '{dead}'"),
    ):
        fs.ls("/")


def test_whoever_answers_a_backup_gets_a_token_of_no_use_and_is_not_believed(
    cluster: LocalCluster, secret: Path, tmp_path: Path
) -> None:
    access, asked = Access.of(str(secret)), []

    class Stranger(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(dict(self.headers))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Stranger) as stranger:
        Thread(target=stranger.handle_request).start()
        address = f"127.0.0.1:{stranger.server_port}"
        with pytest.raises(AccessDeniedError, match="has no access secret, and we have one"):
            take_backup(address, tmp_path / "theirs", "cluster", access)
    leader = cluster.wait_leader().address
    with (
        relay_in_thread(leader) as relayed,
        pytest.raises(AccessDeniedError, match=f"wanted the node at '{relayed}'"),
    ):
        take_backup(relayed, tmp_path / "relayed", "cluster", access)
    (headers,) = asked
    for kept in (headers, {"Authorization": headers["Authorization"]}):
        with pytest.raises(HTTPError, match="403"):
            urlopen(Request(f"http://{leader}/backup", headers=kept), timeout=30)
    assert take_backup(leader, tmp_path / "ours", "cluster", access).entry > 0


def test_commands_read_the_secret_whose_file_is_in_the_environment(
    cluster: LocalCluster,
    secret: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PAXOSBLOCK_NAMENODES", ",".join(cluster.addresses))
    for words in (
        ["fs", "ls", "/"],
        ["admin", "report"],
        ["fs", "cat", "/a"],
        ["admin", "token", "list"],
    ):
        assert run(words) == 1
        said = capfd.readouterr().err
        assert "access secret" in said
        assert said.count("\n") == 1

    monkeypatch.setenv("PAXOSBLOCK_ACCESS_FILE", str(secret))
    assert run(["fs", "mkdir", "/d"]) == 0
    assert run(["fs", "put", str(secret), "/d/a"]) == 0
    assert run(["fs", "cat", "/d/a"]) == 0
    assert run(["explain", "/d/a"]) == 0
    assert run(["admin", "report"]) == 0
    assert "Access " not in capfd.readouterr().out
    assert run(["admin", "backup", str(tmp_path / "backup")]) == 0
    assert run(["admin", "token", "issue", "--for", "1min", "--rights", "backup"]) == 0
    *_, token = capfd.readouterr().out.split()

    backup = Request(f"http://{cluster.wait_leader().address}/backup")
    with pytest.raises(HTTPError, match="403"):
        urlopen(backup, timeout=30)
    backup.add_header("Authorization", f"Bearer {token}")
    with urlopen(backup, timeout=30) as given:
        assert given.status == 200
    for path in ("healthz", "metrics"):
        with urlopen(f"http://{cluster.datanodes[0].address}/{path}", timeout=30) as shown:
            assert shown.status == 200
            assert path == "healthz" or b"access_open 0.0" in shown.read()


def test_the_secret_is_changed_while_the_cluster_runs(
    cluster: LocalCluster, secret: Path, tmp_path: Path
) -> None:
    old = written(tmp_path / "old", OLD)
    new = written(tmp_path / "new", NEW)
    with Client(cluster.url, knowing(old)) as before, Client(cluster.url, knowing(new)) as after:
        for secrets in ((OLD, NEW), (NEW,)):
            written(secret, *secrets)
            for node in cluster.nodes:
                node.stop()
                node.start()
                cluster.wait_leader()
            cluster.wait_registered()
            fs = before if OLD in secrets else after
            with fs.create("/a", overwrite=True) as out:
                out.write(DATA)
            assert read(after) == DATA


def test_a_datanode_with_another_secret_is_not_taken_in_and_says_why(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    environment = os.environ | {"PAXOSBLOCK_ACCESS_FILE": str(written(tmp_path / "new", NEW))}
    log = tmp_path / "log"
    words = ["datanode", "--namenodes", ",".join(cluster.addresses), "--listen", "127.0.0.1:0"]
    command = [sys.executable, "-m", "paxosblock", *words, "--path", str(tmp_path / "volume")]
    with open(log, "wb") as out:
        process = Program(command, stderr=out, env=environment)
    try:
        wait_until(lambda: "has another access secret than ours" in log.read_text())
    finally:
        process.terminate()
        process.wait(30)
    assert len(cluster.status().datanodes) == 3
    assert "Traceback" not in log.read_text()
