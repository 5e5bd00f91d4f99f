"""A stream of real text through Spark into paxosblock, with a DataNode killed on the way.

    python -m examples.streaming

A producer writes a text line by line and flushes now and then. A Structured Streaming query follows
that file and writes the words as Parquet, a transaction for each micro-batch. Half-way a DataNode
is killed. At the end batch Spark, duckdb and pandas count the words, and so does plain Python, on
the text itself: the four agree to the row.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pydoc_data.topics import topics

import duckdb
import fsspec
import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

from paxosblock import Client, LocalCluster

TEXT = "\n".join(topics.values()).splitlines()
"""Python's own language reference, which comes with it: some ten thousand lines."""
FLUSH_EVERY = 500

Counts = dict[str, int]
"""The number of times each word occurs."""


def produce(fs: Client, path: str, half_way: threading.Event) -> None:
    """Write the text; every reader sees what was flushed, and keeps seeing it."""
    try:
        with fs.create(path) as out:
            for number, line in enumerate(TEXT):
                out.write(line.encode() + b"\n")
                if number % FLUSH_EVERY == 0:
                    out.hflush()
                if number == len(TEXT) // 2:
                    half_way.set()
    finally:
        half_way.set()  # nobody waits for one that failed


def stream(spark: SparkSession, cluster: LocalCluster, fs: Client) -> None:
    """Bring the words of the text into `/words` while the text is being written."""
    half_way = threading.Event()
    with ThreadPoolExecutor() as pool, tempfile.TemporaryDirectory() as checkpoint:
        producer = pool.submit(produce, fs, "/text", half_way)
        half_way.wait()  # the file exists now, and there is much more to come
        words = (
            spark.readStream.format("paxosblock")
            .option("fileFormat", "text")
            .option("maxBytesPerTrigger", "128KiB")
            .load(f"{cluster.url}/text")
            .select(sql.explode(sql.split(sql.trim("value"), r"\s+")).alias("word"))
            .where("word <> ''")
        )
        query = (
            words.writeStream.format("paxosblock")
            .option("checkpointLocation", checkpoint)
            .start(f"{cluster.url}/words")
        )
        cluster.datanodes[0].kill()
        producer.result()
        query.processAllAvailable()
        batches = sum(step.numInputRows > 0 for step in query.recentProgress)
        query.stop()
    print(f"{len(TEXT)} lines in {batches} micro-batches, one DataNode killed meanwhile")


def counted_by_spark(spark: SparkSession, cluster: LocalCluster) -> Counts:
    """Count with a batch query over the same files."""
    words = spark.read.format("paxosblock").load(f"{cluster.url}/words")
    return {row.word: row["count"] for row in words.groupBy("word").count().collect()}


def counted_by_duckdb(cluster: LocalCluster) -> Counts:
    """SQL over a file system of fsspec."""
    with duckdb.connect() as database:
        database.register_filesystem(fsspec.filesystem("paxosblock", namenodes=cluster.addresses))
        found = database.sql(
            "select word, count(*) from read_parquet('paxosblock:///words/*.parquet') group by word"
        )
        return dict(found.fetchall())


def counted_by_pandas(cluster: LocalCluster) -> Counts:
    """Count with a data frame by URL."""
    words = pd.read_parquet(f"{cluster.url}/words")["word"]
    return {str(word): int(count) for word, count in words.value_counts().items()}


def run(spark: SparkSession) -> dict[str, Counts]:
    """Run the whole example; return what each of the four counted."""
    with LocalCluster(datanodes=4) as cluster, Client(cluster.url) as fs:
        stream(spark, cluster, fs)
        return {
            "Python, on the text": dict(Counter(word for line in TEXT for word in line.split())),
            "batch Spark": counted_by_spark(spark, cluster),
            "duckdb": counted_by_duckdb(cluster),
            "pandas": counted_by_pandas(cluster),
        }


def main() -> None:
    """Run it on a Spark of its own and print what was counted."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.log.level", "ERROR").getOrCreate()
    try:
        counts = run(spark)
    finally:
        spark.stop()
    for who, counted in counts.items():
        top, times = max(counted.items(), key=lambda item: item[1])
        print(f"{who:<20} {sum(counted.values())} words, {len(counted)} different; '{top}' {times}")
    first, *others = counts.values()
    if any(other != first for other in others):
        sys.exit("the counts differ")
    print("all four agree, word by word")


if __name__ == "__main__":
    main()
