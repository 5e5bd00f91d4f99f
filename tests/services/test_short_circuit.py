"""A client on the machine of a DataNode reads from the files of finalized replicas by itself.

The cluster is secure: what is lent is lent for a capability, on a stream that speaks TLS.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from paxosblock import AsyncClient, Client, LocalCluster
from paxosblock.api.datanode import BorrowReplica, LentReplica, Offer
from paxosblock.api.file_pages import GET_FILE, GetFile
from paxosblock.base.units import KIB, MIB
from paxosblock.client.reading.block_reader import finalized_extent
from paxosblock.client.session import lent_files
from paxosblock.config import ClientConfig
from paxosblock.errors import AccessDeniedError, NotFoundError, TruncatedError, UnavailableError
from paxosblock.local.node_process import Node
from paxosblock.net import lending
from paxosblock.protocol.types import BlockId
from tests.services.test_scrubbing import block_files, flip, metric
from tests.waiting import wait_until, wait_until_async

CHUNK = 128 * KIB
DATA = bytes(range(256)) * (4 * MIB // 256)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Two DataNodes."""
    settings = {
        "namenode": {"heartbeat_interval": "100ms", "safe_mode_extension": "0s"},
        "datanode": {"heartbeat_interval": "100ms"},
    }
    folder = tmp_path_factory.mktemp("cluster")
    with LocalCluster(2, path=folder, settings=settings, secure=True) as cluster:
        yield cluster


@pytest.fixture
def config(cluster: LocalCluster) -> ClientConfig:
    """The settings of a client of it; files have two replicas, and chunks are short."""
    return replace(cluster.client_config, chunk_size=CHUNK, replication=2, retry_for_s=5.0)


@pytest.fixture
def path(config: ClientConfig, cluster: LocalCluster, request: pytest.FixtureRequest) -> str:
    """A file that is finalized at both."""
    path = f"/{request.node.name}"
    before = [{*block_files(node)} for node in cluster.datanodes]  # some may be going
    with Client(cluster.url, config) as fs, fs.create(path) as out:
        out.write(DATA)
    wait_until(
        lambda: all(
            {*block_files(node)} - known
            for node, known in zip(cluster.datanodes, before, strict=True)
        ),
        what="two finalized replicas",
    )
    return path


def newest(node: Node) -> Path:
    """Return the block file that was written last."""
    return max(block_files(node), key=lambda path: path.stat().st_mtime_ns)


def open_files(fs: AsyncClient) -> int:
    return len(fs._session.lent._open)


async def test_reads_go_on_from_the_file_while_its_datanodes_stand_still(
    cluster: LocalCluster, config: ClientConfig, path: str
) -> None:
    async with AsyncClient(cluster.url, config) as fs, await fs.open(path) as file:
        assert await file.pread(0, 2 * MIB) == DATA[: 2 * MIB]
        assert open_files(fs) == 1
        for node in cluster.datanodes:
            node.pause()
        try:
            for start, size in ((0, 4 * MIB), (3 * MIB - 7, 100), (CHUNK - 1, CHUNK + 2)):
                assert await file.pread(start, size) == DATA[start : start + size]
        finally:
            for node in cluster.datanodes:
                node.resume()


async def test_a_damaged_chunk_is_never_served_and_its_replica_is_dead(
    cluster: LocalCluster, config: ClientConfig, path: str
) -> None:
    async with AsyncClient(cluster.url, config) as fs, await fs.open(path) as file:
        assert await file.pread(0, 2 * MIB) == DATA[: 2 * MIB]
        assert open_files(fs) == 1
        ((storage, _, _),) = fs._session.lent._open
        view = await fs._session.namenodes.call(GET_FILE, GetFile(path))
        (member,) = (each for each in view.blocks[0].members if each.storage == storage)
        (node,) = (each for each in cluster.datanodes if each.address == member.address)
        sound = newest(node).read_bytes()
        flip(newest(node), 3 * MIB)
        assert await file.pread(0, 4 * MIB) == DATA
    wait_until(lambda: newest(node).read_bytes() == sound, what="a sound copy in its place")


