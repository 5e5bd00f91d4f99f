"""A secure cluster: real processes that speak TLS, and what an eavesdropper and others get."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.cli.main import run
from paxosblock.config import ClientConfig
from paxosblock.errors import AccessDeniedError
from paxosblock.host.user import current_user
from paxosblock.net.calls import control
from tests.certificates import Certificates
from tests.services.conftest import wait_other_leader
from tests.waiting import wait_until

pytestmark = pytest.mark.plain("certificates are its own subject")

SETTINGS = {"datanode": {"heartbeat_interval": "200ms"}}
MARK = b"these words are of those who may read them. "
SIZE = 300_000
DATA = (MARK * (SIZE // len(MARK) + 1))[:SIZE]
NAME = "/a-name-for-those-who-may-see-it"
ALL_FRAMES = 3
"""ETH_P_ALL of the kernel: what leaves and what comes, of each protocol."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with LocalCluster(3, 3, folder, settings=SETTINGS, secure=True) as cluster:
        yield cluster


def config_of(cluster: LocalCluster) -> ClientConfig:
    return _quick(cluster.client_config)


def _quick(config: ClientConfig) -> ClientConfig:
    return replace(config, chunk_size=20_000, retry_for_s=20.0)


def write_and_read(cluster: LocalCluster, name: str = NAME) -> None:
    with Client(cluster.url, config_of(cluster)) as fs:
        with fs.create(name, overwrite=True) as out:
            out.write(DATA)
        with fs.open(name) as file:
            assert file.read() == DATA


