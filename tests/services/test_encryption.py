"""Encrypted files in real processes: DataNodes that lie, stolen disks, failures, lost keys."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from paxosblock import Client, LocalCluster
from paxosblock.api.encryption import (
    ENCRYPTION_ZONES,
    ROLL_MASTER_KEY,
    RollMasterKey,
    ZonesRequest,
)
from paxosblock.base.units import KIB
from paxosblock.client.check import ReplicaHealth
from paxosblock.config import ClientConfig
from paxosblock.errors import ConfigError, CorruptionError, FencedError, InvalidRequestError
from paxosblock.local.node_process import Node
from paxosblock.net.calls.control import call
from tests.master_keys import encrypt, write_masters
from tests.services.lying_cluster import LyingCluster
from tests.services.lying_reader import LIES, OLDER, REMEMBER
from tests.services.test_scrubbing import block_files, flip
from tests.waiting import wait_until

CHUNK: Final = 16 * KIB
MARKER: Final = b"nobody may read this line of a file on a disk that was stolen\n"
CONTROL: Final = b"anybody may read this line of a file on a disk that was stolen\n"
QUICK = ClientConfig(chunk_size=CHUNK, block_size=10 * CHUNK, rpc_timeout_s=2.0, retry_for_s=20.0)


class Lying(LyingCluster):
    """A cluster whose DataNodes lie to readers when they are told to."""

    module = "tests.services.lying_reader"
    liars = "datanode"


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("master") / "key"
    write_masters(file, 1)
    return file


@pytest.fixture(scope="module")
def cluster(master: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lying]:
    """Three DataNodes, and a zone at /z."""
    settings = {
        "namenode": {"master_key_file": str(master)},
        "datanode": {"heartbeat_interval": "200ms", "scrub_period": "1s"},
    }
    with Lying(3, 1, tmp_path_factory.mktemp("encryption"), settings=settings) as cluster:
        with Client(cluster.url, QUICK) as fs:
            fs.mkdirs("/z")
        encrypt(cluster, "/z")
        yield cluster


@pytest.fixture
def fs(cluster: Lying) -> Iterator[Client]:
    with Client(cluster.url, QUICK) as fs:
        yield fs
    cluster.repent()


def restarted(node: Node) -> None:
    node.stop()
    node.start()


def written(fs: Client, path: str, data: bytes) -> None:
    with fs.create(path, overwrite=True) as out:
        out.write(data)


def content(fs: Client, path: str) -> bytes:
    with fs.open(path) as file:
        return file.read()


# -- DataNodes that lie ----------------------------------------------------------------------------


@pytest.mark.parametrize("lie", LIES)
def test_no_byte_of_a_datanode_that_lies_is_served(cluster: Lying, lie: str) -> None:
    """All of them lie: without the key readers believe what fits its checksum."""
    data, other = os.urandom(4 * CHUNK), os.urandom(4 * CHUNK)
    for top, defended in (("/plain", False), ("/z", True)):
        with Client(cluster.url, QUICK) as fs:
            for path, each in ((f"{top}/file", data), (f"{top}/other", other)):
                written(fs, path, each)
            cluster.lie(REMEMBER)
            assert content(fs, f"{top}/other") == other
            cluster.lie(lie)
            try:
                with fs.within(3.0).open(f"{top}/file") as file:
                    if defended:
                        with pytest.raises(CorruptionError):
                            file.pread(0, len(data))
                    else:
                        assert file.pread(0, len(data)) != data
                assert cluster.has_lied
            finally:
                cluster.repent()


def test_no_older_chunk_is_served_in_the_place_of_the_one_that_replaced_it(cluster: Lying) -> None:
    """The client did encrypt it, for the same place. So it writes no other there: what follows a
    cut is in another block, which has another key."""
    data, other = os.urandom(3 * CHUNK), os.urandom(CHUNK)
    for top, defended in (("/plain", False), ("/z", True)):
        with Client(cluster.url, QUICK) as fs:
            written(fs, f"{top}/older", data[:CHUNK])
            with fs.append(f"{top}/older") as out:
                out.write(data[CHUNK:])
            (place,) = fs.locations(f"{top}/older")  # a block that was not cut goes on
            cluster.lie(REMEMBER)
            assert fs.blocks.check(place.block).sound_count == 3  # read at all three
            fs.truncate(f"{top}/older", 2 * CHUNK)
            with fs.append(f"{top}/older") as out:
                out.write(other)
            cluster.lie(OLDER)
            try:
                now = data[: 2 * CHUNK] + (other if defended else data[2 * CHUNK :])
                assert content(fs, f"{top}/older") == now
                assert cluster.has_lied
            finally:
                cluster.repent()


# -- disks -----------------------------------------------------------------------------------------


def test_no_byte_is_on_a_disk(cluster: Lying, fs: Client) -> None:
    for top, marker in (("/z", MARKER), ("/plain", CONTROL)):
        written(fs, f"{top}/marked", marker * 2000)
        written(fs, f"{top}/small", marker)
        with fs.create(f"{top}/open", overwrite=True) as out:
            out.write(marker)
            out.hflush()
            out.write(marker)
        fs.truncate(f"{top}/marked", 3 * CHUNK + 100)  # the rest of a chunk is written again
    assert marked(cluster, CONTROL)
    assert not marked(cluster, MARKER)
    assert content(fs, "/z/small") == MARKER


def marked(cluster: LocalCluster, marker: bytes) -> list[Path]:
    """The files of all nodes in which a marker can be read."""
    found = []
    for file in cluster.path.rglob("*"):
        with contextlib.suppress(FileNotFoundError, IsADirectoryError):
            if marker in file.read_bytes():
                found.append(file)
    return found


# -- what files do ---------------------------------------------------------------------------------


def test_lengths_are_those_of_the_user_data_everywhere(fs: Client) -> None:
    pieces = [os.urandom(size) for size in (1, 100, CHUNK, 3 * CHUNK + 17, 0, 5, 12 * CHUNK)]
    done = b""
    with fs.create("/z/lengths", overwrite=True) as out:
        for piece in pieces:
            out.write(piece)
            done += piece
            assert out.hflush().size == len(done) == out.tell()
            with fs.open("/z/lengths") as file:
                assert file.size == len(done)
                assert file.pread(len(done) - 1, 50) == done[-1:]
    assert fs.stat("/z/lengths").size == len(done)
    assert [each.size for each in fs.ls("/z") if each.name == "lengths"] == [len(done)]
    places = fs.locations("/z/lengths")
    assert [each.offset for each in places] == [0, *(e.offset + e.size for e in places[:-1])]
    assert sum(each.size for each in places) == len(done)
    with fs.open("/z/lengths") as file:
        for begin in (0, 1, 101, CHUNK, 9 * CHUNK + 3, 10 * CHUNK, len(done) - 9):
            file.seek(begin)
            assert file.read(777) == done[begin : begin + 777]
            assert file.pread(begin, 3 * CHUNK) == done[begin : begin + 3 * CHUNK]
        assert file.read() == b"" or file.tell() <= len(done)


def test_followers_get_all_of_it(cluster: Lying, fs: Client) -> None:
    got: list[bytes] = []
    out = fs.create("/z/followed", overwrite=True)

    def follow() -> None:
        with Client(cluster.url, QUICK) as other:
            got.extend(other.follow("/z/followed"))

    follower = threading.Thread(target=follow)
    follower.start()
    data = [os.urandom(size) for size in (10, CHUNK + 1, 11 * CHUNK, 7)]
    for number, piece in enumerate(data):
        out.write(piece)
        out.hflush()
        so_far = b"".join(data[: number + 1])
        wait_until(lambda: b"".join(got) == so_far, what="the follower")  # noqa: B023 - it is called in this turn of the loop
    out.close()
    follower.join(20.0)
    assert b"".join(got) == b"".join(data)


def test_append_concat_truncate_and_rename(fs: Client) -> None:
    data = os.urandom(3 * CHUNK + 5)
    written(fs, "/z/a", data)
    with fs.append("/z/a") as out:
        out.write(b"more")
    written(fs, "/z/b", b"the other")
    fs.concat("/z/a", ["/z/b"])
    data += b"more" + b"the other"
    for length in (len(data) - 3, 3 * CHUNK + 7, 3 * CHUNK, CHUNK + 1, CHUNK, 1):
        fs.truncate("/z/a", length)
        data = data[:length]
        assert fs.stat("/z/a").size == length
        assert content(fs, "/z/a") == data
        with fs.append("/z/a") as out:
            out.write(b"again" * length)
        data += b"again" * length
        assert content(fs, "/z/a") == data
    fs.rename("/z/a", "/z/c")
    assert content(fs, "/z/c") == data
    with pytest.raises(InvalidRequestError, match="can't be moved from an encryption zone"):
        fs.rename("/z/c", "/c")


def test_a_writer_that_is_taken_over_and_one_whose_datanode_dies(
    cluster: Lying, fs: Client
) -> None:
    data = os.urandom(5 * CHUNK + 9)
    out = fs.create("/z/taken", overwrite=True)
    out.write(data)
    out.hflush()
    with Client(cluster.url, QUICK) as other:
        assert other.take_over("/z/taken") == len(data)
        out.write(b"too late")
        with pytest.raises(FencedError):
            out.hflush()
        with other.append("/z/taken") as again:
            again.write(b"by another")
        assert content(other, "/z/taken") == data + b"by another"
    out.abort()
    killed = cluster.datanodes[0]
    with fs.create("/z/survives", overwrite=True) as out:
        out.write(data)
        out.hflush()
        killed.kill()
        out.write(data)
        assert out.hflush().size == 2 * len(data)
        with fs.open("/z/survives") as file:
            assert file.read() == 2 * data
    killed.start()
    assert content(fs, "/z/survives") == 2 * data
    for place in fs.locations("/z/survives"):
        wait_until(
            lambda: fs.blocks.check(place.block).sound_count == 3,  # noqa: B023 - it is called in this turn of the loop
            what="copies that can be decrypted at all",
        )


def test_a_damaged_replica_is_left_for_another_and_replaced(cluster: Lying, fs: Client) -> None:
    data = os.urandom(2 * CHUNK)
    written(fs, "/z/damaged", data)
    (place,) = fs.locations("/z/damaged")
    check = fs.blocks.check(place.block)
    assert [each.health for each in check.replicas] == [ReplicaHealth.SOUND] * 3
    cluster.lie("a flipped bit")
    check = fs.blocks.check(place.block)
    cluster.repent()
    assert {each.health for each in check.replicas} == {ReplicaHealth.DAMAGED}
    assert content(fs, "/z/damaged") == data


# -- the master key --------------------------------------------------------------------------------


def test_the_master_key_is_lost_found_and_rolled(cluster: Lying, master: Path, fs: Client) -> None:
    address = cluster.namenode.address
    written(fs, "/z/kept", b"kept")
    write_masters(master, 2)
    restarted(cluster.namenode)
    with pytest.raises(ConfigError) as caught:
        content(fs, "/z/kept")
    assert "which this NameNode has not" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert fs.stat("/z/kept").size == 4
    written(fs, "/plain/as/ever", b"as ever")
    write_masters(master, 2, 1)
    assert call(address, ROLL_MASTER_KEY, RollMasterKey(), 5.0).wrapped == 1
    assert content(fs, "/z/kept") == b"kept"
    write_masters(master, 2)
    restarted(cluster.namenode)
    assert content(fs, "/z/kept") == b"kept"
    zones = call(address, ENCRYPTION_ZONES, ZonesRequest(), 5.0)
    assert [(each.path, each.master) for each in zones.zones] == [("/z", zones.master)]


def test_the_master_key_is_rolled_while_files_are_read_and_written(
    cluster: Lying, master: Path, fs: Client
) -> None:
    """Their keys are those of the zone, which the master key only wraps."""
    pieces = [os.urandom(4 * CHUNK + 3) for _ in range(8)]
    before = int(master.read_text()[:2], 16)
    written(fs, "/z/read", b"".join(pieces))
    with fs.open("/z/read") as file, fs.create("/z/written", overwrite=True) as out:
        for number, piece in enumerate(pieces, 1):
            out.write(piece)
            out.hflush()
            assert file.read(len(piece)) == piece
            last, new = before if number == 1 else 9 + number - 1, 9 + number
            write_masters(master, new, last)
            rolled = call(cluster.namenode.address, ROLL_MASTER_KEY, RollMasterKey(), 30.0)
            assert rolled.wrapped == 1
            write_masters(master, new)
    assert content(fs, "/z/written") == b"".join(pieces)
    restarted(cluster.namenode)
    assert content(fs, "/z/written") == b"".join(pieces)


def test_a_bit_that_a_disk_flipped_is_found_by_the_scrubber_as_in_any_file(
    cluster: Lying, fs: Client
) -> None:
    """DataNodes know nothing of keys: the checksum is of what they hold."""
    data = os.urandom(2 * CHUNK)
    written(fs, "/z/scrubbed", data)
    (place,) = fs.locations("/z/scrubbed")
    node, name = cluster.datanodes[1], f"blk_{place.block}"

    def copies() -> list[Path]:
        """Files of the block at the node: another copy has an epoch behind the name."""
        return [each for each in block_files(node) if each.name.partition(".")[0] == name]

    wait_until(lambda: [each.name for each in copies()] == [name], what="a finalized replica")
    (path,) = copies()
    sound = path.read_bytes()
    flip(path, CHUNK)
    wait_until(
        lambda: [each.name == name or each.read_bytes() for each in copies()] == [sound],
        what="a sound copy in its place",
    )
    wait_until(lambda: fs.blocks.check(place.block).sound_count == 3, what="three sound replicas")
    assert content(fs, "/z/scrubbed") == data
