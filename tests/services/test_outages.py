"""Writers on real processes go on when a DataNode is cut off, and wait for one that is slow."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from paxosblock import AsyncClient, Client, LocalCluster
from paxosblock.base.units import KIB, MIB
from paxosblock.config import ClientConfig, with_settings
from paxosblock.local.node_process import Node
from paxosblock.protocol.types import StorageId
from tests.children import killed_at_the_end
from tests.disks.faults import HELD, SYNCS, Fault
from tests.fork_server import Program
from tests.services.faulty_node import FaultyCluster
from tests.services.partitions import PartitionedCluster, Way
from tests.waiting import PATIENCE_S, wait_until

PATIENT = ClientConfig(vote_timeout_s=60.0, rpc_timeout_s=60.0)
"""A call that ends sooner than a minute was ended by silence."""
PATIENT_WITH_DISKS = with_settings(PATIENT, {"disk_hung_after_s": 60.0})
"""The same where other tests keep the disk busy: only a silent node is left."""
SOON_S = PATIENCE_S / 3
"""About a second on a quiet machine."""
LEFT_WITHIN_S = 1.5
"""For a disk that hangs: `disk_hung_after` and a recovery, without the wait for a vote, 5 s."""


def node_of(cluster: LocalCluster, storage: StorageId) -> Node:
    """The DataNode that owns a storage."""
    (address,) = (
        node.address
        for node in cluster.status().datanodes
        if any(volume.storage == storage for volume in node.storages)
    )
    return next(node for node in cluster.datanodes if node.address == address)


@pytest.fixture(scope="module")
def partitioned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PartitionedCluster]:
    with PartitionedCluster(4, path=tmp_path_factory.mktemp("partitions") / "c") as cluster:
        yield cluster


@pytest.mark.parametrize("ways", [(), (Way.IN,), (Way.OUT,)], ids=["both", "in", "out"])
def test_a_writer_goes_on_without_a_node_that_is_cut_off(
    partitioned: PartitionedCluster, ways: tuple[Way, ...]
) -> None:
    path = f"/cut/{'-'.join(way.value for way in ways) or 'both'}"
    with Client(partitioned.url, PATIENT) as fs:
        with fs.create(path, chunk_size=16 * KIB) as out:
            written = bytearray()

            def flushed(size: int) -> tuple[StorageId, ...]:
                data = os.urandom(size)
                written.extend(data)
                out.write(data)
                return out.hflush().replicas

            # On a busy machine a healthy node may have been taken for one that hangs before.
            wait_until(lambda: len(flushed(16 * KIB)) == 3, what="a block with three members")
            members = flushed(100 * KIB)
            with partitioned.cut(node_of(partitioned, members[0]), *ways):
                begun = time.monotonic()
                assert members[0] not in flushed(200 * KIB)
                assert time.monotonic() - begun < SOON_S
        with fs.open(path) as file:
            assert file.read() == written
    partitioned.wait_registered()


def test_a_sync_that_takes_two_seconds_does_not_end_a_block(tmp_path: Path) -> None:
    data = os.urandom(100 * KIB)
    with (
        FaultyCluster(3, path=tmp_path / "c") as cluster,
        Client(cluster.url) as fs,
        fs.create("/slow", chunk_size=16 * KIB) as out,
    ):
        out.write(data)
        before = out.hflush()
        slow = node_of(cluster, before.replicas[0])
        cluster.break_disk(slow, Fault(SYNCS, path="/rbw/", delay_s=2.0, times=1))
        begun = time.monotonic()
        out.write(data)
        receipt = out.hflush()
        assert time.monotonic() - begun >= 2.0
        assert cluster.met(slow)
        assert (receipt.block, receipt.replicas) == (before.block, before.replicas)


def test_no_writer_waits_long_for_a_disk_that_hangs(tmp_path: Path) -> None:
    """Its node lives and beats, but no sync comes back from the disk, not even a small one."""
    line, waits_s = os.urandom(20 * KIB), list[float]()
    with (
        FaultyCluster(4, path=tmp_path / "c") as cluster,
        Client(cluster.url) as fs,
        fs.create("/log", chunk_size=16 * KIB) as out,
    ):

        def timed(flushed: Callable[[], object]) -> None:
            begun = time.monotonic()
            flushed()
            waits_s.append(time.monotonic() - begun)

        def appended() -> None:
            out.write(line)
            assert len(out.hflush().replicas) >= 2

        def made() -> None:
            with fs.create(f"/{len(waits_s)}") as small:
                small.write(line)

        out.write(line)
        hung = node_of(cluster, out.hflush().replicas[0])
        cluster.break_disk(hung, Fault(SYNCS, path=f"{hung.volumes[0]}/", delay_s=HELD))
        for _ in range(30):
            timed(appended)
            timed(made)
        assert cluster.met(hung)
        assert max(waits_s) < LEFT_WITHIN_S
        assert hung.alive
        out.write(line)
        assert node_of(cluster, out.hflush().replicas[0]) is not hung
        cluster.mend_disk(hung)
        out.close()
        with fs.open("/log") as file:
            assert file.read() == line * 32
        for path in (entry.path for entry in fs.ls("/")):
            with fs.open(path) as file:
                assert file.read().startswith(line)


AT_ONCE = 400
"""Clients in one process: so many that none hears of a DataNode within `hung_after`."""


@pytest.mark.plain("on a busy machine so many handshakes take a process longer than nodes wait")
def test_clients_that_begin_at_once_find_no_datanode_that_hangs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def flushed(url: str, path: str) -> int:
        fs = AsyncClient(url, PATIENT_WITH_DISKS)
        # So many of usual size would ask for more room than a machine's disk may have.
        async with fs, await fs.create(path, block_size=MIB) as out:
            await out.write(b"x")
            return len((await out.hflush()).replicas)

    async def all_flushed(url: str) -> list[int]:
        return await asyncio.gather(*(flushed(url, f"/{number}") for number in range(AT_ONCE)))

    with caplog.at_level("INFO", logger="paxosblock.client"), LocalCluster(datanodes=3) as cluster:
        replica_counts = asyncio.run(all_flushed(cluster.url))
    assert [each for each in caplog.messages if "takes no replica" in each] == []
    assert Counter(replica_counts) == {3: AT_ONCE}


WRITER = """
import sys
from paxosblock import Client
with Client(sys.argv[1]) as fs, fs.create("/stopped", chunk_size=1000) as out:
    for line in sys.stdin:
        out.write(b"x" * 100_000)
        receipt = out.hflush()
        print(receipt.block, len(receipt.replicas), flush=True)
