"""Streams through the end of their driver and of nodes: every row once, whatever was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from paxosblock import Client, LocalCluster
from paxosblock.spark import published_batch
from tests.spark.reading import Place

LINES = 30_000
"""Of one input file: several batches of Spark's."""


@pytest.fixture
def feed(tmp_path: Path) -> Path:
    """Three text files; each becomes one batch."""
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(3):
        lines = (f"{number}-{line}-{'x' * 100}" for line in range(LINES))
        (folder / f"{number}.txt").write_text("\n".join(lines) + "\n")
    return folder


def lines(feed: Path) -> Counter[str]:
    """Every line of the input."""
    return Counter(line for file in feed.iterdir() for line in file.read_text().splitlines())


def run(spark: SparkSession, feed: Path, place: Place, layout: str, *, fault: str = "") -> str:
    """Write all that is there, a file per batch; returns the query's id."""
    rows = spark.readStream.option("maxFilesPerTrigger", 1).text(f"{feed}").repartition(2)
    writer = rows.writeStream.format("faulty" if fault else "paxosblock")
    writer = writer.option("fault", fault) if fault else writer
    writer = writer.option("fileFormat", "text").option("layout", layout)
    query = writer.option("checkpointLocation", f"{feed.parent}/checkpoint").trigger(
        availableNow=True
    )
    started = query.start(place.url)
    started.awaitTermination()
    return started.id


def written(place: Place, layout: str) -> Counter[str]:
    files = [place] if layout == "append" else place.files()
    return sum((file.lines() for file in files), Counter[str]())


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["files", "append"])
def test_a_driver_killed_between_the_transaction_and_sparks_own_log_repeats_no_row(
    spark: SparkSession, feed: Path, table: Place, layout: str
) -> None:
    fault = "driver killed after the commit of batch 1"
    program = [sys.executable, "-m", "tests.spark.driver"]
    checkpoint, out = feed.parent / "checkpoint", table / "out"
    driver = subprocess.run(
        [*program, f"{feed}", f"{checkpoint}", out.url, layout, fault],
        stderr=subprocess.DEVNULL,
        check=False,
        timeout=240,
    )
    assert driver.returncode == -signal.SIGKILL
    log = sorted(os.listdir(checkpoint / "commits"))
    assert [name for name in log if name.isdigit()] == ["0"], "Spark knows of the first batch only"
    assert len(written(out, layout)) == 2 * LINES
    query = run(spark, feed, out, layout)
    assert published_batch(table.fs, query) == 2
    assert written(out, layout) == lines(feed)
    assert [name for name in table.leftovers() if query in name] == []


@pytest.mark.parametrize("layout", ["append", pytest.param("files", marks=pytest.mark.slow)])
def test_a_datanode_that_dies_during_a_batch_costs_no_row(
    spark: SparkSession,
    cluster: LocalCluster,
    feed: Path,
    table: Place,
    layout: str,
) -> None:
    killed, out = cluster.datanodes[1], table / "out"
    try:
        run(spark, feed, out, layout, fault=f"process {killed.pid} killed mid-write")
        assert not killed.alive
    finally:
        if not killed.alive:
            killed.start()
        cluster.wait_registered()
    assert written(out, layout) == lines(feed)


@pytest.mark.slow
def test_a_namenode_leader_that_dies_during_a_batch_costs_no_row(
    spark: SparkSession, feed: Path
) -> None:
    with LocalCluster(datanodes=3, namenodes=3) as cluster, Client(cluster.url) as fs:
        out = Place(f"{cluster.url}/leader/out", fs)
        leader = cluster.wait_leader()
        query = run(spark, feed, out, "append", fault=f"process {leader.pid} killed mid-write")
        assert not leader.alive
        assert published_batch(fs, query) == 2
        assert written(out, "append") == lines(feed)
