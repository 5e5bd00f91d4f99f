"""What does TLS cost, in time and processor, beside the same without?"""

from __future__ import annotations

import time
from typing import Any, Final

from benchmarks.suite import Bench, case
from benchmarks.work import AS_SHIPPED, read_file, write_file
from paxosblock.api.status import NAMENODE_STATUS, NameNodeStatus, NameNodeStatusRequest
from paxosblock.base.units import GIB, MIB
from paxosblock.client import AsyncClient
from paxosblock.local.cluster import LocalCluster
from paxosblock.net.calls.rpc import RpcClient
from paxosblock.net.port.access import Access

FOLDER: Final = "/bench"
CONNECTIONS: Final = 200
WITHIN_S: Final = 10.0


class SecureCluster(LocalCluster):
    """A cluster whose nodes speak TLS."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs, secure=True)


@case("tls", room_bytes=12 * GIB)
async def tls(bench: Bench) -> None:
    """What does TLS cost a stream that writes or reads, and a connection that begins?"""
    total = bench.size(512 * MIB, 8 * MIB)
    for number in bench.rounds:
        for kind, side in ((LocalCluster, "plain"), (SecureCluster, "TLS")):
            cluster = await bench.cluster(kind=kind)
            async with AsyncClient(cluster.url, cluster.client_config) as fs:
                await write_file(fs, f"{FOLDER}/warm", total // 4, "memory")
                for verb in ("write", "read"):
                    async with bench.measured(cluster) as spent:
                        if verb == "write":
                            await write_file(fs, f"{FOLDER}/file", total, "memory")
                        else:
                            await read_file(fs, f"{FOLDER}/file")
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
                await fs.delete(FOLDER, recursive=True)
            await _connect(bench, cluster, side, number)


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
