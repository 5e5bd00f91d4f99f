"""Batch jobs that meet faults, where they really happen: the rows are there once, or not at all."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import LongType, StructField, StructType

from paxosblock import Client, LocalCluster
from paxosblock.client.spark.attempts import TaskAttempt
from paxosblock.client.spark.sink import SUCCESS, BatchSink, make_writer
from paxosblock.client.spark.source_options import Use, parse_options
from paxosblock.errors import FencedError, NotFoundError
from tests.spark.faulty import ROWS_BEFORE
from tests.spark.reading import Place
from tests.waiting import wait_until

ROWS = 3 * ROWS_BEFORE
IDS = StructType([StructField("id", LongType())])


@pytest.fixture
def frame(spark: SparkSession) -> DataFrame:
    """Three partitions, each with more rows than are written before a fault."""
    return spark.range(0, 3 * ROWS, 1, numPartitions=3)


def faulty(frame: DataFrame, fault: str) -> DataFrameWriter:
    return frame.write.format("faulty").option("fault", fault)


@pytest.mark.parametrize(
    "fault", ["exception mid-write", "exit mid-write", "exception after the file was complete"]
)
def test_an_attempt_that_fails_is_repeated_and_leaves_nothing(
    frame: DataFrame, table: Place, fault: str
) -> None:
    faulty(frame, fault).mode("append").save(table.url)
    assert table.ids() == Counter(range(3 * ROWS))
    assert len(table.files()) == 3
    assert table.leftovers() == []


@pytest.mark.parametrize(
    ("fault", "mode"),
    [
        ("all attempts fail", "append"),
        pytest.param("exception before the commit", "overwrite", marks=pytest.mark.slow),
        pytest.param("all attempts fail", "overwrite", marks=pytest.mark.slow),
        pytest.param("exception before the commit", "append", marks=pytest.mark.slow),
    ],
)
def test_a_job_that_fails_leaves_everything_as_it_was(
    frame: DataFrame, table: Place, fault: str, mode: str
) -> None:
    frame.limit(5).write.format("paxosblock").mode("append").save(table.url)
    before = table.names()
    with pytest.raises(PySparkException, match="injected"):
        faulty(frame, fault).mode(mode).save(table.url)
    assert table.names() == before
    assert table.ids() == Counter(range(5))


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_commit_that_raises_after_it_took_effect_stays_published(
    frame: DataFrame, table: Place, mode: str
) -> None:
    with pytest.raises(PySparkException, match="injected after the commit"):
        faulty(frame, "exception after the commit").mode(mode).save(table.url)
    assert table.ids() == Counter(range(3 * ROWS))
    assert SUCCESS in table.names()


def writer_of(table: Place) -> BatchSink:
    writer = make_writer(IDS, parse_options({"path": table.url}, Use.WRITE), overwrite=False)
    assert isinstance(writer, BatchSink)
    return writer


def batches(count: int) -> Iterator[pa.RecordBatch]:
    for start in range(count):
        yield pa.record_batch({"id": pa.array([start])})


def test_an_attempt_that_starts_after_the_job_ended_finds_no_place(table: Place) -> None:
    writer = writer_of(table)
    writer.commit([writer.write_as(TaskAttempt(0, 7), batches(3))])
    with pytest.raises(NotFoundError):
        writer.write_as(TaskAttempt(0, 8), batches(3))
    assert table.ids() == Counter(range(3))
    assert table.leftovers() == []


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_an_attempt_that_writes_while_the_job_ends_is_fenced(table: Place, end: str) -> None:
    writer = writer_of(table)
    winner = writer.write_as(TaskAttempt(0, 7), batches(3))

    def late() -> Iterator[pa.RecordBatch]:
        yield from batches(1)
        if end == "commit":
            writer.commit([winner])
        else:
            writer.abort([winner, None])
        # More than the client holds back: it has to hear of it.
        yield pa.record_batch({"id": pa.array(range(1_000_000))})

    with pytest.raises((FencedError, NotFoundError)):
        writer.write_as(TaskAttempt(0, 8), late())
    assert table.leftovers() == []
    assert table.ids() == Counter(range(3)) if end == "commit" else table.names() == []


def test_a_commit_that_comes_after_the_abort_publishes_nothing(table: Place) -> None:
    writer = writer_of(table)
    written = writer.write_as(TaskAttempt(0, 7), batches(3))
    writer.abort([written])
    with pytest.raises(FencedError, match="was aborted"):
        writer.commit([written])
    assert table.names() == []


def test_an_abort_that_comes_after_the_commit_changes_nothing(table: Place) -> None:
    writer = writer_of(table)
    written = writer.write_as(TaskAttempt(0, 7), batches(3))
    writer.commit([written])
    writer.abort([written])
    assert table.ids() == Counter(range(3))


def test_a_commit_that_is_repeated_publishes_no_row_twice(table: Place) -> None:
    writer = writer_of(table)
    written = writer.write_as(TaskAttempt(0, 7), batches(3))
    for _ in range(2):
        writer.commit([written])
    assert table.ids() == Counter(range(3))


def test_what_a_killed_attempt_left_half_is_not_published_though_its_file_is_whole(
    table: Place,
) -> None:
    """Its input may end quietly when it is killed, so only what Spark was told of counts."""
    writer = writer_of(table)
    writer.write_as(TaskAttempt(0, 7), batches(2))
    writer.commit([writer.write_as(TaskAttempt(0, 8), batches(5))])
    assert table.ids() == Counter(range(5))
    assert table.leftovers() == []


@pytest.mark.parametrize("replaces", [False, True])
def test_of_two_jobs_at_one_place_none_loses_or_repeats_a_row(
    table: Place, *, replaces: bool
) -> None:
    """Both add their rows; of two that replace, the second finds its work gone and says so."""
    options = parse_options({"path": table.url}, Use.WRITE)
    jobs = [make_writer(IDS, options, overwrite=replaces) for _ in range(2)]
    written: list[WriterCommitMessage | None] = []
    for job, rows in zip(jobs, (3, 5), strict=True):
        assert isinstance(job, BatchSink)
        written.append(job.write_as(TaskAttempt(0, rows), batches(rows)))
    jobs[0].commit(written[:1])
    if not replaces:
        jobs[1].commit(written[1:])
        assert table.ids() == Counter(range(3)) + Counter(range(5))
        return
    with pytest.raises(NotFoundError, match="another job has replaced"):
        jobs[1].commit(written[1:])
    jobs[1].abort(written[1:])
    assert table.ids() == Counter(range(3))


def test_overwriting_fences_a_job_that_appends_to_the_same_place(table: Place) -> None:
    appending = writer_of(table)
    late = appending.write_as(TaskAttempt(0, 1), batches(5))
    options = parse_options({"path": table.url}, Use.WRITE)
    replacing = make_writer(IDS, options, overwrite=True)
    assert isinstance(replacing, BatchSink)
    replacing.commit([replacing.write_as(TaskAttempt(0, 2), batches(2))])
    with pytest.raises(NotFoundError, match="published nothing: its directory is gone"):
        appending.commit([late])
    assert table.ids() == Counter(range(2))


@pytest.mark.slow
def test_a_reader_finds_the_old_files_or_the_new_ones_while_they_are_replaced(table: Place) -> None:
    options = parse_options({"path": table.url}, Use.WRITE)
    jobs = list[str]()
    seen = Counter[str]()

    def replace(rows: int) -> None:
        writer = make_writer(IDS, options, overwrite=True)
        assert isinstance(writer, BatchSink)
        jobs.append(writer.job.name)
        tasks = [TaskAttempt(partition, partition) for partition in range(3)]
        writer.commit([writer.write_as(task, batches(rows)) for task in tasks])

    def look() -> None:
        while not done.is_set():
            found = [re.findall(r"part-\d+-(\w+)-", file.path)[0] for file in table.files()]
            assert len(found) == 3
            assert len(set(found)) == 1, "files of two jobs"
            seen.update(found[:1])

    replace(1)
    done = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(look)
        for rows in range(2, 12):
            replace(rows)
        done.set()
        looking.result()
    assert len(seen) > 1
    assert set(seen) <= set(jobs)
    assert table.ids() == Counter([*range(11)] * 3)


def test_a_job_that_nobody_ends_goes_when_its_time_is_over(table: Place) -> None:
    options = parse_options({"path": table.url, "jobTtl": "2h"}, Use.WRITE)
    writer = make_writer(IDS, options, overwrite=False)
    assert isinstance(writer, BatchSink)
    status = table.fs.stat(writer.job.directory)
    assert status.expires_s - status.created_s == 2 * 3600


def test_a_job_that_took_longer_than_its_time_to_live_says_so_and_publishes_nothing(
    table: Place,
) -> None:
    writer = writer_of(table)
    written = writer.write_as(TaskAttempt(0, 7), batches(3))
    table.fs.mkdirs(writer.job.directory, ttl_s=0.1)
    wait_until(lambda: not table.fs.exists(writer.job.directory), timeout_s=60)
    with pytest.raises(NotFoundError, match="published nothing: its directory is gone"):
        writer.commit([written])
    writer.abort([written])
    assert table.names() == []


def writing_much(frame: DataFrame, fault: str) -> DataFrameWriter:
    """Each batch of Spark's fills several chunks: blocks are under way when the fault comes."""
    wide = frame.selectExpr("id", "REPEAT('x', 100) AS pad")
    options = {"fault": fault, "fileFormat": "arrow", "compression": "none"}
    return wide.write.format("faulty").options(**options).mode("append")


