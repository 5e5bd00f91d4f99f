"""The work of the case `spark`; needs PySpark, pyarrow and Java.

It uses a cluster with three DataNodes and a `local[cores]` Spark on the same machine. Rows are a
bigint, a double and a string of 64 characters, 88 bytes in Arrow; MiB are of those. Paths take
turns, and the limit is Spark on the local disk in the same round. "Unweighed" writes have the
setting that docs/spark.md recommends: Spark then does not add up the bytes of a batch before each
row.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from benchmarks.host import progress
from benchmarks.stats import median
from benchmarks.suite import Bench
from paxosblock.api.transaction import Operation, Rename
from paxosblock.base.units import MIB
from paxosblock.client import Client
from paxosblock.errors import UnavailableError
from paxosblock.local.node_process import wait_until

ROW_BYTES = 88
TEXT_LENGTH = 64
WARM_MIB = 64
MIB_WRITTEN = 1024
BATCH_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
UNWEIGHED = (1 << 31) - 1
COMMITTED_FILES = (1, 100, 1000)
BATCHES = 12
LINES = 60
LINE_WITHIN_S = 240
"""The bound is for what hangs: on a busy machine the first line waits for Python to start."""


Paths = dict[str, Callable[[], object]]
"""Ways to do the same work, by name."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run's Spark, cluster, scratch folder and rows."""

    bench: Bench
    spark: SparkSession
    url: str
    fs: Client
    folder: Path
    rows: int

    @property
    def mib(self) -> float:
        """Arrow size of the rows."""
        return self.rows * ROW_BYTES / MIB

    def frame(self, most: int | None = None) -> DataFrame:
        """Return the rows, or `most` of them."""
        return rows_of(self.spark, self.rows if most is None else min(self.rows, most))


