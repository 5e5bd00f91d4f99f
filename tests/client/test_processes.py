"""The client against real node processes, which are killed for real."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paxosblock.api.namenode import BlockView, FileStatus
from paxosblock.api.transaction import Rename
from paxosblock.base.units import KIB, MIB
from paxosblock.client.async_client import AsyncClient
from paxosblock.client.blocking.sync import Client
from paxosblock.config import ClientConfig
from paxosblock.errors import (
    ExistsError,
    FencedError,
    IsDirectoryError,
    LeaseError,
    NotFoundError,
    PaxosBlockError,
    ProtocolError,
    UnavailableError,
)
from paxosblock.host.user import current_user
from paxosblock.local.cluster import LocalCluster
from paxosblock.local.node_process import Node
from paxosblock.protocol.types import ChunkIndex, Durability, Generation, StorageId
from tests.fork_server import ended
from tests.paging import changed_between_pages
from tests.waiting import PATIENCE_S, wait_until, wait_until_async

QUICK = ClientConfig(retry_for_s=20.0, rpc_timeout_s=5.0, vote_timeout_s=5.0)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Four DataNodes, so that one may be missing; a test that kills one starts it again."""
    leases = {"lease_soft_limit": "2s", "lease_hard_limit": "3s"}
    path = tmp_path_factory.mktemp("cluster")
    with LocalCluster(datanodes=4, path=path, settings={"namenode": leases}) as cluster:
        yield cluster


@pytest.fixture
def fs(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster.url, QUICK) as fs:
        yield fs


def node_of(cluster: LocalCluster, storage: StorageId) -> Node:
    """The DataNode that owns a storage."""
    address = next(
        node.address
        for node in cluster.status().datanodes
        if any(volume.storage == storage for volume in node.storages)
    )
    return next(node for node in cluster.datanodes if node.address == address)


def start_again(cluster: LocalCluster, *nodes: Node) -> None:
    for node in nodes:
        node.start()
    cluster.wait_registered()


@dataclass(frozen=True)
class Plan:
    """A file by sizes: of its chunks, blocks, window and writes, and which writes are synced."""

    chunk_size: int
    block_chunks: int
    window: int
    writes: list[int]
    synced: set[int]
    durability: Durability