async def test_an_open_reader_reads_on_beside_an_append_and_gets_no_mixture_beside_a_cut(
    cluster: LocalCluster, config: ClientConfig, path: str
) -> None:
    async with AsyncClient(cluster.url, config) as fs:
        async with await fs.open(path) as file:
            assert await file.pread(0, 2 * MIB) == DATA[: 2 * MIB]
            async with await fs.append(path) as more:
                await more.write(b"more" * CHUNK)
            assert await file.pread(MIB, 3 * MIB) == DATA[MIB:]
        async with await fs.open(path) as file:
            assert await file.pread(0, 4 * MIB) == DATA
            await fs.truncate(path, 2 * MIB + 5)
            async with await fs.append(path) as more:
                await more.write(b"else" * CHUNK)
            # A reader gets the old bytes or an error, never a mixture.
            with contextlib.suppress(TruncatedError):
                assert await file.pread(2 * MIB, MIB) == DATA[2 * MIB : 3 * MIB]
        async with await fs.open(path) as file:
            assert (await file.read())[2 * MIB :] == DATA[2 * MIB : 2 * MIB + 5] + b"else" * CHUNK


async def test_a_deleted_file_is_gone_for_its_reader_and_its_descriptor_is_closed(
    cluster: LocalCluster, config: ClientConfig, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lent_files, "KEPT_S", 0.2)
    async with AsyncClient(cluster.url, config) as fs, await fs.open(path) as file:
        assert await file.pread(0, 2 * MIB) == DATA[: 2 * MIB]
        await fs.delete(path)
        with contextlib.suppress(NotFoundError):  # as long as it is open
            assert await file.pread(0, 2 * MIB) == DATA[: 2 * MIB]
        await wait_until_async(lambda: not open_files(fs), what="no open file")


async def test_nothing_is_lent_without_the_capability_for_the_block(
    cluster: LocalCluster, config: ClientConfig, path: str
) -> None:
    async with AsyncClient(cluster.url, config) as fs:
        session = fs._session
        view = await session.namenodes.call(GET_FILE, GetFile(path))
        extent = finalized_extent(view.blocks[0])
        member = extent.members[0]
        connection = await session.reading.get(member.address)
        good = BorrowReplica(extent.block, member.storage, extent.version, member.capability)
        assert isinstance(await connection.borrow(good, 5.0), LentReplica)
        for forged in (b"", member.capability[:-1] + b"?", extent.members[1].capability):
            with pytest.raises(AccessDeniedError):
                await connection.borrow(msgspec.structs.replace(good, capability=forged), 5.0)
        other = BlockId(extent.block + 1)
        with pytest.raises(AccessDeniedError, match="is for block"):
            await connection.borrow(msgspec.structs.replace(good, block=other), 5.0)


async def test_reads_fall_back_to_the_stream_where_no_descriptor_comes(
    cluster: LocalCluster, config: ClientConfig, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_socket(offer: Offer) -> int:
        raise UnavailableError("another network")

    monkeypatch.setattr(lending, "take", no_socket)
    async with AsyncClient(cluster.url, config) as fs, await fs.open(path) as file:
        assert await file.read() == DATA
        assert not open_files(fs)
    monkeypatch.undo()
    async with (
        AsyncClient(cluster.url, replace(config, short_circuit=False)) as fs,
        await fs.open(path) as file,
    ):
        assert await file.read() == DATA
        assert not open_files(fs)
    for setting in ("true", "false"):
        settings = {"datanode": {"short_circuit": setting}}
        with (
            LocalCluster(1, settings=settings) as other,
            Client(other.url, replication=1, chunk_size=CHUNK) as client,
        ):
            with client.create("/file") as out:
                out.write(DATA)
            with client.open("/file") as whole:
                assert whole.read() == DATA
            assert metric(other.datanodes[0], "lent_replicas") == (setting == "true")
