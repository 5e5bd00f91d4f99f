"""How fast does Spark write, read and stream, beside the local disk, through each door, and beside
Spark on HDFS?"""

from __future__ import annotations

import asyncio
import os
from importlib import import_module
from types import ModuleType

from benchmarks.cases.gateways import WithGateway
from benchmarks.peers.fetch import need
from benchmarks.suite import Bench, SkipError, case
from paxosblock.base.units import GIB


@case("spark", usual=False, room_bytes=12 * GIB)
async def spark(bench: Bench) -> None:
    """How fast does Spark write, read and stream, beside the local disk?"""
    work = _with_spark("spark_work")
    cluster = await bench.cluster()
    await asyncio.to_thread(work.answer, bench, cluster.url)


@case("spark-doors", usual=False, room_bytes=24 * GIB)
async def spark_doors(bench: Bench) -> None:
    """How fast does Spark write and read parquet through each door, beside the local disk?"""
    work = _with_spark("spark_doors")
    await asyncio.to_thread(work.jars_of_s3a)  # before anything is started in vain
    cluster = await bench.cluster(kind=WithGateway)
    await asyncio.to_thread(work.answer, bench, cluster)


@case("spark-beside-hdfs", usual=False, room_bytes=12 * GIB)
async def spark_beside_hdfs(bench: Bench) -> None:
    """How fast does Spark write parquet and read it back, beside Spark's own on HDFS?"""
    await _with_spark("spark_hdfs").answer(bench)


def _with_spark(name: str) -> ModuleType:
    """Import a module that loads PySpark. Raises SkipError: that, or Java, is not installed."""
    if "JAVA_HOME" not in os.environ:
        need("Spark", "java")
    try:
        return import_module(f"benchmarks.{name}")
    except ImportError as error:
        raise SkipError("it needs `pip install 'paxosblock[spark]'`") from error
