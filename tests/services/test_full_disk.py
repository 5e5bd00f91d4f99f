"""Real nodes on a real file system that has no room left in the middle of the work."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.base.units import MIB
from paxosblock.client.blocking.sync import FileWriter
from paxosblock.config import ClientConfig
from paxosblock.errors import (
    NoSpaceError,
    PaxosBlockError,
)
from paxosblock.local.node_process import Node
from paxosblock.net.calls import control
from paxosblock.protocol.types import ChunkIndex, Generation, StorageId
from tests.services.conftest import wait_other_leader
from tests.services.small_disk import SmallDisk, small_disk
from tests.waiting import wait_until

SETTINGS = {
    "namenode": {"heartbeat_interval": "100ms", "block_size": "8MiB"},
    "datanode": {"heartbeat_interval": "100ms", "reserved_space": "0B"},
}
PATIENT = ClientConfig(block_size=8 * MIB, retry_for_s=20.0)
QUICK = ClientConfig(retry_for_s=5.0)
IMPATIENT = ClientConfig(block_size=8 * MIB, retry_for_s=1.0)
NO_ROOM = "No space left on device"


SILENT = {
    "namenode": {"datanode_stale_after": "100s", "datanode_dead_after": "200s"},
    "datanode": {"heartbeat_interval": "60s"},
}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    folder = tmp_path / "small"
    folder.mkdir()
    with small_disk(folder) as found:
        if found is None:
            pytest.skip("no right to mount, no user namespaces, and /dev/shm is large")
        yield found


def place(node: Node, disk: SmallDisk) -> None:
    """Let the node keep its files on the small disk; it was not started yet."""
    (folder,) = node.volumes
    home = disk.folder / node.name
    home.mkdir()
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.symlink_to(home)


@pytest.fixture
def one_small(disk: SmallDisk, tmp_path: Path) -> Iterator[LocalCluster]:
    """Four DataNodes, the first on the small disk."""
    cluster = LocalCluster(datanodes=4, path=tmp_path / "cluster", settings=SETTINGS)
    place(cluster.datanodes[0], disk)
    with cluster:
        yield cluster


@pytest.fixture
def all_small(disk: SmallDisk, tmp_path: Path) -> Iterator[LocalCluster]:
    """Three DataNodes, all on the small disk; the NameNode has room."""
    cluster = LocalCluster(datanodes=3, path=tmp_path / "cluster", settings=SETTINGS)
    for node in cluster.datanodes:
        place(node, disk)
    with cluster:
        yield cluster


def storage_of(cluster: LocalCluster, node: Node) -> StorageId:
    (report,) = [each for each in cluster.status().datanodes if each.address == node.address]
    return report.storages[0].storage


def failures(cluster: LocalCluster) -> list[str]:
    """Return why volumes are not used any more."""
    return [at.failed for node in cluster.status().datanodes for at in node.storages if at.failed]


def test_small_files_are_not_held_up_for_room_that_their_blocks_do_not_take() -> None:
    """Blocks of which only one fits, and no heartbeat that says how much is left."""
    with LocalCluster(datanodes=1, settings=SILENT) as cluster, Client(cluster.url, QUICK) as fs:
        (free_bytes,) = (at.free_bytes for at in cluster.status().datanodes[0].storages)
        for number in range(4):
            with fs.create(f"/{number}", block_size=free_bytes // 5 * 3) as out:
                out.write(b"small")
        assert [status.size for status in fs.ls("/")] == [5] * 4


def test_a_datanode_that_runs_full_in_mid_block_costs_no_byte(
    one_small: LocalCluster, disk: SmallDisk
) -> None:
    data, small = os.urandom(12 * MIB), one_small.datanodes[0]
    storage = storage_of(one_small, small)
    with Client(one_small.url, PATIENT) as fs, ExitStack() as files:
        for path in ("/first", "/second"):  # one without an open block gets one of the second
            out = files.enter_context(fs.create(path))
            out.write(data[: 3 * MIB])
            before = out.hflush()
            if storage in before.replicas:
                break
        assert storage in before.replicas
        disk.fill()
        out.write(data[3 * MIB :])
        after = out.hflush()
        assert after.size == len(data)
        assert storage not in after.replicas
        wait_until(lambda: NO_ROOM in small.log.read_text(), what="its log")
        with fs.open(path) as file:
            assert file.read() == data
    assert failures(one_small) == []


def fill_in_mid_block(disk: SmallDisk, out: FileWriter, data: bytes) -> NoSpaceError:
    """Write half of `data` and flush it, take all room away, write the rest: how that fails."""
    half = len(data) // 2
    out.write(data[:half])
    assert out.hflush().size == half
    disk.fill()
    with pytest.raises(NoSpaceError) as caught:
        write_the_rest(out, data)
    return caught.value


def write_the_rest(out: FileWriter, data: bytes) -> None:
    out.write(data[out.tell() :])
    out.hflush()


def test_when_every_datanode_is_full_the_writer_is_told_so_in_one_line(
    all_small: LocalCluster, disk: SmallDisk
) -> None:
    with Client(all_small.url, IMPATIENT) as fs, fs.create("/file") as out:
        error = fill_in_mid_block(disk, out, os.urandom(6 * MIB))
        assert "no place for a block of 8388608 bytes" in str(error)
        assert "full" in str(error)
        assert "\n" not in str(error)
        out.abort()


def test_what_was_acknowledged_is_read_while_every_datanode_is_full(
    all_small: LocalCluster, disk: SmallDisk
) -> None:
    data = os.urandom(6 * MIB)
    with Client(all_small.url, IMPATIENT) as fs, fs.create("/file") as out:
        fill_in_mid_block(disk, out, data)
        with fs.open("/file") as file:
            assert file.read(3 * MIB) == data[: 3 * MIB]
        out.abort()


def test_a_writer_goes_on_where_it_was_when_there_is_room_again(
    all_small: LocalCluster, disk: SmallDisk
) -> None:
    data = os.urandom(6 * MIB)
    with Client(all_small.url, PATIENT) as reader, Client(all_small.url, IMPATIENT) as fs:
        with fs.create("/file") as out:
            fill_in_mid_block(disk, out, data)
            disk.empty()
            wait_until(lambda: took_room(out), what="the NameNode to hear of the room")
            write_the_rest(out, data)
        with reader.open("/file") as file:
            assert file.read() == data
    assert failures(all_small) == []


def took_room(out: FileWriter) -> bool:
    try:
        return bool(out.hflush())
    except NoSpaceError:
        return False


def test_a_block_is_recovered_on_full_disks_with_the_longest_log(
    all_small: LocalCluster, disk: SmallDisk
) -> None:
    """P2, D4: the one that is behind needs room for the chunk it lacks; its spare has that."""
    first = Generation(0)
    with Client(all_small.url, PATIENT) as fs:
        view = fs.blocks.add()
        block = view.record.block
        nodes = [fs.blocks.datanode(member) for member in view.members]
        for node in nodes:
            node.write(block, first, ChunkIndex(0), b"1" * 4000)
        nodes[0].write(block, first, ChunkIndex(1), b"2" * 300_000)
        disk.fill()
        away = view.members[2].address
        next(each for each in all_small.datanodes if each.address == away).kill()
        decided = fs.blocks.finalize(block).record
        assert (decided.finalized, decided.length) == (True, 2)


def test_a_datanode_that_was_killed_starts_again_on_a_full_disk(
    all_small: LocalCluster, disk: SmallDisk
) -> None:
    data = os.urandom(3 * MIB)
    with Client(all_small.url, PATIENT) as fs:
        with fs.create("/file") as out:
            out.write(data)
        disk.fill()
        for node in all_small.datanodes:
            node.kill()
        for node in all_small.datanodes:
            node.start()
        all_small.wait_registered()
        with fs.open("/file") as file:
            assert file.read() == data


@pytest.fixture
def small_namenode(disk: SmallDisk, tmp_path: Path) -> Iterator[LocalCluster]:
    """A NameNode on the small disk, its DataNodes elsewhere."""
    cluster = LocalCluster(datanodes=3, path=tmp_path / "cluster", settings=SETTINGS)
    place(cluster.namenode, disk)
    with cluster:
        yield cluster


def make_names_until_refused(fs: Client) -> list[str]:
    """Make directories until the NameNode has no room for one; those that were answered."""
    made: list[str] = []
    with pytest.raises(NoSpaceError) as caught:
        make_names(fs, made)
    assert NO_ROOM in str(caught.value)
    assert "\n" not in str(caught.value)
    return made


def make_names(fs: Client, made: list[str]) -> None:
    for number in range(1000):
        fs.mkdirs(f"/{number:0200}")
        made.append(f"/{number:0200}")


def refused_as_full(change: Callable[[], object]) -> bool:
    """Make a change, which is refused; a leader that loses its majority meanwhile says that."""
    with pytest.raises(PaxosBlockError) as caught:
        change()
    return "full" in str(caught.value)


def names(fs: Client) -> set[str]:
    return {entry.path for entry in fs.ls("/")}


def test_a_namenode_whose_disk_is_full_says_so_serves_reads_and_goes_on_with_room(
    small_namenode: LocalCluster, disk: SmallDisk
) -> None:
    namenode = small_namenode.namenode
    with (
        Client(small_namenode.url, IMPATIENT) as fs,
        Client(small_namenode.url, PATIENT) as patient,
    ):
        fs.mkdirs("/before")
        disk.fill()
        made = make_names_until_refused(fs)
        assert not control.healthy(namenode.address)
        assert names(fs) == {"/before", *made}
        disk.empty()
        patient.mkdirs("/meanwhile")  # the NameNode has not seen the room yet
        wait_until(lambda: control.healthy(namenode.address), what="the NameNode to see the room")
        fs.mkdirs("/after")
        namenode.kill()
        namenode.start()
        small_namenode.wait_registered()
        assert names(fs) == {"/before", "/meanwhile", "/after", *made}


def test_a_namenode_that_starts_on_a_full_disk_serves_reads_and_refuses_changes(
    small_namenode: LocalCluster, disk: SmallDisk
) -> None:
    """Its vote, and the entry with which its term begins, have the room that is kept for them."""
    namenode = small_namenode.namenode
    with (
        Client(small_namenode.url, IMPATIENT) as fs,
        Client(small_namenode.url, PATIENT) as patient,
    ):
        fs.mkdirs("/before")
        namenode.kill()
        disk.fill()
        namenode.start()
        small_namenode.wait_registered()
        made = make_names_until_refused(fs)
        assert names(fs) == {"/before", *made}
        disk.empty()
        patient.mkdirs("/after")
        assert names(fs) == {"/before", "/after", *made}


def test_the_others_go_on_when_the_disk_of_one_of_three_namenodes_is_full(
    disk: SmallDisk, tmp_path: Path
) -> None:
    cluster = LocalCluster(3, 3, tmp_path / "cluster", settings=SETTINGS)
    place(cluster.namenode, disk)
    with cluster, Client(cluster.url, PATIENT) as fs:
        fs.mkdirs("/before")
        disk.fill()
        names: list[str] = []
        make_names(fs, names)
        assert cluster.leader != cluster.namenode
        disk.empty()
        cluster.namenode.kill()
        cluster.namenode.start()
        cluster.wait_registered()
        assert [entry.path for entry in fs.ls("/")] == [*names, "/before"]


def test_reads_go_on_when_the_disks_of_all_namenodes_are_full_and_the_leader_changes(
    disk: SmallDisk, tmp_path: Path
) -> None:
    cluster = LocalCluster(1, 3, tmp_path / "cluster", settings=SETTINGS)
    for node in cluster.namenodes:
        place(node, disk)
    with (
        cluster,
        Client(cluster.url, replace(IMPATIENT, rpc_timeout_s=1.0)) as impatient,
        Client(cluster.url, PATIENT) as fs,
    ):
        fs.mkdirs("/before")
        disk.fill()
        made: list[str] = []
        wait_until(lambda: refused_as_full(lambda: make_names(impatient, made)))
        for _ in range(3):
            leader = cluster.wait_leader()
            leader.pause()
            successor = wait_other_leader(cluster, leader)
            leader.resume()
            assert successor is not leader
            assert names(fs) >= {"/before", *made}
            wait_until(lambda: refused_as_full(lambda: impatient.mkdirs("/refused")))
        disk.empty()
        fs.mkdirs("/after")
        assert names(fs) >= {"/before", "/after", *made}
