"""A snapshot before a new version, and the ways to end it: real processes."""

from __future__ import annotations

import contextlib
import io
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.cli.main import run
from paxosblock.client.blocking.sync import FileWriter
from paxosblock.config import ClientConfig
from paxosblock.errors import NotFoundError, PaxosBlockError
from paxosblock.local.cluster_folder import NodeEntry, NodeKind
from paxosblock.local.node_process import Node
from tests.files import read
from tests.fork_server import ended
from tests.waiting import wait_until

SETTINGS = {
    "client": {"retry_for": "5s"},
    "datanode": {"heartbeat_interval": "200ms"},
}
SOON = ClientConfig(retry_for_s=1)
KEPT, APPENDED, HALF = b"kept " * 9000, b"first " * 9000, b"half " * 9000
CUT = b"cut " * 9000
SNAPSHOT = "keeps the snapshot of an upgrade"


class Cluster(LocalCluster):
    """Its DataNodes are started with these options more."""

    more: tuple[str, ...] = ()

    def command(self, member: NodeEntry) -> list[str]:
        """Return the command line of a member."""
        return super().command(member) + (
            list(self.more) if member.role is NodeKind.DATANODE else []
        )


def cluster_in(path: Path, *more: str) -> Cluster:
    """The cluster of this folder, not started."""
    cluster = Cluster(datanodes=3, path=path, settings=SETTINGS, volumes=2)
    cluster.more = more
    return cluster


def datanode(cluster: LocalCluster, node: Node, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a DataNode's command to its end."""
    return ended([*cluster.command(node.member), *words])


def report(cluster: LocalCluster) -> str:
    """Return what `admin report` shows."""
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        run(["admin", "report", "--namenodes", cluster.namenode.address])
    return shown.getvalue()


def fill(fs: Client) -> FileWriter:
    """A closed file, one that is appended to later, and one whose writer vanishes."""
    for path, data in (("/kept", KEPT), ("/appended", APPENDED)):
        with fs.create(path) as out:
            out.write(data)
    with fs.create("/cut", chunk_size=1000) as out:
        out.write(CUT)
    half = fs.create("/half")
    half.write(HALF)
    half.hflush()
    return half


def change(fs: Client) -> None:
    """Write, append, truncate, take over and delete."""
    fs.truncate("/cut", 5000)
    with fs.append("/appended") as out:
        out.write(b"second")
    fs.take_over("/half")
    fs.delete("/kept")
    with fs.create("/new") as out:
        out.write(b"new")


def check_as_before(fs: Client) -> None:
    """All is as `fill` left it."""
    assert read(fs, "/kept") == KEPT
    assert read(fs, "/appended") == APPENDED
    assert read(fs, "/cut") == CUT
    fs.take_over("/half")
    assert read(fs, "/half") == HALF
    with pytest.raises(NotFoundError):
        fs.stat("/new")


@dataclass(frozen=True)
class Upgraded:
    """The folder of a cluster that was upgraded, changed and stopped."""

    path: Path
    namenode_before: Path
    """A copy of its NameNode's folder, made before the upgrade."""


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Upgraded, Path]:
    """One that no test changes, in the second folder; in its own there may be anything."""
    folder = tmp_path_factory.mktemp("upgraded")
    path, copy = folder / "cluster", folder / "copy"
    with cluster_in(path) as cluster, Client(cluster.url, SOON) as fs:
        half = fill(fs)
        for node in cluster.nodes:
            node.stop()
        with contextlib.suppress(PaxosBlockError):
            half.close()
    shutil.copytree(cluster.namenode.volumes[0], copy)
    with cluster_in(path, "--upgrade") as cluster, Client(cluster.url) as fs:
        change(fs)
        wait_until(lambda: report(cluster).count(SNAPSHOT) == 3, what="all tell of it")
        log = cluster.datanodes[0].log.read_text()
        assert log.count("a snapshot is kept until --rollback or --finalize-upgrade") == 2
    shutil.copytree(path, folder / "kept")
    return Upgraded(path, copy), folder / "kept"


