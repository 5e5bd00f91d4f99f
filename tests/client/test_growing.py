"""Append, concat, transactions and times to live, against real node processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from paxosblock.api.transaction import (
    AssertAbsent,
    AssertFile,
    Concat,
    Delete,
    MakeDirectory,
    Marker,
    Operation,
    Rename,
    TransactionOutcome,
)
from paxosblock.base.units import KIB
from paxosblock.client.blocking.sync import Client
from paxosblock.config import ClientConfig
from paxosblock.errors import (
    ExistsError,
    FencedError,
    InvalidRequestError,
    LeaseError,
    NotFoundError,
)
from paxosblock.local.cluster import LocalCluster
from paxosblock.local.node_process import Node
from tests.files import read, write
from tests.waiting import wait_until

QUICK = ClientConfig(retry_for_s=20.0, rpc_timeout_s=5.0, vote_timeout_s=5.0, chunk_size=64 * KIB)
ALL: tuple[Operation, ...] = (
    AssertAbsent("/everything/done"),
    AssertFile("/everything/a", size=1),
    MakeDirectory("/everything/dir"),
    Rename("/everything/b", "/everything/dir/b"),
    Concat("/everything/a", ("/everything/c", "/everything/dir/b")),
    Delete("/everything/dir", must_exist=True),
    Marker("/everything/done"),
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Four DataNodes, so that one may be missing; a test that kills one starts it again."""
    path = tmp_path_factory.mktemp("cluster")
    quick = {"heartbeat_interval": "0.2s"}
    with LocalCluster(datanodes=4, path=path, settings={"namenode": quick}) as cluster:
        yield cluster


@pytest.fixture
def fs(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster.url, QUICK) as fs:
        yield fs


def node_at(cluster: LocalCluster, host: str) -> Node:
    return next(node for node in cluster.datanodes if node.address == host)


# --- append --------------------------------------------------------------------------------------


def test_appended_bytes_come_behind_those_that_were_there(fs: Client) -> None:
    before = write(fs, "/log", b"a" * 100_000)
    for number in range(3):
        with fs.append("/log") as out:
            assert out.tell() == len(before)
            more = bytes([number]) * 70_000
            out.write(more)
            assert out.hflush().size == len(before) + len(more)
            assert out.tell() == len(before) + len(more)
        before += more
        assert read(fs, "/log") == before
    assert [each.size for each in fs.locations("/log")] == [310_000]


def test_an_append_begins_a_new_block_if_it_is_told_to(fs: Client) -> None:
    before = write(fs, "/apart", b"a" * 1000)
    with fs.append("/apart", new_block=True) as out:
        out.write(b"b" * 10)
    assert read(fs, "/apart") == before + b"b" * 10
    assert [each.size for each in fs.locations("/apart")] == [1000, 10]


def test_an_append_with_another_window_begins_a_new_block(fs: Client) -> None:
    before = write(fs, "/wide", b"a" * 1000)
    with fs.append("/wide", window=9) as out:
        out.write(b"b" * 10)
    assert read(fs, "/wide") == before + b"b" * 10
    assert [each.size for each in fs.locations("/wide")] == [1000, 10]


def test_a_full_block_is_left_alone_and_the_last_one_filled(fs: Client) -> None:
    with fs.create("/filled", block_size=128 * KIB) as out:
        out.write(b"a" * (128 * KIB))
    for number in range(3):
        with fs.append("/filled") as out:
            out.write(bytes([number]) * (50 * KIB))
    assert [each.size for each in fs.locations("/filled")] == [128 * KIB, 100 * KIB, 50 * KIB]
    assert read(fs, "/filled")[128 * KIB :] == b"".join(
        bytes([number]) * (50 * KIB) for number in range(3)
    )