PLANS = st.builds(
    Plan,
    chunk_size=st.integers(1, 40),
    block_chunks=st.integers(1, 4),
    window=st.integers(1, 4),
    writes=st.lists(st.integers(0, 100), max_size=6),
    synced=st.sets(st.integers(0, 5)),
    durability=st.sampled_from(Durability),
)


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(plan=PLANS)
def test_what_was_written_in_any_pieces_is_read_back(fs: Client, plan: Plan) -> None:
    data = os.urandom(sum(plan.writes))
    at, path = 0, f"/odd/{uuid.uuid4()}"
    with fs.create(
        path,
        chunk_size=plan.chunk_size,
        block_size=plan.chunk_size * plan.block_chunks,
        window=plan.window,
        durability=plan.durability,
    ) as out:
        for step, size in enumerate(plan.writes):
            out.write(data[at : at + size])
            at += size
            if step in plan.synced:
                assert out.hsync().size == at
                with fs.open(path) as file:
                    assert file.read() == data[:at]
    with fs.open(path) as file:
        assert file.size == len(data)
        assert file.read() == data
        assert file.pread(at // 3, at) == data[at // 3 :]


def test_a_datanode_killed_in_mid_write_costs_no_byte(cluster: LocalCluster, fs: Client) -> None:
    data = os.urandom(24 * MIB)
    with fs.create("/killed") as out:
        out.write(data[: 4 * MIB])
        before = out.hflush()
        victim = node_of(cluster, before.replicas[1])
        killer = threading.Thread(target=victim.kill)
        killer.start()
        for start in range(4 * MIB, len(data), MIB):
            out.write(data[start : start + MIB])
        killer.join()
        after = out.hflush()
        assert after.size == len(data)
        assert before.replicas[1] not in after.replicas
    with fs.open("/killed") as file:
        assert file.read() == data
    start_again(cluster, victim)


def test_two_datanodes_killed_one_after_the_other_cost_no_byte(
    cluster: LocalCluster, fs: Client
) -> None:
    data = os.urandom(9 * MIB)
    with fs.create("/twice", durability="memory") as out:
        out.write(data[: 3 * MIB])
        first = node_of(cluster, out.hflush().replicas[0])
        first.kill()
        out.write(data[3 * MIB : 6 * MIB])
        second = node_of(cluster, out.hflush().replicas[0])
        second.kill()
        out.write(data[6 * MIB :])
        assert out.hflush().size == len(data)
    with fs.open("/twice") as file:
        assert file.read() == data
    start_again(cluster, first, second)


def test_restarts_one_after_the_other_under_an_idle_writer_stop_no_reader(
    cluster: LocalCluster, fs: Client
) -> None:
    data = os.urandom(100 * KIB)
    with fs.create("/restarts", block_size=64 * KIB, chunk_size=16 * KIB) as out:
        out.write(data)
        out.hflush()
        for node in cluster.datanodes:
            node.kill()
            start_again(cluster, node)
            with Client(cluster.url, QUICK) as other, other.open("/restarts") as file:
                assert (file.undecided, file.read()) == ("", data)


def test_a_datanode_that_hangs_is_left_behind(cluster: LocalCluster) -> None:
    data = os.urandom(3 * MIB)
    patient = ClientConfig(vote_timeout_s=60.0, rpc_timeout_s=60.0)
    with Client(cluster.url, patient) as fs:
        with fs.create("/hangs") as out:
            out.write(data[:MIB])
            hung = node_of(cluster, out.hflush().replicas[0])
            hung.pause()
            begun = time.monotonic()
            out.write(data[MIB:])
            assert out.hflush().size == len(data)
            assert time.monotonic() - begun < PATIENCE_S / 3, "about a second on a quiet machine"
        with fs.open("/hangs") as file:
            assert file.read() == data
    hung.resume()
    cluster.wait_registered()


async def test_a_follower_hears_every_flush_through_the_death_of_a_datanode(
    cluster: LocalCluster,
) -> None:
    data = os.urandom(600 * KIB)
    heard = bytearray()
    async with AsyncClient(cluster.url, QUICK) as fs:

        async def listen() -> None:
            async for piece in fs.follow("/followed"):
                heard.extend(piece)

        async with await fs.create("/followed", chunk_size=7 * KIB, block_size=200 * KIB) as out:
            follower = asyncio.create_task(listen())
            for step, start in enumerate(range(0, len(data), 50 * KIB)):
                await out.write(data[start : start + 50 * KIB])
                receipt = await out.hflush()
                await wait_until_async(lambda: len(heard) >= receipt.size)  # noqa: B023  # at once
                if step == 5:
                    victim = node_of(cluster, receipt.replicas[0])
                    victim.kill()
        await asyncio.wait_for(follower, 20)
    assert bytes(heard) == data
    start_again(cluster, victim)


def test_a_take_over_fences_the_old_writer(cluster: LocalCluster, fs: Client) -> None:
    with Client(cluster.url, QUICK) as other:
        out = other.create("/fought-over")
        out.write(b"kept")
        out.hflush()
        assert fs.take_over("/fought-over") == 4
        out.write(b"lost")
        with pytest.raises(FencedError, match=r"^'/fought-over': [^'].* unknown outcome$"):
            out.hflush()
        out.abort()
    with fs.open("/fought-over") as file:
        assert file.read() == b"kept"
    assert not fs.stat("/fought-over").open


def test_a_writer_that_dies_leaves_its_file_to_the_lease(cluster: LocalCluster, fs: Client) -> None:
    script = """
import os, sys
from paxosblock import Client
out = Client(sys.argv[1]).create("/orphan")
out.write(b"flushed")
out.hflush()
out.write(b"not flushed")
os.kill(os.getpid(), 9)
"""
    writer = ended([sys.executable, "-c", script, cluster.url])
    assert writer.returncode == -9
    wait_until(lambda: not fs.stat("/orphan").open, 30, "the NameNode to close the file")
    with fs.open("/orphan") as file:
        assert file.read() == b"flushed"


def test_two_writers_of_one_file_get_an_error(cluster: LocalCluster, fs: Client) -> None:
    with fs.create("/contested") as out:
        out.write(b"mine")
        with pytest.raises(ExistsError):
            fs.create("/contested")
        with pytest.raises(LeaseError):
            fs.create("/contested", overwrite=True)
    with fs.open("/contested") as file:
        assert file.read() == b"mine"


def written(fs: Client, path: str) -> tuple[bytes, BlockView]:
    """The bytes of a file of one block, and that block once enough members have reported it."""
    data = os.urandom(3 * MIB)
    with fs.create(path) as out:
        out.write(data)
        block = out.hflush().block
    wait_until(lambda: fs.blocks.get(block).complete)
    return data, fs.blocks.get(block)


def test_a_bit_flipped_on_disk_is_served_from_another_replica_and_reported(
    cluster: LocalCluster, fs: Client
) -> None:
    """Read by streams: who reads a lent file of a sound replica goes on with that one."""
    data, view = written(fs, "/flipped")
    block = view.record.block
    sound = stored(node_of(cluster, view.members[2].storage), block).read_bytes()
    flipped = [node_of(cluster, member.storage) for member in view.members[:2]]
    for node in flipped:
        flip_a_bit(node, block)

    def read_and_healed() -> bool:
        with by_streams.open("/flipped") as file:
            assert file.read() == data
        with contextlib.suppress(FileNotFoundError):  # one is replaced at this moment
            return all(stored(node, block).read_bytes() == sound for node in flipped)
        return False

    with Client(cluster.url, replace(QUICK, short_circuit=False)) as by_streams:
        wait_until(read_and_healed, 30, "the NameNode, which was told, to replace both replicas")


def test_a_part_of_a_chunk_is_served_from_another_replica_where_a_bit_flipped_since_it_was_checked(
    cluster: LocalCluster, fs: Client
) -> None:
    data, view = written(fs, "/parts")
    block, members = view.record.block, view.members
    files = [stored(node_of(cluster, member.storage), block) for member in members]
    sound = files[0].read_bytes()

    async def read_before_and_after() -> None:
        async with AsyncClient(cluster.url) as client, await client.open("/parts") as file:

            async def each_serves_a_part() -> None:
                parts = [file.pread(MIB - 4 * KIB, 4 * KIB) for _ in members]
                for part in await asyncio.gather(*parts):
                    assert part == data[MIB - 4 * KIB : MIB]

            await each_serves_a_part()  # each has checked the chunk then
            for member in members[:2]:
                flip_a_bit(node_of(cluster, member.storage), block)
            assert [path.read_bytes() == sound for path in files] == [False, False, True]
            await each_serves_a_part()

    asyncio.run(read_before_and_after())


def stored(node: Node, block: int) -> Path:
    """The block file of a finalized replica, which may be a moment away, or be replaced now."""

    def found() -> list[Path]:
        files = (path for at in node.volumes for path in at.glob(f"current/**/blk_{block}*"))
        return [path for path in files if path.suffix != ".meta"]

    path: Path = wait_until(found, what=f"block {block} to be finalized at {node.name}")[0]
    return path


def flip_a_bit(node: Node, block: int) -> None:
    """Damage the bytes of a replica behind its DataNode's back."""
    with stored(node, block).open("r+b") as file:
        file.seek(MIB)
        byte = file.read(1)[0]
        file.seek(MIB)
        file.write(bytes([byte ^ 4]))


def test_a_read_past_the_end_gives_nothing(fs: Client) -> None:
    with fs.create("/short") as out:
        out.write(b"0123456789")
    with fs.open("/short") as file:
        assert file.pread(8, 100) == b"89"
        assert file.pread(10, 1) == b""
        assert file.seek(1000) == 1000
        assert file.read(1) == b""


LISTINGS: dict[str, Callable[[Client, str], Iterable[FileStatus]]] = {
    "ls": Client.ls,
    "walk": Client.walk,
    "glob": lambda fs, path: fs.glob(f"{path}/*"),
    "pages": lambda fs, path: (entry for page in fs.pages(path) for entry in page.entries),
}


@pytest.mark.parametrize("listing", LISTINGS)
def test_a_name_that_moves_while_pages_are_listed_is_seen(fs: Client, listing: str) -> None:
    """In front of the pages that were read, or behind them: once, and not for a second time."""
    for name in "abcd":
        fs.mkdirs(f"/moving/{listing}/{name}")
    path = f"/moving/{listing}"
    with changed_between_pages(fs, [Rename(f"{path}/d", f"{path}/0")]):
        found = [entry.path for entry in LISTINGS[listing](fs, path)]
    assert found == [f"{path}/{name}" for name in "0abc"]
    with changed_between_pages(fs, [Rename(f"{path}/a", f"{path}/z")]):
        found = [entry.path for entry in LISTINGS[listing](fs, path)]
    assert found == [f"{path}/{name}" for name in "0bcz"]


def test_a_page_that_need_not_be_of_one_state_comes_before_the_next_is_asked_for(
    fs: Client,
) -> None:
    for name in "abcd":
        fs.mkdirs(f"/unsteady/{name}")
    with changed_between_pages(fs, [Rename("/unsteady/d", "/unsteady/0")]):
        first, *rest = fs.pages("/unsteady", one_state=False)
    assert [entry.name for page in (first, *rest) for entry in page.entries] == ["a", "b", "c"]
    assert first.changed != rest[-1].changed


def test_names_behave_like_names(fs: Client) -> None:
    fs.mkdirs("/names/deep")
    for name in ("b", "a"):
        fs.create(f"/names/{name}").close()
    assert [entry.path for entry in fs.ls("/names")] == ["/names/a", "/names/b", "/names/deep"]
    assert [entry.path for entry in fs.ls("/names/a")] == ["/names/a"]
    assert [entry.path for entry in fs.glob("/names/[ab]")] == ["/names/a", "/names/b"]
    assert [entry.path for entry in fs.glob("/**/deep")] == ["/names/deep"]
    fs.rename("/names/a", "/names/deep/c")
    assert fs.exists("/names/deep/c")
    assert [entry.path for entry in fs.walk("/names")] == [
        "/names/b",
        "/names/deep",
        "/names/deep/c",
    ]
    assert [entry.path for entry in fs.walk("/names/b")] == ["/names/b"]
    with pytest.raises(NotFoundError):
        next(fs.walk("/names/a"))
    assert not fs.exists("/names/a")
    assert fs.delete("/names", recursive=True)
    assert not fs.delete("/names")


def test_wrong_kinds_of_paths_are_told_apart(fs: Client) -> None:
    fs.mkdirs("/directory")
    with pytest.raises(IsDirectoryError):
        fs.create("/directory", overwrite=True)
    with pytest.raises(IsDirectoryError):
        fs.open("/directory")
    with pytest.raises(NotFoundError):
        fs.open("/no/such/file")
    with pytest.raises(NotFoundError):
        fs.create("/no/parent", parent_must_exist=True)


def test_a_directory_of_many_entries_is_listed_page_by_page(fs: Client) -> None:
    names = [f"/many/{number:04}" for number in range(1005)]
    fs.mkdirs("/many")
    for name in names:
        fs.mkdirs(name)
    assert [entry.path for entry in fs.ls("/many")] == names


@pytest.mark.plain("it asks a DataNode for what NameNodes ask")
def test_the_verbs_of_the_seed_on_a_real_block(fs: Client) -> None:
    view = fs.blocks.add(durability="memory")
    block, first = view.record.block, Generation(0)
    nodes = [fs.blocks.datanode(member) for member in view.members]
    for node in nodes:
        node.write(block, first, ChunkIndex(0), b"one")
    nodes[0].write(block, first, ChunkIndex(1), b"two")
    assert nodes[0].read(block) == (first, b"onetwo")
    assert nodes[1].read(block) == (first, b"one")
    promise = nodes[0].next_gs(block, Generation(1))
    assert (promise.length, promise.registers.accepted_generation) == (2, first)
    with pytest.raises(FencedError):
        nodes[0].write(block, first, ChunkIndex(2), b"three")
    decided = fs.blocks.finalize(block).record
    assert decided.finalized
    assert decided.length in (1, 2)
    assert fs.blocks.get(block).record.length == decided.length


def test_a_namenode_that_starts_again_is_not_noticed(cluster: LocalCluster, fs: Client) -> None:
    data = os.urandom(100 * KIB)
    with fs.create("/restart", chunk_size=5 * KIB, block_size=20 * KIB) as out:
        out.write(data[: 50 * KIB])
        out.hflush()
        cluster.namenode.kill()
        restart = threading.Thread(target=cluster.namenode.start)
        restart.start()
        out.write(data[50 * KIB :])
        restart.join()
    with fs.open("/restart") as file:
        assert file.read() == data
    cluster.wait_registered()


IMPATIENT = ClientConfig(retry_for_s=1.0, rpc_timeout_s=1.0, connect_timeout_s=1.0)


def test_no_namenode_at_all_is_one_clear_line() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with Client(f"paxosblock://127.0.0.1:{port}", IMPATIENT) as fs:
            with pytest.raises(UnavailableError, match=f"127.0.0.1:{port}") as caught:
                fs.stat("/")
            assert "\n" not in str(caught.value)


def test_the_port_of_a_datanode_is_not_a_namenode(cluster: LocalCluster) -> None:
    with (
        Client([cluster.datanodes[0].address], IMPATIENT) as fs,
        pytest.raises(ProtocolError, match="no control call 'stat'"),
    ):
        fs.stat("/")


def test_a_server_that_answers_garbage_is_not_a_namenode() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def babble() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(100)
                peer.sendall(b"\x00\x01\x02 this is not HTTP\r\n\r\n")

        talker = threading.Thread(target=babble)
        talker.start()
        address = "{}:{}".format(*server.getsockname())
        with Client([address], IMPATIENT) as fs, pytest.raises(PaxosBlockError) as caught:
            fs.stat("/")
        talker.join()
        assert isinstance(caught.value, ProtocolError | UnavailableError)
        assert address in str(caught.value)


def test_a_namenode_that_is_down_is_passed_over_for_one_that_answers(cluster: LocalCluster) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        dead = "{}:{}".format(*unused.getsockname())
        with Client([dead, *cluster.addresses], QUICK) as fs:
            assert fs.exists("/")


def test_a_file_of_any_size_needs_little_memory(cluster: LocalCluster) -> None:
    """300 MiB written and read back in a process of its own: its peak above the interpreter with
    everything imported and connected stays under 64 MiB."""
    script = """
import hashlib, resource, sys
from paxosblock import Client

def peak_kib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

block = bytes(range(256)) * 4096
with Client(sys.argv[1]) as fs:
    fs.exists("/")
    before = peak_kib()
    with fs.create("/large", durability="memory") as out:
        for _ in range(300):
            out.write(block)
    wrote = peak_kib() - before
    digest = hashlib.sha256()
    with fs.open("/large") as file:
        for piece in file.pieces():
            digest.update(piece)
    print(wrote, peak_kib() - before, digest.hexdigest())
"""
    command = [sys.executable, "-c", script, cluster.url]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    wrote, both, digest = printed.split()
    expected = hashlib.sha256()
    for _ in range(300):
        expected.update(bytes(range(256)) * 4096)
    assert digest == expected.hexdigest()
    assert int(wrote) < 64 * 1024
    assert int(both) < 64 * 1024


async def test_a_new_file_belongs_to_who_made_it(cluster: LocalCluster) -> None:
    async with AsyncClient(cluster.url) as fs:
        async with await fs.create("/owned"):
            pass
        assert (await fs.stat("/owned")).owner == current_user()
