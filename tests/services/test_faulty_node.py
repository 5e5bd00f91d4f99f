"""The disks that other tests break: what is said of them happens to the real node, and ends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from paxosblock import Client
from paxosblock.errors import UnavailableError
from tests.disks.faults import SYNCS, WRITES, Fault
from tests.services.faulty_node import FaultyCluster
from tests.waiting import wait_until


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[FaultyCluster]:
    with FaultyCluster(datanodes=1, path=tmp_path / "cluster") as cluster:
        yield cluster


def test_a_sync_is_late_until_the_fault_is_over(cluster: FaultyCluster) -> None:
    (node,) = cluster.datanodes
    data = os.urandom(5000)
    with (
        Client(cluster.url) as fs,
        fs.create("/file", replication=1) as out,
        ThreadPoolExecutor(1) as pool,
    ):
        cluster.break_disk(node, Fault(SYNCS, path="/rbw/", delay_s=60.0))
        out.write(data)
        flushed = pool.submit(out.hflush)
        wait_until(lambda: cluster.met(node), what="a sync to be met")
        assert not flushed.done()
        cluster.mend_disk(node)
        assert flushed.result(timeout=30).size == len(data)


def test_only_what_a_fault_concerns_is_met_and_only_so_often(cluster: FaultyCluster) -> None:
    cluster.break_disk(
        cluster.namenode,
        Fault(WRITES, path="/no-such-file", error="EIO"),
        Fault(SYNCS, path="/raft/", delay_s=0.001, times=2),
    )
    with Client(cluster.url) as fs:
        for number in range(5):
            fs.mkdirs(f"/{number}")
    met = cluster.met(cluster.namenode)
    assert len(met) == 2
    assert all(line.startswith("fdatasync ") and "/raft/journal-" in line for line in met)


def test_what_fails_is_told_by_its_name_and_path(cluster: FaultyCluster) -> None:
    (node,) = cluster.datanodes
    node.kill()
    cluster.break_disk(node, Fault(("open",), path="/lock", error="EIO", times=1))
    with pytest.raises(UnavailableError, match="Input/output error"):
        node.start()
    (met,) = cluster.met(node)
    assert met.startswith("open /")
    assert met.endswith("/lock")
