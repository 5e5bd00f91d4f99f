"""The work of the case `spark-beside-hdfs`; needs what the case `spark` needs, and HDFS.

Spark writes the same rows as parquet, at its own settings, to HDFS with its own writer, through the
Hadoop client that PySpark brings, and to ours through the sink; and reads both back. Each side has
three DataNodes and three replicas. Durability:

    memory   ours: every replica has received a chunk; a block is forced to disk at its end.
             HDFS: every replica has received it; nothing is forced.
    disk     ours: a chunk is acknowledged when every replica has forced it to disk.
             HDFS: its DataNodes force a block to disk at its end (`dfs.datanode.synconclose`), for
             a writer cannot ask for it through Spark.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from benchmarks import host
from benchmarks.peers.beside import peer, used
from benchmarks.peers.hdfs import JARS, Hdfs, HdfsThatSyncs
from benchmarks.spark_work import (
    MIB_WRITTEN,
    ROW_BYTES,
    TEXT_LENGTH,
    WARM_MIB,
    rows_of,
    session,
    total_of,
)
from benchmarks.suite import CLIENT, Bench, Spent
from paxosblock.base.units import GIB, MIB
from paxosblock.client import Client
from paxosblock.local.cluster import LocalCluster

REPLICAS: Final = 3
FOLDER: Final = "/spark-beside-hdfs"


@dataclass(frozen=True, slots=True)
class Side:
    """A place that Spark writes to and reads from."""

    facts: dict[str, Any]
    write: Callable[[DataFrame], None]
    read: Callable[[], DataFrame]
    stored_bytes: Callable[[], int]
    """The length of all files, counted once."""
    cluster: LocalCluster | None
    """Ours, whose nodes are measured."""
    used: Callable[[], dict[str, float]]
    """Processor seconds of all others, by role."""


async def answer(bench: Bench) -> None:
    """Emit all figures. Raises SkipError: HDFS cannot be had here."""
    await asyncio.to_thread(JARS.fetched)  # before anything is started in vain
    spark = await asyncio.to_thread(session, bench.host.cores)
    try:
        for durability, kind in (("memory", Hdfs), ("disk", HdfsThatSyncs)):
            async with peer(bench, kind) as hdfs:
                cluster = await bench.cluster()
                sides = (_ours(spark, cluster, durability), _theirs(spark, hdfs, durability))
                for number in (0, *bench.rounds):  # the first is to warm up, and is not told
                    for side in sides:
                        await _round(bench, spark, side, f"durability {durability}", number)
    finally:
        await asyncio.to_thread(spark.stop)


def _ours(spark: SparkSession, cluster: LocalCluster, durability: str) -> Side:
    url = f"{cluster.url}{FOLDER}"

    def write(frame: DataFrame) -> None:
        sink = frame.write.format("paxosblock").mode("overwrite")
        sink.options(fileFormat="parquet", durability=durability).save(url)

    def stored_bytes() -> int:
        with Client(cluster.url) as fs:
            return sum(each.size for each in fs.ls(FOLDER))

    return Side(
        {"durability": durability},
        write,
        lambda: spark.read.format("paxosblock").option("fileFormat", "parquet").load(url),
        stored_bytes,
        cluster,
        lambda: _of_spark(spark),
    )


def _theirs(spark: SparkSession, hdfs: Hdfs, durability: str) -> Side:
    url = f"{hdfs.url}{FOLDER}"
    servers = set(hdfs.pids()) - {CLIENT}  # Spark brings its own client

    def used_s() -> dict[str, float]:
        return {role: s for role, s in used(hdfs).items() if role in servers} | _of_spark(spark)

    def stored_bytes() -> int:
        lengths = spark.read.format("binaryFile").load(url).agg(sql.sum("length")).first()
        assert lengths is not None, "a sum has a row"
        return int(lengths[0])

    called = "synconclose" if durability == "disk" else durability
    return Side(
        {**hdfs.facts, "durability": called},
        lambda frame: frame.write.mode("overwrite").parquet(url),
        lambda: spark.read.parquet(url),
        stored_bytes,
        None,
        used_s,
    )


def _of_spark(spark: SparkSession) -> dict[str, float]:
    """Return the processor seconds of the JVM and of all Python workers that it started."""
    gateway = spark.sparkContext._gateway
    assert gateway is not None, "the session runs"
    pid: int = gateway.proc.pid
    return {"JVM": host.processor_s(pid), "Python workers": host.processor_below_s(pid)}


async def _round(
    bench: Bench, spark: SparkSession, side: Side, durability: str, number: int
) -> None:
    mib = bench.size(MIB_WRITTEN if number else WARM_MIB, 1)
    rows = mib * MIB // ROW_BYTES
    written = await _measured(bench, side, lambda: side.write(rows_of(spark, rows)))
    read = await _measured(bench, side, lambda: _read(side, rows))
    if not number:
        return
    facts = {**side.facts, "replicas": REPLICAS}
    for did, spent in (("write", written), ("read", read)):
        bench.emit(f"{did}, {durability}", mib / spent.elapsed_s, "MiB/s", number, per="GiB",
                   processor_s=spent.per(mib * MIB / GIB), MiB_of_Arrow=mib, **facts)  # fmt: skip
    stored_mib = await asyncio.to_thread(side.stored_bytes) / MIB
    bench.emit(f"stored, {durability}", stored_mib, "MiB", number, MiB_of_Arrow=mib, **facts)


async def _measured(bench: Bench, side: Side, work: Callable[[], None]) -> Spent:
    async with bench.measured(side.cluster) as spent:
        before = side.used()
        await asyncio.to_thread(work)
        after = side.used()
    # Spark ends workers that are idle for a minute, and some leave no account of their time.
    spent.processor_s |= {role: max(0.0, after[role] - before[role]) for role in before}
    return spent


def _read(side: Side, rows: int) -> None:
    """Read all columns of all rows; what comes is what was written."""
    numbers = rows * (rows - 1) // 2
    assert total_of(side.read()) == (numbers, numbers / 2, rows * TEXT_LENGTH), "all rows come back"
