"""Jobs and streams in an encryption zone: what they write is encrypted, and they read it."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from paxosblock import Client, LocalCluster
from paxosblock.client.spark.jobs import distcp as job
from paxosblock.client.spark.jobs.compact import compact
from paxosblock.client.spark.jobs.distcp import distcp
from tests.files import read
from tests.master_keys import encrypt
from tests.spark.reading import Place


@pytest.fixture
def zone(table: Place, fs: Client, cluster: LocalCluster) -> Place:
    """A directory that became a zone."""
    fs.mkdirs(table.path)
    encrypt(cluster, table.path)
    return table


def all_encrypted(place: Place) -> bool:
    """True if there is something below a directory, and all of it is encrypted."""
    found = place.fs.glob(f"{place.path}/**/*")
    return bool(found) and all(entry.encrypted for entry in found)


def test_a_job_appends_and_overwrites_and_another_reads_it(
    spark: SparkSession, zone: Place
) -> None:
    table = zone / "table"
    frame = spark.range(1000).repartition(3)
    frame.write.format("paxosblock").mode("append").save(table.url)
    frame.write.format("paxosblock").mode("append").save(table.url)
    read_again = spark.read.format("paxosblock").option("fileFormat", "parquet").load(table.url)
    assert Counter(row.id for row in read_again.collect()) == dict.fromkeys(range(1000), 2)
    spark.range(7).write.format("paxosblock").mode("overwrite").save(table.url)
    assert table.ids() == Counter(range(7))
    assert all_encrypted(zone)
    assert not zone.leftovers()


def test_a_zone_itself_is_a_table_that_is_not_overwritten(spark: SparkSession, zone: Place) -> None:
    """A plain directory would stand in its place."""
    spark.range(10).write.format("paxosblock").mode("append").save(zone.url)
    with pytest.raises(AnalysisException, match="is an encryption zone, which mode 'overwrite'"):
        spark.range(7).write.format("paxosblock").mode("overwrite").save(zone.url)
    assert zone.ids() == Counter(range(10))
    assert all_encrypted(zone)


def test_a_stream_writes_files_and_makes_one_longer_and_a_job_reads_that(
    spark: SparkSession, zone: Place, tmp_path: Path
) -> None:
    lines = [f"{number}-{'x' * number}" for number in range(300)]
    (tmp_path / "in").mkdir()
    for half in (0, 1):
        text = "".join(f"{line}\n" for line in lines[half::2])
        (tmp_path / "in" / f"{half}.txt").write_text(text)
    rows = spark.readStream.option("maxFilesPerTrigger", 1).text(f"{tmp_path}/in")
    for name, options in (("files", {}), ("log", {"layout": "append", "fileFormat": "text"})):
        writer = rows.writeStream.format("paxosblock").options(**options)
        writer = writer.option("checkpointLocation", f"{tmp_path}/{name}")
        writer.trigger(availableNow=True).start((zone / name).url).awaitTermination()
    assert Counter((zone / "files").parquet().column("value").to_pylist()) == Counter(lines)
    assert (zone / "log").lines() == Counter(lines)
    assert all_encrypted(zone)
    source = spark.read.format("paxosblock").option("fileFormat", "text")
    found = source.load((zone / "log").url).collect()
    assert Counter(row.value for row in found) == Counter(lines)


def test_distcp_in_parts_and_compact_work_in_a_zone(
    spark: SparkSession,
    zone: Place,
    cluster: LocalCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(job, "PART_BYTES", 30_001)
    data = {"long": os.urandom(100_000), **{f"{n}.txt": b"%d\n" % n for n in range(9)}}
    for name, content in data.items():
        (tmp_path / name).write_bytes(content)
    report = distcp(spark, os.fspath(tmp_path), cluster.addresses, zone.path)
    assert (report.copied, report.failures) == (10, ())
    assert {name: read(zone.fs, f"{zone.path}/{name}") for name in data} == data
    zone.fs.delete(f"{zone.path}/long")
    (compacted,) = compact(spark, cluster.addresses, zone.path).directories
    assert (compacted.merged, compacted.into, compacted.error) == (9, 1, "")
    (merged,) = zone.files()
    assert merged.lines() == Counter(str(n) for n in range(9))
    assert all_encrypted(zone)
