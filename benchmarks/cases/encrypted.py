"""What do TLS and encryption zones cost, in time and processor, beside the same without?"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any, Final

from benchmarks.suite import Bench, case
from benchmarks.work import AS_SHIPPED, read_file, write_file
from paxosblock.api.encryption import ENCRYPT_DIRECTORY, EncryptDirectory
from paxosblock.api.status import NAMENODE_STATUS, NameNodeStatus, NameNodeStatusRequest
from paxosblock.base.units import GIB, MIB
from paxosblock.client import AsyncClient
from paxosblock.local.cluster import LocalCluster
from paxosblock.net.calls import control
from paxosblock.net.calls.rpc import RpcClient
from paxosblock.net.port.access import Access

FOLDER: Final = "/bench"
ZONE: Final = "/zone"
MASTER: Final = "printf " + "5a" * 32
"""Prints the master key."""
CONNECTIONS: Final = 200
WITHIN_S: Final = 10.0


class SecureCluster(LocalCluster):
    """A cluster whose nodes speak TLS."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs, secure=True)


@case("tls", room_bytes=12 * GIB)
async def tls(bench: Bench) -> None:
    """What does TLS cost a stream that writes or reads, and a connection that begins?"""
    for number in bench.rounds:
        for kind, side in ((LocalCluster, "plain"), (SecureCluster, "TLS")):
            cluster = await bench.cluster(kind=kind)
            # A file that a DataNode lends is read without a connection, so without TLS.
            config = replace(cluster.client_config, short_circuit=False)
            async with AsyncClient(cluster.url, config) as fs:
                await _stream(bench, cluster, fs, FOLDER, side=side, number=number)
                await fs.delete(FOLDER, recursive=True)
            await _connect(bench, cluster, side, number)


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


async def _connect(bench: Bench, cluster: LocalCluster, side: str, number: int) -> None:
    """Measure connections to the NameNode, one after the other, each with one small call."""
    access = Access.of_client(cluster.client_config)
    count, times_s = bench.size(CONNECTIONS, 5), list[float]()
    async with bench.measured(cluster) as spent:
        for _ in range(count):
            begun_s = time.perf_counter()
            async with RpcClient(access) as client:
                await client.call(
                    cluster.namenode.address,
                    NAMENODE_STATUS.name,
                    NameNodeStatusRequest(),
                    NameNodeStatus,
                    WITHIN_S,
                )
            times_s.append(time.perf_counter() - begun_s)
    bench.emit_times(
        f"a connection and its first call, {side}",
        times_s,
        number,
        processor_s=spent.per(count),
        per="connection",
    )
