"""`paxosblock fsck` where blocks are lost: real processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.base.units import KIB
from paxosblock.cli.main import run
from paxosblock.errors import PaxosBlockError
from paxosblock.local.node_process import Node
from tests.files import read
from tests.services.test_leaving_nodes import QUICK, WITHIN_S, named, nodes, write
from tests.waiting import wait_until


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalCluster]:
    with LocalCluster(datanodes=3, settings=QUICK) as cluster:
        monkeypatch.setenv("PAXOSBLOCK_NAMENODES", ",".join(cluster.addresses))
        yield cluster


def fsck(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    capfd.readouterr()
    code = run(["fsck", *arguments])
    return code, capfd.readouterr().out


def data_files(node: Node) -> Iterator[Path]:
    """The data of the replicas of a DataNode, but for short ones."""
    for volume in node.volumes:
        found = (volume / "current").rglob("blk_*")
        yield from (
            path for path in found if path.suffix != ".meta" and path.stat().st_size > 100 * KIB
        )


def test_a_block_whose_last_replica_is_gone_is_missing_and_its_file_can_be_deleted(
    cluster: LocalCluster, capfd: pytest.CaptureFixture[str]
) -> None:
    with Client(cluster.url) as fs:
        safe = write(fs, "/safe")
        write(fs, "/lost")
        assert run(["fs", "setrep", "-w", "1", "/lost"]) == 0
        assert fsck(capfd, "/")[0] == 0
        (only,) = nodes(cluster, "/lost")
        named(cluster, only).kill()
        wait_until(
            lambda: "'/lost': MISSING block " in fsck(capfd)[1],
            timeout_s=WITHIN_S,
            what="the block to be missing",
        )
        code, told = fsck(capfd, "/")
        assert code == 1
        assert "Status: CORRUPT" in told
        assert "The filesystem under path '/' is CORRUPT" in told
        assert "'/safe': MISSING" not in told
        assert fsck(capfd, "/safe")[0] == 0
        code, told = fsck(capfd, "/", "--delete-corrupt", "--yes")
        assert "Deleted /lost" in told
        assert not fs.exists("/lost")
        assert read(fs, "/safe") == safe
        assert fsck(capfd, "/")[0] == 0


def test_a_block_whose_only_replica_is_damaged_is_corrupt(
    cluster: LocalCluster, capfd: pytest.CaptureFixture[str]
) -> None:
    with Client(cluster.url) as fs:
        write(fs, "/damaged")
        assert run(["fs", "setrep", "-w", "1", "/damaged"]) == 0
        (only,) = nodes(cluster, "/damaged")
        for path in data_files(named(cluster, only)):
            with path.open("r+b") as file:
                file.seek(-1000, os.SEEK_END)
                byte = file.read(1)
                file.seek(-1, os.SEEK_CUR)
                file.write(bytes([byte[0] ^ 1]))
        with pytest.raises(PaxosBlockError):
            read(fs, "/damaged")
        wait_until(
            lambda: "'/damaged': CORRUPT block " in fsck(capfd)[1],
            timeout_s=WITHIN_S,
            what="the block to be corrupt",
        )
        assert fsck(capfd, "/")[0] == 1
