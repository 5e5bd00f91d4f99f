"""`fsck`: what it finds when replicas on real disks are damaged behind their DataNodes' backs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from paxosblock import Client, LocalCluster
from paxosblock.base.units import MIB
from paxosblock.cli.spark_reports import fsck_lines
from paxosblock.client.check import ReplicaHealth
from paxosblock.client.spark.job_token import NO_TOKEN
from paxosblock.client.spark.jobs import deep_fsck as job
from paxosblock.client.spark.jobs.deep_fsck import (
    BlockHealth,
    Checked,
    FsckReport,
    check_units,
    units_of,
)
from paxosblock.errors import NotFoundError
from tests.spark.unstarted import no_spark
from tests.waiting import wait_until


@pytest.fixture
def own_cluster() -> Iterator[LocalCluster]:
    """These tests damage what other tests must find sound."""
    with LocalCluster(datanodes=3) as cluster:
        yield cluster


def put(fs: Client, path: str, data: bytes) -> int:
    """Write a file of one block; its number, once every replica is finalized."""
    with fs.create(path) as out:
        out.write(data)
        block = out.hflush().block
    wait_until(lambda: fs.blocks.get(block).complete)
    return block


def replicas(cluster: LocalCluster, block: int) -> list[Path]:
    """The block files of all finalized replicas."""

    def found() -> list[Path]:
        return [
            path
            for node in cluster.datanodes
            for volume in node.volumes
            for path in volume.glob(f"current/**/blk_{block}")
        ]

    wait_until(lambda: len(found()) == 3, what=f"three finalized replicas of block {block}")
    return found()


def check(cluster: LocalCluster, fs: Client, path: str) -> Checked:
    """Return what one task would find in a short file."""
    (unit,) = units_of(fs.stat(path))
    (found,) = check_units(cluster.addresses, NO_TOKEN, [unit])
    return found


def test_a_sound_tree_is_healthy_and_every_replica_was_read(
    spark: SparkSession, cluster: LocalCluster, fs: Client
) -> None:
    sizes = (0, 1, 3 * MIB)
    for size in sizes:
        put_all(fs, f"/healthy/deep/{size}", size)
    report = job.fsck(spark, cluster.addresses, "/healthy")
    assert (report.files, report.healthy, report.being_written) == (3, True, ())
    assert (report.blocks, report.replicas) == (2, 6)
    assert report.bytes_read == 3 * sum(sizes)


def put_all(fs: Client, path: str, size: int) -> None:
    with fs.create(path) as out:
        out.write(os.urandom(size))


def test_a_bit_flipped_on_one_disk_impairs_the_block_and_is_mended(
    spark: SparkSession, own_cluster: LocalCluster
) -> None:
    with Client(own_cluster.url) as fs:
        block = put(fs, "/a/flipped", os.urandom(MIB))
        put(fs, "/a/sound", b"sound")
        flip_a_bit(replicas(own_cluster, block)[1])
        report = job.fsck(spark, own_cluster.addresses, "/a")
        (finding,) = report.findings
        assert (finding.path, finding.block) == ("/a/flipped", block)
        assert (finding.verdict, finding.sound, finding.wanted) == (BlockHealth.IMPAIRED, 2, 3)
        assert [each.health for each in finding.replicas] == [ReplicaHealth.DAMAGED]
        wait_until(lambda: not check(own_cluster, fs, "/a/flipped").findings, 30, "it to be mended")
        assert job.fsck(spark, own_cluster.addresses, "/a").healthy
        told = "\n".join(fsck_lines(report))
        assert "/a/flipped: block" in told
        assert "copied again from a sound one" in told


def flip_a_bit(path: Path) -> None:
    """Damage the bytes of a replica behind its DataNode's back."""
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_END)
        file.write(bytes([byte ^ 4]))


def test_a_block_without_any_sound_replica_is_lost(own_cluster: LocalCluster) -> None:
    with Client(own_cluster.url) as fs:
        for path in replicas(own_cluster, put(fs, "/lost", b"data" * 1000)):
            flip_a_bit(path)
        (finding,) = check(own_cluster, fs, "/lost").findings
        assert (finding.verdict, finding.sound) == (BlockHealth.LOST, 0)


def test_a_datanode_that_is_down_is_unreachable_and_the_other_replicas_are_read(
    own_cluster: LocalCluster,
) -> None:
    with Client(own_cluster.url) as fs:
        put(fs, "/away", b"data")
        own_cluster.datanodes[0].kill()
        (finding,) = check(own_cluster, fs, "/away").findings
        assert (finding.verdict, finding.sound) == (BlockHealth.IMPAIRED, 2)
        assert [each.health for each in finding.replicas] == [ReplicaHealth.UNREACHABLE]


def test_fewer_replicas_than_the_file_asks_for_are_told(cluster: LocalCluster, fs: Client) -> None:
    with fs.create("/short-of-replicas", replication=5) as out:
        out.write(b"data")
    (finding,) = check(cluster, fs, "/short-of-replicas").findings
    assert (finding.verdict, finding.sound, finding.wanted) == (BlockHealth.SHORT, 3, 5)


def test_a_file_that_is_being_written_is_checked_up_to_its_last_decided_block(
    spark: SparkSession, cluster: LocalCluster, fs: Client
) -> None:
    with fs.create("/open/file", block_size=MIB) as out:
        out.write(bytes(MIB + 1))
        out.hflush()
        report = job.fsck(spark, cluster.addresses, "/open")
        assert (report.being_written, report.blocks) == (("/open/file",), 1)
        assert report.healthy


def test_a_file_that_was_deleted_since_it_was_listed_is_no_finding(
    cluster: LocalCluster, fs: Client
) -> None:
    put(fs, "/gone", b"data")
    (unit,) = units_of(fs.stat("/gone"))
    fs.delete("/gone")
    assert list(check_units(cluster.addresses, NO_TOKEN, [unit])) == [Checked(0, 0, 0, ())]


def test_a_long_file_is_checked_by_several_tasks(
    fs: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "UNIT_BYTES", 10)
    put(fs, "/long", bytes(25))
    units = units_of(fs.stat("/long"))
    assert [(unit.start, unit.end) for unit in units] == [(0, 10), (10, 20), (20, 25)]


def test_a_path_that_is_not_there_is_told_before_spark_starts(cluster: LocalCluster) -> None:
    with pytest.raises(NotFoundError):
        job.fsck(no_spark, cluster.addresses, "/no/such/path")


def test_the_last_line_is_the_sum() -> None:
    report = FsckReport("/", 12, 14, 42, 3 * MIB, 1.25, (), ())
    assert list(fsck_lines(report)) == [
        "/: 12 files, 14 blocks, 42 replicas, 3 M read in 1.2 s: healthy"
    ]