def ids_of(table: Place) -> Counter[int]:
    found = Counter[int]()
    for file in table.files():
        found.update(file.arrow().column("id").to_pylist())
    return found


def test_a_datanode_that_dies_mid_write_costs_no_row(
    frame: DataFrame, cluster: LocalCluster, table: Place
) -> None:
    killed = cluster.datanodes[0]
    try:
        writing_much(frame, f"process {killed.pid} killed mid-write").save(table.url)
        assert not killed.alive
    finally:
        if not killed.alive:
            killed.start()
        cluster.wait_registered()
    assert ids_of(table) == Counter(range(3 * ROWS))
    assert table.leftovers() == []


def test_a_namenode_leader_that_dies_mid_write_costs_no_row(frame: DataFrame) -> None:
    with LocalCluster(datanodes=3, namenodes=3) as cluster, Client(cluster.url) as fs:
        table = Place(f"{cluster.url}/leader", fs)
        leader = cluster.wait_leader()
        writing_much(frame, f"process {leader.pid} killed mid-write").save(table.url)
        assert not leader.alive
        assert ids_of(table) == Counter(range(3 * ROWS))
        assert table.leftovers() == []


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """URL of a standalone Spark with two workers, on two addresses of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"spark://127.0.0.1:{free.getsockname()[1]}"
    start = [os.fspath(Path(pyspark.__file__).parent / "bin" / "spark-class")]
    port = url.rpartition(":")[2]
    roles = [["master.Master", "--host", "127.0.0.1", "--port", port]]
    for host in ("127.0.0.2", "127.0.0.3"):
        folder = os.fspath(tmp_path / host)
        size = ["--cores", "1", "--memory", "600m", "--work-dir", folder]
        roles.append(["worker.Worker", "--host", host, *size, url])
    with ExitStack() as running:
        for role, *options in roles:
            command = [*start, f"org.apache.spark.deploy.{role}", "--webui-port", "0", *options]
            process = running.enter_context(
                subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            )
            running.callback(process.kill)
        yield url


@pytest.mark.slow
def test_an_attempt_that_loses_against_its_speculative_copy_is_fenced(
    master: str, table: Place, tmp_path: Path
) -> None:
    report = tmp_path / "report"
    program = [sys.executable, "-m", "tests.spark.speculation", master, table.url, f"{report}"]
    with (tmp_path / "driver.log").open("w") as log:
        subprocess.run(program, check=True, timeout=240, stderr=log)
    assert report.read_text() in {"FencedError", "NotFoundError"}
    assert table.ids() == Counter(range(1000))
    assert table.leftovers() == []
