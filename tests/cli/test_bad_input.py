"""Anything that goes wrong reaches the user of the command as one line.

Real processes all the way: wrong paths and words are in the tests of each verb.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.config import ClientConfig
from paxosblock.net.port.upgrade import split_address
from tests.cli.conftest import Paxosblock, Result

HERE = os.fspath(Path(__file__).parent)


def assert_one_line(result: Result, *parts: str) -> None:
    assert (result.code, result.out) == (1, "")
    assert result.err.count("\n") == 1, result.err
    for part in parts:
        assert part in result.err


def test_the_port_of_a_datanode_is_one_line_that_names_it(
    cluster: LocalCluster, paxosblock: Paxosblock
) -> None:
    address = cluster.datanodes[0].address
    result = paxosblock("fs", "ls", "--namenodes", address, "/")
    assert_one_line(result, f"ls: '/': {address}: there is no control call")


def test_a_second_writer_of_a_file_gets_one_line_and_the_first_goes_on(
    fs: Paxosblock, client: Client, folder: str, tmp_path: Path
) -> None:
    local = tmp_path / "local"
    local.write_bytes(b"theirs")
    with client.create(f"{folder}/a") as out:
        out.write(b"mine")
        out.hflush()
        assert_one_line(fs("put", "-f", "-d", local, f"{folder}/a"), f"put: '{folder}/a': is being")
        assert_one_line(fs("put", local, f"{folder}/a"), f"put: '{folder}/a': file exists")
    with client.open(f"{folder}/a") as file:
        assert file.read() == b"mine"


def test_full_disks_are_one_line_and_nothing_is_left(
    paxosblock: Paxosblock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PAXOSBLOCK_CLIENT_RETRY_FOR", "1s")
    local = tmp_path / "local"
    local.write_bytes(b"12345")
    with LocalCluster(datanodes=1, settings={"datanode": {"reserved_space": "900TiB"}}) as cluster:
        where = ("--namenodes", cluster.namenode.address)
        result = paxosblock(*where, "fs", "put", local, "/a")
        assert_one_line(result, f"put: '{local}': no place for a block", "1 full")
        assert paxosblock(*where, "fs", "ls", "/") == Result(0, "", "")


def test_a_file_whose_name_is_no_text_is_one_line_and_goes_in_under_another(
    fs: Paxosblock, client: Client, folder: str, tmp_path: Path
) -> None:
    local = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    Path(local).write_bytes(b"12345")
    told = f"put: '{folder}/\\udcff': is no valid Unicode text\n"
    assert fs("put", local, folder) == Result(1, "", told)
    assert fs("put", local, f"{folder}/a") == Result(0, "", "")
    with client.open(f"{folder}/a") as file:
        assert file.read() == b"12345"
    result = fs("get", "--json", f"{folder}/a", local)
    assert json.loads(result.err)["path"].endswith("/\\udcff")


@contextmanager
def babbling_at(address: str) -> Iterator[None]:
    """A server that answers every connection with garbage."""
    with socket.create_server(split_address(address)) as server:

        def babble() -> None:
            while True:
                try:
                    peer, _ = server.accept()
                except OSError:
                    return
                with peer:
                    peer.recv(1000)
                    peer.sendall(b"\x00\x01 garbage\r\n\r\n")

        talker = threading.Thread(target=babble)
        talker.start()
        yield
        server.shutdown(socket.SHUT_RDWR)
        talker.join()


def test_a_datanode_that_answers_garbage_is_passed_over_or_one_line(
    paxosblock: Paxosblock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAXOSBLOCK_CLIENT_RETRY_FOR", "1s")
    with LocalCluster(datanodes=2) as cluster:
        where = ("--namenodes", cluster.namenode.address)
        with Client(cluster.url) as client:
            with client.create("/two", replication=2) as out:
                out.write(b"12345")
            with client.create("/one", replication=1) as out:
                out.write(b"12345")
                (member,) = client.blocks.get(out.hflush().block).members
        (garbled,) = [node for node in cluster.datanodes if node.address == member.address]
        garbled.kill()
        with babbling_at(garbled.address):
            assert paxosblock(*where, "fs", "cat", "/two") == Result(0, "12345", "")
            assert_one_line(
                paxosblock(*where, "fs", "cat", "/one"), "cat: '/one': ", garbled.address
            )


@pytest.fixture
def jobs(
    cluster: LocalCluster, paxosblock: Paxosblock, monkeypatch: pytest.MonkeyPatch
) -> Paxosblock:
    """Run `paxosblock spark` on the shared cluster, on a machine without Java."""
    monkeypatch.setenv("JAVA_HOME", "/no/java/here")
    return partial(paxosblock, "--namenodes", cluster.namenode.address, "spark")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["fsck", "--deep", "/nothing/here"], "fsck: '/nothing/here': no such file"),
        (["compact", "/nothing/here"], "compact: '/nothing/here': no such file"),
        (["compact", "/file-among-jobs"], "compact: '/file-among-jobs': is a file"),
        (["distcp", "/nothing/here", "/x"], "distcp: '/nothing/here': no such file"),
        (["distcp", HERE, "/file-among-jobs"], "distcp: '/file-among-jobs': is a file"),
    ],
)
def test_a_job_that_makes_no_sense_is_refused_without_starting_java(
    client: Client, jobs: Paxosblock, words: list[str], told: str
) -> None:
    client.create("/file-among-jobs", overwrite=True).close()
    assert_one_line(jobs(*words), told)


@pytest.mark.parametrize(
    "words", [["fsck", "--deep", "/"], ["compact", "/"], ["distcp", HERE, "/x"]]
)
def test_a_job_on_a_cluster_that_does_not_answer_is_refused_at_once(
    paxosblock: Paxosblock, words: list[str]
) -> None:
    begun = time.monotonic()
    result = paxosblock("--namenodes", "127.0.0.1:1", "--timeout", "0s", "spark", *words)
    assert_one_line(result, "127.0.0.1:1", "connection refused")
    assert time.monotonic() - begun < ClientConfig().retry_for_s / 2


OTHER = "paxosblock://other:9870/x"


@pytest.mark.parametrize(
    "words",
    [
        ("rm", OTHER),
        ("rm", "-r", OTHER),
        ("mv", "/x", OTHER),
        ("mv", OTHER, "/y"),
        ("cat", OTHER),
        ("put", __file__, OTHER),
        ("concat", "/x", OTHER),
    ],
)
def test_a_url_of_another_cluster_is_refused_beside_the_flag(
    paxosblock: Paxosblock, cluster: LocalCluster, client: Client, words: tuple[str, ...]
) -> None:
    with client.create("/x", overwrite=True) as out:
        out.write(b"ours")
    verb, *arguments = words
    result = paxosblock("fs", verb, "--namenodes", cluster.namenode.address, *arguments)
    assert result.code == 1
    (line,) = result.err.splitlines()
    assert f"other:9870 is no NameNode of the cluster {cluster.namenode.address}" in line
    assert client.open("/x").read() == b"ours"


def test_a_command_works_in_one_cluster(
    paxosblock: Paxosblock,
    cluster: LocalCluster,
    client: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with client.create("/x", overwrite=True) as out:
        out.write(b"ours")
    result = paxosblock("fs", "mv", OTHER, f"{cluster.url}/x")
    assert (result.code, client.exists("/x")) == (1, True)
    assert "is no NameNode of the cluster" in result.err
    monkeypatch.setenv("PAXOSBLOCK_NAMENODES", "usual:9870")
    result = paxosblock("fs", "rm", f"{cluster.url}/y", "/x")
    assert (result.code, client.exists("/x")) == (1, True)
    assert "rm: '/x': usual:9870 is no NameNode of the cluster" in result.err
    assert paxosblock("fs", "rm", f"{cluster.url}/x").code == 0
    assert not client.exists("/x")


def test_a_url_may_name_the_cluster_by_another_name_of_this_machine(
    paxosblock: Paxosblock, cluster: LocalCluster, client: Client
) -> None:
    url = cluster.url.replace("127.0.0.1", "localhost")
    assert paxosblock("fs", "ls", "--namenodes", cluster.namenode.address, f"{url}/").code == 0