def test_who_has_the_file_open_reads_on_while_its_last_block_grows(fs: Client) -> None:
    before = write(fs, "/read-on", b"r" * 100_000)
    with fs.open("/read-on") as reader:
        assert reader.read(10) == before[:10]
        for _ in range(2):
            with fs.append("/read-on") as out:
                out.write(b"more")
                out.hflush()
                reader.seek(0)
                assert reader.read(50_000) == before[:50_000]
        reader.seek(0)
        assert reader.read()[:100_000] == before


def test_what_is_appended_and_flushed_is_read_before_the_file_is_closed(fs: Client) -> None:
    before = write(fs, "/open-log", b"before ")
    with fs.append("/open-log") as out:
        out.write(b"after")
        out.hflush()
        assert read(fs, "/open-log") == before + b"after"
        with pytest.raises(LeaseError):
            fs.append("/open-log")


def test_an_append_goes_on_when_a_datanode_is_killed(cluster: LocalCluster, fs: Client) -> None:
    before = write(fs, "/killed", b"x" * 200_000)
    with fs.append("/killed") as out:
        out.write(b"y" * 200_000)
        out.hflush()
        victim = node_at(cluster, fs.locations("/killed")[-1].hosts[0])
        victim.kill()
        try:
            out.write(b"z" * 200_000)
            out.close()
        finally:
            victim.start()
            cluster.wait_registered()
    assert read(fs, "/killed") == before + b"y" * 200_000 + b"z" * 200_000


def test_an_append_that_is_given_up_keeps_what_was_there_and_what_was_flushed(fs: Client) -> None:
    before = write(fs, "/aborted", b"before")
    out = fs.append("/aborted")
    out.write(b", flushed")
    out.hflush()
    out.write(b", dropped")
    out.abort()
    assert read(fs, "/aborted") == before + b", flushed"


def test_a_follower_sees_what_is_appended_while_it_reads(fs: Client) -> None:
    write(fs, "/followed", b"one ")
    with fs.append("/followed") as out:
        pieces = fs.follow("/followed")
        assert next(pieces) == b"one "
        out.write(b"two")
        out.hflush()
        assert next(pieces) == b"two"
    assert list(pieces) == []


# --- concat --------------------------------------------------------------------------------------


def test_concat_joins_files_and_their_readers_go_on(fs: Client) -> None:
    parts = [write(fs, f"/parts/{number}", bytes([number]) * 150_000) for number in range(4)]
    with fs.open("/parts/2") as reader:
        assert reader.read(10) == parts[2][:10]
        status = fs.concat("/parts/0", ["/parts/2", "/parts/1", "/parts/3"])
        assert reader.read() == parts[2][10:]
    whole = parts[0] + parts[2] + parts[1] + parts[3]
    assert (status.size, status.path) == (len(whole), "/parts/0")
    assert read(fs, "/parts/0") == whole
    assert [entry.path for entry in fs.ls("/parts")] == ["/parts/0"]
    with fs.append("/parts/0") as out:
        out.write(b"end")
    assert read(fs, "/parts/0") == whole + b"end"


def test_a_follower_of_the_target_sees_what_concat_moved_there(fs: Client) -> None:
    write(fs, "/grown", b"first ")
    write(fs, "/more", b"second")
    fs.concat("/grown", ["/more"])
    assert b"".join(fs.follow("/grown")) == b"first second"


def test_blocks_that_were_moved_outlive_a_restart_and_every_sweep(
    cluster: LocalCluster, fs: Client
) -> None:
    whole = write(fs, "/kept", b"k" * 100_000) + write(fs, "/moved/part", b"m" * 100_000)
    fs.concat("/kept", ["/moved/part"])
    fs.delete("/moved", recursive=True)
    cluster.namenode.kill()
    cluster.namenode.start()
    cluster.wait_registered()
    assert read(fs, "/kept") == whole
    blocks = [each.block for each in fs.locations("/kept")]
    assert len(blocks) == 2
    for block in blocks:
        assert fs.blocks.check(block).sound_count == 3