@pytest.fixture
def upgraded(kept: tuple[Upgraded, Path]) -> Upgraded:
    """A cluster of which each test finds all as the upgrade left it."""
    made, as_it_was = kept
    shutil.rmtree(made.path)
    shutil.copytree(as_it_was, made.path)
    return made


def test_a_cluster_that_was_upgraded_goes_back_as_a_whole_and_not_otherwise(
    upgraded: Upgraded,
) -> None:
    cluster = cluster_in(upgraded.path)
    for node in cluster.datanodes:
        asked = datanode(cluster, node, "--rollback")
        assert (asked.returncode, asked.stdout) == (2, "")
        assert asked.stderr.count("\n") == 1
        assert "add --yes" in asked.stderr
        done = datanode(cluster, node, "--rollback", "--yes")
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("what was written since is gone") == 2
        assert not any((volume / "previous").exists() for volume in node.volumes)

    # The NameNode was not rolled back: it knows of promises that the DataNodes have forgotten.
    cluster.namenode.start()
    refused = datanode(cluster, cluster.datanodes[0])
    assert refused.returncode == 1
    assert "was rolled back and this cluster was not" in refused.stderr.splitlines()[-1]
    assert "was rolled back and this cluster was not" in report(cluster)
    cluster.namenode.stop()

    shutil.rmtree(cluster.namenode.volumes[0])
    shutil.copytree(upgraded.namenode_before, cluster.namenode.volumes[0])
    with cluster_in(upgraded.path) as cluster, Client(cluster.url) as fs:
        check_as_before(fs)
        assert SNAPSHOT not in report(cluster)
        with fs.create("/again") as out:
            out.write(b"again")
        assert read(fs, "/again") == b"again"


def test_a_namenode_that_went_back_alone_takes_in_no_datanode(upgraded: Upgraded) -> None:
    cluster = cluster_in(upgraded.path)
    shutil.rmtree(cluster.namenode.volumes[0])
    shutil.copytree(upgraded.namenode_before, cluster.namenode.volumes[0])
    cluster.namenode.start()
    refused = datanode(cluster, cluster.datanodes[0])
    cluster.namenode.stop()
    assert refused.returncode == 1
    assert "or the other way round" in refused.stderr.splitlines()[-1]


def test_an_upgrade_is_finalized_beside_the_running_node_and_then_there_is_no_way_back(
    upgraded: Upgraded,
) -> None:
    with cluster_in(upgraded.path) as cluster, Client(cluster.url) as fs:
        wait_until(lambda: report(cluster).count(SNAPSHOT) == 3, what="it is kept")
        node = cluster.datanodes[0]
        in_use = datanode(cluster, node, "--rollback", "--yes")
        assert in_use.returncode == 1
        assert "in use by another process" in in_use.stderr
        for each in cluster.datanodes:
            done = datanode(cluster, each, "--finalize-upgrade")
            assert (done.returncode, done.stdout.count("the snapshot is removed")) == (0, 2)
        wait_until(lambda: SNAPSHOT not in report(cluster), what="it is gone")
        assert read(fs, "/appended") == APPENDED + b"second"
        assert read(fs, "/half") == HALF
        again = datanode(cluster, node, "--finalize-upgrade")
        assert (again.returncode, again.stderr.count("no snapshot here")) == (1, 1)
        node.stop()
        back = datanode(cluster, node, "--rollback", "--yes")
        assert (back.returncode, back.stderr.count("no snapshot here")) == (1, 1)
        node.start()
        cluster.wait_registered()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--upgrade", "--rollback"), "--upgrade and --rollback exclude each other"),
        (("--rollback", "--finalize-upgrade"), "--rollback and --finalize-upgrade exclude each"),
        (("--yes",), "--yes goes with --rollback"),
        (("--upgrade", "--yes"), "--yes goes with --rollback"),
        ((), "Missing option '--namenodes'"),
    ],
)
def test_options_that_do_not_go_together_are_refused_in_one_line(
    words: tuple[str, ...],
    said: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PAXOSBLOCK_NAMENODES", raising=False)
    assert run(["datanode", "--path", str(tmp_path / "dn"), *words]) == 2
    error = capfd.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not (tmp_path / "dn").exists()