"""


@contextmanager
def writer(cluster: LocalCluster) -> Iterator[subprocess.Popen[str]]:
    """A process that writes and flushes for each line it is sent, and tells its receipt."""
    command = [sys.executable, "-c", WRITER, cluster.url]
    pipe = subprocess.PIPE
    process = Program(command, stdin=pipe, stdout=pipe, text=True)
    with killed_at_the_end(process):
        yield process


def test_a_client_that_was_stopped_does_not_blame_its_datanodes(tmp_path: Path) -> None:
    """It was stopped in mid-write: the votes that came meanwhile are in its sockets."""
    silence_s = 4 * ClientConfig().hung_after_s
    with FaultyCluster(3, path=tmp_path / "c") as cluster, writer(cluster) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        seen = set()
        for _ in range(3):
            process.stdin.write("go on\n")
            process.stdin.flush()
            seen.add(process.stdout.readline())
            for node in cluster.datanodes:
                cluster.break_disk(node, Fault(SYNCS, path="/rbw/", delay_s=60.0))
            process.stdin.write("go on\n")
            process.stdin.flush()
            wait_until(lambda: all(map(cluster.met, cluster.datanodes)), what="chunks under way")
            process.send_signal(signal.SIGSTOP)
            stopped = time.monotonic()
            for node in cluster.datanodes:
                cluster.mend_disk(node)
            wait_until(lambda: time.monotonic() > stopped + silence_s)  # noqa: B023  # at once
            process.send_signal(signal.SIGCONT)
            seen.add(process.stdout.readline())
        assert len(seen) == 1
        assert seen.pop().endswith(" 3\n")
