"""The checks after a chaos campaign's failures notice when something is not as it should be."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.protocol.types import Durability
from tests.services.chaos import checks
from tests.services.chaos.application import Told
from tests.services.chaos.failures import flip_bit
from tests.services.chaos.writers import Writer
from tests.services.content import content

PATH = "/file"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(3, path=tmp_path_factory.mktemp("checks")) as cluster:
        yield cluster


@pytest.fixture
def fs(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster.url) as fs:
        yield fs


@pytest.fixture
def writer(cluster: LocalCluster, tmp_path: Path) -> Iterator[Writer]:
    """Idle; its file is new for each test."""
    writer = Writer(cluster.url, f"/{tmp_path.name}", Durability.DISK, tmp_path, idle=True)
    writer.wait_created()
    writer.give_turn()
    yield writer
    writer.kill()


def test_a_file_shorter_than_its_last_flush_is_noticed(fs: Client, writer: Writer) -> None:
    assert checks.check_bytes(fs, writer) == writer.acknowledged
    now_s = time.monotonic()
    writer.told.append(Told(writer.acknowledged + 1, now_s, now_s))
    with pytest.raises(AssertionError, match="were acknowledged"):
        checks.check_bytes(fs, writer)


def test_bytes_of_another_file_are_noticed(fs: Client, writer: Writer) -> None:
    with fs.create(writer.path + "-other") as out:
        out.write(content("/something else", 0, writer.acknowledged))
    writer.path += "-other"
    with pytest.raises(AssertionError, match="differs at byte 0 "):
        checks.check_bytes(fs, writer)


def test_a_node_that_needs_a_restart_and_a_block_without_all_members_are_noticed(
    cluster: LocalCluster, fs: Client
) -> None:
    checks.wait_whole(cluster)
    away = cluster.datanodes[0]
    away.kill()
    (trouble,) = checks.troubles(cluster)
    assert trouble.startswith("datanode-0 has ended")
    with fs.create(PATH) as out:
        out.write(b"on two of three")
        out.hflush()
        with pytest.raises(AssertionError, match="has 2 members"):
            checks.check_members(fs, PATH, checks.blocks_of(fs, PATH)[-1:])
    away.start()
    checks.wait_whole(cluster)
    checks.check_new_file(fs, "/probe")


@pytest.mark.parametrize("small", [False, True])
def test_a_damaged_replica_is_noticed_and_comes_back(
    cluster: LocalCluster, fs: Client, *, small: bool
) -> None:
    path = f"/damaged-{small}"
    data = content(path, 0, 1000)
    with fs.create(path) as out:
        out.write(data)
        if not small:
            out.hflush()
    (block,) = checks.blocks_of(fs, path)
    checks.check_replicas(fs, [block])
    volume = cluster.datanodes[1].volumes[0]
    if small:
        assert not list(volume.glob(f"*/blk_{block}*"))
        (log,) = (log for log in volume.glob("small/log_*") if data in log.read_bytes())
        with log.open("r+b") as opened:
            opened.seek(log.read_bytes().index(data))
            opened.write(bytes([data[0] ^ 1]))
    else:
        (file,) = volume.glob(f"current/blk_{block}")
        flip_bit(file)
    assert fs.blocks.check(block).sound_count == 2
    assert checks.wait_replicas(fs) > 0
    assert fs.blocks.check(block).sound_count == 3
