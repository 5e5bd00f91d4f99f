"""Spark's way to a gateway by `s3a://`: jars, which PySpark lacks, and settings."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyspark
from pyspark.sql import SparkSession

from benchmarks.peers.fetch import Jars
from benchmarks.suite import SkipError

BINDINGS: Final = "org.apache.spark:spark-hadoop-cloud_2.13:4.1.2"
"""Lets Spark's writers use committers of s3a. Of PySpark 4.3's own version there is none yet."""
COMMITTERS: Final = ("magic", "directory", "file")
"""Those that Hadoop has for s3a and that write whole tables, by their names in its settings."""
_PLAIN: Final = {
    "spark.sql.sources.commitProtocolClass": (
        "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol"
    ),
    "spark.sql.parquet.output.committer.class": (
        "org.apache.parquet.hadoop.ParquetOutputCommitter"
    ),
}
_BOUND: Final = {
    "spark.sql.sources.commitProtocolClass": (
        "org.apache.spark.internal.io.cloud.PathOutputCommitProtocol"
    ),
    "spark.sql.parquet.output.committer.class": (
        "org.apache.spark.internal.io.cloud.BindingParquetOutputCommitter"
    ),
}
_RUNTIME: Final = "hadoop-client-runtime-"


def jars_of_s3a() -> Path:
    """Return the folder of the jars, which are fetched once: 690 MB, most of them Amazon's.

    Raises:
        SkipError: they cannot be had, or PySpark has no client of Hadoop.
    """
    version = hadoop_version()
    wanted = (f"org.apache.hadoop:hadoop-aws:{version}",)
    return Jars("s3a", version, wanted, alone=(BINDINGS,)).fetched() / "lib"


def hadoop_version() -> str:
    """Return the version of Hadoop that PySpark brings. Raises SkipError: it brings none."""
    for jar in (Path(pyspark.__file__).parent / "jars").glob(f"{_RUNTIME}*.jar"):
        return jar.stem.removeprefix(_RUNTIME)
    raise SkipError("PySpark has no client of Hadoop among its jars")


def settings_of_s3a(url: str, key_id: str, secret: str) -> dict[str, str]:
    """Return the settings of a session that finds a gateway at `url` by `s3a://`; the jars too."""
    return {
        "spark.driver.extraClassPath": f"{jars_of_s3a()}/*",
        "spark.hadoop.fs.s3a.endpoint": url,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.access.key": key_id,
        "spark.hadoop.fs.s3a.secret.key": secret,
        "spark.hadoop.fs.s3a.committer.staging.tmp.path": f"{tempfile.gettempdir()}/spark-staging",
    }


def settings_of_committer(name: str) -> dict[str, str]:
    """Return the settings of a session that choose one of `COMMITTERS`."""
    chosen = _PLAIN if name == "file" else _BOUND
    return {**chosen, "spark.hadoop.fs.s3a.committer.name": name}


@contextlib.contextmanager
def committed_by(spark: SparkSession, name: str) -> Iterator[None]:
    """Let the session commit by one of `COMMITTERS`."""
    settings = settings_of_committer(name)
    for key, value in settings.items():
        spark.conf.set(key.removeprefix("spark.hadoop."), value)
    try:
        yield
    finally:
        for key in settings:
            spark.conf.unset(key.removeprefix("spark.hadoop."))
