"""What do TLS and encryption zones cost, in time, processor and memory, beside the same without?"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from typing import Any, Final

from benchmarks.host import resident_bytes
from benchmarks.suite import Bench, case
from benchmarks.work import AS_SHIPPED, read_file, write_file
from paxosblock.api.encryption import ENCRYPT_DIRECTORY, EncryptDirectory
from paxosblock.api.status import NAMENODE_STATUS, NameNodeStatus, NameNodeStatusRequest
from paxosblock.base.units import GIB, KIB, MIB
from paxosblock.client import AsyncClient
from paxosblock.local.cluster import LocalCluster
from paxosblock.net.calls import control
from paxosblock.net.calls.rpc import RpcClient
from paxosblock.net.port.access import Access
from paxosblock.net.port.tls import Tls
from paxosblock.net.port.upgrade import split_address

FOLDER: Final = "/bench"
ZONE: Final = "/zone"
MASTER: Final = "printf " + "5a" * 32
"""Prints the master key."""
CONNECTIONS: Final = 200
IDLE: Final = 1000
HALF: Final = 5000
BEGUN: Final = {"plain": b"GET /", "TLS": Tls.FIRST_BYTE + b"\x03\x01\x02\x00"}
"""The beginning of a request, or of a handshake, of which the rest never comes."""
WITHIN_S: Final = 10.0


class SecureCluster(LocalCluster):
    """A cluster whose nodes speak TLS."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs, secure=True)


SIDES: Final = ((LocalCluster, "plain"), (SecureCluster, "TLS"))


@case("tls", room_bytes=12 * GIB)
async def tls(bench: Bench) -> None:
    """What does TLS cost a stream that writes or reads, and a connection that begins?"""
    for number in bench.rounds:
        for kind, side in SIDES:
            cluster = await bench.cluster(kind=kind)
            # A file that a DataNode lends is read without a connection, so without TLS.
            config = replace(cluster.client_config, short_circuit=False)
            async with AsyncClient(cluster.url, config) as fs:
                await _stream(bench, cluster, fs, FOLDER, side=side, number=number)
                await fs.delete(FOLDER, recursive=True)
            await _connect(bench, cluster, side, number)


@case("tls-crowd")
async def tls_crowd(bench: Bench) -> None:
    """What do idle connections, and handshakes without an end, cost a NameNode and others?"""
    for number in bench.rounds:
        for kind, side in SIDES:
            cluster = await bench.cluster(1, kind=kind, fresh=True)
            pid, idle = cluster.namenode.pid or 0, bench.size(IDLE, 4)
            await _connect(bench, cluster, side, number)  # what the first callers cost comes before
            before = resident_bytes(pid)
            async with AsyncExitStack() as stack:
                for _ in range(idle):
                    await _first_call(cluster, await stack.enter_async_context(_caller(cluster)))
                each = (resident_bytes(pid) - before) / KIB / idle
                bench.emit(f"an idle connection, {side}", each, "KiB", number, clients=idle)
            before, half = resident_bytes(pid), bench.size(HALF, 8)
            with _begun(cluster.namenode.address, BEGUN[side], half):
                await _connect(bench, cluster, side, number, f", beside {half:,} that only begin")
                grown = (resident_bytes(pid) - before) / MIB
                what = f"memory of {half:,} that only begin, {side}"
                bench.emit(what, grown, "MiB", number, clients=half)


@contextmanager
def _begun(address: str, words: bytes, count: int) -> Iterator[None]:
    """Keep so many connections on which these are the first `words`, and no others come."""
    begun = list[socket.socket]()
    try:
        for _ in range(count):
            begun.append(socket.create_connection(split_address(address), WITHIN_S))
            begun[-1].sendall(words)
        yield
    finally:
        for each in begun:
            each.close()


@case("zone", room_bytes=12 * GIB)
async def zone(bench: Bench) -> None:
    """What does an encryption zone cost a stream that writes or reads?"""
    cluster = await bench.cluster(settings={"namenode": {"master_key_command": MASTER}})
    config = replace(cluster.client_config, short_circuit=False)
    async with AsyncClient(cluster.url, config) as fs:
        await fs.mkdirs(ZONE)
        request = EncryptDirectory(ZONE)
        address = cluster.namenode.address
        await asyncio.to_thread(control.call, address, ENCRYPT_DIRECTORY, request, WITHIN_S)
        for number in bench.rounds:
            for folder, side in ((FOLDER, "plain"), (ZONE, "zone")):
                await _stream(bench, cluster, fs, folder, side=side, number=number)
                for name in ("warm", "file"):
                    await fs.delete(f"{folder}/{name}")


async def _stream(
    bench: Bench, cluster: LocalCluster, fs: AsyncClient, folder: str, *, side: str, number: int
) -> None:
    """Measure one stream that writes, and one that reads the same."""
    total = bench.size(512 * MIB, 8 * MIB)
    await write_file(fs, f"{folder}/warm", total // 4, "memory")
    for verb in ("write", "read"):
        async with bench.measured(cluster) as spent:
            if verb == "write":
                await write_file(fs, f"{folder}/file", total, "memory")
            else:
                await read_file(fs, f"{folder}/file")
        bench.emit(
            f"{verb}, one stream, {side}",
            total / MIB / spent.elapsed_s,
            "MiB/s",
            number,
            processor_s=spent.per(total / GIB),
            per="GiB",
            durability="memory",
            **AS_SHIPPED,
        )


def _caller(cluster: LocalCluster) -> RpcClient:
    return RpcClient(Access.of_client(cluster.client_config))


async def _first_call(cluster: LocalCluster, client: RpcClient) -> None:
    """Connect to the NameNode, and make one small call."""
    await client.call(
        cluster.namenode.address,
        NAMENODE_STATUS.name,
        NameNodeStatusRequest(),
        NameNodeStatus,
        WITHIN_S,
    )


async def _connect(
    bench: Bench, cluster: LocalCluster, side: str, number: int, beside: str = ""
) -> None:
    """Measure connections to the NameNode, one after the other, each with one small call."""
    count, times_s = bench.size(CONNECTIONS, 5), list[float]()
    async with bench.measured(cluster) as spent:
        for _ in range(count):
            begun_s = time.perf_counter()
            async with _caller(cluster) as client:
                await _first_call(cluster, client)
            times_s.append(time.perf_counter() - begun_s)
    bench.emit_times(
        f"a connection and its first call, {side}{beside}",
        times_s,
        number,
        processor_s=spent.per(count),
        per="connection",
    )