def test_a_file_that_is_being_written_is_not_concatenated(fs: Client) -> None:
    write(fs, "/closed", b"c")
    with fs.create("/being-written") as out:
        out.write(b"w")
        with pytest.raises(LeaseError, match="'/being-written': is being written by"):
            fs.concat("/closed", ["/being-written"])


# --- locations -----------------------------------------------------------------------------------


def test_locations_tell_which_live_nodes_hold_a_block(cluster: LocalCluster, fs: Client) -> None:
    with fs.create("/located", block_size=128 * KIB) as out:
        out.write(b"l" * (300 * KIB))
        out.hflush()
        found = fs.locations("/located")
    assert [(each.offset, each.size, each.finalized) for each in found] == [
        (0, 128 * KIB, True),
        (128 * KIB, 128 * KIB, True),
        (256 * KIB, 44 * KIB, False),
    ]
    addresses = {node.address for node in cluster.datanodes}
    assert all(len(set(each.hosts)) == 3 and set(each.hosts) <= addresses for each in found)


# --- transactions --------------------------------------------------------------------------------


def test_every_operation_works_over_the_network(fs: Client) -> None:
    for name in "abc":
        write(fs, f"/everything/{name}", name.encode())
    assert fs.transact(ALL, once=("everything", 3)) == TransactionOutcome(True, 3)
    assert read(fs, "/everything/a") == b"acb"
    assert [entry.path for entry in fs.ls("/everything")] == ["/everything/a", "/everything/done"]
    assert fs.transact(ALL, once=("everything", 3)) == TransactionOutcome(False, 3)
    assert fs.transaction_status("everything") == 3
    assert fs.transaction_status("nobody") is None


def test_a_refused_transaction_says_which_operation_and_changes_nothing(fs: Client) -> None:
    with pytest.raises(ExistsError, match=r"^operation 2 of 3: '/': exists already"):
        fs.transact([MakeDirectory("/refused"), AssertAbsent("/"), Marker("/refused/m")])
    assert not fs.exists("/refused")


@pytest.mark.parametrize("once", [("", 0), ("a\nb", 0), ("app", -1), ("a" * 256, 0)])
def test_an_application_has_a_name_and_a_version(fs: Client, once: tuple[str, int]) -> None:
    with pytest.raises(InvalidRequestError):
        fs.transact([Marker("/never")], once=once)


def test_a_writer_below_a_deleted_directory_is_fenced(fs: Client) -> None:
    fs.mkdirs("/attempt")
    late = fs.create("/attempt/part", parent_must_exist=True)
    late.write(b"late")
    fs.transact([Delete("/attempt", recursive=True)])
    with pytest.raises(FencedError, match="was deleted"):
        late.close()
    with pytest.raises(NotFoundError):
        fs.create("/attempt/other", parent_must_exist=True)
    assert not fs.exists("/attempt")


def test_a_writer_in_the_middle_of_a_block_is_fenced_too(fs: Client) -> None:
    """Its members are told to drop the block, so it cannot go on without asking the NameNode."""
    fs.mkdirs("/middle")
    out = fs.create("/middle/part", parent_must_exist=True)
    out.write(b"begun")
    out.hflush()
    fs.delete("/middle", recursive=True)

    def is_fenced() -> bool:
        try:
            out.write(b"more")
            out.hflush()
        except FencedError:
            return True
        return False

    wait_until(is_fenced)
    with pytest.raises(FencedError):
        out.close()


# --- times to live -------------------------------------------------------------------------------


def test_a_directory_goes_when_its_time_is_over_but_not_under_its_writer(fs: Client) -> None:
    with fs.create("/short/part") as out:
        assert fs.mkdirs("/short", ttl_s=0.5).expires_s > 0
        fs.mkdirs("/idle", ttl_s=0.5)
        wait_until(lambda: not fs.exists("/idle"), what="the idle directory to go")
        out.write(b"still there")
        out.hflush()
        assert fs.exists("/short/part")
    wait_until(lambda: not fs.exists("/short"), what="the directory to go after its writer")