def test_files_are_written_recovered_and_read_over_tls(cluster: LocalCluster) -> None:
    with Client(cluster.url, config_of(cluster)) as fs:
        with fs.create("/f") as out:
            out.write(DATA[: SIZE // 2])
            out.hflush()
            cluster.datanodes[0].kill()
            out.write(DATA[SIZE // 2 :])
        cluster.datanodes[0].start()
        leader = cluster.wait_leader()
        leader.kill()
        wait_other_leader(cluster, leader)
        with fs.append("/f") as out:
            out.write(DATA)
        with fs.open("/f") as file:
            assert file.read() == DATA + DATA
        leader.start()
        cluster.wait_registered()


@contextlib.contextmanager
def eavesdropping() -> Iterator[list[bytes]]:
    """Give all that goes over loopback meanwhile."""
    heard: list[bytes] = []
    try:
        ear = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_FRAMES))
    except OSError as error:
        pytest.skip(f"no eavesdropping here: {error}")
    with ear:
        ear.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 20)
        ear.bind(("lo", 0))
        ear.settimeout(0.2)
        over = threading.Event()

        def hear() -> None:
            while not over.is_set():
                with contextlib.suppress(TimeoutError):
                    heard.append(ear.recv(1 << 17))

        listening = threading.Thread(target=hear)
        listening.start()
        try:
            yield heard
        finally:
            over.set()
            listening.join()


def test_an_eavesdropper_hears_no_byte_of_a_file_and_no_name(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    with eavesdropping() as heard:
        write_and_read(cluster)
    assert len(b"".join(heard)) > 4 * SIZE  # to three replicas, and back once
    assert not any(MARK in frame or NAME[1:].encode() in frame for frame in heard)

    with (
        LocalCluster(1, 1, tmp_path / "plain", settings=SETTINGS) as plain,
        eavesdropping() as heard,
    ):
        write_and_read(plain)
    assert any(MARK in frame for frame in heard)
    assert any(NAME[1:].encode() in frame for frame in heard)


def test_those_without_a_certificate_of_this_cluster_get_nothing(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    others = Certificates(tmp_path / "others", "local")
    ca = cluster.client_config.tls_ca
    strangers = {
        "the node speaks TLS only": ClientConfig(),
        "show a certificate of this cluster": ClientConfig(tls_ca=ca),
        "no authority in tls_ca": ClientConfig(tls_cert=others.user(), tls_ca=others.ca),
    }
    for words, config in strangers.items():
        with (
            Client(cluster.url, _quick(config)) as stranger,
            pytest.raises(AccessDeniedError, match=words),
        ):
            stranger.mkdirs("/theirs")
    with Client(cluster.url, config_of(cluster)) as fs:
        assert not fs.exists("/theirs")


def test_certificates_are_replaced_under_load_without_an_error_and_a_restart(
    cluster: LocalCluster,
) -> None:
    processes = [node.pid for node in cluster.nodes]
    stop, errors, rounds = threading.Event(), list[BaseException](), [0, 0]

    def load(number: int) -> None:
        try:
            while not stop.is_set():
                write_and_read(cluster, f"/load-{number}-{rounds[number] % 5}")
                rounds[number] += 1
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=load, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    ca, cert = Path(cluster.client_config.tls_ca), Path(cluster.client_config.tls_cert)
    others = Certificates(cluster.path / "other", "local")
    try:
        both = ca.read_bytes() + Path(others.ca).read_bytes()
        _replace(ca, both)
        _wait_rounds(rounds, errors)
        user = Path(others.user(current_user()))
        _replace(cert, user.read_bytes())
        for node in cluster.nodes:
            name = "namenode" if node in cluster.namenodes else node.name
            _replace(ca.parent / f"{node.name}.pem", Path(others.node(name)).read_bytes())
            _wait_rounds(rounds, errors)
        _replace(ca, Path(others.ca).read_bytes())
        _wait_rounds(rounds, errors)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert errors == []
    assert [node.pid for node in cluster.nodes] == processes
    for node in cluster.nodes:
        if node in cluster.namenodes:
            assert cluster.namenode_status(node) is not None


def _wait_rounds(rounds: list[int], errors: list[BaseException]) -> None:
    """Wait until each of those that write has done so twice since."""
    before = list(rounds)
    wait_until(
        lambda: errors or all(now >= was + 2 for now, was in zip(rounds, before, strict=True)),
        what="files that are written meanwhile",
    )


def _replace(file: Path, data: bytes) -> None:
    fresh = file.with_name(f".{file.name}")
    fresh.write_bytes(data)
    fresh.chmod(0o600)
    fresh.replace(file)


def test_commands_read_the_files_that_the_environment_names(
    cluster: LocalCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PAXOSBLOCK_NAMENODES", ",".join(cluster.addresses))
    for words in (["fs", "ls", "/"], ["admin", "report"], ["fs", "cat", "/a"]):
        assert run(words) == 1
        said = capfd.readouterr().err
        assert "the node speaks TLS only" in said
        assert said.count("\n") == 1

    monkeypatch.setenv("PAXOSBLOCK_TLS_CERT", cluster.client_config.tls_cert)
    monkeypatch.setenv("PAXOSBLOCK_TLS_CA", cluster.client_config.tls_ca)
    local = tmp_path / "file"
    local.write_bytes(DATA)
    assert run(["fs", "mkdir", "/d"]) == 0
    assert run(["fs", "put", str(local), "/d/a"]) == 0
    assert run(["fs", "cat", "/d/a"]) == 0
    assert run(["explain", "/d/a"]) == 0
    assert run(["admin", "report"]) == 0
    assert "Access " not in capfd.readouterr().out
    assert run(["admin", "backup", str(tmp_path / "backup")]) == 0


def test_a_cluster_that_runs_is_brought_over_one_node_after_the_other(tmp_path: Path) -> None:
    """Each node gets its certificate by a restart, then a second one makes TLS required."""
    ours = Certificates(tmp_path / "tls")
    with LocalCluster(1, 3, tmp_path / "cluster", settings=SETTINGS) as cluster:
        config = tmp_path / "cluster" / "config.toml"
        user = ClientConfig(tls_cert=ours.user(current_user()), tls_ca=ours.ca, tls_required=False)
        plain = ClientConfig()
        for required in ("false", "true"):
            text = f'tls_ca = "{ours.ca}"\ntls_required = {required}\ntls_cert ='
            config.write_text(
                f'[namenode]\n{text} "{ours.node()}"\n'
                f'[datanode]\nheartbeat_interval = "200ms"\n{text} "{ours.node("datanode-0")}"\n'
            )
            for node in cluster.nodes:
                node.stop()
                node.start()
                for client in (user, plain) if required == "false" else (user,):
                    with Client(cluster.url, _quick(client)) as fs:
                        with fs.create("/f", overwrite=True) as out:
                            out.write(DATA)
                        with fs.open("/f") as file:
                            assert file.read() == DATA
        for node in cluster.nodes:
            assert not control.healthy(node.address)
