"""The work of the case `spark-doors`; needs what the case `spark` needs, and jars of Hadoop's.

Spark writes the same rows as parquet, at its own settings: with its own writer to the local disk,
to `webhdfs://` and to `s3a://` at a gateway, there through each committer that Hadoop has for it,
and with our sink. What is read is checked by its sums. Everything of the cluster is on disk before
it is acknowledged; the local disk is not synced.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from pyspark.sql import DataFrame

from benchmarks.host import progress
from benchmarks.spark_s3a import COMMITTERS, committed_by, jars_of_s3a, settings_of_s3a
from benchmarks.spark_work import (
    ROW_BYTES,
    WARM_MIB,
    Paths,
    Run,
    in_turns,
    rows_of,
    session,
    total_of,
)
from benchmarks.suite import Bench
from paxosblock.base.units import MIB
from paxosblock.client import Client
from paxosblock.gateway.s3.access_keys import OPEN_SECRET
from paxosblock.host.user import claimed_user
from paxosblock.local.cluster import LocalCluster

__all__ = ["answer", "jars_of_s3a"]

MIB_MEASURED: Final = 512
BUCKET: Final = "bench-doors"
LOCAL: Final = "local parquet"


def answer(bench: Bench, cluster: LocalCluster) -> None:
    """Emit all figures, of a cluster with a gateway.

    Raises:
        SkipError: the jars cannot be had here.
    """
    (gateway,) = cluster.gateways
    s3 = settings_of_s3a(f"http://{gateway.member.s3_listen}", claimed_user(), OPEN_SECRET)
    folder = bench.folder / "spark-doors"
    folder.mkdir()
    spark = session(bench.host.cores, s3)
    try:
        with Client(cluster.url) as fs:
            fs.mkdirs(f"/{BUCKET}")
            rows = bench.size(MIB_MEASURED, 1) * MIB // ROW_BYTES
            run = Run(bench, spark, cluster.url, fs, folder, rows)
            web = f"webhdfs://{gateway.address}/{BUCKET}"
            progress(f"{bench.case}: write")
            warm = _writes(run, web, rows_of(spark, min(rows, WARM_MIB * MIB // ROW_BYTES)))
            in_turns(run, "write", _writes(run, web, run.frame()), warm, LOCAL)
            progress(f"{bench.case}: read")
            reads = _reads(run, web)
            in_turns(run, "read", reads, reads, LOCAL)
            fs.delete(f"/{BUCKET}", recursive=True)
    finally:
        spark.stop()


def _writes(run: Run, web: str, frame: DataFrame) -> Paths:
    local = os.fspath(run.folder / "parquet")

    def parquet(url: str) -> None:
        frame.write.mode("overwrite").parquet(url)

    def s3a(name: str) -> Callable[[], object]:
        def job() -> None:
            with committed_by(run.spark, name):
                parquet(f"s3a://{BUCKET}/{name}")

        return job

    sink = frame.write.format("paxosblock").mode("overwrite")
    return {
        LOCAL: lambda: parquet(local),
        "webhdfs": lambda: parquet(f"{web}/webhdfs"),
        **{f"s3a, {name} committer": s3a(name) for name in COMMITTERS},
        "sink, parquet": lambda: sink.save(f"{run.url}/{BUCKET}/sink"),
    }


def _reads(run: Run, web: str) -> Paths:
    local, spark = os.fspath(run.folder / "parquet"), run.spark
    source = spark.read.format("paxosblock")
    return {
        LOCAL: lambda: total_of(spark.read.parquet(local)),
        "webhdfs": lambda: total_of(spark.read.parquet(f"{web}/webhdfs")),
        "s3a": lambda: total_of(spark.read.parquet(f"s3a://{BUCKET}/magic")),
        "source, parquet": lambda: total_of(source.load(f"{run.url}/{BUCKET}/sink")),
    }