def rows_of(spark: SparkSession, count: int) -> DataFrame:
    """Return so many rows, made while they are written: an id, a number and 64 characters."""
    text = sql.concat(*(sql.lpad(sql.hex("id"), TEXT_LENGTH // 4, "0") for _ in range(4)))
    return spark.range(count).select("id", (sql.col("id") * 0.5).alias("half"), text)


def total_of(frame: DataFrame) -> Row | None:
    """Read every column of such rows; only sums leave the tasks."""
    sums = [sql.sum("id"), sql.sum("half"), sql.sum(sql.length(frame.columns[2]))]
    return frame.agg(*sums).first()


class Discard(DataSource):
    """A data source that takes Arrow batches and drops them: it shows the cost of PySpark alone."""

    @classmethod
    def name(cls) -> str:
        """Return the name that `format` takes."""
        return "discard"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """See the class."""
        return _DiscardWriter()


class _DiscardWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()


def seconds_of(work: Callable[[], object]) -> float:
    """Return the seconds that `work` takes."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def in_turns(run: Run, question: str, paths: Paths, warm: Paths, baseline: str) -> None:
    """Emit MiB/s of each path, beside the baseline of the same round, after `warm` has loaded
    classes and started workers."""
    for work in () if run.bench.options.small else warm.values():
        work()
    for number in run.bench.rounds:
        spent = {name: seconds_of(work) for name, work in paths.items()}
        bare = run.mib / spent[baseline]
        for name, seconds in spent.items():
            run.bench.emit(f"{question}: {name}", run.mib / seconds, "MiB/s", number, limit=bare,
                           limit_is=baseline, MiB=f"{run.mib:.0f}")  # fmt: skip


def bench_write(run: Run) -> None:
    """Compare the sink with Spark's own parquet writer and with a writer that discards."""
    run.spark.dataSource.register(Discard)
    warm = write_paths(run, run.frame(WARM_MIB * MIB // ROW_BYTES))
    in_turns(run, "write", write_paths(run, run.frame()), warm, "local parquet")


def write_paths(run: Run, frame: DataFrame) -> Paths:
    """Return every way to write `frame`; through Python with Spark's own settings and unweighed."""
    local = os.fspath(run.folder / "local.parquet")
    arrow = arrow_paths(run, frame)
    return {
        "local parquet": lambda: frame.write.mode("overwrite").parquet(local),
        "scan only": lambda: frame.write.format("noop").mode("overwrite").save(),
        **arrow,
        **{f"{name}, unweighed": unweighed(run, work) for name, work in arrow.items()},
    }


def unweighed(run: Run, work: Callable[[], object]) -> Callable[[], object]:
    """Return `work` such that Spark limits a batch by its number of rows only."""

    def job() -> None:
        run.spark.conf.set(BATCH_BYTES, UNWEIGHED)
        try:
            work()
        finally:
            run.spark.conf.unset(BATCH_BYTES)

    return job


def arrow_paths(run: Run, frame: DataFrame) -> Paths:
    """Return every way through a Python Arrow writer."""

    def sink(file_format: str, durability: str) -> Callable[[], object]:
        target = f"{run.url}/bench/{file_format}-{durability}"
        options = {"fileFormat": file_format, "durability": durability}
        return lambda: (
            frame.write.format("paxosblock").mode("overwrite").options(**options).save(target)
        )

    return {"Arrow, discarded": lambda: frame.write.format("discard").mode("append").save()} | {
        f"sink, {kind}, {durability}": sink(kind, durability)
        for kind in ("parquet", "arrow")
        for durability in ("disk", "memory")
    }


def bench_read(run: Run) -> None:
    """Compare the batch source with Spark's own parquet reader."""
    local = os.fspath(run.folder / "read.parquet")
    progress("writing what is read")
    run.frame().write.mode("overwrite").parquet(local)
    for kind in ("parquet", "arrow"):
        target = f"{run.url}/bench/read-{kind}"
        options = {"fileFormat": kind}
        run.frame().write.format("paxosblock").mode("overwrite").options(**options).save(target)

    def source(kind: str) -> Callable[[], object]:
        target = f"{run.url}/bench/read-{kind}"
        reader = run.spark.read.format("paxosblock").option("fileFormat", kind)
        return lambda: total_of(reader.load(target))

    paths: Paths = {
        "local parquet": lambda: total_of(run.spark.read.parquet(local)),
        "source, parquet": source("parquet"),
        "source, arrow": source("arrow"),
    }
    in_turns(run, "read", paths, paths, "local parquet")


def bench_commit(run: Run) -> None:
    """Measure one transaction that publishes that many files."""
    for count in run.bench.some(COMMITTED_FILES):
        for number in run.bench.rounds:
            work, place = f"/bench/work-{count}-{number}", f"/bench/published-{count}-{number}"
            run.fs.mkdirs(place)
            for file in range(count):
                run.fs.create(f"{work}/{file}").close()
            moves: list[Operation] = [
                Rename(f"{work}/{file}", f"{place}/{file}") for file in range(count)
            ]
            name = f"bench/{count}/{number}"

            def commit(moves: list[Operation] = moves, name: str = name) -> None:
                run.fs.transact(moves, once=(name, 0), keep_for_s=60)

            at = (float(count), "files in one transaction")
            run.bench.emit("commit", seconds_of(commit) * 1e3, "ms", number, at=at)


def bench_batch(run: Run) -> None:
    """Compare our sink with Spark's own file sink, for a micro-batch of few rows."""
    lines = run.folder / "lines"
    lines.mkdir()
    for number in range(run.bench.size(BATCHES, 3)):
        (lines / f"{number}.txt").write_text("one line\n")
    for name, kind, target in (
        ("local parquet", "parquet", os.fspath(run.folder / "stream")),
        ("sink, parquet", "paxosblock", f"{run.url}/bench/stream"),
    ):
        source = run.spark.readStream.option("maxFilesPerTrigger", 1).text(os.fspath(lines))
        query = (
            source.writeStream.format(kind)
            .option("checkpointLocation", os.fspath(run.folder / f"checkpoint-{kind}"))
            .option("path", target)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        spent = [step.batchDuration / 1e3 for step in query.recentProgress if step.numInputRows]
        spent = spent[len(spent) // 3 :]  # the first ones load classes and start workers
        run.bench.emit(f"micro-batch: {name}", median(spent) * 1e3, "ms", batches=len(spent))


def bench_tail(run: Run) -> None:
    """Measure from a line's hflush to the moment a query that tails the file has processed it."""
    lines = run.bench.size(LINES, 3)
    flushed: dict[int, float] = {}
    arrived: dict[int, float] = {}

    def process(frame: DataFrame, _batch: int) -> None:
        rows = [int(row.value) for row in frame.collect()]
        arrived.update(dict.fromkeys(rows, time.perf_counter()))

    with run.fs.create("/bench/tailed") as out:
        source = run.spark.readStream.format("paxosblock").option("fileFormat", "text")
        query = (
            source.load(f"{run.url}/bench/tailed")
            .writeStream.foreachBatch(process)
            .option("checkpointLocation", os.fspath(run.folder / "checkpoint-tail"))
            .start()
        )

        def all_arrived() -> bool:
            if len(arrived) < len(flushed) and not query.isActive:
                raise UnavailableError(f"the query ended: {query.exception()}")
            return len(arrived) == len(flushed)

        for line in range(lines):
            out.write(f"{line}\n".encode())
            flushed[line] = time.perf_counter()
            out.hflush()
            wait_until(all_arrived, LINE_WITHIN_S, f"line {line} did not arrive")
        query.stop()
    warm = [arrived[line] - flushed[line] for line in range(lines // 3, lines)]
    run.bench.emit_times("hflush to processed by a tailing query", warm)


BENCHMARKS = {
    "write": bench_write,
    "read": bench_read,
    "commit": bench_commit,
    "batch": bench_batch,
    "tail": bench_tail,
}


def session(cores: int, more: Mapping[str, str] | None = None) -> SparkSession:
    """Return a quiet Spark of this process, with more settings."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.fspath(Path(__file__).parents[1])
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.appName("benchmark").master(f"local[{cores}]")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": str(cores),
        **(more or {}),
    }.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def answer(bench: Bench, url: str) -> None:
    """Emit all figures; `url` is that of a cluster."""
    folder = bench.folder / "spark"
    folder.mkdir()
    spark = session(bench.host.cores)
    try:
        with Client(url) as fs:
            rows = bench.size(MIB_WRITTEN, 1) * MIB // ROW_BYTES
            run = Run(bench, spark, url, fs, folder, rows)
            for name, each in BENCHMARKS.items():
                progress(f"{bench.case}: {name}")
                each(run)
                fs.delete("/bench", recursive=True)
    finally:
        spark.stop()
